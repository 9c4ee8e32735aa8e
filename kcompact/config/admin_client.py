"""Reads topics and settings from a running cluster with kafka-python. Only this module imports kafka-python.

One connection, three requests: the brokers, the ids of the topics, and the configuration of the topics and of the log
directory's broker. The requests change nothing and create no topic. `listener` checks the address first, with TLS and
authentication if the client's settings say so.

Any broker of the cluster can answer about a topic, not only the broker of the log directory. So only the cluster-wide
part of the answer is used: the topic's overrides and the dynamic default of all brokers. The other settings are
requested from the log directory's own broker. If that broker is down, the caller passes its settings as a fallback.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kcompact.config.client.settings import ClientConfig
from kcompact.config.listener import PLAIN, Exchange, usable_address
from kcompact.config.settings import BROKER_NAMES, DynamicConfig, Source, TopicOverrides
from kcompact.errors import ClusterUnreachableError
from kcompact.format.properties import encode_uuid
from kcompact.format.text_lines import parse_digits
from kcompact.values import dataclass

ORIGIN = "bootstrap-server"
_TOPIC_AUTHORIZATION_FAILED = 29
_ADVERTISED = (
    "This listener answers, but a client must also reach the brokers at the addresses of their advertised.listeners, "
    "under the names in their certificates."
)

_SOURCES = {
    "DYNAMIC_BROKER_CONFIG": Source.BROKER_OVERRIDE,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": Source.CLUSTER_DEFAULT,
    "STATIC_BROKER_CONFIG": Source.BROKER_CONFIG,
    "DEFAULT_CONFIG": Source.DEFAULT,
}
_STRENGTH = (Source.DEFAULT, Source.BROKER_CONFIG, Source.CLUSTER_DEFAULT, Source.BROKER_OVERRIDE)

Described = Mapping[str, Mapping[str, Any]]
"""The answer about one topic or broker: the name of each setting, and its value and source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """The answers of a cluster. `brokers` has the settings of each requested broker that is up, weakest layer first.

    `topics` has only topics that exist and whose configuration the cluster shows. `hidden` are the topics, and
    `hidden_brokers` the brokers that are up, whose configuration this user may not read.
    """

    address: str
    cluster_id: str | None
    topics: Mapping[str, TopicOverrides]
    cluster_defaults: Mapping[str, str]
    brokers: Mapping[int, Sequence[tuple[Source, Mapping[str, str]]]]
    hidden: frozenset[str] = frozenset()
    hidden_brokers: frozenset[int] = frozenset()


def parse_address(text: str) -> str:
    """Return `text` if it is HOST:PORT, or several of them with commas. Raises ValueError for any other text."""
    for address in text.split(","):
        host, _, port = address.rpartition(":")
        if not host or not 0 < (parse_digits(port) or 0) < 1 << 16:
            raise ValueError(f"'{address}' is not HOST:PORT")
    return text


def ask_cluster(
    address: str, *, topics: Sequence[str], nodes: Sequence[int], client: ClientConfig | None = None
) -> LiveCluster:
    """Return the cluster's answers about these topics and brokers. Unknown topics and brokers are left out.

    `address` may have several addresses with commas; the first that can be used is asked. Raises
    ClusterUnreachableError when there is no usable answer, also from a token endpoint.
    """
    client = client or PLAIN
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # ClusterUnreachableError reports the problem.
    options = _sasl_options(client)
    address = usable_address(address, client, (lambda: _exchange(options)) if options else None)
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

    try:
        admin = KafkaAdminClient(
            bootstrap_servers=address,
            client_id=client.client_id,
            bootstrap_timeout_ms=client.request_timeout_ms,
            request_timeout_ms=client.request_timeout_ms,
            security_protocol=client.security_protocol,
            ssl_context=client.tls,
            **options,
        )
        try:
            return _answers(admin, address, topics, nodes)
        finally:
            admin.close()
    except (KafkaError, OSError, ValueError, TypeError, LookupError, AttributeError) as problem:
        kind, text = type(problem).__name__, " ".join(str(problem).split())
        text = text if text.startswith(kind) else f"{kind}: {text}"
        is_elsewhere = isinstance(problem, KafkaConnectionError | KafkaTimeoutError)
        raise ClusterUnreachableError(
            address=address, problem=f"no usable answer ({text[:200]})", hint=_ADVERTISED if is_elsewhere else ""
        ) from None


