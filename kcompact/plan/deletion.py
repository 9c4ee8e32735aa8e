"""Which whole segments a broker would delete now, or after a cleaning, by log start, size and time.

A broker deletes old segments again and again: of all compacted logs its cleaner thread does, after each cleaning of any
log; of all others its log manager does. So only the log that a broker cleans first is cleaned before it loses segments.
All others are judged and cleaned as retention leaves them.

kcompact reports these segments, and deletes them only with `--apply-retention`. The active segment is never deleted: a
broker first rolls it, and kcompact does not roll segments. Nothing is deleted by a setting that is unknown, or that is
only assumed to have Kafka's default: the topic's or the broker's own may say to keep everything.
Rules: `LogCleaner.CleanerThread.cleanFilthiestLog`, `UnifiedLog.deleteOldSegments`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from kcompact.config.settings import TopicConfig
from kcompact.log.directory import PartitionLog
from kcompact.log.segments import Segment, largest_timestamp
from kcompact.plan.clean_plan import CleanPlan, planned_again
from kcompact.plan.verdict import DELETES_NOTHING
from kcompact.values import dataclass


class RetentionReason(enum.StrEnum):
    """Why a broker would delete a segment. The values are part of the JSON output."""

    LOG_START = "log-start-offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredSegment:
    """A segment that a broker would delete, and why.

    `is_postponed`: the cleaning that comes first merges it into a segment that is not due.
    """

    segment: Segment
    end_offset: int
    reason: RetentionReason
    is_postponed: bool = False


def expired_segments(
    log: PartitionLog, config: TopicConfig, *, now_ms: int, high_watermark: int
) -> tuple[ExpiredSegment, ...]:
    """Return the segments that a broker would delete, oldest first, without the active segment.

    Each condition takes segments from the start of the log, up to the first segment that does not meet it or that ends
    above the high watermark. Segments below the log start are deleted with every policy. `retention.bytes` and
    `retention.ms` apply only when the policy contains `delete`, and if they are known. The next segment's base offset
    becomes the log start.
    """
    past = _past_retention(log, config, now_ms=now_ms, high_watermark=high_watermark)
    return tuple(expired for expired in past if expired.segment is not log.active_segment)


def _past_retention(
    log: PartitionLog, config: TopicConfig, *, now_ms: int, high_watermark: int
) -> list[ExpiredSegment]:
    """Return the segments that a broker would delete, the active segment too: a broker rolls it before it deletes it.

    An empty active segment is never deleted.
    """
    if log.recovered_from is not None:  # What a broker still has to recover is left to it.
        high_watermark = min(high_watermark, log.recovered_from)
    remaining = list(log.segments)
    ends = [segment.base_offset for segment in log.segments[1:]] + [log.log_end_offset]
    past: list[ExpiredSegment] = []

    def take(reason: RetentionReason, is_past: Callable[[Segment], bool]) -> None:
        while remaining and ends[len(past)] <= high_watermark and is_past(remaining[0]):
            if len(remaining) == 1 and remaining[0].size_bytes == 0:
                return
            past.append(ExpiredSegment(segment=remaining.pop(0), end_offset=ends[len(past)], reason=reason))

    take(RetentionReason.LOG_START, log.is_below_start)
    if config.cleanup_policy is not None and "delete" in config.cleanup_policy:
        most_bytes, most_ms = _limit(config.retention_bytes), _limit(config.retention_ms)
        excess_bytes = sum(segment.size_bytes for segment in remaining) - most_bytes

        def is_excess(segment: Segment) -> bool:
            nonlocal excess_bytes
            if excess_bytes < segment.size_bytes:
                return False
            excess_bytes -= segment.size_bytes
            return True

        if most_bytes >= 0 and excess_bytes >= 0:
            take(RetentionReason.SIZE, is_excess)
        if most_ms >= 0:
            take(RetentionReason.TIME, lambda segment: now_ms - segment.largest_timestamp_ms > most_ms)
    return past


def expired_early(plan: CleanPlan) -> Iterator[tuple[Segment, int]]:
    """Yield the segments that a broker deletes by `retention.ms` for a wrong time, and the time of a younger record.

    A broker only looks at the end of the time index, or at the modification time of the log. The active segment counts
    too. What is not known of policy and limit has Kafka's default. Only the headers of what is due are read. Raises
    CorruptBatchError, RefusedError, StorageError.
    """
    policy, limit_ms = plan.config.cleanup_policy, plan.config.retention_ms
    config = replace(
        plan.config,
        cleanup_policy=frozenset({"delete"}) if policy is None else policy,
        retention_ms=plan.config.release.defaults[RetentionReason.TIME] if limit_ms is None else limit_ms,
    )
    plan = replace(plan, config=config)
    for due in _past_retention(plan.log, config, now_ms=plan.now_ms, high_watermark=plan.high_watermark):
        timestamp = younger_record_ms(plan, due)
        if timestamp is not None:
            yield due.segment, timestamp


def younger_record_ms(plan: CleanPlan, due: ExpiredSegment) -> int | None:
    """Return the greatest time in a segment that is past `retention.ms`; None if that is past it too.

    Raises as `expired_early`.
    """
    retention_ms = plan.config.retention_ms
    if due.reason is not RetentionReason.TIME or retention_ms is None:
        return None
    file = plan.log.file(due.segment.log_name)
    greatest = largest_timestamp(file, due.segment.size_bytes)
    return greatest if greatest >= 0 and plan.now_ms - greatest <= retention_ms else None


def _limit(value: int | None) -> int:
    """Return the value of a limit of retention, -1 for none. An unknown one makes nothing expire."""
    return -1 if value is None else value


def retention_applies(plan: CleanPlan) -> bool:
    """Return whether a broker would look for old segments in a partition that kcompact may change.

    In one that is being moved it does not, whatever the policy, also if `--replica` allows to clean it.
    Rule: `LogCleanerManager.pauseCleaningForNonCompactedPartitions`.
    """
    is_moved = bool(plan.log.moves) or any(replica.is_future for replica in plan.replicas)
    return plan.reason not in DELETES_NOTHING and not plan.log.damage and not is_moved


def due_now(plan: CleanPlan) -> tuple[ExpiredSegment, ...]:
    """Return the segments that a broker would delete from the log of a plan as it is, before a cleaning."""
    if not retention_applies(plan):
        return ()
    return expired_segments(plan.log, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark)


def due_before_cleaning(plan: CleanPlan) -> tuple[ExpiredSegment, ...]:
    """Return those of `due_now` that no cleaning can save: all but those that are only past `retention.bytes`.

    A cleaning makes the log smaller, so `retention.bytes` may spare afterwards what it does not spare now.
    """
    return due_now(replace(plan, config=replace(plan.config, retention_bytes=-1)))


def assumed_settings(expired: Iterable[ExpiredSegment], config: TopicConfig) -> tuple[str, ...]:
    """Return the settings that make segments expire, as far as they are only assumed to have Kafka's default.

    The policy is one of them: without `delete` in it no segment becomes too old. The log start depends on no setting.
    A limit that is unknown is one too: by the other one alone nothing is deleted.
    """
    limits = sorted({str(due.reason) for due in expired if due.reason is not RetentionReason.LOG_START})
    assumed = [name for name in (*limits, "cleanup.policy") if limits and config.is_assumed(name)]
    return (*(unknown_retention(config) if limits else ()), *assumed)


def unknown_retention(config: TopicConfig) -> tuple[str, ...]:
    """Return which of the two limits of retention no source of the topic has."""
    return tuple(str(name) for name in (RetentionReason.SIZE, RetentionReason.TIME) if config.value_of(name) is None)


def certainly_expired(expired: Iterable[ExpiredSegment], config: TopicConfig) -> tuple[ExpiredSegment, ...]:
    """Return the first of the expired segments, up to one that expires only by an assumed setting."""
    return tuple(takewhile(lambda due: not assumed_settings([due], config), expired))


def limit_of(plan: CleanPlan, reason: RetentionReason) -> int:
    """Return the log start, or the value of the setting, that segments are past."""
    return plan.log.log_start_offset if reason is RetentionReason.LOG_START else int(plan.config.value_of(reason))


def plan_without(plan: CleanPlan, expired: Sequence[ExpiredSegment]) -> CleanPlan:
    """Return the plan for the log that is left when its first segments, the expired ones, are deleted."""
    remaining = plan.log.segments[len(expired) :]
    start_offset = remaining[0].base_offset
    log = replace(
        plan.log,
        segments=remaining,
        snapshots={offset: file for offset, file in plan.log.snapshots.items() if offset >= start_offset},
        log_start_offset=max(plan.log.log_start_offset, start_offset),
    )
    return planned_again(plan, log=log)


def retention_comes_first(plan: CleanPlan) -> bool:
    """Return whether a broker deletes old segments of a log before it cleans it, if it cleans it at all.

    A log that is not eligible may become so: with fewer clean segments the dirty ratio is greater.
    """
    return plan.comes_later or not plan.eligible


def plan_at_turn(plan: CleanPlan) -> CleanPlan:
    """Return the plan by which a broker cleans the log or not: of what retention leaves, if that comes first."""
    expired = due_now(plan) if retention_comes_first(plan) else ()
    return plan_without(plan, expired) if expired else plan


def reason_to_roll(plan: CleanPlan) -> RetentionReason | None:
    """Return why a broker would roll the active segment and delete it too; None if it would keep it.

    A broker does so when it deletes all other segments and the last one is old enough, or too much.
    """
    if not retention_applies(plan):
        return None
    past = _past_retention(plan.log, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark)
    return past[-1].reason if past and past[-1].segment is plan.log.active_segment else None


def first_due_ms(plan: CleanPlan) -> int | None:
    """Return the time after which the first segment is past `retention.ms`; None if that does not happen by itself.

    The active segment may grow, and without `delete` in the policy no segment becomes too old.
    """
    deletes = plan.config.cleanup_policy is not None and "delete" in plan.config.cleanup_policy
    limit_ms = _limit(plan.config.retention_ms)
    if not deletes or limit_ms < 0 or len(plan.log.segments) == 1:
        return None
    return plan.log.segments[0].largest_timestamp_ms + limit_ms


def plan_forecast(plan: CleanPlan) -> tuple[ExpiredSegment, ...]:
    """Return the segments that a broker would delete: after the cleaning of a plan, or now if retention comes first.

    The size and the timestamp of a merged segment are known only after it is written. The forecast uses the sum of the
    sizes and the greatest timestamp of the segments in its group.
    """
    due = due_now(plan)
    if not due or retention_comes_first(plan):
        return due
    merged = [
        replace(
            group[0],
            size_bytes=sum(member.size_bytes for member in group),
            largest_timestamp_ms=max(member.largest_timestamp_ms for member in group),
        )
        for group in plan.groups
    ]
    afterwards = due_now(
        replace(plan, log=replace(plan.log, segments=(*merged, *plan.log.segments[len(plan.segments) :])))
    )
    deleted = {expired.segment.base_offset for expired in afterwards}
    merged_into = {member.base_offset: group[0].base_offset for group in plan.groups for member in group}
    return tuple(
        replace(each, is_postponed=merged_into.get(each.segment.base_offset, each.segment.base_offset) not in deleted)
        for each in due
    )
