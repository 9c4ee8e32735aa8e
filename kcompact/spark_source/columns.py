"""The columns of the rows: their names and types, and how a run of records or batches becomes a batch of Arrow.

The first eight columns of a record are those of Spark's own Kafka source. What Kafka stores as -1, because there is
none, is null. No Python object is made for a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kcompact.format.codec import Codec
from kcompact.format.names import TopicPartition
from kcompact.kernels import columns as c

if TYPE_CHECKING:
    from kcompact.kernels import Column, Mask
    from kcompact.log.records import RecordRun

NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
"""Kafka's `TimestampType.id`."""


class RunSegment(NamedTuple):
    """The segment that a run is from."""

    partition: TopicPartition
    segment: int


class Rows(NamedTuple):
    """Some records of a run, or its batches: `rows` are their numbers, `batches` the numbers of their batches."""

    run: RecordRun
    rows: Column | slice
    batches: Column
    place: RunSegment


class ColumnType(NamedTuple):
    """The type of a column in Spark's SQL, and the function that makes it an array of Arrow.

    The function takes the rows of its view: `Rows`, or a `damage.Damage`.
    """

    sql: str
    array: Callable[[Any], Any]


Columns = Mapping[str, ColumnType]


def schema_text(columns: Columns, names: Sequence[str]) -> str:
    """Return the schema of rows with some of the columns, for Spark."""
    return ", ".join(f"`{name}` {columns[name].sql}" for name in names)


def record_batches(run: RecordRun, mask: Mask | None, place: RunSegment, names: Sequence[str]) -> Iterator[Any]:
    """Yield the records of a run that the mask has, or all, as `pyarrow.RecordBatch` with these columns."""
    from kcompact.export.arrow import pieces

    rows = np.arange(len(run)) if mask is None else np.flatnonzero(mask)
    for first, end in pieces(run, rows) if len(rows) else ():
        part = slice(first, end) if mask is None else rows[first:end]  # A slice is not copied.
        yield _batch(Rows(run, part, run.batch[part], place), RECORD_COLUMNS, names)


def batch_rows(run: RecordRun, mask: Mask, place: RunSegment, names: Sequence[str]) -> Iterator[Any]:
    """Yield the batches of a run that the mask has as a `pyarrow.RecordBatch` with these columns."""
    rows = np.flatnonzero(mask)
    if len(rows):
        yield _batch(Rows(run, rows, rows, place), BATCH_COLUMNS, names)


def _batch(rows: Rows, columns: Columns, names: Sequence[str]) -> Any:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([columns[name].array(rows) for name in names], list(names))


# Arrays of Arrow


def _number(type_name: str, values: Callable[[Rows], Column], none: int | None = None) -> Callable[[Rows], Any]:
    """Return what makes an array of numbers; those that are `none` are null."""

    def array(rows: Rows) -> Any:
        import pyarrow as pa

        numbers = values(rows)
        return pa.array(numbers.astype(type_name, copy=False), mask=None if none is None else numbers == none)

    return array


def _of_batch(column: int, type_name: str = "int64", none: int | None = None) -> Callable[[Rows], Any]:
    """Return what makes a column of the table of batches an array; a value that is `none` is null."""
    return _number(type_name, lambda rows: rows.run.table[rows.batches, column], none)


def _truth(values: Callable[[Rows], Mask]) -> Callable[[Rows], Any]:
    def array(rows: Rows) -> Any:
        import pyarrow as pa

        return pa.array(values(rows))

    return array


def _bit(bit: int) -> Callable[[Rows], Any]:
    return _truth(lambda rows: rows.run.table[rows.batches, c.ATTRIBUTES] & bit != 0)


def _same(type_name: str, value: Callable[[RunSegment], Any]) -> Callable[[Rows], Any]:
    def array(rows: Rows) -> Any:
        import pyarrow as pa

        return pa.repeat(pa.scalar(value(rows.place), getattr(pa, type_name)()), len(rows.batches))

    return array


def _time(values: Callable[[Rows], Column]) -> Callable[[Rows], Any]:
    """Return what makes Unix milliseconds a timestamp. One that is too far away for Spark's microseconds is null."""

    def array(rows: Rows) -> Any:
        import pyarrow as pa

        from kcompact.export.arrow import MOST_TIME_MS

        times = values(rows)
        is_null = (times == -1) | (times < -MOST_TIME_MS) | (times > MOST_TIME_MS)
        numbers = pa.array(np.where(is_null, 0, times) * 1000, mask=is_null)
        return numbers.cast(pa.timestamp("us", tz="UTC"))

    return array


def _timestamp_type(rows: Rows) -> Column:
    """Return the ids of Kafka's `TimestampType`. A message of format 0 has no time."""
    is_append_time = rows.run.table[rows.batches, c.ATTRIBUTES] & c.LOG_APPEND_TIME_BIT != 0
    types = np.where(is_append_time, LOG_APPEND_TIME, CREATE_TIME)
    column: Column = np.where(rows.run.table[rows.batches, c.MAGIC] == 0, NO_TIMESTAMP_TYPE, types)
    return column


def _bytes(start: int, size: int) -> Callable[[Rows], Any]:
    def array(rows: Rows) -> Any:
        from kcompact.export.arrow import binary_array

        return binary_array(rows.run.data, rows.run.columns[start, rows.rows], rows.run.columns[size, rows.rows])

    return array


