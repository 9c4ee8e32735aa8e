"""The effective configuration of each partition directory of a command.

Sources, strongest first: `--config`, the running cluster of `--bootstrap-server`, the KRaft metadata log beside the
data, the broker's `server.properties` (that of `--broker-config`, else the one that `server_properties` finds), Kafka's
defaults; `layers.merged_config` merges them. A cluster's settings are used only for a partition of the same topic: the
name is the same, and so is the topic id if the directory has one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.config.broker_config import UNKNOWN_BROKER, BrokerConfig
from kcompact.config.broker_release import proved_release
from kcompact.config.layers import merged_config
from kcompact.config.metadata_log import (
    ClusterMetadata,
    check_topic_id,
    cluster_config,
    read_cluster_metadata,
    read_meta_properties,
    read_topic_id,
    why_stray,
)
from kcompact.config.server_properties import BrokerSearch
from kcompact.config.settings import CLEANER_ENABLE, ClusterConfig, Override, TopicConfig
from kcompact.errors import (
    ClusterUnreachableError,
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
from kcompact.notes import Note, NoteCode
from kcompact.release import NEWEST, Release, ReleaseSource

if TYPE_CHECKING:
    from kcompact.config.admin_client import LiveCluster
    from kcompact.config.client.settings import ClientConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The configuration of one partition, and notes for the user.

    With a `problem` the cluster's settings are unknown, and `config` has only the other sources: enough to inspect the
    partition, but not to clean it.
    """

    config: TopicConfig
    notes: tuple[Note, ...] = ()
    problem: KcompactError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LogDirMetadata:
    """The `meta.properties` and the cluster metadata of a log directory, or the problem with them.

    `broker` is what is known of the static settings of its broker.
    """

    broker: BrokerConfig
    properties: MetaProperties | None = None
    metadata: ClusterMetadata | None = None
    problem: KcompactError | None = None


def configurations(
    directories: Sequence[Path],
    *,
    overrides: Sequence[Override],
    broker_config: BrokerConfig | None,
    bootstrap_server: str | None,
    client: ClientConfig | None = None,
    release: Release | None = None,
) -> dict[Path, Configured]:
    """Return the configuration of each partition directory. Without `broker_config` the broker's file is looked for.

    Without `release` the rules are those of the broker's release, as far as its files prove it.

    A problem with a single partition is in its `problem`. Raises ConfigError for a value that Kafka does not accept,
    and if `broker_config` is that of another broker; ClusterUnreachableError; RefusedError when the cluster of
    `bootstrap_server` is not the cluster of the data.
    """
    resolver = _Resolver(overrides, broker_config, release)
    if bootstrap_server is not None:
        resolver.query_cluster(bootstrap_server, client, directories)
    return {directory: resolver.resolve(directory) for directory in directories}


def broker_configs(log_dirs: Iterable[Path], given: BrokerConfig | None) -> dict[Path, BrokerConfig]:
    """Return what is known of the broker of each log directory: `given`, else what is found.

    The settings may have values that a broker refuses. Raises ConfigError if `given` is that of another broker.
    """
    search = BrokerSearch()
    return {log_dir: _broker_of(log_dir, given, search) for log_dir in log_dirs}


def _broker_of(log_dir: Path, given: BrokerConfig | None, search: BrokerSearch) -> BrokerConfig:
    if given is not None:
        return given.require_naming(log_dir)
    try:
        properties = read_meta_properties(log_dir)
    except (KcompactError, OSError):  # `_read_metadata` reports it.
        properties = None
    return search.of(log_dir, node_id=properties.node_id if properties else None)


