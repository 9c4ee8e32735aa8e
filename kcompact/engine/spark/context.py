"""A private SparkContext: its settings, its environment, and this package on its workers.

It listens on the loopback interface only, keeps all its files in directories of its own that go when it stops, reads
no Spark configuration from the environment and leaves the environment as it was.
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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import kcompact
from kcompact.engine.spark import daemon, jvm
from kcompact.engine.spark.scratch import private_directory
from kcompact.engine.spark.shipping import PACKAGE, packed
from kcompact.errors import EngineError, RefusedError

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext

DRIVER_MEMORY_MB = 512
CORE_MEMORY_MB = 32
"""What passes through the JVM is blocks of a few MB for each task, and the results of all of them."""
_DAEMON = daemon.__name__
GATHER_S = 15.0
SETTLED_S = 1.0


@contextlib.contextmanager
def spark_context(master: str = "local[*]", conf: Mapping[str, str] = {}) -> Iterator[SparkContext]:
    """Start Spark for kcompact alone, and stop it afterwards with everything it left behind.

    `conf` is the user's; what would open a port, or print, or let tasks run twice is set after it. Raises
    RefusedError (no Java, an unprotected cluster), EngineError (Spark does not start).
    """
    with spark_start(master, conf) as start, start.context() as sc:
        yield sc


@contextlib.contextmanager
def spark_start(master: str = "local[*]", conf: Mapping[str, str] = {}) -> Iterator[SparkStart]:
    """Begin to start Spark and return at once; `context` waits for it. Arguments and errors as of `spark_context`.

    What takes time is other processes' work, and PySpark has not been imported yet.
    """
    if master.startswith("spark://") and "spark.authenticate.secret" not in conf:
        raise RefusedError(
            path=master,
            problem="a standalone cluster needs the secret that its master and workers share",
            hint="Pass --spark-conf spark.authenticate.secret=SECRET, as in the cluster's own configuration.",
        )
    _require_no_context(master)
    java = jvm.find_java()
    with contextlib.ExitStack() as stack:
        with _start_errors():
            local_dirs = [
                stack.enter_context(private_directory(parent or None))
                for parent in conf.get("spark.local.dir", "").split(",")
            ]
            home = local_dirs[0]
            settings = _settings(master, conf, local_dirs)
            environment = _jvm_environment(master, conf, home)
            machine = jvm.Jvm(java, settings, environment, home)
            stack.callback(machine.end)
            machine.start()
            if settings["spark.python.daemon.module"] == _DAEMON:
                nursery = daemon.Nursery(environment["PYSPARK_PYTHON"], environment, home)
                stack.callback(nursery.end)
        yield SparkStart(master=master, settings=settings, environment=environment, home=home, machine=machine)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkStart:
    """A Spark that is on its way: its JVM has been started, its SparkContext is still to be made."""

    master: str
    settings: Mapping[str, str]
    environment: Mapping[str, str]
    home: Path
    machine: jvm.Jvm

    @property
    def is_first(self) -> bool:
        """Whether this start prepares later ones, which takes some seconds in the background when it is over."""
        return self.machine.makes_archive

    @contextlib.contextmanager
    def context(self) -> Iterator[SparkContext]:
        """Wait for Spark and return its SparkContext, stopped at the end of the block. Raises EngineError."""
        from py4j.protocol import Py4JError, Py4JJavaError
        from pyspark import SparkContext

        _require_no_context(self.master)
        with contextlib.ExitStack() as stack:
            stack.enter_context(_quiet_py4j())
            stack.enter_context(_own_gateway())
            try:
                with _environment(self.environment):
                    gateway = self.machine.connect()
                    with _kept_signal_handler():
                        sc = SparkContext(conf=_spark_conf(self.settings), gateway=gateway)
                    stack.callback(_stop, sc, is_local=jvm.is_local(self.master))
                    _silence_accumulators(sc)
                if not jvm.is_local(self.master):
                    sc.addArchive(str(packed(self.home)) + f"#{PACKAGE}")
                    _await_executors(sc)
            except (Py4JError, OSError, EOFError, RuntimeError, ValueError) as problem:
                cause = jvm.cause(problem) if isinstance(problem, Py4JJavaError) else f"{problem}{self.machine.tail()}"
                raise EngineError(problem=f"it does not start: {cause}") from problem
            yield sc


def _require_no_context(master: str) -> None:
    pyspark = sys.modules.get("pyspark")
    if pyspark is not None and pyspark.SparkContext._active_spark_context is not None:
        raise RefusedError(path=master, problem="this process already has a SparkContext; pass it to OnSpark")


@contextlib.contextmanager
def _start_errors() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise EngineError(problem=f"it does not start: {problem}") from problem


def _settings(master: str, conf: Mapping[str, str], local_dirs: Sequence[Path]) -> dict[str, str]:
    home = local_dirs[0]
    has_sockets = len(os.fsencode(home)) <= 64
    settings = {
        "spark.app.name": "kcompact",
        "spark.driver.memory": f"{DRIVER_MEMORY_MB + CORE_MEMORY_MB * max(0, len(os.sched_getaffinity(0)) - 4)}m",
        # The blocks of survivors pass through the driver; its heap is the limit, not a count of bytes.
        "spark.driver.maxResultSize": "0",
        "spark.rpc.message.maxSize": "512",
        # Elsewhere a worker has this package only once it runs a task.
        "spark.python.daemon.module": _DAEMON if jvm.is_local(master) and has_sockets else "pyspark.daemon",
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
        # An abort asks which tasks are running; the default answers for some time ago.
        "spark.ui.liveUpdate.period": "0ms",
        # An abort waits for its tasks; the default gives each worker two seconds to notice.
        "spark.python.task.killTimeout": "100ms",
        # A socket's path has at most 107 bytes; Spark adds 43. Without it the workers use loopback ports and a secret.
        "spark.python.unix.domain.socket.enabled": str(has_sockets).lower(),
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
    from pyspark import SparkConf

    spark_conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        spark_conf.set(name, value)
    return spark_conf


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
    from pyspark import SparkContext

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
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment; everything is put back."""
    saved = dict(os.environ)
    try:
        os.environ.clear()
        os.environ.update(wanted)
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def _jvm_environment(master: str, conf: Mapping[str, str], home: Path) -> dict[str, str]:
    """Return the environment without what Spark and Java read from it, and with what they are to read."""
    kept = {name: value for name, value in os.environ.items() if not _is_sparks(name)}
    return {**kept, **_driver_environment(master, conf, home), daemon.ADDRESS: str(home / daemon.SOCKET)}


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
    if not jvm.is_local(master):
        environment |= {"SPARK_HOME": str(jvm.spark_home()), "SPARK_SCALA_VERSION": "2.13"}
    return environment


