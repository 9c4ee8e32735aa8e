"""The headers of the batches of a log file, as tables i64[n, COLUMNS]; `kernels.columns` names the columns.

A kernel reads them. From a batch on that it does not confirm (it is damaged, or of magic 0 or 1), the definition,
`format.batch.read_header`, reads some, or raises the detailed error; then the kernel goes on. The row of a batch of
magic 0 or 1 has what its `Header` has: the last offset only, and -1 records if it is compressed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from kcompact import kernels
from kcompact.errors import KcompactError
from kcompact.format.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, Header, read_header, require_inside
from kcompact.kernels import Table
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile, OpenFile

TABLE_ROWS = 16_384
_FIRST_ROWS = 64
_FIRST_BYTES = 256 << 10
"""Who looks at the first headers only, reads no more. Each table has twice as many as the one before."""
_MOST_BYTES = 16 << 20
"""Of so many bytes the headers are in one table. A bucket gives all of them, whatever is between the headers."""
_DEFINED_ROWS = 256
"""After so many headers that the definition has read, the kernel tries again."""
_SCRATCH_BYTES = 64 << 10


def header_tables(file: LogFile, *, start_position: int = 0, end_position: int | None = None) -> Iterator[Table]:
    """Yield the headers of the batches between two positions, by default of the whole file.

    Each table is new, and has at least one row; positions count from the start of the file.
    Raises CorruptBatchError where the bytes are not one batch after another, RefusedError, StorageError.
    """
    scratch = np.empty(_SCRATCH_BYTES, np.uint8)
    position, rows, span = start_position, min(_FIRST_ROWS, TABLE_ROWS), _FIRST_BYTES
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        while position < end:
            table = new_table(end - position, most_rows=rows)
            count, position, code = kernels.scan_headers(
                *(opened.descriptor_of(position, min(position + span, end)), position),
                *(position + span - HEADER_BYTES, end, scratch, table),
            )
            if count:
                yield table[:count]
            if code not in (c.DONE, c.FULL):
                for table in _defined_tables(opened, position, end, file):
                    position = int(table[-1, c.POSITION] + table[-1, c.SIZE])
                    yield table
            rows, span = min(2 * rows, TABLE_ROWS), min(2 * span, _MOST_BYTES)


def _defined_tables(opened: OpenFile, position: int, end: int, file: LogFile) -> Iterator[Table]:
    """Yield one table, read by the definition, and raise the error if a batch is damaged."""
    header_table = HeaderTable()
    try:
        while position < end and len(header_table) < _DEFINED_ROWS:
            header = _read_header(opened, position, end, file)
            header_table.append(position, header)
            position += header.size_bytes
    except KcompactError:
        if len(header_table):
            yield header_table.table()
        raise
    yield header_table.table()


def _read_header(opened: OpenFile, position: int, end: int, file: LogFile) -> Header:
    prefix = opened.read(min(HEADER_BYTES, end - position), position)
    header = read_header(prefix, file=str(file), position=position)
    require_inside(header, end - position, file=str(file), position=position)
    return header


def new_table(size_bytes: int, *, most_rows: int | None = None) -> Table:
    """Return a table for the batches of so many bytes, or for `most_rows` of them, TABLE_ROWS by default.

    Its rows are not filled.
    """
    rows = min(most_rows or TABLE_ROWS, 1 + max(0, size_bytes) // c.HEADER_BYTES)
    return np.empty((rows, c.COLUMNS), np.int64)


class HeaderTable:
    """A table that grows batch by batch: what the definition has read."""

    __slots__ = ("_records", "_values")

    def __init__(self) -> None:
        self._values, self._records = array("q"), 0

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._values) // c.COLUMNS

    def append(self, position: int, header: Header) -> None:
        """Add the batch at a position."""
        row = _row_of(position, header)
        row[c.ROW] = self._records
        self._records += header.records_count
        self._values.extend(row)

    def table(self) -> Table:
        """Return the batches so far, i64[n, COLUMNS]."""
        return np.array(self._values, np.int64).reshape(-1, c.COLUMNS)


def _row_of(position: int, header: Header) -> list[int]:
    row = [0] * c.COLUMNS
    row[c.POSITION], row[c.SIZE] = position, header.size_bytes
    row[c.BASE_OFFSET], row[c.LAST_OFFSET] = header.base_offset, header.last_offset
    row[c.EPOCH], row[c.ATTRIBUTES] = header.partition_leader_epoch, header.attributes
    row[c.BASE_TIMESTAMP], row[c.MAX_TIMESTAMP] = header.base_timestamp, header.max_timestamp
    row[c.PRODUCER_ID], row[c.PRODUCER_EPOCH] = header.producer_id, header.producer_epoch
    row[c.BASE_SEQUENCE], row[c.RECORDS_COUNT] = header.base_sequence, header.records_count
    row[c.SECTION_START], row[c.SECTION_END] = position + HEADER_BYTES, position + header.size_bytes
    row[c.MAGIC], row[c.CRC] = header.magic, header.crc
    return row


def header_of(row: list[int]) -> Header:
    """Return the header of a row, which was made a list."""
    return Header(
        base_offset=row[c.BASE_OFFSET],
        length=row[c.SIZE] - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=row[c.EPOCH],
        magic=row[c.MAGIC],
        crc=row[c.CRC],
        attributes=row[c.ATTRIBUTES],
        last_offset_delta=row[c.LAST_OFFSET] - row[c.BASE_OFFSET],
        base_timestamp=row[c.BASE_TIMESTAMP],
        max_timestamp=row[c.MAX_TIMESTAMP],
        producer_id=row[c.PRODUCER_ID],
        producer_epoch=row[c.PRODUCER_EPOCH],
        base_sequence=row[c.BASE_SEQUENCE],
        records_count=row[c.RECORDS_COUNT],
    )


def headers(file: LogFile, *, start_position: int = 0, end_position: int | None = None) -> Iterator[tuple[int, Header]]:
    """Yield the position and the header of each batch, as `header_tables` reads them, and raise what it raises."""
    for table in header_tables(file, start_position=start_position, end_position=end_position):
        for row in table.tolist():
            yield row[c.POSITION], header_of(row)


def header_at(file: LogFile, position: int, *, end_position: int | None = None) -> Header:
    """Return the header of the batch at a position before the end. Reads nothing else. Raises as `header_tables`."""
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        return _read_header(opened, position, end, file)


def end_by_headers(file: LogFile, base_offset: int, *, end_position: int | None = None) -> int:
    """Return the end offset of a segment, or of its batches before a position. Raises as `header_tables`."""
    end_offset = base_offset
    for table in header_tables(file, end_position=end_position):
        end_offset = int(table[-1, c.LAST_OFFSET]) + 1
    return end_offset


_SAMPLED_FILES = 64
_SAMPLED_BATCHES = 16


def mean_batch_bytes(files: Iterable[tuple[LogFile, int]]) -> int:
    """Return the mean size of a batch in files with these sizes, judged by the first batches of the newest ones.

    The oldest were cleaned most often, so their batches are not typical. Damage and old formats only make the estimate
    worse, and an unreadable file is not an error here. Returns all bytes where no batch is found.
    """
    known = list(files)
    sampled_bytes = batches = 0
    for file, size_bytes in known[-_SAMPLED_FILES:]:
        try:
            for _, header in islice(headers(file, end_position=size_bytes), _SAMPLED_BATCHES):
                sampled_bytes += header.size_bytes
                batches += 1
        except (KcompactError, OSError):
            continue
    return sampled_bytes // batches if batches else sum(size for _, size in known)
