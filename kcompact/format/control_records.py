"""The control records of Kafka: the markers that end transactions, and those of a KRaft quorum.

The key has a version and the type, 2 bytes each. The value of a marker is read by `log.batch_headers`; the value of any
other type is a flexible message, which begins with its version.
Rules: `ControlRecordType`, `ControlRecordUtils`, KIP-98, KIP-595 (leaders), KIP-630 (snapshots), KIP-853 (voters).
"""

from __future__ import annotations

from kcompact.format.coordinator.schema import (
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Fields,
    read_struct,
    struct,
)
from kcompact.format.field_reader import FieldReader

_VOTER = struct(Field("voterId", INT32), Field("voterDirectoryId", UUID, since=1))
_ENDPOINT = struct(Field("name", STRING), Field("host", STRING), Field("port", UINT16))
_VERSIONS = struct(Field("minSupportedVersion", INT16), Field("maxSupportedVersion", INT16))
_VOTER_WITH_ENDPOINTS = struct(
    Field("voterId", INT32),
    Field("voterDirectoryId", UUID),
    Field("endpoints", Array(_ENDPOINT)),
    Field("kRaftVersionFeature", _VERSIONS),
)
_VERSION = Field("version", INT16)
_VERSION_BYTES = 2

QUORUM_TYPES = {
    2: (
        "LeaderChange",
        struct(
            _VERSION, Field("leaderId", INT32), Field("voters", Array(_VOTER)), Field("grantingVoters", Array(_VOTER))
        ),
    ),
    3: ("SnapshotHeader", struct(_VERSION, Field("lastContainedLogTimestamp", INT64))),
    4: ("SnapshotFooter", struct(_VERSION)),
    5: ("KRaftVersion", struct(_VERSION, Field("kRaftVersion", INT16))),
    6: ("KRaftVoters", struct(_VERSION, Field("voters", Array(_VOTER_WITH_ENDPOINTS)))),
}
"""The types of a quorum by number: the name that Kafka prints, and the fields."""


def decode_quorum_record(number: int, value: bytes | None) -> tuple[str, Fields] | None:
    """Return the name and the fields of a control record of a quorum, None for another type.

    Raises ValueError where the bytes contradict the schema.
    """
    if number not in QUORUM_TYPES:
        return None
    if value is None:
        raise ValueError("no value")
    name, fields = QUORUM_TYPES[number]
    version = FieldReader(value).integer(_VERSION_BYTES)
    return name, read_struct(FieldReader(value), fields, version, flexible=True)
