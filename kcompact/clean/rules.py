"""The rules about records: which ones survive a cleaning, and until when.

Each rule is defined here once, in ordinary Python on plain values. Compare it with `Cleaner.shouldRetainRecord` and
`MemoryRecords.filterTo`. The rules about whole batches are in `batch_fates`.

A worked example. At 10:00 the log holds a=1, b=2, then the tombstone a=~, with delete.retention.ms of one hour:

    first cleaning, 10:00    drops a=1, because a newer record has its key. The tombstone stays and its batch gets the
                             delete horizon 11:00. A consumer that lags still reads that `a` was deleted.
    a cleaning at 10:59      changes nothing: the horizon is in the future, and it never moves.
    a cleaning at 11:00      drops the tombstone.

Not here: which offsets can be cleaned at all (`plan`), and how bytes are written (`format.batch`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from kcompact.config.settings import LONG_MAX
from kcompact.format.batch import Header, Record


class RecordFate(enum.Enum):
    """What becomes of a data record, and why."""

    KEPT = enum.auto()
    UNKEYED = enum.auto()
    """It has no key and cannot be compacted; the caller counts it."""
    SUPERSEDED = enum.auto()
    EXPIRED = enum.auto()
    """It is a tombstone whose delete horizon has passed."""
    HELD_BACK = enum.auto()
    """It has expired and stays all the same, for a replica that lags."""


def record_fate(
    *,
    past_map: bool,
    has_key: bool,
    is_superseded: bool,
    is_tombstone: bool,
    delete_horizon_ms: int | None,
    is_held_back: bool,
    now_ms: int,
) -> RecordFate:
    """Return what becomes of a data record of a batch.

    `past_map`: the record's offset is above the last offset in the offset map. `is_superseded`: the map has a greater
    offset for the record's key. `is_held_back`: a replica that lags still has to fetch the record, so it does not
    expire. Rule: `Cleaner.shouldRetainRecord`; the horizon: KIP-534.
    """
    if past_map:
        return RecordFate.KEPT
    if not has_key:
        return RecordFate.UNKEYED
    if is_superseded:
        return RecordFate.SUPERSEDED
    if is_tombstone and delete_horizon_ms is not None and now_ms >= delete_horizon_ms:
        return RecordFate.HELD_BACK if is_held_back else RecordFate.EXPIRED
    return RecordFate.KEPT


def needs_delete_horizon(header: Header, kept: Sequence[Record], *, is_discardable: bool) -> bool:
    """Return whether this cleaning sets the delete horizon of a batch.

    A batch without a horizon gets one if it keeps a tombstone, or is a marker whose transaction has no batch left. The
    horizon never moves. Rule: `MemoryRecords.filterTo`, KIP-534.
    """
    if header.delete_horizon_ms is not None:
        return False
    return (header.is_control and is_discardable) or any(record.value is None for record in kept)


def delete_horizon_ms(*, now_ms: int, delete_retention_ms: int) -> int | None:
    """Return the delete horizon that a cleaning at `now_ms` sets.

    None if the sum exceeds 64 bits. In Java it wraps to a negative number, which means no horizon: a retention of
    2^63 - 1 keeps tombstones for ever. Rule: `MemoryRecords.filterTo`.
    """
    horizon = now_ms + delete_retention_ms
    return horizon if horizon <= LONG_MAX else None
