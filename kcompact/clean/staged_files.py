"""New private files in the staging directory, and the values that describe complete ones.

Files are created with `O_EXCL` and mode 0600, written whole and synced. A failed sync is never retried.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kcompact.errors import NotEnoughSpaceError, StorageError
from kcompact.log.files import FileIdentity

MAX_PIECES = 1024
"""As many as one system call takes."""


OTHER_BYTES = "the disk gave back other bytes than were written"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One complete, synced file in the staging directory: its name there, and the one it will have in the partition."""

    name: str
    staged_as: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """Staged files and the group of segments they replace.

    `replaces` holds every file of the group (`.log`, indexes) and the `.snapshot` files of the bases that
    disappear, as they were when the plan was made; `files` the staged ones, `.log` first.
    """

    base_offset: int
    files: tuple[StagedFile, ...]
    replaces: tuple[FileIdentity, ...]


# Files


def create(path: Path) -> int:
    """Return a descriptor of a new, private file. Raises StorageError, NotEnoughSpaceError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise write_error(path, problem, 0) from None


def write_all(descriptor: int, data: bytes | memoryview, *, path: Path) -> None:
    """Write all of `data`. Raises NotEnoughSpaceError when the file system is full, StorageError."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as problem:
        raise write_error(path, problem, len(view)) from None


def write_pieces(descriptor: int, pieces: Sequence[bytes | memoryview], *, path: Path) -> None:
    """Write all of some pieces, at most MAX_PIECES, in one go. Raises as `write_all` does."""
    try:
        done = os.writev(descriptor, pieces)
    except OSError as problem:
        raise write_error(path, problem, sum(map(len, pieces))) from None
    for piece in pieces:
        if done < len(piece):
            write_all(descriptor, memoryview(piece)[done:], path=path)
        done = max(0, done - len(piece))


def sync(descriptor: int, *, path: Path) -> None:
    """Flush a file to the disk. A failure is final: the kernel may have dropped the data (fsync is never retried)."""
    try:
        os.fsync(descriptor)
    except OSError as problem:
        raise write_error(path, problem, 0) from None


def write_error(path: Path, problem: OSError, needed_bytes: int) -> StorageError | NotEnoughSpaceError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        status = os.statvfs(path.parent)
        return NotEnoughSpaceError(
            path=path.parent, needed_bytes=needed_bytes, free_bytes=status.f_bavail * status.f_frsize
        )
    return StorageError(path=path, problem=problem)
