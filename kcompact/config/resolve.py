"""The effective configuration of every partition that a command names, and where it comes from.

Strongest first: `--config`, the live cluster of `--bootstrap-server`, the KRaft metadata log beside the data,
`--broker-config`, Kafka's defaults (`config.topic_config` puts them together). What a cluster knows of a topic is only
taken for a partition of that very topic: same name, and same id where the directory has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.config.layers import topic_config
from kcompact.config.metadata_log import (
    ClusterMetadata,
    check_topic_id,
    cluster_config,
    read_cluster_metadata,
    read_meta_properties,
)
from kcompact.config.settings import ClusterConfig, Override, TopicConfig
from kcompact.errors import ConfigError, CorruptDataError, KcompactError, RefusedError, StorageError
from kcompact.format.names import CLUSTER_METADATA_TOPIC, DirectoryKind, TopicPartition, parse_directory
from kcompact.format.properties import MetaProperties

if TYPE_CHECKING:
    from kcompact.config.admin_client import LiveCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The configuration of one partition. With a `problem` it is what is known all the same: to look, not to act."""

    config: TopicConfig
    notes: tuple[str, ...] = ()
    problem: KcompactError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    """What a log directory says of itself and of its cluster."""

    properties: MetaProperties | None = None
    metadata: ClusterMetadata | None = None
    problem: KcompactError | None = None


def configurations(
    directories: Sequence[Path],
    *,
    overrides: Sequence[Override],
    broker_properties: Mapping[str, str],
    bootstrap_server: str | None,
) -> dict[Path, Configured]:
    """Return the configuration of each partition directory.

    Raises ConfigError for a value that Kafka would refuse, ClusterUnreachableError, and RefusedError where the live
    cluster is not the one that the data belongs to; what is wrong with one partition is in its `problem`.
    """
    made = _Configurations(overrides, broker_properties)
    if bootstrap_server is not None:
        made.ask(bootstrap_server, directories)
    return {directory: made.of(directory) for directory in directories}


