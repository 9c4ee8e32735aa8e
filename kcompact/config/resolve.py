"""The effective configuration of each partition directory of a command.

Sources, strongest first: `--config`, the running cluster of `--bootstrap-server`, the KRaft metadata log beside the
data, `--broker-config`, Kafka's defaults; `layers.topic_config` merges them. A cluster's settings are used only for a
partition of the same topic: the name is the same, and so is the topic id if the directory has one.
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
from kcompact.config.settings import CLEANER_ENABLE, ClusterConfig, Override, TopicConfig
from kcompact.errors import (
    ConfigError,
    CorruptBatchError,
    CorruptDataError,
    KcompactError,
    RefusedError,
    storage_error,
    storage_errors,
)
from kcompact.format.names import CLUSTER_METADATA_TOPIC, DirectoryKind, TopicPartition, parse_directory
from kcompact.format.properties import MetaProperties

if TYPE_CHECKING:
    from kcompact.config.admin_client import LiveCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The configuration of one partition, and notes for the user.

    With a `problem` the cluster's settings are unknown, and `config` has only the other sources: enough to inspect the
    partition, but not to clean it.
    """

    config: TopicConfig
    notes: tuple[str, ...] = ()
    problem: KcompactError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogDirMetadata:
    """The `meta.properties` and the cluster metadata of a log directory, or the problem with them."""

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

    A problem with a single partition is in its `problem`. Raises ConfigError for a value that Kafka does not accept,
    ClusterUnreachableError, RefusedError when the cluster of `bootstrap_server` is not the cluster of the data.
    """
    resolver = _Resolver(overrides, broker_properties)
    if bootstrap_server is not None:
        resolver.query_cluster(bootstrap_server, directories)
    return {directory: resolver.resolve(directory) for directory in directories}


def is_cleaner_enabled(overrides: Sequence[Override], broker_properties: Mapping[str, str]) -> bool:
    """Return whether the broker's own cleaner runs, by the options and `server.properties`."""
    options = {override.name: override.value for override in overrides}
    value = options.get(CLEANER_ENABLE, broker_properties.get(CLEANER_ENABLE, "true"))
    return value.strip().lower() != "false"


