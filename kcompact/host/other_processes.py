"""The other processes of this machine, found in `/proc`: the files they have open, their command lines.

A lock keeps out a broker that uses the same `.lock`. A broker that reaches a partition through a bind mount or another
path locks another `.lock`, but its descriptors lead to the same files. A running broker has every `.log` of a partition
open for writing, and maps the indexes that it has used. Only files with names of segments are looked at, so a look is
fast and waits for no file server of other programs. This process and its descendants (Spark's JVM, the Python workers)
do not count.

Another process may have another root (a container) and another working directory. `/proc/PID/root` and `/proc/PID/cwd`
lead there, for root and for the user of the process.
"""

from __future__ import annotations

import os
import pwd
import re
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from kcompact.host.machine import clock_ms
from kcompact.values import dataclass

# Their open files

PROC = Path("/proc")
RECENT_S = 1.0
"""A look that is not older than this need not be repeated."""
PAUSE_RATIO = 20
"""A look that takes long is not repeated for this many times its duration, so looking takes about 5 % of the time."""
OLDEST_S = 5.0
"""A look that is older than this is always repeated: a broker may have started since."""

_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's fixed number of the namespace of the machine itself (PROC_PID_INIT_INO). A container has another one."""
_WRITABLE = 0o200
"""Of the link of a descriptor in `/proc`: the file is open for writing."""
_SEGMENT_FILE = re.compile(rb".*/\d{20}\.[a-z]+(?:\.[a-z]+)?", re.DOTALL)
"""The path of a file of a segment, also of one whose name a swap or a deletion has changed."""
_MAPPING = re.compile(
    rb"(?P<range>[0-9a-f]+-[0-9a-f]+) (?P<mode>\S{4}) \S+ (?P<device>[0-9a-f]+:[0-9a-f]+) (?P<inode>\d+) +(?P<path>/.*)"
)
_NAMED_USERS = 3

Inode = tuple[int, int]
"""The device and the inode number of a file."""


class FileUse(NamedTuple):
    """How one process has a file open. `is_writable`: a descriptor or a shared mapping that can change the file."""

    pid: int
    command: str
    is_writable: bool
    is_mapped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFiles:
    """The files on some devices that other processes had open at one moment, which began at `clock_ms`.

    `unseen` says which processes could not be looked at, a sentence for each kind; empty if all were.
    """

    devices: frozenset[int]
    files: dict[Inode, list[FileUse]]
    unseen: tuple[str, ...]
    clock_ms: int
    looked_at: float
    duration_s: float

    def of(self, inode: Inode) -> list[FileUse]:
        """Return who has a file open."""
        return self.files.get(inode, [])

    @property
    def is_recent(self) -> bool:
        """Whether a new look is not worth its time yet."""
        return time.monotonic() - self.looked_at < max(RECENT_S, min(PAUSE_RATIO * self.duration_s, OLDEST_S))


@dataclass(slots=True)
class _Last:
    """The last look of this process. Partitions are cleaned side by side, and one look serves them all."""

    look: OpenFiles | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_last = _Last()


def look(devices: Collection[int]) -> OpenFiles:
    """Look at every process now, and return its files on these devices."""
    started, began_ms = time.monotonic(), clock_ms()
    files: dict[Inode, list[FileUse]] = {}
    hidden: Counter[str] = Counter()
    own = os.getpid()
    for process in _processes():
        if process == own:
            continue
        file_uses: dict[Inode, FileUse] = {}
        if not _look_at(process, frozenset(devices), file_uses):
            user = _user_of(process)
            hidden.update([user] if user else [])
        if file_uses and not _descends_from(process, own):
            for inode, use in file_uses.items():
                files.setdefault(inode, []).append(use)
    ended = time.monotonic()
    return OpenFiles(
        devices=frozenset(devices),
        files=files,
        unseen=tuple(_unseen(hidden)),
        clock_ms=began_ms,
        looked_at=ended,
        duration_s=ended - started,
    )


def recent_look(devices: Collection[int]) -> OpenFiles:
    """Return the last look if it is recent and covers these devices, else a new one."""
    with _last.lock:
        known = _last.look
        if known is None or not known.is_recent or not known.devices.issuperset(devices):
            known = look({*devices, *(known.devices if known is not None else ())})
            _last.look = known
        return known


def forget_look() -> None:
    """Make the next `recent_look` a new one."""
    with _last.lock:
        _last.look = None


# One process


def _processes() -> Iterator[int]:
    with suppress(OSError), os.scandir(PROC) as entries:
        yield from [int(entry.name) for entry in entries if entry.name.isdigit()]


def _look_at(process: int, devices: frozenset[int], file_uses: dict[Inode, FileUse]) -> bool:
    """Add the files on these devices that a process has open. Return False if it may not be looked at."""
    try:
        _look_at_descriptors(process, devices, file_uses)
        _look_at_mappings(process, devices, file_uses)
    except PermissionError:
        return False
    except OSError:
        pass  # It has ended.
    return True


