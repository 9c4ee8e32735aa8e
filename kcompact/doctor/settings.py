"""Settings that a broker refuses, that fight each other, or with which its cleaner does nothing.

`segment.ms` above `max.compaction.lag.ms` is no finding: a broker rolls a compacted log by the smaller of the two
(`LogConfig.maxSegmentMs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.brokers import Broker
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.config.resolve import Configured
from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.doctor.findings import Finding
from kcompact.format.names import CONSUMER_OFFSETS, TRANSACTION_STATE, parse_directory
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.cost import kafka_passes_at_most, keys_per_pass, offset_map_slots
from kcompact.plan.partition import HOW_TO_KNOW_TOPICS
from kcompact.plan.setting_notes import found_note, how_to_know, nothing_read, unresolved_text
from kcompact.readable import shown, some_of
from kcompact.remarks import Note, RemarkCode

_REFUSALS: dict[tuple[str, ...], str] = {
    ("log.cleaner.dedupe.buffer.size", "log.cleaner.threads"): (
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread."
    ),
    ("min.compaction.lag.ms", "max.compaction.lag.ms"): "conflict topic config setting min.compaction.lag.ms",
}
"""What a broker's log says about settings that contradict others."""

_ASKED = frozenset(
    {
        *("cleanup.policy", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms"),
        *("delete.retention.ms", "retention.ms", "transaction.max.timeout.ms"),
        *("log.cleaner.enable", "log.cleaner.threads"),
        *("log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor"),
    }
)
"""The settings that the checks ask."""


def broker_setting_findings(brokers: Mapping[Path, BrokerConfig]) -> Iterator[Finding]:
    """Yield the values in brokers' files that keep a broker from starting. Rule: KafkaConfig.validateValues.

    `brokers` has what is known of the broker of each log directory.
    """
    for log_dir, broker in _each_once(brokers):
        for error in dict.fromkeys(broker.refused.values()):
            yield Finding(
                code=RemarkCode.BAD_SETTING,
                directory=log_dir,
                problem=f"{shown(broker.origin or 'server.properties')}: {error.path}: {error.problem}",
                broker_says=_REFUSALS.get(error.contradicting, ""),
            )


def broker_config_findings(brokers: Mapping[Path, BrokerConfig]) -> Iterator[Finding]:
    """Yield which files with the static settings of brokers were found."""
    for log_dir, broker in _each_once(brokers):
        if broker.is_found and broker.origin is not None:
            same = [each for each, other in brokers.items() if other.origin == broker.origin]
            yield Finding(
                code=RemarkCode.BROKER_CONFIG,
                directory=log_dir,
                file=Path(broker.origin) if broker.origin.startswith("/") else None,
                problem=found_note(broker, same).text,
            )


def _each_once(brokers: Mapping[Path, BrokerConfig]) -> Iterator[tuple[Path, BrokerConfig]]:
    """Yield each file that was read once, with the first log directory that it belongs to."""
    seen: set[str | None] = set()
    for log_dir, broker in brokers.items():
        if broker.is_known and broker.origin not in seen:
            seen.add(broker.origin)
            yield log_dir, broker


def release_findings(configs: Mapping[Path, Configured], brokers: Mapping[Path, Broker]) -> Iterator[Finding]:
    """Yield of which release each broker is, if its files tell it, and which rules hold."""
    configs_by_log_dir: dict[Path, TopicConfig] = {}
    for directory, configured in configs.items():
        if configured.config.broker_release is not None:
            configs_by_log_dir.setdefault(brokers[directory.parent].log_dirs[0].path, configured.config)
    for log_dir, config in configs_by_log_dir.items():
        known, rules = config.broker_release, config.release.name
        yield Finding(
            code=RemarkCode.BROKER_RELEASE,
            directory=log_dir,
            problem=f"the last broker was of Kafka {known}; the rules of Kafka {rules} hold",
        )


def assumption_findings(configs: Mapping[Path, Configured]) -> Iterator[Finding]:
    """Yield the settings that the checks of `doctor` ask and that are only assumed.

    `configs` are those of partition directories. Nothing can be said about what another value would stop.
    """
    yield from _unknown_topic_findings(configs)
    values: dict[str, dict[str, None]] = {}
    log_dirs: dict[str, dict[Path, BrokerConfig]] = {}
    for directory, config in ((directory, configured.config) for directory, configured in _of_topics(configs)):
        assumed = [f"{name}={config.text_of(name)}" for name in config.assumed if name in _ASKED]
        if assumed and (config.own.is_known or not config.broker.is_known):
            why = unresolved_text(config.broker)
            values.setdefault(why, {}).update(dict.fromkeys(assumed))
            log_dirs.setdefault(why, {})[directory.parent] = config.broker
    for why, defaults in values.items():
        yield Finding(
            code=RemarkCode.ASSUMED_SETTINGS,
            directory=next(iter(log_dirs[why])),
            problem=f"{why or nothing_read(log_dirs[why])}: Kafka's defaults are assumed, {', '.join(defaults)}; "
            f"pass {how_to_know(why)}",
        )


def _unknown_topic_findings(configs: Mapping[Path, Configured]) -> Iterator[Finding]:
    """Yield for each log directory, and each reason, the topics whose own settings no source has."""
    topics_by_reason: dict[tuple[Path, str], dict[str, None]] = {}
    for directory, configured in _of_topics(configs):
        parsed, own = parse_directory(directory.name), configured.config.own
        if parsed is not None and not own.is_known and configured.problem is None:
            topics_by_reason.setdefault((directory.parent, own.why), {})[parsed.topic_partition.topic] = None
    for (log_dir, why), topics in topics_by_reason.items():
        some = some_of(list(map(shown, sorted(topics))))
        problem = (
            f"no source has the settings that topics have of their own: {why}. What is said of {some} counts only "
        )
        yield Finding(
            code=RemarkCode.ASSUMED_SETTINGS,
            directory=log_dir,
            problem=f"{problem}as far as --config names their settings; pass {HOW_TO_KNOW_TOPICS}",
        )


def topic_findings(topic: str, config: TopicConfig, directory: Path) -> Iterator[Finding]:
    """Yield what the settings of a topic do to its cleaning. `directory` is a log directory that has it."""
    for code, problem in _problems(topic, config):
        yield Finding(code=code, directory=directory, problem=f"{topic}: {problem}", topic=topic)


def _problems(topic: str, config: TopicConfig) -> Iterator[tuple[RemarkCode, str]]:
    if config.cleanup_policy is None:
        yield RemarkCode.POLICY_UNKNOWN, "no source has its cleanup.policy, so clean leaves the topic alone"
    policy = config.cleanup_policy or frozenset()
    if topic in (CONSUMER_OFFSETS, TRANSACTION_STATE) and "delete" in policy:
        yield (
            RemarkCode.INTERNAL_POLICY,
            f"cleanup.policy is {config.policy_text}: a broker deletes committed offsets or open transactions by age",
        )
    if "compact" not in policy:
        return
    # Rule: LogCleanerManager.grabFilthiestCompactedLog, which wants a ratio above the minimum. None is above NaN.
    minimum = config.text_of("min.cleanable.dirty.ratio")
    if not config.min_cleanable_dirty_ratio < 1 and config.max_compaction_lag_ms == LONG_MAX:
        yield (
            RemarkCode.NEVER_DIRTY_ENOUGH,
            f"min.cleanable.dirty.ratio is {minimum.removesuffix('.0')}, and the ratio must be above it; "
            "max.compaction.lag.ms is not set",
        )
    # Rule: LogConfig.validateValues, for the settings of the topic alone.
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        yield (
            RemarkCode.LAG_ORDER,
            f"min.compaction.lag.ms {config.min_compaction_lag_ms} is above max.compaction.lag.ms "
            f"{config.max_compaction_lag_ms}: records younger than the first are never compacted, whatever the second",
        )
    if (
        "delete" in policy
        and config.retention_ms is not None
        and 0 <= config.retention_ms < config.min_compaction_lag_ms
    ):
        yield (
            RemarkCode.RETENTION_FIRST,
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
    yield Finding(code=RemarkCode.OFFSET_MAP, directory=plan.log.directory, problem=problem, broker_says=says)


def _of_topics(configs: Mapping[Path, Configured]) -> Iterator[tuple[Path, Configured]]:
    """Yield the configurations without that of the metadata log, for which no setting of a topic holds."""
    yield from ((directory, each) for directory, each in configs.items() if directory.name != METADATA_DIRECTORY)


def cleaner_findings(configs: Mapping[Path, Configured]) -> Iterator[Finding]:
    """Yield a finding if the broker's own cleaner is switched off; `configs` are those of partition directories."""
    disabled = (directory for directory, each in _of_topics(configs) if not each.config.log_cleaner_enable)
    for directory in list(disabled)[:1]:
        yield Finding(
            code=RemarkCode.CLEANER_DISABLED,
            directory=directory.parent,
            problem="log.cleaner.enable=false: nothing is ever compacted, also not __consumer_offsets",
            broker_says="The config `log.cleaner.enable` is deprecated and will be removed in Kafka 5.0.",
        )


def unused_setting_findings(notes: Sequence[Note], log_dir: Path) -> Iterator[Finding]:
    """Yield the settings of the options and of `server.properties` that have no effect; `notes` name them."""
    for note in notes:
        yield Finding(code=RemarkCode.UNUSED_SETTING, directory=log_dir, problem=note.text)
