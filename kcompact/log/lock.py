"""The log directory's `.lock`, locked in the way a broker locks it.

A broker holds a POSIX record lock on the whole `.lock` file while it runs (Java's `FileChannel.tryLock`, which is
`fcntl(F_SETLK)`). A `flock` lock does not conflict with that lock. kcompact takes an *open file description* lock
(`F_OFD_SETLK`). It conflicts with the broker's lock in both directions. A plain record lock would be released as soon
as another part of this process opens and closes the same file; this lock is not.

A broker that shuts down unlocks `.lock` and then **deletes** it (`FileLock.destroy`). A process that locks the file in
between holds a file without a name, and the next broker creates and locks a new one. So kcompact compares the name
with the locked file right after locking, and again by `LogDirLock.check()` before every swap and checkpoint. No extra
wait is needed: the work between locking and the first swap takes far longer than the time between a broker's unlock and
its delete.

A partition directory is locked through its parent, the log directory. kcompact never deletes `.lock`, because that
would let a second process in. A forked child keeps the lock until it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from kcompact.bucket.path import is_in_bucket
from kcompact.bucket.scratch import as_path
from kcompact.errors import (
    KcompactError,
    LogChangedError,
    LogDirLockedError,
    RefusedError,
    is_forbidden,
    storage_error,
    storage_errors,
)
from kcompact.host.access import remedy, why_not_writable
from kcompact.host.descriptors import closed_after
from kcompact.host.other_processes import command_of, is_suspended

LOCK_NAME = ".lock"
_LOOKING = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY

Found = TypeVar("Found")

# struct flock of 64-bit Linux: type, whence, start, length (0: to the end, however long), pid (0, or EINVAL).
_FLOCK = struct.Struct("hhqqi4x")
_OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

NO_PROCESS = -1
"""The process id of an open file description lock."""

# A broker that stops can delete the file once while it is being locked. More deletions have another cause.
_ATTEMPTS = 5

_WRONG_KIND = (errno.EISDIR, errno.ENOTDIR, errno.ENXIO)
"""The errors of opening something that is no directory, or no regular file."""
_NO_SUCH_LOCKS = (errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EROFS)
"""The errors of file systems that do not have locks of this kind."""

_NOT_A_BROKERS = "A broker's lock file is a regular file. Find out what created this one before you run kcompact."


class LogDirLock:
    """A held lock. `created` is whether `.lock` was missing before; `directory_fd` is the log directory, held open."""

    def __init__(self, *, path: Path, directory_fd: int, lock_fd: int, created: bool) -> None:
        self.path = path
        self.created = created
        self.directory_fd = directory_fd
        # Neither file can get another number while it is open.
        self._directory, self._locked = os.fstat(directory_fd), os.fstat(lock_fd)
        self._found: dict[str, Any] = {}

    def once(self, name: str, find: Callable[[], Found]) -> Found:
        """Return what `find` returns, called once while the lock is held: nobody else changes the log directory.

        Several threads may each call it once. What it raises is not kept.
        """
        if name not in self._found:
            self._found[name] = find()
        cached: Found = self._found[name]
        return cached

    def is_in_force(self) -> bool:
        """Return whether the path of `.lock` still names the locked file, so that the lock keeps a broker out."""
        with storage_errors(self.path):
            return _is_named(self.path, self._locked)

    def check(self) -> None:
        """Raise LogChangedError if `.lock` or the log directory was replaced. Called before every swap and checkpoint.

        A lock on a deleted file keeps no process out, nor does one in a directory that was moved and replaced.
        Rule: FileLock.destroy, which unlocks and then deletes.
        """
        if not self.is_in_force():
            raise LogChangedError(
                path=self.path, problem="the lock file was deleted or replaced while kcompact held its lock"
            )

    def check_beside(self, directory: Path, fd: int) -> None:
        """Raise LogChangedError as `check`, and if an open partition directory was moved to another log directory."""
        self.check()
        self.require_parent_of(directory, fd)

    def require_parent_of(self, directory: Path, fd: int) -> None:
        """Raise LogChangedError unless an open directory lies in the log directory that is locked."""
        with storage_errors(directory):
            above = os.stat("..", dir_fd=fd)
        if not os.path.samestat(above, self._directory):
            raise LogChangedError(path=directory, problem="is no longer in the log directory that kcompact has locked")


def require_local(log_dirs: Iterable[Path]) -> None:
    """Raise RefusedError if one of the log directories is in a bucket, where there are no locks."""
    for log_dir in log_dirs:
        if is_in_bucket(log_dir):
            raise RefusedError(
                path=log_dir,
                problem="nothing is changed in a bucket: a broker and kcompact have no lock there",
                hint="Write a compacted copy: --output DIR or --output s3://BUCKET/PREFIX.",
            )


@contextmanager
def log_dir_lock(log_dir: str | os.PathLike[str], *, dir_fd: int | None = None) -> Iterator[LogDirLock]:
    """Hold the log directory's lock during a `with` block. With `dir_fd`, the directory is already open.

    Creates `.lock` if it is missing and gives it to the directory's owner, because a file that belongs to root would
    keep the broker from starting. Raises LogDirLockedError if another process holds the lock, RefusedError if the file
    cannot be opened or locked, LogChangedError if it is replaced again and again, StorageError; ConfigError for a path
    of another store. Rule: LogManager.lockLogDirs.
    """
    log_dir = as_path(log_dir)
    if dir_fd is None:
        require_local([log_dir])
    path = log_dir / LOCK_NAME
    with closed_after(_open_directory(log_dir) if dir_fd is None else os.dup(dir_fd)) as directory_fd:
        with storage_errors(path):
            lock_fd, created = _acquire(path, directory_fd)
        try:
            with storage_errors(path):
                lock = LogDirLock(path=path, directory_fd=directory_fd, lock_fd=lock_fd, created=created)
            yield lock
        finally:
            with suppress(OSError):  # Nothing was written to it.
                os.close(lock_fd)  # Closes the open file description, which releases the lock.


def is_locked(log_dir: Path) -> bool:
    """Return whether a process holds the log directory's lock now. Creates and changes nothing.

    Returns False also if the directory or `.lock` is missing or cannot be opened. A process can take or release the
    lock right afterwards, so the result is good for a warning only.
    """
    return lock_holder(log_dir) is not None


def has_broker(log_dir: Path) -> bool:
    """Return whether a process holds the log directory's lock as a broker does: with a POSIX record lock.

    kcompact's own lock belongs to no process (`F_OFD_GETLK` gives the process id -1). Otherwise as `is_locked`.
    """
    return lock_holder(log_dir) not in (None, NO_PROCESS)


def lock_holder(log_dir: Path) -> int | None:
    """Return the process that holds the lock (0: in another container), `NO_PROCESS` for kcompact, None if free."""
    with suppress(OSError), closed_after(os.open(log_dir / LOCK_NAME, _LOOKING)) as lock_fd:
        kind, _, _, _, process = _FLOCK.unpack(fcntl.fcntl(lock_fd, fcntl.F_OFD_GETLK, _WHOLE_FILE))
        return None if kind == fcntl.F_UNLCK else int(process)
    return None


def lock_problem(log_dir: Path) -> str:
    """Return why it cannot be known who holds the lock, empty if that is known, or if there is no lock."""
    try:
        with closed_after(os.open(log_dir / LOCK_NAME, _LOOKING)):
            return ""
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return problem.strerror or str(problem)


def holder_in_words(log_dir: Path) -> str:
    """Return which process holds the lock now, such as `java (process 4711)`; `another process` if none does."""
    process = lock_holder(log_dir)
    if process is None:
        return "another process"
    if process == NO_PROCESS:
        return "another kcompact"
    if process == 0:
        return "a process outside this container"
    return f"{command_of(process)} (process {process}{', suspended' if is_suspended(process) else ''})"


def require_lockable(log_dir: Path) -> None:
    """Raise the RefusedError of `log_dir_lock` if this user cannot open or create `.lock`. Changes nothing.

    A lock that another process holds is no error here.
    """
    path = log_dir / LOCK_NAME
    with closed_after(_open_directory(log_dir)) as directory_fd:
        try:
            os.close(_open_existing(path, directory_fd))
        except FileNotFoundError:
            problem = why_not_writable(log_dir)
            if problem is not None:
                raise _not_opened(path, problem) from None


def _open_directory(log_dir: Path) -> int:
    try:
        return os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _not_opened(log_dir, error) from error


def _not_opened(path: Path, error: OSError) -> KcompactError:
    """Return the error for a log directory or a lock file that the system does not open."""
    if not is_forbidden(error) and error.errno not in _WRONG_KIND:
        return storage_error(path, error, operation="open")
    problem = f"cannot be opened: {error.strerror}"
    if error.errno == errno.EROFS:
        problem = "the file system is mounted read-only, so the log directory can be neither locked nor changed"
    return RefusedError(path=path, problem=problem, hint=remedy(error))


def _acquire(path: Path, directory_fd: int) -> tuple[int, bool]:
    """Return the descriptor of the locked file, which `.lock` names, and whether the file is new."""
    for _ in range(_ATTEMPTS):
        opened = _open(path, directory_fd)
        if opened is None:
            continue
        lock_fd, created = opened
        try:
            if created:
                _give_to_owner(path, directory_fd, lock_fd)
            _lock(path, lock_fd)
            if not created:  # A run of root may have been killed before it gave the file away.
                with suppress(KcompactError):
                    _give_to_owner(path, directory_fd, lock_fd)
            if _is_named(LOCK_NAME, os.fstat(lock_fd), directory_fd):
                return lock_fd, created
        except BaseException:
            os.close(lock_fd)
            raise
        os.close(lock_fd)
    raise LogChangedError(path=path, problem=f"the lock file was replaced {_ATTEMPTS} times while kcompact locked it")


def _open(path: Path, directory_fd: int) -> tuple[int, bool] | None:
    """Return a descriptor of `.lock` and whether it was created, or None if another process created it meanwhile."""
    with suppress(FileNotFoundError):
        return _open_existing(path, directory_fd), False
    try:
        return os.open(LOCK_NAME, _OPEN_FLAGS | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=directory_fd), True
    except FileExistsError:
        return None
    except OSError as error:
        raise _not_opened(path, error) from error


def _open_existing(path: Path, directory_fd: int) -> int:
    """Return a descriptor of `.lock`. Raises RefusedError; FileNotFoundError if there is no such file."""
    try:
        lock_fd = os.open(LOCK_NAME, _OPEN_FLAGS, dir_fd=directory_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RefusedError(path=path, problem="is a symbolic link", hint=_NOT_A_BROKERS) from error
        raise _not_opened(path, error) from error
    try:
        if not stat.S_ISREG(os.fstat(lock_fd).st_mode):
            raise RefusedError(path=path, problem="is not a regular file", hint=_NOT_A_BROKERS)
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd


def _give_to_owner(path: Path, directory_fd: int, lock_fd: int) -> None:
    owner, actual = os.fstat(directory_fd), os.fstat(lock_fd)
    if os.geteuid() != 0 or actual.st_uid != 0 or (owner.st_uid, owner.st_gid) == (0, actual.st_gid):
        return
    try:
        os.fchown(lock_fd, owner.st_uid, owner.st_gid)
    except OSError as error:
        if not is_forbidden(error):
            raise storage_error(path, error, operation="change the owner") from error
        raise RefusedError(
            path=path,
            problem=f"cannot be given to the owner of the log directory: {error.strerror}",
            hint="A broker could not open it. Run as the user that owns the log directory (the broker's user).",
        ) from error


def _lock(path: Path, lock_fd: int) -> None:
    try:
        fcntl.fcntl(lock_fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise LogDirLockedError(lock=path, holder=holder_in_words(path.parent)) from error
        if error.errno not in _NO_SUCH_LOCKS:
            raise storage_error(path, error, operation="lock") from error
        raise RefusedError(
            path=path,
            problem=f"the file system does not grant a lock of the kind that a broker takes: {error.strerror}",
            hint="A lock keeps brokers out while a log is changed. Without a lock only --dry-run and --output DIR "
            "are possible.",
        ) from error


def _is_named(path: str | Path, held: os.stat_result, dir_fd: int | None = None) -> bool:
    """Return whether `.lock` names the file that is held open. Other hard links to it, as of a backup, do no harm."""
    try:
        named = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return os.path.samestat(named, held)
