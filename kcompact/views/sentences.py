"""Sentences that several views and the JSON share: the policy, the sources of settings, the roles of segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.config.settings import Source, TopicConfig
from kcompact.errors import LogDirLockedError
from kcompact.plan.clean_plan import CleanPlan, Role
from kcompact.plan.deletion import RetentionReason, limit_of
from kcompact.plan.verdict import Reason
from kcompact.release import ReleaseSource

if TYPE_CHECKING:
    from kcompact.log.segments import Segment
    from kcompact.plan.walk import Planned, PlannedPartition


# Configuration

_RELEASE_SOURCES = {
    ReleaseSource.OPTION: "by --kafka-release",
    ReleaseSource.REGISTRATION: "for a broker that has registered as Kafka {}",
    ReleaseSource.META_PROPERTIES: "for a broker with ZooKeeper, Kafka {}",
    ReleaseSource.NEWEST: "the newest; no file tells the broker's release",
}


def policy_line(config: TopicConfig) -> str:
    """Return the policy, with its source unless that is --config."""
    setting = config.settings.get("cleanup.policy")
    if config.policy_text is None or setting is None or setting.source is Source.OPTION:
        return config.policy_text or "unknown"
    return f"{config.policy_text or 'none'} ({config.source_of('cleanup.policy')})"


def release_line(config: TopicConfig) -> str:
    """Return the release whose rules hold, and how it is known."""
    if config.broker_release == config.release.name:
        return f"Kafka {config.release.name}, the release that the broker has registered"
    return f"Kafka {config.release.name}, {_RELEASE_SOURCES[config.release_source].format(config.broker_release)}"


def limit_text(plan: CleanPlan, reason: RetentionReason) -> str:
    """Return the setting by which retention deletes, with its value and source."""
    return f"{reason} {limit_of(plan, reason)} ({plan.config.source_of(reason)})"


# Roles


def role_reason(plan: CleanPlan, segment: Segment) -> str:
    """Return why a segment has its role."""
    match plan.role_of(segment):
        case Role.ACTIVE:
            return "the last segment is never cleaned"
        case Role.CLEAN:
            return f"ends below the first dirty offset {plan.first_dirty_offset}"
        case Role.DIRTY if segment.base_offset < plan.first_dirty_offset:
            return f"clean below offset {plan.first_dirty_offset}, dirty from that offset"
        case Role.DIRTY:
            return f"between the first dirty offset {plan.first_dirty_offset} and {plan.first_uncleanable_offset}"
    match plan.bound:
        case Reason.OPEN_TRANSACTION:
            return f"a transaction is open from offset {plan.last_stable_offset}"
        case Reason.HIGH_WATERMARK:
            return f"not entirely below the high watermark {plan.high_watermark}"
        case Reason.RECOVERY_POINT:
            return f"a broker recovers the log from offset {plan.log.recovered_from} on"
        case Reason.MIN_COMPACTION_LAG:
            lag_ms = plan.config.min_compaction_lag_ms
            return f"this segment or an earlier one is younger than min.compaction.lag.ms {lag_ms}"
    return f"at or above the first uncleanable offset {plan.first_uncleanable_offset}"


def clean_below_offset(plan: CleanPlan, segment: Segment) -> int | None:
    """Return the offset at which the dirty part of a dirty segment starts, None for its base offset."""
    straddles = segment.base_offset < plan.first_dirty_offset < plan.log.end_of(segment)
    return plan.first_dirty_offset if straddles and plan.role_of(segment) is Role.DIRTY else None


def amount_of(segments: Sequence[Segment]) -> str:
    """Return the number of some segments and their size: `12 segments, 1.2 MiB`."""
    return amount_of_bytes(len(segments), sum(segment.size_bytes for segment in segments))


def amount_of_bytes(segments: int, size_bytes: int) -> str:
    """Return a number of segments and their size, as `amount_of` does."""
    return f"{readable.counted(segments, 'segment')}, {readable.size(size_bytes)}"


# Partitions


def unlocked(entries: Iterable[Planned]) -> list[Planned]:
    """Return the entries for a table: without those whose log directory is locked, which one error says of all."""
    return [each for each in entries if not isinstance(each.error, LogDirLockedError)]


def topics_of(entries: Sequence[PlannedPartition]) -> str:
    """Return partitions by topic, `orders (12), users-0`, of many topics only some."""
    by_topic: dict[str, list[str]] = {}
    for entry in entries:
        by_topic.setdefault(entry.name.rpartition("-")[0] or entry.name, []).append(entry.name)
    named = [names[0] if len(names) == 1 else f"{topic} ({len(names):,})" for topic, names in by_topic.items()]
    return readable.some_of(named) + (" topics" if len(named) > readable.NAMED_AT_MOST else "")
