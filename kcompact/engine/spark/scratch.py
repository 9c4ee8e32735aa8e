"""Private scratch directories: closed to other users, locked while in use, removed when no process uses them.

A killed process cannot remove its directory. The next process of the same user removes it: a directory whose lock is
free is not in use.

The lock is that of `flock`, on a file that is opened here. A library of locks would create a missing file and its
directories. It would re-create a directory that another process is removing, or put a lock file into a directory that
another process has just created.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from kcompact.errors import RefusedError
from kcompact.host.descriptors import closed_after
from kcompact.host.process_end import undone_at_abrupt_end
from kcompact.host.user_directories import temporary_directory

PREFIX = "kcompact-spark-"
_LOCK = "owner.lock"
_NAME_BYTES = 6
"""These are 8 characters, as many as `tempfile` takes: the path of a socket is short, and Spark's are in here."""
_ATTEMPTS = 5
_DYING_S = 5.0
"""How long a killed process may take to end: a JVM returns its memory first, on a machine that may be busy."""


@contextlib.contextmanager
def private_directory(parent: str | None) -> Iterator[Path]:
    """Make a directory below `parent`, or below the system's temporary directory, and remove it afterwards.

    Its mode is 0700, because Spark makes directories in it that every user may read. Directories that killed processes
    of the same user have left beside it are removed first. Raises OSError, RefusedError if there is no
    directory for temporary files.
    """
    sweep_scratch(Path(parent) if parent else None)
    for _ in range(_ATTEMPTS):
        directory = Path(parent or temporary_directory(), PREFIX + secrets.token_urlsafe(_NAME_BYTES))
        # From before the directory exists until it is gone: a second Ctrl-C ends the process between any two steps.
        with undone_at_abrupt_end(partial(_remove_while_writers_die, directory)):
            directory.mkdir(0o700)
            descriptor = _locked(directory)
            if descriptor is None:
                continue
            try:
                yield directory
            finally:
                _remove(directory)
                os.close(descriptor)
            return
    raise OSError(f"no private directory can be made below {parent or temporary_directory()}")


def _remove(directory: Path) -> None:
    """Remove a directory, its lock file last: what a killed process leaves of it, the next one can remove."""
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                with contextlib.suppress(OSError):
                    path.unlink()
    shutil.rmtree(directory, ignore_errors=True)


def _remove_while_writers_die(directory: Path) -> None:
    """Remove a directory to which killed processes may write for a moment still."""
    deadline = time.monotonic() + _DYING_S
    _remove(directory)
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
        _remove(directory)


def try_lock(descriptor: int) -> bool:
    """Return whether this process now holds the lock of an open file, which ends when the descriptor is closed.

    False if another process holds it; waits for nothing. Raises OSError.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _locked(directory: Path) -> int | None:
    """Return the descriptor that holds the lock of a new directory. None if another process has removed it."""
    descriptor = None
    # Until the directory is locked, another process can remove it between any two of these steps.
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # The lock is valid only if the locked file is still in the directory.
        if try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), (directory / _LOCK).stat()):
            return descriptor
    if descriptor is not None:
        os.close(descriptor)
    return None


def sweep_scratch(parent: Path | None = None) -> tuple[Path, ...]:
    """Remove the private directories of this user below `parent` that no process uses; return them.

    None means the system's temporary directory.
    """
    removed = []
    with contextlib.suppress(OSError, RefusedError), os.scandir(parent or temporary_directory()) as entries:
        directories = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX)]
        for directory in sorted(directories):
            with contextlib.suppress(OSError):
                _remove_if_ownerless(directory)
                if not directory.exists():
                    removed.append(directory)
    return tuple(removed)


def _remove_if_ownerless(directory: Path) -> None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        # `rmdir` removes only an empty directory: its process was killed before it made the lock file.
        directory.rmdir()
        return
    with closed_after(descriptor):
        if try_lock(descriptor):
            _remove(directory)