def _headers(rows: Rows) -> Any:
    """Return the record headers, under the names and with the nulls that Spark's schema has."""
    import pyarrow as pa

    from kcompact.export.arrow import header_lists

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return header_lists(rows.run, rows.rows, with_data=True).cast(pa.list_(pa.field("element", pair)))


def _is_tombstone(rows: Rows) -> Mask:
    is_control = rows.run.table[rows.batches, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    mask: Mask = (rows.run.value_size[rows.rows] < 0) & (rows.run.key_size[rows.rows] >= 0) & ~is_control
    return mask


RECORD_COLUMNS = {
    "key": ColumnType("binary", _bytes(c.KEY_START, c.KEY_SIZE)),
    "value": ColumnType("binary", _bytes(c.VALUE_START, c.VALUE_SIZE)),
    "topic": ColumnType("string", _same("string", lambda place: place.partition.topic)),
    "partition": ColumnType("int", _same("int32", lambda place: place.partition.partition)),
    "offset": ColumnType("bigint", _number("int64", lambda rows: rows.run.offset[rows.rows])),
    "timestamp": ColumnType("timestamp", _time(lambda rows: rows.run.timestamp[rows.rows])),
    "timestampType": ColumnType("int", _number("int32", _timestamp_type)),
    "headers": ColumnType("array<struct<key:string,value:binary>>", _headers),
    "leaderEpoch": ColumnType("int", _of_batch(c.EPOCH, "int32", -1)),
    "producerId": ColumnType("bigint", _of_batch(c.PRODUCER_ID, "int64", -1)),
    "producerEpoch": ColumnType("int", _of_batch(c.PRODUCER_EPOCH, "int32", -1)),
    "sequence": ColumnType("int", _number("int32", lambda rows: rows.run.sequence[rows.rows], -1)),
    "isTransactional": ColumnType("boolean", _bit(c.TRANSACTIONAL_BIT)),
    "isControl": ColumnType("boolean", _bit(c.CONTROL_BIT)),
    "isTombstone": ColumnType("boolean", _truth(_is_tombstone)),
    "segment": ColumnType("bigint", _same("int64", lambda place: place.segment)),
    # Also of a time that is too far away for a timestamp.
    "timestampMs": ColumnType("bigint", _number("int64", lambda rows: rows.run.timestamp[rows.rows], -1)),
}
"""The columns of the views of records."""


def _last_sequence(rows: Rows) -> Column:
    """Return the last sequence number of each batch. Rule: DefaultRecordBatch.lastSequence."""
    table = rows.run.table[rows.batches]
    base = table[:, c.BASE_SEQUENCE]
    column: Column = np.where(base < 0, -1, (base + table[:, c.LAST_OFFSET] - table[:, c.BASE_OFFSET]) & 0x7FFFFFFF)
    return column


def _delete_horizon(rows: Rows) -> Any:
    import pyarrow as pa

    table = rows.run.table[rows.batches]
    return pa.array(table[:, c.BASE_TIMESTAMP], mask=table[:, c.ATTRIBUTES] & c.DELETE_HORIZON_BIT == 0)


def _codec(rows: Rows) -> Any:
    import pyarrow as pa

    names = pa.array([codec.name.lower() for codec in Codec], pa.string())
    return names.take(pa.array(rows.run.table[rows.batches, c.ATTRIBUTES] & c.CODEC_MASK))


BATCH_COLUMNS = {
    "topic": RECORD_COLUMNS["topic"],
    "partition": RECORD_COLUMNS["partition"],
    "segment": RECORD_COLUMNS["segment"],
    "baseOffset": ColumnType("bigint", _of_batch(c.BASE_OFFSET)),
    "lastOffset": ColumnType("bigint", _of_batch(c.LAST_OFFSET)),
    "count": ColumnType("int", _of_batch(c.RECORDS_COUNT, "int32")),
    "baseSequence": ColumnType("int", _of_batch(c.BASE_SEQUENCE, "int32", -1)),
    "lastSequence": ColumnType("int", _number("int32", _last_sequence, -1)),
    "producerId": ColumnType("bigint", _of_batch(c.PRODUCER_ID, "int64", -1)),
    "producerEpoch": ColumnType("int", _of_batch(c.PRODUCER_EPOCH, "int32", -1)),
    "partitionLeaderEpoch": ColumnType("int", _of_batch(c.EPOCH, "int32", -1)),
    "isTransactional": ColumnType("boolean", _bit(c.TRANSACTIONAL_BIT)),
    "isControl": ColumnType("boolean", _bit(c.CONTROL_BIT)),
    "deleteHorizonMs": ColumnType("bigint", _delete_horizon),
    "position": ColumnType(
        "bigint", _number("int64", lambda rows: rows.run.start_position + rows.run.table[rows.batches, c.POSITION])
    ),
    "timestamp": ColumnType("timestamp", _time(lambda rows: rows.run.table[rows.batches, c.MAX_TIMESTAMP])),
    "timestampType": RECORD_COLUMNS["timestampType"],
    "size": ColumnType("int", _of_batch(c.SIZE, "int32")),
    "magic": ColumnType("int", _number("int32", lambda rows: rows.run.table[rows.batches, c.MAGIC])),
    "compresscodec": ColumnType("string", _codec),
    "crc": ColumnType("bigint", _number("int64", lambda rows: rows.run.table[rows.batches, c.CRC])),
    "timestampMs": ColumnType("bigint", _of_batch(c.MAX_TIMESTAMP, "int64", -1)),
}
"""The columns of the view of batches, under the names of `kafka-dump-log.sh`, but for the time."""
