"""One partition directory as one frozen value. Reads only.

`read_log` reads file names, sizes and times, the indexes, the first batch header of each segment and the headers after
the active segment's last index entry. A plan needs no more, so planning is fast for logs of any size. The batches
themselves are read with `segment_reader.batches`.
"""

from __future__ import annotations

import bisect
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Generic, TypeVar

from kcompact import readable
from kcompact.bucket.scratch import as_path
from kcompact.errors import (
    CorruptDataError,
    CorruptIndexError,
    KcompactError,
    LogChangedError,
    RefusedError,
    storage_errors,
)
from kcompact.format import index
from kcompact.format.checkpoint import (
    BROKER_CHECKPOINTS,
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_offset_checkpoint,
)
from kcompact.format.names import (
    CLUSTER_METADATA_TOPIC,
    DirectoryKind,
    Suffix,
    Temporary,
    TopicPartition,
    is_raft_file,
    log_name,
    parse_directory,
    parse_file_name,
)
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kcompact.log.broker_recovery import first_recovered
from kcompact.log.files import FileIdentity, Files, LogFile, files_in
from kcompact.log.lock import has_broker
from kcompact.log.segments import Segment, SegmentReader, deleted_segments
from kcompact.readable import shell_word
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

STAGING_NAME = re.compile(r"\.kcompact-[0-9a-f]{16}")
"""The name of a staging directory."""

_SMALL_FILES = frozenset(
    name + temporary for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA) for temporary in ("", ".tmp")
)
"""The other files of a partition directory. A broker that is killed while it writes one leaves a `.tmp` file."""

