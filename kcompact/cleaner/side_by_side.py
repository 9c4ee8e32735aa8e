"""Cleans the partitions in order, and small ones side by side.

A small log is a single task, so the cleaning mostly waits for the disk, and for Spark. Several small logs are cleaned
in the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from kcompact.cleaner.outcome import PartitionOutcome

SMALL_BYTES = 64 << 20
"""A log with fewer bytes to clean is small."""
SIDE_BY_SIDE = 4
"""The number of small logs that are cleaned at the same time."""


def small_side_by_side(
    outcomes: Sequence[PartitionOutcome], clean: Callable[[PartitionOutcome], PartitionOutcome]
) -> Iterator[PartitionOutcome]:
    """Yield `clean` of each partition, in order. Neighbours that are all small are cleaned at the same time."""
    for run in _runs(outcomes):
        if len(run) == 1:
            yield clean(run[0])
            continue
        # The threads take the partitions in order. Of their tasks, those of the oldest come first on Spark (FIFO).
        with ThreadPoolExecutor(min(len(run), SIDE_BY_SIDE), "kcompact-partition") as pool:
            yield from pool.map(clean, run)


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
    return outcome.plan is None or sum(segment.size_bytes for segment in outcome.plan.segments) < SMALL_BYTES
