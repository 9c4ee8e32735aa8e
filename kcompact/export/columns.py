"""The fields of records that every export has: numbers, truth values, and names from a few.

A field that has no value is null: the time, sequence or producer that Kafka stores as -1, the size of a null key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kcompact.format.codec import Codec
from kcompact.kernels import Column, Mask
from kcompact.kernels import columns as c
from kcompact.log.record_fields import OF_BATCHES, OF_RECORDS, FieldType
from kcompact.log.records import RecordRun

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
CODECS = tuple(codec.name.lower() for codec in Codec)
NO_ROWS: Column = np.zeros(0, np.int64)


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
    yield _same("topic", FieldType.TOPIC, source.topic, len(rows))
    yield _same("partition", FieldType.INT32, source.partition, len(rows))
    yield _same("segment", FieldType.INT64, source.base_offset, len(rows))
    for name in ("offset", "timestamp", "timestamp_type", "key_size", "value_size"):
        yield _field(name, run, rows)


def tail(run: RecordRun, rows: Column) -> Iterator[FieldValues]:
    """Yield the fields that come after key, value and headers."""
    for name in (
        *("base_offset", "leader_epoch", "producer_id", "producer_epoch", "sequence"),
        *("is_transactional", "is_control", "codec", "delete_horizon"),
    ):
        yield _field(name, run, rows)


def _field(name: str, run: RecordRun, rows: Column) -> FieldValues:
    if name in OF_BATCHES:
        field, rows = OF_BATCHES[name], run.batch[rows]
    else:
        field = OF_RECORDS[name]
    values = field.get(run, rows)
    return FieldValues(name, field.type, values, field.is_null(run, rows, values))


def _same(name: str, kind: FieldType, value: int | None, count: int) -> FieldValues:
    return FieldValues(name, kind, np.full(count, value or 0), np.full(count, value is None))


def empty_run() -> RecordRun:
    """Return a run without records: it has all fields, and so the names and types of the columns."""
    return RecordRun(
        table=np.zeros((0, c.COLUMNS), np.int64),
        columns=np.zeros((c.RECORD_FIELDS, 0), np.int64),
        data=np.zeros(0, np.uint8),
        start_position=0,
        end_position=0,
    )
