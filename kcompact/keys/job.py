"""The values that travel between the driver and the tasks of a count. All of them pickle."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.kernels import KEY_COLUMNS, Table
from kcompact.log.transactions import PackedTable


class CountedLog(NamedTuple):
    """One log of a count. Its splits are numbered from `first_split` on, after those of the log before.

    A `read_committed` reader sees its records from `start_offset` on, and below `stable_offset`.
    """

    first_split: int
    start_offset: int
    stable_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysJob:
    """The values that every task of a count needs, besides its splits. It has what an executor asks of a `ScanJob`.

    `directory` is empty, because the splits are of several partitions.
    A task merges rows of `table_bytes` at a time, and keeps blocks of `keys_bytes` in memory.
    A key belongs to the bucket that the highest `bucket_bits` of one half of its hash name.
    """

    logs: tuple[CountedLog, ...]
    now_ms: int
    older_than_ms: int | None
    separator: bytes
    top: int
    hash_key: bytes
    bucket_bits: int
    keys_bytes: int = 64 << 20
    table_bytes: int = 8 << 20
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    workers: int = 1
    kernel_hashes: bool = False
    max_bytes_per_second: int | None = None
    directory: str = ""

    @property
    def bucket_count(self) -> int:
        return 1 << self.bucket_bits

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
    their bytes. `announced` is the number of records by the headers of the batches, -1 if a header does not have it.
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
