"""The values that travel between the driver and the tasks of a cleaning. All of them pickle."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.clean.rules import delete_horizon_ms
from kcompact.format.codec import SLOW
from kcompact.kernels import Table
from kcompact.kernels import columns as c
from kcompact.log.producer_state import LastRecord
from kcompact.log.transactions import PackedTable
from kcompact.release import NEWEST, Release
from kcompact.stages.job import ScanJob, Split
from kcompact.values import dataclass

NEVER_MS = -(1 << 63)
"""A time before every delete horizon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """What a cleaning read and wrote, in Kafka's terms; added with `+`. Rule: `CleanerStats`.

    `bytes_read` and `messages_read` count the rewritten segments. `map_*` count the dirty section, from which the
    offset map is built. A batch that is dropped unread counts its bytes but not its messages.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_keys: int = 0
    invalid_messages: int = 0

    def __add__(self, other: CleanerStats) -> CleanerStats:
        return CleanerStats(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordCounts:
    """What became of the records that a stage has read; added with `+`. `accounting` compares the counts.

    Each of the `read` records is `kept`, `superseded`, `expired`, `unkeyed` or `discarded`. Discarded are the records
    of aborted transactions, and markers whose transaction has no batch left. `kept_latest` and `discarded_latest` are
    the kept and the discarded ones whose survivor bit is set, `kept_control` are the markers that are kept.
    `new_horizons` are the batches of tombstones that get their delete horizon. `held_tombstones` and `held_markers` are
    kept although their horizon has passed, because they are held back for a replica that lags.
    """

    read: int = 0
    kept: int = 0
    superseded: int = 0
    expired: int = 0
    unkeyed: int = 0
    discarded: int = 0
    kept_latest: int = 0
    kept_control: int = 0
    discarded_latest: int = 0
    new_horizons: int = 0
    held_tombstones: int = 0
    held_markers: int = 0

    def __add__(self, other: RecordCounts) -> RecordCounts:
        return RecordCounts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob(ScanJob):
    """The values that every task of a cleaning needs, besides its splits.

    No tombstone and no marker is dropped from a batch whose last offset is at or above `held_back_from_offset`: a
    replica ends there, and has not fetched them yet.
    """

    first_dirty_offset: int
    upper_bound_offset: int
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    keep_tombstones: bool
    last_records: dict[int, LastRecord]
    release: Release = NEWEST
    held_back_from_offset: int | None = None

    @property
    def expires_ms(self) -> int:
        """The time that delete horizons are compared with."""
        return NEVER_MS if self.keep_tombstones else self.now_ms

    @property
    def new_horizon_ms(self) -> int | None:
        """The delete horizon that this cleaning sets, None for none."""
        return delete_horizon_ms(now_ms=self.now_ms, delete_retention_ms=self.delete_retention_ms)

    def holds_back(self, last_offset: int) -> bool:
        """Return whether the tombstones and markers of a batch that ends with this offset are held back."""
        return self.held_back_from_offset is not None and last_offset >= self.held_back_from_offset


class SplitSummary(NamedTuple):
    """The result of scanning a split, besides the keys.

    `records` is the sum of the counts in the batch headers. The others are counted record by record: `keyed` and
    `unkeyed` data records, `tombstones` among the keyed ones, `control` records. `first_epoch` and `last_epoch` are the
    leader epochs of the first and the last batch that have one, -1 for none. `transactional` holds the transactional
    and the control batches. `most_bytes` is the most that the cleaned split can have. `slow_bytes` are those of
    batches whose codec is slow (`format.codec.SLOW`).
    """

    records: int
    keyed: int
    unkeyed: int
    tombstones: int
    control: int
    max_timestamp: int
    first_epoch: int
    last_epoch: int
    transactional: PackedTable
    most_bytes: int
    slow_bytes: int

    @classmethod
    def of(
        cls, counts: tuple[int, int, int, int, int], table: Table, transactional: PackedTable, most_bytes: int
    ) -> SplitSummary:
        """Return the summary of the batches of a table. `counts` are the first five fields."""
        epochs = table[table[:, c.EPOCH] >= 0, c.EPOCH]
        return cls(
            *counts,
            max_timestamp=int(table[:, c.MAX_TIMESTAMP].max(initial=-1)),
            first_epoch=int(epochs[0]) if len(epochs) else -1,
            last_epoch=int(epochs[-1]) if len(epochs) else -1,
            transactional=transactional,
            most_bytes=most_bytes,
            slow_bytes=int(table[np.isin(table[:, c.ATTRIBUTES] & c.CODEC_MASK, SLOW), c.SIZE].sum()),
        )

    @property
    def unkeyed_or_tombstones(self) -> int:
        """The data records that can be dropped or rewritten even if no newer record supersedes them."""
        return self.unkeyed + self.tombstones


OUTPUT_DTYPE = np.dtype([("last_offset", "<i8"), ("max_timestamp", "<i8"), ("size_bytes", "<i4")])
"""A row for each batch written: the input of the indexes."""


class WriteTask(NamedTuple):
    """One part of a group to write: its splits, and for each split its survivor bits and its number of records that
    are unkeyed or tombstones. The splits have `records` records. It is written with `most_bytes` or fewer.

    `run` is the number of the task that writes the part. With `is_only` the group has no other part.
    """

    group: int
    part: int
    run: int
    splits: tuple[Split, ...]
    survivors: tuple[bytes, ...]
    unkeyed_or_tombstones: tuple[int, ...]
    is_only: bool
    records: int
    most_bytes: int

    @property
    def size_bytes(self) -> int:
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """A written part. `name` is empty in a dry run, which only counts.

    With `is_verified` the part is a whole segment, synced and read back; `sync_s` and `verify_s` are the seconds that
    took. `crc32c` covers the whole file. `outputs` holds rows of `OUTPUT_DTYPE`.
    """

    group: int
    part: int
    name: str
    size_bytes: int
    crc32c: int
    outputs: bytes
    stats: CleanerStats
    counts: RecordCounts
    is_verified: bool = False
    sync_s: float = 0.0
    verify_s: float = 0.0

    @property
    def output_table(self) -> npt.NDArray[np.void]:
        return np.frombuffer(self.outputs, OUTPUT_DTYPE)


def as_columns(rows: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the columns of rows of `OUTPUT_DTYPE`, each i64[n]."""
    return tuple(rows[name].astype(np.int64) for name in OUTPUT_DTYPE.names or ())
