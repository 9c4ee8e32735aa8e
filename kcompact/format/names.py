"""The names of files and directories, to values and back.

A parser returns a value for a name exactly as Kafka writes it, and None for every other name. Files with other names
are reported and never touched. The parsers are therefore stricter than Kafka's, which accepts any text between two
separators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from kcompact.values import dataclass

MAX_OFFSET = 2**63 - 1
MAX_PARTITION = 2**31 - 1
MAX_TOPIC_LENGTH = 249
MAX_NAME_LENGTH = 255
"""The longest name of a directory."""
ANY_OFFSET = range(MAX_OFFSET)

CLUSTER_METADATA_TOPIC = "__cluster_metadata"
BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
"""The file in a log directory with the first records of a new cluster."""
REMOTE_INDEX_CACHE = "remote-log-index-cache"
"""The directory of a log directory that caches indexes of tiered storage. A broker makes it again."""
CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})
"""The topics of Kafka's coordinators."""

_TOPIC = rf"(?P<topic>[a-zA-Z0-9._-]{{1,{MAX_TOPIC_LENGTH}}})"
_PARTITION = r"(?P<partition>0|[1-9][0-9]{0,9})"
_PARTITION_NAME = re.compile(rf"{_TOPIC}-{_PARTITION}")
_SUFFIXED_NAME = re.compile(
    # A broker takes any id. A replica on its way must not be missed.
    rf"{_TOPIC}-{_PARTITION}\.(?P<unique_id>[0-9a-f]{{32}}|[^\s.]+(?=-future\Z))-(?P<kind>delete|future|stray)"
)
_METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_RAFT_FILE = re.compile(r"quorum-state(\.tmp)?|[0-9]{20}-[0-9]{10}(\.checkpoint(\.deleted)?|-[0-9]+\.checkpoint\.part)")
_FILE_NAME = re.compile(
    r"(?P<base_offset>[0-9]{20})(?P<suffix>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)"
    r"(?P<temporary>\.cleaned|\.swap|\.deleted|)"
)


@dataclass(frozen=True, slots=True, order=True)
class TopicPartition:
    """A partition; `str()` gives the name of its directory."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @staticmethod
    def parse(name: str) -> TopicPartition | None:
        """Return the partition that `topic-partition` names, or None.

        Split at the last `-`: topics may contain it. Rule: LocalLog.parseTopicPartitionName; legal topics:
        Topic.validate.
        """
        match = _PARTITION_NAME.fullmatch(name)
        return None if match is None else _topic_partition(match)


class DirectoryKind(StrEnum):
    """The purpose of a partition directory. Only `PARTITION` is cleaned."""

    PARTITION = ""
    DELETE = "delete"  # scheduled for deletion
    FUTURE = "future"  # a replica on its way from another log directory
    STRAY = "stray"  # a replica that the cluster no longer assigns to this broker


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDirectoryName:
    """A parsed directory name.

    In the `DELETE` and `STRAY` forms Kafka shortens the topic to keep the name within 255 characters. The topic here
    may then be only the first part of the topic's name.
    """

    topic_partition: TopicPartition
    kind: DirectoryKind
    unique_id: str = ""

    @property
    def may_be_shortened(self) -> bool:
        """Whether the topic may be only the first part of the topic's name."""
        return self.kind in (DirectoryKind.DELETE, DirectoryKind.STRAY) and len(str(self)) == MAX_NAME_LENGTH

    def __str__(self) -> str:
        if self.kind is DirectoryKind.PARTITION:
            return str(self.topic_partition)
        # Rule: LocalLog.logDeleteDirName, logStrayDirName; logFutureDirName keeps the whole topic.
        suffix = f"-{self.topic_partition.partition}.{self.unique_id}-{self.kind}"
        if self.kind is DirectoryKind.FUTURE:
            return self.topic_partition.topic + suffix
        return self.topic_partition.topic[: MAX_NAME_LENGTH - len(suffix)] + suffix


@lru_cache(maxsize=4096)  # Each step of a plan asks for the partition of a directory.
def parse_directory(name: str) -> PartitionDirectoryName | None:
    """Return the parsed name of a sub-directory of a log directory, or None for a name that Kafka does not write.

    Rule: LocalLog.parseTopicPartitionName, logDeleteDirName, logFutureDirName, logStrayDirName.
    """
    match = _SUFFIXED_NAME.fullmatch(name)
    if match is None:
        plain = TopicPartition.parse(name)
        return None if plain is None else PartitionDirectoryName(topic_partition=plain, kind=DirectoryKind.PARTITION)
    partition = _topic_partition(match)
    if partition is None:
        return None
    return PartitionDirectoryName(
        topic_partition=partition, kind=DirectoryKind(match["kind"]), unique_id=match["unique_id"]
    )


