"""Several sources of settings to the effective configuration of one topic.

A stronger source replaces the values of a weaker one; `settings` lists the sources in order. Rule: `TopicConfig`,
`LogConfig`, `ServerTopicConfigSynonyms`, `DynamicBrokerConfig` of Kafka 4.3.1; KIP-226.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kcompact.config.settings import (
    BROKER_ONLY,
    BROKER_SETTINGS,
    FIELD_NAMES,
    INTERNAL_TOPIC_SETTINGS,
    MIN_DEDUPE_BUFFER_BYTES,
    TOPIC_SETTINGS,
    UNITS_MS,
    ClusterConfig,
    Override,
    Setting,
    Source,
    TopicConfig,
    is_broker_name,
    whole_number,
)
from kcompact.errors import ConfigError, UnsupportedError


def topic_config(
    topic: str,
    *,
    overrides: Sequence[Override] = (),
    broker_properties: Mapping[str, str] | None = None,
    cluster: ClusterConfig | None = None,
) -> TopicConfig:
    """Return the effective configuration of a topic.

    A later override beats an earlier one of the same name; one that names the topic beats one for all topics.
    Without a `cluster` that knows the topic, its `cleanup.policy` is unknown unless something else says it.
    Raises ConfigError for a value that Kafka would refuse, UnsupportedError where the cluster has such a one.
    """
    made = TopicConfigBuilder(topic)
    if cluster is not None:
        made.take("cleanup.policy", "delete", Setting(source=Source.DEFAULT))
    made.take_broker(broker_properties or {}, Setting(source=Source.BROKER_CONFIG))
    if cluster is not None:
        for source, properties in cluster.broker:
            made.take_broker(properties, Setting(source=source, origin=cluster.origin))
    options = Setting(source=Source.OPTION)
    made.take_broker(
        {override.name: override.value for override in overrides if is_broker_name(override.name)}, options
    )

    if cluster is None:
        made.take_topic(INTERNAL_TOPIC_SETTINGS.get(topic, {}), Setting(source=Source.DEFAULT))
    else:
        made.take_topic(cluster.topic, Setting(source=Source.TOPIC_OVERRIDE, origin=cluster.origin))
    general = [override for override in overrides if override.topic is None and not is_broker_name(override.name)]
    named = [override for override in overrides if override.topic == topic]
    made.take_topic({override.name: override.value for override in (*general, *named)}, options)
    return made.config()


class TopicConfigBuilder:
    """Collects the values of a topic, each stronger than those before."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._fields: dict[str, Any] = {}
        self._settings: dict[str, Setting] = {}

    def take_broker(self, properties: Mapping[str, str], setting: Setting) -> None:
        for broker_name, topic_name in BROKER_SETTINGS.items():
            if broker_name in properties:
                self.take(topic_name, properties[broker_name], setting, called=broker_name)
        for name in BROKER_ONLY:
            if name in properties:
                self.take(name, properties[name], setting)

    def take_topic(self, settings: Mapping[str, str], setting: Setting) -> None:
        # `internal.segment.bytes` is read last: it replaces `segment.bytes` when both are there.
        for name in sorted(settings, key=lambda name: name.startswith("internal.")):
            if name in TOPIC_SETTINGS:
                self.take(name, settings[name], setting)

    def take(self, name: str, text: str, setting: Setting, *, called: str | None = None) -> None:
        known = BROKER_ONLY.get(name) or TOPIC_SETTINGS[name]
        try:
            value = known.parse(text) if called not in UNITS_MS else max(-1, whole_number(text) * UNITS_MS[called])
        except ValueError as problem:
            raise self._refusal(called or name, text, problem, setting) from None
        if known.field is not None:
            self._fields[known.field] = value
            self._settings[FIELD_NAMES[known.field]] = setting

    def _refusal(self, name: str, text: str, problem: ValueError, setting: Setting) -> ConfigError | UnsupportedError:
        if setting.origin is None:
            return ConfigError(path=name, problem=f"'{text}' {problem}")
        return UnsupportedError(
            path=f"{name} of {self._topic}",
            problem=f"the cluster has '{text}' ({setting.source}, {setting.origin}), which {problem}",
        )

    def config(self) -> TopicConfig:
        config = TopicConfig(**self._fields, settings=self._settings)
        least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
        lags = [self._settings.get(name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")]
        # A running cluster can come to such a pair, by way of the broker's settings, and lives with it.
        if most < least and any(setting is not None and setting.origin is None for setting in lags):
            raise ConfigError(
                path=f"configuration of {self._topic}",
                problem=f"max.compaction.lag.ms {most} is less than min.compaction.lag.ms {least}",
            )
        buffer_bytes, threads = config.log_cleaner_dedupe_buffer_size, config.log_cleaner_threads
        if buffer_bytes // threads <= MIN_DEDUPE_BUFFER_BYTES:  # No broker starts with it, so no cluster has it.
            raise ConfigError(
                path="log.cleaner.dedupe.buffer.size",
                problem=f"{buffer_bytes} for log.cleaner.threads {threads}: must be more than 1 MiB for each",
            )
        return config
