"""Runs functions in forked children of this process, which is warm: no interpreter starts, nothing is imported."""

from __future__ import annotations

import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from tests.torture.tally import Tally

Item = TypeVar("Item")
PROCESSES = 2
KILLED = "killed"


def in_child(act: Callable[[], str]) -> str:
    """Run `act` in a child; return its answer, KILLED if it died by SIGKILL, or the traceback of what it raised."""
    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        found = ""
        try:
            os.close(receiver)
            found = act()
        except BaseException:
            found = traceback.format_exc()
        finally:
            os.write(sender, found.encode()[-60_000:])
            os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as answer:
        found = answer.read().decode(errors="replace")
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return KILLED if os.WTERMSIG(status) == signal.SIGKILL else f"died by signal {os.WTERMSIG(status)}"
    return found


def side_by_side(work: Callable[[Sequence[Item]], Tally], items: Sequence[Item]) -> Tally:
    """Deal the items to processes that work at the same time, each on one core; return what they count together."""
    total = Tally()
    hands = [items[number::PROCESSES] for number in range(PROCESSES)]
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("fork")) as pool:
        for done in pool.map(_on_one_core, [work] * PROCESSES, range(PROCESSES), hands):
            total.outcomes.update(done.outcomes)
            total.failures += done.failures
    return total


def _on_one_core(work: Callable[[Sequence[Item]], Tally], number: int, items: Sequence[Item]) -> Tally:
    with one_core(number):
        return work(items)


@contextmanager
def one_core(number: int = 0) -> Iterator[None]:
    """Run the block on one core, where kcompact uses one thread: so its calls have the same order each time."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a directory for the length of the block, in memory where there is room: nothing here depends on a disk."""
    memory = Path("/dev/shm")
    status = os.statvfs(memory) if memory.is_dir() else None
    parent = str(memory) if status is not None and status.f_bavail * status.f_frsize > 1 << 30 else None
    with tempfile.TemporaryDirectory(prefix="kcompact-torture-", dir=parent) as directory:
        yield Path(directory)
