"""The fields of records that every export has: numbers, truth values, and names from a few.

A field that has no value is null: the time, sequence or producer that Kafka stores as -1, the size of a null key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from kcompact.format.codec import Codec
from kcompact.kernels import Column, Mask
from kcompact.kernels import columns as c
from kcompact.log.records import RecordRun

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CODECS = tuple(codec.name.lower() for codec in Codec)
NO_ROWS: Column = np.zeros(0, np.int64)


class FieldType(Enum):
    """The types of the fields."""

    INT16 = auto()
    INT32 = auto()
    INT64 = auto()
    TIME = auto()
    """Unix milliseconds."""
    TRUTH = auto()
    TOPIC = auto()
    TIMESTAMP_TYPE = auto()
    CODEC = auto()
    """A number among the topics, TIMESTAMP_TYPES, CODECS."""


class FieldValues(NamedTuple):
    """One field of some records. `is_null` is None if none is null."""

    name: str
    kind: FieldType
    values: Column
    is_null: Mask | None = None


class RecordSource(NamedTuple):
    """The segment that records come from. `topic` is its number among the topics of the export; None is unknown."""

    topic: int | None
    partition: int | None
    base_offset: int | None


class Extra(NamedTuple):
    """One more column: decoded keys or values, None where there is none or it cannot be decoded."""

    name: str
    type: type[str] | type[int] | type[float]
    values: Sequence[object]


def head(run: RecordRun, rows: Column, source: RecordSource) -> Iterator[FieldValues]:
    """Yield the fields that come before key, value and headers."""
    attributes = run.table[run.batch[rows], c.ATTRIBUTES]
    yield _same("topic", FieldType.TOPIC, source.topic, len(rows))
    yield _same("partition", FieldType.INT32, source.partition, len(rows))
    yield _same("segment", FieldType.INT64, source.base_offset, len(rows))
    yield FieldValues("offset", FieldType.INT64, run.offset[rows])
    yield _unless_minus_one("timestamp", FieldType.TIME, run.timestamp[rows])
    yield FieldValues(
        "timestamp_type", FieldType.TIMESTAMP_TYPE, _bit(attributes, c.LOG_APPEND_TIME_BIT).astype(np.int64)
    )
    yield _unless_minus_one("key_size", FieldType.INT32, run.key_size[rows])
    yield _unless_minus_one("value_size", FieldType.INT32, run.value_size[rows])


def tail(run: RecordRun, rows: Column) -> Iterator[FieldValues]:
    """Yield the fields that come after key, value and headers."""
    batches = run.batch[rows]
    attributes = run.table[batches, c.ATTRIBUTES]
    yield FieldValues("base_offset", FieldType.INT64, run.table[batches, c.BASE_OFFSET])
    yield _unless_minus_one("leader_epoch", FieldType.INT32, run.table[batches, c.EPOCH])
    yield _unless_minus_one("producer_id", FieldType.INT64, run.table[batches, c.PRODUCER_ID])
    yield _unless_minus_one("producer_epoch", FieldType.INT16, run.table[batches, c.PRODUCER_EPOCH])
    yield _unless_minus_one("sequence", FieldType.INT32, run.sequence[rows])
    yield FieldValues("is_transactional", FieldType.TRUTH, _bit(attributes, c.TRANSACTIONAL_BIT))
    yield FieldValues("is_control", FieldType.TRUTH, _bit(attributes, c.CONTROL_BIT))
    yield FieldValues("codec", FieldType.CODEC, attributes & c.CODEC_MASK)
    has_no_horizon = ~_bit(attributes, c.DELETE_HORIZON_BIT).astype(bool)
    yield FieldValues("delete_horizon", FieldType.TIME, run.table[batches, c.BASE_TIMESTAMP], has_no_horizon)


def _same(name: str, kind: FieldType, value: int | None, count: int) -> FieldValues:
    return FieldValues(name, kind, np.full(count, value or 0), np.full(count, value is None))


def _unless_minus_one(name: str, kind: FieldType, values: Column) -> FieldValues:
    return FieldValues(name, kind, values, values == -1)


def _bit(attributes: Column, bit: int) -> Column:
    values: Column = (attributes & bit != 0).astype(np.int64)
    return values


def empty_run() -> RecordRun:
    """Return a run without records: it has all fields, and so the names and types of the columns."""
    return RecordRun(
        table=np.zeros((0, c.COLUMNS), np.int64),
        columns=np.zeros((c.RECORD_FIELDS, 0), np.int64),
        data=np.zeros(0, np.uint8),
        start_position=0,
        end_position=0,
    )
