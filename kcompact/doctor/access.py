"""Owners and modes: what the broker's user may not read or write. That user is the owner of the log directory.

Another user's file is the usual trace of a tool that ran as root.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kcompact.doctor.findings import Finding, Kind
from kcompact.host.access import why_not_writable

_READ, _WRITE, _SEARCH = 4, 2, 1
_OPENED_FOR_WRITING = (".log", ".index", ".timeindex", ".txnindex", ".lock")
"""A broker opens these files for reading and writing. The others it reads or replaces."""


class BrokerUser:
    """The user that a broker runs as, by the owner of its log directory."""

    def __init__(self, log_dir: Path) -> None:
        status = log_dir.stat()
        self._user, self._groups, self.name = status.st_uid, {status.st_gid}, f"{status.st_uid}:{status.st_gid}"
        with suppress(KeyError):
            name = pwd.getpwuid(self._user).pw_name
            self._groups = set(os.getgrouplist(name, status.st_gid))
            self.name = name

    def lacks(self, status: os.stat_result, wanted: int) -> bool:
        """Return whether the user has not all of the wanted permissions (4 read, 2 write, 1 search)."""
        if self._user == 0:
            return False
        mode = status.st_mode
        if status.st_uid == self._user:
            granted = mode >> 6
        elif status.st_gid in self._groups:
            granted = mode >> 3
        else:
            granted = mode
        return granted & wanted != wanted


def access_findings(log_dir: Path) -> Iterator[Finding]:
    """Yield what a broker's user may not use, in a log directory and its partitions; one finding for each directory.

    Raises OSError if this user cannot list the log directory.
    """
    problem = why_not_writable(log_dir)
    if problem is not None:
        text = f"nothing can be written here: {problem.strerror}"
        yield Finding(kind=Kind.READ_ONLY, directory=log_dir, problem=text, broker_says=problem.strerror or "")
    user = BrokerUser(log_dir)
    if user.lacks(log_dir.stat(), _READ | _WRITE | _SEARCH):
        yield _finding(log_dir, log_dir, [log_dir.name], user)
    yield from _closed_files(log_dir, user)
    for entry in sorted(os.scandir(log_dir), key=lambda entry: entry.name):
        if not entry.is_dir(follow_symlinks=False):
            continue
        path = Path(entry.path)
        if user.lacks(entry.stat(follow_symlinks=False), _READ | _WRITE | _SEARCH):
            yield _finding(path, path, [path.name], user)
        with suppress(PermissionError):  # Reading the partition reports it.
            yield from _closed_files(path, user)


def _closed_files(directory: Path, user: BrokerUser) -> Iterator[Finding]:
    """Yield a finding if the user may not open some files of a directory as a broker does."""
    closed = {}
    for entry in os.scandir(directory):
        status = entry.stat(follow_symlinks=False)
        wanted = _READ | (_WRITE if entry.name.endswith(_OPENED_FOR_WRITING) else 0)
        if stat.S_ISREG(status.st_mode) and user.lacks(status, wanted):
            closed[entry.name] = user.lacks(status, _READ)
    if closed:
        names = sorted(closed)
        file = directory / names[0]
        says = f"Could not read file {file}" if closed[names[0]] else f"{file} (Permission denied)"
        yield _finding(directory, file, names, user, says)


def _finding(directory: Path, file: Path, names: list[str], user: BrokerUser, broker_says: str = "") -> Finding:
    more = f" and {len(names) - 1:,} more files" if len(names) > 1 else ""
    return Finding(
        kind=Kind.NO_ACCESS,
        directory=directory,
        file=file,
        problem=f"the owner of the log directory, {user.name}, may not open {names[0]}{more} as a broker does",
        owner=user.name,
        broker_says=broker_says,
    )
