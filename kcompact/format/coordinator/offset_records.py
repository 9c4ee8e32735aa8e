"""The records of `__consumer_offsets` for committed offsets and for groups with the classic protocol."""

from __future__ import annotations

from kcompact.format.coordinator.records import RecordType
from kcompact.format.coordinator.schema import BYTES, INT32, INT64, NO_UUID, STRING, UUID, Array, Field, struct

_PARTITION = struct(Field("group", STRING), Field("topic", STRING), Field("partition", INT32))

LEGACY_OFFSET_COMMIT = RecordType(
    0,
    "LegacyOffsetCommit",
    key=_PARTITION,
    value=struct(Field("offset", INT64), Field("metadata", STRING), Field("commitTimestamp", INT64)),
    flexible_since=1,
)

OFFSET_COMMIT = RecordType(
    1,
    "OffsetCommit",
    key=_PARTITION,
    value=struct(
        Field("offset", INT64),
        Field("leaderEpoch", INT32, since=3),
        Field("metadata", STRING),
        Field("commitTimestamp", INT64),
        Field("expireTimestamp", INT64, since=1, until=1),
        Field("topicId", UUID, since=4, tag=0, default=NO_UUID),
    ),
    last_version=4,
    flexible_since=4,
)

_CLASSIC_MEMBER = struct(
    Field("memberId", STRING),
    Field("groupInstanceId", STRING, since=3, nullable=True),
    Field("clientId", STRING),
    Field("clientHost", STRING),
    Field("rebalanceTimeout", INT32, since=1),
    Field("sessionTimeout", INT32),
    Field("subscription", BYTES),
    Field("assignment", BYTES),
)

GROUP_METADATA = RecordType(
    2,
    "GroupMetadata",
    key=struct(Field("group", STRING)),
    value=struct(
        Field("protocolType", STRING),
        Field("generation", INT32),
        Field("protocol", STRING, nullable=True),
        Field("leader", STRING, nullable=True),
        Field("currentStateTimestamp", INT64, since=2),
        Field("members", Array(_CLASSIC_MEMBER)),
    ),
    last_version=4,
    flexible_since=4,
)

OFFSET_RECORDS = (LEGACY_OFFSET_COMMIT, OFFSET_COMMIT, GROUP_METADATA)