class _Resolver:
    """Finds the configurations of partitions. Reads the metadata of each log directory once."""

    def __init__(self, overrides: Sequence[Override], broker_properties: Mapping[str, str]) -> None:
        self._overrides = overrides
        self._broker_properties = broker_properties
        self._metadata_by_log_dir: dict[Path, _LogDirMetadata] = {}
        self._live: LiveCluster | None = None

    def query_cluster(self, address: str, directories: Sequence[Path]) -> None:
        """Read the settings of all topics and brokers from the running cluster, with one connection.

        Raises ClusterUnreachableError, RefusedError when a directory belongs to another cluster.
        """
        from kcompact.config.admin_client import ask_cluster

        topics = {partition.topic for path in directories if (partition := _partition(path)) is not None}
        log_dirs = dict.fromkeys(directory.parent for directory in directories)
        nodes = {node for log_dir in log_dirs if (node := self._node_id(self._metadata(log_dir))) is not None}
        live = ask_cluster(address, topics=sorted(topics), nodes=sorted(nodes))
        for log_dir in log_dirs:
            properties = self._metadata(log_dir).properties
            cluster_id = properties.cluster_id if properties else None
            if cluster_id is not None and live.cluster_id is not None and cluster_id != live.cluster_id:
                raise RefusedError(
                    path=log_dir,
                    problem=f"belongs to the cluster {cluster_id}, "
                    f"but {address} belongs to the cluster {live.cluster_id}",
                )
        self._live = live

    def resolve(self, directory: Path) -> Configured:
        """Return the configuration of one partition directory. Raises ConfigError."""
        partition = _partition(directory)
        if partition is None:
            return Configured(config=self._merge(directory.name, None))
        notes: list[str] = []
        try:
            with storage_errors(directory):
                cluster = self._cluster_config(directory, partition, notes)
            config = self._merge(partition.topic, cluster)
            if config.compacts and not config.log_cleaner_enable:
                notes.append(f"the broker's own cleaner is switched off: {CLEANER_ENABLE}=false")
            return Configured(config=config, notes=tuple(notes))
        except ConfigError:
            raise
        except KcompactError as problem:
            return Configured(config=self._merge(partition.topic, None), notes=tuple(notes), problem=problem)

    def _merge(self, topic: str, cluster: ClusterConfig | None) -> TopicConfig:
        """Return the configuration of a topic from the options, the files and the cluster's settings."""
        return topic_config(
            topic, overrides=self._overrides, broker_properties=self._broker_properties, cluster=cluster
        )

    def _cluster_config(self, directory: Path, partition: TopicPartition, notes: list[str]) -> ClusterConfig | None:
        """Return the topic's settings in the running cluster or, if it has none, in the metadata log; add notes.

        None when neither has the topic. Raises StaleReplicaError, and the problem with a metadata log that is needed.
        """
        found = self._live_config(directory, partition, notes)
        if found is not None:
            return found
        log_dir = self._metadata(directory.parent)
        if log_dir.problem is not None:
            raise log_dir.problem
        if log_dir.metadata is None:
            return None
        notes += log_dir.metadata.notes
        topic = log_dir.metadata.topics.get(partition.topic)
        if topic is None:
            notes.append("the topic is not in the cluster metadata: a broker would move the directory aside as stray")
            return None
        check_topic_id(directory, partition, topic.topic_id, where="the cluster metadata")
        if partition.partition not in topic.partitions:
            notes.append(f"the cluster metadata has the topic, but no partition {partition.partition} of it")
        return cluster_config(log_dir.metadata, partition.topic, node_id=self._node_id(log_dir))

    def _live_config(self, directory: Path, partition: TopicPartition, notes: list[str]) -> ClusterConfig | None:
        """Return the topic's settings in the running cluster, None without one or without the topic; add notes.

        Raises StaleReplicaError.
        """
        live = self._live
        if live is None:
            return None
        from kcompact.config.admin_client import live_config

        topic = live.topics.get(partition.topic)
        if topic is None:
            notes.append(f"{live.address} does not have this topic, or does not show its configuration")
            return None
        if topic.topic_id is not None:
            check_topic_id(directory, partition, topic.topic_id, where=live.address)
        log_dir = self._metadata(directory.parent)
        node_id = self._node_id(log_dir)
        if node_id not in live.brokers:
            why = "the broker of this directory is unknown" if node_id is None else f"broker {node_id} is not up"
            notes.append(f"{why}: its own settings are taken from its metadata log and from --broker-config")
        offline = log_dir.metadata.broker_configs if log_dir.metadata else {}
        return live_config(
            live, partition.topic, node_id=node_id, fallback=offline.get(node_id) if node_id is not None else None
        )

    def _node_id(self, log_dir: _LogDirMetadata) -> int | None:
        """Return the node id of a log directory's broker, from `meta.properties` or from `server.properties`."""
        if log_dir.properties is not None and log_dir.properties.node_id is not None:
            return log_dir.properties.node_id
        written = self._broker_properties.get("node.id", "")
        return int(written) if written.isascii() and written.isdigit() and len(written) <= 10 else None

    def _metadata(self, log_dir: Path) -> _LogDirMetadata:
        if log_dir not in self._metadata_by_log_dir:
            self._metadata_by_log_dir[log_dir] = self._read_metadata(log_dir)
        return self._metadata_by_log_dir[log_dir]

    def _read_metadata(self, log_dir: Path) -> _LogDirMetadata:
        """Return the metadata of a log directory, or the problem with it. A running cluster can replace metadata."""
        properties = None
        try:
            properties = read_meta_properties(log_dir)
            metadata = read_cluster_metadata(log_dir) or self._metadata_of_other_log_dir(log_dir, properties)
            return _LogDirMetadata(properties=properties, metadata=metadata)
        except CorruptDataError as problem:
            hint = (
                "The settings of the topics are unknown. Read them from a running cluster with --bootstrap-server, or "
                "copy the partition directory elsewhere and pass its settings with --config."
            )
            damage = type(problem)(
                file=problem.file,
                position=problem.position,
                offset=problem.offset,
                problem=problem.problem,
                hint=hint if isinstance(problem, CorruptBatchError) else problem.hint or hint,
            )
            return _LogDirMetadata(properties=properties, problem=damage)
        except KcompactError as problem:
            return _LogDirMetadata(properties=properties, problem=problem)
        except OSError as problem:
            failure = storage_error(Path(problem.filename or log_dir), problem)
            return _LogDirMetadata(properties=properties, problem=failure)

    def _metadata_of_other_log_dir(self, log_dir: Path, own: MetaProperties | None) -> ClusterMetadata | None:
        """Return the metadata log in the directory that `server.properties` names, if that is another log directory.

        None when there is no such log, or when the two directories do not have the same cluster id.
        """
        properties = self._broker_properties
        first_log_dir = (properties.get("log.dirs") or properties.get("log.dir") or "").split(",")[0]
        other_dir = Path((properties.get("metadata.log.dir") or first_log_dir).strip() or ".").resolve()
        if own is None or own.cluster_id is None or not other_dir.is_dir() or other_dir == log_dir:
            return None
        other = read_meta_properties(other_dir)
        if other is None or other.cluster_id != own.cluster_id:
            return None
        return read_cluster_metadata(other_dir)


def _partition(directory: Path) -> TopicPartition | None:
    """Return the partition of a directory, or None if a cluster has no settings for it."""
    parsed = parse_directory(directory.name)
    if parsed is None or parsed.kind is not DirectoryKind.PARTITION:
        return None
    return None if parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC else parsed.topic_partition
