"""What this process may do with files, found out without trying: nothing is written.

The answers are those of permissions, owners, mounts and the flags of files. The flags immutable and append-only keep
even root from changing a file; a project can keep root from renaming it. Only trying shows what else can be in the way:
a security module, a file server that does not trust root.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import pwd
import stat
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kcompact.host.descriptors import closed_after
from kcompact.readable import shell_word

_CHOWN, _FOWNER = 0, 3
"""The numbers of the capabilities that give files to others, and that change the mode of files of others."""


def why_not_writable(directory: Path, *, fd: int | None = None) -> OSError | None:
    """Return the error that creating, renaming or deleting a file in a directory would raise, None if it can be done.

    With `fd`, a descriptor of the directory, the path is only for messages. Raises OSError if the directory cannot be
    examined.
    """
    if os.statvfs(directory if fd is None else fd).f_flag & os.ST_RDONLY:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), str(directory))
    flag = flag_of_directory(directory) if fd is None else protecting_flag(fd)
    if flag is not None:
        return OSError(errno.EPERM, f"the directory is {flag}", str(directory))
    if not os.access(directory if fd is None else ".", os.W_OK | os.X_OK, dir_fd=fd, effective_ids=True):
        return OSError(errno.EACCES, os.strerror(errno.EACCES), str(directory))
    return None


def remedy(problem: OSError) -> str:
    """Return what a user can do about a file or a directory that cannot be written to."""
    if problem.errno == errno.EROFS:
        return "Mount it read-write, or use --output DIR with a directory on another file system."
    if problem.errno == errno.EPERM and problem.filename and flag_of_directory(Path(problem.filename)):
        return f"Remove the flag, then run again: chattr -i -a {shell_word(problem.filename)}"
    return "Run as the user that owns it (the broker's user), or write a compacted copy with --output DIR."


def user_name() -> str | None:
    """Return the name of this process's user, None if no list of users has the user id, as in OpenShift's containers.

    The real user id counts, as for Java (jaas_unix, `getpwuid_r(getuid())`).
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return None


def may_give_to(owner: os.stat_result, directory: os.stat_result) -> bool:
    """Return whether this process can give a new file in a directory the owner and the group of another file."""
    # With this bit, new files have the group of the directory.
    own_groups = {directory.st_gid} if directory.st_mode & stat.S_ISGID else set()
    is_own = owner.st_uid == os.geteuid() and owner.st_gid in own_groups | {os.getegid(), *os.getgroups()}
    return is_own or may_change_owners()


def may_change_owners() -> bool:
    """Return whether this process can give its files to any user, as root can."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        capabilities = next(int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(capabilities >> _CHOWN & 1 and capabilities >> _FOWNER & 1)


# Flags and projects of files

_GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS of 64-bit Linux. Its size is that of a long, but the kernel writes an int."""
_FLAGS = {0x10: "immutable", 0x20: "append-only"}

_GET_ATTRIBUTES = 0x801C581F
"""FS_IOC_FSGETXATTR."""
_ATTRIBUTES = struct.Struct("IIII12x")
"""struct fsxattr: flags, extent size, number of extents, project."""
_INHERITS_PROJECT = 0x200


class Project(NamedTuple):
    """The project that a file counts for in quotas. New files in a directory get its project if it `is_inherited`."""

    number: int
    is_inherited: bool


def project_of(fd: int) -> Project:
    """Return the project of an open file or directory; number 0 also where the file system has no projects."""
    try:
        attributes = fcntl.ioctl(fd, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size))
    except OSError:
        return Project(0, is_inherited=False)
    flags, _, _, number = _ATTRIBUTES.unpack(attributes)
    return Project(number, is_inherited=bool(flags & _INHERITS_PROJECT))


def protecting_flag(fd: int) -> str | None:
    """Return the flag that protects an open file or directory: `immutable` or `append-only`; None without one.

    None also where the file system has no such flags.
    """
    flags = array.array("i", [0, 0])
    try:
        fcntl.ioctl(fd, _GET_FLAGS, flags)
    except OSError:
        return None
    return next((name for bit, name in _FLAGS.items() if flags[0] & bit), None)


def flag_of_directory(directory: Path) -> str | None:
    """Return the `protecting_flag` of a directory, None if it cannot be opened."""
    with suppress(OSError), closed_after(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as fd:
        return protecting_flag(fd)
    return None
