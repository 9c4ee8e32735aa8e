"""Topic and cleaner settings under Kafka's names, with their types, bounds and defaults.

What a topic has of its own is stronger than what holds for all topics. Sources, strongest first:

    topic       `--config` for this topic, or for topics of such a name
                the topic's own overrides: `--bootstrap-server`, else `--topic-configs`, else the metadata log
    all topics  `--config`; under the broker's name; the broker's own dynamic setting, that of all brokers;
                `server.properties`
    Kafka's defaults

Where no source knows a topic's own overrides, they may be anything. Then neither the broker's value nor a default is
its policy or its retention: only `--config` is. Its other settings have the broker's values, which are only assumed.

`TopicConfig.settings` has the source of each value. Rules: `TopicConfig`, `LogConfig`, `CleanerConfig`, `KafkaConfig`,
`ServerTopicConfigSynonyms`, `DynamicBrokerConfig`; KIP-226.
"""

from __future__ import annotations

import enum
import fnmatch
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from kcompact.config.broker_config import UNKNOWN_BROKER, BrokerConfig
from kcompact.config.kafka_names import KAFKA_BROKER_NAMES
from kcompact.errors import ConfigError
from kcompact.format.java_values import read_boolean, read_double, read_integer, read_list, trimmed
from kcompact.format.text_lines import INT_MAX as INT_MAX
from kcompact.format.text_lines import INT_MIN, LONG_MIN
from kcompact.format.text_lines import LONG_MAX as LONG_MAX
from kcompact.readable import closest
from kcompact.release import NEWEST, Release, ReleaseSource
from kcompact.values import dataclass

MIN_DEDUPE_BUFFER_BYTES = 1 << 20
"""Each cleaner thread of a broker must have more than this."""


class Source(enum.StrEnum):
    """The kind of source of a value, strongest first. All but OPTION correspond to Kafka's `ConfigSource`."""

    OPTION = "option"
    TOPIC_OVERRIDE = "topic-override"
    BROKER_OVERRIDE = "broker-override"
    CLUSTER_DEFAULT = "cluster-default"
    BROKER_CONFIG = "broker-config"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The source of a value. `origin` is that of `TopicOverrides`; None for options, the broker's file and defaults."""

    source: Source
    origin: str | None = None
    is_of_broker: bool = False
    """Whether an option has set it under the broker's name, so that what a topic overrides is stronger."""


