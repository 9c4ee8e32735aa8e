"""Where the bytes of a log come from: the files of a directory, and reading from them.

Whatever reads a partition has its `Files`, and a `LogFile` for each file that it reads; nothing above `log` knows how
they are stored. `files_in` chooses the storage: a local directory, or a bucket, whose objects are files with holes in a
local directory. Another storage needs a class with the methods of `Files` and one with those of `OpenFile`, and a case
in `files_in`. What writes (`swap`, `clean.join`, the copies) is about renames and syncs of local files, and uses paths
and `open_regular`.

No link is followed. A plan contains the `FileIdentity` of each file; the swap compares identities before it changes
anything.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.mirrored_file import Listing, MirroredFile
from kcompact.bucket.path import is_in_bucket
from kcompact.bucket.scratch import as_path
from kcompact.errors import KcompactError, LogChangedError, RefusedError, storage_error, storage_errors
from kcompact.format.names import Suffix
from kcompact.host.descriptors import closed_after
from kcompact.values import dataclass

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
        """Return whether a status is that of this file. A device or an inode of -1 can be any."""
        size_and_mtime = (status.st_size, status.st_mtime_ns)
        is_same = self.device in (-1, status.st_dev) and self.inode in (-1, status.st_ino)
        return is_same and size_and_mtime == (self.size_bytes, self.mtime_ns)

    def elsewhere(self) -> FileIdentity:
        """Return the identity for other machines, which give the device another number."""
        return replace(self, device=-1)


class OpenFile(Protocol):
    """A file that is open for reading."""

    @property
    def size_bytes(self) -> int:
        """The size when the file was opened."""

    @property
    def stored_bytes(self) -> int:
        """The bytes that the file has on the disk: less than its size if it has holes or is compressed."""

    def descriptor_of(self, position: int, end: int) -> int:
        """Return a descriptor that has the bytes between two positions, for the kernels, which read by themselves.

        A storage without descriptors copies to a file. Raises StorageError.
        """

    def read(self, size_bytes: int, position: int) -> bytes:
        """Return `size_bytes` bytes from `position`, or fewer at the end of the file. Raises StorageError."""

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target` from `position`. Return the number of bytes read, less than its length at the end of the file.

        Raises StorageError.
        """


