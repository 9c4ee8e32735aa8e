"""What a running cluster says of its topics, asked with kafka-python. The only module that imports it, when asked to.

One connection, three questions: who the brokers are, which topics there are under which ids, and how topics and the
broker of the log directory are configured. Nothing is changed there, and no topic is made by asking for it.

The broker that answers need not be the one whose disk this is, so of its answer about a topic only what holds for
the whole cluster counts: the topic's overrides and the dynamic default of all brokers. The rest is asked of the
broker itself; if that one is down, its own settings must come from elsewhere, and a note says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kcompact.config.settings import BROKER_NAMES, ClusterConfig, Source
from kcompact.errors import ClusterUnreachableError
from kcompact.format.properties import encode_uuid

ORIGIN = "bootstrap-server"
TIMEOUT_MS = 8_000

_SOURCES = {
    "DYNAMIC_BROKER_CONFIG": Source.BROKER_OVERRIDE,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": Source.CLUSTER_DEFAULT,
    "STATIC_BROKER_CONFIG": Source.BROKER_CONFIG,
    "DEFAULT_CONFIG": Source.DEFAULT,
}
_STRENGTH = (Source.DEFAULT, Source.BROKER_CONFIG, Source.CLUSTER_DEFAULT, Source.BROKER_OVERRIDE)

Described = Mapping[str, Mapping[str, Any]]
"""The answer about one topic or broker: an entry for each setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTopic:
    """A topic: its id as Kafka shows it, and its overrides."""

    topic_id: str | None
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """What a cluster answered. `brokers` are the settings of those asked for that are up, layer by layer."""

    address: str
    cluster_id: str | None
    topics: Mapping[str, LiveTopic]
    cluster_defaults: Mapping[str, str]
    brokers: Mapping[int, Sequence[tuple[Source, Mapping[str, str]]]]


def parse_address(text: str) -> str:
    """Return HOST:PORT as it is. Raises ValueError for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(f"'{text}' is not HOST:PORT")
    return text


def ask_cluster(address: str, *, topics: Sequence[str], nodes: Sequence[int]) -> LiveCluster:
    """Return what the cluster behind an address says of topics and brokers; of those it does not know, nothing.

    Raises ClusterUnreachableError.
    """
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # What went wrong becomes one message of ours.
    try:
        client = KafkaAdminClient(
            bootstrap_servers=address,
            client_id="kcompact",
            bootstrap_timeout_ms=TIMEOUT_MS,
            request_timeout_ms=TIMEOUT_MS,
        )
        try:
            return _answers(client, address, topics, nodes)
        finally:
            client.close()
    except (KafkaError, OSError, ValueError, TypeError, LookupError, AttributeError) as problem:
        kind, text = type(problem).__name__, " ".join(str(problem).split())
        text = text if text.startswith(kind) else f"{kind}: {text}"
        raise ClusterUnreachableError(address=address, problem=f"no usable answer ({text[:200]})") from None


def _answers(client: Any, address: str, topics: Sequence[str], nodes: Sequence[int]) -> LiveCluster:
    from uuid import UUID

    from kafka.admin import ConfigResource

    cluster = client.describe_cluster()
    ids = {
        each["name"]: encode_uuid(UUID(str(each["topic_id"])).bytes) if each.get("topic_id") else None
        for each in (client.describe_topics(list(topics)) if topics else ())
        if not each["error_code"]
    }
    up = {each["broker_id"] for each in cluster["brokers"] if not each.get("is_fenced")}
    asked = [ConfigResource("topic", name) for name in ids]
    asked += [ConfigResource("broker", str(node)) for node in nodes if node in up]
    described = client.describe_configs(asked, include_synonyms=True, config_filter="all") if asked else {}
    # Without the right to describe it, a topic comes without any setting: then nothing is known of it.
    of_topics = {name: entries for name, entries in described.get("topic", {}).items() if entries}
    of_brokers = {int(name): entries for name, entries in described.get("broker", {}).items() if entries}
    return LiveCluster(
        address=address,
        cluster_id=cluster.get("cluster_id"),
        topics={
            name: LiveTopic(topic_id=ids[name], overrides=_overrides(entries)) for name, entries in of_topics.items()
        },
        cluster_defaults=_cluster_defaults(of_topics),
        brokers={node: _layers(entries) for node, entries in of_brokers.items()},
    )


def _overrides(entries: Described) -> dict[str, str]:
    return {
        name: entry["value"]
        for name, entry in entries.items()
        if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG" and entry["value"] is not None
    }


def _cluster_defaults(topics: Mapping[str, Described]) -> dict[str, str]:
    """Return the dynamic defaults of all brokers, as far as topics inherit them."""
    return {
        synonym["name"]: synonym["value"]
        for entries in topics.values()
        for entry in entries.values()
        for synonym in entry.get("synonyms") or ()
        if synonym["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG" and synonym["value"] is not None
    }


def _layers(entries: Described) -> list[tuple[Source, dict[str, str]]]:
    """Return a broker's settings by where they are set, weakest first."""
    layers: dict[Source, dict[str, str]] = {source: {} for source in _STRENGTH}
    for name in BROKER_NAMES & entries.keys():
        source = _SOURCES.get(entries[name]["config_source"])
        value = entries[name]["value"]
        if source is not None and value is not None:
            layers[source][name] = value
    return list(layers.items())


def live_config(
    cluster: LiveCluster, topic: str, *, node_id: int | None, fallback: Mapping[str, str] | None = None
) -> ClusterConfig | None:
    """Return the settings that count for a topic on a broker, None when the cluster does not know the topic.

    `fallback` are the broker's own dynamic settings as they are known from elsewhere, for one that is down.
    """
    found = cluster.topics.get(topic)
    if found is None:
        return None
    layers = cluster.brokers.get(node_id) if node_id is not None else None
    if layers is None:
        layers = [(Source.CLUSTER_DEFAULT, cluster.cluster_defaults), (Source.BROKER_OVERRIDE, fallback or {})]
    return ClusterConfig(origin=ORIGIN, topic=found.overrides, broker=layers)
