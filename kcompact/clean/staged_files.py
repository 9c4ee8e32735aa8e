"""New private files in the staging directory, and the values that describe complete ones.

The staging directory is held open, and its files are reached only through its descriptor: its path may lead elsewhere
by now. Files are created with `O_EXCL` and mode 0600, written whole and synced. A failed sync is never retried.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kcompact.errors import LogChangedError, storage_error
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingDirectory:
    """Which directory new files are created in: where it was made, and its identity. Workers receive it pickled.

    The driver holds the directory open meanwhile, so that no other directory can get its inode number. Another machine
    has another number for the device, so `device` is None there.
    """

    path: Path
    device: int | None
    inode: int

    @staticmethod
    def of(path: Path, fd: int) -> StagingDirectory:
        """Return the identity of an open directory."""
        status = os.fstat(fd)
        return StagingDirectory(path=path, device=status.st_dev, inode=status.st_ino)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of the directory. Raises LogChangedError if its path leads to anything else."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise self._replaced() from None
        except OSError as problem:
            raise storage_error(self.path, problem) from None
        try:
            status = os.fstat(fd)
            if status.st_ino != self.inode or self.device not in (None, status.st_dev):
                raise self._replaced()
            yield fd
        finally:
            os.close(fd)

    def _replaced(self) -> LogChangedError:
        return LogChangedError(path=self.path, problem="is no longer the directory that kcompact created")


def create(path: Path, *, dir_fd: int) -> int:
    """Create a new file with mode 0600 in an open directory and return its descriptor; `path` is for messages.

    Raises StorageError, NotEnoughSpaceError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path.name, flags, 0o600, dir_fd=dir_fd)
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
