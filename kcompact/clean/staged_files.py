"""New private files in the staging directory, and the values that describe complete ones.

Files are created with `O_EXCL` and mode 0600, written whole and synced. A failed sync is never retried.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kcompact.errors import storage_error
from kcompact.log.files import FileIdentity

MAX_PIECES = 1024
"""The most pieces that one `writev` accepts."""
READ_BACK_MISMATCH = "the staged file differs from what was written"


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A complete, synced file. `staged_as` is its name in the staging directory, `name` its name in the partition."""

    name: str
    staged_as: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """The staged files of one segment, and the files of the group that it replaces.

    `files` begins with the `.log`. `replaces` holds logs and indexes of the whole group, and the snapshots that are
    removed with it, as they were when the plan was made.
    """

    base_offset: int
    files: tuple[StagedFile, ...]
    replaces: tuple[FileIdentity, ...]


def create(path: Path) -> int:
    """Create a new file with mode 0600 and return its descriptor. Raises StorageError, NotEnoughSpaceError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise storage_error(path, problem, operation="create") from None


def write_all(descriptor: int, data: bytes | memoryview, *, path: Path) -> None:
    """Write all of `data`. Raises NotEnoughSpaceError if the file system is full, StorageError."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as problem:
        raise storage_error(path, problem, operation="write", needed_bytes=len(view)) from None


def write_pieces(descriptor: int, pieces: Sequence[bytes | memoryview], *, path: Path) -> None:
    """Write at most MAX_PIECES pieces with one system call. Raises as `write_all` does."""
    try:
        done = os.writev(descriptor, pieces)
    except OSError as problem:
        raise storage_error(path, problem, operation="write", needed_bytes=sum(map(len, pieces))) from None
    for piece in pieces:
        if done < len(piece):
            write_all(descriptor, memoryview(piece)[done:], path=path)
        done = max(0, done - len(piece))


def sync(descriptor: int, *, path: Path) -> None:
    """Flush a file to the disk. A failed sync is not repeated, because the kernel may have dropped the data."""
    try:
        os.fsync(descriptor)
    except OSError as problem:
        raise storage_error(path, problem, operation="sync") from None
