"""The flags of a file that keep every user from changing it: immutable and append-only (`chattr +i`, `chattr +a`)."""

from __future__ import annotations

import array
import fcntl
import os
from pathlib import Path

_GET_FLAGS = 0x80086601
"""FS_IOC_GETFLAGS of 64-bit Linux. Its size is that of a long, but the kernel writes an int."""
_FLAGS = {0x10: "immutable", 0x20: "append-only"}


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
