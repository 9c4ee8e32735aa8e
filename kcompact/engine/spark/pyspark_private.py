"""PySpark's private names. No other module reads one.

PySpark has no public way to connect to a JVM that runs already, to count executors, or to stop without waiting. Each
function here reads one private name and has a fallback for a PySpark without this name. The fallback is slower or has
less detailed messages; the result is the same. `tests/spark/test_pyspark_private.py` fails when a new PySpark moves a
name.

PySpark is imported inside the functions, because a JVM is started before PySpark is imported.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shlex
import struct
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socketserver import BaseServer

    from pyspark import SparkContext

ACTIVE_CONTEXT = "_active_spark_context"
"""Of the class SparkContext: the running context of this process, or None."""
GATEWAY = "_gateway"
"""Of the class SparkContext: Py4J's connection to the JVM, kept when a context stops and used by the next one."""
JVM_VIEW = "_jvm"
"""Of the class SparkContext: the classes of that JVM."""
JAVA_CONTEXT = "_jsc"
"""Of a SparkContext: the JavaSparkContext in the JVM."""
ACCUMULATOR_SERVER = "_accumulatorServer"
"""Of a SparkContext: the `socketserver` that receives the accumulators of finished tasks."""
ACCUMULATORS = "_accumulatorRegistry"
"""Of `pyspark.accumulators`: all accumulators of this process, by number. Nothing is ever removed from it."""
LAUNCH_GATEWAY = "launch_gateway"
"""Of `pyspark.java_gateway`: starts a JVM, or connects to the one that PYSPARK_GATEWAY_PORT and _SECRET name."""
GATEWAY_PORT = "PYSPARK_GATEWAY_PORT"
GATEWAY_SECRET = "PYSPARK_GATEWAY_SECRET"
SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
"""Read by `launch_gateway`: the arguments of `spark-submit`."""
GATEWAY_PROCESS = "proc"
"""Of the gateway that `launch_gateway` returns: the process that it started, or None."""
GATEWAY_SERVER = "org.apache.spark.api.python.PythonGatewayServer"
"""The main class of the JVM that PySpark connects to. The JVM ends when its standard input ends."""
CONNECTION_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"
"""The environment variable with the path of the file that GATEWAY_SERVER writes its port and secret to."""
JOB_SUCCEEDED = b"org/apache/spark/scheduler/JobSucceeded$"
"""The class that Spark's scheduler loads when the first job has ended well, as in a list of the classes of a JVM.

Fallback: no class archive is made, and Spark starts as slowly as the first time.
"""
DAEMON_MANAGER = "manager"
"""Of `pyspark.daemon`: the main function of the process that forks Spark's Python workers."""


def has_active_context() -> bool:
    """Return whether this process has a running SparkContext. Does not import PySpark.

    Fallback: False; the second SparkContext then fails with PySpark's own message.
    """
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and getattr(pyspark.SparkContext, ACTIVE_CONTEXT, None) is not None


@contextlib.contextmanager
def hidden_gateway() -> Iterator[None]:
    """Hide the connection of an earlier SparkContext of this process, and restore it afterwards.

    Fallback: nothing is hidden, and PySpark may use the earlier JVM; `context` refuses a JVM that it did not start.
    """
    from pyspark import SparkContext

    names = (GATEWAY, JVM_VIEW)
    if not all(hasattr(SparkContext, name) for name in names):
        yield
        return
    earlier = {name: getattr(SparkContext, name) for name in names}
    for name in names:
        setattr(SparkContext, name, None)
    try:
        yield
    finally:
        for name, value in earlier.items():
            setattr(SparkContext, name, value)


# The JVM


def direct_start_environment(connection_file: Path) -> dict[str, str]:
    """Return the environment variables of a JVM that runs GATEWAY_SERVER: it writes to `connection_file`.

    Fallback, where Spark has moved the class or the variable: the JVM fails at once, and `jvm` uses `submit`.
    """
    return {CONNECTION_FILE: str(connection_file)}


def connect(connection: bytes) -> Any:
    """Return the Py4J gateway to the JVM that wrote `connection`; None where PySpark has no `launch_gateway`.

    `connection` is the port, the length of the secret (both big-endian int32) and the secret.
    """
    launch_gateway = _launch_gateway()
    if launch_gateway is None:
        return None
    port, length = struct.unpack_from(">ii", connection)
    os.environ |= {GATEWAY_PORT: str(port), GATEWAY_SECRET: connection[8 : 8 + length].decode()}
    try:
        return launch_gateway()
    finally:
        del os.environ[GATEWAY_PORT], os.environ[GATEWAY_SECRET]


