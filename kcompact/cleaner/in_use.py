"""Who else uses the partitions: the locks of their log directories, and processes that use them without their lock.

Brokers are refused, readers are noted.

A broker that reaches a partition by another path (a bind mount, a link to the partition directory) locks another
`.lock`. It is found by its open files: it has every `.log` open for writing and maps the indexes that it has used. A
process that only reads (a backup, `less`) does no harm and takes none: it goes on reading the old files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path

from kcompact.errors import KcompactError, LogDirLockedError, PartitionInUseError
from kcompact.format.names import Suffix
from kcompact.host import other_processes
from kcompact.host.other_processes import FileUse, Inode, OpenFiles
from kcompact.log.directory import PerLogDir, is_running
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LOCK_NAME, LogDirLock, holder_in_words, is_locked, log_dir_lock
from kcompact.readable import some_of
from kcompact.remarks import Note, RemarkCode
from kcompact.swap.checkpoint import remove_unfinished_checkpoint

_INDEXES = (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)

_CLOCK_TICK_MS = 10
"""The times of files are those of the last tick of the kernel's clock."""


def require_unused(directory: Path, known: Collection[FileIdentity] = ()) -> None:
    """Raise PartitionInUseError if a process has a file of this partition open as a broker has. Also OSError.

    `known` are segments of the log. If nobody has one of them open, the directory is not looked at: a broker has every
    `.log` open.
    """
    if known and not _is_open(known, other_processes.recent_look({file.device for file in known})):
        return
    _, files = _looked_up(directory)
    _require_no_broker(directory, files)


def _require_no_broker(directory: Path, files: list[tuple[str, FileUse]]) -> None:
    for name, use in files:
        if _is_as_a_broker(name, use):
            raise PartitionInUseError(file=directory / name, pid=use.pid, command=use.command, is_mapped=use.is_mapped)


class UseCheck:
    """Looks at the partitions of a run before anything is changed, and collects notes for the user.

    With `only_notes` a broker is a note as well, as for a dry run. Readers are noted only if the run `changes` files.
    """

    def __init__(self, *, only_notes: bool = False, changes: bool = True) -> None:
        other_processes.forget_look()  # Of an earlier run of this process.
        self._only_notes = only_notes
        self._changes = changes
        self._brokers: dict[FileUse, list[str]] = {}
        self._readers: dict[FileUse, list[str]] = {}
        self._unseen: tuple[str, ...] = ()

    def look_at(self, directory: Path, known: Collection[FileIdentity] = ()) -> None:
        """Look at one partition. Raises PartitionInUseError as `require_unused` does, and OSError."""
        if known:
            seen = other_processes.recent_look({file.device for file in known})
            self._unseen = seen.unseen
            if not _is_open(known, seen):
                return
        seen, files = _looked_up(directory)
        if not self._only_notes:
            _require_no_broker(directory, files)
        self._unseen = seen.unseen
        for name, use in files:
            names_by_use = self._brokers if _is_as_a_broker(name, use) else self._readers
            names = names_by_use.setdefault(use._replace(is_writable=False, is_mapped=False), [])
            if directory.name not in names:
                names.append(directory.name)

    @property
    def notes(self) -> list[Note]:
        """A note for each process, and one on what could not be looked at."""
        notes = [
            Note.of(RemarkCode.OPEN_IN_BROKER, command=use.command, pid=use.pid, names=some_of(names, at_most=1))
            for use, names in self._brokers.items()
        ]
        if self._changes:
            notes += [
                Note.of(RemarkCode.READ_BY_PROCESS, command=use.command, pid=use.pid, names=some_of(names, at_most=1))
                for use, names in self._readers.items()
            ]
        if self._unseen and not self._only_notes:
            notes.append(Note.of(RemarkCode.UNSEEN_PROCESSES, unseen=" and ".join(self._unseen)))
        return notes


def _is_open(files: Collection[FileIdentity], seen: OpenFiles) -> bool:
    return any(seen.of((file.device, file.inode)) for file in files)


def _is_as_a_broker(name: str, use: FileUse) -> bool:
    return use.is_writable or (use.is_mapped and name.endswith(_INDEXES))


def _looked_up(directory: Path) -> tuple[OpenFiles, list[tuple[str, FileUse]]]:
    """Return a recent look, and the files of the directory that other processes had open, with how."""
    inodes: dict[str, Inode] = {}
    newest_ms = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                inodes[entry.name] = (status.st_dev, status.st_ino)
                newest_ms = max(newest_ms, status.st_ctime_ns // 1_000_000)
    devices = {device for device, _ in inodes.values()}
    seen = other_processes.recent_look(devices)
    if newest_ms >= seen.clock_ms - _CLOCK_TICK_MS and any(seen.of(inode) for inode in inodes.values()):
        # The file may be newer than the look, and have the inode number of a file that has been deleted since.
        other_processes.forget_look()
        seen = other_processes.recent_look(devices)
    return seen, [(name, use) for name, inode in sorted(inodes.items()) for use in seen.of(inode)]


class Locks(PerLogDir[LogDirLock | None]):
    """The locks of the log directories. Each is taken once and held until the stack is closed.

    With `only_check` no lock is taken, and `of` returns None. A lock that another kcompact holds is then an error, or
    with `notes_held` one of the `notes`, as is that of a broker. `removed` are files and directories of killed runs
    that were found beside the partitions and removed. `of` raises LogDirLockedError.
    """

    def __init__(self, stack: ExitStack, *, only_check: bool = False, notes_held: bool = False) -> None:
        self.notes: list[Note] = []
        self.removed: list[Path] = []
        self._stack = stack
        self._only_check = only_check
        self._notes_held = notes_held
        super().__init__(self._lock)

    def _lock(self, log_dir: Path) -> LogDirLock | None:
        if not self._only_check:
            lock = self._stack.enter_context(log_dir_lock(log_dir))
            with suppress(KcompactError):  # What cannot be removed does no harm.
                self.removed += [log_dir / name for name in remove_unfinished_checkpoint(log_dir, lock)]
            return lock
        if is_locked(log_dir):
            held = LogDirLockedError(lock=log_dir / LOCK_NAME, holder=holder_in_words(log_dir))
            if not self._notes_held:
                if is_running(log_dir):
                    return None
                raise held
            self.notes.append(Note.of(RemarkCode.LOCK_HELD, problem=str(held).splitlines()[0]))
        return None
