"""One partition directory as one frozen value. Reads only.

`read_log` reads file names, sizes and times, the indexes, the first batch header of each segment and the headers after
the active segment's last index entry. A plan needs no more, so planning is fast for logs of any size. The batches
themselves are read with `segment_reader.batches`.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kcompact import readable
from kcompact.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, RefusedError
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES, Header, read_header
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
)
from kcompact.format.names import (
    CLUSTER_METADATA_TOPIC,
    MAX_OFFSET,
    DirectoryKind,
    Suffix,
    Temporary,
    TopicPartition,
    is_raft_file,
    parse_directory,
    parse_file_name,
)
from kcompact.format.producer_snapshot import ProducerEntry, parse_snapshot
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kcompact.log.files import FileIdentity, open_regular, read_at, read_file, require_regular
from kcompact.log.index_files import (
    build_indexes,
    index_or_log,
    is_batch,
    read_offset_index,
    read_time_index,
    wrong_entry,
)
from kcompact.log.segment_reader import verified_batches

STAGING_NAME = re.compile(r"\.kcompact-[0-9a-f]{16}")

_SMALL_FILES = frozenset(
    name + temporary for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) for temporary in ("", ".tmp")
)
"""The other files of a partition directory. A broker that is killed while it writes one leaves a `.tmp` file."""

_MOST_NOTED = 20

BROKER_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
"""The checkpoints that only a broker writes. kcompact writes `cleaner-offset-checkpoint` beside a copied partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment: its files, the sizes of its indexes, its first header. Timestamps are Unix milliseconds.

    `largest_timestamp_ms` is that of the last time index entry, or the modification time of the `.log` when the time
    index is empty; Kafka's planner uses the same value and does not read the records. `first_batch_max_timestamp_ms`
    is None for an empty segment. `files` starts with the `.log`.
    """

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp_ms: int
    first_batch_max_timestamp_ms: int | None
    last_modified_ms: int
    files: tuple[FileIdentity, ...]

    @property
    def log_name(self) -> str:
        """The name of the `.log` file."""
        return self.files[0].name

    def has(self, suffix: Suffix) -> bool:
        """Return whether the segment has a file of this kind."""
        return any(file.name.endswith(suffix) for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """The files of a log directory beside its partition directories. A missing checkpoint is None.

    `is_log_dir` is False for a directory that no broker has used, such as the parent of a copied partition.
    """

    path: Path
    cleaner_offsets: dict[TopicPartition, int] | None = None
    log_start_offsets: dict[TopicPartition, int] | None = None
    recovery_points: dict[TopicPartition, int] | None = None
    high_watermarks: dict[TopicPartition, int] | None = None
    is_log_dir: bool = False
    is_clean_shutdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PartitionLog:
    """One partition directory. `segments` are in ascending order; the last one is the active segment.

    `snapshots` maps offsets to producer snapshots. `orphans` are indexes without a `.log` and `deleted` are `.deleted`
    files: a broker removes both when it starts, and kcompact leaves them alone. `leftovers` are the `.cleaned` and
    `.swap` files of an interrupted swap, `staging` the staging directories of interrupted kcompact runs, `foreign` the
    names that Kafka does not use, `notes` remarks for the user. A log with `damage` can be inspected, but not cleaned.

    With `ignores_indexes` no `.index` and no `.timeindex` is read: `index_file` returns None for them. What is missing
    or ignored is built from the batches, with an entry every `index_interval_bytes`.
    """

    directory: Path
    topic_partition: TopicPartition
    log_dir: LogDir
    segments: tuple[Segment, ...]
    snapshots: dict[int, FileIdentity]
    log_start_offset: int
    log_end_offset: int
    checkpoint_offset: int | None
    ignores_indexes: bool = False
    index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES
    orphans: tuple[FileIdentity, ...] = ()
    leftovers: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    staging: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    damage: tuple[CorruptDataError, ...] = ()

    def __str__(self) -> str:
        count = readable.counted(len(self.segments), "segment")
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"{self.topic_partition}: {count}, {readable.size(self.size_bytes)}, {offsets}"

    def __repr__(self) -> str:
        return f"<PartitionLog {self}>"

    @property
    def active_segment(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        """The size of all `.log` files."""
        return sum(segment.size_bytes for segment in self.segments)

    def segments_between(self, start_offset: int, end_offset: int) -> tuple[Segment, ...]:
        """Return the segments that can hold offsets in [`start_offset`, `end_offset`), empty segments included.

        The first is the segment with the greatest base offset at or below `start_offset`, if there is one.
        Rule: `LogSegments.values(from, to)`.
        """
        if start_offset >= end_offset:
            return ()
        at_or_below = [segment.base_offset for segment in self.segments if segment.base_offset <= start_offset]
        first = at_or_below[-1] if at_or_below else start_offset
        return tuple(segment for segment in self.segments if first <= segment.base_offset < end_offset)

    def files_of(self, segment: Segment) -> tuple[FileIdentity, ...]:
        """Return the files of a segment, and the producer snapshot at its base offset, which is deleted with them."""
        snapshot = self.snapshots.get(segment.base_offset)
        return segment.files if snapshot is None else (*segment.files, snapshot)

    def index_file(self, segment: Segment, suffix: Suffix) -> Path | None:
        """Return the path of a segment's `.index` or `.timeindex`; None if there is none, or if it is to be ignored."""
        if self.ignores_indexes or not segment.has(suffix):
            return None
        return (self.directory / segment.log_name).with_suffix(suffix)

    def end_of(self, segment: Segment) -> int:
        """Return the end offset of `segment`: the next segment's base offset, or the log end offset."""
        following = bisect.bisect_right(self.segments, segment.base_offset, key=lambda other: other.base_offset)
        return self.segments[following].base_offset if following < len(self.segments) else self.log_end_offset


