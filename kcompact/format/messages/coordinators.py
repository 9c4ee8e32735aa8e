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
    Field,
    FieldReader,
    Fields,
    Message,
    by_number,
    read_struct,
    struct,
)
from kcompact.format.names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kcompact.values import dataclass

_SHORT_BYTES = 2

# __transaction_state

_PARTITIONS = struct(Field("topic", STRING), Field("partitionIds", Array(INT32)))

TRANSACTION_LOG = Message(
    0,
    "TransactionLog",
    key=struct(Field("transactionalId", STRING)),
    value=struct(
        Field("producerId", INT64),
        Field("previousProducerId", INT64, since=1, tag=0, default=-1),
        Field("nextProducerId", INT64, since=1, tag=1, default=-1),
        Field("producerEpoch", INT16),
        Field("nextProducerEpoch", INT16, since=1, tag=3, default=-1),
        Field("transactionTimeoutMs", INT32),
        Field("transactionStatus", INT8),
        Field("transactionPartitions", Array(_PARTITIONS), nullable=True),
        Field("transactionLastUpdateTimestampMs", INT64),
        Field("transactionStartTimestampMs", INT64),
        Field("clientTransactionVersion", INT16, since=1, tag=2, default=0),
    ),
    last_version=1,
    flexible_since=1,
)

# __share_group_state: what the consumers of share groups have been given

_SHARE_KEY = struct(Field("groupId", STRING), Field("topicId", UUID), Field("partition", INT32))
_DELIVERY_COMPLETE_COUNT = Field("deliveryCompleteCount", INT32, tag=0, default=-1)
_STATE_BATCHES = Field(
    "stateBatches",
    Array(
        struct(
            Field("firstOffset", INT64),
            Field("lastOffset", INT64),
            Field("deliveryState", INT8),
            Field("deliveryCount", INT16),
        )
    ),
)

SHARE_SNAPSHOT = Message(
    0,
    "ShareSnapshot",
    key=_SHARE_KEY,
    value=struct(
        Field("snapshotEpoch", INT32),
        Field("stateEpoch", INT32),
        Field("leaderEpoch", INT32),
        Field("startOffset", INT64),
        _DELIVERY_COMPLETE_COUNT,
        Field("createTimestamp", INT64),
        Field("writeTimestamp", INT64),
        _STATE_BATCHES,
    ),
)
SHARE_UPDATE = Message(
    1,
    "ShareUpdate",
    key=_SHARE_KEY,
    value=struct(
        Field("snapshotEpoch", INT32),
        Field("leaderEpoch", INT32),
        Field("startOffset", INT64),
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

    type: Message
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


def decode_value(kind: Message, value: bytes) -> tuple[int, Fields]:
    """Return the version and the fields of a value. Raises ValueError as `decode`."""
    reader = FieldReader(value)
    version = reader.integer(_SHORT_BYTES)
    return version, kind.read(reader, version)
