"""The replicas of partitions that fetch from the ones to be cleaned, so what a cleaning has to hold back for them.

They are on other brokers' disks, or half-moved copies (`-future`) in another log directory of the same broker. What the
cleaner has dropped from a replica's end on it never sees: without a tombstone it keeps the deleted value, without a
marker its transaction stays open. So a cleaning with `--replica` drops no tombstone and no marker from there on.

    this log       0 ............ 99   tombstone 100   120
    the replica    0 ............ 99                          it still has to fetch the tombstone

A replica is truncated before it fetches, and then starts lower, if its last leader epoch is not the newest one. How far
follows from the leader epochs, as a leader answers a follower. A replica without leader epochs, as one of batches of
magic 0 and 1, starts from its high watermark.
Rule: `ReplicaManager.initialFetchOffset`, `ReplicaManager.maybeAddLogDirFetchers`, `AbstractFetcherThread`,
`LeaderEpochFileCache.endOffsetFor`, KIP-101, KIP-113, KIP-279, KIP-595.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kcompact.config.broker_config import is_same_directory
from kcompact.config.metadata_log import read_meta_properties, read_topic_id
from kcompact.errors import ConfigError, CorruptDataError, CorruptIndexError, RefusedError, storage_errors
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, leader_epochs_from, parse_leader_epochs
from kcompact.format.names import CLUSTER_METADATA_TOPIC, DirectoryKind, Suffix, TopicPartition, parse_directory
from kcompact.log.batch_headers import headers
from kcompact.log.directory import PartitionLog, PerLogDir, read_log, read_log_dir
from kcompact.log.files import files_in
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.discovery import canonical, find_partitions
from kcompact.plan.selection import by_partition
from kcompact.readable import counted, shown
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass
from kcompact.wording import worded


class Truncation(Enum):
    """What decides how far a replica is truncated. The values are the words for the offset."""

    COMMON_EPOCH = "{offset}"
    HIGH_WATERMARK = "its high watermark {offset}"
    LOG_START = "its log start {offset}, because its high watermark is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherReplica:
    """A replica of a partition: its directory, its log end, and the offset from which it fetches.

    `truncation` says what that offset is if it is below the log end. Without a replica of the partition `path` is the
    directory that was searched, and both offsets are None.
    """

    path: Path
    end_offset: int | None = None
    fetches_from_offset: int | None = None
    truncation: Truncation = Truncation.COMMON_EPOCH

    @property
    def is_future(self) -> bool:
        """Whether it is a `-future` replica, which fetches from another log directory of its broker."""
        parsed = parse_directory(self.path.name)
        return parsed is not None and parsed.kind is DirectoryKind.FUTURE

    def lags_behind(self, log_end_offset: int) -> bool:
        """Return whether the replica still has to fetch from a log with this end."""
        return self.fetches_from_offset is not None and self.fetches_from_offset < log_end_offset


def replica_notes(replicas: Sequence[OtherReplica], log_end_offset: int) -> list[Note]:
    """Return a note for each replica of a log with this end: from where something is held back for it, or why not."""
    return [_note(each, log_end_offset) for each in replicas]


def _note(replica: OtherReplica, log_end_offset: int) -> Note:
    path, end_offset, start_offset = shown(replica.path), replica.end_offset, replica.fetches_from_offset
    if end_offset is None or start_offset is None:
        return Note.of(RemarkCode.NO_REPLICA, path=path)
    if not replica.lags_behind(log_end_offset):
        return Note.of(RemarkCode.REPLICA_HAS_ALL, path=path, end_offset=end_offset)
    truncated_to = replica.truncation.value.format(offset=start_offset)
    return Note.of(
        RemarkCode.REPLICA_LAGS,
        path=path,
        end_offset=end_offset,
        missing=counted(log_end_offset - start_offset, "offset"),
        truncated="" if start_offset == end_offset else f" and is truncated to {truncated_to}",
        start_offset=start_offset,
    )


class Replicas:
    """The replicas that the user has named: other brokers' partitions, and moves. Reads each of them once.

    `paths` are log directories, of which the `-future` directories are left out, or partition directories, also
    `-future` ones. `directories` are the partitions to be cleaned. Raises RefusedError for a path without partitions,
    and for a partition directory of another partition; ConfigError for a path that is one of `directories`.
    """

    def __init__(self, paths: Sequence[Path], directories: Sequence[Path]) -> None:
        self._replicas: list[tuple[Path, dict[TopicPartition, Path]]] = []
        self._found: dict[Path, tuple[OtherReplica, ...]] = {}
        self._log_dirs = PerLogDir(read_log_dir)
        self._named = [canonical(path) for path in paths]
        own = by_partition(directories)
        for path in paths:
            with storage_errors(path):
                partitions = by_partition(find_partitions([path]))
            _require_another(path, partitions, directories)
            if canonical(path) in partitions.values() and not partitions.keys() & own.keys():
                raise RefusedError(
                    path=path,
                    problem="a replica of another partition: none of this name is to be cleaned",
                    hint=worded("Pass the directory of the same partition on another broker's disk as --replica."),
                )
            self._replicas.append((path, partitions))

    def names(self, directory: Path) -> bool:
        """Return whether a `--replica` is this directory itself, by whatever path: not one that it only contains."""
        return any(is_same_directory(directory, each) for each in self._named)

    def of(self, directory: Path) -> tuple[OtherReplica, ...]:
        """Return the replicas of a partition, one for each path; none of the metadata log, which no cleaner looks at.

        Raises RefusedError for a replica of another topic or cluster, or whose end is not known; CorruptDataError if it
        is the partition whose leader epochs are damaged; StorageError.
        """
        if directory not in self._found:
            self._found[directory] = tuple(self._read(directory))
        return self._found[directory]

    def _read(self, directory: Path) -> list[OtherReplica]:
        parsed = parse_directory(directory.name)
        replicas: list[OtherReplica] = []
        own: Epochs | None = None
        if parsed is not None and parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC:
            return replicas
        for path, partitions in self._replicas:
            other = None if parsed is None else partitions.get(parsed.topic_partition)
            if other is None:
                if canonical(path) not in partitions.values():  # A partition directory is that of another one.
                    replicas.append(OtherReplica(path=path))
                continue
            if own is None:
                with storage_errors(directory):
                    own = loaded_epochs(self._log(directory))
            try:
                with storage_errors(other):
                    _require_same_topic(directory, other)
                    replicas.append(_replica(other, self._log(other), own))
            except CorruptDataError as problem:
                raise RefusedError(
                    path=other,
                    problem=f"the end of this replica is not known: {str(problem).splitlines()[0]}",
                    hint=worded(
                        "Nothing was changed. Repair the replica, or leave it out if it will be deleted and made anew."
                    ),
                ) from problem
        return replicas

    def _log(self, directory: Path) -> PartitionLog:
        """Return a log as its broker will have it."""
        return read_unchanged(
            files_in(directory),
            self._log_dirs.of(directory),
            lambda current: read_log(directory, log_dir=current, as_recovered=True, accepts_future=True),
        )


def _replica(directory: Path, log: PartitionLog, leader: Epochs) -> OtherReplica:
    """Return a replica of the log with these leader epochs. Raises CorruptDataError if damage hides where it ends."""
    damage = [problem for problem in log.damage if not isinstance(problem, CorruptIndexError)]
    if damage:
        raise damage[0]
    replica = OtherReplica(path=directory, end_offset=log.log_end_offset)
    recorded = (log.log_dir.high_watermarks or {}).get(log.topic_partition)
    # Rule: `Partition.createLog`, `UnifiedLog.updateHighWatermark`; a `-future` log has its entry in its log directory.
    high_watermark = max(recorded or 0, log.log_start_offset)
    offset, truncation = truncated_to(leader, loaded_epochs(log), high_watermark, is_future=replica.is_future)
    if truncation is Truncation.HIGH_WATERMARK and recorded is None:
        truncation = Truncation.LOG_START
    return replace(replica, fetches_from_offset=offset, truncation=truncation)


def _require_another(path: Path, partitions: dict[TopicPartition, Path], directories: Sequence[Path]) -> None:
    same = {each.resolve() for each in partitions.values()} & {each.resolve() for each in directories}
    if same:
        problem = f"{path} has {min(same)} itself, which is to be cleaned: pass the disk of another broker"
        raise ConfigError(path=worded("--replica"), problem=problem)


def _require_same_topic(directory: Path, other: Path) -> None:
    """Raise RefusedError if two directories are known to be of different topics or clusters, CorruptDataError."""
    hint = "Only a replica of the same partition can be waited for."
    topic_ids = read_topic_id(directory), read_topic_id(other)
    if None not in topic_ids and topic_ids[0] != topic_ids[1]:
        problem = f"of the topic {topic_ids[1]}, but {directory} is of {topic_ids[0]}, another one of the same name"
        raise RefusedError(path=other, problem=problem, hint=hint)
    own, its = read_meta_properties(directory.parent), read_meta_properties(other.parent)
    if own and its and None not in (own.cluster_id, its.cluster_id) and own.cluster_id != its.cluster_id:
        problem = f"of the cluster {its.cluster_id}, but {directory.parent} is of {own.cluster_id}"
        raise RefusedError(path=other, problem=problem, hint=hint)


# Leader epochs


class Epochs(NamedTuple):
    """The leader epochs of a log, ascending, and the log end: the end of the last one."""

    entries: tuple[EpochEntry, ...]
    end_offset: int

    @property
    def last(self) -> int:
        """The last epoch, -1 without one. Rule: `UnifiedLog.latestEpoch`."""
        return self.entries[-1].epoch if self.entries else -1

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Return the newest epoch that is not newer than this one, and its end; without one this epoch and its end.

        The last epoch ends at the log end. That of a leader does too: there the epoch of its election begins.
        Rule: `LeaderEpochFileCache.endOffsetFor`, `Partition.makeLeader`.
        """
        newest_epoch = max((each.epoch for each in self.entries if each.epoch <= epoch), default=epoch)
        return newest_epoch, min(
            (each.start_offset for each in self.entries if each.epoch > epoch), default=self.end_offset
        )

    def below(self, offset: int) -> Epochs:
        """Return the epochs of a log truncated to an offset. Rule: `LeaderEpochFileCache.truncateFromEnd`."""
        entries = tuple(each for each in self.entries if each.start_offset < offset)
        return Epochs(entries, min(self.end_offset, offset))