def read_log_dir(path: Path) -> LogDir:
    """Return the checkpoints and marker files of a log directory.

    Without `meta.properties` and without a checkpoint that only brokers write, `is_log_dir` is False.
    Raises CorruptCheckpointError for a malformed checkpoint (a broker takes the whole directory offline for one),
    StorageError.
    """
    found: dict[str, dict[TopicPartition, int] | None] = {}
    for name in (CLEANER_OFFSET_CHECKPOINT, *BROKER_CHECKPOINTS):
        file = path / name
        found[name] = parse_offset_checkpoint(read_file(file), file=str(file)) if file.exists() else None
    return LogDir(
        path=path,
        cleaner_offsets=found[CLEANER_OFFSET_CHECKPOINT],
        log_start_offsets=found[LOG_START_OFFSET_CHECKPOINT],
        recovery_points=found[RECOVERY_POINT_CHECKPOINT],
        high_watermarks=found[REPLICATION_OFFSET_CHECKPOINT],
        is_log_dir=is_log_dir(path),
        is_clean_shutdown=(path / CLEAN_SHUTDOWN_FILE).exists(),
    )


def is_log_dir(path: Path) -> bool:
    """Return whether a directory has a file that only a broker writes."""
    return any((path / name).exists() for name in (META_PROPERTIES, *BROKER_CHECKPOINTS))


def is_partition_directory(path: Path) -> bool:
    """Return whether a directory contains `.log` files. Its name does not matter."""
    return path.is_dir() and any(path.glob("[0-9]*.log"))


def partition_directories(log_dir: Path) -> list[Path]:
    """Return the sub-directories whose names `parse_directory` accepts, in order of topic and partition."""
    found = []
    for entry in os.scandir(log_dir):
        # A symbolic link is returned too, so that `read_log` refuses it and the user sees why.
        if entry.is_dir() and (parsed := parse_directory(entry.name)):
            found.append((parsed.topic_partition, entry.name))
    return [log_dir / name for _, name in sorted(found)]


