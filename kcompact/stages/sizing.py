"""How large the pieces of a scan are, by the memory that there is: splits, batches, keys, buckets, workers, tasks.

No size changes a result.
"""

from __future__ import annotations

from collections.abc import Iterable

from kcompact.format.limits import MEMORY_FACTOR
from kcompact.log.batch_headers import mean_batch_bytes
from kcompact.log.files import LogFile
from kcompact.stages.job import Split

SPLIT_BYTES = 16 << 20
"""The size of a split: a task reads one split at a time."""
SPLIT_PART = 16
"""A split is at most this part of a worker's memory."""
MIN_SPLIT_BYTES = 64 << 10
SPLIT_BATCHES = 1 << 16
"""About the most batches in a split. The tables of more small ones take several times the memory of their bytes, and
their columns no longer fit the processor's cache."""
_LEAST_BATCH_BYTES = 26
"""A message of magic 0 without a key and a value. No batch is smaller."""
TASK_BYTES = 2 << 30
"""The most that one task reads. A lost task is repeated as a whole, and on Spark progress advances when a task ends."""
BUCKET_BYTES = 64 << 20
"""The memory for the keys of one bucket, at most. Larger buckets are slower."""
MIN_BUCKET_BYTES = 1 << 20


def split_bytes_of(files: Iterable[tuple[LogFile, int]], worker_bytes: int, most_bytes: int = SPLIT_BYTES) -> int:
    """Return the size of a split of some logs with their sizes, at most `most_bytes`.

    A worker holds a split, the table of its batches, which can take twice as much, and what it inflates and encodes.
    """
    files = list(files)
    of_memory = worker_bytes // SPLIT_PART
    # So few bytes have fewer batches than a split may have.
    if sum(size_bytes for _, size_bytes in files) > SPLIT_BATCHES * _LEAST_BATCH_BYTES:
        of_memory = min(of_memory, SPLIT_BATCHES * mean_batch_bytes(files))
    return min(most_bytes, max(MIN_SPLIT_BYTES, of_memory))


def keys_bytes_of(budget_bytes: int, parallelism: int, least_bytes: int = MIN_BUCKET_BYTES) -> int:
    """Return how many bytes of keys a task may hold.

    A merge needs about three times the size of its keys, and each worker may have as many in blocks.
    """
    return min(BUCKET_BYTES, max(least_bytes, budget_bytes // (16 * parallelism)))


def most_records(offsets: int, size_bytes: int) -> int:
    """Return the most records that a log can have with so many offsets and bytes.

    There are no more records than offsets, and a record takes a few bytes even when compressed.
    """
    return min(offsets, size_bytes // 8)


def workers_for(splits: Iterable[Split], split_bytes: int, memory_bytes: int, parallelism: int) -> int:
    """Return how many workers can work on the splits side by side. Fewer tasks than workers keep the others idle."""
    largest_bytes = max((split.size_bytes for split in splits), default=0)
    if largest_bytes <= 2 * split_bytes:
        return parallelism
    return max(1, min(parallelism, memory_bytes // (MEMORY_FACTOR * largest_bytes)))


def task_count(size_bytes: int, workers: int, task_bytes: int = TASK_BYTES) -> int:
    """Return the number of tasks: one for each worker, more in a large log, as many for each."""
    return workers * max(1, -(-size_bytes // (workers * task_bytes)))
