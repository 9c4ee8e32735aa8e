"""The plan of a cleaning, from a log, its configuration and the time: what Kafka's cleaner would decide, and why. Pure.

    log start      first dirty            first uncleanable    active base      log end
    |  clean        |  dirty, cleanable    |  dirty, not yet    |  never         |
    |---------------|----------------------|--------------------|----------------|

The *dirty* section starts at the checkpoint. Its *cleanable* part ends at the first uncleanable offset. The dirty ratio
is the size of the cleanable part divided by the size of the clean and the cleanable part. A log is eligible if the
ratio is above the minimum, or if its oldest dirty segment is too old. Rules: `LogCleanerManager.cleanableOffsets`,
`LogToClean`, `LogCleanerManager.grabFilthiestCompactedLog`, `Cleaner.groupSegmentsBySize`; KIP-58,
KIP-354.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import replace

from kcompact.config.settings import INT_MAX, TopicConfig
from kcompact.format.names import TopicPartition
from kcompact.log.directory import PartitionLog
from kcompact.log.producer_state import Producer, first_open_transaction_offset
from kcompact.log.segments import Segment
from kcompact.plan.replicas import OtherReplica
from kcompact.plan.verdict import ELIGIBLE, Bound, Reason, verdict_on
from kcompact.values import dataclass


class Role(enum.StrEnum):
    """The section of the log that a segment belongs to."""

    CLEAN = "clean"
    DIRTY = "dirty"
    UNCLEANABLE = "uncleanable"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanPlan:
    """What a cleaning of one partition would do. Sizes are bytes of `.log` files, times are Unix milliseconds.

    The cleanable range is [`first_dirty_offset`, `first_uncleanable_offset`). The first of the ascending `bounds` has
    set its end.

    Each element of `groups` is the input of one output segment, in ascending order; a plan that is not eligible has no
    groups. `comes_later`: a broker cleans another log first, and deletes the old segments of all compacted logs before
    it looks at this one again. `replicas` are those on other brokers' disks that the cleaning must not outrun.
    """

    log: PartitionLog
    config: TopicConfig
    now_ms: int
    high_watermark: int
    last_stable_offset: int
    first_uncleanable_offset: int
    bounds: tuple[Bound, ...]
    clean_bytes: int
    cleanable_bytes: int
    cleanable_ratio: float
    max_compaction_delay_ms: int
    reason: Reason
    explanation: str
    groups: tuple[tuple[Segment, ...], ...]
    producers: dict[int, Producer]
    comes_later: bool = False
    replicas: tuple[OtherReplica, ...] = ()

    @property
    def eligible(self) -> bool:
        """Whether the partition is to be cleaned."""
        return self.reason in ELIGIBLE

    @property
    def first_dirty_offset(self) -> int:
        """Where the dirty section starts."""
        return self.log.first_dirty_offset

    @property
    def checkpoint_reset(self) -> bool:
        """Whether the checkpoint is outside the log, and so does not count."""
        return self.log.checkpoint_reset

    @property
    def need_compaction_now(self) -> bool:
        """Whether the oldest dirty segment is past `max.compaction.lag.ms`."""
        return self.max_compaction_delay_ms > 0

    @property
    def lagging_replicas(self) -> tuple[OtherReplica, ...]:
        """The replicas that still have to fetch from this log."""
        return tuple(each for each in self.replicas if each.lags_behind(self.log.log_end_offset))

    @property
    def held_back_from_offset(self) -> int | None:
        """The offset from which on tombstones and markers stay for a replica that lags; None for none."""
        offsets = [each.fetches_from_offset for each in self.lagging_replicas if each.fetches_from_offset is not None]
        return min(offsets, default=None)

    @property
    def bound(self) -> Reason:
        """The rule that set `first_uncleanable_offset`."""
        return self.bounds[0].reason

    def bound_by(self, reason: Reason) -> int | None:
        """Return the offset from which on nothing may be cleaned for this reason; None if the reason does not hold."""
        return next((bound.offset for bound in self.bounds if bound.reason is reason), None)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments that a cleaning rewrites, ascending."""
        return tuple(segment for group in self.groups for segment in group)

    def __str__(self) -> str:
        verdict = "is to be cleaned" if self.eligible else "is not to be cleaned"
        return f"{self.log.topic_partition} {verdict} ({self.reason}): {self.explanation}"

    def __repr__(self) -> str:
        return f"<CleanPlan {self}>"

    def role_of(self, segment: Segment) -> Role:
        """Return the role of a segment. A segment that contains the first dirty offset is dirty."""
        if segment is self.log.active_segment:
            return Role.ACTIVE
        if self.log.end_of(segment) <= self.first_dirty_offset:
            return Role.CLEAN
        return Role.DIRTY if segment.base_offset < self.first_uncleanable_offset else Role.UNCLEANABLE