_SEGMENT_NAME = re.compile(r"[0-9].*\.log(\.deleted)?", re.DOTALL)
_MOST_NOTED = 20

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """The files of a log directory beside its partition directories. A missing checkpoint is None.

    `is_log_dir` is False for a directory that no broker has used, such as the parent of a copied partition.
    `is_running`: a broker holds the lock, so the partitions change while they are read.
    """

    path: Path
    cleaner_offsets: dict[TopicPartition, int] | None = None
    log_start_offsets: dict[TopicPartition, int] | None = None
    recovery_points: dict[TopicPartition, int] | None = None
    high_watermarks: dict[TopicPartition, int] | None = None
    is_log_dir: bool = False
    is_clean_shutdown: bool = False
    is_running: bool = False

    def file(self, name: str) -> LogFile:
        """Return the file of this name beside the partition directories."""
        return files_in(self.path).file(name)

    @property
    def is_unclean(self) -> bool:
        """Whether a broker was not shut down cleanly, and does not run."""
        return self.is_log_dir and not self.is_clean_shutdown and not self.is_running


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PartitionLog:
    """One partition directory. `segments` are in ascending order; the last one is the active segment.

    `snapshots` maps offsets, ascending, to producer snapshots. `orphans` are indexes without a `.log` and `deleted` are
    `.deleted` files: a broker removes both when it starts, and kcompact leaves them alone. `leftovers` are the
    `.cleaned` and `.swap` files of an interrupted swap, `staging` the staging directories of interrupted kcompact runs,
    `foreign` the names that Kafka does not use, `notes` remarks for the user. A log with `damage` can be inspected, but
    not cleaned.

    `recovered_from` is None, or the base offset of the first segment that a broker recovers when it starts. Then the
    log is the one that the broker will have, without the torn end and the segments after it.

    `moves` are the directories to which the partition is being moved: a broker pauses its cleaner until that has ended.

    With `ignores_indexes` no `.index` and no `.timeindex` is read: `index_file` returns None for them. What is missing
    or ignored is built from the batches, with an entry every `index_interval_bytes`.
    """

    files: Files
    topic_partition: TopicPartition
    log_dir: LogDir
    segments: tuple[Segment, ...]
    snapshots: dict[int, FileIdentity]
    log_start_offset: int
    log_end_offset: int
    checkpoint_offset: int | None
    recovered_from: int | None = None
    ignores_indexes: bool = False
    index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES
    orphans: tuple[FileIdentity, ...] = ()
    leftovers: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    staging: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    moves: tuple[Path, ...] = ()
    notes: tuple[Note, ...] = ()
    damage: tuple[CorruptDataError, ...] = ()

    def __str__(self) -> str:
        count = readable.counted(len(self.segments), "segment")
        offsets = f"offsets {self.log_start_offset} to {self.log_end_offset}"
        return f"{self.topic_partition}: {count}, {readable.size(self.size_bytes)}, {offsets}"

    def __repr__(self) -> str:
        return f"<PartitionLog {self}>"

    @property
    def directory(self) -> Path:
        """The path of the partition. Messages name it, and whoever writes opens it."""
        return self.files.directory

    def file(self, name: str) -> LogFile:
        """Return the file of this name in the partition directory."""
        return self.files.file(name)

    @property
    def checkpoint_reset(self) -> bool:
        """Whether the cleaner's checkpoint is outside the log: a broker would set it to the log start."""
        checkpoint = self.checkpoint_offset
        return checkpoint is not None and not self.log_start_offset <= checkpoint <= self.log_end_offset

    @property
    def first_dirty_offset(self) -> int:
        """Where the dirty section starts: at the checkpoint, or at the log start if it is missing or outside the log.

        Rule: `LogCleanerManager.cleanableOffsets`.
        """
        checkpoint = self.checkpoint_offset
        return self.log_start_offset if checkpoint is None or self.checkpoint_reset else checkpoint

    @property
    def needs_recovery(self) -> bool:
        """Whether a broker recovers the log when it starts, and the log is not planned as it will be then."""
        return self.log_dir.is_unclean and self.recovered_from is None

    def recovers(self, segment: Segment) -> bool:
        """Return whether a broker recovers this segment when it starts, so that only its `.log` counts."""
        return self.recovered_from is not None and segment.base_offset >= self.recovered_from

    def is_cut_off(self, problem: KcompactError) -> bool:
        """Return whether a broker that recovers the log cuts it off at this damage of a `.log`, or before."""
        last, file = self.active_segment, Path(getattr(problem, "file", ""))
        if not isinstance(problem, CorruptDataError) or file.suffix != Suffix.LOG or not self.recovers(last):
            return False
        is_behind = file.name == last.log_name and (problem.position or 0) >= last.size_bytes
        return is_behind or (file.name > last.log_name and problem.position is not None)

    @property
    def is_cluster_metadata(self) -> bool:
        """Whether this is the metadata log of the cluster, which no cleaner looks at, whatever the settings."""
        return self.topic_partition.topic == CLUSTER_METADATA_TOPIC

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

    def index_file(self, segment: Segment, suffix: Suffix) -> LogFile | None:
        """Return a segment's `.index` or `.timeindex`; None if there is none, or if it is to be ignored."""
        if self.ignores_indexes or not segment.has(suffix):
            return None
        return self.file(segment.log_name).with_suffix(suffix)

    def segment_at(self, offset: int) -> Segment | None:
        """Return the segment that an offset belongs to: the last one that does not begin above it; None below all."""
        following = bisect.bisect_right(self.segments, offset, key=lambda each: each.base_offset)
        return self.segments[following - 1] if following else None

    def is_below_start(self, segment: Segment) -> bool:
        """Return whether a closed segment has only records that were deleted: a broker is about to delete it."""
        return segment is not self.active_segment and self.end_of(segment) <= self.log_start_offset

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
    files = files_in(path)
    checkpoints: dict[str, dict[TopicPartition, int] | None] = {}
    for name in (CLEANER_OFFSET_CHECKPOINT, *BROKER_CHECKPOINTS):
        file = files.file(name)
        checkpoints[name] = parse_offset_checkpoint(file.read(), file=str(file)) if file.exists() else None
    return LogDir(
        path=path,
        cleaner_offsets=checkpoints[CLEANER_OFFSET_CHECKPOINT],
        log_start_offsets=checkpoints[LOG_START_OFFSET_CHECKPOINT],
        recovery_points=checkpoints[RECOVERY_POINT_CHECKPOINT],
        high_watermarks=checkpoints[REPLICATION_OFFSET_CHECKPOINT],
        is_log_dir=is_log_dir(path),
        is_clean_shutdown=files.exists(CLEAN_SHUTDOWN_FILE),
        is_running=is_running(path),
    )


