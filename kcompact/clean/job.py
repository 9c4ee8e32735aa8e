"""The values that travel between the driver and the tasks of a cleaning. All of them pickle."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.log.batch_headers import BatchHeader
from kcompact.log.producer_state import LastRecord

NEVER_MS = -(1 << 63)
"""A clock that no delete horizon is behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """What a cleaning read and wrote, in Kafka's terms; added with `+`. Rule: `CleanerStats`.

    `bytes_read` and `messages_read` count the segments that were rewritten, `map_*` the dirty section that the key map
    was made from; a batch dropped unread counts its bytes and not its messages.
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
class Split:
    """A run of whole batches of one segment: positions in its file, and the offsets it may hold.

    `left_out` and `discardable` are the base offsets of transactional batches, see `transactions.Fates`;
    `keeps_legacy_tombstones` is for batches of magic 0 and 1, which have no place for a delete horizon; `number` counts
    the splits of a cleaning in the order of their offsets.
    """

    log_name: str
    start_position: int
    end_position: int
    base_offset: int
    end_offset: int
    check_index: bool = True
    excluded_from_map: frozenset[int] = frozenset()
    discardable: frozenset[int] = frozenset()
    keeps_legacy_tombstones: bool = True
    number: int = 0

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """What every task of a cleaning must know, besides its own splits.

    `hash_key` are 16 bytes; `keys_bytes` is how much of the map of keys a task may hold; `compiled` says whether the
    kernels do the work, wherever they can.
    """

    directory: str
    first_dirty_offset: int
    upper_bound_offset: int
    now_ms: int
    delete_retention_ms: int
    keep_tombstones: bool
    last_records: dict[int, LastRecord]
    hash_key: bytes
    bucket_count: int
    keys_bytes: int = 64 << 20
    compiled: bool = False
    max_bytes_per_second: int | None = None

    @property
    def expires_ms(self) -> int:
        """The clock that delete horizons are compared with."""
        return NEVER_MS if self.keep_tombstones else self.now_ms


class SplitSummary(NamedTuple):
    """What one reading of a split tells besides the keys.

    `special` counts the data records that are tombstones or have no key; the epochs are those of the first and the last
    batch that have one, -1 for none. `next_offset` is the one after the last batch, `transactional` are the
    transactional and the control batches.
    """

    records: int
    unkeyed_or_tombstones: int
    max_timestamp: int
    first_epoch: int
    last_epoch: int
    next_offset: int
    transactional: tuple[BatchHeader, ...]


OUTPUT_DTYPE = np.dtype([("last_offset", "<i8"), ("max_timestamp", "<i8"), ("size_bytes", "<i4")])
"""What the indexes need to know of each batch written."""


class WriteTask(NamedTuple):
    """One part to write: its place, its source, and per split the bits of the records that survive and the number of
    special ones (see `scan.Scanned`). `run` counts the tasks that the parts are dealt to; `is_only` says that the
    group has no other part.
    """

    group: int
    part: int
    run: int
    splits: tuple[Split, ...]
    survivors: tuple[bytes, ...]
    unkeyed_or_tombstones: tuple[int, ...]
    is_only: bool

    @property
    def size_bytes(self) -> int:
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """The outcome of writing one part. `name` is empty when it was only counted (a dry run).

    `is_verified`: it is a whole segment, on the disk, and has been read back. `sync_s` and `verify_s` are what that
    took, in seconds.
    """

    group: int
    part: int
    name: str
    size_bytes: int
    crc32c: int
    outputs: bytes
    stats: CleanerStats
    is_verified: bool = False
    sync_s: float = 0.0
    verify_s: float = 0.0

    @property
    def output_table(self) -> npt.NDArray[np.void]:
        return np.frombuffer(self.outputs, OUTPUT_DTYPE)


def as_columns(rows: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], ...]:
    return tuple(rows[name].astype(np.int64) for name in OUTPUT_DTYPE.names or ())
