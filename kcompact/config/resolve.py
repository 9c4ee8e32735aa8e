"""The effective configuration of each partition directory of a command.

`settings` has the order of the sources; `layers.merged_config` merges them. What a source says of a topic is used only
for a partition of the same topic: the name is the same, and so is the topic id if both have one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.broker_release import UNKNOWN_RELEASE, KnownRelease, proved_release
from kcompact.config.brokers import Broker, brokers_of
from kcompact.config.layers import merged_config
from kcompact.config.metadata_log import (
    ORIGIN,
    check_topic_id,
    dynamic_config,
    read_topic_id,
    why_stray,
)
from kcompact.config.settings import (
    CLEANER_ENABLE,
    OF_THE_TOPIC_ALONE,
    UNKNOWN_OVERRIDES,
    DynamicConfig,
    Override,
    TopicConfig,
    TopicOverrides,
    is_used,
    parse_value,
)
from kcompact.errors import (
    ClusterUnreachableError,
    ConfigError,
    KcompactError,
    OtherTopicError,
    RefusedError,
    StaleReplicaError,
    storage_errors,
)
from kcompact.format.names import CLUSTER_METADATA_TOPIC, DirectoryKind, TopicPartition, parse_directory
from kcompact.release import Release, ReleaseSource
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.config.admin_client import LiveCluster
    from kcompact.config.client.settings import ClientConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """The configuration of one partition, and notes for the user.

    `moves` are the `-future` directories of the partition in any log directory of its broker. With a `problem` the
    settings of the topic are unknown: enough to inspect the partition, but not to clean it.
    """

    config: TopicConfig
    notes: tuple[Note, ...] = ()
    moves: tuple[Path, ...] = ()
    problem: KcompactError | None = None


def configurations(
    directories: Sequence[Path],
    *,
    overrides: Sequence[Override],
    broker_config: BrokerConfig | None,
    bootstrap_server: str | None,
    topic_configs: Mapping[str, TopicOverrides] | None,
    log_dirs: Sequence[Path],
    replicas: Sequence[Path],
    client: ClientConfig | None,
    release: Release | None,
    brokers: Mapping[Path, Broker] | None,
) -> dict[Path, Configured]:
    """Return the configuration of each partition directory. Without `broker_config` the broker's file is looked for.

    `log_dirs` may belong to the brokers of the partitions too, and so may `replicas`; a path that is no log directory
    does not count.
    `brokers` are those of all log directories, if they are known already.

    Without `release` the rules are those of the broker's release, as far as its files prove it.

    A problem with a single partition is in its `problem`. Raises ConfigError for a value that Kafka does not accept,
    and if `broker_config` is that of another broker; ClusterUnreachableError; RefusedError when the cluster of
    `bootstrap_server` is not the cluster of the data.
    """
    if not directories and bootstrap_server is None:
        return {}
    if brokers is None:
        brokers = brokers_of(
            (directory.parent for directory in directories), broker_config, further_log_dirs=log_dirs, replicas=replicas
        )
        _require_own_node(brokers, broker_config)
    resolver = _Resolver(brokers, overrides, topic_configs or {}, broker_config, release)
    if bootstrap_server is not None:
        resolver.query_cluster(bootstrap_server, client, directories)
    return {directory: resolver.resolve(directory) for directory in directories}


def _require_own_node(brokers: Mapping[Path, Broker], given: BrokerConfig | None) -> None:
    """Raise ConfigError if the broker's file that was given is that of another node, unless the user says otherwise."""
    if given is None or given.origin is None or given.log_dirs_moved:
        return
    for log_dir, broker in brokers.items():
        stored = _other_node_id(broker, given)
        if stored is not None:
            raise ConfigError(
                path=given.origin,
                problem=f"has the node id {given.node_id}, and meta.properties of {log_dir} has {stored}: it is "
                "that of another broker",
                hint="Pass the file of its own broker. If it is its file all the same, add --log-dirs-moved.",
            )


