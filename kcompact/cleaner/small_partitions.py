"""Cleans the partitions in order, and small ones side by side.

In one process a small log is a single task, so the cleaning mostly waits for the disk. Several small logs are cleaned
in the same time. What they hold together is limited by their size together.

On Spark most partitions are a task each. The largest come first: with a large one at the end, all others would wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.host.turns import Turns

SMALL_BYTES = 64 << 20
"""A log with fewer bytes to clean is small."""
TOGETHER_BYTES = 4 * SMALL_BYTES
"""The most bytes to clean that all logs have together that are cleaned at the same time."""


class SideBySide(NamedTuple):
    """How many partitions are cleaned at the same time: those with at most `each_bytes`, as `threads` many.

    All of them together have at most `together_bytes`, None for no limit.
    """

    threads: int
    each_bytes: int = SMALL_BYTES - 1
    together_bytes: int | None = TOGETHER_BYTES
    is_largest_first: bool = False

    def takes(self, outcome: PartitionOutcome) -> bool:
        """Return whether a partition is cleaned beside others."""
        return _size_bytes(outcome) <= self.each_bytes


def small_side_by_side(
    outcomes: Sequence[PartitionOutcome],
    clean: Callable[[PartitionOutcome], PartitionOutcome],
    how: SideBySide,
) -> Iterator[PartitionOutcome]:
    """Yield `clean` of each partition, in their order. Of neighbours that are all small, several at a time."""
    if not how.is_largest_first:
        yield from _in_runs(outcomes, clean, how)
        return
    order = sorted(range(len(outcomes)), key=lambda number: -_size_bytes(outcomes[number]))
    cleaned = dict(zip(order, _in_runs([outcomes[number] for number in order], clean, how), strict=True))
    yield from (cleaned[number] for number in range(len(outcomes)))


def _in_runs(
    outcomes: Sequence[PartitionOutcome], clean: Callable[[PartitionOutcome], PartitionOutcome], how: SideBySide
) -> Iterator[PartitionOutcome]:
    room = None if how.together_bytes is None else _Room(how.together_bytes)
    turns = Turns()

    def clean_in_room(outcome: PartitionOutcome) -> PartitionOutcome:
        with nullcontext() if room is None else room.taken(_size_bytes(outcome)), turns.taken():
            return clean(outcome)

    for run in _runs(outcomes, how):
        if len(run) == 1 or how.threads == 1:
            yield from map(clean, run)
            continue
        # The threads take the partitions in order.
        with ThreadPoolExecutor(min(len(run), how.threads), "kcompact-partition") as pool:
            yield from pool.map(clean_in_room, run)


class _Room:
    """Lets threads in as long as there is room for them."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = self._free_bytes = size_bytes
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Wait until so many bytes are free and take them for the length of the block. More than all means all."""
        size_bytes = min(size_bytes, self._size_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self._free_bytes >= size_bytes)
            self._free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self._free_bytes += size_bytes
                self._changed.notify_all()


def _runs(outcomes: Sequence[PartitionOutcome], how: SideBySide) -> Iterator[list[PartitionOutcome]]:
    """Cut the partitions into runs, in order: neighbours that are all small, and each large one alone."""
    run: list[PartitionOutcome] = []
    for outcome in outcomes:
        if run and not (how.takes(outcome) and how.takes(run[-1])):
            yield run
            run = []
        run.append(outcome)
    if run:
        yield run


def _size_bytes(outcome: PartitionOutcome) -> int:
    return 0 if outcome.turn is None else sum(segment.size_bytes for segment in outcome.turn.segments)
