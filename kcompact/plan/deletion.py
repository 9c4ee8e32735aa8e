"""Which whole segments a broker would delete after a cleaning, by log start, size and time.

Kafka's cleaner thread does this on every compacted log after each turn, so a topic with `compact,delete` loses old
segments there. kcompact only tells, unless it is asked to apply it. The active segment is never looked at here: a
broker would roll it first, and rolling is not ours to do. Rule: `UnifiedLog.deleteOldSegments` of Kafka 4.3.1.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kcompact.config.settings import TopicConfig
from kcompact.log.directory import PartitionLog, Segment


class RetentionReason(enum.StrEnum):
    """Why a segment may go."""

    LOG_START = "log-start-offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A segment to delete, and why."""

    segment: Segment
    reason: RetentionReason


def expired_segments(
    log: PartitionLog, config: TopicConfig, *, now_ms: int, high_watermark: int
) -> tuple[Expired, ...]:
    """Return the segments a broker would delete, oldest first.

    Each condition in turn takes segments from the start of the log until one does not meet it, or its end is not below
    the high watermark. A log that is only compacted loses what lies below its log start; `retention.bytes` and
    `retention.ms` count where the policy has `delete`. Deleting makes the next segment's base the log start.
    """
    remaining = list(log.segments)
    expired: list[Expired] = []

    def take(reason: RetentionReason, is_expired: Callable[[Segment], bool]) -> None:
        while len(remaining) > 1 and remaining[1].base_offset <= high_watermark and is_expired(remaining[0]):
            expired.append(Expired(segment=remaining.pop(0), reason=reason))

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
    """A segment that is due to go. `is_postponed`: not after this cleaning, which merges it with a younger one."""

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
    """Return the segments that would be deleted as they are, and which of them outlive their merging by `groups`.

    How large and how young a merged segment will be is known only when it is written; here it is as large and as young
    as the segments it is made of.
    """
    as_is = expired_segments(log, config, now_ms=now_ms, high_watermark=high_watermark)
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
    gone = {one.segment.base_offset for one in afterwards}
    home = {member.base_offset: group[0].base_offset for group in groups for member in group}
    return tuple(
        RetentionForecast(
            segment=one.segment,
            reason=one.reason,
            is_postponed=home.get(one.segment.base_offset, one.segment.base_offset) not in gone,
        )
        for one in as_is
    )
