"""The records of `__transaction_state`: the state of each transactional id (KIP-98)."""

from __future__ import annotations

from kcompact.format.coordinator.records import RecordType
from kcompact.format.coordinator.schema import INT8, INT16, INT32, INT64, STRING, Array, Field, struct

_PARTITIONS = struct(Field("topic", STRING), Field("partitionIds", Array(INT32)))

TRANSACTION_LOG = RecordType(
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

TRANSACTION_RECORDS = (TRANSACTION_LOG,)