def _other_node_id(broker: Broker, given: BrokerConfig) -> int | None:
    """Return the node id in `meta.properties` of a broker if the broker's file that was given has another one."""
    stored = broker.properties.node_id if broker.properties else None
    return None if given.node_id in (None, stored) else stored


class _Resolver:
    """Finds the configurations of partitions from what is known of their brokers."""

    def __init__(
        self,
        brokers: Mapping[Path, Broker],
        overrides: Sequence[Override],
        topic_configs: Mapping[str, TopicOverrides],
        given: BrokerConfig | None,
        release: Release | None,
    ) -> None:
        self._brokers = brokers
        self._configs = {log_dir: broker.config for log_dir, broker in brokers.items()}
        self._overrides = overrides
        self._topic_configs = topic_configs
        self._given = given
        self._release = release
        self._known_releases: dict[Path, KnownRelease] = {}
        self._live: LiveCluster | None = None
        self._last_merged: tuple[tuple[object, ...], TopicConfig] | None = None

    def query_cluster(self, address: str, client: ClientConfig | None, directories: Sequence[Path]) -> None:
        """Read the settings of all topics and brokers from the running cluster, with one connection.

        Raises ClusterUnreachableError, RefusedError when a directory belongs to another cluster.
        """
        from kcompact.config.admin_client import ask_cluster

        topics = {partition.topic for path in directories if (partition := _partition(path)) is not None}
        nodes = {broker.node_id for broker in self._brokers.values() if broker.node_id is not None}
        live = ask_cluster(address, client=client, topics=sorted(topics), nodes=sorted(nodes))
        for log_dir, broker in self._brokers.items():
            cluster_id = broker.properties.cluster_id if broker.properties else None
            if cluster_id is not None and live.cluster_id is not None and cluster_id != live.cluster_id:
                raise RefusedError(
                    path=log_dir,
                    problem=f"belongs to the cluster {cluster_id}, "
                    f"but {address} belongs to the cluster {live.cluster_id}",
                )
        self._live = live

    def resolve(self, directory: Path) -> Configured:
        """Return the configuration of one partition directory. Raises ConfigError."""
        partition, broker = _partition(directory), self._brokers[directory.parent]
        if partition is None:
            return Configured(config=self._merged(directory.name, directory, UNKNOWN_OVERRIDES))
        notes, moves = self._notes_on_given(broker), broker.moves.get(partition, ())
        try:
            with storage_errors(directory):
                own = self._own(directory, partition, notes)
            known = self._release_of(directory.parent)
            config = self._merged(partition.topic, directory, own, self._dynamic(broker, own, notes), known)
            if config.compacts:
                notes += known.notes
                if not config.log_cleaner_enable:
                    notes.append(Note.of(RemarkCode.CLEANER_DISABLED, setting=CLEANER_ENABLE))
            return Configured(config=config, notes=tuple(notes), moves=moves)
        except ConfigError:
            raise
        except KcompactError as problem:
            config = self._merged(partition.topic, directory, UNKNOWN_OVERRIDES)
            return Configured(config=config, notes=tuple(notes), moves=moves, problem=problem)

    def _notes_on_given(self, broker: Broker) -> list[Note]:
        """Return a note if the broker's file that was given is that of another node."""
        given = self._given
        if given is None or given.origin is None or (stored := _other_node_id(broker, given)) is None:
            return []
        return [Note.of(RemarkCode.OTHER_BROKER, file=given.origin, node_id=given.node_id, stored_id=stored)]

    def _release_of(self, log_dir: Path) -> KnownRelease:
        """Return the release whose rules hold, and how it is known. Raises UnsupportedError, StorageError."""
        if self._release is not None:
            return KnownRelease(self._release, ReleaseSource.OPTION)
        if log_dir not in self._known_releases:
            broker = self._brokers[log_dir]
            log_dirs = [each.path for each in broker.log_dirs]
            known = proved_release(log_dirs, broker.properties, broker.metadata, node_id=broker.node_id)
            self._known_releases[log_dir] = known
        return self._known_releases[log_dir]

    def _merged(
        self,
        topic: str,
        directory: Path,
        own: TopicOverrides,
        dynamic: DynamicConfig | None = None,
        known: KnownRelease = UNKNOWN_RELEASE,
    ) -> TopicConfig:
        """Return the configuration of a topic from the options, its own settings and those of its broker.

        The partitions of a topic follow each other, and those with the same sources share one configuration.
        """
        sources = (topic, directory.parent, own, dynamic, known)
        if self._last_merged is None or self._last_merged[0] != sources:
            config = merged_config(
                topic,
                overrides=self._overrides,
                own=own,
                broker=self._configs[directory.parent],
                dynamic=dynamic,
                release=known.release,
            )
            config = replace(config, release_source=known.source, broker_release=known.broker_release)
            self._last_merged = (sources, config)
        return self._last_merged[1]

    def _own(self, directory: Path, partition: TopicPartition, notes: list[Note]) -> TopicOverrides:
        """Return what is known of the topic's own settings: from the first source that has the topic; add notes.

        Raises StaleReplicaError, the problem with a metadata log that is needed, and ClusterUnreachableError when the
        user may not read the settings and no other source has them.
        """
        topic, live = partition.topic, self._live
        if live is not None:
            if overrides := live.topics.get(topic):
                _require_same_topic(directory, partition, overrides, live.address)
                return overrides
            code = RemarkCode.HIDDEN_SETTINGS if topic in live.hidden else RemarkCode.UNKNOWN_TO_CLUSTER
            notes.append(Note.of(code, address=live.address))
        if overrides := self._topic_configs.get(topic):
            _require_same_topic(directory, partition, overrides, "--topic-configs")
            self._note_if_stray(directory, partition, notes)
            self._note_metadata_not_used(self._brokers[directory.parent], topic, overrides, notes)
            return overrides
        return self._own_in_metadata(directory, partition, notes)

    def _own_in_metadata(self, directory: Path, partition: TopicPartition, notes: list[Note]) -> TopicOverrides:
        """Return what the metadata log of the broker knows of the topic's own settings; add notes. Raises as `_own`."""
        broker = self._brokers[directory.parent]
        if broker.problem is not None:
            raise broker.problem
        if broker.metadata is None:
            if self._live is not None and partition.topic in self._live.hidden:
                raise _not_authorized(self._live.address)
            if self._live is not None:
                notes.append(Note.of(RemarkCode.STRAY_REPLICA, why="the topic is not in the cluster metadata"))
            return self._unknown(broker.why_no_metadata)
        notes += broker.metadata.notes
        is_stray = self._note_if_stray(directory, partition, notes)
        topic = broker.metadata.topics.get(partition.topic)
        if topic is None:
            if not is_stray:
                notes.append(Note.of(RemarkCode.OTHER_TOPIC_ID))
            return self._unknown("the cluster metadata does not have them")
        return TopicOverrides(values=topic.overrides, origin=ORIGIN, topic_id=topic.topic_id)

    def _note_if_stray(self, directory: Path, partition: TopicPartition, notes: list[Note]) -> bool:
        """Return whether a broker moves a replica aside by what its metadata log says; add a note then.

        Raises StaleReplicaError if the topic was created again.
        """
        broker = self._brokers[directory.parent]
        if broker.metadata is None:
            return False
        topic = broker.metadata.topics.get(partition.topic)
        if topic is not None:
            try:
                topic_id = check_topic_id(directory, partition, topic.topic_id, where="the cluster metadata")
            except StaleReplicaError:
                _require_no_other_topic(directory, partition, broker)
                raise
        else:
            topic_id = read_topic_id(directory)
        if topic is not None and topic_id is None:
            known_id = topic.topic_id
            if why_stray(broker.metadata, known_id, partition, node_id=broker.node_id) is None:
                notes.append(Note.of(RemarkCode.MISSING_TOPIC_ID, topic_id=known_id))
                return True
        why = why_stray(broker.metadata, topic_id, partition, node_id=broker.node_id)
        if why is not None:
            notes.append(Note.of(RemarkCode.STRAY_REPLICA, why=why))
        return why is not None

    def _note_metadata_not_used(self, broker: Broker, topic: str, overrides: TopicOverrides, notes: list[Note]) -> None:
        """Add a note if the metadata log says otherwise than `--topic-configs`, or cannot be read."""
        why, metadata = "", broker.metadata
        if metadata is not None and (known := metadata.topics.get(topic)) is not None:
            own = {name for name in known.overrides if is_used(name)} | {*OF_THE_TOPIC_ALONE} & {*overrides.values}
            differing = sorted(
                name for name in own if _parsed(name, known.overrides) != _parsed(name, overrides.values)
            )
            if differing:
                why = f"--topic-configs has another value of {', '.join(differing)}, or none, and decides"
        elif _has_lost_dynamic_settings(broker):
            why = broker.why_no_metadata if broker.problem is None else str(broker.problem).splitlines()[0]
            why += ". So its dynamic settings are unknown, and limits of retention that topics do not have of their own"
        if why:
            notes.append(Note.of(RemarkCode.METADATA_NOT_USED, name="the metadata log of the broker", problem=why))

    def _unknown(self, why: str) -> TopicOverrides:
        return replace(UNKNOWN_OVERRIDES, why=f"not in --topic-configs, and {why}" if self._topic_configs else why)

    def _dynamic(self, broker: Broker, own: TopicOverrides, notes: list[Note]) -> DynamicConfig | None:
        """Return the settings that the cluster has for a broker, None if no source knows them; add notes.

        A running cluster that does not know the topic says nothing of its broker either, if the metadata log does.
        """
        metadata, node_id, live = broker.metadata, broker.node_id, self._live
        if metadata is not None and (live is None or own.origin in (ORIGIN, None)):
            return dynamic_config(metadata, node_id=node_id)
        if live is None:
            return DynamicConfig(is_known=False) if own.is_known and _has_lost_dynamic_settings(broker) else None
        from kcompact.config.admin_client import live_dynamic_config

        if node_id not in live.brokers:
            why = "the broker of this directory is unknown" if node_id is None else f"broker {node_id} is not up"
            if node_id in live.hidden_brokers:
                why = f"this user may not read the settings of broker {node_id} (DescribeConfigs on the cluster)"
            notes.append(Note.of(RemarkCode.BROKER_NOT_ASKED, why=why))
        offline = metadata.broker_configs if metadata else {}
        return live_dynamic_config(
            live, node_id=node_id, fallback=offline.get(node_id) if node_id is not None else None
        )


