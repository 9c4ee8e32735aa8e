"""Where Spark's Python workers come from: a process that has imported everything before Spark asks for the first one.

Spark starts a daemon and has it fork a worker per core. Starting an interpreter and importing PySpark, numpy and the
stages takes longer than cleaning a small log, and all of it would come after the JVM's own start. So this module runs
twice: as the *nursery*, started beside the JVM, which imports all that and waits; and as the *daemon* that the JVM
starts, which hands the nursery its standard streams and environment and from then on only waits for its end.

    driver ─┬─ JVM ─── daemon ┄┄ streams, environment ┄┄┐
            └─ nursery ─────────────────────────────────┴── worker, worker, ...

A daemon that finds no nursery is an ordinary one. Either ends with the JVM, whose pipe is its standard input; a nursery
that nobody called ends with the driver.
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

ADDRESS = "KCOMPACT_NURSERY"
"""The environment variable with the path of the nursery's socket, which lies in a private directory."""
SOCKET = "nursery"
_MAX_MESSAGE_BYTES = 4 << 20
_TAKEN = b"taken"


class Nursery:
    """The driver's end of a nursery: a process that is started early and killed, with all workers, at the end."""

    def __init__(self, interpreter: str, environment: Mapping[str, str], home: Path) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(home / SOCKET))
        listening.listen(1)
        self._process = subprocess.Popen(
            [interpreter, "-P", "-m", __name__, "--wait-for-call", str(listening.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[listening.fileno()],
            process_group=0,
        )
        listening.close()

    def end(self) -> None:
        """Kill it and the workers that came from it."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, 9)
        self._process.wait()
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()


def main(arguments: list[str]) -> None:
    """Be the nursery, or the daemon."""
    if arguments[:1] == ["--wait-for-call"]:
        _be_nursery(int(arguments[1]))
    elif not _is_handed_over(arguments):
        _be_daemon()


def _be_daemon() -> None:
    from pyspark import daemon

    daemon.manager()


# The nursery


def _be_nursery(descriptor: int) -> None:
    _import_what_workers_need()
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
    caller.sendall(_TAKEN)
    _be_daemon()


def _import_what_workers_need() -> None:
    import gc

    import pyspark.daemon
    import pyspark.worker  # noqa: F401

    import kcompact.engine.spark.executor  # noqa: F401

    gc.collect()
    gc.freeze()  # The workers share these pages; a collection in one of them would copy them all.


def _received(caller: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, streams, _, _ = socket.recv_fds(caller, _MAX_MESSAGE_BYTES, 3)
    while not data.endswith(b"\n"):
        more = caller.recv(_MAX_MESSAGE_BYTES)
        if not more:
            raise EOFError("the daemon ended before it had said all")
        data += more
    return json.loads(data), list(streams)


# The daemon


def _is_handed_over(arguments: list[str]) -> bool:
    """Return, when the nursery has ended, whether there was one that did this daemon's work."""
    address = os.environ.get(ADDRESS)
    if not address:
        return False
    message = {"environment": dict(os.environ), "path": sys.path, "arguments": [sys.argv[0], *arguments]}
    taken = b""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as nursery:
        nursery.connect(address)
        data = json.dumps(message).encode() + b"\n"
        sent = socket.send_fds(nursery, [data], [0, 1, 2])
        nursery.sendall(data[sent:])
        while more := nursery.recv(len(_TAKEN)):
            taken += more
    return taken == _TAKEN


if __name__ == "__main__":
    main(sys.argv[1:])
