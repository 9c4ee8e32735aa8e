"""Topic and cleaner settings, under Kafka's names, from the options and files a user gives and from the cluster.

A setting of the topic beats the broker's for all topics. Strongest first:

    topic     `--config` for this topic, `--config` for all, the override that the cluster knows
    broker    `--config` under the broker's name, the broker's own dynamic setting, the dynamic setting of all
              brokers, `server.properties`
    Kafka's defaults

Each value of the result says which of these it is from. Rules: `TopicConfig`, `LogConfig`, `CleanerConfig`,
`KafkaConfig`, `ServerTopicConfigSynonyms`, `DynamicBrokerConfig` of Kafka 4.3.1; KIP-226.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kcompact.errors import ConfigError

LONG_MAX = (1 << 63) - 1


INT_MAX = (1 << 31) - 1


MIN_DEDUPE_BUFFER_BYTES = 1 << 20


class Source(enum.StrEnum):
    """What kind of setting a value is from, strongest first; the lower ones are Kafka's `ConfigSource`s."""

    OPTION = "option"
    TOPIC_OVERRIDE = "topic-override"
    BROKER_OVERRIDE = "broker-override"
    CLUSTER_DEFAULT = "cluster-default"
    BROKER_CONFIG = "broker-config"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a value is from. `origin` is who told it: `metadata-log`, `bootstrap-server`, or None for the command."""

    source: Source
    origin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """What a cluster says of one topic that it knows, and of the broker: layers of settings, weakest first.

    `topic` holds the topic's overrides. What none of them has is Kafka's default, `cleanup.policy` too.
    """

    origin: str
    topic: Mapping[str, str]
    broker: Sequence[tuple[Source, Mapping[str, str]]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What the planner and the cleaner need to know about a topic. `cleanup_policy` is None when nothing says it."""

    cleanup_policy: frozenset[str] | None = None
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    index_interval_bytes: int = 4096
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    producer_id_expiration_ms: int = 86_400_000
    remote_storage_enable: bool = False
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_threads: int = 1
    log_cleaner_io_buffer_load_factor: float = 0.9
    settings: Mapping[str, Setting] = field(default_factory=dict, compare=False)
    """Where each value is from, under the topic's name for it; what is not in here is Kafka's default."""

    @property
    def compacts(self) -> bool:
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy

    @property
    def policy_text(self) -> str | None:
        """The policy as Kafka writes it, `compact,delete` for both; None when unknown."""
        return None if self.cleanup_policy is None else ",".join(sorted(self.cleanup_policy))


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One `--config [TOPIC:]NAME=VALUE`."""

    name: str
    value: str
    topic: str | None = None


def whole_number(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,40}", text.strip()):
        raise ValueError("is no whole number")
    return int(text)


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole_number(text)
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    return parse


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is no number") from None
    if not 0 < value < math.inf:
        raise ValueError("must be more than 0")
    return value


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is no number") from None
    if not 0 <= value <= 1:
        raise ValueError("must be between 0 and 1")
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _policy(text: str) -> frozenset[str]:
    policies = [word.strip().lower() for word in text.split(",") if word.strip()]
    for policy in policies:
        if policy not in ("compact", "delete"):
            raise ValueError(f"must be compact, delete or both: '{policy}' is neither")
    return frozenset(policies)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    field: str | None
    """The field of `TopicConfig`, or None for settings that Kafka has and cleaning does not use."""
    parse: Callable[[str], Any]


_ANY = _Setting(field=None, parse=str)


TOPIC_SETTINGS: dict[str, _Setting] = {
    "cleanup.policy": _Setting(field="cleanup_policy", parse=_policy),
    "min.cleanable.dirty.ratio": _Setting(field="min_cleanable_dirty_ratio", parse=_ratio),
    "min.compaction.lag.ms": _Setting(field="min_compaction_lag_ms", parse=_integer(0, LONG_MAX)),
    "max.compaction.lag.ms": _Setting(field="max_compaction_lag_ms", parse=_integer(1, LONG_MAX)),
    "delete.retention.ms": _Setting(field="delete_retention_ms", parse=_integer(0, LONG_MAX)),
    # Kafka 4 takes no less than 1 MiB; topics made by older brokers may have less, down to one legacy record.
    "segment.bytes": _Setting(field="segment_bytes", parse=_integer(14, INT_MAX)),
    # Replaces segment.bytes in a broker where both are set.
    "internal.segment.bytes": _Setting(field="segment_bytes", parse=_integer(14, INT_MAX)),
    "segment.index.bytes": _Setting(field="segment_index_bytes", parse=_integer(4, INT_MAX)),
    "index.interval.bytes": _Setting(field="index_interval_bytes", parse=_integer(0, INT_MAX)),
    "retention.bytes": _Setting(field="retention_bytes", parse=_integer(-(1 << 63), LONG_MAX)),
    "retention.ms": _Setting(field="retention_ms", parse=_integer(-1, LONG_MAX)),
    "remote.storage.enable": _Setting(field="remote_storage_enable", parse=_boolean),
} | dict.fromkeys(
    (
        "compression.type compression.gzip.level compression.lz4.level compression.zstd.level file.delete.delay.ms "
        "flush.messages flush.ms local.retention.bytes local.retention.ms max.message.bytes "
        "message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.insync.replicas "
        "preallocate segment.jitter.ms segment.ms unclean.leader.election.enable "
        "remote.log.copy.disable remote.log.delete.on.disable follower.replication.throttled.replicas "
        "leader.replication.throttled.replicas errors.deadletterqueue.group.enable"
    ).split(),
    _ANY,
)


BROKER_SETTINGS: dict[str, str] = {
    "log.cleanup.policy": "cleanup.policy",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.segment.bytes": "segment.bytes",
    "log.index.size.max.bytes": "segment.index.bytes",
    "log.index.interval.bytes": "index.interval.bytes",
    "log.retention.bytes": "retention.bytes",
    "log.retention.hours": "retention.ms",
    "log.retention.minutes": "retention.ms",
    "log.retention.ms": "retention.ms",
}
"""The broker's name for a setting, and the topic's. Of several in one place the last counts."""


UNITS_MS = {"log.retention.hours": 3_600_000, "log.retention.minutes": 60_000}
"""Those in another unit than the topic's."""


