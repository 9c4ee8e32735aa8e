"""Records of a metadata log for tests: values to bytes. kcompact only reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kcompact.format.messages.cluster_metadata import FRAME_VERSION, MetadataKind
from kcompact.format.messages.cluster_metadata import MetadataRecord as Decoded
from kcompact.format.properties import decode_uuid

_CHANGED_REPLICAS = 2
"""The tag of the field in a record about a changed partition."""


class RegisterBrokerRecord(NamedTuple):
    """A broker has started. `levels` has the greatest level of each feature that it knows; `log_dirs` are ids.

    A broker that `is_migrating` uses ZooKeeper.
    """

    node_id: int
    levels: tuple[tuple[str, int], ...]
    log_dirs: tuple[str, ...] = ()
    is_migrating: bool = False


class BrokerRegistrationChangeRecord(NamedTuple):
    """A broker has other log directories than it registered; none: they stay."""

    node_id: int
    log_dirs: tuple[str, ...] = ()


class UnregisterBrokerRecord(NamedTuple):
    """A broker was removed from the cluster. Later fields are not parsed."""

    node_id: int


class TopicRecord(NamedTuple):
    """A topic was created."""

    name: str
    topic_id: bytes


class PartitionRecord(NamedTuple):
    """A partition was created, or exists (in a snapshot): on the brokers `replicas`.

    Without `in_sync` and `leader` the record ends there.
    """

    partition: int
    topic_id: bytes
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...] | None = None
    leader: int = -1


class PartitionChangeRecord(NamedTuple):
    """A partition was changed. `replicas` are the brokers that it is on now, None if these stay."""

    partition: int
    topic_id: bytes
    replicas: tuple[int, ...] | None


class ConfigRecord(NamedTuple):
    """A setting was set to `value`, or removed when that is None.

    `resource_name` is the topic or the node id of a broker; "" is the default of all brokers.
    """

    resource_type: int
    resource_name: str
    name: str
    value: str | None


class RemoveTopicRecord(NamedTuple):
    """A topic and its settings were deleted."""

    topic_id: bytes


class FeatureLevelRecord(NamedTuple):
    """A feature of the cluster, such as `metadata.version`, was set to a level."""

    name: str
    level: int


class BeginTransaction(NamedTuple):
    """A transaction begins: its records take effect together at `EndTransaction`."""


class EndTransaction(NamedTuple):
    """The records of the transaction take effect."""


class AbortTransaction(NamedTuple):
    """The records of the transaction are discarded."""


MetadataRecord = (
    RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)


def record_of(decoded: Decoded) -> MetadataRecord:
    """Return what kcompact has read as a value of this module."""
    fields = decoded.fields
    topic_id = decode_uuid(fields.get("topicId", "")) or b""
    replicas = tuple(fields["replicas"]) if "replicas" in fields else None
    match MetadataKind(decoded.type.number):
        case MetadataKind.REGISTER_BROKER:
            levels = tuple((each["name"], each["maxSupportedVersion"]) for each in fields["features"])
            is_migrating = fields.get("isMigratingZkBroker", False)
            return RegisterBrokerRecord(fields["brokerId"], levels, tuple(fields.get("logDirs", ())), is_migrating)
        case MetadataKind.BROKER_REGISTRATION_CHANGE:
            return BrokerRegistrationChangeRecord(fields["brokerId"], tuple(fields.get("logDirs", ())))
        case MetadataKind.UNREGISTER_BROKER:
            return UnregisterBrokerRecord(fields["brokerId"])
        case MetadataKind.TOPIC:
            return TopicRecord(fields["name"], topic_id)
        case MetadataKind.PARTITION:
            return PartitionRecord(fields["partitionId"], topic_id, replicas or ())
        case MetadataKind.PARTITION_CHANGE:
            return PartitionChangeRecord(fields["partitionId"], topic_id, replicas)
        case MetadataKind.CONFIG:
            return ConfigRecord(*fields.values())
        case MetadataKind.REMOVE_TOPIC:
            return RemoveTopicRecord(topic_id)
        case MetadataKind.FEATURE_LEVEL:
            return FeatureLevelRecord(*fields.values())
        case MetadataKind.BEGIN_TRANSACTION:
            return BeginTransaction()
        case MetadataKind.END_TRANSACTION:
            return EndTransaction()
        case MetadataKind.ABORT_TRANSACTION:
            return AbortTransaction()


def build_record(record: MetadataRecord, *, tagged: bytes = b"\0") -> bytes:
    """Return the value of a record of version 0, followed by the encoded `tagged` fields, by default none.

    Log directories make it the version that has them.
    """
    body: bytes
    version = 0
    match record:
        case RegisterBrokerRecord(node_id, levels, log_dirs, is_migrating):
            version = 3 if log_dirs else 2 if is_migrating else 0
            key = MetadataKind.REGISTER_BROKER
            body = (
                _int32(node_id) + bytes([is_migrating] if version >= 2 else ()) + bytes(16 + 8) + b"\1"
            )  # no endpoint
            body += write_uvarint(len(levels) + 1)
            body += b"".join(_string(name) + bytes(2) + level.to_bytes(2, "big") + b"\0" for name, level in levels)
            body += b"\0\0" + bytes(version >= 2)  # no rack, not fenced, no shutdown
            tagged = _tagged(0, _uuids(log_dirs)) if log_dirs else tagged
        case BrokerRegistrationChangeRecord(node_id, log_dirs):
            version, key, body = 2, MetadataKind.BROKER_REGISTRATION_CHANGE, _int32(node_id) + bytes(8)
            tagged = _tagged(2, _uuids(log_dirs)) if log_dirs else tagged
        case UnregisterBrokerRecord(node_id):
            key, body = MetadataKind.UNREGISTER_BROKER, _int32(node_id) + bytes(8)
        case TopicRecord(name, topic_id):
            key, body = MetadataKind.TOPIC, _string(name) + topic_id
        case PartitionRecord(partition, topic_id, replicas, in_sync, leader):
            key, body = MetadataKind.PARTITION, _int32(partition) + topic_id + _node_ids(replicas)
            if in_sync is not None:
                body += _node_ids(in_sync) + 2 * _node_ids(()) + _int32(leader) + bytes(8)
        case PartitionChangeRecord(partition, topic_id, changed):
            key, body = MetadataKind.PARTITION_CHANGE, _int32(partition) + topic_id
            if changed is not None:
                tagged = _tagged(_CHANGED_REPLICAS, _node_ids(changed))
        case ConfigRecord(resource_type, resource_name, name, value):
            key = MetadataKind.CONFIG
            body = resource_type.to_bytes(1, "big", signed=True) + _string(resource_name) + _string(name)
            body += b"\0" if value is None else _string(value)
        case RemoveTopicRecord(topic_id):
            key, body = MetadataKind.REMOVE_TOPIC, topic_id
        case FeatureLevelRecord(name, level):
            key, body = MetadataKind.FEATURE_LEVEL, _string(name) + level.to_bytes(2, "big", signed=True)
        case BeginTransaction():
            key, body = MetadataKind.BEGIN_TRANSACTION, b""
        case EndTransaction():
            key, body = MetadataKind.END_TRANSACTION, b""
        case AbortTransaction():
            key, body = MetadataKind.ABORT_TRANSACTION, b""
    return bytes((FRAME_VERSION, key, version)) + body + tagged


def write_uvarint(value: int) -> bytes:
    """Return the shortest encoding of an unsigned integer, seven bits a byte, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def _tagged(tag: int, field: bytes) -> bytes:
    """Return one tagged field with the count before it."""
    return bytes((1, tag)) + write_uvarint(len(field)) + field


def _uuids(ids: Sequence[str]) -> bytes:
    return write_uvarint(len(ids) + 1) + b"".join(decode_uuid(each) or b"" for each in ids)


def _node_ids(ids: Sequence[int]) -> bytes:
    return write_uvarint(len(ids) + 1) + b"".join(map(_int32, ids))


def _string(text: str) -> bytes:
    encoded = text.encode()
    return write_uvarint(len(encoded) + 1) + encoded