def loaded_epochs(log: PartitionLog) -> Epochs:
    """Return the leader epochs that a broker has of a log when it has loaded it.

    It takes newer ones from the batches of each segment that it recovers, also because the `.index` is missing. It
    drops those that start at or above the log end: what a leader has recorded, and then not written to. Those below the
    log start become one. Batches of magic 0 and 1 have none (-1), and a broker that appends one empties the file.
    Rule: `LogLoader.load`, `LogSegment.recover`, `UnifiedLog.append`. Raises CorruptDataError, RefusedError,
    StorageError.
    """
    file = log.file(LEADER_EPOCH_CHECKPOINT)
    entries = list(parse_leader_epochs(file.read(), file=str(file))) if file.exists() else []
    for segment in log.segments:
        if segment.has(Suffix.INDEX):
            continue
        for _, header in headers(log.file(segment.log_name), end_position=segment.size_bytes):
            epoch, offset = header.partition_leader_epoch, header.base_offset
            if epoch > (entries[-1].epoch if entries else -1):
                entries = [each for each in entries if each.start_offset < offset]
                entries.append(EpochEntry(epoch=epoch, start_offset=offset))
    start_offset = (log.log_dir.log_start_offsets or {}).get(log.topic_partition, 0)
    written = Epochs(tuple(entries), log.log_end_offset).below(log.log_end_offset)
    return written._replace(entries=leader_epochs_from(written.entries, start_offset))


