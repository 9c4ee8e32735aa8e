"""Batch headers with what the record of a control batch says: the input of producer state and of transactions.

`read_headers` is the readable definition. `read_producer_headers` returns only the batches that matter to producers or
transactions, and reads large files with a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Header, read_records
from kcompact.log.segment_reader import batches, headers

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


ABORT, COMMIT = 0, 1


_CONTROL_KEY = struct.Struct(">hh")


_MARKER_VALUE = struct.Struct(">hi")


class Marker(NamedTuple):
    """The record of a control batch. `kind` is ABORT, COMMIT or another of Kafka's control types."""

    kind: int
    coordinator_epoch: int
    timestamp: int


class BatchHeader(NamedTuple):
    """A batch without its records. `marker` is the record of a control batch; None for data, and for emptied ones."""

    position: int
    header: Header
    marker: Marker | None


def read_headers(path: Path, *, end_position: int) -> Iterator[BatchHeader]:
    """Yield what each batch of a log file says without its records; those of control batches are read.

    Raises CorruptBatchError.
    """
    for position, header in headers(path, end_position=end_position):
        marker = None
        if header.is_control:
            (batch,) = batches(path, start_position=position, end_position=position + header.size_bytes)
            marker = read_marker(batch, file=str(path))
        yield BatchHeader(position, header, marker)


class BatchHeaders(NamedTuple):
    """Some batches of a file, and the offset after the last batch of all, if any."""

    batches: list[BatchHeader]
    next_offset: int | None


def read_producer_headers(
    path: Path, *, end_position: int, compiled: bool, transactions_only: bool = False
) -> BatchHeaders:
    """Return what `glance` yields for batches of producers, or only for those of transactions, and for control batches.

    Raises CorruptBatchError.
    """
    if compiled:
        from kcompact.log import header_table

        table = header_table.read_header_table(path, end_position=end_position)
        if table is not None:
            return _producer_headers(path, table, transactions_only=transactions_only)
    found, next_offset = [], None
    for batch in read_headers(path, end_position=end_position):
        next_offset = batch.header.next_offset
        is_wanted = batch.header.is_control or batch.header.is_transactional
        if is_wanted or (batch.header.has_producer_id and not transactions_only):
            found.append(batch)
    return BatchHeaders(found, next_offset)


def _producer_headers(path: Path, table: npt.NDArray[np.int64], *, transactions_only: bool) -> BatchHeaders:
    from kcompact.kernels import ATTRIBUTES, CONTROL_BIT, LAST_OFFSET, POSITION, PRODUCER_ID, TRANSACTIONAL_BIT
    from kcompact.log import header_table

    if not len(table):
        return BatchHeaders([], None)
    wanted = table[:, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT) != 0
    if not transactions_only:
        wanted |= table[:, PRODUCER_ID] >= 0
    found = []
    for row in table[wanted]:
        position, header = int(row[POSITION]), header_table.header_of_row(row)
        marker = None
        if header.is_control:
            (batch,) = batches(path, start_position=position, end_position=position + header.size_bytes)
            marker = read_marker(batch, file=str(path))
        found.append(BatchHeader(position, header, marker))
    return BatchHeaders(found, int(table[-1, LAST_OFFSET]) + 1)


def read_marker(batch: Batch, *, file: str) -> Marker | None:
    """Return the record of a control batch, or None when it is empty. Raises CorruptBatchError.

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
            problem="a control record that is no marker",
        ) from None
    return Marker(kind, coordinator_epoch, record.timestamp)