def is_log_dir(path: Path) -> bool:
    """Return whether a directory has a file that only a broker writes."""
    return any(map(files_in(path).exists, (META_PROPERTIES, *BROKER_CHECKPOINTS)))


def log_dir_around(path: Path, directories: Iterable[Path]) -> Path | None:
    """Return which of a resolved path and the directories above it belongs to a log, None if none does.

    To a log belong these partition directories, their log directories, and every other log directory.
    """
    parents = {directory.parent for directory in directories}
    own = {parent.resolve() for parent in parents}
    # Of the partition directories only those that can be one of these: there may be thousands.
    names = {each.name for each in (path, *path.parents)}
    links = {directory for directory in directories if directory.name in names or directory.is_symlink()}
    own |= {directory.resolve() for directory in links}
    return next((each for each in (path, *path.parents) if each in own or is_log_dir(each)), None)


def is_running(log_dir: Path) -> bool:
    """Return whether a broker runs on a log directory now."""
    return is_log_dir(log_dir) and has_broker(log_dir)


def is_partition_directory(path: Path) -> bool:
    """Return whether a directory contains `.log` files, maybe marked as deleted. Its name does not matter."""
    with suppress(PermissionError):
        return path.is_dir() and any(map(_SEGMENT_NAME.fullmatch, os.listdir(path)))  # noqa: PTH208 - only the names
    return False


def is_one_partition(directory: Path) -> bool:
    """Return whether a directory is a partition by itself, whatever its kind, and not a log directory like `data-1`."""
    parsed = parse_directory(directory.name)
    is_marked = parsed is not None and parsed.kind is not DirectoryKind.PARTITION
    if parsed is None or is_marked or not is_partition_directory(directory):
        return is_marked
    if is_log_dir(directory.parent) or not has_partitions(directory):
        return True
    # With partitions in it only a segment makes one of it: any other `.log` can be a log of Java's.
    return not is_log_dir(directory) and any(map(parse_file_name, files_in(directory).names()))


def has_partitions(directory: Path) -> bool:
    """Return whether a directory has sub-directories with names of partitions. False if that cannot be found out."""
    with suppress(OSError):
        return bool(partition_directories(directory))
    return False


def partition_directories(log_dir: Path) -> list[Path]:
    """Return the sub-directories whose names `parse_directory` accepts, in order of topic and partition."""
    # A symbolic link is returned too, so that `read_log` refuses it and the user sees why.
    with os.scandir(log_dir) as entries:
        named = [(parsed, entry) for entry in entries if (parsed := parse_directory(entry.name)) and entry.is_dir()]
    return [log_dir / name for _, name in sorted((parsed.topic_partition, entry.name) for parsed, entry in named)]