def read_log(
    directory: str | os.PathLike[str],
    *,
    log_dir: LogDir | None = None,
    rebuild_indexes: bool = False,
    index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES,
) -> PartitionLog:
    """Return the state of a partition directory.

    With `rebuild_indexes` the log ignores its index files, here and wherever it is used. Indexes that are missing or
    ignored are computed from the batches, as a broker with this `index.interval.bytes` does. Damage to batches
    and indexes is collected in `PartitionLog.damage`, that of batches first. Raises RefusedError for a directory that
    is not a partition and for a file of Kafka that is not a regular file, CorruptCheckpointError, StorageError.
    """
    directory = Path(directory)
    partition = partition_of(directory)
    log_dir = log_dir or read_log_dir(directory.parent)
    found = _list_files(directory, partition)
    bases = sorted(base for base, files in found.segment_files.items() if Suffix.LOG in files)
    if not bases:
        raise RefusedError(
            path=directory,
            problem="not a partition directory: it contains no .log file",
            hint="Pass a partition directory such as orders-0, or the log directory above it.",
        )
    orphans = [
        file for _, files in sorted(found.segment_files.items()) if Suffix.LOG not in files for file in files.values()
    ]
    reader = _SegmentReader(directory, rebuild_indexes, index_interval_bytes)
    reader.notes += [
        f"{name} is left of a run of another user, such as root; the log does not need it, and `kcompact recover` as "
        "that user removes it"
        for name in found.staging_of_others
    ]
    reader.notes += [f"{file.name} has no .log beside it; a broker would delete it" for file in orphans[:_MOST_NOTED]]
    if len(orphans) > _MOST_NOTED:
        reader.notes.append(f"and {len(orphans) - _MOST_NOTED:,} more indexes have no .log beside them")
    segments = tuple(reader.read(base, found.segment_files[base]) for base in bases)
    log_end_offset = reader.log_end_offset(segments[-1])
    damage = [*reader.damage, *_lost_end(log_dir, partition, log_end_offset)]
    return PartitionLog(
        directory=directory,
        topic_partition=partition,
        log_dir=log_dir,
        segments=segments,
        snapshots=found.snapshots,
        log_start_offset=max((log_dir.log_start_offsets or {}).get(partition, 0), bases[0]),
        log_end_offset=log_end_offset,
        checkpoint_offset=(log_dir.cleaner_offsets or {}).get(partition),
        ignores_indexes=rebuild_indexes,
        index_interval_bytes=index_interval_bytes,
        orphans=tuple(orphans),
        leftovers=tuple(found.leftovers),
        deleted=tuple(found.deleted),
        staging=tuple(found.staging),
        foreign=tuple(found.foreign),
        notes=tuple(reader.notes),
        damage=tuple(sorted(damage, key=lambda problem: isinstance(problem, CorruptIndexError))),
    )


def read_again(log: PartitionLog) -> PartitionLog:
    """Return the state of a log after a change; it ignores its indexes if `log` does. Raises as `read_log` does."""
    return read_log(log.directory, rebuild_indexes=log.ignores_indexes, index_interval_bytes=log.index_interval_bytes)


def partition_of(directory: Path) -> TopicPartition:
    """Return the partition that a directory is named after. Raises RefusedError for another name or a link."""
    parsed = parse_directory(directory.name)
    if parsed is None or parsed.kind is not DirectoryKind.PARTITION:
        why = "its name is not <topic>-<partition>" if parsed is None else f"a broker's -{parsed.kind} directory"
        raise RefusedError(
            path=directory,
            problem=f"not a partition directory: {why}",
            hint="Pass a partition directory such as orders-0, or the log directory above it.",
        )
    if directory.is_symlink():
        raise RefusedError(
            path=directory,
            problem="a symbolic link; the lock and the checkpoints of a partition are in the directory above it",
            hint="Pass the directory that the link points to, if no broker uses it through the link.",
        )
    return parsed.topic_partition


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listing:
    """The names in a partition directory by kind, each list in order of name. The fields are those of `PartitionLog`.

    `staging_of_others` are staging directories that this user may not open: nothing in them was ever renamed out.
    `segment_files` maps base offsets to the files of that name except snapshots: also indexes without a `.log`.
    """

    segment_files: dict[int, dict[Suffix, FileIdentity]] = field(default_factory=dict)
    snapshots: dict[int, FileIdentity] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    staging: list[str] = field(default_factory=list)
    staging_of_others: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def _list_files(directory: Path, partition: TopicPartition) -> _Listing:
    """Return the files of a partition directory. Raises RefusedError if one of Kafka's is not a regular file."""
    found = _Listing()
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name = parse_file_name(entry.name)
        if STAGING_NAME.fullmatch(entry.name):
            # What is no directory is not kcompact's, and recovery stops at it.
            is_closed = entry.is_dir(follow_symlinks=False) and not os.access(
                entry.path, os.R_OK | os.X_OK, effective_ids=True
            )
            (found.staging_of_others if is_closed else found.staging).append(entry.name)
        elif name is None:
            is_raft = partition.topic == CLUSTER_METADATA_TOPIC and is_raft_file(entry.name)
            if entry.name not in _SMALL_FILES and not is_raft:
                found.foreign.append(entry.name)
            else:
                require_regular(directory / entry.name, entry.stat(follow_symlinks=False))
        elif name.temporary is Temporary.DELETED:
            found.deleted.append(entry.name)
        elif name.temporary is not Temporary.NO:
            found.leftovers.append(entry.name)
        else:
            status = entry.stat(follow_symlinks=False)
            require_regular(directory / entry.name, status)
            identity = FileIdentity.of(entry.name, status)
            if name.suffix is Suffix.SNAPSHOT:
                found.snapshots[name.base_offset] = identity
            else:
                found.segment_files.setdefault(name.base_offset, {})[name.suffix] = identity
    return found


