"""The checks of an output before anything is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from pathlib import Path

from kcompact.errors import LogDirLockedError, RefusedError, storage_error
from kcompact.host.access import why_not_writable
from kcompact.host.disk import nearest_existing
from kcompact.log.lock import LOCK_NAME, holder_in_words, is_locked


def exists_already(path: Path) -> RefusedError:
    """Return the error for a directory that the output has already."""
    return RefusedError(
        path=path, problem="exists already", hint="Pass an --output directory that has no such partition."
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
    except FileNotFoundError:
        pass
    except OSError as problem:
        if isinstance(problem, NotADirectoryError) and output.exists():
            raise RefusedError(
                path=output, problem="is not a directory", hint="Pass a new or empty directory as --output."
            ) from None
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


def require_unlocked(log_dir: Path) -> None:
    """Raise LogDirLockedError if a process holds the lock of a log directory now."""
    if is_locked(log_dir):
        raise LogDirLockedError(lock=log_dir / LOCK_NAME, holder=holder_in_words(log_dir))
