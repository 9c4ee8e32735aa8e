"""The memory, the open files, the processors and the clock of this machine, as far as this process may use them.

A container is a control group. Each group from the process's own group up to the root may have a memory limit, and the
smallest one counts. A group that the process cannot see is ignored. Systems other than Linux have no control groups and
no `/proc`.

A process has limits of its own, which batch systems set, and systemd with LimitAS= and LimitDATA=: `ulimit -v` limits
its addresses, `ulimit -d` what it may write to. Libraries and threads count, also what they only reserve. So what such
a limit leaves counts, and where it leaves little, fewer threads run: the stack and the heap of a thread take 72 MiB of
addresses.

Only this module reads the wall clock: every decision takes its time as an argument.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple, TypeVar

from kcompact import readable

# Memory

DEFAULT_DIVISOR = 4
"""Without `--memory` a cleaning uses the memory limit divided by this number."""


def default_memory_bytes(root: Path = Path("/")) -> int:
    """Return how many bytes of memory a cleaning may use by default. `root` as in `memory_limit_bytes`."""
    return memory_limit_bytes(root) // DEFAULT_DIVISOR


OBJECTS_BETWEEN_COLLECTIONS = 50_000
"""For a command that keeps the plans of thousands of partitions. Python's own number is 700."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for unreachable objects less often in the block, which keeps many small objects, and no large ones.

    Python looks through the objects that were kept again and again: a tenth of the time for 5,000 partitions.
    """
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@cache
def memory_limit_bytes(root: Path = Path("/")) -> int:
    """Return how many bytes of memory this process can have at most. Asked once: each partition needs it.

    `root` is the directory that contains `proc` and `sys`. Without `proc/meminfo` the machine's memory is the number of
    pages that the operating system reports. Of a limit of the process, what it leaves beside threads and libraries
    counts, at least LEAST_BYTES.
    """
    left = [_left_bytes(limit, root) for limit in process_limits()]
    return min([_memory_bytes(root), *_group_limits_bytes(root), *left])


def _memory_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        words = value.split()
        if name == "MemTotal" and words and words[0].isdigit():
            return int(words[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _group_limits_bytes(root: Path) -> Iterator[int]:
    """Yield the limits of the process's control groups, versions 1 and 2."""
    mounted = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if not controllers:
            yield from _limits_up_from(mounted, group, "memory.max")
        elif "memory" in controllers.split(","):
            yield from _limits_up_from(mounted / "memory", group, "memory.limit_in_bytes")


def _limits_up_from(mounted: Path, group: str, file: str) -> Iterator[int]:
    """Yield the limits of a group and of its parents. In a container the root directory may be the group's own."""
    inside = PurePosixPath("/", group).relative_to("/")
    # The kernel writes the path of a group outside the container's view with "..".
    directories = [PurePosixPath()] if ".." in inside.parts else [inside, *inside.parents]
    for directory in directories:
        for line in _lines(mounted / directory / file):
            if line.isdigit():  # No limit is "max" in version 2, and a number larger than any memory in version 1.
                yield int(line)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []


# Limits of the process

LEAST_BYTES = 4 << 20
"""So much memory is counted on at least: where it is not there, the message about it names the limit."""
_HEAP_BYTES = 64 << 20
"""The addresses that glibc reserves for the heap of a thread (HEAP_MAX_SIZE)."""
_WORK_BYTES = 64 << 20
"""What a thread should find for its work: `keys` takes about 45 MiB for each, whatever `--memory` is."""
_STACK_BYTES = 2 << 20
"""The stack of a thread if `ulimit -s` has no limit (ARCH_STACK_DEFAULT_SIZE)."""


class ProcessLimit(NamedTuple):
    """A limit on the memory of this process. `field` is what `/proc/self/status` calls the memory that it counts.

    `own_bytes` is what Python, numpy and kcompact take of it: at the start of a command some are not loaded yet.
    """

    number: int
    name: str
    option: str
    what: str
    field: str
    own_bytes: int
    limit_bytes: int = 0

    def __str__(self) -> str:
        shell = f"ulimit {self.option} {self.limit_bytes >> 10}"
        return f"{self.name} ({shell}: {readable.size(self.limit_bytes)} of {self.what})"


