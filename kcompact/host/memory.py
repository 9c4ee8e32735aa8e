"""How much memory there is: the machine's, or less where a control group limits this process.

A container is such a group. What counts is the least limit on the way from the process's own group to the root; a
group that cannot be seen from here does not count. Only Linux has groups and `/proc`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

DEFAULT_SHARE = 4
"""A cleaning takes one part in so many of the memory, unless it is told how much to take."""


def default_memory_bytes(root: Path = Path("/")) -> int:
    """Return how much memory a cleaning may use when nobody says."""
    return memory_limit_bytes(root) // DEFAULT_SHARE


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """Return how much memory this process can have at most. `root` is where `proc` and `sys` are."""
    return min([_memory_bytes(root), *_group_limits_bytes(root)])


def _memory_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemTotal" and words and words[0].isdigit():
            return int(words[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_limits_bytes(root: Path) -> Iterator[int]:
    """Yield the limits of the control groups that this process is in, of version 2 and of version 1."""
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield from _limits_up_from(mounted, group, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_up_from(mounted / "memory", group, "memory.limit_in_bytes")


def _limits_up_from(mounted: Path, group: str, file: str) -> Iterator[int]:
    """Yield the limits of a group and of those above it. In a container the group's own directory may be the root."""
    inside = PurePosixPath("/", group).relative_to("/")
    # A group outside of what the container can see is written with dots.
    directories = [PurePosixPath()] if ".." in inside.parts else [inside, *inside.parents]
    for directory in directories:
        for line in _lines(mounted / directory / file):
            if line.isdigit():  # Else "max". Version 1 has a number beyond all memory for it.
                yield int(line)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
