"""The batch headers of a log file as a table, read by a kernel.

The definition of `header_tables` is `segment_reader.headers`, that of `verified_runs` is
`segment_reader.verified_batches`. On failure the caller reads with the definition, which raises the detailed error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcompact import kernels
from kcompact.format.batch import Batch, Header, read_header
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, most_batch_bytes
from kcompact.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    COLUMNS,
    CONTROL_BIT,
    EPOCH,
    FULL,
    HEADER_BYTES,
    LAST_OFFSET,
    MAX_OFFSET,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    SIZE,
    TRANSACTIONAL_BIT,
    Bytes,
    Column,
    Table,
)
from kcompact.log.files import open_regular, read_into

Rows = NDArray[np.intp]

TABLE_ROWS = 16_384
_MARKER_BYTES = 17
_MARKER_PATTERN = ((0, 32), (3, 0), (4, 8), (9, 12), (16, 0))
"""Bytes of a usual control record: its length, its offset delta, the lengths of key and value, no headers."""
WINDOW_BYTES = 8 << 20


class UnconfirmedError(Exception):
    """The kernels cannot confirm a batch. It is damaged, has magic 0 or 1, or needs a warning."""


class VerifiedRun(NamedTuple):
    """Consecutive batches that were verified, valid until the next run.

    `buffer` begins with the first of them, at `start_position` of the file; positions in `table` count from there.
    """

    buffer: Bytes
    table: Table
    start_position: int

    @property
    def next_offset(self) -> int:
        """The offset after the last batch."""
        return int(self.table[-1, LAST_OFFSET]) + 1

    @property
    def end_position(self) -> int:
        """The position in the file after the last batch."""
        return self.start_position + int(self.table[-1, POSITION] + self.table[-1, SIZE])

    def batch_offset_at(self, offset: int) -> int:
        """Return the base offset of the first batch that ends at or above an offset below `next_offset`."""
        row = int(np.searchsorted(self.table[:, LAST_OFFSET], offset))
        return int(self.table[row, BASE_OFFSET])

    def batch(self, row: Column, path: Path) -> Batch:
        """Return the batch of a row."""
        start = int(row[POSITION])
        data = self.buffer.data[start : start + int(row[SIZE])]
        position = self.start_position + start
        return Batch(position, read_header(data, file=str(path), position=position), data)


def verified_runs(
    path: Path,
    *,
    base_offset: int,
    end_offset: int,
    start_position: int = 0,
    end_position: int | None = None,
    epoch: int = -1,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[VerifiedRun]:
    """Yield the batches between two positions of a file, with the checks of `segment_reader.verified_batches`.

    `epoch` is the greatest leader epoch before. At most `memory_bytes` are held for a batch. Raises UnconfirmedError,
    RefusedError, StorageError.
    """
    position, next_offset = start_position, base_offset
    with open_regular(path) as descriptor:
        end = os.fstat(descriptor).st_size if end_position is None else end_position
        # For small files smaller arrays: the kernel clears the memory of large ones two MiB at a time.
        window = np.empty(min(WINDOW_BYTES, max(0, end - position)), np.uint8)
        table = np.empty((min(TABLE_ROWS, 1 + len(window) // HEADER_BYTES), COLUMNS), np.int64)
        while position < end:
            data = window[: min(len(window), end - position)]
            if read_into(descriptor, data.data, position, path=path) < len(data):
                raise UnconfirmedError
            window_position, code = position, FULL
            while code == FULL:
                rest = data[position - window_position :]
                count, _, code = kernels.parse_batches(rest, len(rest), next_offset, end_offset, epoch, table)
                run = VerifiedRun(rest, table[:count], position)
                yield run
                if count:
                    position, next_offset, epoch = end_of_run(run, epoch)
            if position == window_position:
                window = _window_for_batch(data, min(end - position, most_batch_bytes(memory_bytes)))


def _window_for_batch(data: Bytes, most_bytes: int) -> Bytes:
    """Return a window that holds the batch at the start of `data`, which is too small for the batch.

    Raises UnconfirmedError if the batch has more than `most_bytes`, or is no batch.
    """
    batch_bytes = int.from_bytes(data[8:12].tobytes(), "big", signed=True) + 12
    if not len(data) < batch_bytes <= most_bytes:
        raise UnconfirmedError
    return np.empty(batch_bytes, np.uint8)


def read_header_table(path: Path, *, start_position: int = 0, end_position: int) -> Table | None:
    """Return the batches between two positions of a file as a table i64[n, COLUMNS]; `kernels` names the columns.

    Returns None when the batches do not end exactly at `end_position`, and for a batch of format 0 or 1.
    Raises RefusedError, StorageError.
    """
    table = np.concatenate(list(header_tables(path, start_position=start_position, end_position=end_position)))
    return table if start_position + int(table[:, kernels.SIZE].sum()) == end_position else None


def header_tables(path: Path, *, start_position: int = 0, end_position: int) -> Iterator[Table]:
    """Yield the batches as tables of at most TABLE_ROWS rows.

    Stops without an error at the first malformed batch or batch of format 0 or 1. Raises RefusedError, StorageError.
    """
    scratch = np.empty(64, np.uint8)
    position, code = start_position, FULL
    with open_regular(path) as descriptor:
        while code == FULL:
            table = np.empty((TABLE_ROWS, COLUMNS), np.int64)
            count, position, code = kernels.scan_headers(descriptor, position, end_position, scratch, table)
            yield table[:count]


def end_of_run(run: VerifiedRun, epoch: int) -> tuple[int, int, int]:
    """Return the position and the offset after a run that is not empty, and the greatest leader epoch so far."""
    return run.end_position, run.next_offset, max(epoch, int(run.table[:, EPOCH].max()))


def decisive_rows(table: Table, first_offset: int, *, undecided_from: int = MAX_OFFSET) -> Rows:
    """Return the rows from `first_offset` on that the state of the producers after them depends on, ascending.

    These are a few for each producer. From `undecided_from` on every transaction matters: then also each marker, and
    the first data batch after it. Batches without a producer id decide nothing, nor do emptied control batches.
    """
    last_offsets = table[:, LAST_OFFSET]
    is_control = table[:, ATTRIBUTES] & CONTROL_BIT != 0
    decides = (table[:, PRODUCER_ID] >= 0) & (~is_control | (table[:, RECORDS_COUNT] > 0))
    rows = np.flatnonzero(decides & (last_offsets >= first_offset))
    rows = rows[np.argsort(table[rows, PRODUCER_ID], kind="stable")]
    is_late = last_offsets[rows] >= undecided_from
    return np.sort(np.concatenate([_last_states(table, rows[~is_late]), _changes(table, rows[is_late])]))


def _changes(table: Table, rows: Rows) -> Rows:
    """Return the markers, and between them the first and last data batches of each kind, of rows sorted by producer."""
    kinds = table[rows, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)
    differs = (np.diff(table[rows, PRODUCER_ID]) != 0) | (np.diff(kinds) != 0)
    is_first, is_last = np.ones(len(rows), bool), np.ones(len(rows), bool)
    is_first[1:] = is_last[:-1] = differs
    found: Rows = rows[is_first | is_last | (kinds & CONTROL_BIT != 0)]
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
    is_first[1:] = np.diff(table[rows, PRODUCER_ID]) != 0
    starts, group, number = np.flatnonzero(is_first), np.cumsum(is_first) - 1, np.arange(len(rows))
    is_marker = table[rows, ATTRIBUTES] & CONTROL_BIT != 0
    is_transactional = ~is_marker & (table[rows, ATTRIBUTES] & TRANSACTIONAL_BIT != 0)
    last_data = np.maximum.reduceat(np.where(is_marker, -1, number), starts)
    last_marker = np.maximum.reduceat(np.where(is_marker, number, -1), starts)
    is_after_data = is_marker & (number > last_data[group])
    is_new_epoch = np.zeros(len(rows), bool)
    is_new_epoch[1:] = np.diff(table[rows, PRODUCER_EPOCH]) != 0
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
    is_marker = (table[:, ATTRIBUTES] & CONTROL_BIT != 0) & (table[:, RECORDS_COUNT] > 0)
    rows = np.flatnonzero(is_marker & (table[:, LAST_OFFSET] >= first_offset))
    is_usual = table[rows, SIZE] == HEADER_BYTES + _MARKER_BYTES
    is_usual &= (table[rows, RECORDS_COUNT] == 1) & (table[rows, ATTRIBUTES] & CODEC_MASK == 0)
    starts = table[rows[is_usual], POSITION] + HEADER_BYTES
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
