"""What a transaction marker is: the record of a control batch that ends the transaction of its producer.

Kafka: `ControlRecordType`, `EndTransactionMarker`. A control batch without its record, which a cleaning has left, is no
marker; one of another type than ABORT and COMMIT ends no transaction.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Header, Record, read_records
from kcompact.kernels import Bytes, Column, Mask, Rows, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import headers
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun
from kcompact.log.segment_reader import batch_at

ENDS = (c.ABORT, c.COMMIT)
"""The kinds of markers that end a transaction."""

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

    @property
    def ends_transaction(self) -> bool:
        return self.kind in ENDS


class BatchHeader(NamedTuple):
    """A batch without its records. `marker` is None for a data batch and for an emptied control batch."""

    position: int
    header: Header
    marker: Marker | None

    @property
    def kind(self) -> int:
        """The kind of the marker; NO_RECORD for a control batch without its record; else DATA, or EMPTY_DATA."""
        if self.header.is_control:
            return c.NO_RECORD if self.marker is None else self.marker.kind
        return c.DATA if self.header.records_count else c.EMPTY_DATA


def read_headers(file: LogFile, *, end_position: int) -> Iterator[BatchHeader]:
    """Yield the header of each batch of a log file, and the marker of each control batch.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    for position, header in headers(file, end_position=end_position):
        yield header_with_marker(file, position, header)


def header_with_marker(file: LogFile, position: int, header: Header) -> BatchHeader:
    """Return a header with its marker. Reads the records of a control batch only. Raises CorruptBatchError."""
    if not header.is_control:
        return BatchHeader(position, header, None)
    _require_small(header, position, file=str(file))
    return with_marker(batch_at(file, position, end_position=position + header.size_bytes), file=str(file))


def with_marker(batch: Batch, *, file: str) -> BatchHeader:
    """Return the header of a batch, with its marker if it is a control batch. Raises CorruptBatchError."""
    _require_small(batch.header, batch.position, file=file)
    marker = read_marker(batch, file=file) if batch.header.is_control else None
    return BatchHeader(batch.position, batch.header, marker)


def _require_small(header: Header, position: int, *, file: str) -> None:
    if header.is_control and header.size_bytes > _MAX_CONTROL_BYTES:
        raise CorruptBatchError(
            file=file,
            position=position,
            offset=header.base_offset,
            problem=f"a control batch of {header.size_bytes:,} bytes; a marker has about a hundred",
        )


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
        if kind in ENDS:
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise _too_short(header, position, file=file) from None
    return Marker(kind, coordinator_epoch, record.timestamp)


def _too_short(header: Header, position: int, *, file: str) -> CorruptBatchError:
    problem = "the key or value of the control record is too short"
    return CorruptBatchError(file=file, position=position, offset=header.base_offset, problem=problem)


# In columns


def are_control(table: Table) -> Mask:
    """Return which batches of a table i64[n, COLUMNS] are control batches."""
    mask: Mask = table[:, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    return mask


def end_transactions(kinds: Column) -> Mask:
    """Return which of these kinds, such as TXN_KIND of a table of transactional batches, end a transaction."""
    return np.isin(kinds, ENDS)


def control_records(
    run: RecordRun, rows: Rows, first_record: Rows, is_control: Mask, file: LogFile
) -> tuple[Column, Column]:
    """Return the kind of each of some batches of a run, and the coordinator epoch of each marker, else -1.

    `first_record` is where the records of each batch begin. Definition: `read_marker`. Raises CorruptBatchError for a
    key or a value that is too short.
    """
    kinds = np.where(is_control, c.NO_RECORD, c.DATA)
    epochs = np.full(len(rows), -1)
    markers = np.flatnonzero(is_control & (run.table[rows, c.RECORDS_COUNT] > 0))
    columns = run.columns[:, first_record[markers]]
    is_short = columns[c.KEY_SIZE] < _CONTROL_KEY.size
    kinds[markers] = _numbers(run.data, np.where(is_short, 0, columns[c.KEY_START]) + 2, ">i2")
    is_end = end_transactions(kinds[markers])
    is_short |= is_end & (columns[c.VALUE_SIZE] < _MARKER_VALUE.size)
    if is_short.any():
        header, position = run.header(int(rows[markers[is_short.argmax()]]))
        raise _too_short(header, position, file=str(file))
    epochs[markers[is_end]] = _numbers(run.data, columns[c.VALUE_START][is_end] + 2, ">i4")
    return kinds, epochs


def _numbers(data: Bytes, positions: Column, kind: str) -> Column:
    """Return the numbers of a type of numpy at some positions."""
    if not len(positions):
        return np.empty(0, np.int64)
    size = np.dtype(kind).itemsize
    stored_numbers = np.lib.stride_tricks.sliding_window_view(data, size)[positions].view(kind)[:, 0]
    numbers: Column = stored_numbers.astype(np.int64)
    return numbers
