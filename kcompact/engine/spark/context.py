"""A private SparkContext: its settings, its environment, and this package on its workers.

With a local master all ports are on the loopback interface. All files are in private directories, which are removed
when the context stops. Spark reads no configuration from the environment. The environment of this process is restored.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import kcompact
from kcompact.engine.spark import pyspark_private, worker_pool
from kcompact.engine.spark.java import JAVA_VARIABLES
from kcompact.engine.spark.java_errors import as_py4j_raises, cause, plain, start_error, summary, with_whole_text
from kcompact.engine.spark.jvm import Jvm, spark_home
from kcompact.engine.spark.master import check_prerequisites, is_local
from kcompact.engine.spark.scratch import private_directory
from kcompact.errors import RefusedError
from kcompact.host.process_end import undone_at_abrupt_end
from kcompact.values import dataclass

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

DRIVER_MEMORY_MB = 512
CORE_MEMORY_MB = 32
"""Heap for each core beyond the fourth: the JVM holds a few MB for each task, and the results of all tasks."""
GATHER_S = 15.0
"""How long to wait for the executors of a cluster."""
SETTLED_S = 1.0
"""The executors are complete when no new one has registered for this time."""
_MAX_SOCKET_DIRECTORY_BYTES = 64
"""A socket's path has at most 107 bytes, and Spark adds 43 to the directory's."""


@contextlib.contextmanager
def spark_context(master: str = "local[*]", conf: Mapping[str, str] = {}) -> Iterator[SparkContext]:
    """Start Spark for kcompact alone; stop it and remove its files at the end of the block.

    `conf` has the user's settings. Settings that would open a port, print, or run a task twice are overridden. Raises
    RefusedError (no Java, a cluster without a secret, an existing SparkContext), ConfigError (no such kind of master, a
    setting that cannot be read), EngineError (Spark does not start).
    """
    with spark_start(master, conf) as start, start.context() as sc:
        yield sc


@contextlib.contextmanager
def spark_start(master: str = "local[*]", conf: Mapping[str, str] = {}) -> Iterator[SparkStart]:
    """Begin to start Spark and yield at once; `SparkStart.context` waits. Arguments and errors as in `spark_context`.

    Spark starts in other processes, and PySpark is not imported yet, so the caller can do other work.
    """
    _require_no_context(master)
    java = check_prerequisites(master, conf)
    with contextlib.ExitStack() as stack:
        with _start_errors(master, conf):
            local_dirs = [
                stack.enter_context(private_directory(parent or None))
                for parent in conf.get("spark.local.dir", "").split(",")
            ]
            stack.callback(_remove_from_import_path, local_dirs)
            home = local_dirs[0]
            settings = _settings(master, conf, local_dirs)
            environment = _jvm_environment(master, conf, home)
            spark_jvm = Jvm(java, settings, environment, home)
            # Until it has ended: a second Ctrl-C can come during the end too.
            stack.enter_context(undone_at_abrupt_end(spark_jvm.kill))
            stack.callback(spark_jvm.end)
            spark_jvm.start()
            if settings["spark.python.daemon.module"] == worker_pool.__name__:
                pool = worker_pool.WorkerPool(environment["PYSPARK_PYTHON"], environment, home)
                stack.enter_context(undone_at_abrupt_end(pool.kill))
                stack.callback(pool.end)
        yield SparkStart(master=master, conf=conf, settings=settings, environment=environment, home=home, jvm=spark_jvm)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStart:
    """A Spark that is starting: the JVM is already running, `context` creates the SparkContext.

    `conf` has the user's settings, `settings` has all of them.
    """

    master: str
    conf: Mapping[str, str]
    settings: Mapping[str, str]
    environment: Mapping[str, str]
    home: Path
    jvm: Jvm

    @property
    def is_first(self) -> bool:
        """Whether this run makes the first class archive at its end, which takes some seconds in the background."""
        return self.jvm.makes_archive

    @contextlib.contextmanager
    def context(self) -> Iterator[SparkContext]:
        """Wait for Spark and yield its SparkContext; stop it at the end of the block.

        Raises EngineError if Spark does not start, RefusedError if this process already has a SparkContext.
        """
        from py4j.protocol import Py4JError, Py4JJavaError

        _require_no_context(self.master)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_quiet_py4j())
            stack.enter_context(pyspark_private.hidden_gateway())
            try:
                with as_py4j_raises():
                    sc = stack.enter_context(self._started())
                    if not is_local(self.master):
                        _await_executors(sc)
            except Py4JJavaError as problem:
                error = start_error(cause(problem), self.master, self.conf)
                raise with_whole_text(error, f"{problem}\n{self.jvm.output()}") from problem
            except (Py4JError, OSError, EOFError, RuntimeError, ValueError) as problem:
                output = self.jvm.output()
                error = start_error(plain(str(problem)) + summary(output), self.master, self.conf)
                raise with_whole_text(error, output) from problem
            yield sc

    @contextlib.contextmanager
    def _started(self) -> Iterator[SparkContext]:
        """Create the SparkContext and stop it at the end of the block."""
        from pyspark import SparkContext

        with contextlib.ExitStack() as stack:
            with _environment(self.environment):
                gateway = self.jvm.connect()
                with _kept_signal_handler():
                    sc = SparkContext(conf=_spark_conf(self.settings), gateway=gateway)
                stack.callback(self._stop, sc)
                self.jvm.adopt(sc)
                pyspark_private.silence_accumulators(sc)
            yield sc

    def _stop(self, sc: SparkContext) -> None:
        from py4j.protocol import Py4JError

        pyspark_private.detach_accumulators(sc)
        if self.jvm.kills_context and is_local(self.master):
            # The JVM is killed next and all its files are in `home`, so nothing in it has to be stopped.
            pyspark_private.detach_java_context(sc)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySpark warns about a dead JVM. The error was already raised.
            with contextlib.suppress(Py4JError, OSError):
                sc.stop()


def _require_no_context(master: str) -> None:
    if pyspark_private.has_active_context():
        raise RefusedError(
            path=master,
            problem="this process already has a SparkContext",
            hint="Stop it first, or run the stages on it: OnSpark(sc=...).",
        )


@contextlib.contextmanager
def _start_errors(master: str, conf: Mapping[str, str]) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        named = f"{problem.filename}: " if problem.filename else ""
        raise start_error(f"{named}{problem.strerror or problem}", master, conf) from problem


def _settings(master: str, conf: Mapping[str, str], local_dirs: Sequence[Path]) -> dict[str, str]:
    """Return the settings of the SparkContext. `conf` replaces defaults; values that kcompact needs replace both."""
    home = local_dirs[0]
    has_sockets = len(os.fsencode(home)) <= _MAX_SOCKET_DIRECTORY_BYTES
    settings = {
        "spark.app.name": "kcompact",
        "spark.driver.memory": f"{DRIVER_MEMORY_MB + CORE_MEMORY_MB * max(0, len(os.sched_getaffinity(0)) - 4)}m",
        # The blocks of survivors pass through the driver. Its heap limits them, so a second limit is not needed.
        "spark.driver.maxResultSize": "0",
        "spark.rpc.message.maxSize": "512",
        # On a cluster the workers get this package with the first task, after the daemon has started.
        "spark.python.daemon.module": (worker_pool.__name__ if is_local(master) and has_sockets else "pyspark.daemon"),
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
        # An abort reads the list of running tasks. By default that list can be outdated.
        "spark.ui.liveUpdate.period": "0ms",
        # An abort waits for its tasks. By default each worker has two seconds to end.
        "spark.python.task.killTimeout": "100ms",
        # Without Unix sockets the workers use loopback ports and a secret.
        "spark.python.unix.domain.socket.enabled": str(has_sockets).lower(),
        "spark.python.unix.domain.socket.dir": str(home),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        for name in ("spark.driver.port", "spark.blockManager.port", "spark.driver.blockManager.port"):
            settings.pop(name, None)
        # With a `local` master Spark would create a secret itself; for `local-cluster` it requires one.
        settings["spark.authenticate.secret"] = secrets.token_hex(32)
    return settings


def _spark_conf(settings: Mapping[str, str]) -> SparkConf:
    from pyspark import SparkConf

    spark_conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        spark_conf.set(name, value)
    return spark_conf


@contextlib.contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Turn off the messages of Py4J about a dead JVM: kcompact raises an error, or has killed the JVM itself.

    Py4J also writes to the root logger, which without a handler would print the traceback.
    """
    logger, root, silent = logging.getLogger("py4j"), logging.getLogger(), logging.NullHandler()
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)
        logger.setLevel(level)


