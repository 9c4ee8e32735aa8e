"""The records of `__share_group_state`: what the consumers of share groups have been given (KIP-932)."""

from __future__ import annotations

from kcompact.format.coordinator.records import RecordType
from kcompact.format.coordinator.schema import INT8, INT16, INT32, INT64, STRING, UUID, Array, Field, struct

_KEY = struct(Field("groupId", STRING), Field("topicId", UUID), Field("partition", INT32))
_DELIVERY_COMPLETE_COUNT = Field("deliveryCompleteCount", INT32, tag=0, default=-1)
_STATE_BATCHES = Field(
    "stateBatches",
    Array(
        struct(
            Field("firstOffset", INT64),
            Field("lastOffset", INT64),
            Field("deliveryState", INT8),
            Field("deliveryCount", INT16),
        )
    ),
)

SHARE_SNAPSHOT = RecordType(
    0,
    "ShareSnapshot",
    key=_KEY,
    value=struct(
        Field("snapshotEpoch", INT32),
        Field("stateEpoch", INT32),
        Field("leaderEpoch", INT32),
        Field("startOffset", INT64),
        _DELIVERY_COMPLETE_COUNT,
        Field("createTimestamp", INT64),
        Field("writeTimestamp", INT64),
        _STATE_BATCHES,
    ),
)
SHARE_UPDATE = RecordType(
    1,
    "ShareUpdate",
    key=_KEY,
    value=struct(
        Field("snapshotEpoch", INT32),
        Field("leaderEpoch", INT32),
        Field("startOffset", INT64),
        _DELIVERY_COMPLETE_COUNT,
        _STATE_BATCHES,
    ),
)

SHARE_STATE_RECORDS = (SHARE_SNAPSHOT, SHARE_UPDATE)
