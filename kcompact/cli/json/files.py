"""The entries of single files in JSON: indexes, snapshots and checkpoints, with Kafka's names of their fields."""

from __future__ import annotations

from operator import itemgetter

from kcompact.cli.json.fields import INTEGER, STRING, Field, Shape, nullable
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kcompact.format.index import ABORTED_TXN_VERSION
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.format.properties import META_PROPERTIES, PARTITION_METADATA

KAFKAS = "The fields are Kafka's, and so is -1 for none."

OFFSET_ENTRY = Shape(
    "index",
    Field("offset", INTEGER, "of a batch", itemgetter(0)),
    Field("position", INTEGER, "where it begins in the `.log`", itemgetter(1)),
    meaning=KAFKAS,
    variant="index",
)
TIME_ENTRY = Shape(
    "timeindex",
    Field("timestamp", INTEGER, "the greatest one so far", itemgetter(0)),
    Field("offset", INTEGER, "of its record", itemgetter(1)),
    meaning=KAFKAS,
    variant="timeindex",
)
ABORTED_TRANSACTION = Shape(
    "txnindex",
    Field("version", INTEGER, "of the entry", lambda _: ABORTED_TXN_VERSION),
    Field("producerId", INTEGER, "of the aborted transaction", "producer_id"),
    Field("firstOffset", INTEGER, "of the aborted transaction", "first_offset"),
    Field("lastOffset", INTEGER, "of the aborted transaction", "last_offset"),
    Field("lastStableOffset", INTEGER, "when it was aborted", "last_stable_offset"),
    meaning=KAFKAS,
    variant="txnindex",
)


def _first_sequence(entry: ProducerEntry) -> int:
    """Return the sequence number of the first record of the producer's last batch, -1 if no batch is known."""
    return -1 if entry.last_offset < 0 else (entry.last_sequence - entry.offset_delta) & 0x7FFFFFFF


PRODUCER_ENTRY = Shape(
    "snapshot",
    Field("producerId", INTEGER, "the producer", "producer_id"),
    Field("producerEpoch", INTEGER, "its epoch", "producer_epoch"),
    Field("coordinatorEpoch", INTEGER, "of its last marker", "coordinator_epoch"),
    Field("currentTxnFirstOffset", INTEGER, "of its open transaction", "current_txn_first_offset"),
    Field("lastTimestamp", INTEGER, "of its last batch", "timestamp"),
    Field("firstSequence", INTEGER, "of its last batch", _first_sequence),
    Field("lastSequence", INTEGER, "of its last batch", "last_sequence"),
    Field("lastOffset", INTEGER, "of its last batch", "last_offset"),
    Field("offsetDelta", INTEGER, "of its last batch: its last offset less its first one", "offset_delta"),
    meaning=KAFKAS,
    variant="snapshot",
)
LEADER_EPOCH = Shape(
    "leader-epoch-checkpoint",
    Field("epoch", INTEGER, "of a leader"),
    Field("startOffset", INTEGER, "its first offset", "start_offset"),
    meaning=KAFKAS,
    variant="leader-epoch-checkpoint",
)
CHECKPOINT_ENTRY = Shape(
    "offset-checkpoint",
    Field("topic", STRING, "of the partition", lambda item: item[0].topic),
    Field("partition", INTEGER, "its number", lambda item: item[0].partition),
    Field("offset", INTEGER, "its entry", itemgetter(1)),
    meaning=KAFKAS,
    variant="offset-checkpoint",
)

ENTRIES = {
    "index": OFFSET_ENTRY,
    "timeindex": TIME_ENTRY,
    "txnindex": ABORTED_TRANSACTION,
    "snapshot": PRODUCER_ENTRY,
    LEADER_EPOCH_CHECKPOINT: LEADER_EPOCH,
    CLEANER_OFFSET_CHECKPOINT: CHECKPOINT_ENTRY,
    LOG_START_OFFSET_CHECKPOINT: CHECKPOINT_ENTRY,
    RECOVERY_POINT_CHECKPOINT: CHECKPOINT_ENTRY,
    REPLICATION_OFFSET_CHECKPOINT: CHECKPOINT_ENTRY,
    META_PROPERTIES: Shape(
        META_PROPERTIES,
        Field("version", INTEGER, "of the file"),
        Field("cluster_id", nullable(STRING), "of the cluster; null in a file without it"),
        Field("node_id", nullable(INTEGER), "of the broker; null in a file without it"),
        Field("directory_id", nullable(STRING), "of the log directory; null in a file without it"),
        variant=META_PROPERTIES,
    ),
    PARTITION_METADATA: Shape(
        PARTITION_METADATA,
        Field("version", INTEGER, "of the file"),
        Field("topic_id", STRING, "of the topic"),
        variant=PARTITION_METADATA,
    ),
}
"""The shape of an entry by the kind of its file."""
