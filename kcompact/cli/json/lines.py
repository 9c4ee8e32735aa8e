"""The JSON Lines of `inspect --batches` and `records`, which `output.dump` and `output.record_lines` write.

Names and values are those of `kafka-dump-log.sh`, which writes -1 for none.
"""

from __future__ import annotations

from collections.abc import Mapping

from kcompact.cli.json.fields import (
    ANY,
    BOOLEAN,
    INTEGER,
    STRING,
    Field,
    JsonLine,
    Shape,
    ValueKind,
    choice,
    list_of,
    nullable,
)
from kcompact.format.codec import Codec
from kcompact.format.messages.control_records import QUORUM_TYPES
from kcompact.log.record_fields import OF_BATCHES, OF_RECORDS, FieldType, RecordField

KAFKAS = "Names and values are those of `kafka-dump-log.sh`, which writes -1 for none."

FILE = Field("file", STRING, "partition and name of the `.log`")
KINDS = {
    FieldType.TRUTH: BOOLEAN,
    FieldType.CODEC: choice(tuple(codec.name.lower() for codec in Codec)),
}
"""The values of fields that are no numbers."""


def _fields(table: Mapping[str, RecordField], *names: str) -> list[Field]:
    """Return fields of the table under the names of `kafka-dump-log.sh`."""
    fields = []
    for field in (table[name] for name in names):
        kind = KINDS.get(field.type, INTEGER)
        fields.append(
            Field(field.dumped, nullable(kind), f"{field.meaning}; null without one")
            if field.given_by
            else Field(field.dumped, kind, field.meaning)
        )
    return fields


TIMES = (
    Field("CreateTime", INTEGER, "the timestamp", given="with a timestamp of this type"),
    Field("LogAppendTime", INTEGER, "the timestamp", given="with a timestamp of this type"),
)
NO_TIME = Field("NoTimestampType", INTEGER, "-1", given="in format 0")

UNREADABLE = Shape(
    "unreadable",
    FILE,
    Field("unreadable", STRING, "why a part of the log cannot be read"),
    Field("position", INTEGER, "where this part begins"),
    Field("endPosition", INTEGER, "where it ends"),
    Field("size", INTEGER, "its bytes"),
    Field("afterOffset", nullable(INTEGER), "the last offset before it; null without one"),
    variant="unreadable part",
)

ON_DISK = (
    *_fields(OF_BATCHES, "position"),
    *TIMES,
    *_fields(OF_BATCHES, "size", "magic", "codec", "crc"),
    Field("isvalid", BOOLEAN, "whether the checksum is right"),
)

BATCH = Shape(
    "batch",
    FILE,
    *_fields(
        OF_BATCHES,
        *("base_offset", "last_offset", "count", "base_sequence", "last_sequence", "producer_id", "producer_epoch"),
        *("leader_epoch", "is_transactional", "is_control", "delete_horizon"),
    ),
    *ON_DISK,
    meaning=KAFKAS,
    variant="batch",
)

OLD_BATCH = Shape(
    "batch-of-format-0-or-1",
    FILE,
    Field("offset", INTEGER, "the last offset"),
    NO_TIME,
    *ON_DISK,
    meaning=KAFKAS,
    variant="batch of format 0 or 1",
)

RECORD_FACTS = (
    FILE,
    *_fields(OF_RECORDS, "offset"),
    *TIMES,
    *_fields(OF_RECORDS, "key_size", "value_size"),
)
DATA = "with `--print-data` or a decoder"
CONTENTS = (
    Field("key", ANY, "the key, or its decoded form", given=DATA),
    Field("keyBase64", STRING, "in place of `key`, if that is no printable text", given=DATA),
    Field("payload", ANY, "the value, or its decoded form", given=DATA),
    Field("payloadBase64", STRING, "in place of `payload`, if that is no printable text", given=DATA),
    Field("decodeError", STRING, "why the record is listed without decoding", given="if it could not be decoded"),
)

RECORD = Shape(
    "record",
    *RECORD_FACTS,
    *_fields(OF_RECORDS, "sequence"),
    Field("headerKeys", list_of(STRING), "the names of its headers"),
    *CONTENTS,
    Field("endTxnMarker", choice(("COMMIT", "ABORT")), "what it is", given="of a transaction marker"),
    Field("coordinatorEpoch", INTEGER, "of the marker", given="of a transaction marker"),
    Field("controlType", INTEGER, "the number of an unknown type", given="of another control record"),
    *(
        Field(name, ValueKind({"type": "object"}), "its content, with Kafka's names", given="of this control record")
        for name in (kind.name for kind in QUORUM_TYPES.values())
    ),
    meaning=KAFKAS,
    variant="record",
)

OLD_RECORD = Shape(
    "record-of-format-0-or-1",
    *RECORD_FACTS,
    NO_TIME,
    Field("isValid", BOOLEAN, "whether the checksum is right"),
    Field("crc", nullable(INTEGER), "the checksum; null if the file has changed since"),
    *CONTENTS,
    meaning=KAFKAS,
    variant="record of format 0 or 1",
)

BATCH_LINES = JsonLine("inspect --batches", BATCH, OLD_BATCH, UNREADABLE)
RECORD_LINES = JsonLine("records", RECORD, OLD_RECORD, BATCH, OLD_BATCH, UNREADABLE)
"""With `--batches` also the batches."""