def truncated_to(
    leader: Epochs, follower: Epochs, high_watermark: int, *, is_future: bool = False
) -> tuple[int, Truncation]:
    """Return the offset from which a replica with these epochs fetches from a leader with those, and what it is.

    The leader answers with the newest epoch that is not newer than the replica's last one, and its end; if all its
    epochs are newer, with the start of the first of them. A leader without epochs, or with older ones only, has the one
    of its election. The replica truncates to that end and to its own end of the epoch; to its own end only, if it has
    older epochs but not this one. Then it asks again, until both agree.
    Rule: `Partition.readRecords`, `AbstractFetcherThread.getOffsetTruncationState`.

    A replica without epochs truncates to its high watermark, and the leader compares nothing.
    Rule: `ReplicaManager.initialFetchOffset`, `AbstractFetcherThread.truncateToHighWatermark`.

    A `-future` replica (`is_future`) asks the replica that it will replace, and asks again only if it has not had the
    epoch. That one may be a follower: it has no epoch of an election, and if its epochs are older the replica truncates
    to its high watermark. Who leads is not in the files, so the lower offset counts.
    Rule: `LocalLeaderEndPoint.isTruncationOnFetchSupported`, `ReplicaManager.maybeAddLogDirFetchers`.
    """
    offset = _common_end(leader, follower, is_future=is_future)
    has_no_answer = not follower.entries or (is_future and leader.last < follower.last)
    if has_no_answer and high_watermark < offset:
        return high_watermark, Truncation.HIGH_WATERMARK
    return offset, Truncation.COMMON_EPOCH


def _common_end(leader: Epochs, follower: Epochs, *, is_future: bool) -> int:
    """Return where the epochs of a replica end that the leader has too, in the way in which it asks for them."""
    while follower.entries:
        answered, leader_end = leader.end_of(follower.last)
        if answered == follower.last and leader_end >= follower.end_offset:
            break
        known, own_end = follower.end_of(answered)
        follower = follower.below(min(own_end, leader_end) if known == answered else own_end)
        if is_future and known == answered:
            break
    return follower.end_offset
