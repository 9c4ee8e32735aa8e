"""Merges several sources of settings into the effective configuration of one topic.

A stronger source replaces the values of a weaker one. `settings` lists the sources by strength. Rule: `TopicConfig`,
`LogConfig`, `ServerTopicConfigSynonyms`, `DynamicBrokerConfig`; KIP-226.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kcompact.config.broker_config import UNKNOWN_BROKER, BrokerConfig
from kcompact.config.settings import (
    BROKER_ONLY,
    BROKER_SETTINGS,
    FIELD_NAMES,
    INTERNAL_TOPIC_SETTINGS,
    MIN_DEDUPE_BUFFER_BYTES,
    OF_THE_TOPIC_ALONE,
    RETENTION_LIMITS,
    TOPIC_SETTINGS,
    UNKNOWN_OVERRIDES,
    DynamicConfig,
    Override,
    Setting,
    Source,
    TopicConfig,
    TopicOverrides,
    is_broker_name,
    parse_value,
)
from kcompact.errors import ConfigError, UnsupportedError
from kcompact.release import NEWEST, Release


def topic_config(
    topic: str,
    *,
    overrides: Sequence[Override] = (),
    own: TopicOverrides = UNKNOWN_OVERRIDES,
    broker_properties: Mapping[str, str] | None = None,
    dynamic: DynamicConfig | None = None,
    release: Release = NEWEST,
) -> TopicConfig:
    """Return the effective configuration of a topic, with the rules of a release.

    A later override replaces an earlier one of the same name. An override that names the topic is stronger than `own`,
    the settings that the topic is known to have, and one for all topics is weaker. With `own` unknown, policy and
    retention come from overrides only: without them they are None. With `broker_properties` None, Kafka's defaults are
    only assumed; with an empty mapping they are the broker's values.
    Raises ConfigError for a value that Kafka does not accept, UnsupportedError when a source has such a value.
    """
    broker = UNKNOWN_BROKER if broker_properties is None else BrokerConfig(properties=broker_properties)
    return merged_config(topic, overrides=overrides, own=own, broker=broker, dynamic=dynamic, release=release)


def merged_config(
    topic: str,
    *,
    overrides: Sequence[Override],
    broker: BrokerConfig,
    own: TopicOverrides = UNKNOWN_OVERRIDES,
    dynamic: DynamicConfig | None = None,
    release: Release = NEWEST,
) -> TopicConfig:
    """Return the effective configuration of a topic, as `topic_config` does, from what is known of its broker."""
    builder = _TopicConfigBuilder(topic, release)
    builder.set_value("cleanup.policy", release.defaults["cleanup.policy"], Setting(source=Source.DEFAULT))
    builder.set_broker_values(broker.properties, Setting(source=Source.BROKER_CONFIG), unresolved=broker.unresolved)
    if dynamic is not None:
        broker = BrokerConfig(missing=broker.missing) if dynamic.is_whole else broker
        for source, properties in dynamic.layers:
            builder.set_broker_values(properties, Setting(source=source, origin=dynamic.origin))
    options = Setting(source=Source.OPTION)
    for_all = {override.name: override.value for override in overrides if override.topic is None}
    of_broker = {name: value for name, value in for_all.items() if is_broker_name(name)}
    builder.set_broker_values(of_broker, replace(options, is_of_broker=True))
    if not own.is_known:
        builder.make_unknown(OF_THE_TOPIC_ALONE)
    builder.set_topic_values(for_all, options)
    if not own.is_known and topic in INTERNAL_TOPIC_SETTINGS:
        own = TopicOverrides(values=INTERNAL_TOPIC_SETTINGS[topic], origin="internal-topic")
    builder.set_topic_values(own.values, Setting(source=Source.TOPIC_OVERRIDE, origin=own.origin))
    builder.set_topic_values({each.name: each.value for each in overrides if each.is_for(topic)}, options)
    if dynamic is not None and not dynamic.is_known:
        builder.make_unknown(builder.what_a_broker_may_overrule())
    return replace(builder.build(), own=own, broker=broker)


def with_refusals(broker: BrokerConfig) -> BrokerConfig:
    """Return a broker's settings; those that keep a broker from starting are `refused`."""
    refused: dict[str, ConfigError] = {}
    while True:
        left = replace(broker, refused=refused)
        try:
            merged_config("every topic", overrides=(), broker=left)
        except ConfigError as error:
            names = error.contradicting or (error.path,)
            readable = [each for each in broker.properties if each not in left.unresolved]
            refused_names = [each for each in readable if each in names or BROKER_SETTINGS.get(each) in names]
            assert refused_names  # Without a value that is left out, the same error would come again.
            refused |= dict.fromkeys(refused_names, error)
        else:
            return left