class _Configurations:
    """Reads each log directory's cluster metadata once."""

    def __init__(self, overrides: Sequence[Override], broker_properties: Mapping[str, str]) -> None:
        self._overrides = overrides
        self._broker_properties = broker_properties
        self._homes: dict[Path, _Home] = {}
        self._live: LiveCluster | None = None

    def ask(self, address: str, directories: Sequence[Path]) -> None:
        """Ask the live cluster about all topics and brokers at once."""
        from kcompact.config.admin_client import ask_cluster

        topics = {partition.topic for each in directories if (partition := _partition(each)) is not None}
        log_dirs = dict.fromkeys(directory.parent for directory in directories)
        nodes = {node for log_dir in log_dirs if (node := self._node_id(self._home(log_dir))) is not None}
        live = ask_cluster(address, topics=sorted(topics), nodes=sorted(nodes))
        for log_dir in log_dirs:
            properties = self._home(log_dir).properties
            own = properties.cluster_id if properties else None
            if own is not None and live.cluster_id is not None and own != live.cluster_id:
                raise RefusedError(
                    path=log_dir, problem=f"belongs to the cluster {own}, but {address} is one of {live.cluster_id}"
                )
        self._live = live

    def of(self, directory: Path) -> Configured:
        partition = _partition(directory)
        if partition is None:
            return Configured(config=self._config(directory.name, None))
        home = self._home(directory.parent)
        notes: list[str] = []
        try:
            cluster = self._cluster(directory, partition, home, notes)
            config = self._config(partition.topic, cluster)
            if config.compacts and not self._is_cleaner_on():
                notes.append("the broker's own cleaner is switched off: log.cleaner.enable=false")
            return Configured(config=config, notes=tuple(notes))
        except ConfigError:
            raise
        except KcompactError as problem:
            return Configured(config=self._config(partition.topic, None), notes=tuple(notes), problem=problem)

    def _is_cleaner_on(self) -> bool:
        named = {override.name: override.value for override in self._overrides}
        value = named.get("log.cleaner.enable", self._broker_properties.get("log.cleaner.enable", "true"))
        return value.strip().lower() != "false"

    def _config(self, topic: str, cluster: ClusterConfig | None) -> TopicConfig:
        return topic_config(
            topic, overrides=self._overrides, broker_properties=self._broker_properties, cluster=cluster
        )

    def _cluster(
        self, directory: Path, partition: TopicPartition, home: _Home, notes: list[str]
    ) -> ClusterConfig | None:
        """Return what the strongest source that knows the topic says of it. Raises StaleReplicaError."""
        found = self._of_live_cluster(directory, partition, home, notes)
        if found is not None:
            return found
        if home.problem is not None:
            raise home.problem
        if home.metadata is None:
            return None
        notes += home.metadata.notes
        topic = home.metadata.topics.get(partition.topic)
        if topic is None:
            notes.append(
                "the cluster metadata does not know this topic: a broker would set the directory aside as stray"
            )
            return None
        check_topic_id(directory, partition, topic.topic_id, where="the cluster metadata")
        if partition.partition not in topic.partitions:
            notes.append("the cluster metadata knows the topic, but no partition of this number")
        return cluster_config(home.metadata, partition.topic, node_id=self._node_id(home))

    def _of_live_cluster(
        self, directory: Path, partition: TopicPartition, home: _Home, notes: list[str]
    ) -> ClusterConfig | None:
        live = self._live
        if live is None:
            return None
        from kcompact.config.admin_client import live_config

        topic = live.topics.get(partition.topic)
        if topic is None:
            notes.append(f"{live.address} knows no topic of this name, or does not say how it is configured")
            return None
        if topic.topic_id is not None:
            check_topic_id(directory, partition, topic.topic_id, where=live.address)
        node_id = self._node_id(home)
        if node_id not in live.brokers:
            which = "the broker of this directory is not known" if node_id is None else f"broker {node_id} is not up"
            notes.append(f"{which}: its own settings are those of its metadata log and of --broker-config")
        known = home.metadata.broker_configs if home.metadata else {}
        return live_config(
            live, partition.topic, node_id=node_id, fallback=known.get(node_id) if node_id is not None else None
        )

    def _node_id(self, home: _Home) -> int | None:
        if home.properties is not None and home.properties.node_id is not None:
            return home.properties.node_id
        written = self._broker_properties.get("node.id", "")
        return int(written) if written.isascii() and written.isdigit() and len(written) <= 10 else None

    def _home(self, log_dir: Path) -> _Home:
        if log_dir not in self._homes:
            self._homes[log_dir] = self._read_home(log_dir)
        return self._homes[log_dir]

    def _read_home(self, log_dir: Path) -> _Home:
        properties = None
        try:
            properties = read_meta_properties(log_dir)
            metadata = read_cluster_metadata(log_dir) or self._from_elsewhere(log_dir, properties)
            return _Home(properties=properties, metadata=metadata)
        except CorruptDataError as problem:
            hint = (
                "The settings of the topics cannot be told. Ask a live cluster with --bootstrap-server, or copy the "
                "partition directory elsewhere and pass its settings with --config."
            )
            damage = type(problem)(
                file=problem.file,
                position=problem.position,
                offset=problem.offset,
                problem=problem.problem,
                hint=problem.hint or hint,
            )
            return _Home(properties=properties, problem=damage)
        except KcompactError as problem:
            return _Home(properties=properties, problem=problem)
        except OSError as problem:
            return _Home(properties=properties, problem=StorageError(path=problem.filename or log_dir, problem=problem))

    def _from_elsewhere(self, log_dir: Path, own: MetaProperties | None) -> ClusterMetadata | None:
        """Return the metadata log that `server.properties` places in another directory of the same cluster."""
        named = self._broker_properties
        first_of_all = (named.get("log.dirs") or named.get("log.dir") or "").split(",")[0]
        place = Path((named.get("metadata.log.dir") or first_of_all).strip() or ".").resolve()
        if own is None or own.cluster_id is None or not place.is_dir() or place == log_dir:
            return None
        there = read_meta_properties(place)
        if there is None or there.cluster_id != own.cluster_id:
            return None
        return read_cluster_metadata(place)


def _partition(directory: Path) -> TopicPartition | None:
    """Return the partition that a directory holds, None for those a cluster has no settings for."""
    parsed = parse_directory(directory.name)
    if parsed is None or parsed.kind is not DirectoryKind.PARTITION:
        return None
    return None if parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC else parsed.topic_partition
