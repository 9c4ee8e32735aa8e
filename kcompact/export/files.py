"""A file that appears under its name when it is complete, or not at all.

It is written under a temporary name in the same directory, synced, and linked to its name at the end. What exists
already is replaced only if the caller says so. If the process is interrupted, the temporary file is removed.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from kcompact.errors import NotEnoughSpaceError, RefusedError, storage_errors
from kcompact.host.process_end import undone_at_abrupt_end
from kcompact.log.directory import is_partition_directory, log_dir_around

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What a file system without hard links answers."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _never(_: Path) -> bool:
    return False


@contextmanager
def new_file(
    path: Path, directories: Collection[Path], logs: Iterable[Path], *, may_replace: Callable[[Path], bool] = _never
) -> Iterator[BinaryIO]:
    """Yield a file to write. It has its name, and is on the disk, once the block has ended without an exception.

    Whoever may not read one of the `logs`, which it is made from, may not read it either. `may_replace` says whether
    what exists under the name may be replaced. Raises RefusedError if not, if the name has no directory, or lies in a
    partition directory, such as one of `directories`, or in a log directory; StorageError, NotEnoughSpaceError.
    """
    require_new(path, directories, may_replace=may_replace)
    with storage_errors(path, "create"):
        directory = os.open(path.parent, _DIRECTORY)
    temporary = f".kcompact-{secrets.token_hex(8)}"

    def remove() -> None:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)

    try:
        with undone_at_abrupt_end(remove), _space_errors(), storage_errors(path, "write"):
            descriptor = os.open(temporary, _NEW_FILE, _mode_for(logs), dir_fd=directory)
            try:
                with os.fdopen(descriptor, "wb", buffering=1 << 20) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                _name(directory, temporary, path, may_replace)
            finally:
                remove()
            os.fsync(directory)
    finally:
        os.close(directory)


def _mode_for(logs: Iterable[Path]) -> int:
    """Return the mode of a file that is made from logs, before the umask."""
    mode = 0o666
    for log in logs:
        with suppress(OSError):  # Whoever reads it finds what is wrong.
            mode &= log.stat().st_mode | 0o600
    return mode


@contextmanager
def _space_errors() -> Iterator[None]:
    """Say for a full disk what helps here. How much is free now is not said: what was written is removed already."""
    try:
        yield
    except NotEnoughSpaceError as problem:
        raise NotEnoughSpaceError(
            path=problem.path,
            needed_bytes=0,
            free_bytes=None,
            detail=problem.detail,
            why=problem.why,
            hint="Nothing is left of the file. Pass a FILE on another file system. If enough space is free, check the "
            "quota and the file size limit of this user.",
        ) from problem


def require_new(path: Path, directories: Collection[Path], *, may_replace: Callable[[Path], bool] = _never) -> None:
    """Raise RefusedError if `new_file` would refuse the path."""
    if (path.is_symlink() or path.exists()) and not may_replace(path):
        raise _exists(path)
    parent = path.parent.resolve()
    if not parent.is_dir():
        raise RefusedError(path=path, problem="is in no directory", hint="Create the directory, or pass another FILE.")
    # A directory with lone copies of partitions is no log directory: `report orders-0` may write beside `orders-0`.
    is_inside = not {parent, *parent.parents}.isdisjoint(each.resolve() for each in directories)
    if is_inside or is_partition_directory(parent) or log_dir_around(parent, ()) is not None:
        raise RefusedError(
            path=path,
            problem="lies in a directory of a log, where a broker would find it",
            hint="Pass a FILE outside of the log directories.",
        )


def _name(directory: int, temporary: str, path: Path, may_replace: Callable[[Path], bool]) -> None:
    """Give the complete file its name. Raises RefusedError if something has the name by now."""
    if path.exists() and may_replace(path):
        os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        return
    try:
        os.link(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        if path.is_symlink() or path.exists():
            raise _exists(path) from None
        os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)


def _exists(path: Path) -> RefusedError:
    return RefusedError(
        path=path, problem="exists already", hint="It was not changed. Pass another FILE, or remove this one first."
    )