_SOURCES = {
    Source.OPTION: "--config",
    Source.TOPIC_OVERRIDE: "topic override",
    Source.BROKER_OVERRIDE: "dynamic setting of the broker",
    Source.CLUSTER_DEFAULT: "dynamic default of all brokers",
    Source.BROKER_CONFIG: "static setting of the broker",
    Source.DEFAULT: "Kafka's default",
}
_ORIGINS = {
    None: "",
    "metadata-log": " in the cluster metadata",
    "bootstrap-server": " in the running cluster",
    "topic-configs": " in --topic-configs",
    "internal-topic": " with which Kafka creates the topic",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverrides:
    """What is known of the settings that a topic has of its own.

    `origin` is the source that knows the topic: `bootstrap-server`, `topic-configs`, `metadata-log`, or
    `internal-topic` for those with which Kafka creates an internal topic. None: no source knows it, so its own settings
    are unknown, and `why` says which source was looked for. `topic_id` is in Kafka's text form, None if not known.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    origin: str | None = None
    topic_id: str | None = None
    why: str = ""

    @property
    def is_known(self) -> bool:
        """Whether a source knows the topic. What it does not override then has the broker's value."""
        return self.origin is not None


UNKNOWN_OVERRIDES = TopicOverrides()
NO_OVERRIDES = TopicOverrides(origin="program")
"""Those of a topic that overrides nothing, or whose configuration a program has made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicConfig:
    """The settings that a cluster has for its brokers by source, weakest first, and where they were read.

    Not `is_known`: the cluster may have some, and they cannot be read.
    """

    origin: str = ""
    layers: Sequence[tuple[Source, Mapping[str, str]]] = ()
    is_known: bool = True
    is_whole: bool = False
    """Whether the static settings are among them: a running broker shows them, the metadata log lacks them."""


_DEFAULTS = NEWEST.defaults


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of a topic that planning and cleaning use, and the release of Kafka whose rules they use.

    `cleanup_policy`, `retention_bytes` and `retention_ms` are None when no source of the topic has them.
    """

    cleanup_policy: frozenset[str] | None = None
    min_cleanable_dirty_ratio: float = _DEFAULTS["min.cleanable.dirty.ratio"]
    min_compaction_lag_ms: int = _DEFAULTS["min.compaction.lag.ms"]
    max_compaction_lag_ms: int = _DEFAULTS["max.compaction.lag.ms"]
    delete_retention_ms: int = _DEFAULTS["delete.retention.ms"]
    segment_bytes: int = _DEFAULTS["segment.bytes"]
    segment_ms: int = _DEFAULTS["segment.ms"]
    segment_jitter_ms: int = _DEFAULTS["segment.jitter.ms"]
    segment_index_bytes: int = _DEFAULTS["segment.index.bytes"]
    index_interval_bytes: int = _DEFAULTS["index.interval.bytes"]
    retention_bytes: int | None = _DEFAULTS["retention.bytes"]
    retention_ms: int | None = _DEFAULTS["retention.ms"]
    producer_id_expiration_ms: int = _DEFAULTS["producer.id.expiration.ms"]
    transaction_max_timeout_ms: int = _DEFAULTS["transaction.max.timeout.ms"]
    remote_storage_enable: bool = _DEFAULTS["remote.storage.enable"]
    log_cleaner_enable: bool = _DEFAULTS["log.cleaner.enable"]
    log_cleaner_dedupe_buffer_size: int = _DEFAULTS["log.cleaner.dedupe.buffer.size"]
    log_cleaner_threads: int = _DEFAULTS["log.cleaner.threads"]
    log_cleaner_io_buffer_load_factor: float = _DEFAULTS["log.cleaner.io.buffer.load.factor"]
    log_cleaner_backoff_ms: int = _DEFAULTS["log.cleaner.backoff.ms"]
    log_cleaner_io_max_bytes_per_second: float = _DEFAULTS["log.cleaner.io.max.bytes.per.second"]
    release: Release = NEWEST
    release_source: ReleaseSource = field(default=ReleaseSource.NEWEST, compare=False)
    broker_release: str | None = field(default=None, compare=False)
    """The release of the broker as far as its files tell it: `3.7`, `3.9 or older`, or None."""
    settings: Mapping[str, Setting] = field(default_factory=dict, compare=False)
    """The source of each value, by the topic's name of the setting. A missing setting has Kafka's default."""
    own: TopicOverrides = field(default=NO_OVERRIDES, compare=False)
    """What is known of the settings that the topic has of its own."""
    broker: BrokerConfig = field(default=UNKNOWN_BROKER, compare=False)
    """What is known of the broker's static settings. Without them a default of Kafka may not be the broker's value."""
    unresolved: frozenset[str] = field(default=frozenset(), compare=False)
    """The settings without a value in the broker's file: see `BrokerConfig`. Here they have Kafka's defaults."""

    def is_assumed(self, name: str) -> bool:
        """Return whether a setting has its value only because the topic's own, or the broker's, is unknown."""
        setting = self.settings.get(name)
        if setting is not None and setting.source is Source.OPTION and (self.own.is_known or not setting.is_of_broker):
            return False
        if not self.own.is_known and name in TOPIC_SETTINGS:
            return self.value_of(name) is not None
        if setting is not None and setting.source is not Source.DEFAULT:
            return False
        if self.broker.is_known:
            return name in self.unresolved
        value = self.value_of(name)
        return setting is not None or (value is not None and value == self.release.defaults[name])

    @property
    def assumed(self) -> tuple[str, ...]:
        """The names of the settings that are assumed, in the order of the fields."""
        return tuple(name for name in FIELD_NAMES.values() if self.is_assumed(name))

    def value_of(self, name: str) -> Any:
        """Return the value of a setting under the topic's name, or the broker's name of a setting that topics lack."""
        field_name = (BROKER_ONLY.get(name) or TOPIC_SETTINGS[name]).field
        assert field_name is not None, f"{name} is not used"
        return getattr(self, field_name)

    def text_of(self, name: str) -> str:
        """Return the value of a setting in words: as Kafka writes it, or `unknown`, or `no limit`."""
        value = self.policy_text if name == "cleanup.policy" else self.value_of(name)
        if value is None:
            return "unknown"
        if value in (LONG_MAX, sys.float_info.max):
            return "no limit"
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        return str(value).lower() if isinstance(value, bool) else str(value)

    def source_of(self, name: str) -> str:
        """Return the source of a setting's value in words."""
        setting = self.settings.get(name, Setting(source=Source.DEFAULT))
        if setting == Setting(source=Source.BROKER_CONFIG):
            return "--broker-config" if not self.broker.is_found else f"{self.broker.origin}"
        assumed = ", assumed" if self.is_assumed(name) else ""
        return f"{_SOURCES[setting.source]}{_ORIGINS[setting.origin]}{assumed}"

    @property
    def expires_without_horizon(self) -> bool:
        """Whether a tombstone of a batch without a delete horizon, of formats 0 and 1, may expire.

        It does so by `delete.retention.ms` alone, so not by a value that the topic may not have.
        """
        return self.own.is_known or not self.is_assumed("delete.retention.ms")

    @property
    def compacts(self) -> bool:
        """Whether the policy is known and contains `compact`."""
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy

    @property
    def policy_text(self) -> str | None:
        """The policy in Kafka's text form, `compact,delete` for both; None when it is unknown."""
        return None if self.cleanup_policy is None else ",".join(sorted(self.cleanup_policy))


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One `--config [TOPIC:]NAME=VALUE`. `topic` is a name or a shell pattern; None is the value for all topics."""

    name: str
    value: str
    topic: str | None = None

    def is_for(self, topic: str) -> bool:
        """Return whether it names a topic. As files with a dot in a shell, internal topics need their first letters."""
        if self.topic is None or (topic in INTERNAL_TOPIC_SETTINGS and not self.topic.startswith("__")):
            return False
        return fnmatch.fnmatchcase(topic, self.topic)

    def __str__(self) -> str:
        topic = f"{self.topic}:" if self.topic is not None else ""
        return f"{topic}{self.name}={self.value}"


def _integer(low: int, high: int, *, unit_ms: int = 1) -> Callable[[str], int]:
    """Return a parser of integers between two bounds. Its values are multiplied by `unit_ms`."""

    def parse(text: str) -> int:
        value = read_integer(trimmed(text))
        if value is None:
            raise ValueError("is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value * unit_ms

    return parse


def _limit(low: int, high: int, *, unit_ms: int = 1) -> Callable[[str], int]:
    """Return a parser of a broker's time limit. Every negative number is -1, which is no limit."""
    parse = _integer(low, high, unit_ms=unit_ms)
    return lambda text: max(-1, parse(text))


def _number(text: str) -> float:
    value = read_double(text)
    if value is None:
        raise ValueError("is not a number")
    return value


def _ratio(text: str) -> float:
    value = _number(text)
    # Kafka accepts NaN: both comparisons are false. No ratio is above it, so such a topic is never dirty enough.
    if value < 0 or value > 1:
        raise ValueError("must be between 0 and 1")
    return value


def _boolean(text: str) -> bool:
    value = read_boolean(text)
    if value is None:
        raise ValueError("must be true or false")
    return value


def _policy(text: str) -> frozenset[str]:
    policies = read_list(text)
    for policy in policies:
        if policy not in ("compact", "delete"):
            raise ValueError("must be compact, delete or both")
    return frozenset(policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    field: str | None
    """The field of `TopicConfig`, or None for a setting of Kafka that cleaning does not use."""
    parse: Callable[[str], Any]
    """Returns the value of a text. Raises ValueError with the end of a sentence that starts with the text."""


_UNUSED = _Setting(field=None, parse=str)

TOPIC_SETTINGS: dict[str, _Setting] = {
    "cleanup.policy": _Setting(field="cleanup_policy", parse=_policy),
    "min.cleanable.dirty.ratio": _Setting(field="min_cleanable_dirty_ratio", parse=_ratio),
    "min.compaction.lag.ms": _Setting(field="min_compaction_lag_ms", parse=_integer(0, LONG_MAX)),
    "max.compaction.lag.ms": _Setting(field="max_compaction_lag_ms", parse=_integer(1, LONG_MAX)),
    "delete.retention.ms": _Setting(field="delete_retention_ms", parse=_integer(0, LONG_MAX)),
    # Kafka 4 requires 1 MiB, but topics of older brokers can have less. 14 bytes is the smallest legacy record.
    "segment.bytes": _Setting(field="segment_bytes", parse=_integer(14, INT_MAX)),
    # Replaces segment.bytes when both are set.
    "internal.segment.bytes": _Setting(field="segment_bytes", parse=_integer(14, INT_MAX)),
    # Used by `plan --explain` only: when a broker closes the active segment.
    "segment.ms": _Setting(field="segment_ms", parse=_integer(1, LONG_MAX)),
    "segment.jitter.ms": _Setting(field="segment_jitter_ms", parse=_integer(0, LONG_MAX)),
    "segment.index.bytes": _Setting(field="segment_index_bytes", parse=_integer(4, INT_MAX)),
    "index.interval.bytes": _Setting(field="index_interval_bytes", parse=_integer(0, INT_MAX)),
    "retention.bytes": _Setting(field="retention_bytes", parse=_integer(-(1 << 63), LONG_MAX)),
    "retention.ms": _Setting(field="retention_ms", parse=_integer(-1, LONG_MAX)),
    "remote.storage.enable": _Setting(field="remote_storage_enable", parse=_boolean),
} | dict.fromkeys(
    (
        "compression.type compression.gzip.level compression.lz4.level compression.zstd.level file.delete.delay.ms "
        "flush.messages flush.ms local.retention.bytes local.retention.ms max.decompressed.message.bytes "
        "max.message.bytes message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type "
        "min.insync.replicas preallocate unclean.leader.election.enable remote.log.copy.disable "
        "remote.log.delete.on.disable follower.replication.throttled.replicas leader.replication.throttled.replicas "
        "errors.deadletterqueue.group.enable message.downconversion.enable message.format.version "
        "message.timestamp.difference.max.ms remote.copy.lag.bytes remote.copy.lag.ms"
    ).split(),
    _UNUSED,
)

BROKER_SETTINGS: dict[str, str] = {
    "log.cleanup.policy": "cleanup.policy",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.segment.bytes": "segment.bytes",
    "log.roll.hours": "segment.ms",
    "log.roll.ms": "segment.ms",
    "log.roll.jitter.hours": "segment.jitter.ms",
    "log.roll.jitter.ms": "segment.jitter.ms",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.retention.bytes": "retention.bytes",
    "log.retention.hours": "retention.ms",
    "log.retention.minutes": "retention.ms",
    "log.retention.ms": "retention.ms",
}
"""The broker's name of each setting, and the topic's name. Of two names for the same setting the later one is used."""

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000
_BROKER_PARSERS: dict[str, Callable[[str], int]] = {
    "log.retention.hours": _limit(INT_MIN, INT_MAX, unit_ms=_HOUR_MS),
    "log.retention.minutes": _limit(INT_MIN, INT_MAX, unit_ms=_MINUTE_MS),
    "log.retention.ms": _limit(LONG_MIN, LONG_MAX),
    "log.roll.hours": _integer(1, INT_MAX, unit_ms=_HOUR_MS),
    "log.roll.jitter.hours": _integer(0, INT_MAX, unit_ms=_HOUR_MS),
}
"""The parsers of broker settings that have another unit or other bounds than the topic's. They return milliseconds."""

BROKER_ONLY: dict[str, _Setting] = {
    "log.cleaner.enable": _Setting(field="log_cleaner_enable", parse=_boolean),
    "producer.id.expiration.ms": _Setting(field="producer_id_expiration_ms", parse=_integer(1, INT_MAX)),
    # The same in older releases: `Release.producer_expiration`. Options have the newer name.
    "transactional.id.expiration.ms": _Setting(field=None, parse=_integer(1, INT_MAX)),
    # From when on `transactions` says that an open transaction hangs.
    "transaction.max.timeout.ms": _Setting(field="transaction_max_timeout_ms", parse=_integer(1, INT_MAX)),
    # The size of the broker's offset map. kcompact uses these three only to count the passes of Kafka's cleaner.
    "log.cleaner.dedupe.buffer.size": _Setting(field="log_cleaner_dedupe_buffer_size", parse=_integer(1, LONG_MAX)),
    "log.cleaner.threads": _Setting(field="log_cleaner_threads", parse=_integer(1, INT_MAX)),
    "log.cleaner.io.buffer.load.factor": _Setting(field="log_cleaner_io_buffer_load_factor", parse=_number),
    # Used by the cleaner service, and the second one by `plan --explain`.
    "log.cleaner.backoff.ms": _Setting(field="log_cleaner_backoff_ms", parse=_integer(0, LONG_MAX)),
    "log.cleaner.io.max.bytes.per.second": _Setting(field="log_cleaner_io_max_bytes_per_second", parse=_number),
}

FIELD_NAMES = {
    setting.field: name
    for name, setting in (*TOPIC_SETTINGS.items(), *BROKER_ONLY.items())
    if setting.field is not None and not name.startswith("internal.")
}
"""The fields of `TopicConfig`, and the topic's name of each; the broker's name of a setting that topics lack."""

BROKER_NAMES = frozenset((*BROKER_SETTINGS, *BROKER_ONLY))
"""The broker settings that kcompact uses."""

CLEANER_PREFIXES = ("log.cleaner.", "log.cleanup.")
"""How the settings of the cleaner begin. A wrong name among them is reported."""

CLEANER_ENABLE = "log.cleaner.enable"
"""Whether a broker's own cleaner runs. kcompact only says that it does not."""

SERVICE_ONLY = frozenset({"log.cleaner.backoff.ms", "log.cleaner.io.max.bytes.per.second"})
"""The broker settings that only `cleaner.service` uses. `clean` has --max-bytes-per-second."""

EXPLAINED = frozenset(
    {
        *("segment.ms", "segment.jitter.ms", "log.cleaner.io.max.bytes.per.second"),
        *("log.roll.ms", "log.roll.hours", "log.roll.jitter.ms", "log.roll.jitter.hours"),
        "transaction.max.timeout.ms",
    }
)
"""Settings on which no verdict depends, but what `plan --explain` and `transactions` say."""

INTERNAL_TOPIC_SETTINGS = {
    # Kafka's coordinators create their topics with these settings, and delete from the last one by themselves.
    "__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    "__transaction_state": {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    "__share_group_state": {"cleanup.policy": "delete", "segment.bytes": "104857600", "retention.ms": "-1"},
}


RETENTION_LIMITS = ("retention.bytes", "retention.ms")
OF_THE_TOPIC_ALONE = ("cleanup.policy", *RETENTION_LIMITS)
"""The settings that decide what is compacted and deleted. No value for all topics is one's own: see above."""


def parse_value(name: str, text: str) -> Any:
    """Return the value of a setting of a topic or of a broker.

    Raises ValueError with the end of a sentence that starts with the text. Rule: `ConfigDef.parseType`.
    """
    setting = BROKER_ONLY.get(name) or TOPIC_SETTINGS[BROKER_SETTINGS.get(name, name)]
    parse: Callable[[str], Any] = _BROKER_PARSERS.get(name, setting.parse)
    return parse(text)


def is_broker_name(name: str) -> bool:
    """Return whether `name` is a setting of a Kafka broker and not of a topic."""
    return name not in TOPIC_SETTINGS and name in KAFKA_BROKER_NAMES


def is_used(name: str, *, explains: bool = False) -> bool:
    """Return whether a plan or a round depends on a setting of a topic or of a broker; `explains`: or a forecast."""
    if name in EXPLAINED:
        return explains
    setting = TOPIC_SETTINGS.get(name) or BROKER_ONLY.get(name)
    return name in BROKER_SETTINGS if setting is None else setting.field is not None and name not in SERVICE_ONLY


def parse_override(text: str, *, option: str = "--config") -> Override:
    """Return the override `[TOPIC:]NAME=VALUE`. Raises ConfigError for another form or an unknown setting."""
    name, equals, value = text.partition("=")
    topic, colon, setting = name.rpartition(":")
    if not equals or not setting.strip() or (colon and not topic):
        raise ConfigError(path=option, problem=f"'{text}' is not [TOPIC:]NAME=VALUE")
    setting = setting.strip()
    if setting not in TOPIC_SETTINGS and not is_broker_name(setting):
        close = closest(setting, [*TOPIC_SETTINGS, *KAFKA_BROKER_NAMES])
        raise ConfigError(
            path=option,
            problem=f"'{setting}' is neither a topic setting nor a broker setting of Kafka",
            hint=f"Did you mean {close}?" if close else "",
        )
    if colon and is_broker_name(setting):
        raise ConfigError(
            path=option,
            problem=f"'{setting}' is a broker setting and holds for all topics",
            hint=f"Remove '{topic}:' before it, or use the topic's name of the setting.",
        )
    return Override(name=setting, value=trimmed(value), topic=topic if colon else None)


def unknown_cleaner_names(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the names in `server.properties` that look like settings of the cleaner but are none.

    The value is the most similar name of a setting, or an empty text.
    """
    return {
        name: closest(name, KAFKA_BROKER_NAMES)
        for name in properties
        if name.startswith(CLEANER_PREFIXES) and name not in KAFKA_BROKER_NAMES
    }


def config_fields(config: TopicConfig) -> dict[str, Any]:
    """Return the value, source and origin of every setting that kcompact uses, under Kafka's names, for JSON."""
    fields = {}
    for field_name, name in FIELD_NAMES.items():
        value = config.policy_text if field_name == "cleanup_policy" else getattr(config, field_name)
        if isinstance(value, float) and not math.isfinite(value):
            value = config.text_of(name)  # JSON has no such number.
        setting = config.settings.get(name, Setting(source=Source.DEFAULT))
        source = None if value is None else str(setting.source)
        fields[name] = {"value": value, "source": source, "origin": setting.origin}
    return fields
