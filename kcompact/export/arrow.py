"""Records as Parquet or as an Arrow file (IPC), through pyarrow. docs/records.md lists the columns and their types.

No Python object is made for a record: the bytes of a run of batches are already in one array, and Arrow takes them
from there by their positions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from kcompact import kernels
from kcompact.export import columns
from kcompact.export.columns import CODECS, TIMESTAMP_TYPES, Extra, FieldValues, RecordSource
from kcompact.format.batch import java_string, read_varint
from kcompact.kernels import HEADERS_START, Bytes, Column
from kcompact.log.record_fields import FieldType
from kcompact.log.records import RecordRun

ROW_GROUP_RECORDS = 1 << 16
ROW_GROUP_BYTES = 64 << 20
"""A row group is written when it has so many records or bytes of keys, values and headers."""
MOST_TIME_MS = 9 * 10**15
"""Times are at most so far from 1970: DuckDB keeps microseconds in 64 bits, and fails at other times."""
_PIECE_BYTES = 1 << 30
"""An array of Arrow with 32-bit positions holds less than 2 GiB."""
_FEW_RECORDS = 8
"""So few records are not worth an operation on arrays for each of their headers."""

_TYPES = {
    FieldType.INT16: pa.int16(),
    FieldType.INT32: pa.int32(),
    FieldType.INT64: pa.int64(),
    FieldType.TRUTH: pa.bool_(),
    FieldType.TIME: pa.timestamp("ms", tz="UTC"),
}
_EXTRA_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])


class ArrowWriter:
    """Writes records to Parquet, or to an Arrow file.

    `topics` are all that can occur, `extra` the names and types of the additional columns.
    """

    def __init__(
        self, file: BinaryIO, kind: str, topics: Sequence[str], *, with_data: bool, extra: Sequence[Extra] = ()
    ) -> None:
        self._topics, self._with_data = topics, with_data
        self._waiting: list[pa.RecordBatch] = []
        self._records = self._bytes = 0
        self._writer: Any = None
        self._schema = _schema(topics, with_data=with_data, extra=extra)
        if kind == "parquet":
            import pyarrow.parquet as pq

            self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        else:
            self._writer = pa.ipc.new_file(file, self._schema)

    def write(self, run: RecordRun, rows: Column, source: RecordSource, extra: Sequence[Extra] = ()) -> None:
        """Write some records of a run. They are in the file after `close` at the latest."""
        for first, end in pieces(run, rows):
            more = [each._replace(values=each.values[first:end]) for each in extra]
            batch = record_batch(run, rows[first:end], source, self._topics, with_data=self._with_data, extra=more)
            self._waiting.append(batch)
            self._records += batch.num_rows
            self._bytes += batch.nbytes
            if self._records >= ROW_GROUP_RECORDS or self._bytes >= ROW_GROUP_BYTES:
                self._flush()

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._records:
            table = pa.Table.from_batches(self._waiting, self._schema)
            for batch in table.combine_chunks().to_batches():
                self._writer.write_batch(batch)
        self._waiting, self._records, self._bytes = [], 0, 0


def _schema(topics: Sequence[str], *, with_data: bool, extra: Sequence[Extra]) -> pa.Schema:
    empty = columns.empty_run()
    return record_batch(empty, columns.NO_ROWS, RecordSource(0, 0, 0), topics, with_data=with_data, extra=extra).schema


def record_batch(
    run: RecordRun,
    rows: Column,
    source: RecordSource,
    topics: Sequence[str],
    *,
    with_data: bool,
    extra: Sequence[Extra] = (),
) -> pa.RecordBatch:
    """Return some records of a run as columns of Arrow."""
    names = {FieldType.TOPIC: topics, FieldType.TIMESTAMP_TYPE: TIMESTAMP_TYPES, FieldType.CODEC: CODECS}
    arrays = {field.name: _array(field, names) for field in _with_numbers(columns.head(run, rows, source))}
    if with_data:
        arrays["key"] = binary_array(run.data, run.key_start[rows], run.key_size[rows])
        arrays["value"] = binary_array(run.data, run.value_start[rows], run.value_size[rows])
    arrays["headers" if with_data else "header_keys"] = header_lists(run, rows, with_data=with_data)
    arrays |= {each.name: pa.array(each.values, _EXTRA_TYPES[each.type]) for each in extra}
    arrays |= {field.name: _array(field, names) for field in _with_numbers(columns.tail(run, rows))}
    return pa.RecordBatch.from_pydict(arrays)


def _with_numbers(fields: Iterable[FieldValues]) -> Iterator[FieldValues]:
    """Yield the fields, and each time also as a number: it can be too far away to be a time for every reader."""
    for field in fields:
        if field.kind is not FieldType.TIME:
            yield field
            continue
        is_null = np.zeros(len(field.values), bool) if field.is_null is None else field.is_null
        is_far = (field.values < -MOST_TIME_MS) | (field.values > MOST_TIME_MS)
        yield field._replace(is_null=is_null | is_far)
        yield FieldValues(f"{field.name}_ms", FieldType.INT64, field.values, field.is_null)


def _array(field: FieldValues, names: dict[FieldType, Sequence[str]]) -> pa.Array:
    if field.kind in names:
        numbers = pa.array(field.values.astype(np.int32), mask=field.is_null)
        return pa.DictionaryArray.from_arrays(numbers, pa.array(names[field.kind], pa.string()))
    kind = _TYPES[field.kind]
    values = field.values.astype(bool) if field.kind is FieldType.TRUTH else field.values
    return pa.array(values, mask=field.is_null).cast(kind)


def binary_array(data: Bytes, start: Column, size: Column) -> pa.Array:
    """Return the fields of bytes at these positions; a size of -1 is null.

    Raises OverflowError for 2 GiB or more: the positions in an array of Arrow have 32 bits.
    """
    is_null = size < 0
    has_null = bool(is_null.any())
    pieces = np.zeros((len(start), 3), np.int64)
    pieces[:, 1] = start
    pieces[:, 2] = start + (np.where(is_null, 0, size) if has_null else size)
    ends = np.cumsum(pieces[:, 2] - pieces[:, 1])
    size_bytes = int(ends[-1]) if len(ends) else 0
    if size_bytes > np.iinfo(np.int32).max:
        raise OverflowError(f"{size_bytes:,} bytes do not fit into one array of Arrow")
    joined = np.empty(size_bytes, np.uint8)
    kernels.join_pieces(data, data, pieces, joined)
    positions = np.zeros(len(start) + 1, np.int32)
    positions[1:] = ends
    buffers = [pa.py_buffer(positions), pa.py_buffer(joined)]
    validity = pa.py_buffer(np.packbits(~is_null, bitorder="little")) if has_null else None
    return pa.BinaryArray.from_buffers(pa.binary(), len(start), [validity, *buffers])


def header_lists(run: RecordRun, rows: Column | slice, *, with_data: bool) -> pa.Array:
    """Return the record headers: lists of names and values, or of the names."""
    counts = run.headers_count[rows]
    lists = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    name_start, name_size, value_start, value_size = _header_positions(run, rows, lists)
    names = _text(binary_array(run.data, name_start, name_size))
    if not with_data:
        return pa.ListArray.from_arrays(pa.array(lists, pa.int32()), names)
    values = binary_array(run.data, value_start, value_size)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    return pa.ListArray.from_arrays(pa.array(lists, pa.int32()), pairs)


def _header_positions(run: RecordRun, rows: Column | slice, lists: Column) -> tuple[Column, ...]:
    """Return start and size of the name and of the value of each header; those of a record begin at its list."""
    spans = np.zeros((4, int(lists[-1])), np.int64)
    position, counts = run.columns[HEADERS_START, rows], run.headers_count[rows]
    reading = np.flatnonzero(counts)  # The records that have more headers.
    position = position[reading]
    number = 0
    while len(reading) > _FEW_RECORDS:
        name_size, name_start = _varints(run.data, position)
        value_size, value_start = _varints(run.data, name_start + name_size)
        spans[:, lists[reading] + number] = name_start, name_size, value_start, np.maximum(value_size, -1)
        position = value_start + np.maximum(value_size, 0)
        number += 1
        has_more = counts[reading] > number
        reading, position = reading[has_more], position[has_more]
    for row, at in zip(reading.tolist(), position.tolist(), strict=True):  # A single record can have very many headers.
        for place in range(int(lists[row]) + number, int(lists[row + 1])):
            spans[:, place], at = _header_position(run.data, at)
    return tuple(spans)


def _header_position(data: Bytes, position: int) -> tuple[tuple[int, int, int, int], int]:
    """Return start and size of the name and the value of the header at a position, and the position behind it."""
    name_size, name_start = read_varint(data.data, position)
    value_size, value_start = read_varint(data.data, name_start + name_size)
    return (name_start, name_size, value_start, max(value_size, -1)), value_start + max(value_size, 0)


def _varints(data: Bytes, position: Column) -> tuple[Column, Column]:
    """Return the integers of variable length at these positions, and the positions behind them."""
    byte = data[position].astype(np.int64)
    value, position, shift = byte & 0x7F, position + 1, 7
    while (has_more := byte > 0x7F).any():
        byte = np.where(has_more, data[np.where(has_more, position, 0)], 0).astype(np.int64)
        value |= (byte & 0x7F) << shift
        position, shift = position + has_more, shift + 7
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), position


def _text(array: pa.Array) -> pa.Array:
    """Return bytes as text, invalid UTF-8 as Kafka shows it."""
    try:
        return array.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([java_string(each) for each in array.to_pylist()], pa.string())


def pieces(run: RecordRun, rows: Column) -> Iterator[tuple[int, int]]:
    """Yield first and end of pieces of the records with so few bytes that an array of Arrow can hold them."""
    if len(run.data) < _PIECE_BYTES:
        yield 0, len(rows)
        return
    size = np.maximum(run.key_size[rows], 0) + np.maximum(run.value_size[rows], 0)
    piece = np.cumsum(size) // _PIECE_BYTES
    starts = np.flatnonzero(np.diff(piece, prepend=-1)).tolist()
    yield from pairwise([*starts, len(rows)])
