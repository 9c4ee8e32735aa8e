"""Batch headers with the transaction markers of control batches: the input of producer state and of transactions.

`read_headers` reads every batch. `read_producer_headers` returns only the batches that matter to producers or
transactions, and can read large files with a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Header, read_records, verify_crc
from kcompact.log.segment_reader import batches, headers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


ABORT, COMMIT = 0, 1

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


def read_headers(path: Path, *, end_position: int) -> Iterator[BatchHeader]:
    """Yield the header of each batch of a log file, and the marker of each control batch.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    for position, header in headers(path, end_position=end_position):
        yield _with_marker(path, position, header)


def with_marker(batch: Batch, *, file: str) -> BatchHeader:
    """Return the header of a batch, with its marker if it is a control batch. Raises CorruptBatchError."""
    marker = read_marker(batch, file=file) if batch.header.is_control else None
    return BatchHeader(batch.position, batch.header, marker)


def _with_marker(path: Path, position: int, header: Header) -> BatchHeader:
    """Return a header with its marker. Reads the records of a control batch only. Raises CorruptBatchError."""
    if not header.is_control:
        return BatchHeader(position, header, None)
    (batch,) = batches(path, start_position=position, end_position=position + header.size_bytes)
    verify_crc(batch, file=str(path))
    return with_marker(batch, file=str(path))


def read_producer_headers(
    path: Path, *, end_position: int, compiled: bool, transactions_only: bool = False
) -> list[BatchHeader]:
    """Return the headers of control batches, transactional batches and other batches with a producer id.

    With `transactions_only` batches of the last kind are left out. With `compiled` a kernel reads the headers; when the
    kernel finds a problem or an old format, `read_headers` reads the file again and raises the detailed error.
    Raises CorruptBatchError, RefusedError, StorageError.
    """
    if compiled:
        from kcompact.log import header_table

        table = header_table.read_header_table(path, end_position=end_position)
        if table is not None:
            return _producer_headers(path, table, transactions_only=transactions_only)
    found = []
    for batch in read_headers(path, end_position=end_position):
        is_wanted = batch.header.is_control or batch.header.is_transactional
        if is_wanted or (batch.header.has_producer_id and not transactions_only):
            found.append(batch)
    return found


def _producer_headers(path: Path, table: npt.NDArray[np.int64], *, transactions_only: bool) -> list[BatchHeader]:
    """Return the same from a table of all headers of the file."""
    from kcompact.kernels import ATTRIBUTES, CONTROL_BIT, POSITION, PRODUCER_ID, TRANSACTIONAL_BIT
    from kcompact.log import header_table

    wanted = table[:, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT) != 0
    if not transactions_only:
        wanted |= table[:, PRODUCER_ID] >= 0
    return [_with_marker(path, int(row[POSITION]), header_table.header_of_row(row)) for row in table[wanted]]


def read_marker(batch: Batch, *, file: str) -> Marker | None:
    """Return the record of a control batch, or None for an empty batch.

    Raises CorruptBatchError for a record whose key or value is too short.
    Rule: `ControlRecordType.parse`, `EndTransactionMarker.deserialize`.
    """
    records = read_records(batch, file=file)
    if not records:
        return None
    record = records[0]
    try:
        _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
        coordinator_epoch = -1
        if kind in (ABORT, COMMIT):
            _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value or b"")
    except struct.error:
        raise CorruptBatchError(
            file=file,
            position=batch.position,
            offset=batch.header.base_offset,
            problem="the key or value of the control record is too short",
        ) from None
    return Marker(kind, coordinator_epoch, record.timestamp)