_LIMITS = (
    ProcessLimit(resource.RLIMIT_AS, "RLIMIT_AS", "-v", "address space", "VmSize", 136 << 20),
    ProcessLimit(resource.RLIMIT_DATA, "RLIMIT_DATA", "-d", "data", "VmData", 72 << 20),
)


def process_limits() -> list[ProcessLimit]:
    """Return the limits on the memory of this process that are set. The soft limits count."""
    soft_limits = ((each, resource.getrlimit(each.number)[0]) for each in _LIMITS)
    return [each._replace(limit_bytes=soft) for each, soft in soft_limits if soft != resource.RLIM_INFINITY]


def tightest_limit(root: Path = Path("/")) -> ProcessLimit | None:
    """Return the limit of `process_limits` that leaves the least, None without one."""
    return min(process_limits(), key=lambda each: each.limit_bytes - _used_bytes(each, root), default=None)


def _left_bytes(limit: ProcessLimit, root: Path) -> int:
    """Return what a limit leaves for the work of all threads."""
    threads = available_cores()
    threads_bytes = threads * _thread_bytes(limit) if threads > 1 else 0  # One thread is that of the caller.
    return max(LEAST_BYTES, _unused_bytes(limit, root) - threads_bytes)


def _unused_bytes(limit: ProcessLimit, root: Path) -> int:
    return limit.limit_bytes - max(_used_bytes(limit, root), limit.own_bytes)


def _used_bytes(limit: ProcessLimit, root: Path) -> int:
    for line in _lines(root / "proc/self/status"):
        name, _, value = line.partition(":")
        words = value.split()
        if name == limit.field and words and words[0].isdigit():
            return int(words[0]) * 1024
    return limit.own_bytes


def _thread_bytes(limit: ProcessLimit) -> int:
    """Return what a thread takes of a limit. What is only reserved counts as address space, but not as data."""
    stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stack_bytes = _STACK_BYTES if stack == resource.RLIM_INFINITY else stack
    return stack_bytes + (_HEAP_BYTES if limit.number == resource.RLIMIT_AS else 0)


@cache
def _most_threads() -> int:
    """Return for how many threads the limits leave enough, at least 1.

    Asked once: the number of threads is also what memory is divided by.
    """
    root = Path("/")
    each = [_unused_bytes(limit, root) // (_WORK_BYTES + _thread_bytes(limit)) for limit in process_limits()]
    return max(1, min(each, default=sys.maxsize))


# Open files


def most_at_once(descriptors: int) -> int:
    """Return how many things that each hold so many files open this process may have at the same time, at least 1."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else max(1, limit // descriptors)


# Processors

Result = TypeVar("Result")


def lacks_instructions(root: Path = Path("/")) -> bool:
    """Return whether the processor is an x86-64 one without SSE 4.2 or POPCNT, as far as the system tells."""
    flags = next((line.split() for line in _lines(root / "proc/cpuinfo") if line.startswith("flags")), None)
    return flags is not None and not {"sse4_2", "popcnt"} <= set(flags)


def available_cores() -> int:
    """Return the number of processors that this process may use, or of threads if it has memory for fewer."""
    return min(len(os.sched_getaffinity(0)), _most_threads())


def in_parallel(work: Callable[..., Result], *arguments: Iterable[object]) -> Iterator[Result]:
    """Yield the results of `work` in order, as `map` does, with one thread for each usable processor.

    Kernels release the interpreter's lock, so threads run at the same time. Work that has not begun is cancelled when
    the caller stops iterating. If there is only one processor, the caller's thread does the work.
    """
    if available_cores() == 1:
        yield from map(work, *arguments)
        return
    from concurrent.futures import ThreadPoolExecutor  # The start of most commands does not need it.

    pool = ThreadPoolExecutor(available_cores())
    try:
        yield from pool.map(work, *arguments)
    finally:
        pool.shutdown(cancel_futures=True)


# The wall clock


def clock_ms() -> int:
    """Return the clock's time in Unix milliseconds."""
    return time.time_ns() // 1_000_000
