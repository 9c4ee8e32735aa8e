"""The processors that this process may use, and work on all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def in_parallel(work: Callable[..., Result], *arguments: Iterable[object]) -> Iterator[Result]:
    """Yield the results of `work` in order, as `map` does, with one thread for each usable processor.

    Kernels release the interpreter's lock, so threads run at the same time. Work that has not begun is cancelled when
    the caller stops iterating.
    """
    pool = ThreadPoolExecutor(available_cores())
    try:
        yield from pool.map(work, *arguments)
    finally:
        pool.shutdown(cancel_futures=True)
