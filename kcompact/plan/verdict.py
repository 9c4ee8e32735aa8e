"""The verdict on a partition: the reason why it is cleaned or not. Each reason is decided here, and nowhere else. Pure.

`verdict_on` asks in Kafka's order, and the first answer decides: may the partition be cleaned at all, is anything of it
cleanable, is that enough. `conditions` asks the same functions, each alone.
Rules: `LogCleanerManager.grabFilthiestCompactedLog`, `LogCleanerManager.cleanableOffsets`.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from kcompact.config.settings import TopicConfig
from kcompact.format.names import INTERNAL_TOPICS
from kcompact.log.directory import PartitionLog
from kcompact.readable import shown


class ConditionName(enum.StrEnum):
    """What Kafka's cleaner asks of a partition, in the order in which `conditions` shows it.

    A setting's condition has its name.
    """

    POLICY = "cleanup.policy"
    CLEANER_ENABLE = "log.cleaner.enable"
    UNCLEANABLE = "uncleanable"
    INTERNAL = "internal-topic"
    CLEAN_SHUTDOWN = "clean-shutdown"
    MOVE = "move"
    DIRTY_RECORDS = "dirty-records"
    LAST_STABLE_OFFSET = "last-stable-offset"
    HIGH_WATERMARK = "high-watermark"
    ACTIVE_SEGMENT = "active-segment"
    MIN_LAG = "min.compaction.lag.ms"
    MAX_LAG = "max.compaction.lag.ms"
    RATIO = "min.cleanable.dirty.ratio"
    ORDER = "order"
    BUFFER = "log.cleaner.dedupe.buffer.size"
    THROTTLE = "log.cleaner.io.max.bytes.per.second"
    TOMBSTONES = "delete.retention.ms"
    RETENTION = "retention.ms"


class Reason(enum.StrEnum):
    """The reason why a partition is cleaned or not, with the condition that decides then."""

    DIRTY_RATIO = "dirty-ratio", ConditionName.RATIO
    MAX_COMPACTION_LAG = "max-compaction-lag", ConditionName.MAX_LAG
    FORCED = "forced", ConditionName.RATIO

    BELOW_RATIO = "below-ratio", ConditionName.RATIO
    EMPTY = "empty", ConditionName.DIRTY_RECORDS
    NOTHING_DIRTY = "nothing-dirty", ConditionName.DIRTY_RECORDS
    ACTIVE_ONLY = "active-only", ConditionName.ACTIVE_SEGMENT
    MIN_COMPACTION_LAG = "min-compaction-lag", ConditionName.MIN_LAG
    OPEN_TRANSACTION = "open-transaction", ConditionName.LAST_STABLE_OFFSET
    HIGH_WATERMARK = "high-watermark", ConditionName.HIGH_WATERMARK
    RECOVERY_POINT = "recovery-point", ConditionName.CLEAN_SHUTDOWN
    PAUSED_BY_MOVE = "paused-by-move", ConditionName.MOVE
    POLICY_DELETE = "policy-delete", ConditionName.POLICY
    POLICY_UNKNOWN = "policy-unknown", ConditionName.POLICY
    INTERNAL = "internal", ConditionName.INTERNAL
    LEFTOVERS = "leftovers", ConditionName.UNCLEANABLE
    CORRUPT = "corrupt", ConditionName.UNCLEANABLE
    UNCLEAN_SHUTDOWN = "unclean-shutdown", ConditionName.CLEAN_SHUTDOWN
    NOT_A_PARTITION = "not-a-partition", ConditionName.UNCLEANABLE

    condition: ConditionName

    def __new__(cls, value: str, condition: ConditionName) -> Reason:
        reason = str.__new__(cls, value)
        reason._value_ = value
        reason.condition = condition
        return reason


ELIGIBLE = frozenset({Reason.DIRTY_RATIO, Reason.MAX_COMPACTION_LAG, Reason.FORCED})
"""The reasons to clean; all others are reasons not to."""

DELETES_NOTHING = frozenset(
    {
        Reason.CORRUPT,
        Reason.LEFTOVERS,
        Reason.INTERNAL,
        Reason.NOT_A_PARTITION,
        Reason.UNCLEAN_SHUTDOWN,
        Reason.POLICY_UNKNOWN,
    }
)
"""Verdicts on a partition from which no old segment is deleted either."""


class Bound(NamedTuple):
    """An offset from which on nothing may be cleaned, and why."""

    offset: int
    reason: Reason


Ruling = tuple[Reason, str]
"""A reason, and the sentence that explains it."""

UNCLEAN_SHUTDOWN = "the broker was not shut down cleanly: .kafka_cleanshutdown is missing"


def verdict_on(
    log: PartitionLog,
    config: TopicConfig,
    *,
    first_dirty_offset: int,
    bound: Bound,
    cleanable_bytes: int,
    ratio: float,
    delay_ms: int,
    force: bool,
    include_internal: bool,
) -> Ruling:
    """Return the verdict on a log whose cleanable section ends at `bound`.

    `delay_ms` is how long its oldest dirty segment is past `max.compaction.lag.ms`.
    """
    not_allowed = _why_not_allowed(log, config, include_internal=include_internal)
    if not_allowed is not None:
        return not_allowed
    if not cleanable_bytes:
        return why_not_in_closed_segments(log, first_dirty_offset) or _why_not_below(bound, config)
    by_ratio, by_age = ruling_by_ratio(ratio, config), ruling_by_age(delay_ms)
    reason, sentence = by_ratio
    if reason not in ELIGIBLE and by_age is None and force:
        return Reason.FORCED, f"{sentence}; --force ignores the ratio"
    return by_ratio if reason in ELIGIBLE else by_age or by_ratio


def _why_not_allowed(log: PartitionLog, config: TopicConfig, *, include_internal: bool) -> Ruling | None:
    """Return why the partition may not be cleaned at any ratio; None if it may."""
    topic = log.topic_partition.topic
    if log.damage and not log.needs_recovery:
        return Reason.CORRUPT, str(log.damage[0]).splitlines()[0]
    if log.staging:
        return Reason.LEFTOVERS, "an interrupted swap left files behind; run kcompact recover"
    if log.leftovers:
        # Without its staging directory kcompact leaves no such files.
        problem = "an interrupted swap of a broker left files behind; start that broker once and stop it, or use"
        return Reason.LEFTOVERS, f"{problem} kcompact recover --foreign"
    if log.is_cluster_metadata or (topic in INTERNAL_TOPICS and not include_internal):
        return Reason.INTERNAL, f"{topic} is an internal topic of Kafka"
    if config.remote_storage_enable:
        problem = "the topic has tiered storage (remote.storage.enable=true), which kcompact does not support"
        return Reason.NOT_A_PARTITION, problem
    if log.needs_recovery:
        return Reason.UNCLEAN_SHUTDOWN, UNCLEAN_SHUTDOWN
    if config.cleanup_policy is None:
        why = f": {config.own.why}" if config.own.why else ""
        return Reason.POLICY_UNKNOWN, f"the cleanup.policy of {topic} is unknown{why}"
    return why_not_compacted(config) or why_paused(log)


def why_paused(log: PartitionLog) -> Ruling | None:
    """Return why a broker's cleaner leaves a log alone that is being moved to another log directory; None if it is not.

    The replica there still fetches tombstones and markers, from its own end on.
    Rule: `ReplicaManager.alterReplicaLogDirs`, `maybeAddLogDirFetchers`, `LogManager.abortAndPauseCleaning`; KIP-113.
    """
    if not log.moves:
        return None
    return Reason.PAUSED_BY_MOVE, f"its move to another log directory has not ended: {shown(log.moves[0])}"


def why_not_compacted(config: TopicConfig) -> Ruling | None:
    """Return why a topic with a known policy is not compacted; None if it is."""
    if config.compacts:
        return None
    return Reason.POLICY_DELETE, f"cleanup.policy is '{config.policy_text}', without compact"


def _why_not_below(bound: Bound, config: TopicConfig) -> Ruling:
    """Return why no closed dirty segment is below a bound."""
    match bound.reason:
        case Reason.MIN_COMPACTION_LAG:
            lag_ms = config.min_compaction_lag_ms
            return bound.reason, f"the dirty segments are younger than min.compaction.lag.ms {lag_ms}"
        case Reason.OPEN_TRANSACTION:
            return bound.reason, f"the first dirty segment has an open transaction, from offset {bound.offset}"
        case Reason.RECOVERY_POINT:
            return bound.reason, f"a broker recovers all dirty segments, from offset {bound.offset} on"
    return bound.reason, "no whole dirty segment is below the high watermark"


def why_not_in_closed_segments(log: PartitionLog, first_dirty_offset: int) -> Ruling | None:
    """Return why no closed segment has a dirty record; None if one has."""
    if log.size_bytes == 0:
        return Reason.EMPTY, "the log has no batches"
    active = log.active_segment
    if any(segment.size_bytes for segment in log.segments_between(first_dirty_offset, active.base_offset)):
        return None
    if first_dirty_offset >= log.log_end_offset or active.size_bytes == 0:
        return Reason.NOTHING_DIRTY, f"the log is clean up to its end, offset {log.log_end_offset}"
    return Reason.ACTIVE_ONLY, f"all dirty records are in the active segment, which starts at {active.base_offset}"


def ruling_by_ratio(ratio: float, config: TopicConfig) -> Ruling:
    """Return the verdict by the dirty ratio alone."""
    minimum = config.text_of("min.cleanable.dirty.ratio")
    if ratio > config.min_cleanable_dirty_ratio:
        return Reason.DIRTY_RATIO, f"ratio {ratio:.4f} is above {minimum}"
    return Reason.BELOW_RATIO, f"ratio {ratio:.4f} is not above {minimum}"


def ruling_by_age(delay_ms: int) -> Ruling | None:
    """Return the verdict by the age of the oldest dirty segment alone; None if it is no reason to clean."""
    if delay_ms <= 0:
        return None
    return Reason.MAX_COMPACTION_LAG, f"the oldest dirty segment is {delay_ms} ms past max.compaction.lag.ms"