def read_log(
    directory: str | os.PathLike[str],
    *,
    log_dir: LogDir | None = None,
    rebuild_indexes: bool = False,
    index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES,
    as_recovered: bool = False,
    accepts_future: bool = False,
) -> PartitionLog:
    """Return the state of a partition directory; with `accepts_future` also of a `-future` one, under the plain name.

    With `as_recovered`, and if the broker was not shut down cleanly, the log is the one that the broker will have after
    it started (`broker_recovery`); the segments that it recovers are read whole.

    With `rebuild_indexes` the log ignores its index files, here and wherever it is used. Indexes that are missing or
    ignored are computed from the batches, as a broker with this `index.interval.bytes` does. Damage is collected in
    `PartitionLog.damage`, that of indexes last. Raises RefusedError for a directory that is not a partition and for a
    file of Kafka that is not a regular file, CorruptCheckpointError, StorageError. Beside a running broker the log ends
    with the last whole batch, and LogChangedError is raised too: see `log.unchanged_reading` and `log.growing`.
    """
    directory = as_path(directory)
    partition, files = partition_of(directory, accepts_future=accepts_future), files_in(directory)
    log_dir = log_dir or read_log_dir(directory.parent)
    listing = _list_files(files)
    bases = sorted(base for base, files in listing.segment_files.items() if Suffix.LOG in files)
    if not bases:
        raise _without_logs(directory, listing)
    reader = SegmentReader(files, rebuild_indexes, index_interval_bytes, log_dir.is_clean_shutdown)
    reader.notes += _notes_on(listing)
    leftovers = listing.leftovers
    if log_dir.is_running:
        require_no_swap(directory, leftovers)
        leftovers = []  # The broker writes `.cleaned` files beside the segments that they are to replace.
    is_recovered = as_recovered and log_dir.is_unclean
    recovered_from = first_recovered(bases, (log_dir.recovery_points or {}).get(partition, 0)) if is_recovered else None
    segments, log_end_offset = reader.read_all(
        bases, listing.segment_files, recovered_from, is_growing=log_dir.is_running
    )
    damage = [*reader.damage, *_lost_logs(directory, log_dir, listing, partition)]
    damage += _lost_end(log_dir, partition, log_end_offset, recovered_from=recovered_from)
    return PartitionLog(
        files=files,
        topic_partition=partition,
        log_dir=log_dir,
        segments=segments,
        snapshots=listing.snapshots,
        log_start_offset=max((log_dir.log_start_offsets or {}).get(partition, 0), bases[0]),
        log_end_offset=log_end_offset,
        checkpoint_offset=(log_dir.cleaner_offsets or {}).get(partition),
        recovered_from=recovered_from,
        ignores_indexes=rebuild_indexes,
        index_interval_bytes=index_interval_bytes,
        orphans=tuple(listing.orphans),
        leftovers=tuple(leftovers),
        deleted=tuple(listing.deleted),
        staging=tuple(listing.staging),
        foreign=tuple(listing.foreign),
        notes=tuple(reader.notes),
        damage=tuple(sorted(damage, key=lambda problem: isinstance(problem, CorruptIndexError))),
    )


def _notes_on(listing: _Listing) -> list[Note]:
    orphans = listing.orphans
    notes = [Note.of(RemarkCode.STAGING_OF_ANOTHER_USER, name=name) for name in listing.staging_of_others]
    notes += [Note.of(RemarkCode.ORPHAN_INDEX, name=file.name) for file in orphans[:_MOST_NOTED]]
    if len(orphans) > _MOST_NOTED:
        notes.append(Note.of(RemarkCode.MORE_ORPHAN_INDEXES, count=len(orphans) - _MOST_NOTED))
    return notes


def read_again(log: PartitionLog) -> PartitionLog:
    """Return the state of a log after a change; it ignores its indexes if `log` does. Raises as `read_log` does."""
    return read_log(
        log.directory,
        rebuild_indexes=log.ignores_indexes,
        index_interval_bytes=log.index_interval_bytes,
        as_recovered=log.recovered_from is not None,
    )


def partition_of(directory: Path, *, accepts_future: bool = False) -> TopicPartition:
    """Return the partition that a directory is named after. Raises RefusedError for another name or a link.

    A `-future` directory has another name, unless it is accepted.
    """
    partition = partition_by_name(directory, accepts_future=accepts_future)
    if directory.is_symlink():
        raise RefusedError(
            path=directory,
            problem="a symbolic link; the lock and the checkpoints of a partition are in the directory above it",
            hint="Pass the directory that the link points to, if no broker uses it through the link.",
        )
    return partition