class Files(Protocol):
    """The files of one directory of a log: a partition's, or those beside the partitions of a log directory.

    A value that can be compared, hashed and sent to another process.
    """

    @property
    def directory(self) -> Path:
        """The path of the directory. Messages name it, and whoever writes opens it."""

    def file(self, name: str) -> LogFile:
        """Return the file of this name, which may be missing."""

    def names(self) -> Sequence[str]:
        """Return the names in the directory, sorted. Raises OSError."""

    def exists(self, name: str) -> bool:
        """Return whether there is a file of this name."""

    def is_closed(self, name: str) -> bool:
        """Return whether this is a directory that this user may not list."""

    def identity(self, name: str) -> FileIdentity:
        """Return the identity of a file. Raises RefusedError for what is no regular file, FileNotFoundError."""

    def open(self, file: LogFile, *, identity: FileIdentity | None = None) -> AbstractContextManager[OpenFile]:
        """Open one of the files for reading until the end of the `with` block. With `identity` it must be that file.

        Raises RefusedError for a link and for anything else that is no regular file, LogChangedError, StorageError.
        """

    def on_disk(self, take: Callable[[int], None]) -> AbstractContextManager[None]:
        """Have all the files on the local disk during the block, for what copies them by their paths.

        `take` is called with the bytes of each request before it is sent; it may wait, or raise to stop.
        Raises as `open`, and NotEnoughSpaceError.
        """


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of a directory of a log, which may be missing. Its text is the path to print."""

    files: Files
    path: Path
    """For messages, and for the name."""

    @staticmethod
    def at(path: str | os.PathLike[str]) -> LogFile:
        """Return the file with this path."""
        path = as_path(path)
        return LogFile(files_in(path.parent), path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The name in the directory."""
        return self.path.name

    @property
    def base_offset(self) -> int:
        """The offset in the name."""
        return int(self.path.stem)

    def with_suffix(self, suffix: str) -> LogFile:
        """Return the file beside this one that differs in its suffix only."""
        return LogFile(self.files, self.path.with_suffix(suffix))

    def exists(self) -> bool:
        """Return whether the file is there."""
        return self.files.exists(self.path.name)

    def identity(self) -> FileIdentity:
        """Return the identity. Raises as `Files.identity`."""
        return self.files.identity(self.path.name)

    def open(self, *, identity: FileIdentity | None = None) -> AbstractContextManager[OpenFile]:
        """Open the file for reading. The rest is as in `Files.open`."""
        return self.files.open(self, identity=identity)

    def read(self, *, max_bytes: int = MAX_SMALL_FILE_BYTES) -> bytes:
        """Return the bytes of a small file. Raises RefusedError, also for more than `max_bytes`, StorageError."""
        with self.open() as opened:
            return _small_content(opened, self.path, max_bytes)

    def read_ahead(self, position: int, size_bytes: int, *, identity: FileIdentity | None) -> None:
        """Ask the operating system to read a part of the file, and do not wait. An error is ignored."""
        with suppress(KcompactError, OSError), self.open(identity=identity) as opened:
            os.posix_fadvise(opened.descriptor_of(0, 0), position, size_bytes, os.POSIX_FADV_WILLNEED)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a local directory."""

    directory: Path

    def file(self, name: str) -> LogFile:
        """Return the file of this name. The rest is as in `Files`, here and below."""
        return LogFile(self, self.directory / name)

    def names(self) -> list[str]:
        """Return the names."""
        return sorted(os.listdir(self.directory))  # noqa: PTH208 - only the names

    def exists(self, name: str) -> bool:
        """Return whether there is a file. A link counts as what it points to; it is refused when it is opened."""
        return (self.directory / name).exists()

    def is_closed(self, name: str) -> bool:
        """Return whether this is a directory, and closed to this user."""
        path = self.directory / name
        is_directory = path.is_dir() and not path.is_symlink()
        return is_directory and not os.access(path, os.R_OK | os.X_OK, effective_ids=True)

    def identity(self, name: str) -> FileIdentity:
        """Return the identity of a file, links not followed."""
        status = os.lstat(f"{os.fspath(self.directory)}/{name}")
        if not stat.S_ISREG(status.st_mode):
            require_regular(self.directory / name, status)
        return FileIdentity.of(name, status)

    def open(self, file: LogFile, *, identity: FileIdentity | None = None) -> AbstractContextManager[OpenFile]:
        """Open a file, links not followed."""
        return open_regular(file.path, identity=identity)

    def on_disk(self, take: Callable[[int], None]) -> AbstractContextManager[None]:
        """Return a block in which nothing changes."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class BucketFiles(LocalFiles):
    """The files of a mirrored directory of a bucket: files with holes, which are filled before they are read.

    What is sent to another process takes the listing with it: that process has the same versions of the objects, and
    fetches them itself.
    """

    def names(self) -> list[str]:
        """Return the names in the directory, sorted. Raises OSError, and the error of one that was not mirrored."""
        MIRROR.require(self.directory)
        return LocalFiles.names(self)

    def __reduce__(self) -> tuple[Callable[..., BucketFiles], tuple[Path, Listing]]:
        return _listed_elsewhere, (self.directory, MIRROR.listing(self.directory))

    def identity(self, name: str) -> FileIdentity:
        """Return the identity of the file with holes, which is that of every process: the ETag tells versions apart.

        The time changes for a moment while a hole is filled.
        """
        with _filled_by_no_other(self.directory / name):
            return replace(LocalFiles.identity(self, name), device=-1, inode=-1)

    @contextmanager
    def open(self, file: LogFile, *, identity: FileIdentity | None = None) -> Iterator[OpenFile]:
        """Open a file. Its holes are filled in the parts that are read."""
        mirrored = MIRROR.file(file.path)
        with ExitStack() as stack:
            with _filled_by_no_other(file.path):
                opened = stack.enter_context(open_regular(file.path, identity=identity))
            if mirrored is None:
                yield opened
                return
            stack.enter_context(MIRROR.using(mirrored))
            yield OpenBucketFile(opened, mirrored)

    def on_disk(self, take: Callable[[int], None]) -> AbstractContextManager[None]:
        """Fetch all the files, and remove their bytes after the block."""
        return MIRROR.whole(self.directory, take)


def _listed_elsewhere(directory: Path, listing: Listing) -> BucketFiles:
    MIRROR.take_over(directory, listing)
    return BucketFiles(directory)


