"""The records of `__consumer_offsets` for share groups (KIP-932)."""

from __future__ import annotations

from kcompact.format.coordinator.consumer_groups import (
    GROUP_KEY,
    MEMBER_KEY,
    PARTITIONS_OF_TOPIC,
    TARGET_ASSIGNMENT_MEMBER,
    TARGET_ASSIGNMENT_METADATA,
)
from kcompact.format.coordinator.records import RecordType
from kcompact.format.coordinator.schema import INT8, INT32, INT64, STRING, UUID, Array, Field, struct

SHARE_GROUP_MEMBER_METADATA = RecordType(
    10,
    "ShareGroupMemberMetadata",
    key=MEMBER_KEY,
    value=struct(
        Field("rackId", STRING, nullable=True),
        Field("clientId", STRING),
        Field("clientHost", STRING),
        Field("subscribedTopicNames", Array(STRING)),
    ),
)
SHARE_GROUP_METADATA = RecordType(
    11, "ShareGroupMetadata", key=GROUP_KEY, value=struct(Field("epoch", INT32), Field("metadataHash", INT64))
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = RecordType(
    12, "ShareGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = RecordType(
    13, "ShareGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = RecordType(
    14,
    "ShareGroupCurrentMemberAssignment",
    key=MEMBER_KEY,
    value=struct(
        Field("memberEpoch", INT32),
        Field("previousMemberEpoch", INT32),
        Field("state", INT8),
        Field("assignedPartitions", Array(PARTITIONS_OF_TOPIC)),
    ),
)

_TOPIC = struct(Field("topicId", UUID), Field("topicName", STRING))
_TOPIC_PARTITIONS = struct(*_TOPIC.fields, Field("partitions", Array(INT32)))

SHARE_GROUP_STATE_PARTITION_METADATA = RecordType(
    15,
    "ShareGroupStatePartitionMetadata",
    key=GROUP_KEY,
    value=struct(
        Field("initializingTopics", Array(_TOPIC_PARTITIONS)),
        Field("initializedTopics", Array(_TOPIC_PARTITIONS)),
        Field("deletingTopics", Array(_TOPIC)),
    ),
)

SHARE_GROUP_RECORDS = (
    SHARE_GROUP_MEMBER_METADATA,
    SHARE_GROUP_METADATA,
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    SHARE_GROUP_STATE_PARTITION_METADATA,
)