def submit(arguments: Sequence[str], output: IO[bytes]) -> Any:
    """Start a JVM through `spark-submit` with these arguments and return its gateway.

    `output` receives what the JVM prints. Leaves the arguments in the environment. Fallback: returns None; SparkContext
    then starts the same JVM itself, from the same arguments, and the JVM prints to this process's own streams.
    """
    os.environ[SUBMIT_ARGUMENTS] = shlex.join(arguments)
    launch_gateway = _launch_gateway()
    if launch_gateway is None:
        return None
    return launch_gateway(popen_kwargs={"stdout": output, "stderr": output, "start_new_session": True})


def _launch_gateway() -> Any:
    from pyspark import java_gateway

    return getattr(java_gateway, LAUNCH_GATEWAY, None)


def gateway_of(sc: SparkContext) -> Any:
    """Return the gateway of a SparkContext. Fallback: None; the gateway's connections then close with this process."""
    return getattr(sc, GATEWAY, None)


def process_of(gateway: Any) -> Any:
    """Return the process (a `Popen`) that PySpark started for a gateway.

    Fallback: None; the JVM then ends when the pipe to its standard input closes, at the latest with this process.
    """
    # A gateway asks the JVM for attributes that it does not have.
    return None if gateway is None else vars(gateway).get(GATEWAY_PROCESS)


# A running SparkContext


def executor_count(sc: SparkContext) -> int | None:
    """Return how many executors have registered with the driver. Fallback: None, the number is not known."""
    from py4j.protocol import Py4JError, Py4JNetworkError

    java_context = getattr(sc, JAVA_CONTEXT, None)
    if java_context is None:
        return None
    try:
        return int(java_context.sc().getExecutorMemoryStatus().size()) - 1  # The driver is in the list.
    except Py4JNetworkError:
        raise
    except Py4JError:
        return None  # Spark has no such method.


def silence_accumulators(sc: SparkContext) -> None:
    """Keep the accumulator server from printing a traceback when the JVM dies. Fallback: it prints."""
    server = getattr(sc, ACCUMULATOR_SERVER, None)
    if server is not None:
        server.handle_error = lambda *_: None


class _Forgotten:
    """Takes the place of an accumulator whose job has failed: a task that ends late may still send to it."""

    def __iadd__(self, more: object) -> _Forgotten:
        return self


_FORGOTTEN = _Forgotten()


def forget_accumulators(*ended: Any, may_get_more: bool) -> None:
    """Let PySpark keep nothing of accumulators whose job has ended. Fallback: it keeps them while the process runs.

    `may_get_more`: the job has failed, and its tasks may not have ended. PySpark 4.0 must know their accumulators.
    """
    from pyspark import accumulators

    registry = getattr(accumulators, ACCUMULATORS, {})
    for each in ended:
        if registry.pop(each.aid, None) is not None and may_get_more:
            registry[each.aid] = _FORGOTTEN


def detach_accumulators(sc: SparkContext) -> None:
    """Shut the accumulator server down in the background. Fallback: `sc.stop` waits for it, up to a second."""
    server = getattr(sc, ACCUMULATOR_SERVER, None)
    if server is not None:
        setattr(sc, ACCUMULATOR_SERVER, None)
        threading.Thread(target=_shut_down, args=(server,), daemon=True).start()


def _shut_down(server: BaseServer) -> None:
    # The server removes its socket. The directory of the socket may be removed at the same time.
    with contextlib.suppress(FileNotFoundError):
        server.shutdown()


def detach_java_context(sc: SparkContext) -> None:
    """Make `sc.stop` skip the stop inside the JVM, which the caller kills. Fallback: `sc.stop` waits for the JVM."""
    if hasattr(sc, JAVA_CONTEXT):
        setattr(sc, JAVA_CONTEXT, None)


# Workers


def import_worker() -> None:
    """Import the modules that PySpark's daemon and workers run. Fallback: each worker imports them itself."""
    with contextlib.suppress(ImportError):
        import pyspark.daemon
        import pyspark.worker  # noqa: F401  # Imported for the workers that are forked from this process.


def run_daemon() -> None:
    """Run PySpark's daemon in this process until Spark ends it. Fallback: run its module as a script."""
    from pyspark import daemon

    manager = getattr(daemon, DAEMON_MANAGER, None)
    if manager is not None:
        manager()
        return
    del sys.modules[daemon.__name__]  # `runpy` warns about a module that is imported already.
    runpy.run_module(daemon.__name__, run_name="__main__")