def partition_by_name(directory: Path, *, accepts_future: bool = False) -> TopicPartition:
    """Return the partition that a directory is named after, as `partition_of`; whether it is a link is not asked."""
    parsed = parse_directory(directory.name)
    accepted = (DirectoryKind.PARTITION, DirectoryKind.FUTURE) if accepts_future else (DirectoryKind.PARTITION,)
    if parsed is None or parsed.kind not in accepted:
        why = "its name is not <topic>-<partition>" if parsed is None else f"a broker's -{parsed.kind} directory"
        raise _no_partition(directory, why)
    return parsed.topic_partition


def _without_logs(directory: Path, listing: _Listing) -> RefusedError:
    if not deleted_segments(listing.deleted):
        return _no_partition(directory, "it contains no .log file")
    return RefusedError(
        path=directory,
        problem="every segment is marked as deleted",
        hint=f"A broker removes them when it starts. Copy the directory first: cp -a {shell_word(directory)} BACKUP",
    )


def _no_partition(directory: Path, why: str) -> RefusedError:
    return RefusedError(
        path=directory,
        problem=f"not a partition directory: {why}",
        hint="Pass a partition directory such as orders-0, or the log directory above it.",
    )


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

    @property
    def orphans(self) -> list[FileIdentity]:
        """The files of segments without a `.log`."""
        without_log = (files for _, files in sorted(self.segment_files.items()) if Suffix.LOG not in files)
        return [file for files in without_log for file in files.values()]


def segment_states(files: Files) -> dict[str, FileIdentity | int]:
    """Return the files of the segments and the snapshots; of the last segment, which grows, the inode numbers.

    Raises LogChangedError during a swap of the broker, RefusedError, OSError.
    """
    listing = _list_files(files)
    require_no_swap(files.directory, listing.leftovers)
    active = max((base for base, of_segment in listing.segment_files.items() if Suffix.LOG in of_segment), default=-1)
    states: dict[str, FileIdentity | int] = {file.name: file for file in listing.snapshots.values()}
    for base, of_segment in listing.segment_files.items():
        states |= {file.name: file if base < active else file.inode for file in of_segment.values()}
    return states


def require_no_swap(directory: Path, leftovers: Sequence[str]) -> None:
    """Raise LogChangedError if a running broker is swapping segments: some of them have no final name now."""
    for name in leftovers:
        if name.endswith(Temporary.SWAP):
            raise LogChangedError(path=directory / name, problem="the running broker is replacing segments")


def _list_files(files: Files) -> _Listing:
    """Return the files of a partition directory.

    Raises RefusedError if one of Kafka's is not a regular file, StorageError.
    """
    listing = _Listing()
    is_quorum = files.directory.name.startswith(f"{CLUSTER_METADATA_TOPIC}-")
    with storage_errors(files.directory):
        names = files.names()
    for name in sorted(names):
        parsed = parse_file_name(name)
        if STAGING_NAME.fullmatch(name):
            # What is no directory is not kcompact's, and recovery stops at it.
            (listing.staging_of_others if files.is_closed(name) else listing.staging).append(name)
        elif parsed is None:
            if name not in _SMALL_FILES and not (is_quorum and is_raft_file(name)):
                listing.foreign.append(name)
            else:
                files.identity(name)  # Refuses what is no regular file.
        elif parsed.temporary is Temporary.DELETED:
            listing.deleted.append(name)
        elif parsed.temporary is not Temporary.NO:
            listing.leftovers.append(name)
        elif parsed.suffix is Suffix.SNAPSHOT:
            listing.snapshots[parsed.base_offset] = files.identity(name)
        else:
            listing.segment_files.setdefault(parsed.base_offset, {})[parsed.suffix] = files.identity(name)
    return listing


