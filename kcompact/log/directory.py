"""One partition directory as one frozen value. Reads only.

`read_log` looks at names, sizes, times, the ends of the indexes, the first header of each segment and the headers
behind the active segment's last index entry: enough to plan, and quick on any size. The batches themselves are
read with `batches`, from a position to a position, in windows of some megabytes.
"""

from __future__ import annotations

import bisect
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from kcompact.errors import CorruptDataError, RefusedError
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES, read_header
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
)
from kcompact.format.names import DirectoryKind, Suffix, Temporary, TopicPartition, parse_directory, parse_file_name
from kcompact.format.producer_snapshot import ProducerEntry, parse_snapshot
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kcompact.log.files import FileIdentity, open_regular, read_at, read_file
from kcompact.log.segment_reader import headers

STAGING_NAME = re.compile(r"\.kcompact-[0-9a-f]{16}")


_CHECKPOINTS = (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)


_BROKER_CHECKPOINTS = tuple(name for name in _CHECKPOINTS if name != CLEANER_OFFSET_CHECKPOINT)
"""Those that only a broker writes: a lone copy gets a `cleaner-offset-checkpoint` beside it from its first clean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment as its files, indexes and first header describe it. Timestamps are Unix milliseconds.

    `largest_timestamp_ms` is the last entry of the time index, or the time the log file was last modified where
    the index has none: Kafka's planner looks there, not at the records. `files` starts with the `.log`.
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
        return self.files[0].name


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """The files beside the partition directories. A checkpoint that is not there is None."""

    path: Path
    cleaner_offsets: dict[TopicPartition, int] | None = None
    log_start_offsets: dict[TopicPartition, int] | None = None
    recovery_points: dict[TopicPartition, int] | None = None
    high_watermarks: dict[TopicPartition, int] | None = None
    is_log_dir: bool = False
    is_clean_shutdown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLog:
    """One partition directory. `segments` ascend; the last one is the active segment.

    `damage` is what was found wrong on the way: such a log can be looked at, not cleaned. `leftovers` are the
    `.cleaned` and `.swap` files of an interrupted swap, `deleted` files that a broker set aside and will delete when
    it starts, `staging` the directories of an interrupted run of ours, `foreign` names that are no file of Kafka's,
    `notes` remarks that a user should read.
    """

    directory: Path
    topic_partition: TopicPartition
    log_dir: LogDir
    segments: tuple[Segment, ...]
    snapshots: dict[int, FileIdentity]
    log_start_offset: int
    log_end_offset: int
    checkpoint_offset: int | None
    leftovers: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    staging: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    damage: tuple[CorruptDataError, ...] = ()

    @property
    def active_segment(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def segments_between(self, start_offset: int, end_offset: int) -> tuple[Segment, ...]:
        """Return the segments from the one that may hold `start_offset` up to those that start below `end_offset`.

        Rule: `LogSegments.values(from, to)`.
        """
        if start_offset >= end_offset:
            return ()
        at_or_below = [segment.base_offset for segment in self.segments if segment.base_offset <= start_offset]
        first = at_or_below[-1] if at_or_below else start_offset
        return tuple(segment for segment in self.segments if first <= segment.base_offset < end_offset)

    def end_of(self, segment: Segment) -> int:
        """Return the offset that every record of `segment` lies below: the next base, or the log end."""
        following = bisect.bisect_right(self.segments, segment.base_offset, key=lambda other: other.base_offset)
        return self.segments[following].base_offset if following < len(self.segments) else self.log_end_offset


# Reading directories


def read_log_dir(path: Path) -> LogDir:
    """Return the checkpoints and markers of a log directory.

    A directory without any is no log directory, nor is one with a `cleaner-offset-checkpoint` alone.
    Raises CorruptCheckpointError: a broker would take the whole directory offline for it.
    """
    found: dict[str, dict[TopicPartition, int] | None] = {}
    for name in _CHECKPOINTS:
        file = path / name
        found[name] = parse_offset_checkpoint(read_file(file), file=str(file)) if file.exists() else None
    return LogDir(
        path=path,
        cleaner_offsets=found[CLEANER_OFFSET_CHECKPOINT],
        log_start_offsets=found[LOG_START_OFFSET_CHECKPOINT],
        recovery_points=found[RECOVERY_POINT_CHECKPOINT],
        high_watermarks=found[REPLICATION_OFFSET_CHECKPOINT],
        is_log_dir=(path / META_PROPERTIES).exists() or any(found[name] is not None for name in _BROKER_CHECKPOINTS),
        is_clean_shutdown=(path / CLEAN_SHUTDOWN_FILE).exists(),
    )


def is_partition_directory(path: Path) -> bool:
    """Whether the directory holds segments, whatever its name."""
    return path.is_dir() and any(path.glob("[0-9]*.log"))


def partition_directories(log_dir: Path) -> list[Path]:
    """Return the sub-directories of a log directory that are named like partitions, sorted by topic and partition."""
    found = []
    for entry in os.scandir(log_dir):
        # A link is returned too: it is not read, but must not be passed over without a word.
        if entry.is_dir() and (parsed := parse_directory(entry.name)):
            found.append((parsed.topic_partition, entry.name))
    return [log_dir / name for _, name in sorted(found)]


def read_log(directory: Path, *, log_dir: LogDir | None = None, rebuild_indexes: bool = False) -> PartitionLog:
    """Return what a partition directory holds. With `rebuild_indexes` the indexes on the disk count for nothing.

    Damage to batches and indexes is collected in `damage`; raised are only the states in which there is no log to
    speak of: RefusedError for a directory that is no partition, CorruptCheckpointError, StorageError.
    """
    parsed = parse_directory(directory.name)
    if parsed is None or parsed.kind is not DirectoryKind.PARTITION:
        what = "its name is not <topic>-<partition>" if parsed is None else f"a broker's -{parsed.kind} directory"
        raise RefusedError(
            path=directory,
            problem=f"not a partition directory: {what}",
            hint="Pass a partition directory such as orders-0, or the log directory that holds them.",
        )
    if directory.is_symlink():
        raise RefusedError(
            path=directory,
            problem="a symbolic link; the lock and the checkpoints of a partition lie in the directory above it",
            hint="Pass the directory that the link leads to, if no broker uses it through the link.",
        )
    log_dir = log_dir or read_log_dir(directory.parent)
    logs: dict[int, dict[Suffix, FileIdentity]] = {}
    snapshots: dict[int, FileIdentity] = {}
    leftovers, deleted, staging, foreign = [], [], [], []
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name = parse_file_name(entry.name)
        if STAGING_NAME.fullmatch(entry.name):
            staging.append(entry.name)
        elif name is None:
            if entry.name not in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
                foreign.append(entry.name)
        elif name.temporary is Temporary.DELETED:
            deleted.append(entry.name)
        elif name.temporary is not Temporary.NO:
            leftovers.append(entry.name)
        else:
            status = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                raise RefusedError(path=directory / entry.name, problem="not a regular file")
            identity = FileIdentity.of(entry.name, status)
            if name.suffix is Suffix.SNAPSHOT:
                snapshots[name.base_offset] = identity
            else:
                logs.setdefault(name.base_offset, {})[name.suffix] = identity
    bases = sorted(base for base, files in logs.items() if Suffix.LOG in files)
    if not bases:
        raise RefusedError(
            path=directory,
            problem="not a partition directory: it holds no .log file",
            hint="Pass a partition directory such as orders-0, or the log directory that holds them.",
        )
    orphans = [f.name for base, files in sorted(logs.items()) if Suffix.LOG not in files for f in files.values()]

    notes: list[str] = [f"{name} has no .log beside it; a broker would delete it" for name in orphans]
    damage: list[CorruptDataError] = []
    segments = tuple(_read_segment(directory, base, logs[base], rebuild_indexes, notes, damage) for base in bases)
    log_end_offset = _log_end_offset(directory, segments[-1], rebuild_indexes, damage)
    partition = parsed.topic_partition
    recovery_point = (log_dir.recovery_points or {}).get(partition, 0)
    if log_dir.is_clean_shutdown and recovery_point > log_end_offset:
        problem = f"{partition} was on the disk up to offset {recovery_point}, now it ends at {log_end_offset}"
        damage.append(CorruptDataError(file=log_dir.path / RECOVERY_POINT_CHECKPOINT, problem=problem))
    return PartitionLog(
        directory=directory,
        topic_partition=partition,
        log_dir=log_dir,
        segments=segments,
        snapshots=snapshots,
        log_start_offset=max((log_dir.log_start_offsets or {}).get(partition, 0), bases[0]),
        log_end_offset=log_end_offset,
        checkpoint_offset=(log_dir.cleaner_offsets or {}).get(partition),
        leftovers=tuple(leftovers),
        deleted=tuple(deleted),
        staging=tuple(staging),
        foreign=tuple(foreign),
        notes=tuple(notes),
        damage=tuple(damage),
    )


def _read_segment(
    directory: Path,
    base_offset: int,
    files: dict[Suffix, FileIdentity],
    rebuild_indexes: bool,
    notes: list[str],
    damage: list[CorruptDataError],
) -> Segment:
    log = files[Suffix.LOG]
    offset_index, time_index = files.get(Suffix.INDEX), files.get(Suffix.TIME_INDEX)
    index_bytes = offset_index.size_bytes // index.OFFSET_ENTRY_BYTES * index.OFFSET_ENTRY_BYTES if offset_index else 0
    time_index_bytes = time_index.size_bytes // index.TIME_ENTRY_BYTES * index.TIME_ENTRY_BYTES if time_index else 0
    largest_timestamp = -1
    first_max_timestamp = None
    try:
        if log.size_bytes:
            with open_regular(directory / log.name) as descriptor:
                prefix = read_at(descriptor, HEADER_BYTES, 0, path=directory / log.name)
            first_max_timestamp = read_header(prefix, file=str(directory / log.name), position=0).max_timestamp
        if offset_index is None or time_index is None or rebuild_indexes:
            rebuilt = _rebuilt_indexes(directory / log.name, base_offset)
            index_bytes, time_index_bytes = len(rebuilt[0]), len(rebuilt[1])
            entries = index.parse_time_index(rebuilt[1], base_offset=base_offset, file=log.name)
            if offset_index is None or time_index is None:
                missing = Suffix.INDEX if offset_index is None else Suffix.TIME_INDEX
                notes.append(f"{log.name} has no {missing} beside it; the plan uses one made from its batches")
        else:
            path = directory / time_index.name
            entries = index.parse_time_index(read_file(path), base_offset=base_offset, file=str(path))
        if entries:
            largest_timestamp = entries[-1].timestamp
    except CorruptDataError as problem:
        damage.append(problem)
    return Segment(
        base_offset=base_offset,
        size_bytes=log.size_bytes,
        index_bytes=index_bytes,
        time_index_bytes=time_index_bytes,
        largest_timestamp_ms=largest_timestamp if largest_timestamp >= 0 else log.mtime_ms,
        first_batch_max_timestamp_ms=first_max_timestamp,
        last_modified_ms=log.mtime_ms,
        files=tuple(files[suffix] for suffix in Suffix if suffix in files),
    )


def _rebuilt_indexes(path: Path, base_offset: int) -> tuple[bytes, bytes]:
    builder = index.IndexBuilder(base_offset=base_offset)
    for position, header in headers(path):
        builder.append(header.last_offset, position, header.size_bytes, header.max_timestamp)
    return builder.finish()


def _log_end_offset(directory: Path, active: Segment, ignore_index: bool, damage: list[CorruptDataError]) -> int:
    """Return the next offset of the active segment's last batch, or its base when it has none.

    Starts at the last entry of its index, as a broker does (`LogSegment.readNextOffset`).
    """
    path = directory / active.log_name
    start, end_offset = 0, active.base_offset
    for file in active.files:
        if file.name.endswith(Suffix.INDEX) and not ignore_index:
            try:
                entries = index.parse_offset_index(
                    read_file(directory / file.name), base_offset=active.base_offset, file=str(directory / file.name)
                )
                if entries:
                    start = entries[-1].position
                index.verify_end(entries, size_bytes=active.size_bytes, file=str(directory / file.name))
            except CorruptDataError as problem:
                damage.append(problem)
                start = 0
    try:
        for _, header in headers(path, start_position=start, end_position=active.size_bytes):
            end_offset = header.next_offset
    except CorruptDataError as problem:
        damage.append(problem)
    return end_offset


def read_snapshot(directory: Path, identity: FileIdentity) -> tuple[ProducerEntry, ...]:
    """Return the entries of a producer snapshot. Raises CorruptCheckpointError."""
    path = directory / identity.name
    return tuple(parse_snapshot(read_file(path), file=str(path)))
