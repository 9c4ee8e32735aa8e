"""Settings that a broker refuses, that fight each other, or with which its cleaner does nothing.

`segment.ms` above `max.compaction.lag.ms` is no finding: a broker rolls a compacted log by the smaller of the two
(`LogConfig.maxSegmentMs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kcompact.config.layers import topic_config
from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.doctor.findings import Finding, Kind
from kcompact.errors import ConfigError
from kcompact.format.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.passes import kafka_passes_at_most, keys_per_pass, offset_map_slots

_REFUSALS = {
    "log.cleaner.dedupe.buffer.size": "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    "min.compaction.lag.ms": "conflict topic config setting min.compaction.lag.ms",
}
"""What a broker's log says about settings that contradict others."""


def broker_setting_findings(properties: Mapping[str, str], log_dir: Path) -> Iterator[Finding]:
    """Yield the value in `server.properties` that keeps a broker from starting. Rule: KafkaConfig.validateValues."""
    try:
        topic_config("every topic", broker_properties=properties)
    except ConfigError as error:
        yield Finding(
            kind=Kind.BAD_SETTING,
            directory=log_dir,
            problem=f"server.properties: {error.path}: {error.problem}",
            broker_says=next((says for name, says in _REFUSALS.items() if name in f"{error.path} {error.problem}"), ""),
        )


def topic_findings(topic: str, config: TopicConfig, directory: Path) -> Iterator[Finding]:
    """Yield what the settings of a topic do to its cleaning. `directory` is a log directory that has it."""
    for kind, problem in _problems(topic, config):
        yield Finding(kind=kind, directory=directory, problem=f"{topic}: {problem}", topic=topic)


def _problems(topic: str, config: TopicConfig) -> Iterator[tuple[Kind, str]]:
    if config.cleanup_policy is None:
        yield Kind.POLICY_UNKNOWN, "no source has its cleanup.policy, so clean leaves the topic alone"
    policy = config.cleanup_policy or frozenset()
    if topic in (CONSUMER_OFFSETS, TRANSACTION_STATE) and "delete" in policy:
        yield (
            Kind.INTERNAL_POLICY,
            f"cleanup.policy is {config.policy_text}: a broker deletes committed offsets or open transactions by age",
        )
    if "compact" not in policy:
        return
    # Rule: LogCleanerManager.grabFilthiestCompactedLog, which wants a ratio above the minimum.
    if config.min_cleanable_dirty_ratio >= 1 and config.max_compaction_lag_ms == LONG_MAX:
        yield (
            Kind.NEVER_DIRTY_ENOUGH,
            "min.cleanable.dirty.ratio is 1, and the ratio must be above it; max.compaction.lag.ms is not set",
        )
    # Rule: LogConfig.validateValues, for the settings of the topic alone.
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        yield (
            Kind.LAG_ORDER,
            f"min.compaction.lag.ms {config.min_compaction_lag_ms} is above max.compaction.lag.ms "
            f"{config.max_compaction_lag_ms}: records younger than the first are never compacted, whatever the second",
        )
    if "delete" in policy and 0 <= config.retention_ms < config.min_compaction_lag_ms:
        yield (
            Kind.RETENTION_FIRST,
            f"retention.ms {config.retention_ms} is below min.compaction.lag.ms {config.min_compaction_lag_ms}: "
            "segments are deleted before they may be compacted",
        )


def offset_map_findings(plan: CleanPlan) -> Iterator[Finding]:
    """Yield a finding if the broker's cleaner might never finish. Rule: Cleaner.buildOffsetMapForSegment."""
    if not plan.config.compacts or kafka_passes_at_most(plan) is not None:
        return
    partition, slots = plan.log.topic_partition, offset_map_slots(plan.config)
    if keys_per_pass(plan.config) > slots:
        problem = (
            f"log.cleaner.io.buffer.load.factor is above 1, and the dirty section may have more than {slots:,} keys"
        )
        says = (
            f"Marking its partition ({partition}) as uncleanable: IllegalArgumentException: Attempted to add a new "
            "entry to a full offset map"
        )
    else:
        problem, says = (
            "with log.cleaner.io.buffer.load.factor the cleaner's map takes no key: it never gets further",
            "",
        )
    yield Finding(kind=Kind.OFFSET_MAP, directory=plan.log.directory, problem=problem, broker_says=says)


def cleaner_findings(*, is_enabled: bool, log_dir: Path) -> Iterator[Finding]:
    """Yield a finding if the broker's own cleaner is switched off."""
    if not is_enabled:
        yield Finding(
            kind=Kind.CLEANER_DISABLED,
            directory=log_dir,
            problem="log.cleaner.enable=false: nothing is ever compacted, also not __consumer_offsets",
            broker_says="The config `log.cleaner.enable` is deprecated and will be removed in Kafka 5.0.",
        )


def unused_setting_findings(notes: Sequence[str], log_dir: Path) -> Iterator[Finding]:
    """Yield the settings of the options and of `server.properties` that have no effect; `notes` name them."""
    for note in notes:
        yield Finding(kind=Kind.UNUSED_SETTING, directory=log_dir, problem=note)
