"""The scratch directory of this process: private, locked while in use, removed at the end of the process.

A killed process cannot remove its directory. The next process of the same user that uses a bucket does: a directory
whose lock is free is not in use.
"""

from __future__ import annotations

import atexit
import copyreg
import fcntl
import os
import secrets
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from kcompact.bucket.path import SCHEME, SCRATCH_PREFIX, SCRATCH_RANDOM_BYTES, BucketPath, is_address, local_path
from kcompact.errors import NotEnoughSpaceError, storage_error, storage_errors
from kcompact.host.descriptors import closed_after
from kcompact.host.process_end import undone_at_abrupt_end
from kcompact.host.user_directories import temporary_directory

_LOCK = ".lock-of-scratch"
_GUARD = threading.Lock()
_ROOT: dict[int, Path] = {}
"""The scratch directory by process id: a forked child makes its own."""
_PLACE: dict[int, str] = {}
"""Where it is to be, by process id. Without an entry it is in the system's directory for temporary files."""


def scratch_directory() -> BucketPath:
    """Return the scratch directory of this process.

    Raises StorageError, RefusedError if there is no directory for temporary files.
    """
    with _GUARD:
        if os.getpid() not in _ROOT:
            _ROOT[os.getpid()] = _made(Path(_PLACE.get(os.getpid()) or temporary_directory()))
        return BucketPath(_ROOT[os.getpid()])


def use_scratch_in(directory: str) -> None:
    """Have the scratch directory of this process in another directory, such as that of Spark for its workers.

    To be called before the scratch is used.
    """
    _PLACE[os.getpid()] = directory


@contextmanager
def needs_scratch_space() -> Iterator[None]:
    """Have a NotEnoughSpaceError of the block say what helps if the scratch is full."""
    try:
        yield
    except NotEnoughSpaceError as problem:
        where = "spark.local.dir" if os.getpid() in _PLACE else "TMPDIR"
        hint = f"Partitions of a bucket are kept in the scratch for a while; {where} names another place."
        problem.args = (problem.args[0], hint)
        raise


@contextmanager
def scratch_errors() -> Iterator[None]:
    """Raise an OSError inside the block as the `storage_error` of the scratch, without the name of a file in it."""
    with needs_scratch_space():
        try:
            yield
        except OSError as problem:
            raise storage_error(scratch_directory(), problem, operation="write the scratch") from None


def as_path(text: str | os.PathLike[str]) -> Path:
    """Return the path of a text: of an address that is mirrored, its `BucketPath`. A path is returned as it is.

    Raises as `require_known_store`.
    """
    if is_address(text):
        return scratch_directory() / os.fspath(text).removeprefix(SCHEME)
    return local_path(text)


def _of_a_process(path: BucketPath) -> tuple[object, tuple[str]]:
    return as_path, (str(path),)


# A path that is sent to another process becomes one in the scratch of that process.
copyreg.pickle(BucketPath, _of_a_process)  # type: ignore[arg-type]


def _made(parent: Path) -> Path:
    _sweep(parent)
    directory = parent / (SCRATCH_PREFIX + secrets.token_hex(SCRATCH_RANDOM_BYTES))
    with needs_scratch_space(), storage_errors(directory):
        directory.mkdir(mode=0o700)
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Held until the process ends.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    stack = ExitStack()
    stack.enter_context(undone_at_abrupt_end(partial(_remove, directory, os.getpid())))
    stack.callback(_remove, directory, os.getpid())
    atexit.register(stack.close)
    return directory


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed processes of this user have left. What cannot be removed stays."""
    with suppress(OSError):
        for name in os.listdir(parent):  # noqa: PTH208 - only the names
            if name.startswith(SCRATCH_PREFIX):
                with suppress(OSError):
                    _remove_if_unused(parent / name)


def _remove_if_unused(directory: Path) -> None:
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return
    # Without a lock file its process is just making it, or was killed then: it is empty, and stays.
    with closed_after(os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