def _require_no_other_topic(directory: Path, partition: TopicPartition, broker: Broker) -> None:
    """Raise OtherTopicError for a directory with the id of another topic of its broker, which it cannot serve."""
    if broker.metadata is None:
        return
    topic_id = read_topic_id(directory)
    names = (name for name, topic in broker.metadata.topics.items() if topic.topic_id == topic_id)
    other = next((name for name in names if name != partition.topic), None)
    if other is not None and why_stray(broker.metadata, topic_id, partition, node_id=broker.node_id) is None:
        raise OtherTopicError(
            path=directory,
            problem=f"partition.metadata has the topic id {topic_id}, which is that of {other}: the file, or the whole "
            "directory, is of that topic",
            hint="A broker does not serve such a partition. Compare the records; then restore the file, or the name.",
        )


def _require_same_topic(directory: Path, partition: TopicPartition, overrides: TopicOverrides, where: str) -> None:
    """Raise StaleReplicaError if a source has another id for a topic than its directory."""
    if overrides.topic_id is not None:
        check_topic_id(directory, partition, overrides.topic_id, where=where)


def _parsed(name: str, values: Mapping[str, str]) -> object:
    """Return the value of a setting in comparable form, None without one."""
    text = values.get(name)
    with suppress(ValueError):
        return None if text is None else parse_value(name, text)
    return text


def _has_lost_dynamic_settings(broker: Broker) -> bool:
    """Return whether the metadata log of a KRaft broker, which has its dynamic settings, is damaged or not there."""
    properties = broker.properties
    is_of_kraft = properties is not None and not properties.is_of_zookeeper and properties.cluster_id is not None
    return broker.metadata is None and (is_of_kraft or broker.problem is not None)


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
