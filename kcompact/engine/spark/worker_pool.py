"""Starts Spark's Python workers early: a process imports all modules before Spark needs the first worker.

Spark starts a daemon and lets it fork a worker per core. Starting an interpreter and importing PySpark, numpy and the
stages takes longer than cleaning a small log, and would begin only after the JVM's own start. So this module runs
twice. The *worker pool* is started beside the JVM, does the imports and waits. The *daemon* is started by the JVM,
passes its standard streams and environment to the worker pool, and then waits for the pool's end.

    driver ─┬─ JVM ─── daemon ┄┄ streams, environment ┄┄┐
            └─ worker pool ─────────────────────────────┴── worker, worker, ...

A daemon that finds no worker pool runs PySpark's own daemon. Both end with the JVM, whose pipe is their standard input.
A worker pool without a daemon ends with the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kcompact.engine.spark import pyspark_private
from kcompact.errors import KcompactError

SOCKET_VARIABLE = "KCOMPACT_WORKER_POOL"
"""The environment variable with the path of the worker pool's socket, which is in a private directory."""
SOCKET = "worker-pool"
_WAIT_OPTION = "--wait-for-daemon"
_MAX_MESSAGE_BYTES = 4 << 20
_ACCEPTED = b"accepted"


class WorkerPool:
    """A worker pool, as the driver uses it: starts the process, and kills it with all its workers at the end."""

    def __init__(self, interpreter: str, environment: Mapping[str, str], home: Path) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(home / SOCKET))
        listening.listen(1)
        self._process = subprocess.Popen(
            [interpreter, "-P", "-m", __name__, _WAIT_OPTION, str(listening.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[listening.fileno()],
            process_group=0,
        )
        listening.close()

    def kill(self) -> None:
        """Kill them without waiting for their end. After `end` their number can be that of other processes."""
        if self._process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, 9)

    def end(self) -> None:
        """Kill the worker pool and the workers that it has forked."""
        self.kill()
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def main(arguments: list[str]) -> None:
    """Run as the worker pool, or as the daemon."""
    if arguments[:1] == [_WAIT_OPTION]:
        _run_worker_pool(int(arguments[1]))
    elif not _is_handed_over(arguments):
        pyspark_private.run_daemon()


# The worker pool


def _run_worker_pool(descriptor: int) -> None:
    """Wait on the listening socket for the daemon, take over its streams and environment, and run PySpark's daemon."""
    _import_for_workers()
    with socket.socket(fileno=descriptor) as listening:
        ready, _, _ = select.select([descriptor, 0], [], [])
        if descriptor not in ready:
            return  # The driver has ended.
        caller, _ = listening.accept()
    message, streams = _received(caller)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(message["environment"])
    sys.path[:] = message["path"]
    sys.argv[:] = message["arguments"]
    caller.sendall(_ACCEPTED)
    pyspark_private.run_daemon()


def _import_for_workers() -> None:
    import gc

    import kcompact.engine.spark.executor  # Imported for the workers that are forked from this process.

    pyspark_private.import_worker()
    with contextlib.suppress(KcompactError):  # A worker reports the reason when it needs the kernels.
        import kcompact.kernels.machine_code

        kcompact.kernels.machine_code.loaded()
    gc.collect()
    gc.freeze()  # The workers share these pages. A collection in a worker would write to all of them, and copy them.


def _received(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the daemon's message and its standard streams. Raises EOFError if the message is not complete."""
    data, streams, _, _ = socket.recv_fds(caller, _MAX_MESSAGE_BYTES, 3)
    while not data.endswith(b"\n"):
        more = caller.recv(_MAX_MESSAGE_BYTES)
        if not more:
            raise EOFError("the daemon ended before its message was complete")
        data += more
    return json.loads(data), list(streams)


# The daemon


def _is_handed_over(arguments: list[str]) -> bool:
    """Return whether a worker pool took this daemon's work. If so, returns only when the worker pool has ended."""
    address = os.environ.get(SOCKET_VARIABLE)
    if not address:
        return False
    message = {"environment": dict(os.environ), "path": sys.path, "arguments": [sys.argv[0], *arguments]}
    answer = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as pool:
        pool.connect(address)
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(pool, [data], [0, 1, 2])
        pool.sendall(data[sent:])
        while more := pool.recv(len(_ACCEPTED)):
            answer += more
    return answer == _ACCEPTED


if __name__ == "__main__":
    main(sys.argv[1:])
