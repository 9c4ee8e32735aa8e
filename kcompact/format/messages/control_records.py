"""The control records of Kafka: the markers that end transactions, and those of a KRaft quorum.

The key has a version and the type, 2 bytes each. The value of a marker is read by `log.batch_headers`; the value of any
other type is a flexible message, which begins with its version.
Rules: `ControlRecordType`, `ControlRecordUtils`, KIP-98, KIP-595 (leaders), KIP-630 (snapshots), KIP-853 (voters).
"""

from __future__ import annotations

from kcompact.errors import CorruptBatchError
from kcompact.format.messages.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    FieldReader,
    Fields,
    MessageField,
    MessageType,
    by_number,
    struct,
)

_VOTER = struct(MessageField("voterId", INT32), MessageField("voterDirectoryId", UUID, since=1))
_ENDPOINT = struct(MessageField("name", STRING), MessageField("host", STRING), MessageField("port", UINT16))
_VERSIONS = struct(MessageField("minSupportedVersion", INT16), MessageField("maxSupportedVersion", INT16))
_VOTER_WITH_ENDPOINTS = struct(
    MessageField("voterId", INT32),
    MessageField("voterDirectoryId", UUID),
    MessageField("endpoints", Array(_ENDPOINT)),
    MessageField("kRaftVersionFeature", _VERSIONS),
)
_VERSION = MessageField("version", INT16)
_VERSION_BYTES = 2

SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
"""The types of the control records that begin and end a snapshot."""


def _quorum_type(number: int, name: str, *fields: MessageField, last_version: int = 0) -> MessageType:
    return MessageType(number, name, struct(_VERSION, *fields), last_version=last_version)


QUORUM_TYPES = by_number(
    _quorum_type(
        2,
        "LeaderChange",
        MessageField("leaderId", INT32),
        MessageField("voters", Array(_VOTER)),
        MessageField("grantingVoters", Array(_VOTER)),
        last_version=1,
    ),
    _quorum_type(SNAPSHOT_HEADER, "SnapshotHeader", MessageField("lastContainedLogTimestamp", INT64)),
    _quorum_type(SNAPSHOT_FOOTER, "SnapshotFooter"),
    _quorum_type(5, "KRaftVersion", MessageField("kRaftVersion", INT16)),
    _quorum_type(6, "KRaftVoters", MessageField("voters", Array(_VOTER_WITH_ENDPOINTS))),
)
"""The types of a quorum by number, with the names that Kafka prints."""


def control_type(key: bytes | None, *, file: str, position: int, offset: int) -> int:
    """Return the type of a control record. Raises CorruptBatchError. Rule: `ControlRecordType.parseTypeId`."""
    if key is None or len(key) < 4:
        raise CorruptBatchError(file=file, position=position, offset=offset, problem="a control record without a type")
    return int.from_bytes(key[2:4], "big", signed=True)


def decode_quorum_record(number: int, value: bytes | None) -> tuple[str, Fields] | None:
    """Return the name and the fields of a control record of a quorum, None for another type.

    Raises ValueError for a version that is unknown, and where the bytes contradict the schema.
    """
    kind = QUORUM_TYPES.get(number)
    if kind is None:
        return None
    if value is None:
        raise ValueError("no value")
    version = FieldReader(value).integer(_VERSION_BYTES)
    return kind.name, kind.read(FieldReader(value), version)