def _look_at_descriptors(process: int, devices: frozenset[int], file_uses: dict[Inode, FileUse]) -> None:
    directory = f"{PROC}/{process}/fd"
    for name in os.listdir(directory):  # noqa: PTH208 - called for every process of the machine
        try:
            link = f"{directory}/{name}"
            if not _SEGMENT_FILE.fullmatch(os.fsencode(os.readlink(link))):  # noqa: PTH115 - as above
                continue
            status = os.stat(link)  # noqa: PTH116 - as above
            if status.st_dev in devices:
                mode = os.lstat(link).st_mode
                _add(file_uses, (status.st_dev, status.st_ino), process, is_writable=bool(mode & _WRITABLE))
        except PermissionError:
            raise
        except OSError:
            continue  # It was closed.


def _look_at_mappings(process: int, devices: frozenset[int], file_uses: dict[Inode, FileUse]) -> None:
    seen: set[tuple[bytes, bytes, bool]] = set()
    for line in Path(f"{PROC}/{process}/maps").read_bytes().splitlines():
        mapping = _MAPPING.match(line)
        if mapping is None or not _SEGMENT_FILE.fullmatch(mapping["path"]):
            continue
        is_writable = mapping["mode"][1:2] == b"w" and mapping["mode"][3:4] == b"s"
        key = mapping["device"], mapping["inode"], is_writable
        if key in seen:
            continue
        seen.add(key)
        for inode in _inodes_of(process, mapping, devices):
            _add(file_uses, inode, process, is_writable=is_writable, is_mapped=True)


def _inodes_of(process: int, mapping: re.Match[bytes], devices: frozenset[int]) -> Iterable[Inode]:
    """Return the device and the inode of a mapped file.

    `maps` has another device number than `stat` on some file systems (btrfs, overlay). The links in `map_files` have
    the right one, but only root may follow them.
    """
    try:
        status = os.stat(f"{PROC}/{process}/map_files/{mapping['range'].decode()}")  # noqa: PTH116 - as above
        return [(status.st_dev, status.st_ino)] if status.st_dev in devices else []
    except OSError:
        major, minor = (int(number, 16) for number in mapping["device"].split(b":"))
        device = os.makedev(major, minor)
        return [(device, int(mapping["inode"]))] if device in devices else []


def _add(
    file_uses: dict[Inode, FileUse], inode: Inode, process: int, *, is_writable: bool, is_mapped: bool = False
) -> None:
    known = file_uses.get(inode)
    if known is None:
        # Asking for the name once is enough: a broker has thousands of files open.
        command = next(iter(file_uses.values())).command if file_uses else command_of(process)
        known = FileUse(process, command, is_writable=False, is_mapped=False)
    file_uses[inode] = known._replace(
        is_writable=known.is_writable or is_writable, is_mapped=known.is_mapped or is_mapped
    )


def command_of(process: int) -> str:
    """Return the name of the program that a process runs, `?` if the process has ended."""
    try:
        return os.fsdecode((PROC / str(process) / "comm").read_bytes()).rstrip("\n")
    except OSError:
        return "?"


def is_suspended(process: int) -> bool:
    """Return whether a process is stopped by a signal or by a debugger: it does nothing, and keeps its locks."""
    return _stat_fields(process)[:1] in (["T"], ["t"])


def _descends_from(process: int, ancestor: int) -> bool:
    while process > 1:
        fields = _stat_fields(process)
        if not fields:
            return False
        process = int(fields[1])
        if process == ancestor:
            return True
    return False


def _stat_fields(process: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` after the name, which may contain anything: state, parent, ..."""
    try:
        return (PROC / str(process) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


# What is not seen

_INIT, _KTHREADD = 1, 2
"""Of the machine: the first process, and the parent of all threads of the kernel. Both are no brokers."""


def _user_of(process: int) -> str:
    """Return the user of a process that may not be looked at; empty for an ended process and one that is no broker."""
    fields = _stat_fields(process)
    if not fields:
        return ""
    if not is_in_container() and (process in (_INIT, _KTHREADD) or int(fields[1]) == _KTHREADD):
        return ""
    try:
        number = os.stat(PROC / str(process)).st_uid  # noqa: PTH116 - as for descriptors
    except OSError:
        return ""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _unseen(hidden: Counter[str]) -> Iterator[str]:
    if not (PROC / "self" / "fd").is_dir():
        yield "the files that processes have open, because /proc is not mounted"
        return
    if hidden:
        named = ", ".join(f"{count} of {user}" for user, count in hidden.most_common(_NAMED_USERS))
        more = "" if len(hidden) <= _NAMED_USERS else ", and of other users"
        yield f"the open files of {hidden.total()} processes of other users ({named}{more})"
    if not (PROC / "1").exists():
        yield "the processes of other users, because /proc is mounted with hidepid"
    if is_in_container():
        yield "processes outside this container"


@cache
def is_in_container() -> bool:
    """Return whether this process sees only the processes of its own namespace."""
    try:
        return os.readlink(PROC / "self" / "ns" / "pid") != _FIRST_PID_NAMESPACE  # noqa: PTH115 - `os` as above
    except OSError:
        return False


# Their command lines


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