class _Resolver:
    """Finds the configurations of partitions. Reads the metadata of each log directory once."""

    def __init__(
        self, overrides: Sequence[Override], broker_config: BrokerConfig | None, release: Release | None
    ) -> None:
        self._overrides = overrides
        self._given = broker_config
        self._release = release
        self._search = BrokerSearch()
        self._metadata_by_log_dir: dict[Path, _LogDirMetadata] = {}
        self._live: LiveCluster | None = None

    def query_cluster(self, address: str, client: ClientConfig | None, directories: Sequence[Path]) -> None:
        """Read the settings of all topics and brokers from the running cluster, with one connection.

        Raises ClusterUnreachableError, RefusedError when a directory belongs to another cluster.
        """
        from kcompact.config.admin_client import ask_cluster

        topics = {partition.topic for path in directories if (partition := _partition(path)) is not None}
        log_dirs = dict.fromkeys(directory.parent for directory in directories)
        nodes = {node for log_dir in log_dirs if (node := self._node_id(self._metadata(log_dir))) is not None}
        live = ask_cluster(address, client=client, topics=sorted(topics), nodes=sorted(nodes))
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
        partition, broker = _partition(directory), self._metadata(directory.parent).broker
        if partition is None:
            return Configured(config=self._merge(directory.name, broker, None))
        notes = self._notes_on_given(directory.parent)
        try:
            with storage_errors(directory):
                cluster = self._cluster_config(directory, partition, notes)
            release, source, release_notes = self._release_of(directory.parent)
            notes += release_notes
            config = self._merge(partition.topic, broker, cluster, release, source)
            if config.compacts and not config.log_cleaner_enable:
                notes.append(Note.of(NoteCode.CLEANER_DISABLED, setting=CLEANER_ENABLE))
            return Configured(config=config, notes=tuple(notes))
        except ConfigError:
            raise
        except KcompactError as problem:
            return Configured(config=self._merge(partition.topic, broker, None), notes=tuple(notes), problem=problem)

    def _notes_on_given(self, log_dir: Path) -> list[Note]:
        """Return a note if the broker's file that was given is that of another node."""
        properties, given = self._metadata(log_dir).properties, self._given
        stored = properties.node_id if properties else None
        if given is None or given.origin is None or stored is None or given.node_id in (None, stored):
            return []
        return [Note.of(NoteCode.OTHER_BROKER, file=given.origin, node_id=given.node_id, stored_id=stored)]

    def _release_of(self, log_dir: Path) -> tuple[Release, ReleaseSource, tuple[Note, ...]]:
        """Return the release whose rules hold, how it is known, and notes. Raises UnsupportedError."""
        if self._release is not None:
            return self._release, ReleaseSource.OPTION, ()
        found = self._metadata(log_dir)
        return proved_release(log_dir, found.properties, found.metadata, node_id=self._node_id(found))

    def _merge(
        self,
        topic: str,
        broker: BrokerConfig,
        cluster: ClusterConfig | None,
        release: Release = NEWEST,
        source: ReleaseSource = ReleaseSource.NEWEST,
    ) -> TopicConfig:
        """Return the configuration of a topic from the options, the broker's file and the cluster's settings."""
        return merged_config(
            topic, overrides=self._overrides, broker=broker, cluster=cluster, release=release, release_source=source
        )

    def _cluster_config(self, directory: Path, partition: TopicPartition, notes: list[Note]) -> ClusterConfig | None:
        """Return the topic's settings in the running cluster or, if it has none, in the metadata log; add notes.

        None when neither has the topic. Raises StaleReplicaError, the problem with a metadata log that is needed, and
        ClusterUnreachableError when the user may not read the settings and there is no metadata log.
        """
        found = self._live_config(directory, partition, notes)
        if found is not None:
            return found
        log_dir = self._metadata(directory.parent)
        if log_dir.problem is not None:
            raise log_dir.problem
        if log_dir.metadata is None:
            if self._live is not None and partition.topic in self._live.hidden:
                raise _not_authorized(self._live.address)
            if self._live is not None:
                notes.append(Note.of(NoteCode.STRAY_REPLICA, why="the topic is not in the cluster metadata"))
            return None
        notes += log_dir.metadata.notes
        topic = log_dir.metadata.topics.get(partition.topic)
        if topic is not None:
            topic_id = check_topic_id(directory, partition, topic.topic_id, where="the cluster metadata")
        else:
            topic_id = read_topic_id(directory)
        why = why_stray(log_dir.metadata, topic_id, partition, node_id=self._node_id(log_dir))
        if why is not None:
            notes.append(Note.of(NoteCode.STRAY_REPLICA, why=why))
        if topic is None:
            if why is None:
                notes.append(Note.of(NoteCode.OTHER_TOPIC_ID))
            return None
        return cluster_config(log_dir.metadata, partition.topic, node_id=self._node_id(log_dir))

    def _live_config(self, directory: Path, partition: TopicPartition, notes: list[Note]) -> ClusterConfig | None:
        """Return the topic's settings in the running cluster, None without one or without the topic; add notes.

        Raises StaleReplicaError.
        """
        live = self._live
        if live is None:
            return None
        from kcompact.config.admin_client import live_config

        topic = live.topics.get(partition.topic)
        if topic is None:
            is_hidden = partition.topic in live.hidden
            code = NoteCode.HIDDEN_SETTINGS if is_hidden else NoteCode.UNKNOWN_TO_CLUSTER
            notes.append(Note.of(code, address=live.address))
            return None
        if topic.topic_id is not None:
            check_topic_id(directory, partition, topic.topic_id, where=live.address)
        log_dir = self._metadata(directory.parent)
        node_id = self._node_id(log_dir)
        if node_id not in live.brokers:
            why = "the broker of this directory is unknown" if node_id is None else f"broker {node_id} is not up"
            if node_id in live.hidden_brokers:
                why = f"this user may not read the settings of broker {node_id} (DescribeConfigs on the cluster)"
            notes.append(Note.of(NoteCode.BROKER_NOT_ASKED, why=why))
        offline = log_dir.metadata.broker_configs if log_dir.metadata else {}
        return live_config(
            live, partition.topic, node_id=node_id, fallback=offline.get(node_id) if node_id is not None else None
        )

    def _node_id(self, log_dir: _LogDirMetadata) -> int | None:
        """Return the node id of a log directory's broker, from `meta.properties` or from `server.properties`."""
        if log_dir.properties is not None and log_dir.properties.node_id is not None:
            return log_dir.properties.node_id
        return log_dir.broker.node_id

    def _metadata(self, log_dir: Path) -> _LogDirMetadata:
        if log_dir not in self._metadata_by_log_dir:
            self._metadata_by_log_dir[log_dir] = self._read_metadata(log_dir)
        return self._metadata_by_log_dir[log_dir]

    def _read_metadata(self, log_dir: Path) -> _LogDirMetadata:
        """Return the metadata of a log directory, or the problem with it. A running cluster can replace metadata.

        Raises ConfigError if the broker's file that was given is that of another broker.
        """
        broker = _usable(_broker_of(log_dir, self._given, self._search))
        properties = None
        try:
            properties = read_meta_properties(log_dir)
            metadata = read_cluster_metadata(log_dir) or _metadata_of_other_log_dir(log_dir, properties, broker)
            return _LogDirMetadata(broker=broker, properties=properties, metadata=metadata)
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
            return _LogDirMetadata(broker=broker, properties=properties, problem=damage)
        except KcompactError as problem:
            return _LogDirMetadata(broker=broker, properties=properties, problem=problem)
        except OSError as problem:
            failure = storage_error(Path(problem.filename or log_dir), problem)
            return _LogDirMetadata(broker=broker, properties=properties, problem=failure)