def _sasl_options(client: ClientConfig) -> dict[str, Any]:
    """Return the options of kafka-python for the client's credentials. Fetches the token, once.

    Raises ConfigError, StorageError, ClusterUnreachableError.
    """
    credentials = client.credentials
    if credentials is None:
        return {}
    options: dict[str, Any] = {"sasl_mechanism": credentials.mechanism}
    if credentials.tokens is None:
        user = credentials.user
        if credentials.mechanism.startswith("SCRAM"):  # RFC 5802, 5.1, which kafka-python leaves to its caller.
            user = user.replace("=", "=3D").replace(",", "=2C")
        return options | {"sasl_plain_username": user, "sasl_plain_password": credentials.password}
    from kafka.net.sasl.oauth import AbstractTokenProvider

    bearer_token = credentials.tokens.fetch(client.request_timeout_ms / 1000)
    of_token = dict(credentials.tokens.extensions)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return bearer_token

        def extensions(self) -> dict[str, str]:
            return of_token

    return options | {"sasl_oauth_token_provider": Provider()}


def _exchange(options: Mapping[str, Any]) -> Exchange:
    """Begin an authentication."""
    from kafka.net.sasl import get_sasl_mechanism

    exchange: Exchange = get_sasl_mechanism(options["sasl_mechanism"])(**options)
    return exchange


def _answers(client: Any, address: str, topics: Sequence[str], nodes: Sequence[int]) -> LiveCluster:
    """Return the answers to the three requests. Raises the exceptions of kafka-python."""
    from uuid import UUID

    from kafka.admin import ConfigResource

    cluster = client.describe_cluster()
    topic_descriptions = client.describe_topics(list(topics)) if topics else []
    ids = {
        topic["name"]: encode_uuid(UUID(str(topic["topic_id"])).bytes) if topic.get("topic_id") else None
        for topic in topic_descriptions
        if not topic["error_code"]
    }
    hidden = {topic["name"] for topic in topic_descriptions if topic["error_code"] == _TOPIC_AUTHORIZATION_FAILED}
    up = {broker["broker_id"] for broker in cluster["brokers"] if not broker.get("is_fenced")}
    resources = [ConfigResource("topic", name) for name in ids]
    resources += [ConfigResource("broker", str(node)) for node in nodes if node in up]
    described = client.describe_configs(resources, include_synonyms=True, config_filter="all") if resources else {}
    # A topic or broker whose configuration the user may not read has no settings at all.
    of_topics = {name: entries for name, entries in described.get("topic", {}).items() if entries}
    of_brokers = {int(name): entries for name, entries in described.get("broker", {}).items() if entries}
    return LiveCluster(
        address=address,
        cluster_id=cluster.get("cluster_id"),
        topics={
            name: TopicOverrides(values=_overrides(entries), origin=ORIGIN, topic_id=ids[name])
            for name, entries in of_topics.items()
        },
        cluster_defaults=_cluster_defaults(of_topics),
        brokers={node: _layers(entries) for node, entries in of_brokers.items()},
        hidden=frozenset(hidden | (ids.keys() - of_topics.keys())),
        hidden_brokers=frozenset(up.intersection(nodes) - of_brokers.keys()),
    )


def _overrides(entries: Described) -> dict[str, str]:
    """Return the settings that the topic itself overrides."""
    return {
        name: entry["value"]
        for name, entry in entries.items()
        if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG" and entry["value"] is not None
    }


def _cluster_defaults(topics: Mapping[str, Described]) -> dict[str, str]:
    """Return the dynamic defaults of all brokers, as listed in the synonyms of the topics' settings."""
    return {
        synonym["name"]: synonym["value"]
        for entries in topics.values()
        for entry in entries.values()
        for synonym in entry.get("synonyms") or ()
        if synonym["source"] == "DYNAMIC_DEFAULT_BROKER_CONFIG" and synonym["value"] is not None
    }


def _layers(entries: Described) -> list[tuple[Source, dict[str, str]]]:
    """Return a broker's settings grouped by source, weakest source first."""
    layers: dict[Source, dict[str, str]] = {source: {} for source in _STRENGTH}
    for name in BROKER_NAMES & entries.keys():
        source = _SOURCES.get(entries[name]["config_source"])
        value = entries[name]["value"]
        if source is not None and value is not None:
            layers[source][name] = value
    return list(layers.items())


def live_dynamic_config(
    cluster: LiveCluster, *, node_id: int | None, fallback: Mapping[str, str] | None
) -> DynamicConfig:
    """Return the settings of a broker.

    `fallback` has the broker's own dynamic settings from another source, used when the broker is down.
    """
    layers = cluster.brokers.get(node_id) if node_id is not None else None
    if layers is not None:
        return DynamicConfig(origin=ORIGIN, layers=layers, is_whole=True)
    known = ((Source.CLUSTER_DEFAULT, cluster.cluster_defaults), (Source.BROKER_OVERRIDE, fallback or {}))
    return DynamicConfig(origin=ORIGIN, layers=known)
