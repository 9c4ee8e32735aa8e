"""The replicas of partitions on other brokers' disks: where each ends, so what a cleaning has to hold back for it.

A follower fetches from its own log end. What the leader's cleaner has dropped from there on it never sees: without a
tombstone it keeps the deleted value, without a marker its transaction stays open. So a cleaning with `--replica` drops
no tombstone and no marker from there on.

    this log       0 ............ 99   tombstone 100   120
    the replica    0 ............ 99                          it still has to fetch the tombstone

A replica whose last leader epoch is not the newest one is truncated before it fetches: it then starts lower. How far
follows from the leader epoch checkpoints, as a leader answers a follower.
Rule: `AbstractFetcherThread.truncateToEpochEndOffsets`, `LeaderEpochFileCache.endOffsetFor`, KIP-101, KIP-279.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kcompact.config.metadata_log import read_meta_properties, read_topic_id
from kcompact.errors import ConfigError, CorruptDataError, CorruptIndexError, RefusedError, storage_errors
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, EpochEntry, parse_leader_epochs
from kcompact.format.names import CLUSTER_METADATA_TOPIC, TopicPartition, parse_directory
from kcompact.log.directory import LogDir, PartitionLog, read_log, read_log_dir
from kcompact.log.files import files_in
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.notes import Note, NoteCode
from kcompact.plan.discovery import by_partition, canonical, find_partitions
from kcompact.readable import counted, shown
from kcompact.wording import worded


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherReplica:
    """A replica of a partition: its directory, its log end, and the offset from which it fetches.

    Without a replica of the partition `path` is the directory that was searched, and both offsets are None.
    """

    path: Path
    end_offset: int | None = None
    fetches_from_offset: int | None = None

    def lags_behind(self, log_end_offset: int) -> bool:
        """Return whether the replica still has to fetch from a log with this end."""
        return self.fetches_from_offset is not None and self.fetches_from_offset < log_end_offset


def replica_notes(replicas: Sequence[OtherReplica], log_end_offset: int) -> list[Note]:
    """Return a note for each replica of a log with this end: from where something is held back for it, or why not."""
    return [_note(each, log_end_offset) for each in replicas]


def _note(replica: OtherReplica, log_end_offset: int) -> Note:
    path, end_offset, start_offset = shown(replica.path), replica.end_offset, replica.fetches_from_offset
    if end_offset is None or start_offset is None:
        return Note.of(NoteCode.NO_REPLICA, path=path)
    if not replica.lags_behind(log_end_offset):
        return Note.of(NoteCode.REPLICA_HAS_ALL, path=path, end_offset=end_offset)
    return Note.of(
        NoteCode.REPLICA_LAGS,
        path=path,
        end_offset=end_offset,
        missing=counted(log_end_offset - start_offset, "offset"),
        truncated="" if start_offset == end_offset else f" and is truncated to {start_offset}",
        start_offset=start_offset,
    )


class Replicas:
    """The partitions on other brokers' disks that the user has named. Reads each of them once.

    `paths` are log directories or partition directories, `directories` the partitions to be cleaned. Raises
    RefusedError for a path without partitions, and for a partition directory of another partition; ConfigError for a
    path that is one of `directories`.
    """

    def __init__(self, paths: Sequence[Path], directories: Sequence[Path]) -> None:
        self._replicas: list[tuple[Path, dict[TopicPartition, Path]]] = []
        self._found: dict[Path, tuple[OtherReplica, ...]] = {}
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

    def of(self, directory: Path) -> tuple[OtherReplica, ...]:
        """Return the replicas of a partition, one for each path; none of the metadata log, which no cleaner looks at.

        Raises RefusedError for a replica of another topic or cluster, or whose end is not known; StorageError.
        """
        if directory not in self._found:
            self._found[directory] = tuple(self._read(directory))
        return self._found[directory]

    def _read(self, directory: Path) -> list[OtherReplica]:
        parsed = parse_directory(directory.name)
        found: list[OtherReplica] = []
        if parsed is not None and parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC:
            return found
        for path, partitions in self._replicas:
            other = None if parsed is None else partitions.get(parsed.topic_partition)
            if other is None:
                found.append(OtherReplica(path=path))
                continue
            try:
                with storage_errors(other):
                    found.append(_replica(directory, other))
            except CorruptDataError as problem:
                raise _unknown_end(other, problem) from problem
        return found


def _replica(directory: Path, other: Path) -> OtherReplica:
    """Return another replica of a partition. Raises as `Replicas.of`, CorruptDataError."""
    _require_same_topic(directory, other)
    log = read_unchanged(files_in(other), read_log_dir(other.parent), partial(_log, other))
    return OtherReplica(
        path=other,
        end_offset=log.log_end_offset,
        fetches_from_offset=truncated_to(_epochs(directory), _epochs(other), log.log_end_offset),
    )


def _log(directory: Path, log_dir: LogDir) -> PartitionLog:
    """Return the log of a replica as its broker will have it. Raises CorruptDataError if damage hides where it ends."""
    log = read_log(directory, log_dir=log_dir, as_recovered=True)
    damage = [problem for problem in log.damage if not isinstance(problem, CorruptIndexError)]
    if damage:
        raise damage[0]
    return log


def _unknown_end(directory: Path, problem: CorruptDataError) -> RefusedError:
    return RefusedError(
        path=directory,
        problem=f"the end of this replica is not known: {str(problem).splitlines()[0]}",
        hint=worded("Nothing was changed. Repair the replica, or leave it out if it will be deleted and made anew."),
    )


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


def _epochs(directory: Path) -> tuple[EpochEntry, ...]:
    file = files_in(directory).file(LEADER_EPOCH_CHECKPOINT)
    return parse_leader_epochs(file.read(), file=str(file)) if file.exists() else ()


def truncated_to(leader: Sequence[EpochEntry], follower: Sequence[EpochEntry], end_offset: int) -> int:
    """Return the offset from which a follower that ends at `end_offset` fetches, given the epochs of both.

    The leader answers with the newest epoch that is not newer than the follower's last one, and the end of that epoch;
    if all its epochs are newer, with the start of the first of them. The follower truncates to that and to its own end
    of the epoch, and asks again if it does not have the epoch. Without epochs nothing is truncated.
    """
    while leader and follower:
        asked = follower[-1].epoch
        answered = max((each.epoch for each in leader if each.epoch <= asked), default=asked)
        end_offset = min([end_offset, *(each.start_offset for each in (*leader, *follower) if each.epoch > answered)])
        follower = [each for each in follower if each.epoch <= answered]
        if not follower or follower[-1].epoch == answered:
            break
    return end_offset
