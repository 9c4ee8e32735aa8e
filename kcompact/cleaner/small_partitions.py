"""Cleans the partitions in order, and small ones side by side.

A small log is a single task, so the cleaning mostly waits for the disk, and for Spark. Several small logs are cleaned
in the same time. What the driver holds of them, and what they need on the disk, is limited by their size together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kcompact.cleaner.outcome import PartitionOutcome

SMALL_BYTES = 64 << 20
"""A log with fewer bytes to clean is small."""
TOGETHER_BYTES = 4 * SMALL_BYTES
"""The most bytes to clean that all logs have together that are cleaned at the same time."""


def small_side_by_side(
    outcomes: Sequence[PartitionOutcome], clean: Callable[[PartitionOutcome], PartitionOutcome], *, threads: int
) -> Iterator[PartitionOutcome]:
    """Yield `clean` of each partition, in order. Of neighbours that are all small, `threads` are cleaned at a time."""
    room = _Room(TOGETHER_BYTES)

    def clean_in_room(outcome: PartitionOutcome) -> PartitionOutcome:
        with room.taken(_size_bytes(outcome)):
            return clean(outcome)

    for run in _runs(outcomes):
        if len(run) == 1 or threads == 1:
            yield from map(clean, run)
            continue
        # The threads take the partitions in order. Of their tasks, those of the oldest come first on Spark (FIFO).
        with ThreadPoolExecutor(min(len(run), threads), "kcompact-partition") as pool:
            yield from pool.map(clean_in_room, run)


class _Room:
    """Lets threads in as long as there is room for them."""

    def __init__(self, size_bytes: int) -> None:
        self._free_bytes = size_bytes
        self._changed = threading.Condition()

    @contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Wait until so many bytes are free and take them for the length of the block."""
        with self._changed:
            self._changed.wait_for(lambda: self._free_bytes >= size_bytes)
            self._free_bytes -= size_bytes
        try:
            yield
        finally:
            with self._changed:
                self._free_bytes += size_bytes
                self._changed.notify_all()


def _runs(outcomes: Sequence[PartitionOutcome]) -> Iterator[list[PartitionOutcome]]:
    """Cut the partitions into runs, in order: neighbours that are all small, and each large one alone."""
    run: list[PartitionOutcome] = []
    for outcome in outcomes:
        if run and not (_is_small(outcome) and _is_small(run[-1])):
            yield run
            run = []
        run.append(outcome)
    if run:
        yield run


def _is_small(outcome: PartitionOutcome) -> bool:
    return _size_bytes(outcome) < SMALL_BYTES


def _size_bytes(outcome: PartitionOutcome) -> int:
    return 0 if outcome.turn is None else sum(segment.size_bytes for segment in outcome.turn.segments)
