"""The rules: which batches and records survive a cleaning, and until when.

Each rule of Kafka's cleaner about data is defined here once, in ordinary Python on plain values. Compare it with
`Cleaner.checkBatchRetention`, `Cleaner.shouldRetainRecord` and `MemoryRecords.filterTo`.

A worked example. At 10:00 the log holds a=1, b=2, then the tombstone a=~, with delete.retention.ms of one hour:

    first cleaning, 10:00    drops a=1, because a newer record has its key. The tombstone stays and its batch gets the
                             delete horizon 11:00. A reader who is behind still sees that `a` was deleted.
    a cleaning at 10:59      changes nothing: the horizon is in the future, and it never moves.
    a cleaning at 11:00      drops the tombstone.

Not here: which offsets can be cleaned at all (`plan`), and how bytes are written (`format.batch`).
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from kcompact.config.settings import LONG_MAX
from kcompact.format.batch import Header, Record
from kcompact.log.producer_state import LastRecord


class Retention(enum.Enum):
    """What becomes of a batch when none of its records is kept, and whether they are looked at.

    `DELETE`: dropped without reading its records. `DELETE_EMPTY`: dropped if no record is kept.
    `RETAIN_EMPTY`: its header stays if no record is kept. Rule: `RecordFilter.BatchRetention`.
    """

    DELETE = "delete"
    DELETE_EMPTY = "delete-empty"
    RETAIN_EMPTY = "retain-empty"


def is_last_of_producer(header: Header, last: LastRecord | None) -> bool:
    """Whether the batch is the last trace of a producer that is still active.

    Its data carries the sequence number that the broker needs to refuse duplicates; where the last thing of the
    producer is a marker, the marker carries its epoch. Rule: `Cleaner.cleanInto`, KAFKA-5490, KAFKA-8335.
    """
    if last is None or not header.has_producer_id:
        return False
    if last.data_offset is not None:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.producer_epoch


def drops_records(header: Header, *, is_discardable: bool, now_ms: int) -> bool:
    """Whether a batch loses all its records, whatever their keys.

    Data of an aborted transaction does at once; a marker of which nothing is left to mark does once its delete horizon
    has come. `is_discardable` is the verdict of `TransactionTracker`. Rule: `Cleaner.checkBatchRetention`.
    """
    if not header.is_control:
        return is_discardable
    horizon = header.delete_horizon_ms
    return is_discardable and horizon is not None and horizon <= now_ms


def batch_retention(
    header: Header, *, drops_records: bool, last_of_producer: bool, upper_bound_offset: int
) -> Retention:
    """Return the fate of a batch that keeps no record.

    The last batch of the round stays even if empty: without it the offset just below `upper_bound_offset` (the
    first uncleanable offset) would be on no disk. Rule: `Cleaner.checkBatchRetention`, KAFKA-17076.
    """
    if last_of_producer or header.next_offset == upper_bound_offset:
        return Retention.RETAIN_EMPTY
    return Retention.DELETE if drops_records else Retention.DELETE_EMPTY


def keeps_record(
    *,
    past_map: bool,
    has_key: bool,
    is_superseded: bool,
    is_tombstone: bool,
    delete_horizon_ms: int | None,
    now_ms: int,
) -> bool:
    """Whether a data record of a v2 batch survives.

    `past_map`: its offset lies above the last one the key map has seen. `is_superseded`: the map knows a greater
    offset for its key. A record without a key cannot be compacted and goes; the caller counts it.
    Rule: `Cleaner.shouldRetainRecord`; the horizon: KIP-534.
    """
    if past_map:
        return True
    if not has_key or is_superseded:
        return False
    return not is_tombstone or delete_horizon_ms is None or now_ms < delete_horizon_ms


def needs_delete_horizon(header: Header, kept: Sequence[Record], *, is_discardable: bool) -> bool:
    """Whether this cleaning sets the batch's delete horizon.

    It does where a tombstone is kept, or a marker of which nothing is left to mark, and there is no horizon yet: it is
    set once and never moved. Rule: `MemoryRecords.filterTo`, KIP-534.
    """
    if header.delete_horizon_ms is not None:
        return False
    return (header.is_control and is_discardable) or any(record.value is None for record in kept)


def delete_horizon_ms(*, now_ms: int, delete_retention_ms: int) -> int | None:
    """Return the horizon that a tombstone first kept at `now_ms` gets.

    None where the sum leaves 64 bits: Java's wraps to a negative number there, which means no horizon, so a
    retention of 2^63 - 1 keeps tombstones for ever. Rule: `MemoryRecords.filterTo`.
    """
    horizon = now_ms + delete_retention_ms
    return horizon if horizon <= LONG_MAX else None
