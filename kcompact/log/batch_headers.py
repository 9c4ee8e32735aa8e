"""Batch headers with the transaction markers of control batches: the input of producer state and of transactions.

`read_headers` reads every batch. `read_producer_headers` returns only the batches that matter to producers or
transactions, and can read large files with a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kcompact import kernels
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Header, Record, read_records, verify_crc
from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import columns as c
from kcompact.log.batch_runs import runs_and_batches
from kcompact.log.files import LogFile
from kcompact.log.segment_reader import batches, headers

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
    (`header_table.decisive_rows`). When the kernel finds a problem or an old format, `read_headers` reads the file
    again and raises the detailed error. Raises CorruptBatchError, RefusedError, StorageError.
    """
    if kernels.in_use():
        from kcompact.log import header_table

        table = header_table.read_header_table(file, end_position=end_position)
        if table is not None:
            rows = header_table.decisive_rows(table, first_offset, undecided_from=undecided_from)
            return [_with_marker(file, int(row[c.POSITION]), header_table.header_of_row(row)) for row in table[rows]]
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
    are yielded that matter (`header_table.decisive_rows`). Raises CorruptBatchError, RefusedError, StorageError.
    """
    for part in runs_and_batches(file, base_offset=base_offset, end_offset=end_offset, end_position=end_position):
        if isinstance(part, Batch):
            if _decides(part.header, first_offset):
                yield with_marker(part, file=str(file))
            continue
        import numpy as np

        from kcompact.log import header_table

        decisive = header_table.decisive_rows(part.table, first_offset, undecided_from=undecided_from)
        for row in part.table[np.union1d(decisive, header_table.unusual_markers(part, first_offset))]:
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