def _lost_end(log_dir: LogDir, partition: TopicPartition, log_end_offset: int) -> list[CorruptDataError]:
    """Return the damage of a log that ends below an offset in a checkpoint of its broker, after a clean shutdown.

    The log has lost its end, or the checkpoint is old. A crash loses the tail that was not flushed, and recovery then
    shortens the log. If a clean stop comes before the broker hosts the partition again, the old offset stays beside the
    clean-shutdown file. A broker reduces the first two offsets to the log end, and deletes every segment when the log
    start is above it. Rule: `LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`.
    """
    if not log_dir.is_clean_shutdown:
        return []
    checkpoints = (
        (RECOVERY_POINT_CHECKPOINT, log_dir.recovery_points, "was flushed up to", _REDUCED),
        (REPLICATION_OFFSET_CHECKPOINT, log_dir.high_watermarks, "has the high watermark", _REDUCED),
        (LOG_START_OFFSET_CHECKPOINT, log_dir.log_start_offsets, "starts at", _DELETED),
    )
    damage = []
    for name, offsets, what, hint in checkpoints:
        offset = (offsets or {}).get(partition, 0)
        if offset > log_end_offset:
            problem = f"{partition} {what} offset {offset}, but the log now ends at offset {log_end_offset}"
            damage.append(CorruptDataError(file=log_dir.path / name, problem=problem, hint=hint))
    return damage


_REDUCED = (
    "Start the broker once and stop it cleanly: it lowers this offset. If records are missing, restore the partition "
    "first."
)
_DELETED = "Do not start a broker: it deletes every segment of this partition. Restore the log."


