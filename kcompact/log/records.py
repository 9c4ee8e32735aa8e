"""The records of a log file as columns: a run of batches at a time, decoded by kernels or by the definition.

The kernels decode what they can confirm. From a batch that they cannot confirm (an old format, damage), the definition
decodes a few thousand records, or raises the detailed error; then the kernels go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from kcompact import kernels
from kcompact.errors import BatchTooLargeError, CorruptBatchError, KcompactError, StorageError
from kcompact.format.batch import (
    Batch,
    Header,
    Record,
    read_records,
    read_varint,
    write_varint,
)
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.names import ANY_OFFSET
from kcompact.kernels import Bytes, Column, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import HeaderTable, header_at, header_of
from kcompact.log.files import LogFile
from kcompact.log.inflate import Buffers, inflated_runs
from kcompact.log.past_damage import Unreadable, readable_batches, unreadable_records
from kcompact.log.segment_reader import UnconfirmedError, VerifiedRun, confirmed_runs

RUN_RECORDS = 1 << 16
"""A run has about so many records, or one batch: its columns fit the processor's cache."""
DEFINED_RECORDS = 1 << 12
"""After so many records decoded by the definition the kernels are tried again."""
_DEFINED_BYTES = 8 << 20


class RecordRun(NamedTuple):
    """The records of consecutive batches, valid until the next run.

    `table` has a row for each batch; its positions count from `start_position` of the file. `columns` has a row for
    each field of a record (`kernels.RECORD_OFFSET` ...) and a column for each record. `data` has the bytes of keys,
    values and record headers. Every batch has a right checksum.

    `inflated_at` is what to add to SECTION_START and SECTION_END of a compressed batch with records to find its
    inflated section in `data`; None if `data` has no sections.
    """

    table: Table
    columns: Table
    data: Bytes
    start_position: int
    end_position: int
    """The position after the last batch."""
    inflated_at: int | None = None

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self.columns.shape[1])

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch."""
        return int(self.table[-1, c.LAST_OFFSET])

    @property
    def batch(self) -> Column:
        """The row of the batch of each record."""
        column: Column = self.columns[c.RECORD_BATCH]
        return column

    @property
    def offset(self) -> Column:
        column: Column = self.columns[c.RECORD_OFFSET]
        return column

    @property
    def timestamp(self) -> Column:
        """The time of each record: with LogAppendTime, that of its batch."""
        column: Column = self.columns[c.RECORD_TIMESTAMP]
        return column

    @property
    def key_start(self) -> Column:
        column: Column = self.columns[c.KEY_START]
        return column

    @property
    def key_size(self) -> Column:
        """The size of each key, -1 for null."""
        column: Column = self.columns[c.KEY_SIZE]
        return column

    @property
    def value_start(self) -> Column:
        column: Column = self.columns[c.VALUE_START]
        return column

    @property
    def value_size(self) -> Column:
        """The size of each value, -1 for null."""
        column: Column = self.columns[c.VALUE_SIZE]
        return column

    @property
    def headers_count(self) -> Column:
        column: Column = self.columns[c.HEADERS_COUNT]
        return column

    @property
    def sequence(self) -> Column:
        """The sequence number of each record, -1 without a producer."""
        base = self.table[self.batch, c.BASE_SEQUENCE]
        sequence = (base + self.offset - self.table[self.batch, c.BASE_OFFSET]) & 0x7FFFFFFF
        column: Column = np.where(base < 0, -1, sequence)
        return column

    def batch_column(self, number: int) -> Column:
        """Return a column of the table of batches, repeated for each record."""
        column: Column = self.table[self.batch, number]
        return column

    def header(self, number: int) -> tuple[Header, int]:
        """Return the header of a batch and its position in the file."""
        row = self.table[number].tolist()
        return header_of(row), self.start_position + row[c.POSITION]

    def key(self, row: int) -> bytes | None:
        """Return the key of a record."""
        return self._field(int(self.key_start[row]), int(self.key_size[row]))

    def value(self, row: int) -> bytes | None:
        """Return the value of a record."""
        return self._field(int(self.value_start[row]), int(self.value_size[row]))

    def headers(self, row: int) -> tuple[tuple[bytes, bytes | None], ...]:
        """Return the headers of a record: names and values."""
        fields = [self._field(start, size) for start, size in self.header_fields(row)]
        return tuple((name or b"", value) for name, value in zip(fields[::2], fields[1::2], strict=True))

    def header_fields(self, row: int) -> list[tuple[int, int]]:
        """Return start and size of each name and value of the headers of a record in turn; size -1 for null."""
        count, position = int(self.headers_count[row]), int(self.columns[c.HEADERS_START, row])
        spans = []
        data = self.data.data
        for _ in range(2 * count):
            size, position = read_varint(data, position)
            spans.append((position, size))
            position += max(size, 0)
        return spans

    def record(self, row: int) -> Record:
        """Return one record."""
        return Record(
            int(self.offset[row]), int(self.timestamp[row]), self.key(row), self.value(row), self.headers(row)
        )

    def _field(self, start: int, size: int) -> bytes | None:
        return None if size < 0 else self.data[start : start + size].tobytes()


def record_runs(
    file: LogFile,
    *,
    start_position: int = 0,
    end_position: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[RecordRun]:
    """Yield the records of a log file from `start_position` to `end_position`, the end of the file by default.

    As `record_parts`, but raises CorruptBatchError or BatchTooLargeError at the first part that cannot be read.
    """
    for part in record_parts(
        file,
        start_position=start_position,
        end_position=end_position,
        memory_bytes=memory_bytes,
    ):
        if isinstance(part, Unreadable):
            raise part.problem
        yield part


def record_parts(
    file: LogFile,
    *,
    offsets: range = ANY_OFFSET,
    start_position: int = 0,
    end_position: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[RecordRun | Unreadable]:
    """Yield the records of a log file, and the parts that cannot be read, in the order of the file.

    The kernels decode, the definition only what they do not confirm. At most `memory_bytes` are held
    for a batch. Every batch has its offsets in `offsets` and above those of the batch before it. Raises RefusedError,
    StorageError.
    """
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
    position, last_offset = start_position, -1
    while position < end:
        allowed = range(max(offsets.start, last_offset + 1), offsets.stop)
        for run in _runs_by_kernels(file, position, end, allowed, memory_bytes):
            certain = _without_contradiction(run, file, end)
            if len(certain.table):
                position, last_offset = certain.end_position, certain.last_offset
                yield certain
            if certain is not run:
                break
        for part in _defined_parts(file, position, end, offsets, last_offset, memory_bytes):
            position = part.end_position
            if isinstance(part, RecordRun):
                last_offset = part.last_offset
            yield part


# By kernels


def _runs_by_kernels(file: LogFile, position: int, end: int, offsets: range, memory_bytes: int) -> Iterator[RecordRun]:
    """Yield runs up to the first batch that the kernels do not confirm, or up to `end`."""
    buffers = Buffers(memory_bytes)
    try:
        for verified in confirmed_runs(
            file,
            base_offset=offsets.start,
            end_offset=offsets.stop,
            start_position=position,
            end_position=end,
            memory_bytes=memory_bytes,
        ):
            yield from _runs_of(verified, buffers, file)
    except (UnconfirmedError, KcompactError):
        return  # The definition reads on from the last run, and finds what is wrong.


def _without_contradiction(run: RecordRun, file: LogFile, end: int) -> RecordRun:
    """Return a run without its last batch if a batch with smaller offsets follows: one of the two is damaged."""
    if run.end_position >= end:
        return run
    try:
        following = header_at(file, run.end_position, end_position=end)
    except (CorruptBatchError, StorageError):
        return run
    if following.base_offset > run.last_offset:
        return run
    last = len(run.table) - 1
    return RecordRun(
        table=run.table[:last],
        columns=np.ascontiguousarray(run.columns[:, : int(np.searchsorted(run.batch, last))]),
        data=run.data,
        start_position=run.start_position,
        end_position=run.start_position + int(run.table[last, c.POSITION]),
        inflated_at=run.inflated_at,
    )


def _runs_of(verified: VerifiedRun, buffers: Buffers, file: LogFile) -> Iterator[RecordRun]:
    """Yield the records of verified batches. Raises UnconfirmedError, CorruptBatchError, BatchTooLargeError."""
    buffer, table, start = verified.buffer, verified.table, verified.start_position
    for first, end, inflated in inflated_runs(buffer, table, buffers, file=str(file), start_position=start):
        data, shift = _one_array(buffer, inflated, table[first:end])
        while first < end:
            last_row = int(np.searchsorted(table[first:end, c.ROW], table[first, c.ROW] + RUN_RECORDS, side="right"))
            run_end = first + max(1, last_row - 1 if last_row < end - first else end - first)
            part = table[first:run_end]
            room = np.minimum(
                part[:, c.RECORDS_COUNT], (part[:, c.SECTION_END] - part[:, c.SECTION_START]) // c.MIN_RECORD_BYTES
            )
            columns = np.empty((c.RECORD_FIELDS, int(room.sum())), np.int64)
            done, records, code = kernels.record_columns(buffer, inflated, table, first, run_end, shift, columns)
            if done > first:
                yield _run_of_rows(verified, first, done, np.ascontiguousarray(columns[:, :records]), data, shift)
            if code != c.DONE:
                raise UnconfirmedError
            first = run_end


def _one_array(buffer: Bytes, inflated: Bytes, part: Table) -> tuple[Bytes, int]:
    """Return an array with the sections of all batches, and where the inflated sections begin in it."""
    is_compressed = (part[:, c.ATTRIBUTES] & c.CODEC_MASK != 0) & (part[:, c.RECORDS_COUNT] > 0)
    if not is_compressed.any():
        return buffer, 0
    inflated_end = int(part[is_compressed, c.SECTION_END].max())
    if is_compressed.all():
        return inflated[:inflated_end], 0
    used = buffer[: int(part[-1, c.POSITION] + part[-1, c.SIZE])]
    return np.concatenate((used, inflated[:inflated_end])), len(used)


def _run_of_rows(
    verified: VerifiedRun, first: int, end: int, columns: Table, data: Bytes, inflated_at: int
) -> RecordRun:
    start = verified.start_position
    part = verified.table[first:end]
    columns[c.RECORD_BATCH] -= first
    return RecordRun(
        table=part,
        columns=columns,
        data=data,
        start_position=start,
        end_position=start + int(part[-1, c.POSITION] + part[-1, c.SIZE]),
        inflated_at=inflated_at,
    )


# By the definition


def _defined_parts(
    file: LogFile, position: int, end: int, offsets: range, last_offset: int, memory_bytes: int
) -> Iterator[RecordRun | Unreadable]:
    """Yield a run of about DEFINED_RECORDS records, and what cannot be read before it."""
    builder = _Builder()
    for part in readable_batches(
        file,
        base_offset=offsets.start,
        end_offset=offsets.stop,
        start_position=position,
        after_offset=last_offset,
        end_position=end,
        memory_bytes=memory_bytes,
    ):
        unreadable = part if isinstance(part, Unreadable) else builder.add(part, file, memory_bytes)
        if builder.batches and (builder.is_full or unreadable is not None):
            is_full = builder.is_full
            yield builder.run()
            if is_full:
                return
            builder = _Builder()
        if unreadable is not None:
            yield unreadable
    if builder.batches:
        yield builder.run()


class _Builder:
    """Collects the batches of a run, decoded by the definition."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._rows: list[tuple[int, ...]] = []
        self._data = bytearray()

    @property
    def is_full(self) -> bool:
        return (
            len(self._rows) >= DEFINED_RECORDS
            or len(self.batches) >= DEFINED_RECORDS
            or (len(self._data) >= _DEFINED_BYTES)
        )

    def add(self, batch: Batch, file: LogFile, memory_bytes: int) -> Unreadable | None:
        """Add a batch and its records. If they cannot be read, return the batch as such a part."""
        try:
            records = read_records(batch, file=str(file), memory_bytes=memory_bytes)
        except (CorruptBatchError, BatchTooLargeError) as problem:
            return unreadable_records(batch, problem)
        self.batches.append(batch)
        for record in records:
            key_start, key_size = self._added(record.key)
            value_start, value_size = self._added(record.value)
            headers_start = len(self._data)
            for name, content in record.headers:
                self._data += write_varint(len(name)) + name
                self._data += b"\x01" if content is None else write_varint(len(content)) + content
            self._rows.append(
                (
                    *(len(self.batches) - 1, record.offset, record.timestamp, key_start, key_size),
                    *(value_start, value_size, headers_start, len(record.headers)),
                )
            )
        return None

    def _added(self, field: bytes | None) -> tuple[int, int]:
        """Add a key or a value to the data. Return its start and its size."""
        if field is None:
            return 0, -1
        start = len(self._data)
        self._data += field
        return start, len(field)

    def run(self) -> RecordRun:
        """Return the run of the batches so far."""
        start, headers = self.batches[0].position, HeaderTable()
        for batch in self.batches:
            headers.append(batch.position - start, batch.header)
        table = headers.table()
        return RecordRun(
            table=table,
            columns=np.array(self._rows, np.int64).reshape(-1, c.RECORD_FIELDS).T.copy(),
            data=np.frombuffer(bytes(self._data), np.uint8),
            start_position=start,
            end_position=start + int(table[-1, c.POSITION] + table[-1, c.SIZE]),
        )
