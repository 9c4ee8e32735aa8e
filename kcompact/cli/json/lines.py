"""The JSON Lines of `inspect --batches` and `records`, which `output.dump` and `output.record_lines` write.

Names and values are those of `kafka-dump-log.sh`, which writes -1 for none.
"""

from __future__ import annotations

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

KAFKAS = "Names and values are those of `kafka-dump-log.sh`, which writes -1 for none."

FILE = Field("file", STRING, "partition and name of the `.log`")
CODEC = Field("compresscodec", choice(tuple(codec.name.lower() for codec in Codec)), "its codec")
MAGIC = Field("magic", INTEGER, "its format")
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
    Field("position", INTEGER, "where the batch begins"),
    *TIMES,
    Field("size", INTEGER, "its bytes"),
    MAGIC,
    CODEC,
    Field("crc", INTEGER, "the checksum in its header"),
    Field("isvalid", BOOLEAN, "whether the checksum is right"),
)

BATCH = Shape(
    "batch",
    FILE,
    Field("baseOffset", INTEGER, "of the header"),
    Field("lastOffset", INTEGER, "of the header"),
    Field("count", INTEGER, "of the header"),
    Field("baseSequence", INTEGER, "of the header"),
    Field("lastSequence", INTEGER, "of the header"),
    Field("producerId", INTEGER, "of the header"),
    Field("producerEpoch", INTEGER, "of the header"),
    Field("partitionLeaderEpoch", INTEGER, "of the header"),
    Field("isTransactional", BOOLEAN, "of the header"),
    Field("isControl", BOOLEAN, "of the header"),
    Field("deleteHorizonMs", nullable(INTEGER), "of the header; null without one"),
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
    Field("offset", INTEGER, "of the record"),
    *TIMES,
    Field("keySize", INTEGER, "the bytes of the key"),
    Field("valueSize", INTEGER, "the bytes of the value"),
)
DATA = "with `--print-data` or a decoder"
CONTENTS = (
    Field("key", ANY, "the key, or its [decoded](records.md#keys-and-values) form", given=DATA),
    Field("keyBase64", STRING, "in place of `key`, if that is no printable text", given=DATA),
    Field("payload", ANY, "the value, or its [decoded](records.md#keys-and-values) form", given=DATA),
    Field("payloadBase64", STRING, "in place of `payload`, if that is no printable text", given=DATA),
    Field("decodeError", STRING, "why the record is listed without decoding", given="if it could not be decoded"),
)

RECORD = Shape(
    "record",
    *RECORD_FACTS,
    Field("sequence", INTEGER, "of the record"),
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
