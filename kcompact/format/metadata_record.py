"""Records of a KRaft metadata log: those with topics, topic ids and settings.

A metadata log and its snapshots consist of record batches, like the log of any partition. A data record has no key.
Its value is

    frame version   unsigned varint, 1
    apiKey          unsigned varint: which kind of record
    version         unsigned varint: which version of that kind
    message         the fields; strings and arrays carry their length plus one, 0 is null
    tagged fields   unsigned varint count, then tag, size and bytes of each

Records of other kinds (brokers, access control, quotas ...) are skipped. The kinds in `ApiKey` are parsed strictly,
because a wrong setting would make a cleaning remove the wrong records.
Rules: `AbstractApiMessageSerde`, KIP-500 and KIP-631 (the records), KIP-630 (snapshots), KIP-868 (transactions).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import NamedTuple

from kcompact.errors import CorruptBatchError
from kcompact.format.field_reader import FieldReader

SNAPSHOT_HEADER = 3
SNAPSHOT_FOOTER = 4
"""The types of the control records that begin and end a snapshot."""

FRAME_VERSION = 1
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""The file in a log directory with the first records of a new cluster."""
ID_BYTES = 16
_CHANGED_REPLICAS = 2
"""The tag of the field in a record about a changed partition."""
_SHORT_MAX = (1 << 15) - 1
_SNAPSHOT_NAME = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")


class ApiKey(enum.IntEnum):
    """The kinds of record that are parsed. Values: `apiKey` in Kafka's schemas of metadata records."""

    TOPIC = 2
    PARTITION = 3
    CONFIG = 4
    PARTITION_CHANGE = 5
    REMOVE_TOPIC = 9
    FEATURE_LEVEL = 12
    BEGIN_TRANSACTION = 23
    END_TRANSACTION = 24
    ABORT_TRANSACTION = 25


class ResourceType(enum.IntEnum):
    """The resource of a `ConfigRecord`. The other types (loggers, groups ...) have no settings of topics."""

    TOPIC = 2
    BROKER = 4


class TopicRecord(NamedTuple):
    """A topic was created."""

    name: str
    topic_id: bytes


class PartitionRecord(NamedTuple):
    """A partition was created, or exists (in a snapshot): on the brokers `replicas`. Later fields are not parsed."""

    partition: int
    topic_id: bytes
    replicas: tuple[int, ...]


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
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ConfigRecord
    | RemoveTopicRecord
    | FeatureLevelRecord
    | BeginTransaction
    | EndTransaction
    | AbortTransaction
)

_KNOWN = frozenset(int(key) for key in ApiKey)


class SnapshotName(NamedTuple):
    """A parsed snapshot name. The snapshot replaces the records of the log below `end_offset`."""

    end_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def parse_snapshot_name(name: str) -> SnapshotName | None:
    """Return the parsed name of a snapshot, or None for any other name, also with `.part` or `.deleted` behind it.

    Rule: `Snapshots.parse`.
    """
    match = _SNAPSHOT_NAME.fullmatch(name)
    if match is None or int(match[1]) >= 1 << 63 or int(match[2]) >= 1 << 31:
        return None
    return SnapshotName(end_offset=int(match[1]), epoch=int(match[2]))


def control_type(key: bytes | None, *, file: str, position: int, offset: int) -> int:
    """Return the type of a control record. Raises CorruptBatchError. Rule: `ControlRecordType.parseTypeId`."""
    if key is None or len(key) < 4:
        raise CorruptBatchError(file=file, position=position, offset=offset, problem="a control record without a type")
    return int.from_bytes(key[2:4], "big", signed=True)


# Reading


class _Reader(FieldReader):
    """Reads also the strings and the tagged fields of a metadata record."""

    def nullable_string(self) -> str | None:
        length = self.uvarint()
        if length == 0:
            return None
        try:
            return self.take(length - 1).decode()
        except UnicodeDecodeError:
            raise ValueError("a string that is not UTF-8") from None

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise ValueError("null for a string that is required")
        return text

    def node_ids(self) -> tuple[int, ...]:
        return tuple(self.integer(4) for _ in range(self.uvarint() - 1))

    def tagged_fields(self) -> dict[int, bytes]:
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}


def read_record(
    value: bytes | None, *, file: str, position: int, offset: int, key: bytes | None = None
) -> MetadataRecord | None:
    """Return a data record of a metadata log, or None for a kind that is skipped.

    Raises CorruptBatchError; `file`, `position` (of the batch) and `offset` are for its message.
    """
    try:
        if value is None or key is not None:
            raise ValueError("a metadata record has a value and no key")
        return _read(_Reader(value))
    except ValueError as problem:
        raise CorruptBatchError(
            file=file, position=position, offset=offset, problem=f"metadata record: {problem}"
        ) from None


