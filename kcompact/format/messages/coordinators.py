"""One record of a coordinator of Kafka: key and value to fields.

The key begins with the record's type, a number of two bytes; the value begins with the version of its fields. A
record without a value is a tombstone: it removes what an earlier record with the same key has said.

    key      type i16, then the fields of the type's key, never flexible
    value    version i16, then the fields of the type's value in this version

The types of `__transaction_state` and `__share_group_state` are here, those of `__consumer_offsets` in
`consumer_offsets`. Rules: `CoordinatorRecordSerde`, Kafka's schemas of the coordinators; `DumpLogSegments` for the
members of a classic group; KIP-98 (transactions), KIP-932 (share groups).
"""

from __future__ import annotations

from kcompact.format.messages.consumer_offsets import CONSUMER_OFFSETS_RECORDS, GROUP_METADATA, with_members_decoded
from kcompact.format.messages.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Array,
    FieldReader,
    Fields,
    MessageField,
    MessageType,
    by_number,
    read_struct,
    struct,
)
from kcompact.format.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcompact.values import dataclass

_SHORT_BYTES = 2

# __transaction_state

_PARTITIONS = struct(MessageField("topic", STRING), MessageField("partitionIds", Array(INT32)))

TRANSACTION_LOG = MessageType(
    0,
    "TransactionLog",
    key=struct(MessageField("transactionalId", STRING)),
    value=struct(
        MessageField("producerId", INT64),
        MessageField("previousProducerId", INT64, since=1, tag=0, default=-1),
        MessageField("nextProducerId", INT64, since=1, tag=1, default=-1),
        MessageField("producerEpoch", INT16),
        MessageField("nextProducerEpoch", INT16, since=1, tag=3, default=-1),
        MessageField("transactionTimeoutMs", INT32),
        MessageField("transactionStatus", INT8),
        MessageField("transactionPartitions", Array(_PARTITIONS), nullable=True),
        MessageField("transactionLastUpdateTimestampMs", INT64),
        MessageField("transactionStartTimestampMs", INT64),
        MessageField("clientTransactionVersion", INT16, since=1, tag=2, default=0),
    ),
    last_version=1,
    flexible_since=1,
)

# __share_group_state: what the consumers of share groups have been given

_SHARE_KEY = struct(MessageField("groupId", STRING), MessageField("topicId", UUID), MessageField("partition", INT32))
_DELIVERY_COMPLETE_COUNT = MessageField("deliveryCompleteCount", INT32, tag=0, default=-1)
_STATE_BATCHES = MessageField(
    "stateBatches",
    Array(
        struct(
            MessageField("firstOffset", INT64),
            MessageField("lastOffset", INT64),
            MessageField("deliveryState", INT8),
            MessageField("deliveryCount", INT16),
        )
    ),
)

SHARE_SNAPSHOT = MessageType(
    0,
    "ShareSnapshot",
    key=_SHARE_KEY,
    value=struct(
        MessageField("snapshotEpoch", INT32),
        MessageField("stateEpoch", INT32),
        MessageField("leaderEpoch", INT32),
        MessageField("startOffset", INT64),
        _DELIVERY_COMPLETE_COUNT,
        MessageField("createTimestamp", INT64),
        MessageField("writeTimestamp", INT64),
        _STATE_BATCHES,
    ),
)
SHARE_UPDATE = MessageType(
    1,
    "ShareUpdate",
    key=_SHARE_KEY,
    value=struct(
        MessageField("snapshotEpoch", INT32),
        MessageField("leaderEpoch", INT32),
        MessageField("startOffset", INT64),
        _DELIVERY_COMPLETE_COUNT,
        _STATE_BATCHES,
    ),
)


RECORD_TYPES = {
    CONSUMER_OFFSETS: CONSUMER_OFFSETS_RECORDS,
    TRANSACTION_STATE: by_number(TRANSACTION_LOG),
    SHARE_GROUP_STATE: by_number(SHARE_SNAPSHOT, SHARE_UPDATE),
}
"""The types of records of each topic, by number."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The fields of one record. A tombstone has no version and no value."""

    type: MessageType
    key: Fields
    version: int | None = None
    value: Fields | None = None


def decode(topic: str, key: bytes | None, value: bytes | None) -> Decoded:
    """Return the fields of a record of one of the topics above, those of a classic group's members too.

    Raises ValueError for a type or version that Kafka does not have, and where bytes contradict the schema.
    """
    if key is None:
        raise ValueError("no key")
    key_reader = FieldReader(key)
    kind = RECORD_TYPES[topic].get(number := key_reader.integer(_SHORT_BYTES))
    if kind is None:
        raise ValueError(f"record type {number} is unknown")
    key_fields = read_struct(key_reader, kind.key, 0, flexible=False)
    if value is None:
        return Decoded(kind, key_fields)
    version, fields = decode_value(kind, value)
    return Decoded(kind, key_fields, version, with_members_decoded(fields) if kind is GROUP_METADATA else fields)


def decode_value(kind: MessageType, value: bytes) -> tuple[int, Fields]:
    """Return the version and the fields of a value. Raises ValueError as `decode`."""
    reader = FieldReader(value)
    version = reader.integer(_SHORT_BYTES)
    return version, kind.read(reader, version)
