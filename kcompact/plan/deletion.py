"""Which whole segments a broker would delete after a cleaning, by log start, size and time. Pure.

Kafka's cleaner thread deletes old segments of compacted logs after each round. kcompact reports these segments, and
deletes them only with `--apply-retention`. The active segment is never included: a broker would roll it first, and
kcompact does not roll segments. Rule: `UnifiedLog.deleteOldSegments` of Kafka 4.3.1.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kcompact.config.settings import TopicConfig
from kcompact.log.directory import PartitionLog, Segment
from kcompact.plan.clean_plan import CleanPlan


class RetentionReason(enum.StrEnum):
    """Why a broker would delete a segment. The values are part of the JSON output."""

    LOG_START = "log-start-offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredSegment:
    """A segment that a broker would delete, and why."""

    segment: Segment
    reason: RetentionReason


def expired_segments(
    log: PartitionLog, config: TopicConfig, *, now_ms: int, high_watermark: int
) -> tuple[ExpiredSegment, ...]:
    """Return the segments that a broker would delete, oldest first.

    Each condition takes segments from the start of the log, up to the first segment that does not meet it or that ends
    above the high watermark. Segments below the log start are deleted with every policy. `retention.bytes` and
    `retention.ms` apply only when the policy contains `delete`. The next segment's base offset becomes the log start.
    """
    remaining = list(log.segments)
    expired: list[ExpiredSegment] = []

    def take(reason: RetentionReason, is_expired: Callable[[Segment], bool]) -> None:
        while len(remaining) > 1 and remaining[1].base_offset <= high_watermark and is_expired(remaining[0]):
            expired.append(ExpiredSegment(segment=remaining.pop(0), reason=reason))

    take(RetentionReason.LOG_START, lambda segment: log.end_of(segment) <= log.log_start_offset)
    if config.cleanup_policy is not None and "delete" in config.cleanup_policy:
        excess_bytes = sum(segment.size_bytes for segment in remaining) - config.retention_bytes

        def is_excess(segment: Segment) -> bool:
            nonlocal excess_bytes
            if excess_bytes < segment.size_bytes:
                return False
            excess_bytes -= segment.size_bytes
            return True

        if config.retention_bytes >= 0 and excess_bytes >= 0:
            take(RetentionReason.SIZE, is_excess)
        if config.retention_ms >= 0:
            take(RetentionReason.TIME, lambda segment: now_ms - segment.largest_timestamp_ms > config.retention_ms)
    return tuple(expired)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionForecast:
    """A segment that is due for deletion. `is_postponed`: this cleaning merges it into a segment that is not due."""

    segment: Segment
    reason: RetentionReason
    is_postponed: bool


def retention_forecast(
    log: PartitionLog,
    groups: Sequence[Sequence[Segment]],
    config: TopicConfig,
    *,
    now_ms: int,
    high_watermark: int,
) -> tuple[RetentionForecast, ...]:
    """Return the segments that are due for deletion now, and which deletions a merge by `groups` postpones.

    The size and the timestamp of a merged segment are known only after it is written. The forecast uses the sum of the
    sizes and the greatest timestamp of the segments in its group.
    """
    due = expired_segments(log, config, now_ms=now_ms, high_watermark=high_watermark)
    merged = [
        replace(
            group[0],
            size_bytes=sum(member.size_bytes for member in group),
            largest_timestamp_ms=max(member.largest_timestamp_ms for member in group),
        )
        for group in groups
    ]
    untouched = log.segments[sum(len(group) for group in groups) :]
    afterwards = expired_segments(
        replace(log, segments=(*merged, *untouched)), config, now_ms=now_ms, high_watermark=high_watermark
    )
    deleted_bases = {expired.segment.base_offset for expired in afterwards}
    merged_into = {member.base_offset: group[0].base_offset for group in groups for member in group}
    return tuple(
        RetentionForecast(
            segment=expired.segment,
            reason=expired.reason,
            is_postponed=merged_into.get(expired.segment.base_offset, expired.segment.base_offset) not in deleted_bases,
        )
        for expired in due
    )


def plan_forecast(plan: CleanPlan) -> tuple[RetentionForecast, ...]:
    """Return the segments of a compacted topic that a broker would delete after the cleaning of a plan."""
    if not plan.config.compacts or plan.log.damage:
        return ()
    return retention_forecast(
        plan.log, plan.groups, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark
    )