@dataclass(slots=True)
class _SegmentReader:
    """Reads the segments of a directory and collects notes and damage."""

    directory: Path
    ignores_indexes: bool
    index_interval_bytes: int
    notes: list[str] = field(default_factory=list)
    damage: list[CorruptDataError] = field(default_factory=list)

    def read(self, base_offset: int, files: dict[Suffix, FileIdentity]) -> Segment:
        """Return a segment, with the sizes and the last timestamp of its indexes."""
        log = files[Suffix.LOG]
        path = self.directory / log.name
        first_max_timestamp = None
        indexes = _Indexes(_size_of(files, Suffix.INDEX), _size_of(files, Suffix.TIME_INDEX), index.NO_TIMESTAMP)
        try:
            if log.size_bytes:
                with open_regular(path) as descriptor:
                    prefix = read_at(descriptor, HEADER_BYTES, 0, path=path)
                first_max_timestamp = self._first_header(prefix, path, base_offset).max_timestamp
            indexes = self._indexes(path, files)
        except CorruptIndexError as problem:
            self.damage.append(index_or_log(problem))
        except CorruptDataError as problem:
            self.damage.append(problem)
        return Segment(
            base_offset=base_offset,
            size_bytes=log.size_bytes,
            index_bytes=indexes.index_bytes,
            time_index_bytes=indexes.time_index_bytes,
            largest_timestamp_ms=indexes.last_timestamp if indexes.last_timestamp >= 0 else log.mtime_ms,
            first_batch_max_timestamp_ms=first_max_timestamp,
            last_modified_ms=log.mtime_ms,
            files=tuple(files[suffix] for suffix in Suffix if suffix in files),
        )

    def _first_header(self, prefix: bytes, log: Path, base_offset: int) -> Header:
        """Return the first header of a segment. Raises CorruptBatchError if it begins below the segment.

        Offsets are not in the checksum, so the name of the file is all that contradicts a wrong one. A broker can write
        such a batch after a failed append; then it is refused too.
        """
        header = read_header(prefix, file=str(log), position=0)
        if header.base_offset < base_offset:
            problem = f"offset {header.base_offset} is below the base offset of its segment"
            raise CorruptBatchError(file=log, problem=problem, position=0, offset=header.base_offset)
        return header

    def _indexes(self, log: Path, files: dict[Suffix, FileIdentity]) -> _Indexes:
        """Return what the planner takes from the indexes, or from ones built from the batches."""
        missing = [suffix for suffix in (Suffix.INDEX, Suffix.TIME_INDEX) if suffix not in files]
        if missing:
            self.notes.append(f"{log.name} has no {missing[0]} beside it; the plan uses one built from its batches")
        if missing or self.ignores_indexes:
            offset_index, time_index = build_indexes(log, interval_bytes=self.index_interval_bytes)
            times = index.parse_time_index(time_index, base_offset=int(log.stem), file=str(log))
            return _Indexes(len(offset_index), len(time_index), _last_timestamp(times))
        times = read_time_index(log.with_suffix(Suffix.TIME_INDEX))
        return _Indexes(_size_of(files, Suffix.INDEX), _size_of(files, Suffix.TIME_INDEX), _last_timestamp(times))

    def log_end_offset(self, active: Segment) -> int:
        """Return the offset after the active segment's last batch, or its base offset when it has no batch.

        Verifies the batches from the last offset index entry on. Rule: `LogSegment.readNextOffset`,
        `LogSegment.ensureOffsetInRange`.
        """
        limit = min(MAX_OFFSET, active.base_offset + index.MAX_RELATIVE_OFFSET + 1)
        log = self.directory / active.log_name
        start_position, end_offset = 0, active.base_offset
        damage: CorruptDataError | None = None
        try:
            start_position = self._last_indexed_position(active)
        except CorruptIndexError as problem:
            damage = index_or_log(problem)
        try:
            for batch in verified_batches(
                log,
                base_offset=0,
                end_offset=limit,
                start_position=start_position,
                end_position=active.size_bytes,
                holds_large=False,
            ):
                end_offset = batch.header.next_offset
        except CorruptBatchError as problem:
            damage = problem
        if damage is not None:
            self.damage.append(damage)
        return end_offset

    def _last_indexed_position(self, active: Segment) -> int:
        """Return the position of the last batch in the `.index`, 0 without one. Raises CorruptIndexError."""
        log = self.directory / active.log_name
        path = log.with_suffix(Suffix.INDEX)
        if self.ignores_indexes or not active.has(Suffix.INDEX):
            return 0
        entries = read_offset_index(path)
        if not entries:
            return 0
        index.verify_end(entries, size_bytes=active.size_bytes, file=str(path))
        last = entries[-1]
        if not is_batch(log, last.position, active.base_offset + last.relative_offset):
            raise wrong_entry(path, len(entries) - 1, last)
        return last.position


class _Indexes(NamedTuple):
    """What the planner takes from the indexes of a segment: their sizes and the last timestamp."""

    index_bytes: int
    time_index_bytes: int
    last_timestamp: int


_ENTRY_BYTES = {Suffix.INDEX: index.OFFSET_ENTRY_BYTES, Suffix.TIME_INDEX: index.TIME_ENTRY_BYTES}


def _size_of(files: Mapping[Suffix, FileIdentity], suffix: Suffix) -> int:
    """Return the size of the whole entries of an index, 0 if it is missing."""
    return files[suffix].size_bytes // _ENTRY_BYTES[suffix] * _ENTRY_BYTES[suffix] if suffix in files else 0


def _last_timestamp(times: Sequence[index.TimeEntry]) -> int:
    return times[-1].timestamp if times else index.NO_TIMESTAMP


def read_snapshot(directory: Path, identity: FileIdentity) -> tuple[ProducerEntry, ...]:
    """Return the entries of a producer snapshot. Raises CorruptCheckpointError, StorageError."""
    path = directory / identity.name
    return tuple(parse_snapshot(read_file(path), file=str(path)))
