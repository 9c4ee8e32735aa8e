"""A directory held open, and the loop that applies steps to it.

Every name is resolved from the open descriptor. Symbolic links are never followed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType

from kcompact.clean.staged_files import StagedFile
from kcompact.errors import LogChangedError, RefusedError, is_forbidden, storage_error
from kcompact.format.checksum import crc32c
from kcompact.host import turns
from kcompact.host.descriptors import closed_after
from kcompact.log.lock import LogDirLock
from kcompact.swap.steps import Observer, Remove, RemoveDir, Rename, Step, SyncDir

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ON_THE_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIGEST_BLOCK_BYTES = 4 << 20


class OpenDirectory:
    """A directory held open; a `with` block closes it and raises a `storage_error` for an OSError that leaves it.

    A name is the name of a file in the directory or, with one `/`, in a sub-directory, which is held open too from its
    first use. With `follow` the directory itself may be a symbolic link. With `fd`, a descriptor of the directory, the
    path is only for messages. Raises RefusedError for a link and without the permission, StorageError.
    """

    def __init__(self, path: Path, *, follow: bool = False, fd: int | None = None) -> None:
        self.path = path
        try:
            flags = _OPEN_DIRECTORY & ~(os.O_NOFOLLOW if follow else 0)
            self._fds = {"": os.open(path, flags) if fd is None else os.dup(fd)}
        except OSError as error:
            is_no_directory = error.errno in (errno.ENOTDIR, errno.ELOOP)
            if not is_no_directory and not is_forbidden(error):
                raise storage_error(path, error, operation="open") from error
            problem = "a symbolic link or not a directory" if is_no_directory else error.strerror
            raise RefusedError(
                path=path,
                problem=f"cannot be opened: {problem}",
                hint="Pass the directory itself, and run as the user that owns it (the broker's user).",
            ) from error

    @classmethod
    def of_log_dir(cls, log_dir: Path, lock: LogDirLock | None) -> OpenDirectory:
        """Return a log directory: the one that is locked, whatever its path leads to by now. None: it is not locked."""
        return cls(log_dir, follow=True, fd=None if lock is None else lock.directory_fd)

    def __enter__(self) -> OpenDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in self._fds.values():
            with suppress(OSError):  # Nothing was written through it.
                os.close(fd)
        if isinstance(error, OSError):
            named = error.filename if isinstance(error.filename, str) else ""
            raise storage_error(self.path / named, error) from error

    @cached_property
    def device(self) -> int:
        """The file system of the directory."""
        return os.fstat(self.fd()).st_dev

    def fd(self, name: str = "") -> int:
        """Return the descriptor of a sub-directory, or of the directory itself."""
        if name not in self._fds:
            self._fds[name] = os.open(name, _OPEN_DIRECTORY, dir_fd=self._fds[""])
        return self._fds[name]

    def locate(self, name: str) -> tuple[int, str]:
        """Return the descriptor of the directory that holds the name, and the name in it."""
        parent, _, leaf = name.rpartition("/")
        return self.fd(parent), leaf

    def names(self, name: str = "") -> frozenset[str]:
        """Return the names in a sub-directory, or in the directory itself."""
        # A new descriptor each time: a duplicate shares its position in the directory, and if going back to the start
        # fails after a listing, the next one is empty, without an error (`os.listdir`, rewinddir).
        with _reopened(self.fd(name)) as fd:
            return frozenset(os.listdir(fd))  # noqa: PTH208 - a Path has no descriptor

    def open(self, name: str, flags: int, mode: int = 0) -> int:
        """Return a new descriptor of a file; the caller closes it."""
        fd, leaf = self.locate(name)
        return os.open(leaf, flags | _OPEN_FILE, mode, dir_fd=fd)

    def opened(self, name: str, flags: int = os.O_RDONLY, mode: int = 0) -> AbstractContextManager[int]:
        """Open a file for a block. Raises OSError."""
        return closed_after(self.open(name, flags, mode))

    def status(self, name: str) -> os.stat_result | None:
        """Return the status of a file, of a link itself if it is a link; None if there is no such name."""
        fd, leaf = self.locate(name)
        try:
            return os.stat(leaf, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def size(self, name: str) -> int | None:
        """Return the size in bytes of a regular file, None for anything else."""
        status = self.status(name)
        return None if status is None or not stat.S_ISREG(status.st_mode) else status.st_size

    def digest(self, name: str, check: Callable[[], None] = lambda: None, *, size_bytes: int | None = None) -> int:
        """Return the CRC-32C of a file, or of its first `size_bytes`, read from the disk. `check` may raise to stop."""
        crc, left_bytes = 0, sys.maxsize if size_bytes is None else size_bytes
        for block in self._blocks_from_disk(name):
            crc = crc32c(block[:left_bytes], crc)
            check()
            left_bytes -= len(block)
            if left_bytes <= 0:
                break
        return crc

    def read_from_disk(self, name: str) -> bytes:
        """Return the content of a small file, read from the disk."""
        return b"".join(self._blocks_from_disk(name))

    def _blocks_from_disk(self, name: str) -> Iterator[bytes]:
        """Yield the content of a file after dropping its cached pages."""
        with self.opened(name) as fd:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            while block := os.read(fd, _DIGEST_BLOCK_BYTES):
                yield block

    def has_content_of(self, name: str, staged: StagedFile) -> bool:
        """Return whether the file of this name has the size and the digest of the staged one."""
        return self.size(name) == staged.size_bytes and self.digest(name) == staged.crc32c

    @contextmanager
    def below(self, name: str) -> Iterator[OpenDirectory]:
        """Open a directory in this one for the block. Raises OSError for a link and anything else."""
        with self.opened(name, os.O_RDONLY | os.O_DIRECTORY) as fd:
            held = OpenDirectory(self.path / name, fd=fd)
        with held:
            yield held

    def link(self, name: str, target: OpenDirectory, target_name: str) -> None:
        """Give a file a second name in another directory, or the same one. Raises OSError; never replaces a file."""
        source_fd, source_leaf = self.locate(name)
        target_fd, target_leaf = target.locate(target_name)
        os.link(source_leaf, target_leaf, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)

    def apply_step(self, step: Step, present: set[str] | None = None) -> None:
        """Perform one step. Raises OSError; FileExistsError for a rename to a name that exists.

        `present` are the names in the directory, which the step changes; without them the disk is asked.
        """
        match step:
            case Rename(source, target):
                source_fd, source_leaf = self.locate(source)
                target_fd, target_leaf = self.locate(target)
                if self.status(target) is not None if present is None else target in present:
                    raise FileExistsError(errno.EEXIST, "a file with the new name exists already", target)
                os.rename(source_leaf, target_leaf, src_dir_fd=source_fd, dst_dir_fd=target_fd)
                if present is not None:
                    present.discard(source)
                    present.add(target)
            case Remove(name):
                fd, leaf = self.locate(name)
                os.unlink(leaf, dir_fd=fd)
                if present is not None:
                    present.discard(name)
            case RemoveDir(name):
                os.rmdir(name, dir_fd=self.fd())
                if name in self._fds:
                    os.close(self._fds.pop(name))
            case SyncDir(name):
                turns.sync(self.fd(name))


def made_without_links(path: Path) -> OpenDirectory:
    """Return a directory by its canonical path, and make it and those above it if they are missing; sync their names.

    A canonical path has no links. A link on the way has appeared since the path was resolved, and raises OSError.
    """
    fd = os.open(path.anchor, _ON_THE_WAY)
    try:
        for part in path.parts[1:]:
            try:
                below = os.open(part, _ON_THE_WAY, dir_fd=fd)
            except FileNotFoundError:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=fd)
                with _reopened(fd) as above:
                    turns.sync(above)
                below = os.open(part, _ON_THE_WAY, dir_fd=fd)
            os.close(fd)
            fd = below
        with _reopened(fd) as reopened:
            return OpenDirectory(path, fd=reopened)
    finally:
        os.close(fd)


def _reopened(fd: int) -> AbstractContextManager[int]:
    """Open a directory once more for a block, also for more than the way to those below it."""
    return closed_after(os.open(".", _OPEN_DIRECTORY, dir_fd=fd))


def made_in(parent: OpenDirectory, name: str, *, is_shared: bool = False) -> OpenDirectory:
    """Return a new private directory, held open. If it `is_shared`, another process may already have
    begun in it.

    Raises FileExistsError, StorageError, NotEnoughSpaceError; LogChangedError if it was replaced at once.
    """
    path = parent.path / name
    parent_fd, leaf = parent.locate(name)
    try:
        os.mkdir(leaf, 0o700, dir_fd=parent_fd)
        fd = parent.open(name, os.O_RDONLY | os.O_DIRECTORY)
    except FileExistsError:
        raise
    except OSError as problem:
        raise storage_error(path, problem) from None
    with closed_after(fd), ExitStack() as stack:
        made = stack.enter_context(OpenDirectory(path, fd=fd))
        if os.fstat(made.fd()).st_uid != os.geteuid() or (made.names() and not is_shared):
            raise LogChangedError(path=path, problem="was replaced as soon as kcompact had created it")
        stack.pop_all()  # The caller closes it.
    return made


@contextmanager
def opened(directory: OpenDirectory | Path, *, follow: bool = False) -> Iterator[OpenDirectory]:
    """Yield a directory: one that is held open as it is, or a path opened for the block. Raises as `OpenDirectory`."""
    if isinstance(directory, Path):
        with OpenDirectory(directory, follow=follow) as held:
            yield held
        return
    try:
        yield directory
    except OSError as error:
        raise storage_error(directory.path, error) from error


def apply_steps(
    directory: OpenDirectory,
    steps: Iterable[Step],
    after_step: Observer | None = None,
    *,
    present: set[str] | None = None,
) -> None:
    """Perform the steps in order. The first failing step ends the loop; its OSError has the step as a note.

    `present` are the names in the directory, which the steps change. With them no rename asks the disk whether its new
    name is free: the lock keeps others from making files.
    """
    for step in steps:
        try:
            directory.apply_step(step, present)
        except OSError as error:
            error.add_note(str(step))
            raise
        if after_step is not None:
            after_step(step)