def _usable(broker: BrokerConfig) -> BrokerConfig:
    """Return the broker's settings, or that nothing is known if a broker refuses the ones that were found."""
    if not broker.is_found:
        return broker
    try:
        merged_config("every topic", overrides=(), broker=broker)
    except ConfigError as problem:
        why = f"{broker.origin} names it, but a broker refuses {problem.path}: {problem.problem}"
        return replace(UNKNOWN_BROKER, doubts=(why,))
    return broker


def _metadata_of_other_log_dir(
    log_dir: Path, own: MetaProperties | None, broker: BrokerConfig
) -> ClusterMetadata | None:
    """Return the metadata log in the directory that `server.properties` names, if that is another log directory.

    None when there is no such log, or when the two directories do not have the same cluster id.
    """
    named = broker.metadata_log_dir if broker.properties else None
    other_dir = broker.located(named) if named is not None else None
    if own is None or own.cluster_id is None or other_dir is None or not other_dir.is_dir():
        return None
    if other_dir.samefile(log_dir):
        return None
    other = read_meta_properties(other_dir)
    if other is None or other.cluster_id != own.cluster_id:
        return None
    return read_cluster_metadata(other_dir)


def _not_authorized(address: str) -> ClusterUnreachableError:
    return ClusterUnreachableError(
        address=address,
        problem="this user may not read the settings of the topic",
        hint=f"To allow it: kafka-acls.sh --bootstrap-server {address} --command-config ADMIN_FILE --add "
        "--allow-principal User:NAME --operation Describe --operation DescribeConfigs --topic TOPIC",
    )


def _partition(directory: Path) -> TopicPartition | None:
    """Return the partition of a directory, or None if a cluster has no settings for it."""
    parsed = parse_directory(directory.name)
    if parsed is None or parsed.kind is not DirectoryKind.PARTITION:
        return None
    return None if parsed.topic_partition.topic == CLUSTER_METADATA_TOPIC else parsed.topic_partition