def _filled_by_no_other(path: Path) -> AbstractContextManager[object]:
    mirrored = MIRROR.file(path)
    return nullcontext() if mirrored is None else mirrored.lock


def files_in(directory: Path) -> Files:
    """Return the files of a directory: the one place that chooses how they are stored."""
    return BucketFiles(directory) if is_in_bucket(directory) else LocalFiles(directory)


def log_bytes(directories: Iterable[Path]) -> int:
    """Return the bytes of the logs. What cannot be read counts as nothing: it is reported with its partition."""
    total = 0
    for files in map(files_in, directories):
        with suppress(KcompactError, OSError):
            total += sum(files.identity(name).size_bytes for name in files.names() if name.endswith(Suffix.LOG))
    return total


class OpenLocalFile:
    """A local file that is open for reading. `path` is only for messages, and `status` is that of its opening."""

    __slots__ = ("descriptor", "path", "status")

    def __init__(self, descriptor: int, path: Path, status: os.stat_result) -> None:
        self.descriptor, self.path, self.status = descriptor, path, status

    @property
    def size_bytes(self) -> int:
        """The size. The rest is as in `OpenFile`, here and below."""
        return self.status.st_size

    @property
    def stored_bytes(self) -> int:
        """The blocks of the file."""
        return self.status.st_blocks * _BLOCK_BYTES

    def descriptor_of(self, position: int, end: int) -> int:
        """Return the descriptor."""
        return self.descriptor

    def read(self, size_bytes: int, position: int) -> bytes:
        """Return bytes."""
        return read_at(self.descriptor, size_bytes, position, path=self.path)

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target`."""
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


class OpenBucketFile:
    """A mirrored file that is open for reading. What is read is fetched first, by parts."""

    __slots__ = ("_local", "_mirrored")

    def __init__(self, local: OpenLocalFile, mirrored: MirroredFile) -> None:
        self._local, self._mirrored = local, mirrored

    @property
    def size_bytes(self) -> int:
        """The size of the object. The rest is as in `OpenFile`, here and below."""
        return self._local.size_bytes

    @property
    def stored_bytes(self) -> int:
        """The size of the object, which has no holes."""
        return self._local.size_bytes

    def descriptor_of(self, position: int, end: int) -> int:
        """Return a descriptor of the file with the holes filled between two positions."""
        self._mirrored.fetch(position, end)
        return self._local.descriptor

    def read(self, size_bytes: int, position: int) -> bytes:
        """Return bytes."""
        self._mirrored.fetch(position, position + size_bytes)
        return self._local.read(size_bytes, position)

    def read_into(self, target: memoryview, position: int) -> int:
        """Fill `target`."""
        self._mirrored.fetch(position, position + len(target))
        return self._local.read_into(target, position)


def pieces_of(opened: OpenFile, position: int, end: int) -> Iterator[bytes]:
    """Yield the bytes between two positions, or up to the end of the file, in pieces. Raises StorageError."""
    while position < end and (piece := opened.read(min(_PIECE_BYTES, end - position), position)):
        yield piece
        position += len(piece)


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
) -> Iterator[OpenLocalFile]:
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
    with closed_after(descriptor):
        with storage_errors(path):
            status = os.fstat(descriptor)
        require_regular(path, status)
        if identity is not None and not identity.is_of(status):
            raise LogChangedError(path=path, problem="was changed or replaced since the plan was made")
        yield OpenLocalFile(descriptor, path, status)


def require_regular(path: Path, status: os.stat_result) -> None:
    """Raise RefusedError if the status of a file, links not followed, is that of anything but a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(
            path=path,
            problem="not a regular file",
            hint="Find out what created it. Put the file itself there, or move this away. Then run again.",
        )


def read_file(path: Path, *, max_bytes: int = MAX_SMALL_FILE_BYTES, dir_fd: int | None = None) -> bytes:
    """Return the bytes of a small file; `dir_fd` as for `open_regular`.

    Raises RefusedError for a file larger than `max_bytes`, StorageError.
    """
    with open_regular(path, dir_fd=dir_fd) as opened:
        return _small_content(opened, path, max_bytes)


def _small_content(opened: OpenFile, path: Path, max_bytes: int) -> bytes:
    if opened.size_bytes > max_bytes:
        raise RefusedError(path=path, problem=f"larger than {max_bytes:,} bytes, the limit for a file of this kind")
    return opened.read(opened.size_bytes + 1, 0)
