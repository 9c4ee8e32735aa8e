"""Opens regular files without following links, and reads from a position.

Every module that reads files of a log directory opens them here. A plan contains the `FileIdentity` of each file; the
swap compares identities before it changes anything.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kcompact.errors import KcompactError, LogChangedError, RefusedError, storage_error, storage_errors

MAX_SMALL_FILE_BYTES = 64 << 20
"""What is read at once: checkpoints, properties, a snapshot of 1.4 million producers."""

_PIECE_BYTES = 8 << 20
_BLOCK_BYTES = 512
"""The unit of `st_blocks`, whatever the file system."""
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """A file's name and status. A file that was replaced, rewritten or touched has another identity."""

    name: str
    device: int
    inode: int
    size_bytes: int
    mtime_ns: int

    @staticmethod
    def of(name: str, status: os.stat_result) -> FileIdentity:
        """Return the identity of the file with this name and status."""
        return FileIdentity(
            name=name,
            device=status.st_dev,
            inode=status.st_ino,
            size_bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
        )

    @property
    def mtime_ms(self) -> int:
        return self.mtime_ns // 1_000_000

    def is_of(self, status: os.stat_result) -> bool:
        """Return whether a status is that of this file. The number of a device is valid on one machine only."""
        return FileIdentity.of(self.name, status) == replace(
            self, device=self.device if self.device >= 0 else status.st_dev
        )

    def elsewhere(self) -> FileIdentity:
        """Return the identity for other machines, which give the device another number."""
        return replace(self, device=-1)


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that is open for reading. `path` is only for messages, and `status` is that of its opening."""

    descriptor: int
    path: Path
    status: os.stat_result

    @property
    def size_bytes(self) -> int:
        """The size when the file was opened."""
        return self.status.st_size

    @property
    def stored_bytes(self) -> int:
        """The bytes that the file has on the disk: less than its size if it has holes or is compressed."""
        return self.status.st_blocks * _BLOCK_BYTES

    def read(self, size_bytes: int, position: int) -> bytes:
        """Return `size_bytes` bytes from `position`, or fewer at the end of the file. Raises StorageError."""
        return read_at(self.descriptor, size_bytes, position, path=self.path)

    def pieces(self, position: int, end: int) -> Iterator[bytes]:
        """Yield the bytes between two positions, or up to the end of the file, in pieces. Raises StorageError."""
        while position < end and (piece := self.read(min(_PIECE_BYTES, end - position), position)):
            yield piece
            position += len(piece)

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from `position`. Return the number of bytes read, less than its length at the end of the file.

        Raises StorageError.
        """
        done = 0
        while done < len(target):
            try:
                count = os.preadv(self.descriptor, [target[done:]], position + done)
            except OSError as problem:
                raise storage_error(self.path, problem, operation="read", position=position + done) from None
            if count == 0:
                break
            done += count
        return done


def read_at(descriptor: int, size_bytes: int, position: int, *, path: Path) -> bytes:
    """Return `size_bytes` bytes from `position`, or fewer at the end of the file. Raises StorageError."""
    parts = []
    while size_bytes > 0:
        try:
            part = os.pread(descriptor, size_bytes, position)
        except OSError as problem:
            raise storage_error(path, problem, operation="read", position=position) from None
        if not part:
            break
        parts.append(part)
        position += len(part)
        size_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def open_regular(
    path: Path, *, dir_fd: int | None = None, identity: FileIdentity | None = None, follows_links: bool = False
) -> Iterator[OpenFile]:
    """Open a regular file for reading and yield it.

    With `dir_fd` the name is looked up in that open directory, and the rest of the path is only for messages. With
    `identity` it must be that file: the owner of a directory above it may have put a link in its place. Only a file
    that is no part of a log may be a link (`follows_links`).
    Raises RefusedError for a symbolic link and for anything else that is not a regular file, LogChangedError for
    another file, StorageError.
    """
    try:
        flags = _OPEN_FLAGS & ~os.O_NOFOLLOW if follows_links else _OPEN_FLAGS
        descriptor = os.open(path if dir_fd is None else path.name, flags, dir_fd=dir_fd)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise RefusedError(path=path, problem="a symbolic link; kcompact does not follow links") from None
        raise storage_error(path, problem, operation="open") from None
    try:
        with storage_errors(path):
            status = os.fstat(descriptor)
        require_regular(path, status)
        if identity is not None and not identity.is_of(status):
            raise LogChangedError(path=path, problem="was changed or replaced since the plan was made")
        yield OpenFile(descriptor, path, status)
    finally:
        os.close(descriptor)


def require_regular(path: Path, status: os.stat_result) -> None:
    """Raise RefusedError if the status of a file, links not followed, is that of anything but a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(
            path=path,
            problem="not a regular file",
            hint="Find out what created it. Put the file itself there, or move this away. Then run again.",
        )


def read_ahead(path: Path, position: int, size_bytes: int, *, identity: FileIdentity | None) -> None:
    """Ask the kernel to read a part of a file into the page cache, and do not wait. An error is ignored."""
    with suppress(KcompactError, OSError), open_regular(path, identity=identity) as opened:
        os.posix_fadvise(opened.descriptor, position, size_bytes, os.POSIX_FADV_WILLNEED)


def read_file(path: Path, *, max_bytes: int = MAX_SMALL_FILE_BYTES, dir_fd: int | None = None) -> bytes:
    """Return the bytes of a small file; `dir_fd` as for `open_regular`.

    Raises RefusedError for a file larger than `max_bytes`, StorageError.
    """
    with open_regular(path, dir_fd=dir_fd) as opened:
        if opened.size_bytes > max_bytes:
            raise RefusedError(path=path, problem=f"larger than {max_bytes:,} bytes, the limit for a file of this kind")
        return opened.read(opened.size_bytes + 1, 0)