@contextlib.contextmanager
def _kept_signal_handler() -> Iterator[None]:
    """Restore the handler of SIGINT, which SparkContext replaces. It does so only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


@contextlib.contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Replace this process's environment for the length of the block."""
    saved = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def _jvm_environment(master: str, conf: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return this process's environment, but with kcompact's values for all variables that Spark and Java read."""
    kept = {name: value for name, value in os.environ.items() if not _is_read_by_spark(name)}
    pool = {worker_pool.SOCKET_VARIABLE: str(home / worker_pool.SOCKET)}
    return {**kept, **_driver_environment(master, conf, home), **pool}


def _is_read_by_spark(name: str) -> bool:
    return name.startswith(("SPARK_", "PYSPARK_", "_PYSPARK_")) or name in (*JAVA_VARIABLES, "PYTHONSTARTUP")


def _driver_environment(master: str, conf: Mapping[str, str], home: Path) -> dict[str, str]:
    environment = {
        "PYSPARK_PYTHON": conf.get("spark.pyspark.python", sys.executable),
        "SPARK_CONF_DIR": str(home),
        # Workers are started with -m, which would put the current directory first on the import path.
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(_worker_path()),
    }
    if master.startswith("local"):
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    if not is_local(master):
        environment |= {"SPARK_HOME": str(spark_home()), "SPARK_SCALA_VERSION": "2.13"}
    return environment


def _worker_path() -> list[str]:
    """Return the first entries of the import path of workers: the directory of this package, then PYTHONPATH."""
    root = str(Path(kcompact.__file__).resolve().parents[1])
    python_path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    installed = root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return python_path if installed else [root, *python_path]


def _remove_from_import_path(directories: Sequence[Path]) -> None:
    """Remove the entries below `directories`, which SparkContext adds to the import path."""
    roots = tuple(map(str, directories))
    sys.path[:] = [entry for entry in sys.path if not entry.startswith(roots)]


def _await_executors(sc: SparkContext) -> None:
    """Wait until the cluster's executors are complete, at most GATHER_S: the number of tasks depends on them."""
    began = since = time.monotonic()
    count: int | None = 0
    while time.monotonic() - began < GATHER_S and (not count or time.monotonic() - since < SETTLED_S):
        now = pyspark_private.executor_count(sc)
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.1)
