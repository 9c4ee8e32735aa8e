"""What happens to each batch of a split, decided from headers and survivor bits before any record is read.

No other module decides about whole batches. The readable definition (`filter`) and the kernels (`split_kernels`) apply
these decisions. They read records only for `Fate.FILTER`. The rules work on columns, with a row for each batch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.clean.job import CleanJob
from kcompact.format.batch import Header
from kcompact.kernels import Mask, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import HeaderTable
from kcompact.log.markers import are_control
from kcompact.log.producer_state import LastRecord

Counts = npt.NDArray[np.int64]


class Fate(enum.IntEnum):
    """How many records of a batch are kept, and whether its records are read to decide this."""

    DROP = 0
    """No record is kept. The batch does not count as read, as in Kafka (`BatchRetention.DELETE`)."""
    CLEAR = 1
    """No record is kept; no record is read. The batch counts as read."""
    COPY = 2
    """All records are kept; no record is read. The bytes of the batch stay the same."""
    FILTER = 3
    """Each record is read and decided on its own."""


class BatchFates(NamedTuple):
    """The fate of each batch, u8[n], and whether its header stays if no record is kept, bool[n]."""

    fates: npt.NDArray[np.uint8]
    keeps_header: Mask

    def of(self, row: int) -> tuple[Fate, bool]:
        """Return the fate of one batch, and whether it keeps its header."""
        return Fate(int(self.fates[row])), bool(self.keeps_header[row])


def decide_batch_fates(table: Table, job: CleanJob, latest_counts: Counts | None = None) -> BatchFates:
    """Return the fates of the batches of `table`, i64[n, 16].

    `latest_counts`, i64[n], is the number of latest records in each batch. Pass it only if no record of the batches is
    unkeyed or a tombstone: then the count alone can decide. Rule: `Cleaner.checkBatchRetention`; held back markers are
    kcompact's own.
    """
    fates = np.full(len(table), Fate.FILTER, np.uint8)
    is_control = are_control(table)
    is_discardable = table[:, c.FLAGS] & c.DISCARDABLE != 0
    if latest_counts is not None:
        is_counted = ~is_control & ~is_discardable & (table[:, c.LAST_OFFSET] < job.upper_bound_offset)
        fates[is_counted & (latest_counts == 0)] = Fate.CLEAR
        fates[is_counted & (latest_counts == table[:, c.RECORDS_COUNT]) & (latest_counts > 0)] = Fate.COPY
    keeps_header = _keeps_header(table, job)
    is_due = is_past_horizon(table, job.expires_ms) & ~_is_held_back(table, job)
    drops_records = is_discardable & (~is_control | is_due)
    fates[drops_records & keeps_header] = Fate.CLEAR
    fates[drops_records & ~keeps_header] = Fate.DROP
    return BatchFates(fates, keeps_header)


def table_of(headers: Iterable[Header], *, is_discardable: Sequence[bool]) -> Table:
    """Return these headers as a table for `decide_batch_fates`, without positions."""
    header_table = HeaderTable()
    for header in headers:
        header_table.append(0, header)
    table = header_table.table()
    table[:, c.FLAGS] = np.where(is_discardable, c.DISCARDABLE, 0)
    return table


def is_past_horizon(table: Table, now_ms: int) -> Mask:
    """Whether the delete horizon of a batch has passed. Then a marker without a batch of its transaction is dropped."""
    is_past: Mask = (table[:, c.ATTRIBUTES] & c.DELETE_HORIZON_BIT != 0) & (table[:, c.BASE_TIMESTAMP] <= now_ms)
    return is_past


def _is_held_back(table: Table, job: CleanJob) -> Mask:
    """Whether the markers of a batch stay past its horizon, because a replica that lags still has to fetch them."""
    end = c.MAX_OFFSET if job.held_back_from_offset is None else job.held_back_from_offset
    is_held_back: Mask = table[:, c.LAST_OFFSET] >= end
    return is_held_back


def _keeps_header(table: Table, job: CleanJob) -> Mask:
    """Whether an empty batch stays: the last batch of the round, or the last batch of an active producer.

    Without the last batch of the round, no batch of the cleaned section would end just below the upper bound.
    Rule: `Release.keeps_empty_last_batch`.
    """
    is_last_of_round: Mask = job.release.keeps_empty_last_batch(
        table[:, c.LAST_OFFSET] + 1, job.upper_bound_offset, job.high_watermark
    )
    return is_last_of_round | _is_last_of_producer(table, job.last_records)


def _is_last_of_producer(table: Table, last_records: Mapping[int, LastRecord]) -> Mask:
    """Whether a batch holds the last state of an active producer.

    The last data batch has the sequence number that a broker needs to refuse duplicates. If a marker came after all
    data, the marker has the producer's epoch. Rule: `Cleaner.cleanInto`, KAFKA-5490, KAFKA-8335.
    """
    if not last_records:
        return np.zeros(len(table), np.bool_)
    producer_ids = np.array(sorted(last_records), np.int64)
    records = [last_records[producer_id] for producer_id in producer_ids.tolist()]
    last_offsets = np.array([-1 if last.data_offset is None else last.data_offset for last in records], np.int64)
    epochs = np.array([last.producer_epoch for last in records], np.int64)

    row = np.minimum(np.searchsorted(producer_ids, table[:, c.PRODUCER_ID]), len(producer_ids) - 1)
    is_active = (producer_ids[row] == table[:, c.PRODUCER_ID]) & (table[:, c.PRODUCER_ID] >= 0)
    is_marker_of_epoch = are_control(table) & (table[:, c.PRODUCER_EPOCH] == epochs[row])
    has_data = last_offsets[row] >= 0
    is_last: Mask = is_active & np.where(has_data, table[:, c.LAST_OFFSET] == last_offsets[row], is_marker_of_epoch)
    return is_last
