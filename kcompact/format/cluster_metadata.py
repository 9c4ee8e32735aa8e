"""All records of `__cluster_metadata` with their fields, as `kafka-dump-log.sh --cluster-metadata-decoder` prints them.

The value of a record begins with three unsigned varints: the version of the frame, 1; the type; and the version of the
fields that follow. All versions are flexible. `metadata_record` reads from the same bytes the few types that a cleaning
depends on.
Rules: `AbstractApiMessageSerde.read`, `MetadataRecordType`, Kafka's schemas of metadata records.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcompact.format.coordinator.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Array,
    Field,
    Fields,
    Struct,
    read_struct,
    struct,
)
from kcompact.format.field_reader import FieldReader
from kcompact.format.metadata_record import FRAME_VERSION


@dataclass(frozen=True, slots=True)
class MetadataType:
    """A type of record with its fields in all versions from 0 to `last_version`."""

    name: str
    fields: Struct
    last_version: int = 0


@dataclass(frozen=True, slots=True)
class DecodedMetadata:
    """The fields of one record."""

    type: str
    version: int
    fields: Fields


def decode_metadata(value: bytes | None) -> DecodedMetadata:
    """Return the fields of a record.

    Raises ValueError for a type or version that Kafka does not have, and where bytes contradict the schema.
    """
    if value is None:
        raise ValueError("no value")
    reader = FieldReader(value)
    if (frame := reader.uvarint()) != FRAME_VERSION:
        raise ValueError(f"frame version {frame} is unknown")
    number, version = reader.uvarint(), reader.uvarint()
    kind = METADATA_TYPES.get(number)
    if kind is None:
        raise ValueError(f"record type {number} is unknown")
    if version > kind.last_version:
        raise ValueError(f"version {version} of record type {number} ({kind.name}) is unknown")
    fields = read_struct(reader, kind.fields, version, flexible=True)
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes after the last field")
    return DecodedMetadata(kind.name, version, fields)


_ENDPOINT = struct(
    Field("name", STRING), Field("host", STRING), Field("port", UINT16), Field("securityProtocol", INT16)
)
_FEATURE = struct(Field("name", STRING), Field("minSupportedVersion", INT16), Field("maxSupportedVersion", INT16))

METADATA_TYPES = {
    0: MetadataType(
        "REGISTER_BROKER_RECORD",
        struct(
            Field("brokerId", INT32),
            Field("isMigratingZkBroker", BOOL, since=2),
            Field("incarnationId", UUID),
            Field("brokerEpoch", INT64),
            Field("endPoints", Array(_ENDPOINT)),
            Field("features", Array(_FEATURE)),
            Field("rack", STRING, nullable=True),
            Field("fenced", BOOL),
            Field("inControlledShutdown", BOOL, since=1),
            Field("logDirs", Array(UUID), since=3, tag=0, default=[]),
            Field("cordonedLogDirs", Array(UUID), since=4, nullable=True, tag=1),
        ),
        last_version=4,
    ),
    1: MetadataType(
        "UNREGISTER_BROKER_RECORD",
        struct(
            Field("brokerId", INT32),
            Field("brokerEpoch", INT64),
        ),
    ),
    2: MetadataType(
        "TOPIC_RECORD",
        struct(
            Field("name", STRING),
            Field("topicId", UUID),
        ),
    ),
    3: MetadataType(
        "PARTITION_RECORD",
        struct(
            Field("partitionId", INT32),
            Field("topicId", UUID),
            Field("replicas", Array(INT32)),
            Field("isr", Array(INT32)),
            Field("removingReplicas", Array(INT32)),
            Field("addingReplicas", Array(INT32)),
            Field("leader", INT32),
            Field("leaderRecoveryState", INT8, tag=0, default=0),
            Field("leaderEpoch", INT32),
            Field("partitionEpoch", INT32),
            Field("directories", Array(UUID), since=1),
            Field("eligibleLeaderReplicas", Array(INT32), since=2, nullable=True, tag=1),
            Field("lastKnownElr", Array(INT32), since=2, nullable=True, tag=2),
        ),
        last_version=2,
    ),
    4: MetadataType(
        "CONFIG_RECORD",
        struct(
            Field("resourceType", INT8),
            Field("resourceName", STRING),
            Field("name", STRING),
            Field("value", STRING, nullable=True),
        ),
    ),
    5: MetadataType(
        "PARTITION_CHANGE_RECORD",
        struct(
            Field("partitionId", INT32),
            Field("topicId", UUID),
            Field("isr", Array(INT32), nullable=True, tag=0),
            Field("leader", INT32, tag=1, default=-2),
            Field("replicas", Array(INT32), nullable=True, tag=2),
            Field("removingReplicas", Array(INT32), nullable=True, tag=3),
            Field("addingReplicas", Array(INT32), nullable=True, tag=4),
            Field("leaderRecoveryState", INT8, tag=5, default=-1),
            Field("directories", Array(UUID), since=1, nullable=True, tag=8),
            Field("eligibleLeaderReplicas", Array(INT32), since=2, nullable=True, tag=6),
            Field("lastKnownElr", Array(INT32), since=2, nullable=True, tag=7),
        ),
        last_version=2,
    ),
    7: MetadataType(
        "FENCE_BROKER_RECORD",
        struct(
            Field("id", INT32),
            Field("epoch", INT64),
        ),
    ),
    8: MetadataType(
        "UNFENCE_BROKER_RECORD",
        struct(
            Field("id", INT32),
            Field("epoch", INT64),
        ),
    ),
    9: MetadataType(
        "REMOVE_TOPIC_RECORD",
        struct(
            Field("topicId", UUID),
        ),
    ),
    10: MetadataType(
        "DELEGATION_TOKEN_RECORD",
        struct(
            Field("owner", STRING),
            Field("requester", STRING),
            Field("renewers", Array(STRING)),
            Field("issueTimestamp", INT64),
            Field("maxTimestamp", INT64),
            Field("expirationTimestamp", INT64),
            Field("tokenId", STRING),
        ),
    ),
    11: MetadataType(
        "USER_SCRAM_CREDENTIAL_RECORD",
        struct(
            Field("name", STRING),
            Field("mechanism", INT8),
            Field("salt", BYTES),
            Field("storedKey", BYTES),
            Field("serverKey", BYTES),
            Field("iterations", INT32),
        ),
    ),
    12: MetadataType(
        "FEATURE_LEVEL_RECORD",
        struct(
            Field("name", STRING),
            Field("featureLevel", INT16),
        ),
    ),
    14: MetadataType(
        "CLIENT_QUOTA_RECORD",
        struct(
            Field("entity", Array(struct(Field("entityType", STRING), Field("entityName", STRING, nullable=True)))),
            Field("key", STRING),
            Field("value", FLOAT64),
            Field("remove", BOOL),
        ),
    ),
    15: MetadataType(
        "PRODUCER_IDS_RECORD",
        struct(
            Field("brokerId", INT32),
            Field("brokerEpoch", INT64),
            Field("nextProducerId", INT64),
        ),
    ),
    17: MetadataType(
        "BROKER_REGISTRATION_CHANGE_RECORD",
        struct(
            Field("brokerId", INT32),
            Field("brokerEpoch", INT64),
            Field("fenced", INT8, tag=0, default=0),
            Field("inControlledShutdown", INT8, since=1, tag=1, default=0),
            Field("logDirs", Array(UUID), since=2, tag=2, default=[]),
            Field("cordonedLogDirs", Array(UUID), since=3, nullable=True, tag=3),
        ),
        last_version=3,
    ),
    18: MetadataType(
        "ACCESS_CONTROL_ENTRY_RECORD",
        struct(
            Field("id", UUID),
            Field("resourceType", INT8),
            Field("resourceName", STRING),
            Field("patternType", INT8),
            Field("principal", STRING),
            Field("host", STRING),
            Field("operation", INT8),
            Field("permissionType", INT8),
        ),
    ),
    19: MetadataType(
        "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
        struct(
            Field("id", UUID),
        ),
    ),
    20: MetadataType(
        "NO_OP_RECORD",
        struct(),
    ),
    21: MetadataType(
        "ZK_MIGRATION_STATE_RECORD",
        struct(
            Field("zkMigrationState", INT8),
        ),
    ),
    22: MetadataType(
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
        struct(
            Field("name", STRING),
            Field("mechanism", INT8),
        ),
    ),
    23: MetadataType(
        "BEGIN_TRANSACTION_RECORD",
        struct(
            Field("name", STRING, nullable=True, tag=0),
        ),
    ),
    24: MetadataType(
        "END_TRANSACTION_RECORD",
        struct(),
    ),
    25: MetadataType(
        "ABORT_TRANSACTION_RECORD",
        struct(
            Field("reason", STRING, nullable=True, tag=0),
        ),
    ),
    26: MetadataType(
        "REMOVE_DELEGATION_TOKEN_RECORD",
        struct(
            Field("tokenId", STRING),
        ),
    ),
    27: MetadataType(
        "REGISTER_CONTROLLER_RECORD",
        struct(
            Field("controllerId", INT32),
            Field("incarnationId", UUID),
            Field("zkMigrationReady", BOOL),
            Field("endPoints", Array(_ENDPOINT)),
            Field("features", Array(_FEATURE)),
        ),
    ),
    28: MetadataType(
        "CLEAR_ELR_RECORD",
        struct(
            Field("topicName", STRING),
        ),
    ),
}
"""The types of records, by number."""
