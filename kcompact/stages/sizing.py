"""How large the pieces of a scan are, by the memory that there is: splits, batches, keys, buckets, workers, tasks.

No size changes a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kcompact.format.limits import MEMORY_FACTOR, batch_memory_bytes
from kcompact.host.machine import default_memory_bytes
from kcompact.log.batch_headers import mean_batch_bytes
from kcompact.log.files import LogFile
from kcompact.stages.executor import Executor
from kcompact.stages.job import Split

SPLIT_BYTES = 16 << 20
"""The size of a split: a task reads one split at a time."""
SPLIT_PART = 16
"""A split is at most this part of a worker's memory: a worker holds a split, the table of its batches, which can take
twice as much, and what it inflates and encodes."""
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
KEYS_PART = 16
"""The keys of a task are at most this part of its memory: a merge needs about three times their size, and each
worker may have as many in blocks."""
MIN_BUCKET_BYTES = 1 << 20
LEAST_TABLES_BYTES = 4 << 20
"""The memory for tables of keys, at least. With less there would be so many blocks that naming them takes more than the
keys."""
TABLE_BYTES = 8 << 20
"""The rows of a table that are merged at a time: they fit the processor's cache. With 64 MiB of different keys a count
takes a third more processor time."""
MOST_TABLES = 256
"""Rows for more tables are merged in larger ones: each table is dealt to as many buckets as there are tables."""


class Sizing:
    """The sizes for one scan, of files with so many bytes to read. A task reads `logs` files side by side.

    `memory_bytes` is for all workers together, None for the default. `most_split_bytes` limits the splits.
    """

    def __init__(
        self,
        executor: Executor,
        memory_bytes: int | None,
        files: Iterable[tuple[LogFile, int]],
        *,
        logs: int = 1,
        most_split_bytes: int = SPLIT_BYTES,
    ) -> None:
        self._budget_bytes = memory_bytes or default_memory_bytes()
        self._parallelism = self.workers = max(1, executor.parallelism)
        self._logs = logs
        files = list(files)
        of_memory = self._budget_bytes // (self._parallelism * logs) // SPLIT_PART
        # So few bytes have fewer batches than a split may have.
        if sum(size_bytes for _, size_bytes in files) > SPLIT_BATCHES * _LEAST_BATCH_BYTES:
            of_memory = min(of_memory, SPLIT_BATCHES * mean_batch_bytes(files))
        self.split_bytes = min(most_split_bytes, max(MIN_SPLIT_BYTES, of_memory))

    @property
    def batch_bytes(self) -> int:
        """What each worker may hold for a batch."""
        return batch_memory_bytes(self._budget_bytes, self.workers * self._logs)

    @property
    def most_batch_bytes(self) -> int:
        """What the only worker may hold for a batch."""
        return batch_memory_bytes(self._budget_bytes, self._logs)

    @property
    def is_for_all(self) -> bool:
        """Whether all workers of the executor can work side by side."""
        return self.workers == self._parallelism

    def fit(self, splits: Iterable[Split]) -> None:
        """Let fewer workers work side by side if a split is so large that each needs more memory."""
        largest_bytes = max((split.size_bytes for split in splits), default=0)
        if largest_bytes > 2 * self.split_bytes:
            self.workers = max(1, min(self.workers, self.most_batch_bytes // (MEMORY_FACTOR * largest_bytes)))

    def has_more_alone(self) -> bool:
        """Let one worker work at a time, which may hold more for a batch; return False if it is so already."""
        was_alone, self.workers = self.workers == 1, 1
        return not was_alone

    def task_count(self, size_bytes: int, task_bytes: int = TASK_BYTES) -> int:
        """Return the number of tasks: one for each worker, more in a large log, as many for each."""
        return self.workers * max(1, -(-size_bytes // (self.workers * task_bytes)))

    def of_keys(self, keys_bytes: int) -> dict[str, Any]:
        """Return the sizes as fields of a `ScanJob`, for at most so many bytes of keys. Every worker gets a bucket."""
        bucket_bytes = self._keys_bytes(MIN_BUCKET_BYTES)
        count = self._bucket_count(keys_bytes, bucket_bytes, MIN_BUCKET_BYTES)
        return self._fields(bucket_count=count, keys_bytes=bucket_bytes)

    def of_tables(self, rows_bytes: int) -> dict[str, Any]:
        """Return the sizes as fields of a job with tables of keys: the number of buckets is a power of two."""
        keys_bytes = self._keys_bytes(LEAST_TABLES_BYTES)
        table_bytes = min(keys_bytes, max(TABLE_BYTES, rows_bytes // MOST_TABLES))
        count = self._bucket_count(rows_bytes, table_bytes, LEAST_TABLES_BYTES)
        return self._fields(bucket_count=1 << (count - 1).bit_length(), keys_bytes=keys_bytes, table_bytes=table_bytes)

    def _keys_bytes(self, least_bytes: int) -> int:
        return min(BUCKET_BYTES, max(least_bytes, self._budget_bytes // (KEYS_PART * self._parallelism)))

    def _bucket_count(self, keys_bytes: int, bucket_bytes: int, least_bytes: int) -> int:
        """Return the number of buckets: one for each worker, unless there is very little to reduce."""
        return max(1, -(-keys_bytes // bucket_bytes), self._parallelism if keys_bytes >= least_bytes else 1)

    def _fields(self, **sizes: int) -> dict[str, Any]:
        return {"memory_bytes": self.batch_bytes, "workers": self.workers, **sizes}


def most_records(offsets: int, size_bytes: int) -> int:
    """Return the most records that a log can have with so many offsets and bytes.

    There are no more records than offsets, and a record takes a few bytes even when compressed.
    """
    return min(offsets, size_bytes // 8)