def _read(reader: _Reader) -> MetadataRecord | None:
    frame, api_key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame != FRAME_VERSION:
        raise ValueError(f"frame version {frame} is unknown")
    if max(api_key, version) > _SHORT_MAX:
        raise ValueError(f"apiKey {api_key}, version {version}: out of range")
    if api_key not in _KNOWN:
        return None
    if api_key == ApiKey.PARTITION:
        # All versions begin with these three fields.
        return PartitionRecord(reader.integer(4), reader.take(ID_BYTES), reader.node_ids())
    if api_key == ApiKey.PARTITION_CHANGE:
        partition, topic_id, changes = reader.integer(4), reader.take(ID_BYTES), reader.tagged_fields()
        replicas = _Reader(changes[_CHANGED_REPLICAS]).node_ids() if _CHANGED_REPLICAS in changes else None
        return PartitionChangeRecord(partition, topic_id, replicas)
    if version != 0:
        raise ValueError(f"version {version} of apiKey {api_key} ({ApiKey(api_key).name.lower()}) is unknown")
    record = _fields(ApiKey(api_key), reader)
    reader.tagged_fields()
    if reader.remaining:
        raise ValueError(f"{reader.remaining} bytes after the last field")
    return record


def _fields(api_key: ApiKey, reader: _Reader) -> MetadataRecord:
    match api_key:
        case ApiKey.TOPIC:
            return TopicRecord(reader.string(), reader.take(ID_BYTES))
        case ApiKey.CONFIG:
            return ConfigRecord(reader.integer(1), reader.string(), reader.string(), reader.nullable_string())
        case ApiKey.REMOVE_TOPIC:
            return RemoveTopicRecord(reader.take(ID_BYTES))
        case ApiKey.FEATURE_LEVEL:
            return FeatureLevelRecord(reader.string(), reader.integer(2))
        case ApiKey.BEGIN_TRANSACTION:
            return BeginTransaction()
        case ApiKey.END_TRANSACTION:
            return EndTransaction()
        case _:
            return AbortTransaction()


# Writing: used only by the tests. kcompact never writes a metadata log.


def build_record(record: MetadataRecord, *, tagged: bytes = b"\0") -> bytes:
    """Return the value of a record of version 0, followed by the encoded `tagged` fields, by default none."""
    body: bytes
    match record:
        case TopicRecord(name, topic_id):
            key, body = ApiKey.TOPIC, _string(name) + topic_id
        case PartitionRecord(partition, topic_id, replicas):
            key, body = ApiKey.PARTITION, partition.to_bytes(4, "big", signed=True) + topic_id + _node_ids(replicas)
        case PartitionChangeRecord(partition, topic_id, changed):
            key, body = ApiKey.PARTITION_CHANGE, partition.to_bytes(4, "big", signed=True) + topic_id
            if changed is not None:
                field = _node_ids(changed)
                tagged = bytes((1, _CHANGED_REPLICAS)) + write_uvarint(len(field)) + field
        case ConfigRecord(resource_type, resource_name, name, value):
            key = ApiKey.CONFIG
            body = resource_type.to_bytes(1, "big", signed=True) + _string(resource_name) + _string(name)
            body += b"\0" if value is None else _string(value)
        case RemoveTopicRecord(topic_id):
            key, body = ApiKey.REMOVE_TOPIC, topic_id
        case FeatureLevelRecord(name, level):
            key, body = ApiKey.FEATURE_LEVEL, _string(name) + level.to_bytes(2, "big", signed=True)
        case BeginTransaction():
            key, body = ApiKey.BEGIN_TRANSACTION, b""
        case EndTransaction():
            key, body = ApiKey.END_TRANSACTION, b""
        case AbortTransaction():
            key, body = ApiKey.ABORT_TRANSACTION, b""
    return bytes((FRAME_VERSION, key, 0)) + body + tagged


def write_uvarint(value: int) -> bytes:
    """Return the shortest encoding of an unsigned integer, seven bits a byte, lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _node_ids(ids: Sequence[int]) -> bytes:
    return write_uvarint(len(ids) + 1) + b"".join(node_id.to_bytes(4, "big", signed=True) for node_id in ids)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return write_uvarint(len(encoded) + 1) + encoded
