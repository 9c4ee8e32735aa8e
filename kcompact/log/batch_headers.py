"""Batch headers with the transaction markers of control batches: the input of producer state and of transactions.

`read_headers` reads every batch. `read_producer_headers` returns only the batches that matter to producers or
transactions, and can read large files with a kernel, as a table i64[n, COLUMNS]; `kernels.columns` names its columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kcompact import kernels
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Header, Record, read_records, verify_crc
from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import columns as c
from kcompact.log.batch_runs import VerifiedRun, header_runs, runs_and_batches
from kcompact.log.files import LogFile
from kcompact.log.segment_reader import batches, headers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kcompact.kernels import Table

    Rows = NDArray[np.intp]

_MAX_CONTROL_BYTES = 1 << 20
"""Far more than any marker has. Headers are read without a budget, so nothing larger is read for one."""
_CONTROL_MEMORY_BYTES = 64 << 20

_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class Marker(NamedTuple):
    """The record of a control batch. `kind` is ABORT, COMMIT or another of Kafka's control types.

    `coordinator_epoch` is -1 for the other types. `timestamp` is in Unix milliseconds.
    """

    kind: int
    coordinator_epoch: int
    timestamp: int


class BatchHeader(NamedTuple):
    """A batch without its records. `marker` is None for a data batch and for an emptied control batch."""

    position: int
    header: Header
    marker: Marker | None


def read_headers(file: LogFile, *, end_position: int) -> Iterator[BatchHeader]:
    """Yield the header of each batch of a log file, and the marker of each control batch.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    for position, header in headers(file, end_position=end_position):
        yield _with_marker(file, position, header)


def with_marker(batch: Batch, *, file: str) -> BatchHeader:
    """Return the header of a batch, with its marker if it is a control batch. Raises CorruptBatchError."""
    _require_small(batch.header, batch.position, file=file)
    marker = read_marker(batch, file=file) if batch.header.is_control else None
    return BatchHeader(batch.position, batch.header, marker)


def _with_marker(file: LogFile, position: int, header: Header) -> BatchHeader:
    """Return a header with its marker. Reads the records of a control batch only. Raises CorruptBatchError."""
    if not header.is_control:
        return BatchHeader(position, header, None)
    _require_small(header, position, file=str(file))
    (batch,) = batches(file, start_position=position, end_position=position + header.size_bytes)
    verify_crc(batch, file=str(file))
    return with_marker(batch, file=str(file))


def _require_small(header: Header, position: int, *, file: str) -> None:
    if header.is_control and header.size_bytes > _MAX_CONTROL_BYTES:
        raise CorruptBatchError(
            file=file,
            position=position,
            offset=header.base_offset,
            problem=f"a control batch of {header.size_bytes:,} bytes; a marker has about a hundred",
        )


def read_producer_headers(
    file: LogFile, *, end_position: int, first_offset: int = 0, undecided_from: int = MAX_OFFSET
) -> list[BatchHeader]:
    """Return the headers that decide about producers, from the batch with `first_offset` on.

    A kernel reads the headers, and of many batches of a producer only those are returned that matter
    (`decisive_rows`). When the kernel finds a problem or an old format, `read_headers` reads the file
    again and raises the detailed error. Raises CorruptBatchError, RefusedError, StorageError.
    """
    if kernels.in_use():
        table = read_header_table(file, end_position=end_position)
        if table is not None:
            rows = decisive_rows(table, first_offset, undecided_from=undecided_from)
            return [_with_marker(file, int(row[c.POSITION]), header_of_row(row)) for row in table[rows]]
    return [batch for batch in read_headers(file, end_position=end_position) if _decides(batch.header, first_offset)]


