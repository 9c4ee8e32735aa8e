"""What was searched, in Kafka's terms: log directories with their brokers, and how many replicas of each partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kcompact.config.metadata_log import (
    ClusterMetadata,
    read_cluster_metadata,
    read_meta_properties,
    read_topic_id,
)
from kcompact.errors import KcompactError
from kcompact.format.checkpoint import BROKER_CHECKPOINTS
from kcompact.format.names import (
    CLUSTER_METADATA_TOPIC,
    DirectoryKind,
    TopicPartition,
    parse_directory,
    parse_file_name,
)
from kcompact.format.properties import META_PROPERTIES
from kcompact.log.directory import is_log_dir
from kcompact.log.lock import LOCK_NAME, has_broker
from kcompact.plan.selection import Selection
from kcompact.values import dataclass

_LOG_DIR_FILES = frozenset({META_PROPERTIES, LOCK_NAME, *BROKER_CHECKPOINTS})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedLogDir:
    """A log directory: its broker and cluster, None if unknown, and whether a broker ran before or after the search.

    `is_whole`: all that it has was searched, not only some of its partitions.
    """

    path: Path
    cluster_id: str | None
    node_id: int | None
    is_whole: bool
    was_running: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedPartition:
    """A partition of a cluster: its directories among the files, and the topic ids that they have.

    `replicas` are the brokers that have it by the cluster metadata, None if that is unknown; `searched` are those of
    them whose directory was searched.
    """

    topic_partition: TopicPartition
    cluster_id: str | None
    topic_ids: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()
    replicas: tuple[int, ...] | None = None
    searched: tuple[int, ...] = ()

    @property
    def is_complete(self) -> bool | None:
        """Whether all replicas were searched, None if they are unknown."""
        return None if self.replicas is None else len(self.searched) == len(self.replicas)


def log_dirs_of(paths: Sequence[Path], files: Iterable[Path], selection: Selection) -> list[SearchedLogDir]:
    """Return the log directories below some paths, and those around them.

    `files` are all below the paths, selected or not: a broker may write to a selected partition wherever it runs.
    """
    below = (file.parent for file in files if file.name in _LOG_DIR_FILES)
    around = (each for path in paths for each in islice(filter(_is_log_dir, (path, *path.parents)), 1))
    return [
        _log_dir(each, is_whole=selection.selects_all and _is_below(each, paths))
        for each in dict.fromkeys((*below, *around))
        if _is_log_dir(each)
    ]


def _is_log_dir(path: Path) -> bool:
    """Return whether a directory has a file that only a broker writes, or a lock that a broker holds."""
    return is_log_dir(path) or has_broker(path)


def _is_below(directory: Path, paths: Sequence[Path]) -> bool:
    return any(path in paths for path in (directory, *directory.parents))


def _log_dir(path: Path, *, is_whole: bool) -> SearchedLogDir:
    cluster_id = node_id = None
    with suppress(KcompactError):
        properties = read_meta_properties(path)
        if properties is not None:
            cluster_id, node_id = properties.cluster_id, properties.node_id
    return SearchedLogDir(
        path=path, cluster_id=cluster_id, node_id=node_id, is_whole=is_whole, was_running=has_broker(path)
    )


class _Copy(NamedTuple):
    """A partition directory that was searched."""

    directory: Path
    kind: DirectoryKind
    topic_id: str | None
    node_id: int | None


def partitions_of(
    paths: Sequence[Path], log_dirs: Sequence[SearchedLogDir], files: Iterable[Path], selection: Selection
) -> list[SearchedPartition]:
    """Return the partitions of some files, and the other selected ones of the clusters that have log directories here.

    The cluster metadata is read where it can be; the newest of each cluster counts.
    """
    by_path = {each.path: each for each in log_dirs}
    copies: dict[tuple[str | None, TopicPartition], list[_Copy]] = {}
    # A log directory can have a name like that of a partition, such as broker-1.
    for directory in dict.fromkeys(file.parent for file in files if parse_file_name(file.name)):
        parsed = parse_directory(directory.name)
        if parsed is None or parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC or not selection.has(directory):
            continue
        log_dir, topic_id = by_path.get(directory.parent), None
        with suppress(KcompactError):
            topic_id = read_topic_id(directory)
        cluster_id, node_id = (log_dir.cluster_id, log_dir.node_id) if log_dir else (None, None)
        copy = _Copy(directory, parsed.kind, topic_id, node_id)
        copies.setdefault((cluster_id, parsed.topic_partition), []).append(copy)
    metadata = _metadata(log_dirs)
    for log_dir in log_dirs:
        for topic, known in metadata[log_dir.cluster_id].topics.items() if log_dir.cluster_id in metadata else ():
            if _is_below(log_dir.path, paths):
                names = (TopicPartition(topic, number) for number in known.partitions)
                for name in filter(selection.has_partition, names):
                    copies.setdefault((log_dir.cluster_id, name), [])
    ordered = sorted(copies.items(), key=lambda each: (each[0][0] or "", each[0][1]))
    return [_partition(*name, own, metadata.get(name[0])) for name, own in ordered]


def _metadata(log_dirs: Iterable[SearchedLogDir]) -> Mapping[str | None, ClusterMetadata]:
    """Return the newest metadata of each cluster. What cannot be read is passed over: its replicas stay unknown."""
    newest: dict[str | None, ClusterMetadata] = {}
    for log_dir in log_dirs:
        with suppress(KcompactError, OSError):
            metadata = read_cluster_metadata(log_dir.path)
            known = newest.get(log_dir.cluster_id)
            if metadata is not None and (known is None or metadata.end_offset > known.end_offset):
                newest[log_dir.cluster_id] = metadata
    return newest


def _partition(
    cluster_id: str | None, name: TopicPartition, copies: Sequence[_Copy], metadata: ClusterMetadata | None
) -> SearchedPartition:
    topic = metadata.topics.get(name.topic) if metadata else None
    replicas = topic.partitions.get(name.partition) if topic else None
    held = {
        copy.node_id
        for copy in copies
        if copy.kind is DirectoryKind.PARTITION and topic and copy.topic_id in (None, topic.topic_id)
    }
    ids = {copy.topic_id for copy in copies if copy.topic_id is not None}
    return SearchedPartition(
        topic_partition=name,
        cluster_id=cluster_id,
        topic_ids=tuple(sorted(ids)),
        directories=tuple(copy.directory for copy in copies),
        replicas=replicas,
        searched=tuple(node_id for node_id in replicas or () if node_id in held),
    )
