"""What keeps even root from changing a file, the flags immutable and append-only, or from renaming it, its project."""

from __future__ import annotations

import array
import fcntl
import os
import struct
from pathlib import Path
from typing import NamedTuple

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
        found = fcntl.ioctl(fd, _GET_ATTRIBUTES, bytes(_ATTRIBUTES.size))
    except OSError:
        return Project(0, is_inherited=False)
    flags, _, _, number = _ATTRIBUTES.unpack(found)
    return Project(number, is_inherited=bool(flags & _INHERITS_PROJECT))


def protecting_flag(fd: int) -> str | None:
    """Return the flag that protects an open file or directory: `immutable` or `append-only`; None without one.

    None also where the file system has no such flags.
    """
    found = array.array("i", [0, 0])
    try:
        fcntl.ioctl(fd, _GET_FLAGS, found)
    except OSError:
        return None
    return next((name for bit, name in _FLAGS.items() if found[0] & bit), None)


def flag_of_directory(directory: Path) -> str | None:
    """Return the `protecting_flag` of a directory, None if it cannot be opened."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return protecting_flag(fd)
    finally:
        os.close(fd)
