"""The writer of log directories: a log as a value in, the files that a broker would have left out.

    directory = log_writer.write(log_dsl.parse("log now=10:00\\n0: a=1 b=2"), log_dir)

Segments hold encoded batches, so a test can also give bytes that no Kafka client writes; they must be whole batches,
because the indexes are made from their headers. `write` takes a whole partition as a value. `write_segment` takes the
batches of one segment as they are made, for logs larger than memory. To damage a file, change it after it is written.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override, TopicConfig, TopicOverrides
from kcompact.format.batch import parse_batches
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    EpochEntry,
    build_leader_epochs,
    build_offset_checkpoint,
    parse_offset_checkpoint,
)
from kcompact.format.index import DEFAULT_INTERVAL_BYTES, AbortedTxn, IndexBuilder, build_txn_index
from kcompact.format.names import TopicPartition, index_name, log_name, snapshot_name, time_index_name, txn_index_name
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA, MetaProperties
from kcompact.release import NEWEST, Release
from tests.support.broker_files import (
    build_clean_shutdown,
    build_meta_properties,
    build_partition_metadata,
    build_snapshot,
)

DAY_ZERO = 1_704_067_200_000  # 2024-01-01T00:00Z
DEFAULT_TIME = DAY_ZERO + 9 * 3_600_000
"""The time of records, and of files that hold none, unless a test says otherwise."""
NO_OVERRIDES = TopicOverrides(origin="metadata-log")
"""The own settings of a topic that is known to have none."""
BROKER = MetaProperties(version=1, cluster_id=None, node_id=1, directory_id=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSpec:
    """A segment. Without `mtime_ms` its files have the greatest timestamp of its batches."""

    base_offset: int
    batches: tuple[bytes, ...] = ()
    mtime_ms: int | None = None

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    @property
    def modified_ms(self) -> int:
        if self.mtime_ms is not None:
            return self.mtime_ms
        return _file_time(max((one.header.max_timestamp for one in parse_batches(self.data, file="")), default=-1))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """A partition and the files of the log directory around it.

    `checkpoint`, `start`, `high_watermark` and `recovery_point` are entries of the log directory's checkpoints; None
    writes none.
    `other_checkpoints` are entries of other partitions in the cleaner's checkpoint. `files` are more files of the
    partition directory, written as they are. `lone`: without `meta.properties` and `.kafka_cleanshutdown`. `unclean`:
    without `.kafka_cleanshutdown`.
    """

    segments: tuple[SegmentSpec, ...]
    name: str = "orders-0"
    now_ms: int = DEFAULT_TIME + 3_600_000
    settings: Mapping[str, str] = field(default_factory=dict)
    checkpoint: int | None = None
    start: int | None = None
    high_watermark: int | None = None
    recovery_point: int | None = None
    other_checkpoints: Mapping[TopicPartition, int] = field(default_factory=dict)
    snapshots: Mapping[int, tuple[ProducerEntry, ...]] = field(default_factory=dict)
    aborted: Mapping[int, tuple[AbortedTxn, ...]] = field(default_factory=dict)
    leader_epochs: tuple[EpochEntry, ...] = ()
    topic_id: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    meta_properties: MetaProperties = BROKER
    lone: bool = False
    unclean: bool = False
    release: Release = NEWEST

    @property
    def topic_partition(self) -> TopicPartition:
        parsed = TopicPartition.parse(self.name)
        assert parsed is not None, self.name
        return parsed

    @property
    def config(self) -> TopicConfig:
        """The effective configuration. `cleanup.policy` is `compact` unless `settings` has another."""
        settings = {"cleanup.policy": "compact", **self.settings}
        return topic_config(
            self.topic_partition.topic,
            overrides=[Override(name=name, value=settings[name]) for name in settings],
            own=NO_OVERRIDES,
            release=self.release,
        )


def write(spec: LogSpec, log_dir: Path) -> Path:
    """Write the partition and the files of the log directory around it; return the partition directory.

    The log directory may hold other partitions: their entries in the checkpoints stay.
    """
    directory = log_dir / spec.name
    directory.mkdir(parents=True)
    interval_bytes = spec.config.index_interval_bytes
    for segment in spec.segments:
        write_segment(
            directory,
            segment.base_offset,
            segment.batches,
            index_interval_bytes=interval_bytes,
            mtime_ms=segment.mtime_ms,
        )
    for name, content in _small_files(spec).items():
        (directory / name).write_bytes(content)
    _write_surroundings(spec, log_dir)
    return directory


def write_segment(
    directory: Path,
    base_offset: int,
    batches: Iterable[bytes],
    *,
    index_interval_bytes: int = DEFAULT_INTERVAL_BYTES,
    mtime_ms: int | None = None,
) -> None:
    """Write the `.log`, `.index` and `.timeindex` of a segment; one batch at a time is in memory."""
    builder = IndexBuilder(base_offset, index_interval_bytes)
    greatest = -1
    with open(directory / log_name(base_offset), "wb") as log:
        for data in batches:
            greatest = max(greatest, _append(builder, data, log.tell()))
            log.write(data)
    modified_ns = (_file_time(greatest) if mtime_ms is None else mtime_ms) * 1_000_000
    offset_index, time_index = builder.finish()
    (directory / index_name(base_offset)).write_bytes(offset_index)
    (directory / time_index_name(base_offset)).write_bytes(time_index)
    for name in (log_name, index_name, time_index_name):
        os.utime(directory / name(base_offset), ns=(modified_ns, modified_ns))


def indexes_of(segment: SegmentSpec, *, interval_bytes: int = DEFAULT_INTERVAL_BYTES) -> tuple[bytes, bytes]:
    """Return the offset index and the time index that Kafka makes for the segment."""
    builder = IndexBuilder(segment.base_offset, interval_bytes)
    _append(builder, segment.data, 0)
    return builder.finish()


def _append(builder: IndexBuilder, data: bytes, position: int) -> int:
    """Add whole batches, the first at `position` of the log, to the indexes; return their greatest timestamp."""
    greatest = -1
    for one in parse_batches(data, file="", position=position):
        header = one.header
        builder.append(header.last_offset, one.position, header.size_bytes, header.max_timestamp)
        greatest = max(greatest, header.max_timestamp)
    return greatest


def _file_time(greatest_timestamp: int) -> int:
    return greatest_timestamp if greatest_timestamp >= 0 else DEFAULT_TIME


def _small_files(spec: LogSpec) -> dict[str, bytes]:
    """Return the files of the partition that are no `.log` and no index of one."""
    found = {txn_index_name(base): build_txn_index(aborted) for base, aborted in spec.aborted.items()}
    found |= {snapshot_name(offset): build_snapshot(entries) for offset, entries in spec.snapshots.items()}
    if spec.leader_epochs:
        found[LEADER_EPOCH_CHECKPOINT] = build_leader_epochs(spec.leader_epochs)
    if spec.topic_id is not None:
        found[PARTITION_METADATA] = build_partition_metadata(spec.topic_id)
    return found | dict(spec.files)


def _write_surroundings(spec: LogSpec, log_dir: Path) -> None:
    for name, value, others in (
        (CLEANER_OFFSET_CHECKPOINT, spec.checkpoint, spec.other_checkpoints),
        (LOG_START_OFFSET_CHECKPOINT, spec.start, {}),
        (REPLICATION_OFFSET_CHECKPOINT, spec.high_watermark, {}),
        (RECOVERY_POINT_CHECKPOINT, spec.recovery_point, {}),
    ):
        entries = {**others, **({} if value is None else {spec.topic_partition: value})}
        if entries:
            path = log_dir / name
            present = parse_offset_checkpoint(path.read_bytes(), file=name) if path.exists() else {}
            path.write_bytes(build_offset_checkpoint({**present, **entries}))
    if not spec.lone:
        (log_dir / META_PROPERTIES).write_bytes(build_meta_properties(spec.meta_properties))
        if not spec.unclean:
            (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(build_clean_shutdown(1))
