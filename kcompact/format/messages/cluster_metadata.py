"""All records of `__cluster_metadata` with their fields, as `kafka-dump-log.sh --cluster-metadata-decoder` prints them.

A metadata log and its snapshots consist of record batches, like the log of any partition. A data record has no key.
Its value is

    frame version   unsigned varint, 1
    type            unsigned varint: which kind of record
    version         unsigned varint: which version of that kind
    fields          those of the kind, all versions are flexible

A cleaning depends on the records in `MetadataKind`, which say the topics and their settings. They are read strictly,
because a wrong setting would make a cleaning remove the wrong records. A later version of these can mean something
else, so it is refused. Records that decide nothing may have any type and version.
Rules: `AbstractApiMessageSerde.read`, `MetadataRecordType`, Kafka's schemas of metadata records; KIP-500 and KIP-631
(the records), KIP-868 (transactions).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from kcompact.errors import CorruptBatchError
from kcompact.format.messages.schema import (
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
    FieldReader,
    Fields,
    MessageField,
    MessageType,
    Struct,
    UnknownVersionError,
    by_number,
    read_fields,
    read_struct,
    struct,
    unknown_record,
)

FRAME_VERSION = 1
_SHORT_MAX = (1 << 15) - 1


class MetadataKind(enum.IntEnum):
    """The types of records that a cleaning depends on."""

    REGISTER_BROKER = 0
    UNREGISTER_BROKER = 1
    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    BROKER_REGISTRATION_CHANGE = 17
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


class ResourceType(enum.IntEnum):
    """The resource of a `CONFIG` record. The other types (loggers, groups ...) have no settings of topics."""

    TOPIC = 2
    BROKER = 4


class MetadataRecord(NamedTuple):
    """One record: its type, the version of its fields, and the fields."""

    type: MessageType
    version: int
    fields: Fields


def decode_metadata(value: bytes | None) -> MetadataRecord:
    """Return the fields of a record.

    Raises ValueError for a type or version that Kafka does not have, and where bytes contradict the schema.
    """
    if value is None:
        raise ValueError("no value")
    reader = FieldReader(value)
    number, version = _type_and_version(reader)
    return _decoded(reader, number, version)


class UnknownRecord(NamedTuple):
    """A record whose type or version is unknown, and which decides nothing."""

    number: int
    version: int

    def __str__(self) -> str:
        kind = METADATA_TYPES.get(self.number)
        return f"record type {self.number}" if kind is None else f"version {self.version} of {kind.name}"


def read_record(
    value: bytes | None, *, file: str, position: int, offset: int, key: bytes | None = None
) -> MetadataRecord | UnknownRecord | None:
    """Return a record on which a cleaning depends, None for another type.

    Of a later version of some types only the first fields are read. Raises CorruptBatchError; UnsupportedError for a
    version that is unknown and decides. `file`, `position` (of the batch) and `offset` are for the message.
    """
    try:
        if value is None or key is not None:
            raise ValueError("a metadata record has a value and no key")
        return _strictly_decoded(FieldReader(value, is_strict=True))
    except UnknownVersionError as problem:
        raise unknown_record(
            file=file, position=position, offset=offset, problem=f"metadata record: {problem}", hint=_OTHER_SOURCES
        ) from None
    except ValueError as problem:
        raise CorruptBatchError(
            file=file, position=position, offset=offset, problem=f"metadata record: {problem}"
        ) from None


_OTHER_SOURCES = (
    "Or read the settings of the topics from a running cluster with --bootstrap-server; or copy the partition "
    "directory elsewhere and pass its settings with --config."
)


def _strictly_decoded(reader: FieldReader) -> MetadataRecord | UnknownRecord | None:
    number, version = _type_and_version(reader)
    if number > _SHORT_MAX or version > _SHORT_MAX:
        raise ValueError(f"record type {number}, version {version}: out of range")
    kind = METADATA_TYPES.get(number)
    if kind is None or (number not in _KINDS and version > kind.last_version):
        return UnknownRecord(number, version)
    if number not in _KINDS:
        return None
    if number not in _FIRST_FIELDS:
        return _decoded(reader, number, version)
    return _partly_decoded(reader, kind, version)


def _partly_decoded(reader: FieldReader, kind: MessageType, version: int) -> MetadataRecord | UnknownRecord:
    """Return the fields of a record that matter. A later version may have others between them."""
    is_known = version <= kind.last_version
    read, known, later = _FIRST_FIELDS[kind.number]
    try:
        fields = read(reader, known if is_known else later, version, flexible=True)
    except ValueError:
        if is_known:
            raise
        return UnknownRecord(kind.number, version)
    if is_known and kind.number in _NEXT_FIELDS:
        read, following = _NEXT_FIELDS[kind.number]
        with suppress(ValueError):  # They decide nothing of what a cleaning removes.
            fields |= read(reader, following, version, flexible=True)
    return MetadataRecord(kind, version, fields)


def _type_and_version(reader: FieldReader) -> tuple[int, int]:
    if (frame := reader.uvarint()) != FRAME_VERSION:
        raise UnknownVersionError(f"frame version {frame} is unknown")
    number, version = reader.uvarints(2)
    return number, version


def _decoded(reader: FieldReader, number: int, version: int) -> MetadataRecord:
    kind = METADATA_TYPES.get(number)
    if kind is None:
        raise ValueError(f"record type {number} is unknown")
    fields = kind.read(reader, version)
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes after the last field")
    return MetadataRecord(kind, version, fields)


_ENDPOINT = struct(
    MessageField("name", STRING),
    MessageField("host", STRING),
    MessageField("port", UINT16),
    MessageField("securityProtocol", INT16),
)
_FEATURE = struct(
    MessageField("name", STRING), MessageField("minSupportedVersion", INT16), MessageField("maxSupportedVersion", INT16)
)

METADATA_TYPES = by_number(
    MessageType(
        0,
        "REGISTER_BROKER_RECORD",
        struct(
            MessageField("brokerId", INT32),
            MessageField("isMigratingZkBroker", BOOL, since=2),
            MessageField("incarnationId", UUID),
            MessageField("brokerEpoch", INT64),
            MessageField("endPoints", Array(_ENDPOINT)),
            MessageField("features", Array(_FEATURE)),
            MessageField("rack", STRING, nullable=True),
            MessageField("fenced", BOOL),
            MessageField("inControlledShutdown", BOOL, since=1),
            MessageField("logDirs", Array(UUID), since=3, tag=0, default=[]),
            MessageField("cordonedLogDirs", Array(UUID), since=4, nullable=True, tag=1),
        ),
        last_version=4,
    ),
    MessageType(
        1,
        "UNREGISTER_BROKER_RECORD",
        struct(
            MessageField("brokerId", INT32),
            MessageField("brokerEpoch", INT64),
        ),
    ),
    MessageType(
        2,
        "TOPIC_RECORD",
        struct(
            MessageField("name", STRING),
            MessageField("topicId", UUID),
        ),
    ),
    MessageType(
        3,
        "PARTITION_RECORD",
        struct(
            MessageField("partitionId", INT32),
            MessageField("topicId", UUID),
            MessageField("replicas", Array(INT32)),
            MessageField("isr", Array(INT32)),
            MessageField("removingReplicas", Array(INT32)),
            MessageField("addingReplicas", Array(INT32)),
            MessageField("leader", INT32),
            MessageField("leaderRecoveryState", INT8, tag=0, default=0),
            MessageField("leaderEpoch", INT32),
            MessageField("partitionEpoch", INT32),
            MessageField("directories", Array(UUID), since=1),
            MessageField("eligibleLeaderReplicas", Array(INT32), since=2, nullable=True, tag=1),
            MessageField("lastKnownElr", Array(INT32), since=2, nullable=True, tag=2),
        ),
        last_version=2,
    ),
    MessageType(
        4,
        "CONFIG_RECORD",
        struct(
            MessageField("resourceType", INT8),
            MessageField("resourceName", STRING),
            MessageField("name", STRING),
            MessageField("value", STRING, nullable=True),
        ),
    ),
    MessageType(
        5,
        "PARTITION_CHANGE_RECORD",
        struct(
            MessageField("partitionId", INT32),
            MessageField("topicId", UUID),
            MessageField("isr", Array(INT32), nullable=True, tag=0),
            MessageField("leader", INT32, tag=1, default=-2),
            MessageField("replicas", Array(INT32), nullable=True, tag=2),
            MessageField("removingReplicas", Array(INT32), nullable=True, tag=3),
            MessageField("addingReplicas", Array(INT32), nullable=True, tag=4),
            MessageField("leaderRecoveryState", INT8, tag=5, default=-1),
            MessageField("directories", Array(UUID), since=1, nullable=True, tag=8),
            MessageField("eligibleLeaderReplicas", Array(INT32), since=2, nullable=True, tag=6),
            MessageField("lastKnownElr", Array(INT32), since=2, nullable=True, tag=7),
        ),
        last_version=2,
    ),
    MessageType(
        7,
        "FENCE_BROKER_RECORD",
        struct(
            MessageField("id", INT32),
            MessageField("epoch", INT64),
        ),
    ),
    MessageType(
        8,
        "UNFENCE_BROKER_RECORD",
        struct(
            MessageField("id", INT32),
            MessageField("epoch", INT64),
        ),
    ),
    MessageType(
        9,
        "REMOVE_TOPIC_RECORD",
        struct(
            MessageField("topicId", UUID),
        ),
    ),
    MessageType(
        10,
        "DELEGATION_TOKEN_RECORD",
        struct(
            MessageField("owner", STRING),
            MessageField("requester", STRING),
            MessageField("renewers", Array(STRING)),
            MessageField("issueTimestamp", INT64),
            MessageField("maxTimestamp", INT64),
            MessageField("expirationTimestamp", INT64),
            MessageField("tokenId", STRING),
        ),
    ),
    MessageType(
        11,
        "USER_SCRAM_CREDENTIAL_RECORD",
        struct(
            MessageField("name", STRING),
            MessageField("mechanism", INT8),
            MessageField("salt", BYTES),
            MessageField("storedKey", BYTES),
            MessageField("serverKey", BYTES),
            MessageField("iterations", INT32),
        ),
    ),
    MessageType(
        12,
        "FEATURE_LEVEL_RECORD",
        struct(
            MessageField("name", STRING),
            MessageField("featureLevel", INT16),
        ),
    ),
    MessageType(
        14,
        "CLIENT_QUOTA_RECORD",
        struct(
            MessageField(
                "entity",
                Array(struct(MessageField("entityType", STRING), MessageField("entityName", STRING, nullable=True))),
            ),
            MessageField("key", STRING),
            MessageField("value", FLOAT64),
            MessageField("remove", BOOL),
        ),
    ),
    MessageType(
        15,
        "PRODUCER_IDS_RECORD",
        struct(
            MessageField("brokerId", INT32),
            MessageField("brokerEpoch", INT64),
            MessageField("nextProducerId", INT64),
        ),
    ),
    MessageType(
        17,
        "BROKER_REGISTRATION_CHANGE_RECORD",
        struct(
            MessageField("brokerId", INT32),
            MessageField("brokerEpoch", INT64),
            MessageField("fenced", INT8, tag=0, default=0),
            MessageField("inControlledShutdown", INT8, since=1, tag=1, default=0),
            MessageField("logDirs", Array(UUID), since=2, tag=2, default=[]),
            MessageField("cordonedLogDirs", Array(UUID), since=3, nullable=True, tag=3),
        ),
        last_version=3,
    ),
    MessageType(
        18,
        "ACCESS_CONTROL_ENTRY_RECORD",
        struct(
            MessageField("id", UUID),
            MessageField("resourceType", INT8),
            MessageField("resourceName", STRING),
            MessageField("patternType", INT8),
            MessageField("principal", STRING),
            MessageField("host", STRING),
            MessageField("operation", INT8),
            MessageField("permissionType", INT8),
        ),
    ),
    MessageType(
        19,
        "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
        struct(
            MessageField("id", UUID),
        ),
    ),
    MessageType(
        20,
        "NO_OP_RECORD",
        struct(),
    ),
    MessageType(
        21,
        "ZK_MIGRATION_STATE_RECORD",
        struct(
            MessageField("zkMigrationState", INT8),
        ),
    ),
    MessageType(
        22,
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
        struct(
            MessageField("name", STRING),
            MessageField("mechanism", INT8),
        ),
    ),
    MessageType(
        23,
        "BEGIN_TRANSACTION_RECORD",
        struct(
            MessageField("name", STRING, nullable=True, tag=0),
        ),
    ),
    MessageType(
        24,
        "END_TRANSACTION_RECORD",
        struct(),
    ),
    MessageType(
        25,
        "ABORT_TRANSACTION_RECORD",
        struct(
            MessageField("reason", STRING, nullable=True, tag=0),
        ),
    ),
    MessageType(
        26,
        "REMOVE_DELEGATION_TOKEN_RECORD",
        struct(
            MessageField("tokenId", STRING),
        ),
    ),
    MessageType(
        27,
        "REGISTER_CONTROLLER_RECORD",
        struct(
            MessageField("controllerId", INT32),
            MessageField("incarnationId", UUID),
            MessageField("zkMigrationReady", BOOL),
            MessageField("endPoints", Array(_ENDPOINT)),
            MessageField("features", Array(_FEATURE)),
        ),
    ),
    MessageType(
        28,
        "CLEAR_ELR_RECORD",
        struct(
            MessageField("topicName", STRING),
        ),
    ),
    MessageType(
        29,
        "UNREGISTER_CONTROLLER_RECORD",
        struct(
            MessageField("controllerId", INT32),
        ),
    ),
)
"""The types of records, by number."""

_KINDS = frozenset(map(int, MetadataKind))


def _first_fields(kind: MetadataKind, known: int, later: int) -> tuple[Callable[..., Fields], Struct, Struct]:
    return read_fields, _fields_of(kind, 0, known), _fields_of(kind, 0, later)


def _fields_of(kind: MetadataKind, start: int, end: int | None = None) -> Struct:
    return struct(*METADATA_TYPES[kind].value.fields[start:end])


_NEXT_FIELDS: dict[int, tuple[Callable[..., Fields], Struct]] = {
    MetadataKind.PARTITION: (read_fields, _fields_of(MetadataKind.PARTITION, 3, 7)),
    MetadataKind.REGISTER_BROKER: (read_struct, _fields_of(MetadataKind.REGISTER_BROKER, 6)),
    MetadataKind.BROKER_REGISTRATION_CHANGE: (read_struct, _fields_of(MetadataKind.BROKER_REGISTRATION_CHANGE, 2)),
}
"""The fields of a known version that are read behind the first ones, if they can be: who leads a partition and is in
sync, and which log directories a broker has."""
_CHANGE = METADATA_TYPES[MetadataKind.PARTITION_CHANGE].value
_FIRST_FIELDS: dict[int, tuple[Callable[..., Fields], Struct, Struct]] = {
    MetadataKind.REGISTER_BROKER: _first_fields(MetadataKind.REGISTER_BROKER, 6, 1),
    MetadataKind.UNREGISTER_BROKER: _first_fields(MetadataKind.UNREGISTER_BROKER, 1, 1),
    MetadataKind.BROKER_REGISTRATION_CHANGE: _first_fields(MetadataKind.BROKER_REGISTRATION_CHANGE, 2, 1),
    MetadataKind.PARTITION: _first_fields(MetadataKind.PARTITION, 3, 3),
    MetadataKind.PARTITION_CHANGE: (read_struct, _CHANGE, _CHANGE),
}
"""The types whose later versions are read too: how, and which fields of a known and of a later version.

Of a partition only its number, the topic's id and the replicas matter, of a broker its number and the features. Where
these are in a later version of a broker's registration is unknown, apart from the number.
"""
