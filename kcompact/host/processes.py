"""The programs that run on this machine, as `/proc` shows them: their arguments, their user, and their files.

Another process may have another root (a container) and another working directory. `/proc/PID/root` and `/proc/PID/cwd`
lead there, for root and for the user of the process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kcompact.host.open_files import PROC


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process with the id of its user and its command line."""

    pid: int
    user_id: int
    arguments: tuple[str, ...]

    @property
    def root(self) -> Path | None:
        """The root directory of the process; None if this user may not look there."""
        return self._directory("root")

    @property
    def working_directory(self) -> Path | None:
        """The working directory of the process; None if this user may not look there."""
        return self._directory("cwd")

    def _directory(self, name: str) -> Path | None:
        path = PROC / str(self.pid) / name
        with suppress(OSError):
            path.stat()
            return path
        return None


def processes_with(*words: str) -> Iterator[Process]:
    """Yield the other processes whose command line contains one of the words, in the order of their ids."""
    wanted = [os.fsencode(word) for word in words]
    try:
        pids = sorted(int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208 - only the names
    except OSError:
        return
    for pid in pids:
        directory = PROC / str(pid)
        with suppress(OSError):  # It has ended, or it is hidden.
            line = (directory / "cmdline").read_bytes()
            if pid != os.getpid() and any(word in line for word in wanted):
                arguments = tuple(os.fsdecode(argument) for argument in line.split(b"\0")[:-1])
                yield Process(pid=pid, user_id=directory.stat().st_uid, arguments=arguments)
