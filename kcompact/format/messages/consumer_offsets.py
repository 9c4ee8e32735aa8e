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
    Field,
    FieldReader,
    Fields,
    Message,
    Struct,
    Value,
    by_number,
    read_struct,
    struct,
)

# Committed offsets, and groups with the classic protocol

_PARTITION = struct(Field("group", STRING), Field("topic", STRING), Field("partition", INT32))

LEGACY_OFFSET_COMMIT = Message(
    0,
    "LegacyOffsetCommit",
    key=_PARTITION,
    value=struct(Field("offset", INT64), Field("metadata", STRING), Field("commitTimestamp", INT64)),
    flexible_since=1,
)

OFFSET_COMMIT = Message(
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

GROUP_METADATA = Message(
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


# Groups with the consumer protocol

GROUP_KEY = struct(Field("groupId", STRING))
MEMBER_KEY = struct(Field("groupId", STRING), Field("memberId", STRING))

TARGET_ASSIGNMENT_METADATA = struct(
    Field("assignmentEpoch", INT32), Field("assignmentTimestamp", INT64, tag=0, default=0)
)
PARTITIONS_OF_TOPIC = struct(Field("topicId", UUID), Field("partitions", Array(INT32)))
TARGET_ASSIGNMENT_MEMBER = struct(Field("topicPartitions", Array(PARTITIONS_OF_TOPIC)))

CONSUMER_GROUP_METADATA = Message(
    3,
    "ConsumerGroupMetadata",
    key=GROUP_KEY,
    value=struct(Field("epoch", INT32), Field("metadataHash", INT64, tag=0, default=0)),
)

_PARTITION_RACKS = struct(Field("partition", INT32), Field("racks", Array(STRING)))

CONSUMER_GROUP_PARTITION_METADATA = Message(
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

CONSUMER_GROUP_MEMBER_METADATA = Message(
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

CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA = Message(
    6, "ConsumerGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)
CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER = Message(
    7, "ConsumerGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER
)

_OWNED_PARTITIONS = struct(
    Field("topicId", UUID),
    Field("partitions", Array(INT32)),
    Field("assignmentEpochs", Array(INT32), nullable=True, tag=0, default=[]),
)

CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT = Message(
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

CONSUMER_GROUP_REGULAR_EXPRESSION = Message(
    16,
    "ConsumerGroupRegularExpression",
    key=struct(Field("groupId", STRING), Field("regularExpression", STRING)),
    value=struct(Field("topics", Array(STRING)), Field("version", INT64), Field("timestamp", INT64)),
)


# Share groups

SHARE_GROUP_MEMBER_METADATA = Message(
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
SHARE_GROUP_METADATA = Message(
    11, "ShareGroupMetadata", key=GROUP_KEY, value=struct(Field("epoch", INT32), Field("metadataHash", INT64))
)
SHARE_GROUP_TARGET_ASSIGNMENT_METADATA = Message(
    12, "ShareGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)
SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER = Message(
    13, "ShareGroupTargetAssignmentMember", key=MEMBER_KEY, value=TARGET_ASSIGNMENT_MEMBER
)
SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT = Message(
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

_SHARE_TOPIC = struct(Field("topicId", UUID), Field("topicName", STRING))
_TOPIC_PARTITIONS = struct(*_SHARE_TOPIC.fields, Field("partitions", Array(INT32)))

SHARE_GROUP_STATE_PARTITION_METADATA = Message(
    15,
    "ShareGroupStatePartitionMetadata",
    key=GROUP_KEY,
    value=struct(
        Field("initializingTopics", Array(_TOPIC_PARTITIONS)),
        Field("initializedTopics", Array(_TOPIC_PARTITIONS)),
        Field("deletingTopics", Array(_SHARE_TOPIC)),
    ),
)


# Groups of Kafka Streams

_SETTING = struct(Field("key", STRING), Field("value", STRING))

STREAMS_GROUP_METADATA = Message(
    17,
    "StreamsGroupMetadata",
    key=GROUP_KEY,
    value=struct(
        Field("epoch", INT32),
        Field("metadataHash", INT64),
        Field("validatedTopologyEpoch", INT32, tag=0, default=-1),
        Field("lastAssignmentConfigs", Array(_SETTING), nullable=True, tag=1, default=[]),
        Field("storedDescriptionTopologyEpoch", INT32, tag=2, default=-1),
        Field("failedDescriptionTopologyEpoch", INT32, tag=3, default=-1),
    ),
)

STREAMS_GROUP_MEMBER_METADATA = Message(
    19,
    "StreamsGroupMemberMetadata",
    key=MEMBER_KEY,
    value=struct(
        Field("instanceId", STRING, nullable=True),
        Field("rackId", STRING, nullable=True),
        Field("clientId", STRING),
        Field("clientHost", STRING),
        Field("rebalanceTimeoutMs", INT32),
        Field("topologyEpoch", INT32),
        Field("processId", STRING),
        Field("userEndpoint", struct(Field("host", STRING), Field("port", UINT16)), nullable=True),
        Field("clientTags", Array(_SETTING)),
    ),
)

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = Message(
    20, "StreamsGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)

_TASKS = struct(Field("subtopologyId", STRING), Field("partitions", Array(INT32)))

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = Message(
    21,
    "StreamsGroupTargetAssignmentMember",
    key=MEMBER_KEY,
    value=struct(
        Field("activeTasks", Array(_TASKS)),
        Field("standbyTasks", Array(_TASKS)),
        Field("warmupTasks", Array(_TASKS)),
    ),
)

_OWNED_TASKS = struct(*_TASKS.fields, Field("assignmentEpochs", Array(INT32), nullable=True, tag=0, default=[]))

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = Message(
    22,
    "StreamsGroupCurrentMemberAssignment",
    key=MEMBER_KEY,
    value=struct(
        Field("memberEpoch", INT32),
        Field("previousMemberEpoch", INT32),
        Field("state", INT8),
        Field("activeTasks", Array(_OWNED_TASKS)),
        Field("standbyTasks", Array(_OWNED_TASKS)),
        Field("warmupTasks", Array(_OWNED_TASKS)),
        Field("activeTasksPendingRevocation", Array(_OWNED_TASKS)),
        Field("standbyTasksPendingRevocation", Array(_OWNED_TASKS)),
        Field("warmupTasksPendingRevocation", Array(_OWNED_TASKS)),
    ),
)

_INNER_TOPIC = struct(
    Field("name", STRING),
    Field("partitions", INT32),
    Field("replicationFactor", INT16),
    Field("topicConfigs", Array(_SETTING)),
)
_COPARTITION_GROUP = struct(
    Field("sourceTopics", Array(INT16)),
    Field("sourceTopicRegex", Array(INT16)),
    Field("repartitionSourceTopics", Array(INT16)),
)
_SUBTOPOLOGY = struct(
    Field("subtopologyId", STRING),
    Field("sourceTopics", Array(STRING)),
    Field("sourceTopicRegex", Array(STRING)),
    Field("stateChangelogTopics", Array(_INNER_TOPIC)),
    Field("repartitionSinkTopics", Array(STRING)),
    Field("repartitionSourceTopics", Array(_INNER_TOPIC)),
    Field("copartitionGroups", Array(_COPARTITION_GROUP)),
)

STREAMS_GROUP_TOPOLOGY = Message(
    23,
    "StreamsGroupTopology",
    key=GROUP_KEY,
    value=struct(Field("epoch", INT32), Field("subtopologies", Array(_SUBTOPOLOGY))),
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

_PARTITIONS_BY_NAME = Struct((Field("topic", STRING), Field("partitions", Array(INT32))), last_version=3)

SUBSCRIPTION = struct(
    Field("topics", Array(STRING)),
    Field("userData", BYTES, nullable=True),
    Field("ownedPartitions", Array(_PARTITIONS_BY_NAME), since=1),
    Field("generationId", INT32, since=2),
    Field("rackId", STRING, since=3, nullable=True),
)
ASSIGNMENT = struct(Field("assignedPartitions", Array(_PARTITIONS_BY_NAME)), Field("userData", BYTES, nullable=True))


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
