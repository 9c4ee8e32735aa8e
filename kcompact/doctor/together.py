"""Several log directories of one broker: what each is by itself, but not together with the others."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.metadata_log import read_topic_id
from kcompact.doctor.findings import Finding, Kind
from kcompact.errors import KcompactError
from kcompact.format.names import CLUSTER_METADATA_TOPIC, parse_directory
from kcompact.format.properties import META_PROPERTIES, PARTITION_METADATA, MetaProperties

METADATA_PARTITION = f"{CLUSTER_METADATA_TOPIC}-0"


def identity_findings(found: Mapping[Path, MetaProperties], broker: BrokerConfig) -> Iterator[Finding]:
    """Yield log directories of another cluster or node than the first, and directory ids that occur twice.

    `node.id` of `server.properties` is compared too. Rule: MetaPropertiesEnsemble.verify.
    """
    cluster_id: str | None = None
    node_id = broker.node_id
    owners: dict[str, Path] = {}
    for log_dir, properties in found.items():
        file = log_dir / META_PROPERTIES
        cluster_id, node_id = cluster_id or properties.cluster_id, properties.node_id if node_id is None else node_id
        if properties.cluster_id is not None and properties.cluster_id != cluster_id:
            says = f"Invalid cluster.id in: {file}. Expected {cluster_id}, but read {properties.cluster_id}"
            problem = f"belongs to the cluster {properties.cluster_id}, the directories before it to {cluster_id}"
            yield Finding(kind=Kind.CLUSTER_IDS, directory=log_dir, file=file, problem=problem, broker_says=says)
        if properties.node_id is not None and properties.node_id != node_id:
            says = f"Stored node id {properties.node_id} doesn't match previous node id {node_id} in {file}."
            problem = f"belongs to the node {properties.node_id}, the broker is the node {node_id}"
            yield Finding(kind=Kind.NODE_IDS, directory=log_dir, file=file, problem=problem, broker_says=says)
        if properties.directory_id is not None:
            owner = owners.setdefault(properties.directory_id, log_dir)
            if owner != log_dir:
                says = f"Duplicate directory ID Optional[{properties.directory_id}] found. It was the ID of {owner}"
                problem = f"has the directory id of {owner}; one of them is a copy"
                yield Finding(kind=Kind.DIRECTORY_IDS, directory=log_dir, file=file, problem=problem, broker_says=says)


def metadata_log_findings(log_dirs: Sequence[Path], broker: BrokerConfig) -> Iterator[Finding]:
    """Yield metadata logs outside of the metadata log directory, which by default is the first log directory.

    Rule: KafkaRaftServer.initializeLogDirs.
    """
    present = [log_dir for log_dir in log_dirs if (log_dir / METADATA_PARTITION).is_dir()]
    named = None if broker.log_dirs_moved or not broker.properties else broker.metadata_log_dir
    located = None if named is None else broker.located(named)
    if located is not None:
        expected = Path(os.path.realpath(located))
    elif len(present) > 1:
        expected = present[0].resolve()
    else:
        return
    for log_dir in present:
        if log_dir.resolve() != expected:
            file = log_dir / METADATA_PARTITION
            says = f"Found unexpected metadata location in data directory `{file}`"
            problem = f"a metadata log outside of the metadata log directory, {expected}"
            yield Finding(kind=Kind.METADATA_LOGS, directory=log_dir, file=file, problem=problem, broker_says=says)


def duplicate_findings(partitions: Sequence[Path]) -> Iterator[Finding]:
    """Yield partitions that are in several log directories. Rule: LogManager.loadLog."""
    first: dict[str, Path] = {}
    for directory in partitions:
        other = first.setdefault(directory.name, directory)
        if other != directory and directory.name != METADATA_PARTITION:
            says = f"Duplicate log directories for {directory.name} are found in both {other} and {directory}."
            problem = f"is in {other.parent} too; find out which one is newer, and move the other out"
            yield Finding(kind=Kind.DUPLICATE_PARTITION, directory=directory, problem=problem, broker_says=says)


def topic_id_findings(partitions: Sequence[Path]) -> Iterator[Finding]:
    """Yield topics with several ids, and ids of several topics: some of these directories come from elsewhere."""
    first_of_topic: dict[str, tuple[str, Path]] = {}
    topics_of_id: dict[str, dict[str, Path]] = defaultdict(dict)
    for directory in partitions:
        parsed = parse_directory(directory.name)
        topic_id = None
        with suppress(KcompactError, OSError):  # Reading the partition reports it.
            topic_id = read_topic_id(directory)
        if parsed is None or topic_id is None:
            continue
        topic = parsed.topic_partition.topic
        known, other = first_of_topic.setdefault(topic, (topic_id, directory))
        if known != topic_id:
            problem = f"has the topic id {topic_id}, but {other.name} has {known}: a broker moves one of them aside"
            yield _topic_ids(directory, problem)
        topics_of_id[topic_id].setdefault(topic, directory)
    for topic_id, topics in topics_of_id.items():
        for directory in list(topics.values())[1:]:
            yield _topic_ids(directory, f"has the topic id {topic_id}, which {next(iter(topics))} has too")


def _topic_ids(directory: Path, problem: str) -> Finding:
    return Finding(kind=Kind.TOPIC_IDS, directory=directory, file=directory / PARTITION_METADATA, problem=problem)