def bounds_of(
    log: PartitionLog, config: TopicConfig, *, now_ms: int, high_watermark: int, last_stable_offset: int
) -> tuple[Bound, ...]:
    """Return the offsets from which on nothing of a log may be cleaned, ascending.

    They are the last stable offset, the base offset of the active segment and that of the first dirty segment younger
    than `min.compaction.lag.ms`; in a log that a broker recovers also where the recovery begins. The first one decides,
    rounded down to the start of a segment. Rule: `LogCleanerManager.cleanableOffsets`, KIP-58.
    """
    bounds = [Bound(log.active_segment.base_offset, Reason.ACTIVE_ONLY)]
    if last_stable_offset < high_watermark:
        bounds.append(Bound(last_stable_offset, Reason.OPEN_TRANSACTION))
    bounds.append(Bound(high_watermark, Reason.HIGH_WATERMARK))
    if log.recovered_from is not None:
        bounds.append(Bound(log.recovered_from, Reason.RECOVERY_POINT))
    if config.min_compaction_lag_ms > 0:
        old_until_ms = now_ms - config.min_compaction_lag_ms
        closed = log.segments_between(log.first_dirty_offset, log.active_segment.base_offset)
        too_young = next((segment for segment in closed if segment.largest_timestamp_ms > old_until_ms), None)
        if too_young is not None:
            bounds.append(Bound(too_young.base_offset, Reason.MIN_COMPACTION_LAG))
    return tuple(sorted(bounds, key=lambda bound: bound.offset))  # Of equal ones the first named decides.


def uncleanable_from(log: PartitionLog, first_dirty: int, bound: int) -> int:
    """Return the first uncleanable offset for an offset from which on nothing may be cleaned: a segment's start."""
    segment = log.segment_at(max(first_dirty, bound)) or log.segments[0]
    return min(log.active_segment.base_offset, segment.base_offset)


def compaction_delay_ms(log: PartitionLog, *, first_dirty_offset: int, max_compaction_lag_ms: int, now_ms: int) -> int:
    """Return how many milliseconds the oldest dirty segment is past `max.compaction.lag.ms`, or 0.

    The age of a segment is the age of its first batch. Segments without a positive timestamp are ignored.
    Rule: `LogCleanerManager.maxCompactionDelay`, KIP-354.
    """
    oldest_ms = oldest_dirty_ms(log, first_dirty_offset)
    return 0 if oldest_ms is None else max(0, now_ms - max_compaction_lag_ms - oldest_ms)


def oldest_dirty_ms(log: PartitionLog, first_dirty_offset: int) -> int | None:
    """Return the smallest timestamp of a first batch in the closed dirty segments, None without a positive one."""
    first_timestamps = [
        segment.first_batch_max_timestamp_ms
        for segment in log.segments_between(first_dirty_offset, log.active_segment.base_offset)
        if segment.first_batch_max_timestamp_ms is not None and segment.first_batch_max_timestamp_ms > 0
    ]
    return min(first_timestamps, default=None)