BROKER_ONLY: dict[str, _Setting] = {
    "producer.id.expiration.ms": _Setting(field="producer_id_expiration_ms", parse=_integer(1, INT_MAX)),
    # The size of the broker's own map of keys. We have none: it only tells how many passes the broker would need.
    "log.cleaner.dedupe.buffer.size": _Setting(field="log_cleaner_dedupe_buffer_size", parse=_integer(1, LONG_MAX)),
    "log.cleaner.threads": _Setting(field="log_cleaner_threads", parse=_integer(1, INT_MAX)),
    "log.cleaner.io.buffer.load.factor": _Setting(field="log_cleaner_io_buffer_load_factor", parse=_positive),
}


FIELD_NAMES = {
    setting.field: name
    for name, setting in (*TOPIC_SETTINGS.items(), *BROKER_ONLY.items())
    if setting.field is not None and not name.startswith("internal.")
}
"""The fields of `TopicConfig`, and the topic's name for each; a name of the broker's where a topic has none."""


BROKER_NAMES = frozenset((*BROKER_SETTINGS, *BROKER_ONLY))
"""The broker's settings that count."""


INTERNAL_TOPIC_SETTINGS = {
    # What Kafka's coordinators give their own topics when they create them.
    "__consumer_offsets": {"cleanup.policy": "compact", "segment.bytes": "104857600"},
    "__transaction_state": {"cleanup.policy": "compact", "segment.bytes": "104857600"},
}


def is_broker_name(name: str) -> bool:
    """Whether `name` is a broker property rather than a topic setting."""
    return name not in TOPIC_SETTINGS and (name in BROKER_SETTINGS or name in BROKER_ONLY or name.startswith("log."))


def parse_override(text: str) -> Override:
    """Return `[TOPIC:]NAME=VALUE` as a value. Raises ConfigError for another form or a name Kafka does not have."""
    name, equals, value = text.partition("=")
    topic, colon, setting = name.rpartition(":")
    if not equals or not setting.strip() or (colon and not topic):
        raise ConfigError(path="--config", problem=f"'{text}' is not [TOPIC:]NAME=VALUE")
    setting = setting.strip()
    if setting not in TOPIC_SETTINGS and not is_broker_name(setting):
        raise ConfigError(
            path="--config", problem=f"'{setting}' is no topic or broker setting", hint=_did_you_mean(setting)
        )
    if colon and is_broker_name(setting):
        raise ConfigError(path="--config", problem=f"'{setting}' is a broker's setting: it has no topic before it")
    return Override(name=setting, value=value.strip(), topic=topic if colon else None)


def _did_you_mean(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name, [*TOPIC_SETTINGS, *BROKER_SETTINGS], n=1)
    return f"Did you mean {close[0]}?" if close else ""