def _topic_partition(match: re.Match[str]) -> TopicPartition | None:
    topic, partition = match["topic"], int(match["partition"])
    if topic in (".", "..") or partition > MAX_PARTITION:
        return None
    return TopicPartition(topic, partition)


class Suffix(StrEnum):
    """The kinds of file of a partition directory. A segment has at most one of each."""

    LOG = ".log"
    INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TXN_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class Temporary(StrEnum):
    """The second suffix: a file that is being added to the log or removed from it."""

    NO = ""
    CLEANED = ".cleaned"  # written by a cleaner, possibly incomplete
    SWAP = ".swap"  # complete, not yet renamed to its final name
    DELETED = ".deleted"  # replaced, to be deleted


_SNAPSHOT_TEMPORARIES = frozenset({Temporary.NO, Temporary.DELETED})  # a cleaner writes no snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class FileName:
    """A parsed file name; `str()` gives the name."""

    base_offset: int
    suffix: Suffix
    temporary: Temporary = Temporary.NO

    def __str__(self) -> str:
        return file_name(self.base_offset, self.suffix, self.temporary)


@lru_cache(maxsize=4096)  # Each step of a cleaning lists the same files.
def parse_file_name(name: str) -> FileName | None:
    """Return the parsed name of a file of a partition directory, or None for a name that Kafka does not write.

    The number has 20 decimal digits and is at most 2^63 - 1. It is the base offset of the segment; in the name of a
    `.snapshot`, the offset at which the snapshot was taken. Rule: LogFileUtils.
    """
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    parsed = FileName(
        base_offset=int(match["base_offset"]),
        suffix=Suffix(match["suffix"]),
        temporary=Temporary(match["temporary"]),
    )
    return parsed if _is_written_by_kafka(parsed) else None


def parse_file_names(names: Iterable[str]) -> list[FileName]:
    """Return the parsed names of files of a partition directory. Other names are passed over."""
    return [parsed for parsed in map(parse_file_name, names) if parsed is not None]


def log_bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the `.log` files among names of files, ascending. Other names are passed over."""
    return sorted(name.base_offset for name in parse_file_names(name for name in names if name.endswith(Suffix.LOG)))


def base_offset_of(name: str) -> int:
    """Return the base offset in the name of a file of a segment, or the offset of a snapshot."""
    parsed = parse_file_name(name)
    assert parsed is not None, name
    return parsed.base_offset


def is_raft_file(name: str) -> bool:
    """Return whether a name is one that KRaft uses beside the segments of the metadata log.

    `quorum-state` holds the vote, `<end offset>-<epoch>.checkpoint` a snapshot of the metadata: `.part` while it is
    written, `.deleted` before it is removed. Rule: FileQuorumStateStore, Snapshots, SnapshotPath.
    """
    return _RAFT_FILE.fullmatch(name) is not None


def _is_written_by_kafka(name: FileName) -> bool:
    if not 0 <= name.base_offset <= MAX_OFFSET:
        return False
    return name.suffix is not Suffix.SNAPSHOT or name.temporary in _SNAPSHOT_TEMPORARIES


def file_name(base_offset: int, suffix: Suffix, temporary: Temporary = Temporary.NO) -> str:
    """Return the name of a file of a partition directory. Rule: LogFileUtils.filenamePrefixFromOffset."""
    assert 0 <= base_offset <= MAX_OFFSET, base_offset
    return f"{base_offset:020d}{suffix}{temporary}"


def log_name(base_offset: int) -> str:
    """Return the name of a segment's log."""
    return file_name(base_offset, Suffix.LOG)


def index_name(base_offset: int) -> str:
    """Return the name of a segment's offset index."""
    return file_name(base_offset, Suffix.INDEX)


def time_index_name(base_offset: int) -> str:
    """Return the name of a segment's time index."""
    return file_name(base_offset, Suffix.TIME_INDEX)


def txn_index_name(base_offset: int) -> str:
    """Return the name of a segment's index of aborted transactions."""
    return file_name(base_offset, Suffix.TXN_INDEX)


def snapshot_name(offset: int) -> str:
    """Return the name of the producer snapshot taken at an offset."""
    return file_name(offset, Suffix.SNAPSHOT)


class MetadataSnapshotName(NamedTuple):
    """A parsed name of a snapshot of the metadata log. It replaces the records of the log below `end_offset`."""

    end_offset: int
    epoch: int

    def __str__(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def parse_metadata_snapshot_name(name: str) -> MetadataSnapshotName | None:
    """Return the parsed name of a snapshot of the metadata log, or None for any other name.

    A name with `.part` or `.deleted` behind it is another name.
    Rule: `Snapshots.parse`.
    """
    match = _METADATA_SNAPSHOT.fullmatch(name)
    if match is None or int(match[1]) >= 1 << 63 or int(match[2]) >= 1 << 31:
        return None
    return MetadataSnapshotName(end_offset=int(match[1]), epoch=int(match[2]))
