"""The records of `__consumer_offsets` for groups with the consumer protocol (KIP-848)."""

from __future__ import annotations

from kcompact.format.coordinator.records import RecordType
from kcompact.format.coordinator.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Array, Field, struct

GROUP_KEY = struct(Field("groupId", STRING))
MEMBER_KEY = struct(Field("groupId", STRING), Field("memberId", STRING))

TARGET_ASSIGNMENT_METADATA = struct(
    Field("assignmentEpoch", INT32), Field("assignmentTimestamp", INT64, tag=0, default=0)
)
PARTITIONS_OF_TOPIC = struct(Field("topicId", UUID), Field("partitions", Array(INT32)))
TARGET_ASSIGNMENT_MEMBER = struct(Field("topicPartitions", Array(PARTITIONS_OF_TOPIC)))

CONSUMER_GROUP_METADATA = RecordType(
    3,
    "ConsumerGroupMetadata",
    key=GROUP_KEY,
    value=struct(Field("epoch", INT32), Field("metadataHash", INT64, tag=0, default=0)),
)

_PARTITION_RACKS = struct(Field("partition", INT32), Field("racks", Array(STRING)))

CONSUMER_GROUP_PARTITION_METADATA = RecordType(
    4,
    "ConsumerGroupPartitionMetadata",
    key=GROUP_KEY,
    value=struct(
        Field(
            "topics",
            Array(
                struct(
                    Field("topicId", UUID),
                    Field("topicName", STRING),
                    Field("numPartitions", INT32),
                    Field("partitionMetadata", Array(_PARTITION_RACKS)),
                )
            ),
        )
    ),
)

_CLASSIC_PROTOCOL = struct(Field("name", STRING), Field("metadata", BYTES))
_CLASSIC_MEMBER_METADATA = struct(
    Field("sessionTimeoutMs", INT32), Field("supportedProtocols", Array(_CLASSIC_PROTOCOL))
)

CONSUMER_GROUP_MEMBER_METADATA = RecordType(
    5,
    "ConsumerGroupMemberMetadata",
    key=MEMBER_KEY,
    value=struct(
        Field("instanceId", STRING, nullable=True),
        Field("rackId", STRING, nullable=True),
        Field("clientId", STRING),
        Field("clientHost", STRING),
        Field("subscribedTopicNames", Array(STRING)),
        Field("subscribedTopicRegex", STRING, nullable=True),
        Field("rebalanceTimeoutMs", INT32),
        Field("serverAssignor", STRING, nullable=True),
        Field(
            "classicMemberMetadata",
            _CLASSIC_MEMBER_METADATA,
            nullable=True,
            tag=0,
            # Kafka writes null, and takes a missing field for an empty struct.
            default={"sessionTimeoutMs": 0, "supportedProtocols": []},
        ),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = RecordType(
    6, "ConsumerGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = RecordType(
    7, "ConsumerGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER
)

_OWNED_PARTITIONS = struct(
    Field("topicId", UUID),
    Field("partitions", Array(INT32)),
    Field("assignmentEpochs", Array(INT32), nullable=True, tag=0, default=[]),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = RecordType(
    8,
    "ConsumerGroupCurrentMemberAssignment",
    key=MEMBER_KEY,
    value=struct(
        Field("memberEpoch", INT32),
        Field("previousMemberEpoch", INT32),
        Field("state", INT8),
        Field("assignedPartitions", Array(_OWNED_PARTITIONS)),
        Field("partitionsPendingRevocation", Array(_OWNED_PARTITIONS)),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION = RecordType(
    16,
    "ConsumerGroupRegularExpression",
    key=struct(Field("groupId", STRING), Field("regularExpression", STRING)),
    value=struct(Field("topics", Array(STRING)), Field("version", INT64), Field("timestamp", INT64)),
)

CONSUMER_GROUP_RECORDS = (
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_PARTITION_METADATA,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
)
