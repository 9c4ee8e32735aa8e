"""What is known of a record: its own fields and those of its batch, under the names of each output.

The table says what a field means, how it is got from a run of records, and which number stands for none. Keys, values
and headers are bytes, so each output has its own way with them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column, Mask
from kcompact.kernels import columns as c
from kcompact.log.records import RecordRun


class FieldType(Enum):
    """The types of fields."""

    INT16 = auto()
    INT32 = auto()
    INT64 = auto()
    TIME = auto()
    """Unix milliseconds."""
    TRUTH = auto()
    TOPIC = auto()
    TIMESTAMP_TYPE = auto()
    CODEC = auto()
    """A number among the topics, the names of `TimestampType`, those of codecs."""


Rows = Column | slice
Get = Callable[[RecordRun, Rows], Column]
"""Returns a field: of records by their rows in a run, or of batches by theirs in its table."""


class RecordField(NamedTuple):
    """A field of a record, or of a batch. `dumped` is its name in `kafka-dump-log.sh`, `meaning` is for the pages.

    It has no value where it is `none`, or where the attributes of the batch lack the bit `given_by`.
    """

    name: str
    dumped: str
    meaning: str
    type: FieldType
    get: Get
    none: int | None = None
    given_by: int = 0

    def is_null(self, run: RecordRun, rows: Rows, values: Column) -> Mask | None:
        """Return which values are none; None if each is one."""
        if self.given_by:
            mask: Mask = run.table[rows, c.ATTRIBUTES] & self.given_by == 0
            return mask
        return None if self.none is None else values == self.none


def _of_batch(column: int) -> Get:
    return lambda run, rows: run.table[rows, column]


def _bit(bit: int) -> Get:
    return lambda run, rows: (run.table[rows, c.ATTRIBUTES] & bit != 0).astype(np.int64)


def _last_sequence(run: RecordRun, rows: Rows) -> Column:
    """Rule: DefaultRecordBatch.lastSequence."""
    table = run.table[rows]
    base = table[:, c.BASE_SEQUENCE]
    last_sequences: Column = np.where(
        base < 0, -1, (base + table[:, c.LAST_OFFSET] - table[:, c.BASE_OFFSET]) & 0x7FFFFFFF
    )
    return last_sequences


def _named(*fields: RecordField) -> dict[str, RecordField]:
    return {field.name: field for field in fields}


_INT16, _INT32, _INT64 = FieldType.INT16, FieldType.INT32, FieldType.INT64
_TRUTH, _TIME = FieldType.TRUTH, FieldType.TIME
OF_RECORDS = _named(
    RecordField("offset", "offset", "of the record", _INT64, lambda run, rows: run.offset[rows]),
    RecordField(
        "timestamp",
        "time",
        "its timestamp, in Unix milliseconds",
        _TIME,
        lambda run, rows: run.timestamp[rows],
        -1,
    ),
    RecordField("key_size", "keySize", "the bytes of the key", _INT32, lambda run, rows: run.key_size[rows], -1),
    RecordField(
        "value_size", "valueSize", "the bytes of the value", _INT32, lambda run, rows: run.value_size[rows], -1
    ),
    RecordField(
        "sequence", "sequence", "the number that its producer gave it", _INT32, lambda run, rows: run.sequence[rows], -1
    ),
)
"""The fields of records themselves."""
OF_BATCHES = _named(
    RecordField(
        "base_offset", "baseOffset", "the first offset that it has had records of", _INT64, _of_batch(c.BASE_OFFSET)
    ),
    RecordField(
        "last_offset", "lastOffset", "the last offset that it has had records of", _INT64, _of_batch(c.LAST_OFFSET)
    ),
    RecordField("count", "count", "how many records it has", _INT32, _of_batch(c.RECORDS_COUNT)),
    RecordField(
        "base_sequence", "baseSequence", "the sequence of its first record", _INT32, _of_batch(c.BASE_SEQUENCE), -1
    ),
    RecordField("last_sequence", "lastSequence", "the sequence of its last record", _INT32, _last_sequence, -1),
    RecordField("producer_id", "producerId", "who wrote it", _INT64, _of_batch(c.PRODUCER_ID), -1),
    RecordField(
        "producer_epoch", "producerEpoch", "the epoch of this producer", _INT16, _of_batch(c.PRODUCER_EPOCH), -1
    ),
    RecordField(
        "leader_epoch",
        "partitionLeaderEpoch",
        "the epoch of the leader that appended it",
        _INT32,
        _of_batch(c.EPOCH),
        -1,
    ),
    RecordField(
        "is_transactional", "isTransactional", "whether it belongs to a transaction", _TRUTH, _bit(c.TRANSACTIONAL_BIT)
    ),
    RecordField(
        "is_control",
        "isControl",
        "whether it is a transaction marker, or has records of a KRaft quorum",
        _TRUTH,
        _bit(c.CONTROL_BIT),
    ),
    RecordField(
        "delete_horizon",
        "deleteHorizonMs",
        "from when on a cleaning removes its tombstones or its marker, in Unix milliseconds",
        _TIME,
        _of_batch(c.BASE_TIMESTAMP),
        given_by=c.DELETE_HORIZON_BIT,
    ),
    RecordField(
        "position",
        "position",
        "where the batch begins",
        _INT64,
        lambda run, rows: run.start_position + run.table[rows, c.POSITION],
    ),
    RecordField(
        "max_timestamp", "time", "the greatest timestamp, in Unix milliseconds", _TIME, _of_batch(c.MAX_TIMESTAMP), -1
    ),
    RecordField("timestamp_type", "", "who set the timestamp", FieldType.TIMESTAMP_TYPE, _bit(c.LOG_APPEND_TIME_BIT)),
    RecordField("size", "size", "its bytes", _INT32, _of_batch(c.SIZE)),
    RecordField("magic", "magic", "its format", _INT32, _of_batch(c.MAGIC)),
    RecordField(
        "codec",
        "compresscodec",
        "its codec",
        FieldType.CODEC,
        lambda run, rows: run.table[rows, c.ATTRIBUTES] & c.CODEC_MASK,
    ),
    RecordField("crc", "crc", "the checksum in its header", _INT64, _of_batch(c.CRC)),
)
"""The fields of batches, which their records have too."""
