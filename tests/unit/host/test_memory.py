"""`host.machine`: the memory limit, from files such as Linux has in `/proc` and `/sys`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kcompact.host.machine import default_memory_bytes, memory_limit_bytes

GIB = 1 << 30
MEMINFO = "MemTotal:        8388608 kB\nMemFree:         1000000 kB\n"
UNLIMITED = "9223372036854771712"
"""No limit, in control groups of version 1."""


@pytest.mark.parametrize(
    ("files", "expected_bytes"),
    [
        ({}, 8 * GIB),
        # Version 2: the smallest limit of the group and its parents.
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8 * GIB),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "17179869184\n"}, 8 * GIB),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "2147483648\n"}, 2 * GIB),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "2147483648\n",
                "sys/fs/cgroup/a/b/memory.max": "1073741824\n",
            },
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "1073741824\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
            },
            GIB,
        ),
        ({"proc/self/cgroup": "0::/a:b\n", "sys/fs/cgroup/a:b/memory.max": "1073741824\n"}, GIB),
        ({"proc/self/cgroup": "0::/other\n", "sys/fs/cgroup/a/memory.max": "1073741824\n"}, 8 * GIB),
        ({"proc/self/cgroup": "0::/../..\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, GIB),
        # Version 1: in a container the root is its own group, and `proc/self/cgroup` has the host's name of it.
        (
            {
                "proc/self/cgroup": "12:cpu,cpuacct:/docker/1f\n7:memory:/docker/1f\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
            },
            GIB // 2,
        ),
        (
            {
                "proc/self/cgroup": "7:memory:/docker/1f\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED,
                "sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes": "1073741824\n",
            },
            GIB,
        ),
        (
            {
                "proc/self/cgroup": "7:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": UNLIMITED,
            },
            8 * GIB,
        ),
        ({"proc/self/cgroup": "7:cpu:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "1073741824"}, 8 * GIB),
        # Both versions at once.
        (
            {
                "proc/self/cgroup": "7:memory:/a\n0::/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "2147483648\n",
                "sys/fs/cgroup/a/memory.max": "3221225472\n",
            },
            2 * GIB,
        ),
        ({"proc/self/cgroup": "not a line of this format\n"}, 8 * GIB),
    ],
)
def test_the_smallest_limit_is_used(files: dict[str, str], expected_bytes: int, tmp_path: Path) -> None:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="ascii")
    assert memory_limit_bytes(tmp_path) == expected_bytes
    assert default_memory_bytes(tmp_path) == expected_bytes // 4


@pytest.mark.parametrize("meminfo", [None, "", "MemTotal:\n", "MemTotal: much kB\n"])
def test_without_meminfo_the_system_counts_its_pages(meminfo: str | None, tmp_path: Path) -> None:
    if meminfo is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/meminfo").write_text(meminfo, encoding="ascii")
    assert memory_limit_bytes(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_the_limit_of_this_machine() -> None:
    assert 64 << 20 < default_memory_bytes() * 4 <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
