"""A small log with one of everything: committed, aborted and open transactions, markers, tombstones, four codecs, an
idempotent producer, a cleaned segment, two dirty ones, all kinds of index, snapshots, checkpoints.

    0       cleaned before: unique keys, a tombstone and two markers past their horizon
    9       dirty: a tombstone, a committed and an aborted transaction
    17      dirty: an update and a tombstone
    19      active: an open transaction
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.format.batch import Record, build, parse_batches, read_records, rebuild
from kcompact.format.checkpoint import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    EpochEntry,
    build_offset_checkpoint,
)
from kcompact.format.codec import Codec
from kcompact.format.index import AbortedTxn
from kcompact.format.names import TopicPartition
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.kernels import ABORT, COMMIT
from kcompact.log.markers import BatchHeader, read_marker
from kcompact.log.producer_state import replay
from tests.support import log_writer
from tests.support.log_writer import LogSpec, SegmentSpec

T = 1_700_000_000_000
DAY = 86_400_000
NOW = T + 10 * DAY
HORIZON = T + DAY
RETENTION = DAY
END_OFFSET = 22

PARTITION = TopicPartition("orders", 0)
_COMMITTING, _ABORTED_BEFORE, _ABORTING, _IDEMPOTENT = 7, 8, 9, 5


def _batch(
    base: int,
    pairs: Sequence[tuple[str, str | None]],
    *,
    codec: Codec = Codec.NONE,
    producer: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    epoch: int = 0,
) -> bytes:
    records = [
        Record(base + number, T + base + number, key.encode(), None if value is None else value.encode())
        for number, (key, value) in enumerate(pairs)
    ]
    return build(
        records,
        codec=codec,
        partition_leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
        transactional=transactional,
    )


def _marker(offset: int, producer: int, kind: int, *, epoch: int = 0) -> bytes:
    record = Record(offset, T + offset, bytes([0, 0, 0, kind]), bytes(6))
    return build(
        [record],
        partition_leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def _with_horizon(data: bytes) -> bytes:
    (one,) = parse_batches(data, file="")
    return rebuild(one.header, read_records(one, file=""), delete_horizon_ms=HORIZON)


SEGMENTS = (
    SegmentSpec(
        base_offset=0,
        batches=(
            _batch(0, [("a", "1"), ("b", "1"), ("c", "1")]),
            _with_horizon(
                _batch(3, [("d", "1"), ("z", None)], codec=Codec.GZIP, producer=7, sequence=0, transactional=True)
            ),
            _with_horizon(_marker(5, _COMMITTING, COMMIT)),
            _with_horizon(_marker(8, _ABORTED_BEFORE, ABORT)),
        ),
    ),
    SegmentSpec(
        base_offset=9,
        batches=(
            _batch(9, [("f", "1"), ("c", None)], codec=Codec.SNAPPY, producer=_IDEMPOTENT, sequence=0, epoch=3),
            _batch(11, [("b", "2"), ("g", "1")], codec=Codec.LZ4, producer=8, sequence=4, transactional=True, epoch=3),
            _marker(13, 8, COMMIT, epoch=3),
            _batch(
                14, [("a", "no"), ("h", "no")], codec=Codec.ZSTD, producer=9, sequence=0, transactional=True, epoch=3
            ),
            _marker(16, _ABORTING, ABORT, epoch=3),
        ),
    ),
    SegmentSpec(base_offset=17, batches=(_batch(17, [("f", "2"), ("d", None)], epoch=3),)),
    SegmentSpec(
        base_offset=19,
        batches=(
            _batch(19, [("b", "9"), ("f", "9")], producer=_COMMITTING, sequence=2, transactional=True, epoch=3),
            _batch(21, [("x", "1")], epoch=3),
        ),
    ),
)


def _snapshot(offset: int) -> tuple[ProducerEntry, ...]:
    """Return the producers that the broker has at an offset."""
    headers = []
    for segment in SEGMENTS:
        for one in parse_batches(segment.data, file=""):
            marker = read_marker(one, file="") if one.header.is_control else None
            if one.header.last_offset < offset:
                headers.append(BatchHeader(one.position, one.header, marker))
    lengths = {batch.header.producer_id: batch.header.last_offset_delta for batch in headers if batch.marker is None}
    return tuple(
        ProducerEntry(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_offset=-1 if producer.last_data_offset is None else producer.last_data_offset,
            offset_delta=lengths.get(producer.producer_id, 0),
            # Recent, so that no producer has expired.
            timestamp=NOW - 1000,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_first_offset=-1
            if producer.transaction_first_offset is None
            else producer.transaction_first_offset,
        )
        for producer in replay({}, headers).values()
    )


SPEC = LogSpec(
    name=str(PARTITION),
    segments=SEGMENTS,
    now_ms=NOW,
    settings={"delete.retention.ms": str(RETENTION), "index.interval.bytes": "0", "min.cleanable.dirty.ratio": "0"},
    checkpoint=9,
    high_watermark=END_OFFSET,
    snapshots={offset: _snapshot(offset) for offset in (9, 17, 19, END_OFFSET)},
    aborted={9: (AbortedTxn(producer_id=9, first_offset=14, last_offset=16, last_stable_offset=17),)},
    leader_epochs=(EpochEntry(epoch=0, start_offset=0), EpochEntry(epoch=3, start_offset=9)),
    topic_id="QNLMCLnWRESZK_ap_Xld8w",
    other_checkpoints={TopicPartition("orders", 1): 5},
)


def go_on(log_dir: Path, number: int) -> None:
    """Let the log grow by a segment, as a broker does between two cleanings; `number` is 1 for the first time.

    The first time the open transaction is committed. The broker writes its two checkpoints; the others stay.
    """
    directory = log_dir / SPEC.name
    base = END_OFFSET + 2 * number - 1
    if number == 1:
        active = SEGMENTS[-1]
        batches = [*active.batches, _marker(END_OFFSET, _COMMITTING, COMMIT, epoch=3)]
        log_writer.write_segment(directory, active.base_offset, batches, index_interval_bytes=0)
    added = _batch(base, [("x", str(number)), (f"y{number}", "1")], epoch=3)
    log_writer.write_segment(directory, base, [added], index_interval_bytes=0)
    for name in (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        (log_dir / name).write_bytes(build_offset_checkpoint({PARTITION: base + 2}))


CHECKPOINTS = {
    "recovery-point-offset-checkpoint": build_offset_checkpoint({PARTITION: END_OFFSET}),
    "log-start-offset-checkpoint": build_offset_checkpoint({TopicPartition("other", 0): 3}),
}
"""The files of the log directory that `log_writer` does not write."""