def _worker_path() -> list[str]:
    """Return where workers import from besides their interpreter's own places: this package's directory first."""
    root = str(Path(kcompact.__file__).resolve().parents[1])
    given = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    installed = root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return given if installed else [root, *given]


def _silence_accumulators(sc: SparkContext) -> None:
    """Keep the thread that receives accumulators from printing a traceback when the JVM dies."""
    server = getattr(sc, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def _await_executors(sc: SparkContext) -> None:
    """Return when executors have come and no more do, or after a while: how many tasks are made depends on them."""
    began = since = time.monotonic()
    count = 0
    while time.monotonic() - began < GATHER_S and (count == 0 or time.monotonic() - since < SETTLED_S):
        now = sc._jsc.sc().getExecutorMemoryStatus().size() - 1  # The driver is among them.
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.1)


def _stop(sc: SparkContext, *, is_local: bool) -> None:
    from py4j.protocol import Py4JError

    # Waiting for the thread that receives accumulators takes up to a second, and nobody sends any more.
    server = getattr(sc, "_accumulatorServer", None)
    if server is not None:
        sc._accumulatorServer = None
        threading.Thread(target=server.shutdown, daemon=True).start()
    if is_local:
        # All there is to stop are processes of ours, which are killed next, and files, which are removed then.
        sc._jsc = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It warns when its JVM is dead; that has been raised already.
        with contextlib.suppress(Py4JError, OSError):
            sc.stop()
