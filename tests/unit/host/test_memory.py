"""`host.machine`: the memory limit, from files such as Linux has in `/proc` and `/sys`."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kcompact.host import machine
from kcompact.host.machine import (
    LEAST_BYTES,
    available_cores,
    default_memory_bytes,
    memory_limit_bytes,
    process_limits,
    tightest_limit,
)

MIB, GIB = 1 << 20, 1 << 30
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


# --- Limits of the process ------------------------------------------------------------------------------------------


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, int]]:
    """The soft limits of this process by their number. The hard limits have no limit."""
    found: dict[int, int] = {resource.RLIMIT_STACK: 8 * MIB}

    def getrlimit(number: int) -> tuple[int, int]:
        return found.get(number, resource.RLIM_INFINITY), resource.RLIM_INFINITY

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    machine._most_threads.cache_clear()
    yield found
    machine._most_threads.cache_clear()


def root_with(directory: Path, **used_mib: int) -> Path:
    """A root in which this process uses so much by the fields of `/proc/self/status`."""
    (directory / "proc/self").mkdir(parents=True)
    (directory / "proc/meminfo").write_text(MEMINFO, encoding="ascii")
    lines = [f"{name}:\t{mib * 1024:>8} kB\n" for name, mib in used_mib.items()]
    (directory / "proc/self/status").write_text("".join(["Name:\tpython3\n", *lines]), encoding="ascii")
    return directory


AS, DATA = resource.RLIMIT_AS, resource.RLIMIT_DATA


@pytest.mark.parametrize(
    ("soft", "used_mib", "cores", "expected_bytes"),
    [
        ({}, {"VmSize": 500}, 8, 8 * GIB),
        # What the process has already is taken off: at least what it will take before it reads anything.
        ({AS: 1024 * MIB}, {"VmSize": 524}, 1, 500 * MIB),
        ({AS: 1024 * MIB}, {"VmSize": 30}, 1, (1024 - 136) * MIB),
        ({DATA: 1024 * MIB}, {"VmSize": 1000, "VmData": 224}, 1, 800 * MIB),
        ({DATA: 1024 * MIB}, {"VmData": 30}, 1, (1024 - 72) * MIB),
        # The stack and the heap of each thread.
        ({AS: 1024 * MIB}, {"VmSize": 224}, 2, (800 - 2 * 72) * MIB),
        ({DATA: 1024 * MIB}, {"VmData": 224}, 2, (800 - 2 * 8) * MIB),
        ({AS: 1024 * MIB, resource.RLIMIT_STACK: resource.RLIM_INFINITY}, {"VmSize": 224}, 2, (800 - 2 * 66) * MIB),
        # The smallest counts.
        ({AS: 1024 * MIB, DATA: 600 * MIB}, {"VmSize": 224, "VmData": 100}, 1, 500 * MIB),
        ({AS: 100 * GIB}, {"VmSize": 224}, 2, 8 * GIB),
        # Where there is nothing left, the run begins all the same, and says so when it gets no memory.
        ({AS: 100 * MIB}, {"VmSize": 224}, 8, LEAST_BYTES),
        ({AS: 100 * MIB}, {}, 8, LEAST_BYTES),
    ],
)
def test_limits_of_the_process_count(
    limits: dict[int, int],
    soft: Mapping[int, int],
    used_mib: Mapping[str, int],
    cores: int,
    expected_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits.update(soft)
    monkeypatch.setattr(machine, "available_cores", lambda: cores)
    assert memory_limit_bytes(root_with(tmp_path, **used_mib)) == expected_bytes


@pytest.mark.parametrize(
    ("soft_mib", "most"), [(None, sys.maxsize), (100, 1), (280, 1), (136 + 2 * 136, 2), (136 + 11 * 136 - 1, 10)]
)
def test_there_are_only_as_many_threads_as_addresses_are_left_for(
    limits: dict[int, int], soft_mib: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_used_bytes", lambda limit, _: limit.own_bytes)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    if soft_mib is not None:
        limits[AS] = soft_mib * MIB
    assert available_cores() == min(64, most)


def test_the_limit_that_leaves_the_least_is_named(limits: dict[int, int], tmp_path: Path) -> None:
    assert process_limits() == []
    assert tightest_limit() is None
    limits.update({AS: 1024 * MIB, DATA: 600 * MIB})
    root = root_with(tmp_path, VmSize=624, VmData=100)
    assert str(tightest_limit(root)) == "RLIMIT_AS (ulimit -v 1048576: 1.0 GiB of address space)"
    limits[DATA] = 400 * MIB
    assert str(tightest_limit(root)) == "RLIMIT_DATA (ulimit -d 409600: 400.0 MiB of data)"


def test_the_limit_of_this_machine() -> None:
    assert 64 << 20 < default_memory_bytes() * 4 <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
