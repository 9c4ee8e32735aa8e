"""Private scratch directories: closed to others, locked while in use, and swept once nobody uses them.

A process that is killed cannot tidy up. The next one does: a directory whose lock can be taken has no owner any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "kcompact-spark-"
_LOCK = "owner.lock"
_TRIES = 5


@contextlib.contextmanager
def private_directory(parent: str | None) -> Iterator[Path]:
    """Make a directory below `parent`, by default the system's own for such, and remove it afterwards.

    Spark makes directories inside of it that everybody may read, so this one must be closed (mkdtemp: 0700). Removes
    those that killed processes of the same user have left beside it. Raises OSError.
    """
    _sweep(Path(parent or tempfile.gettempdir()))
    directory, descriptor = _made(parent)
    try:
        yield directory
    finally:
        sys.path[:] = [entry for entry in sys.path if not entry.startswith(str(directory))]
        shutil.rmtree(directory, ignore_errors=True)
        os.close(descriptor)


def _made(parent: str | None) -> tuple[Path, int]:
    for _ in range(_TRIES):
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        descriptor = None
        # A sweep may come between any two of these steps, and take a directory without an owner away.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            if _locks(descriptor) and os.path.samestat(os.fstat(descriptor), (directory / _LOCK).stat()):
                return directory, descriptor
        if descriptor is not None:
            os.close(descriptor)
    raise OSError(f"no private directory could be made below {parent or tempfile.gettempdir()}")


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sweep(parent: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        left = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX)]
        for directory in left:
            with contextlib.suppress(OSError):
                _remove_if_ownerless(directory)


def _remove_if_ownerless(directory: Path) -> None:
    status = os.lstat(directory)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        directory.rmdir()  # Only if it is empty: its process was killed before it could lock it.
        return
    try:
        if _locks(descriptor):
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        os.close(descriptor)
