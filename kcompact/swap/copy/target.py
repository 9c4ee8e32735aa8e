"""The checks of an output before anything is written, and its lock."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kcompact.errors import LogDirLockedError, RefusedError, storage_error
from kcompact.host.access import why_not_writable
from kcompact.host.disk import nearest_existing
from kcompact.log.directory import is_log_dir
from kcompact.log.lock import LOCK_NAME, holder_in_words, is_locked, log_dir_lock
from kcompact.swap.open_directory import OpenDirectory


def exists_already(path: Path) -> RefusedError:
    """Return the error for a directory that the output has already."""
    return RefusedError(
        path=path, problem="exists already", hint="Pass an --output directory that has no such partition."
    )


def appeared_meanwhile(path: Path) -> RefusedError:
    """Return the error for an output that another process writes to."""
    return RefusedError(
        path=path, problem="was written to by another process after it had been checked", hint="Run the command again."
    )


def require_separate(output: Path, log_dirs: Collection[Path], directories: Collection[Path]) -> None:
    """Raise RefusedError if the output lies inside a source, or if two sources have the same name."""
    for source in (*log_dirs, *directories):
        if output.is_relative_to(source.resolve()):
            within = "" if output == source.resolve() else f"inside {source}, "
            raise RefusedError(
                path=output,
                problem=f"is {within}the directory to copy from",
                hint="Pass an --output directory outside of it.",
            )
    by_name: dict[str, Path] = {}
    for directory in directories:
        other = by_name.setdefault(directory.name, directory)
        if other != directory:
            raise RefusedError(
                path=output,
                problem=f"cannot hold both {other} and {directory}, which have the same name",
                hint="Copy them into different --output directories.",
            )


def require_creatable(output: Path) -> None:
    """Raise an error if the directory cannot be created, or if no directory can be created in it.

    Raises RefusedError; StorageError if a name above it is a file.
    """
    try:
        os.listdir(output)  # noqa: PTH208 - the names do not matter
    except NotADirectoryError as problem:
        if output.exists():
            raise RefusedError(
                path=output, problem="is not a directory", hint="Pass a new or empty directory as --output."
            ) from None
        raise storage_error(output, problem, operation="list") from None
    except FileNotFoundError:
        pass
    except OSError as problem:
        raise storage_error(output, problem, operation="list") from None
    nearest = nearest_existing(output)
    obstacle = why_not_writable(nearest)
    if obstacle is not None:
        why = "its file system is mounted read-only" if obstacle.errno == errno.EROFS else "no permission"
        raise RefusedError(
            path=nearest,
            problem=f"cannot be written to: {why}",
            hint="Pass another --output directory, or run as a user that may write to this one.",
        )


def names_in(path: Path) -> frozenset[str]:
    """Return the names in a directory; none if it is missing."""
    return frozenset(os.listdir(path)) if path.exists() else frozenset()  # noqa: PTH208 - only the names


def is_used(output: Path) -> bool:
    """Return whether a broker uses the output or has used it, so that there is a lock to take."""
    return (output / LOCK_NAME).exists() or is_log_dir(output)


def require_unlocked(log_dir: Path) -> None:
    """Raise LogDirLockedError if a process holds the lock of a log directory now."""
    if is_locked(log_dir):
        raise LogDirLockedError(lock=log_dir / LOCK_NAME, holder=holder_in_words(log_dir))


# --- The lock of an output, shared by the threads of this process -------------------------------------------

_GUARD = threading.Lock()
_HELD: dict[tuple[int, int], tuple[ExitStack, list[int]]] = {}
"""The locks that this process holds, by device and inode of their directories, and their numbers of users."""


@contextmanager
def shared_lock(directory: OpenDirectory) -> Iterator[None]:
    """Hold the lock of an open log directory. Several threads of this process may hold it at the same time.

    Raises LogDirLockedError if another process holds the lock, RefusedError, LogChangedError.
    """
    status = os.fstat(directory.fd())
    key = status.st_dev, status.st_ino
    with _GUARD:
        if key not in _HELD:
            stack = ExitStack()
            stack.enter_context(log_dir_lock(directory.path, dir_fd=directory.fd()))
            _HELD[key] = (stack, [0])
        stack, users = _HELD[key]
        users[0] += 1
    try:
        yield
    finally:
        with _GUARD:
            users[0] -= 1
            if not users[0]:
                del _HELD[key]
                stack.close()
