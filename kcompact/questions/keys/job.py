"""The values that travel between the driver and the tasks of a count. All of them pickle."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kcompact.kernels import KEY_COLUMNS, Table
from kcompact.kernels import columns as c
from kcompact.log.transactions import PackedTable
from kcompact.stages.job import ScanJob
from kcompact.values import dataclass


class CountedLog(NamedTuple):
    """One log of a count. Its splits are numbered from `first_split` on, after those of the log before.

    A `read_committed` reader sees its records from `start_offset` on, and below `stable_offset`.
    """

    first_split: int
    start_offset: int
    stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysJob(ScanJob):
    """The values that every task of a count needs, besides its splits.

    A task merges rows of `table_bytes` at a time, of up to `keys_bytes` if their keys repeat, and keeps blocks of
    `keys_bytes` in memory.
    The number of buckets is a power of two.
    """

    logs: tuple[CountedLog, ...]
    now_ms: int
    older_than_ms: int | None
    separator: bytes
    top: int
    table_bytes: int = 8 << 20

    @property
    def bucket_bits(self) -> int:
        """How many of the highest bits of one half of its hash name the bucket of a key."""
        return (self.bucket_count - 1).bit_length()

    @property
    def columns(self) -> int:
        """The columns of a table of keys: one more with prefixes."""
        return KEY_COLUMNS + bool(self.separator)

    def log_of(self, split: int) -> int:
        """Return the number of the log that a split belongs to."""
        return bisect_right(self.logs, split, key=attrgetter("first_split")) - 1


class CountedSplit(NamedTuple):
    """What the scan of a split has counted.

    `counts` i64[6, 2] has a row for each class of records (`kernels.KEYED` and the following), with their number and
    their bytes. `announced` is the number of records by the headers of the batches.
    `last_offset` is that of the last batch. `empty_batches` have no record.
    """

    number: int
    last_offset: int
    counts: Table
    announced: int
    batches: int
    batch_bytes: int
    empty_batches: int
    empty_bytes: int
    transactional: PackedTable

    @classmethod
    def of(cls, number: int, table: Table, counts: Table, transactional: Table) -> CountedSplit:
        """Return the counts of the batches of a table, and of their records."""
        is_empty = table[:, c.RECORDS_COUNT] == 0
        return cls(
            number=number,
            last_offset=int(table[-1, c.LAST_OFFSET]) if len(table) else -1,
            counts=counts,
            announced=int(table[:, c.RECORDS_COUNT].sum()),
            batches=len(table),
            batch_bytes=int(table[:, c.SIZE].sum()),
            empty_batches=int(np.count_nonzero(is_empty)),
            empty_bytes=int(table[is_empty, c.SIZE].sum()),
            transactional=PackedTable.of(transactional),
        )
