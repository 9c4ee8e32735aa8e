"""The records of `__consumer_offsets`: committed offsets, and the groups of all protocols.

The members of a classic group are bytes inside its record. If its protocol type is `consumer`, the bytes are
subscription and assignment of a consumer. Those of other groups, such as the groups of Kafka Connect, have other
formats and stay as they are.
Rules: Kafka's schemas of the group coordinator, `ConsumerProtocol`, `DumpLogSegments`; KIP-848 (consumer protocol),
KIP-932 (share groups), KIP-1071 (Kafka Streams).
"""

from __future__ import annotations

import base64
import contextlib

from kcompact.format.messages.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    INT64,
    NO_UUID,
    STRING,
    UINT16,
    UUID,
    Array,
    FieldReader,
    Fields,
    MessageField,
    MessageType,
    Struct,
    Value,
    by_number,
    read_struct,
    struct,
)

# Committed offsets, and groups with the classic protocol

_PARTITION = struct(MessageField("group", STRING), MessageField("topic", STRING), MessageField("partition", INT32))

LEGACY_OFFSET_COMMIT = MessageType(
    0,
    "LegacyOffsetCommit",
    key=_PARTITION,
    value=struct(
        MessageField("offset", INT64), MessageField("metadata", STRING), MessageField("commitTimestamp", INT64)
    ),
    flexible_since=1,
)

OFFSET_COMMIT = MessageType(
    1,
    "OffsetCommit",
    key=_PARTITION,
    value=struct(
        MessageField("offset", INT64),
        MessageField("leaderEpoch", INT32, since=3),
        MessageField("metadata", STRING),
        MessageField("commitTimestamp", INT64),
        MessageField("expireTimestamp", INT64, since=1, until=1),
        MessageField("topicId", UUID, since=4, tag=0, default=NO_UUID),
    ),
    last_version=4,
    flexible_since=4,
)

_CLASSIC_MEMBER = struct(
    MessageField("memberId", STRING),
    MessageField("groupInstanceId", STRING, since=3, nullable=True),
    MessageField("clientId", STRING),
    MessageField("clientHost", STRING),
    MessageField("rebalanceTimeout", INT32, since=1),
    MessageField("sessionTimeout", INT32),
    MessageField("subscription", BYTES),
    MessageField("assignment", BYTES),
)

GROUP_METADATA = MessageType(
    2,
    "GroupMetadata",
    key=struct(MessageField("group", STRING)),
    value=struct(
        MessageField("protocolType", STRING),
        MessageField("generation", INT32),
        MessageField("protocol", STRING, nullable=True),
        MessageField("leader", STRING, nullable=True),
        MessageField("currentStateTimestamp", INT64, since=2),
        MessageField("members", Array(_CLASSIC_MEMBER)),
    ),
    last_version=4,
    flexible_since=4,
)


# Groups with the consumer protocol

GROUP_KEY = struct(MessageField("groupId", STRING))
MEMBER_KEY = struct(MessageField("groupId", STRING), MessageField("memberId", STRING))

TARGET_ASSIGNMENT_METADATA = struct(
    MessageField("assignmentEpoch", INT32), MessageField("assignmentTimestamp", INT64, tag=0, default=0)
)
PARTITIONS_OF_TOPIC = struct(MessageField("topicId", UUID), MessageField("partitions", Array(INT32)))
TARGET_ASSIGNMENT_MEMBER = struct(MessageField("topicPartitions", Array(PARTITIONS_OF_TOPIC)))

CONSUMER_GROUP_METADATA = MessageType(
    3,
    "ConsumerGroupMetadata",
    key=GROUP_KEY,
    value=struct(MessageField("epoch", INT32), MessageField("metadataHash", INT64, tag=0, default=0)),
)

_PARTITION_RACKS = struct(MessageField("partition", INT32), MessageField("racks", Array(STRING)))

CONSUMER_GROUP_PARTITION_METADATA = MessageType(
    4,
    "ConsumerGroupPartitionMetadata",
    key=GROUP_KEY,
    value=struct(
        MessageField(
            "topics",
            Array(
                struct(
                    MessageField("topicId", UUID),
                    MessageField("topicName", STRING),
                    MessageField("numPartitions", INT32),
                    MessageField("partitionMetadata", Array(_PARTITION_RACKS)),
                )
            ),
        )
    ),
)

_CLASSIC_PROTOCOL = struct(MessageField("name", STRING), MessageField("metadata", BYTES))
_CLASSIC_MEMBER_METADATA = struct(
    MessageField("sessionTimeoutMs", INT32), MessageField("supportedProtocols", Array(_CLASSIC_PROTOCOL))
)

