"""The records of `__consumer_offsets` for groups of Kafka Streams (KIP-1071)."""

from __future__ import annotations

from kcompact.format.coordinator.consumer_groups import GROUP_KEY, MEMBER_KEY, TARGET_ASSIGNMENT_METADATA
from kcompact.format.coordinator.records import RecordType
from kcompact.format.coordinator.schema import INT8, INT16, INT32, INT64, STRING, UINT16, Array, Field, struct

_SETTING = struct(Field("key", STRING), Field("value", STRING))

STREAMS_GROUP_METADATA = RecordType(
    17,
    "StreamsGroupMetadata",
    key=GROUP_KEY,
    value=struct(
        Field("epoch", INT32),
        Field("metadataHash", INT64),
        Field("validatedTopologyEpoch", INT32, tag=0, default=-1),
        Field("lastAssignmentConfigs", Array(_SETTING), nullable=True, tag=1, default=[]),
    ),
)

STREAMS_GROUP_MEMBER_METADATA = RecordType(
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

STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA = RecordType(
    20, "StreamsGroupTargetAssignmentMetadata", key=GROUP_KEY, value=TARGET_ASSIGNMENT_METADATA
)

_TASKS = struct(Field("subtopologyId", STRING), Field("partitions", Array(INT32)))

STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER = RecordType(
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

STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT = RecordType(
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

STREAMS_GROUP_TOPOLOGY = RecordType(
    23,
    "StreamsGroupTopology",
    key=GROUP_KEY,
    value=struct(Field("epoch", INT32), Field("subtopologies", Array(_SUBTOPOLOGY))),
)

STREAMS_GROUP_RECORDS = (
    STREAMS_GROUP_METADATA,
    STREAMS_GROUP_MEMBER_METADATA,
    STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA,
    STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER,
    STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT,
    STREAMS_GROUP_TOPOLOGY,
)