def group_segments(
    segments: Sequence[Segment], *, segment_bytes: int, segment_index_bytes: int, first_uncleanable_offset: int
) -> tuple[tuple[Segment, ...], ...]:
    """Return the segments in groups; each group becomes one segment.

    The sizes are those before the cleaning, in bytes. The offsets of a group are at most 2^31 - 1 above its base offset
    (KAFKA-5413). Rule: `Cleaner.groupSegmentsBySize`.
    """
    groups: list[list[Segment]] = []
    ends = [*(segment.base_offset for segment in segments[1:]), first_uncleanable_offset]
    size_bytes = index_bytes = time_index_bytes = 0
    for segment, end_offset in zip(segments, ends, strict=False):
        size_bytes += segment.size_bytes
        index_bytes += segment.index_bytes
        time_index_bytes += segment.time_index_bytes
        if (
            groups
            and size_bytes <= segment_bytes
            and index_bytes <= segment_index_bytes
            and time_index_bytes <= segment_index_bytes
            and (segment.size_bytes == 0 or end_offset - 1 - groups[-1][0].base_offset <= INT_MAX)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes, index_bytes = segment.size_bytes, segment.index_bytes
            time_index_bytes = segment.time_index_bytes
    return tuple(tuple(group) for group in groups)


def plan_cleaning(
    log: PartitionLog,
    config: TopicConfig,
    *,
    now_ms: int,
    producers: dict[int, Producer],
    first_unstable_offset: int | None = None,
    high_watermark: int | None = None,
    force: bool = False,
    include_internal: bool = False,
) -> CleanPlan:
    """Return the plan for one partition, with the verdict of `verdict_on`.

    `high_watermark` None is the log end. `first_unstable_offset` None is the first offset of the oldest transaction
    that `producers` have open, or the log start if that is greater. `force` cleans below the minimum ratio; every other
    reason not to clean still holds. Rule: `LogCleanerManager`.
    """
    high_watermark = _in_log(log, high_watermark)
    if first_unstable_offset is None and (first_open := first_open_transaction_offset(producers)) is not None:
        first_unstable_offset = max(first_open, log.log_start_offset)
    last_stable = high_watermark if first_unstable_offset is None else min(high_watermark, first_unstable_offset)
    bounds = bounds_of(log, config, now_ms=now_ms, high_watermark=high_watermark, last_stable_offset=last_stable)
    first_dirty = log.first_dirty_offset
    first_uncleanable = uncleanable_from(log, first_dirty, bounds[0].offset)
    clean_bytes, cleanable_bytes = _section_bytes(log, first_dirty, first_uncleanable)
    ratio = cleanable_bytes / (clean_bytes + cleanable_bytes) if cleanable_bytes else 0.0
    max_lag_ms = config.max_compaction_lag_ms
    delay_ms = compaction_delay_ms(log, first_dirty_offset=first_dirty, max_compaction_lag_ms=max_lag_ms, now_ms=now_ms)
    reason, explanation = verdict_on(
        log,
        config,
        first_dirty_offset=first_dirty,
        bound=bounds[0],
        cleanable_bytes=cleanable_bytes,
        ratio=ratio,
        delay_ms=delay_ms,
        force=force,
        include_internal=include_internal,
    )
    return CleanPlan(
        log=log,
        config=config,
        now_ms=now_ms,
        high_watermark=high_watermark,
        last_stable_offset=last_stable,
        first_uncleanable_offset=first_uncleanable,
        bounds=bounds,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        cleanable_ratio=ratio,
        max_compaction_delay_ms=delay_ms,
        reason=reason,
        explanation=explanation,
        groups=_groups_to_clean(log, config, first_uncleanable) if reason in ELIGIBLE else (),
        producers=producers,
    )


def planned_again(
    plan: CleanPlan,
    *,
    log: PartitionLog | None = None,
    config: TopicConfig | None = None,
    now_ms: int | None = None,
    is_replicated: bool = False,
) -> CleanPlan:
    """Return the plan for another state of the same log, for other settings or another time; by default the plan's.

    `is_replicated`: the high watermark has reached the log end, and the transactions that are open stay so. Whoever
    made the plan has allowed an internal topic, unless that is its reason.
    """
    log = plan.log if log is None else log
    again = plan_cleaning(
        log,
        plan.config if config is None else config,
        now_ms=plan.now_ms if now_ms is None else now_ms,
        producers=plan.producers,
        first_unstable_offset=None if is_replicated else max(plan.last_stable_offset, log.log_start_offset),
        high_watermark=None if is_replicated else plan.high_watermark,
        force=plan.reason is Reason.FORCED,
        include_internal=plan.reason is not Reason.INTERNAL,
    )
    return replace(again, comes_later=plan.comes_later, replicas=plan.replicas)


def _in_log(log: PartitionLog, high_watermark: int | None) -> int:
    """Return a high watermark inside the log; None is the log end. Rule: `UnifiedLog.updateHighWatermark`."""
    high_watermark = log.log_end_offset if high_watermark is None else min(high_watermark, log.log_end_offset)
    return max(high_watermark, log.log_start_offset)


def _section_bytes(log: PartitionLog, first_dirty_offset: int, first_uncleanable_offset: int) -> tuple[int, int]:
    """Return the bytes of the `.log` files of the clean section and of the cleanable one. Rule: `LogToClean`.

    A segment that contains the first dirty offset counts in both.
    """
    clean = (segment for segment in log.segments if segment.base_offset < first_dirty_offset)
    cleanable = log.segments_between(first_dirty_offset, first_uncleanable_offset)
    return sum(segment.size_bytes for segment in clean), sum(segment.size_bytes for segment in cleanable)


def _groups_to_clean(
    log: PartitionLog, config: TopicConfig, first_uncleanable_offset: int
) -> tuple[tuple[Segment, ...], ...]:
    """Return the groups of all segments below the first uncleanable offset, clean segments included."""
    return group_segments(
        [segment for segment in log.segments if segment.base_offset < first_uncleanable_offset],
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        first_uncleanable_offset=first_uncleanable_offset,
    )


# The order of several partitions


def dirtiest_first(plans: Sequence[CleanPlan]) -> list[CleanPlan]:
    """Return the plans in cleaning order: the greatest ratio first, equal ratios by topic and partition.

    Kafka takes equal ratios in the order of a hash map. Rule: `LogCleanerManager.grabFilthiestCompactedLog`.
    """
    return sorted(plans, key=place)


def place(plan: CleanPlan) -> tuple[float, TopicPartition]:
    """Return the sort key of a plan in the cleaning order."""
    return -plan.cleanable_ratio, plan.log.topic_partition