CONSUMER_GROUP_MEMBER_METADATA = MessageType(
    5,
    "ConsumerGroupMemberMetadata",
    key=MEMBER_KEY,
    value=struct(
        MessageField("instanceId", STRING, nullable=True),
        MessageField("rackId", STRING, nullable=True),
        MessageField("clientId", STRING),
        MessageField("clientHost", STRING),
        MessageField("subscribedTopicNames", Array(STRING)),
        MessageField("subscribedTopicRegex", STRING, nullable=True),
        MessageField("rebalanceTimeoutMs", INT32),
        MessageField("serverAssignor", STRING, nullable=True),
        MessageField(
            "classicMemberMetadata",
            _CLASSIC_MEMBER_METADATA,
            nullable=True,
            tag=0,
            # Kafka writes null, and takes a missing field for an empty struct.
            default={"sessionTimeoutMs": 0, "supportedProtocols": []},
        ),
    ),
)

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = MessageType(
    6, "ConsumerGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = MessageType(
    7, "ConsumerGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER
)

_OWNED_PARTITIONS = struct(
    MessageField("topicId", UUID),
    MessageField("partitions", Array(INT32)),
    MessageField("assignmentEpochs", Array(INT32), nullable=True, tag=0, default=[]),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = MessageType(
    8,
    "ConsumerGroupCurrentMemberAssignment",
    key=MEMBER_KEY,
    value=struct(
        MessageField("memberEpoch", INT32),
        MessageField("previousMemberEpoch", INT32),
        MessageField("state", INT8),
        MessageField("assignedPartitions", Array(_OWNED_PARTITIONS)),
        MessageField("partitionsPendingRevocation", Array(_OWNED_PARTITIONS)),
    ),
)

CONSUMER_GROUP_REGULAR_EXPRESSION = MessageType(
    16,
    "ConsumerGroupRegularExpression",
    key=struct(MessageField("groupId", STRING), MessageField("regularExpression", STRING)),
    value=struct(
        MessageField("topics", Array(STRING)), MessageField("version", INT64), MessageField("timestamp", INT64)
    ),
)


# Share groups

SHARE_GROUP_MEMBER_METADATA = MessageType(
    10,
    "ShareGroupMemberMetadata",
    key=MEMBER_KEY,
    value=struct(
        MessageField("rackId", STRING, nullable=True),
        MessageField("clientId", STRING),
        MessageField("clientHost", STRING),
        MessageField("subscribedTopicNames", Array(STRING)),
    ),
)
SHARE_GROUP_METADATA = MessageType(
    11,
    "ShareGroupMetadata",
    key=GROUP_KEY,
    value=struct(MessageField("epoch", INT32), MessageField("metadataHash", INT64)),
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = MessageType(
    12, "ShareGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = MessageType(
    13, "ShareGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = MessageType(
    14,
    "ShareGroupCurrentMemberAssignment",
    key=MEMBER_KEY,
    value=struct(
        MessageField("memberEpoch", INT32),
        MessageField("previousMemberEpoch", INT32),
        MessageField("state", INT8),
        MessageField("assignedPartitions", Array(PARTITIONS_OF_TOPIC)),
    ),
)

_SHARE_TOPIC = struct(MessageField("topicId", UUID), MessageField("topicName", STRING))
_TOPIC_PARTITIONS = struct(*_SHARE_TOPIC.fields, MessageField("partitions", Array(INT32)))

SHARE_GROUP_STATE_PARTITION_METADATA = MessageType(
    15,
    "ShareGroupStatePartitionMetadata",
    key=GROUP_KEY,
    value=struct(
        MessageField("initializingTopics", Array(_TOPIC_PARTITIONS)),
        MessageField("initializedTopics", Array(_TOPIC_PARTITIONS)),
        MessageField("deletingTopics", Array(_SHARE_TOPIC)),
    ),
)


# Groups of Kafka Streams

_SETTING = struct(MessageField("key", STRING), MessageField("value", STRING))

STREAMS_GROUP_METADATA = MessageType(
    17,
    "StreamsGroupMetadata",
    key=GROUP_KEY,
    value=struct(
        MessageField("epoch", INT32),
        MessageField("metadataHash", INT64),
        MessageField("validatedTopologyEpoch", INT32, tag=0, default=-1),
        MessageField("lastAssignmentConfigs", Array(_SETTING), nullable=True, tag=1, default=[]),
        MessageField("storedDescriptionTopologyEpoch", INT32, tag=2, default=-1),
        MessageField("failedDescriptionTopologyEpoch", INT32, tag=3, default=-1),
    ),
)

STREAMS_GROUP_MEMBER_METADATA = MessageType(
    19,
    "StreamsGroupMemberMetadata",
    key=MEMBER_KEY,
    value=struct(
        MessageField("instanceId", STRING, nullable=True),
        MessageField("rackId", STRING, nullable=True),
        MessageField("clientId", STRING),
        MessageField("clientHost", STRING),
        MessageField("rebalanceTimeoutMs", INT32),
        MessageField("topologyEpoch", INT32),
        MessageField("processId", STRING),
        MessageField("userEndpoint", struct(MessageField("host", STRING), MessageField("port", UINT16)), nullable=True),
        MessageField("clientTags", Array(_SETTING)),
    ),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = MessageType(
    20, "StreamsGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)

_TASKS = struct(MessageField("subtopologyId", STRING), MessageField("partitions", Array(INT32)))

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = MessageType(
    21,
    "StreamsGroupTargetAssignmentMember",
    key=MEMBER_KEY,
    value=struct(
        MessageField("activeTasks", Array(_TASKS)),
        MessageField("standbyTasks", Array(_TASKS)),
        MessageField("warmupTasks", Array(_TASKS)),
    ),
)

_OWNED_TASKS = struct(*_TASKS.fields, MessageField("assignmentEpochs", Array(INT32), nullable=True, tag=0, default=[]))

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = MessageType(
    22,
    "StreamsGroupCurrentMemberAssignment",
    key=MEMBER_KEY,
    value=struct(
        MessageField("memberEpoch", INT32),
        MessageField("previousMemberEpoch", INT32),
        MessageField("state", INT8),
        MessageField("activeTasks", Array(_OWNED_TASKS)),
        MessageField("standbyTasks", Array(_OWNED_TASKS)),
        MessageField("warmupTasks", Array(_OWNED_TASKS)),
        MessageField("activeTasksPendingRevocation", Array(_OWNED_TASKS)),
        MessageField("standbyTasksPendingRevocation", Array(_OWNED_TASKS)),
        MessageField("warmupTasksPendingRevocation", Array(_OWNED_TASKS)),
    ),
)

_INNER_TOPIC = struct(
    MessageField("name", STRING),
    MessageField("partitions", INT32),
    MessageField("replicationFactor", INT16),
    MessageField("topicConfigs", Array(_SETTING)),
)
_COPARTITION_GROUP = struct(
    MessageField("sourceTopics", Array(INT16)),
    MessageField("sourceTopicRegex", Array(INT16)),
    MessageField("repartitionSourceTopics", Array(INT16)),
)
_SUBTOPOLOGY = struct(
    MessageField("subtopologyId", STRING),
    MessageField("sourceTopics", Array(STRING)),
    MessageField("sourceTopicRegex", Array(STRING)),
    MessageField("stateChangelogTopics", Array(_INNER_TOPIC)),
    MessageField("repartitionSinkTopics", Array(STRING)),
    MessageField("repartitionSourceTopics", Array(_INNER_TOPIC)),
    MessageField("copartitionGroups", Array(_COPARTITION_GROUP)),
)

STREAMS_GROUP_TOPOLOGY = MessageType(
    23,
    "StreamsGroupTopology",
    key=GROUP_KEY,
    value=struct(MessageField("epoch", INT32), MessageField("subtopologies", Array(_SUBTOPOLOGY))),
)

CONSUMER_OFFSETS_RECORDS = by_number(
    LEGACY_OFFSET_COMMIT,
    OFFSET_COMMIT,
    GROUP_METADATA,
    CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_PARTITION_METADATA,
    CONSUMER_GROUP_MEMBER_METADATA,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    CONSUMER_GROUP_REGULAR_EXPRESSION,
    SHARE_GROUP_MEMBER_METADATA,
    SHARE_GROUP_METADATA,
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
    SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    SHARE_GROUP_STATE_PARTITION_METADATA,
    STREAMS_GROUP_METADATA,
    STREAMS_GROUP_MEMBER_METADATA,
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    STREAMS_GROUP_TOPOLOGY,
)


# Subscription and assignment of a consumer: each value begins with its version, a number of two bytes

PROTOCOL_TYPE = "consumer"

_PARTITIONS_BY_NAME = Struct((MessageField("topic", STRING), MessageField("partitions", Array(INT32))), last_version=3)

SUBSCRIPTION = struct(
    MessageField("topics", Array(STRING)),
    MessageField("userData", BYTES, nullable=True),
    MessageField("ownedPartitions", Array(_PARTITIONS_BY_NAME), since=1),
    MessageField("generationId", INT32, since=2),
    MessageField("rackId", STRING, since=3, nullable=True),
)
ASSIGNMENT = struct(
    MessageField("assignedPartitions", Array(_PARTITIONS_BY_NAME)), MessageField("userData", BYTES, nullable=True)
)


def with_members_decoded(group: Fields) -> Fields:
    """Return the fields of a classic group with the bytes of its members decoded, where they are of a consumer."""
    members = group.get("members")
    if group.get("protocolType") != PROTOCOL_TYPE or not isinstance(members, list):
        return group
    return group | {"members": [_member(member) for member in members if isinstance(member, dict)]}


def _member(member: Fields) -> Fields:
    subscription, assignment = member["subscription"], member["assignment"]
    return member | {
        "subscription": _decoded(subscription, SUBSCRIPTION),
        "assignment": _decoded(assignment, ASSIGNMENT),
    }


def _decoded(value: Value, schema: Struct) -> Value:
    """Return the fields in bytes that are given in base64, or the bytes as they are if they are no such fields."""
    with contextlib.suppress(ValueError):
        reader = FieldReader(base64.b64decode(str(value)))
        version = max(reader.integer(2), 0)  # Kafka reads a negative version like version 0.
        return read_struct(reader, schema, version, flexible=False)
    return value
