"""The log directory's `.lock`, taken the way the broker takes it.

A broker holds a POSIX record lock over the whole of `.lock` while it runs (Java's `FileChannel.tryLock`,
which is `fcntl(F_SETLK)`). `flock` neither sees that lock nor is seen by it. We take an *open file
description* lock (`F_OFD_SETLK`): it conflicts with the broker's in both directions, and unlike a plain
record lock it does not vanish when some other part of this process opens and closes the same file.

A broker that shuts down unlocks `.lock` and then **deletes** it (`FileLock.destroy`). Whoever locks in
between holds a file that no longer has a name, and the next broker makes and locks a new one. So the name is
compared with what we hold, right after locking and again by `LogDirLock.check()` before every commit.
Nobody waits for that: the work between locking and the first commit is far longer than the moment between a
broker's unlock and its delete.

A partition directory is locked through its parent, the log directory. `.lock` is never deleted here: deleting
it is what would let a second process in. A forked child keeps the lock for as long as it lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kcompact.errors import LogChangedError, LogDirLockedError, RefusedError

LOCK_NAME = ".lock"

# struct flock of 64-bit Linux: type, whence, start, length (0: to the end, however long), pid (0, or EINVAL).
_FLOCK = struct.Struct("hhqqi4x")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)

# A broker may delete the file just as we lock it; several times in a row is something else.
_ATTEMPTS = 5


class LogDirLock:
    """A held lock. `created` tells whether `.lock` was missing before."""

    def __init__(self, *, path: Path, directory_fd: int, lock_fd: int, created: bool) -> None:
        self.path = path
        self.created = created
        self._directory_fd = directory_fd
        self._lock_fd = lock_fd

    def still_ours(self) -> bool:
        """Return whether `.lock` still leads to the file we hold, so that a broker would meet our lock."""
        return _same_file(self._directory_fd, self._lock_fd)

    def check(self) -> None:
        """Raise LogChangedError if `.lock` was deleted or replaced; called before every commit.

        Rule: FileLock.destroy deletes the file after unlocking it; a lock on a deleted file keeps nobody out.
        """
        if not self.still_ours():
            raise LogChangedError(path=self.path, problem="the lock file was deleted or replaced while it was held")


@contextmanager
def log_dir_lock(log_dir: Path) -> Iterator[LogDirLock]:
    """Hold the log directory's lock for the length of a `with` block.

    Makes `.lock` if it is missing, owned by the directory's owner: a file of root's would keep the broker
    from starting. Raises LogDirLockedError if another process holds it, RefusedError if it cannot be opened
    or locked here. Rule: LogManager.lockLogDirs.
    """
    path = log_dir / LOCK_NAME
    directory_fd = _open_directory(log_dir)
    try:
        lock_fd, created = _acquire(path, directory_fd)
        try:
            yield LogDirLock(path=path, directory_fd=directory_fd, lock_fd=lock_fd, created=created)
        finally:
            os.close(lock_fd)  # The last reference to the open file goes, and the lock with it.
    finally:
        os.close(directory_fd)


def is_locked(log_dir: Path) -> bool:
    """Return whether a process holds the log directory's lock now. Creates and changes nothing.

    False also where it cannot be asked: no directory, no `.lock`, no permission to open it. For a warning
    only: the answer may be old by the time it is read.
    """
    try:
        lock_fd = os.open(log_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return False
    try:
        kind = _FLOCK.unpack(fcntl.fcntl(lock_fd, fcntl.F_OFD_GETLK, _WHOLE_FILE))[0]
    except OSError:
        return False
    finally:
        os.close(lock_fd)
    return bool(kind != fcntl.F_UNLCK)


def _open_directory(log_dir: Path) -> int:
    try:
        return os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(path=log_dir, problem=f"not a directory that can be locked: {error.strerror}") from error


def _acquire(path: Path, directory_fd: int) -> tuple[int, bool]:
    """Return the locked descriptor and whether the file is new; the name leads to it when we return."""
    for _ in range(_ATTEMPTS):
        opened = _open(path, directory_fd)
        if opened is None:
            continue
        lock_fd, created = opened
        try:
            _lock(path, lock_fd)
            if _same_file(directory_fd, lock_fd):
                return lock_fd, created
        except BaseException:
            os.close(lock_fd)
            raise
        os.close(lock_fd)
    raise LogChangedError(path=path, problem=f"the lock file was replaced {_ATTEMPTS} times while it was being locked")


def _open(path: Path, directory_fd: int) -> tuple[int, bool] | None:
    """Return a descriptor of `.lock` and whether we made it, or None if it came or went in between."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        try:
            lock_fd = os.open(LOCK_NAME, flags, dir_fd=directory_fd)
            created = False
        except FileNotFoundError:
            lock_fd = os.open(LOCK_NAME, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=directory_fd)
            created = True
    except FileExistsError:
        return None
    except OSError as error:
        problem = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be opened: {error.strerror}"
        raise RefusedError(
            path=path,
            problem=problem,
            hint="Run as the user that owns the log directory (the broker's user).",
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(lock_fd).st_mode):
            raise RefusedError(path=path, problem="is not a regular file")
        if created:
            _give_to_owner(path, directory_fd, lock_fd)
    except BaseException:
        os.close(lock_fd)
        raise
    return lock_fd, created


def _give_to_owner(path: Path, directory_fd: int, lock_fd: int) -> None:
    if os.geteuid() != 0:
        return
    owner = os.fstat(directory_fd)
    try:
        os.fchown(lock_fd, owner.st_uid, owner.st_gid)
    except OSError as error:
        raise RefusedError(
            path=path,
            problem=f"cannot be given to the owner of the log directory: {error.strerror}",
            hint="The broker could not open it. Run as the user that owns the log directory.",
        ) from error


def _lock(path: Path, lock_fd: int) -> None:
    try:
        fcntl.fcntl(lock_fd, fcntl.F_OFD_SETLK, _WHOLE_FILE)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            raise LogDirLockedError(lock=path) from error
        raise RefusedError(
            path=path, problem=f"this file system does not grant the broker's kind of lock: {error.strerror}"
        ) from error


def _same_file(directory_fd: int, lock_fd: int) -> bool:
    """Return whether the name leads to the open file. Other hard links do no harm: a backup may hold one."""
    try:
        named = os.stat(LOCK_NAME, dir_fd=directory_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(lock_fd)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) and held.st_nlink > 0
