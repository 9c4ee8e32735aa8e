"""Partitions that other processes use without their lock: brokers are refused, readers are noted.

A broker that reaches a partition by another path (a bind mount, a link to the partition directory) locks another
`.lock`. It is found by its open files: it has every `.log` open for writing and maps the indexes that it has used. A
process that only reads (a backup, `less`) does no harm and takes none: it goes on reading the old files.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kcompact.errors import PartitionInUseError
from kcompact.format.names import Suffix
from kcompact.host import other_processes
from kcompact.host.other_processes import Inode, OpenFile, OpenFiles
from kcompact.notes import Note, NoteCode

_INDEXES = (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)

_CLOCK_TICK_MS = 10
"""The times of files are those of the last tick of the kernel's clock."""


def require_unused(directory: Path) -> None:
    """Raise PartitionInUseError if a process has a file of this partition open as a broker has. Also OSError."""
    _, files = _looked_up(directory)
    _require_no_broker(directory, files)


def _require_no_broker(directory: Path, files: list[tuple[str, OpenFile]]) -> None:
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
        self._brokers: dict[OpenFile, list[str]] = {}
        self._readers: dict[OpenFile, list[str]] = {}
        self._unseen: tuple[str, ...] = ()

    def look_at(self, directory: Path) -> None:
        """Look at one partition. Raises PartitionInUseError as `require_unused` does, and OSError."""
        seen, files = _looked_up(directory)
        if not self._only_notes:
            _require_no_broker(directory, files)
        self._unseen = seen.unseen
        for name, use in files:
            found = self._brokers if _is_as_a_broker(name, use) else self._readers
            names = found.setdefault(use._replace(is_writable=False, is_mapped=False), [])
            if directory.name not in names:
                names.append(directory.name)

    @property
    def notes(self) -> list[Note]:
        """A note for each process, and one on what could not be looked at."""
        notes = [
            Note.of(NoteCode.OPEN_IN_BROKER, command=use.command, pid=use.pid, names=_some(names))
            for use, names in self._brokers.items()
        ]
        if self._changes:
            notes += [
                Note.of(NoteCode.READ_BY_PROCESS, command=use.command, pid=use.pid, names=_some(names))
                for use, names in self._readers.items()
            ]
        if self._unseen and not self._only_notes:
            notes.append(Note.of(NoteCode.UNSEEN_PROCESSES, unseen=" and ".join(self._unseen)))
        return notes


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def _is_as_a_broker(name: str, use: OpenFile) -> bool:
    return use.is_writable or (use.is_mapped and name.endswith(_INDEXES))


def _looked_up(directory: Path) -> tuple[OpenFiles, list[tuple[str, OpenFile]]]:
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
