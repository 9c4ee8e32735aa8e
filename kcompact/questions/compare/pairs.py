"""Which directories are replicas of the same partition: paired by topic and number, and by the topic's id if known.

The metadata log is not compared, because no cleaner compacts it. It says who leads a partition, and who is in sync.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path

from kcompact.config.metadata_log import (
    ClusterMetadata,
    Roles,
    read_cluster_metadata,
    read_meta_properties,
    read_topic_id,
)
from kcompact.errors import CorruptDataError, KcompactError, RefusedError, StaleReplicaError
from kcompact.exit_codes import ExitCode
from kcompact.format.names import CLUSTER_METADATA_TOPIC, TopicPartition
from kcompact.plan.discovery import canonical, find_partitions
from kcompact.plan.selection import EVERY_PARTITION, Selection, by_partition
from kcompact.values import dataclass

MOST_REPLICAS = 16
"""A set of replicas is a mask, and a block of keys is named by a mask and a band in 31 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One path of the command line: the partitions that it names, and the broker that they are of, if that is known.

    `is_partition`: the path is the directory of one partition. `metadata` is that of the broker's metadata log;
    `problem` is why it is not known although there is one.
    """

    path: Path
    partitions: dict[TopicPartition, Path]
    is_partition: bool = False
    cluster_id: str | None = None
    node_id: int | None = None
    metadata: ClusterMetadata | None = None
    problem: KcompactError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedPartition:
    """A partition and its replicas: for each the number of its side and its directory. `error`: it is not compared.

    `missing_on` are the sides of brokers that should have it by the cluster metadata, None if that does not say, or if
    a side without it is that of an unknown broker.
    """

    topic_partition: TopicPartition
    replicas: tuple[tuple[int, Path], ...]
    missing_on: tuple[int, ...] | None = None
    roles: Roles = field(default_factory=Roles)
    error: KcompactError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """The partitions that are meant: those that at least two sides have, and those that only one has."""

    sides: tuple[Side, ...]
    paired: tuple[PairedPartition, ...]
    alone: tuple[PairedPartition, ...]

    @property
    def of_first(self) -> dict[TopicPartition, Path]:
        """The directories of the first side among those that are compared."""
        return {pair.topic_partition: each for pair in self.paired for side, each in pair.replicas if side == 0}

    @property
    def exit_code(self) -> int:
        """That of a comparison in part if other sides should have a partition too, or may, else 0."""
        return ExitCode.UNDECIDED if any(each.missing_on != () for each in self.alone) else 0


def pair(paths: Sequence[Path], selection: Selection = EVERY_PARTITION) -> Pairs:
    """Return which partitions of some paths are replicas of each other.

    Raises RefusedError for too many paths, a path without partitions, paths of different clusters, if two paths have
    the same directory, if nothing is selected, and if no partition is on two paths; ConfigError, StorageError.
    """
    if len(paths) > MOST_REPLICAS:
        raise RefusedError(
            path=paths[MOST_REPLICAS],
            problem=f"is the {MOST_REPLICAS + 1}th path; {MOST_REPLICAS} replicas can be compared at once",
            hint="Pass fewer paths.",
        )
    sides = tuple(_side(path, selection) for path in paths)
    _require_one_cluster(sides)
    metadata = max(
        (side.metadata for side in sides if side.metadata is not None), key=lambda each: each.end_offset, default=None
    )
    paired, alone = list[PairedPartition](), list[PairedPartition]()
    named = {each for side in sides if side.is_partition for each in side.partitions}
    for partition in sorted(named or {each for side in sides for each in side.partitions}):
        holders = [
            (number, side.partitions[partition]) for number, side in enumerate(sides) if partition in side.partitions
        ]
        _require_different([directory for _, directory in holders])
        (paired if len(holders) > 1 else alone).append(_paired(partition, holders, sides, metadata))
    if not any(side.partitions for side in sides) and not selection.selects_all:
        raise selection.no_match(paths[0], find_partitions(paths))
    if not paired:
        raise RefusedError(
            path=paths[0],
            problem=f"no partition is here and in {' or '.join(map(str, paths[1:]))} too",
            hint="Pass the log directories of brokers that have replicas of the same partitions, or two directories of "
            "the same name such as A/orders-0 B/orders-0.",
        )
    return Pairs(sides=sides, paired=tuple(paired), alone=tuple(alone))


def _require_different(directories: Sequence[Path]) -> None:
    real_paths = [os.path.realpath(each) for each in directories]
    for directory, resolved in zip(directories, real_paths, strict=True):
        if real_paths.count(resolved) > 1:
            raise RefusedError(
                path=directory,
                problem="two of the paths have this directory: it cannot be compared with itself",
                hint="Pass the log directories of different brokers.",
            )


def _side(path: Path, selection: Selection) -> Side:
    directories = list(filter(selection.has, find_partitions([path])))
    partitions = {
        partition: directory
        for partition, directory in by_partition(directories).items()
        if partition.topic != CLUSTER_METADATA_TOPIC
    }
    log_dir = directories[0].parent if directories else canonical(path)
    problem: KcompactError | None = None
    properties = metadata = None
    try:
        properties = read_meta_properties(log_dir)
        metadata = read_cluster_metadata(log_dir)
    except (CorruptDataError, RefusedError) as error:
        problem = error
    return Side(
        path=path,
        partitions=partitions,
        is_partition=[canonical(path)] == [canonical(each) for each in directories],
        cluster_id=properties.cluster_id if properties else None,
        node_id=properties.node_id if properties else None,
        metadata=metadata,
        problem=problem,
    )


def _require_one_cluster(sides: Sequence[Side]) -> None:
    known = [side for side in sides if side.cluster_id is not None]
    for side in known[1:]:
        if side.cluster_id != known[0].cluster_id:
            raise RefusedError(
                path=side.path,
                problem=f"of the cluster {side.cluster_id}, but {known[0].path} is of {known[0].cluster_id}",
                hint="Only replicas of one cluster can be compared.",
            )


def _paired(
    partition: TopicPartition,
    holders: Sequence[tuple[int, Path]],
    sides: Sequence[Side],
    metadata: ClusterMetadata | None,
) -> PairedPartition:
    error: KcompactError | None = None
    try:
        ids = {directory: own_id for _, directory in holders if (own_id := read_topic_id(directory)) is not None}
        if len(set(ids.values())) > 1:
            named = ", ".join(f"{topic_id} in {directory}" for directory, topic_id in ids.items())
            error = StaleReplicaError(
                path=holders[0][1],
                problem=f"partition.metadata has different topic ids: {named}. The topic was deleted and created again",
                hint="These are not replicas of the same partition. Leave out the directory of the deleted topic.",
            )
    except KcompactError as problem:
        error = problem
    topic = metadata.topics.get(partition.topic) if metadata is not None else None
    roles = topic.roles.get(partition.partition, Roles()) if topic is not None else Roles()
    nodes = topic.partitions.get(partition.partition) if topic is not None else None
    missing_on = None
    others = [number for number, side in enumerate(sides) if partition not in side.partitions]
    if nodes is not None and all(sides[number].node_id is not None for number in others):
        missing_on = tuple(number for number in others if sides[number].node_id in nodes)
    return PairedPartition(
        topic_partition=partition, replicas=tuple(holders), missing_on=missing_on, roles=roles, error=error
    )
