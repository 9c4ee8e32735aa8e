"""The batch headers of a log file as a table, read by a kernel.

The definition of `header_tables` is `segment_reader.headers`. On failure the caller reads with the definition, which
raises the detailed error.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kcompact import kernels
from kcompact.format.batch import Header
from kcompact.kernels import Table
from kcompact.kernels import columns as c
from kcompact.log.batch_runs import VerifiedRun, header_runs
from kcompact.log.files import LogFile

Rows = NDArray[np.intp]

_MARKER_BYTES = 17
_MARKER_PATTERN = ((0, 32), (3, 0), (4, 8), (9, 12), (16, 0))
"""Bytes of a usual control record: its length, its offset delta, the lengths of key and value, no headers."""


def read_header_table(file: LogFile, *, start_position: int = 0, end_position: int) -> Table | None:
    """Return the batches between two positions of a file as a table i64[n, COLUMNS]; `kernels` names the columns.

    Returns None when the batches do not end exactly at `end_position`, and for a batch of format 0 or 1.
    Raises RefusedError, StorageError.
    """
    table = np.concatenate(list(header_tables(file, start_position=start_position, end_position=end_position)))
    return table if start_position + int(table[:, kernels.SIZE].sum()) == end_position else None


def header_tables(file: LogFile, *, start_position: int = 0, end_position: int) -> Iterator[Table]:
    """Yield the batches as tables i64[n, COLUMNS].

    Stops without an error at the first malformed batch or batch of format 0 or 1. Raises RefusedError, StorageError.
    """
    for rows, count in header_runs(file, start_position=start_position, end_position=end_position):
        yield np.asarray(rows)[:count]


def decisive_rows(table: Table, first_offset: int, *, undecided_from: int = c.MAX_OFFSET) -> Rows:
    """Return the rows from `first_offset` on that the state of the producers after them depends on, ascending.

    These are a few for each producer. From `undecided_from` on every transaction matters: then also each marker, and
    the first data batch after it. Batches without a producer id decide nothing, nor do emptied control batches.
    """
    last_offsets = table[:, c.LAST_OFFSET]
    is_control = table[:, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    decides = (table[:, c.PRODUCER_ID] >= 0) & (~is_control | (table[:, c.RECORDS_COUNT] > 0))
    rows = np.flatnonzero(decides & (last_offsets >= first_offset))
    rows = rows[np.argsort(table[rows, c.PRODUCER_ID], kind="stable")]
    is_late = last_offsets[rows] >= undecided_from
    return np.sort(np.concatenate([_last_states(table, rows[~is_late]), _changes(table, rows[is_late])]))


def _changes(table: Table, rows: Rows) -> Rows:
    """Return the markers, and between them the first and last data batches of each kind, of rows sorted by producer."""
    kinds = table[rows, c.ATTRIBUTES] & (c.CONTROL_BIT | c.TRANSACTIONAL_BIT)
    differs = (np.diff(table[rows, c.PRODUCER_ID]) != 0) | (np.diff(kinds) != 0)
    is_first, is_last = np.ones(len(rows), bool), np.ones(len(rows), bool)
    is_first[1:] = is_last[:-1] = differs
    found: Rows = rows[is_first | is_last | (kinds & c.CONTROL_BIT != 0)]
    return found


def _last_states(table: Table, rows: Rows) -> Rows:
    """Return those of the rows that decide about the state after them (`producer_state.replay`).

    The rows are sorted by producer. The decisive ones are the last data batch, the last marker, and the first
    transactional batch after it; of the markers after the last data batch, the first, and the first with another epoch,
    because that drops what the data batch has left.
    """
    if not len(rows):
        return rows
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.diff(table[rows, c.PRODUCER_ID]) != 0
    starts, group, number = np.flatnonzero(is_first), np.cumsum(is_first) - 1, np.arange(len(rows))
    is_marker = table[rows, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    is_transactional = ~is_marker & (table[rows, c.ATTRIBUTES] & c.TRANSACTIONAL_BIT != 0)
    last_data = np.maximum.reduceat(np.where(is_marker, -1, number), starts)
    last_marker = np.maximum.reduceat(np.where(is_marker, number, -1), starts)
    is_after_data = is_marker & (number > last_data[group])
    is_new_epoch = np.zeros(len(rows), bool)
    is_new_epoch[1:] = np.diff(table[rows, c.PRODUCER_EPOCH]) != 0
    firsts = [
        np.minimum.reduceat(np.where(chosen, number, len(rows)), starts)
        for chosen in (
            is_transactional & (number > last_marker[group]),
            is_after_data,
            is_after_data & is_new_epoch & ~is_first,
        )
    ]
    decisive = np.unique(np.concatenate([last_data, last_marker, *firsts]))
    found: Rows = rows[decisive[(decisive >= 0) & (decisive < len(rows))]]
    return found


def unusual_markers(run: VerifiedRun, first_offset: int) -> Rows:
    """Return the rows, from `first_offset` on, of the control batches that are not as Kafka writes them.

    The definition must read them. The usual one has a record with a one-byte timestamp delta, a key of 4 bytes, a value
    of 6 and no headers.
    """
    table = run.table
    is_marker = (table[:, c.ATTRIBUTES] & c.CONTROL_BIT != 0) & (table[:, c.RECORDS_COUNT] > 0)
    rows = np.flatnonzero(is_marker & (table[:, c.LAST_OFFSET] >= first_offset))
    is_usual = table[rows, c.SIZE] == c.HEADER_BYTES + _MARKER_BYTES
    is_usual &= (table[rows, c.RECORDS_COUNT] == 1) & (table[rows, c.ATTRIBUTES] & c.CODEC_MASK == 0)
    starts = table[rows[is_usual], c.POSITION] + c.HEADER_BYTES
    if len(starts):
        section = np.lib.stride_tricks.sliding_window_view(run.buffer, _MARKER_BYTES)[starts]
        is_as_written = section[:, 2] < 0x80
        for at, byte in _MARKER_PATTERN:
            is_as_written &= section[:, at] == byte
        is_usual[is_usual] = is_as_written
    found: Rows = rows[~is_usual]
    return found


def header_of_row(row: Table) -> Header:
    """Return the header of a row. The table has no checksum column, so `crc` is 0."""
    values = row.tolist()
    base_offset, last_offset = values[kernels.BASE_OFFSET], values[kernels.LAST_OFFSET]
    return Header(
        base_offset=base_offset,
        length=values[kernels.SIZE] - 12,
        partition_leader_epoch=values[kernels.EPOCH],
        magic=2,
        crc=0,
        attributes=values[kernels.ATTRIBUTES],
        last_offset_delta=last_offset - base_offset,
        base_timestamp=values[kernels.BASE_TIMESTAMP],
        max_timestamp=values[kernels.MAX_TIMESTAMP],
        producer_id=values[kernels.PRODUCER_ID],
        producer_epoch=values[kernels.PRODUCER_EPOCH],
        base_sequence=values[kernels.BASE_SEQUENCE],
        records_count=values[kernels.RECORDS_COUNT],
    )
