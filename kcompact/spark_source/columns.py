"""The columns of the rows: their names and types, and how a run of records or batches becomes a batch of Arrow.

The first eight columns of a record are those of Spark's own Kafka source. What Kafka stores as -1, because there is
none, is null. No Python object is made for a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kcompact.format.names import TopicPartition
from kcompact.kernels import columns as c
from kcompact.log.record_fields import OF_BATCHES, OF_RECORDS, FieldType

if TYPE_CHECKING:
    from kcompact.kernels import Column, Mask
    from kcompact.log.records import RecordRun

NO_TIMESTAMP_TYPE = -1
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


_SQL = {
    FieldType.INT16: ("int", "int32"),
    FieldType.INT32: ("int", "int32"),
    FieldType.INT64: ("bigint", "int64"),
    FieldType.TIME: ("bigint", "int64"),
    FieldType.TRUTH: ("boolean", "bool"),
}
"""The types of fields in SQL and of their arrays."""


def _field(name: str) -> ColumnType:
    """Return the column of a field that every output has. Times are numbers."""
    is_of_record = name in OF_RECORDS
    field = (OF_RECORDS if is_of_record else OF_BATCHES)[name]
    sql, type_name = _SQL[field.type]

    def array(rows: Rows) -> Any:
        import pyarrow as pa

        at = rows.rows if is_of_record else rows.batches
        values = field.get(rows.run, at)
        return pa.array(values.astype(type_name, copy=False), mask=field.is_null(rows.run, at, values))

    return ColumnType(sql, array)


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


def _timestamp_type(rows: Rows) -> Any:
    """Return the ids of Kafka's `TimestampType`. A message of format 0 has no time."""
    import pyarrow as pa

    types = OF_BATCHES["timestamp_type"].get(rows.run, rows.batches)
    has_none = rows.run.table[rows.batches, c.MAGIC] == 0
    return pa.array(np.where(has_none, NO_TIMESTAMP_TYPE, types).astype("int32"))


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


def _is_tombstone(rows: Rows) -> Any:
    import pyarrow as pa

    is_control = rows.run.table[rows.batches, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    return pa.array((rows.run.value_size[rows.rows] < 0) & (rows.run.key_size[rows.rows] >= 0) & ~is_control)


RECORD_COLUMNS = {
    "key": ColumnType("binary", _bytes(c.KEY_START, c.KEY_SIZE)),
    "value": ColumnType("binary", _bytes(c.VALUE_START, c.VALUE_SIZE)),
    "topic": ColumnType("string", _same("string", lambda place: place.partition.topic)),
    "partition": ColumnType("int", _same("int32", lambda place: place.partition.partition)),
    "offset": _field("offset"),
    "timestamp": ColumnType("timestamp", _time(lambda rows: rows.run.timestamp[rows.rows])),
    "timestampType": ColumnType("int", _timestamp_type),
    "headers": ColumnType("array<struct<key:string,value:binary>>", _headers),
    "leaderEpoch": _field("leader_epoch"),
    "producerId": _field("producer_id"),
    "producerEpoch": _field("producer_epoch"),
    "sequence": _field("sequence"),
    "isTransactional": _field("is_transactional"),
    "isControl": _field("is_control"),
    "isTombstone": ColumnType("boolean", _is_tombstone),
    "segment": ColumnType("bigint", _same("int64", lambda place: place.segment)),
    # Also of a time that is too far away for a timestamp.
    "timestampMs": _field("timestamp"),
}
"""The columns of the views of records."""


def _codec(rows: Rows) -> Any:
    import pyarrow as pa

    from kcompact.export.columns import CODECS

    return pa.array(CODECS, pa.string()).take(pa.array(OF_BATCHES["codec"].get(rows.run, rows.batches)))


BATCH_COLUMNS = {
    "topic": RECORD_COLUMNS["topic"],
    "partition": RECORD_COLUMNS["partition"],
    "segment": RECORD_COLUMNS["segment"],
    "baseOffset": _field("base_offset"),
    "lastOffset": _field("last_offset"),
    "count": _field("count"),
    "baseSequence": _field("base_sequence"),
    "lastSequence": _field("last_sequence"),
    "producerId": _field("producer_id"),
    "producerEpoch": _field("producer_epoch"),
    "partitionLeaderEpoch": _field("leader_epoch"),
    "isTransactional": _field("is_transactional"),
    "isControl": _field("is_control"),
    "deleteHorizonMs": _field("delete_horizon"),
    "position": _field("position"),
    "timestamp": ColumnType("timestamp", _time(lambda rows: rows.run.table[rows.batches, c.MAX_TIMESTAMP])),
    "timestampType": RECORD_COLUMNS["timestampType"],
    "size": _field("size"),
    "magic": _field("magic"),
    "compresscodec": ColumnType("string", _codec),
    "crc": _field("crc"),
    "timestampMs": _field("max_timestamp"),
}
"""The columns of the view of batches, under the names of `kafka-dump-log.sh`, but for the time."""