def verified_producer_headers(
    file: LogFile,
    *,
    base_offset: int,
    end_offset: int,
    end_position: int,
    first_offset: int = 0,
    undecided_from: int = MAX_OFFSET,
) -> Iterator[BatchHeader]:
    """Yield the headers that decide about producers, from the batch with `first_offset` on.

    Every batch of the file is checked as by `runs_and_batches`. Of many batches of a producer only those
    are yielded that matter (`decisive_rows`). Raises CorruptBatchError, RefusedError, StorageError.
    """
    for part in runs_and_batches(file, base_offset=base_offset, end_offset=end_offset, end_position=end_position):
        if isinstance(part, Batch):
            if _decides(part.header, first_offset):
                yield with_marker(part, file=str(file))
            continue
        import numpy as np

        decisive = decisive_rows(part.table, first_offset, undecided_from=undecided_from)
        for row in part.table[np.union1d(decisive, unusual_markers(part, first_offset))]:
            yield with_marker(part.batch(row, file), file=str(file))


def _decides(header: Header, first_offset: int) -> bool:
    is_of_producer = header.is_control or header.is_transactional or header.has_producer_id
    return is_of_producer and header.last_offset >= first_offset


def read_marker(batch: Batch, *, file: str) -> Marker | None:
    """Return the record of a control batch, or None for an empty batch.

    Raises CorruptBatchError for a record whose key or value is too short.
    Rule: `ControlRecordType.parse`, `EndTransactionMarker.deserialize`.
    """
    records = read_records(batch, file=file, memory_bytes=_CONTROL_MEMORY_BYTES)
    return marker_of(records[0], batch.header, batch.position, file=file) if records else None


def marker_of(record: Record, header: Header, position: int, *, file: str) -> Marker:
    """Return the record of a control batch at a position of a file. Raises CorruptBatchError as `read_marker`."""
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        coordinator_epoch = -1
        if kind in (c.ABORT, c.COMMIT):
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise CorruptBatchError(
            file=file,
            position=position,
            offset=header.base_offset,
            problem="the key or value of the control record is too short",
        ) from None
    return Marker(kind, coordinator_epoch, record.timestamp)


# Tables of headers, read by a kernel

_MARKER_BYTES = 17
_MARKER_PATTERN = ((0, 32), (3, 0), (4, 8), (9, 12), (16, 0))
"""Bytes of a usual control record: its length, its offset delta, the lengths of key and value, no headers."""


def read_header_table(file: LogFile, *, start_position: int = 0, end_position: int) -> Table | None:
    """Return the batches between two positions of a file as a table i64[n, COLUMNS]; `kernels` names the columns.

    Returns None when the batches do not end exactly at `end_position`, and for a batch of format 0 or 1.
    Raises RefusedError, StorageError.
    """
    import numpy as np

    with file.open() as opened:
        runs = header_runs(opened, start_position, end_position)
        table: Table = np.concatenate([np.asarray(rows)[:count] for rows, count in runs])
    return table if start_position + int(table[:, kernels.SIZE].sum()) == end_position else None


def decisive_rows(table: Table, first_offset: int, *, undecided_from: int = c.MAX_OFFSET) -> Rows:
    """Return the rows from `first_offset` on that the state of the producers after them depends on, ascending.

    These are a few for each producer. From `undecided_from` on every transaction matters: then also each marker, and
    the first data batch after it. Batches without a producer id decide nothing, nor do emptied control batches.
    """
    import numpy as np

    last_offsets = table[:, c.LAST_OFFSET]
    is_control = table[:, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    decides = (table[:, c.PRODUCER_ID] >= 0) & (~is_control | (table[:, c.RECORDS_COUNT] > 0))
    rows = np.flatnonzero(decides & (last_offsets >= first_offset))
    rows = rows[np.argsort(table[rows, c.PRODUCER_ID], kind="stable")]
    is_late = last_offsets[rows] >= undecided_from
    return np.sort(np.concatenate([_last_states(table, rows[~is_late]), _changes(table, rows[is_late])]))


def _changes(table: Table, rows: Rows) -> Rows:
    """Return the markers, and between them the first and last data batches of each kind, of rows sorted by producer."""
    import numpy as np

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
    import numpy as np

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
    import numpy as np

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