def _lost_end(
    log_dir: LogDir, partition: TopicPartition, log_end_offset: int, *, recovered_from: int | None
) -> list[CorruptDataError]:
    """Return the damage of a log that ends below an offset in a checkpoint of its broker.

    After an unclean shutdown that is known of a recovered log only. Such a log may end below its high watermark, but
    what is below the recovery point and the log start was flushed.

    The log has lost its end, or the checkpoint is old. A crash loses the tail that was not flushed, and recovery then
    shortens the log. If a clean stop comes before the broker hosts the partition again, the old offset stays beside the
    clean-shutdown file. A broker reduces the first two offsets to the log end, and deletes every segment when the log
    start is above it. Rule: `LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd`.
    """
    if not log_dir.is_clean_shutdown and recovered_from is None:
        return []
    checkpoints = (
        (RECOVERY_POINT_CHECKPOINT, log_dir.recovery_points, "was flushed up to", _REDUCED),
        (REPLICATION_OFFSET_CHECKPOINT, log_dir.high_watermarks, "has the high watermark", _REDUCED),
        (LOG_START_OFFSET_CHECKPOINT, log_dir.log_start_offsets, "starts at", _DELETED),
    )
    damage = []
    for name, offsets, what, hint in checkpoints:
        if recovered_from is not None and name == REPLICATION_OFFSET_CHECKPOINT:
            continue
        offset = (offsets or {}).get(partition, 0)
        if offset > log_end_offset:
            problem = f"{partition} {what} offset {offset}, but the log now ends at offset {log_end_offset}"
            damage.append(CorruptDataError(file=log_dir.path / name, problem=problem, hint=hint))
    return damage


def _lost_logs(
    directory: Path, log_dir: LogDir, listing: _Listing, partition: TopicPartition
) -> list[CorruptDataError]:
    """Return the damage of segments of which both indexes are there, but no `.log` of any name: half a copy.

    What a segment below the log start had was deleted. A single index can be left of a deletion; a broker deletes
    it. A running broker may be deleting the segment.
    """
    damage: list[CorruptDataError] = []
    start_offset = (log_dir.log_start_offsets or {}).get(partition, 0)
    for base, files in sorted(listing.segment_files.items()) if not log_dir.is_running else ():
        log = log_name(base)
        is_deleted = any(name.startswith(log) for name in (*listing.deleted, *listing.leftovers))
        is_deleted |= any(base < other <= start_offset for other in listing.segment_files)
        is_half = {Suffix.INDEX, Suffix.TIME_INDEX} <= files.keys() and Suffix.LOG not in files
        if is_half and not is_deleted and any(file.size_bytes for file in files.values()):
            problem = "is missing, but its indexes are there: this is half a copy, or the segment is lost"
            hint = f"Copy this file again, or restore the partition. If it is lost for good, remove {log[:-4]}.*"
            damage.append(CorruptDataError(file=directory / log, problem=problem, hint=hint))
    return damage


_REDUCED = (
    "Start the broker once and stop it cleanly: it lowers this offset. If records are missing, restore the partition "
    "first."
)
_DELETED = "Do not start a broker: it deletes every segment of this partition. Restore the log."


class PerLogDir(Generic[Value]):
    """A value for each log directory, made once. If making it fails, that is the error of every partition there."""

    def __init__(self, make: Callable[[Path], Value]) -> None:
        self._make = make
        self._made: dict[Path, Value | KcompactError] = {}

    def of(self, partition: Path) -> Value:
        """Return the value for the log directory of a partition. Raises the KcompactError of making it."""
        return self.of_log_dir(partition.parent)

    def of_log_dir(self, log_dir: Path) -> Value:
        """Return the value for a log directory. Raises the KcompactError of making it."""
        if log_dir not in self._made:
            try:
                self._made[log_dir] = self._make(log_dir)
            except KcompactError as problem:
                self._made[log_dir] = problem
        if isinstance(made := self._made[log_dir], KcompactError):
            raise made
        return made
