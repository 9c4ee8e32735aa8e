"""The transactional and the control batches of a log in order, as events: data of a producer, or its marker.

Consecutive batches of one producer are one event. Beside them the tombstones are counted, because their records are
read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.markers import are_control, control_records
from kcompact.log.records import RecordRun
from kcompact.values import dataclass


class TransactionEvent(NamedTuple):
    """A control batch, or consecutive transactional batches of one producer. Times are Unix milliseconds.

    `kind` is DATA, with or without records, or that of the marker; NO_RECORD for a control batch without one. The times
    of a marker are those of its record; the first time of data is that of its first record, -1 for none.
    `coordinator_epoch` and `horizon_ms` are those of a marker, -1 for none.
    """

    kind: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    batches: int
    records: int
    size_bytes: int
    first_timestamp_ms: int
    last_timestamp_ms: int
    coordinator_epoch: int
    horizon_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TombstoneCounts:
    """The tombstones of a log by what they wait for. `a + b` counts both. Times are None if there is none.

    Without a delete horizon: `unstamped` ones can be cleaned next, `uncleanable` ones not yet; `legacy` ones are of
    magic 0 or 1, which has no horizons. With a horizon: `waiting` until it has passed, `expired` afterwards.
    """

    unstamped: int = 0
    uncleanable: int = 0
    legacy: int = 0
    waiting: int = 0
    expired: int = 0
    first_horizon_ms: int | None = None
    last_horizon_ms: int | None = None

    @property
    def total(self) -> int:
        return self.unstamped + self.uncleanable + self.legacy + self.waiting + self.expired

    def __add__(self, other: TombstoneCounts) -> TombstoneCounts:
        firsts = [each for each in (self.first_horizon_ms, other.first_horizon_ms) if each is not None]
        lasts = [each for each in (self.last_horizon_ms, other.last_horizon_ms) if each is not None]
        return TombstoneCounts(
            unstamped=self.unstamped + other.unstamped,
            uncleanable=self.uncleanable + other.uncleanable,
            legacy=self.legacy + other.legacy,
            waiting=self.waiting + other.waiting,
            expired=self.expired + other.expired,
            first_horizon_ms=min(firsts, default=None),
            last_horizon_ms=max(lasts, default=None),
        )


def tombstones(run: RecordRun, *, log_start_offset: int, uncleanable_from: int, now_ms: int) -> TombstoneCounts:
    """Return the keyed tombstones of a run from the log start on."""
    attributes = run.table[:, c.ATTRIBUTES]
    is_control = are_control(run.table)
    is_tombstone = (
        (run.value_size < 0) & (run.key_size >= 0) & (run.offset >= log_start_offset) & ~is_control[run.batch]
    )
    if not is_tombstone.any():
        return TombstoneCounts()
    batch, offsets = run.batch[is_tombstone], run.offset[is_tombstone]
    is_legacy = run.table[batch, c.MAGIC] < 2
    is_stamped = (attributes[batch] & c.DELETE_HORIZON_BIT != 0) & ~is_legacy
    horizons = run.table[batch, c.BASE_TIMESTAMP]
    is_waiting = is_stamped & (horizons > now_ms)
    is_plain = ~is_stamped & ~is_legacy
    waiting = horizons[is_waiting]
    return TombstoneCounts(
        unstamped=int(np.count_nonzero(is_plain & (offsets < uncleanable_from))),
        uncleanable=int(np.count_nonzero(is_plain & (offsets >= uncleanable_from))),
        legacy=int(np.count_nonzero(is_legacy)),
        waiting=len(waiting),
        expired=int(np.count_nonzero(is_stamped & ~is_waiting)),
        first_horizon_ms=int(waiting.min()) if len(waiting) else None,
        last_horizon_ms=int(waiting.max()) if len(waiting) else None,
    )


def events(run: RecordRun, *, log_start_offset: int, file: LogFile) -> Iterator[TransactionEvent]:
    """Return the events of a run in order. The batches of an event all end below the log start, or none of them does.

    Raises CorruptBatchError for a marker that is too short.
    """
    table = run.table
    attributes = table[:, c.ATTRIBUTES]
    matters = (attributes & (c.CONTROL_BIT | c.TRANSACTIONAL_BIT) != 0) & (table[:, c.MAGIC] == 2)
    rows = np.flatnonzero(matters & (table[:, c.PRODUCER_ID] >= 0))
    if not len(rows):
        return iter(())
    is_control = are_control(table)[rows]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = (np.diff(table[rows, c.PRODUCER_ID]) != 0) | is_control[1:] | is_control[:-1]
    is_first[1:] |= np.diff(table[rows, c.LAST_OFFSET] >= log_start_offset)
    starts = np.flatnonzero(is_first)
    ends = np.append(starts[1:], len(rows))
    first_record = np.searchsorted(run.batch, rows)
    first_times = _first_times(run, rows, first_record)
    has_records = run.table[rows, c.RECORDS_COUNT] > 0
    first_with_record = np.minimum.reduceat(np.where(has_records, np.arange(len(rows)), len(rows)), starts)
    kinds, coordinator_epochs = control_records(run, rows, first_record, is_control, file)
    last_times = np.where(is_control, first_times, table[rows, c.MAX_TIMESTAMP])
    is_stamped = is_control & (attributes[rows] & c.DELETE_HORIZON_BIT != 0)
    columns = (
        kinds[starts],
        table[rows[starts], c.PRODUCER_ID],
        table[rows[ends - 1], c.PRODUCER_EPOCH],
        table[rows[starts], c.BASE_OFFSET],
        table[rows[ends - 1], c.LAST_OFFSET],
        ends - starts,
        np.add.reduceat(table[rows, c.RECORDS_COUNT], starts),
        np.add.reduceat(table[rows, c.SIZE], starts),
        np.append(first_times, -1)[first_with_record],
        np.maximum.reduceat(last_times, starts),
        coordinator_epochs[starts],
        np.where(is_stamped, table[rows, c.BASE_TIMESTAMP], -1)[starts],
    )
    return map(TransactionEvent._make, zip(*(column.tolist() for column in columns), strict=True))


def _first_times(run: RecordRun, rows: Column, first_record: Column) -> Column:
    """Return the time of the first record of each batch, of a batch without records its maximum timestamp."""
    first_times_ms: Column = run.table[rows, c.MAX_TIMESTAMP].copy()
    has_records = run.table[rows, c.RECORDS_COUNT] > 0
    first_times_ms[has_records] = run.timestamp[first_record[has_records]]
    return first_times_ms