class _TopicConfigBuilder:
    """Collects the values of one topic's settings. A later value replaces an earlier one: call weakest source first."""

    def __init__(self, topic: str, release: Release) -> None:
        self._topic = topic
        self._release = release
        self._fields: dict[str, Any] = {}
        self._settings: dict[str, Setting] = {}
        self._unresolved: set[str] = set()

    def set_broker_values(
        self, properties: Mapping[str, str], setting: Setting, *, unresolved: Collection[str] = ()
    ) -> None:
        """Set the values of broker properties under the topic's names. Unknown properties are ignored.

        Only the broker can resolve the values of `unresolved` properties. Raises ConfigError, UnsupportedError.
        """
        retention_name = ""
        of_topics, others = BROKER_SETTINGS, {name: name for name in BROKER_ONLY}
        if setting.source is not Source.OPTION:
            expiration = others.pop("producer.id.expiration.ms")
            others[self._release.producer_expiration] = expiration
        for broker_name, name in (*of_topics.items(), *others.items()):
            if broker_name in unresolved:
                self._forget(name)
            elif broker_name in properties:
                self.set_value(name, properties[broker_name], setting, broker_name=broker_name)
                retention_name = broker_name if name == "retention.ms" else retention_name
        # A topic may have 0, a broker may not. Kafka checks only that one of the broker's names which decides.
        if retention_name and self._fields.get("retention_ms") == 0:
            problem = ValueError("must be -1 or at least 1")
            raise self._refusal(retention_name, properties[retention_name], problem, setting)

    def set_topic_values(self, settings: Mapping[str, str], setting: Setting) -> None:
        """Set the values of topic settings. Unknown settings are ignored. Raises ConfigError, UnsupportedError."""
        # `internal.segment.bytes` comes last, because it replaces `segment.bytes` when both are set.
        for name in sorted(settings, key=lambda name: name.startswith("internal.")):
            if name in TOPIC_SETTINGS:
                self.set_value(name, settings[name], setting)

    def set_value(self, name: str, text: str, setting: Setting, *, broker_name: str | None = None) -> None:
        """Parse and set one value. `broker_name` is the name under which it was given, if not `name`.

        Raises ConfigError, UnsupportedError.
        """
        known = BROKER_ONLY.get(name) or TOPIC_SETTINGS[name]
        try:
            value = parse_value(broker_name or name, text)
        except ValueError as problem:
            raise self._refusal(broker_name or name, text, problem, setting) from None
        if known.field is not None:
            self._fields[known.field] = value
            self._settings[FIELD_NAMES[known.field]] = setting
            self._unresolved.discard(FIELD_NAMES[known.field])

    def _forget(self, name: str) -> None:
        """Take back the value of a setting: a stronger one exists, but cannot be read."""
        field_name = (BROKER_ONLY.get(name) or TOPIC_SETTINGS[name]).field
        if field_name is not None:
            self._fields.pop(field_name, None)
            self._settings.pop(name, None)
            self._unresolved.add(name)

    def what_a_broker_may_overrule(self) -> list[str]:
        """Return which values that remove records a dynamic setting of the broker may replace.

        Where the policy is one of them, every limit is: it may be meant for another policy.
        """
        stronger = (Source.OPTION, Source.TOPIC_OVERRIDE)
        sources = {name: self._settings[name].source for name in OF_THE_TOPIC_ALONE if name in self._settings}
        static = [name for name in OF_THE_TOPIC_ALONE if sources.get(name) not in stronger]
        if "cleanup.policy" not in static:
            return static
        compacts = "compact" in (self._fields["cleanup_policy"] or ())
        limits = [name for name in RETENTION_LIMITS if sources.get(name) is not Source.OPTION]
        return ["cleanup.policy", *limits] if compacts else limits

    def make_unknown(self, names: Iterable[str]) -> None:
        """Have settings be unknown that decide what is compacted and deleted: a stronger value may exist, unread."""
        for name in names:
            self._fields[str(TOPIC_SETTINGS[name].field)] = None
            self._settings.pop(name, None)
            self._unresolved.discard(name)

    def _refusal(self, name: str, text: str, problem: ValueError, setting: Setting) -> ConfigError | UnsupportedError:
        """Return the error for a bad value: ConfigError for the user's, UnsupportedError for the cluster's."""
        if setting.origin is None:
            return ConfigError(path=name, problem=f"'{text[:60]}' {problem}")
        if setting.origin == "topic-configs":
            return ConfigError(path=f"{name} of {self._topic} in --topic-configs", problem=f"'{text[:60]}' {problem}")
        return UnsupportedError(
            path=f"{name} of {self._topic}",
            problem=f"the cluster has '{text}' ({setting.source}, {setting.origin}), which {problem}",
        )

    def build(self) -> TopicConfig:
        """Return the configuration. Raises ConfigError for values that contradict each other."""
        defaults = {
            field: self._release.defaults[name] for field, name in FIELD_NAMES.items() if name != "cleanup.policy"
        }
        config = TopicConfig(
            **(defaults | self._fields),
            release=self._release,
            settings=self._settings,
            unresolved=frozenset(self._unresolved),
        )
        least, most = config.min_compaction_lag_ms, config.max_compaction_lag_ms
        lags = [self._settings.get(name) for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")]
        # A running cluster can have such a pair, through the broker's settings, and accepts it.
        if most < least and any(setting is not None and setting.origin is None for setting in lags):
            raise _contradiction(
                *("min.compaction.lag.ms", "max.compaction.lag.ms"),
                path=f"configuration of {self._topic}",
                problem=f"max.compaction.lag.ms {most} is less than min.compaction.lag.ms {least}",
            )
        buffer_bytes, threads = config.log_cleaner_dedupe_buffer_size, config.log_cleaner_threads
        is_known = "log.cleaner.dedupe.buffer.size" not in self._unresolved
        if is_known and buffer_bytes // threads <= MIN_DEDUPE_BUFFER_BYTES:  # A broker refuses to start with less.
            raise _contradiction(
                *("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"),
                path="log.cleaner.dedupe.buffer.size",
                problem=f"{buffer_bytes} for log.cleaner.threads {threads}: must be more than 1 MiB for each",
            )
        return config


def _contradiction(*names: str, path: str, problem: str) -> ConfigError:
    error = ConfigError(path=path, problem=problem)
    error.contradicting = names
    return error
