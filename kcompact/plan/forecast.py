"""When a verdict changes by itself: what time, the next append, and growth at the present rate do to a plan. Pure.

Three kinds of forecasts, as sure as their names:

    by-itself   the same files at a later time: `min.compaction.lag.ms` and `max.compaction.lag.ms` pass
    at-append   a broker closes the active segment only when it appends to it: at the first record with this timestamp
    estimate    more bytes are needed than there are, and they come as fast as the newest ones did

Rules: `LogCleanerManager.cleanableOffsets`, `LogCleanerManager.maxCompactionDelay`, `LogSegment.shouldRoll`,
`LogConfig.maxSegmentMs`; KIP-58, KIP-354.
"""

from __future__ import annotations

import bisect
import enum
import math
from dataclasses import replace

from kcompact import readable
from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.log.directory import PartitionLog
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan, oldest_dirty_ms, planned_again
from kcompact.plan.verdict import Reason
from kcompact.values import dataclass

RECENT_SEGMENTS = 4
"""So many closed segments, the newest ones, and the active one show how fast a log grows."""


class How(enum.StrEnum):
    """What has to happen until a forecast comes true."""

    BY_ITSELF = "by-itself"
    AT_APPEND = "at-append"
    ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When something changes, in Unix milliseconds, and what happens then."""

    at_ms: int
    how: How
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How fast a log grows: the bytes of its newest segments, none of them compacted, and since when they came."""

    size_bytes: int
    segments: int
    since_ms: int
    duration_ms: int

    @property
    def bytes_per_ms(self) -> float:
        """The bytes for each millisecond, more than 0."""
        return self.size_bytes / self.duration_ms

    def ms_for(self, size_bytes: float) -> int:
        """Return how long so many bytes take to come, rounded up."""
        return math.ceil(max(0.0, size_bytes) / self.bytes_per_ms)

    def __str__(self) -> str:
        a_day = readable.size(round(self.bytes_per_ms * 86_400_000))
        return f"{readable.size(self.size_bytes)} since {readable.time(self.since_ms)}, {a_day} a day"


def closed_dirty_segments(plan: CleanPlan) -> tuple[Segment, ...]:
    """Return the segments from the first dirty offset on without the active one."""
    return plan.log.segments_between(plan.first_dirty_offset, plan.log.active_segment.base_offset)


def growth_of(plan: CleanPlan) -> Growth | None:
    """Return how fast a log has grown up to the time of the plan; None if its newest segments do not tell.

    The segments are at most `RECENT_SEGMENTS` closed ones that no cleaning has made smaller, and the active one. The
    time runs to that of the plan, not to the newest record: a log that nobody writes to grows more and more slowly.
    """
    log = plan.log
    whole = [segment for segment in closed_dirty_segments(plan) if segment.base_offset >= plan.first_dirty_offset]
    recent = [segment for segment in (*whole[-RECENT_SEGMENTS:], log.active_segment) if segment.size_bytes]
    times = [segment.first_batch_max_timestamp_ms for segment in recent]
    first_ms = next((first for first in times if first is not None and first > 0), None)
    if first_ms is None or first_ms >= plan.now_ms:
        return None
    return Growth(
        size_bytes=sum(segment.size_bytes for segment in recent),
        segments=len(recent),
        since_ms=first_ms,
        duration_ms=plan.now_ms - first_ms,
    )


# The same files, later


def eligible_from_ms(plan: CleanPlan) -> int | None:
    """Return from when on a log that nobody writes to is eligible; None if it never is.

    A segment that is old enough stays so, the cleanable section only grows, and so do the ratio and the delay: once a
    log is eligible, it stays eligible.
    """
    if plan.eligible:
        return plan.now_ms
    times = [
        segment.largest_timestamp_ms + plan.config.min_compaction_lag_ms for segment in closed_dirty_segments(plan)
    ]
    oldest_ms = oldest_dirty_ms(plan.log, plan.first_dirty_offset)
    if oldest_ms is not None:
        times.append(oldest_ms + plan.config.max_compaction_lag_ms + 1)
    later = sorted({at_ms for at_ms in times if plan.now_ms < at_ms <= LONG_MAX})
    first = bisect.bisect_left(later, True, key=lambda at_ms: planned_again(plan, now_ms=at_ms).eligible)
    return later[first] if first < len(later) else None


# The roll of the active segment


def roll_ms(config: TopicConfig) -> int:
    """Return how old the active segment of a topic becomes. Rule: `LogConfig.maxSegmentMs`."""
    return min(config.segment_ms, config.max_compaction_lag_ms) if config.compacts else config.segment_ms


def rolls_from_ms(plan: CleanPlan) -> int | None:
    """Return the smallest timestamp of a record at whose append a broker closes the active segment for its age.

    With `segment.jitter.ms` the broker may do so earlier. None if the segment has no batch or no timestamp (then the
    time counts since the broker opened the file), or if its age has no limit. Rule: `LogSegment.shouldRoll`.
    """
    first_ms = plan.log.active_segment.first_batch_max_timestamp_ms
    if first_ms is None or first_ms < 0:
        return None
    at_ms = first_ms + roll_ms(plan.config) + 1
    return at_ms if at_ms <= LONG_MAX else None


def rolled(log: PartitionLog) -> PartitionLog:
    """Return a log after its active segment is closed. The new active segment is empty, and has no files here."""
    active = log.active_segment
    if not active.size_bytes:
        return log
    opened = replace(
        active,
        base_offset=log.log_end_offset,
        size_bytes=0,
        index_bytes=0,
        time_index_bytes=0,
        first_batch_max_timestamp_ms=None,
        files=(),
    )
    return replace(log, segments=(*log.segments, opened))


def eligible_after_roll_ms(plan: CleanPlan) -> int | None:
    """Return from when on a log is eligible if its next record comes as late as `rolls_from_ms`; None if it is not."""
    rolls_ms = rolls_from_ms(plan)
    if rolls_ms is None:
        return None
    return eligible_from_ms(planned_after_roll(plan, now_ms=max(rolls_ms, plan.now_ms)))


def planned_after_roll(plan: CleanPlan, *, config: TopicConfig | None = None, now_ms: int | None = None) -> CleanPlan:
    """Return the plan after the active segment is closed, by default with the same settings and at the same time.

    A broker that appends also replicates: the closed records are on all replicas, unless older segments are not today.
    """
    is_replicated = plan.high_watermark >= plan.log.active_segment.base_offset
    return planned_again(plan, log=rolled(plan.log), config=config, now_ms=now_ms, is_replicated=is_replicated)


# More bytes


def missing_dirty_bytes(plan: CleanPlan) -> int | None:
    """Return how many more dirty bytes in closed segments lift the ratio above the minimum, 0 if it is above.

    None if no log has so many: the ratio is never above 1.
    """
    clean, dirty, minimum = plan.clean_bytes, plan.cleanable_bytes, plan.config.min_cleanable_dirty_ratio

    def is_enough(more: int) -> bool:
        total = clean + dirty + more
        return total > 0 and (dirty + more) / total > minimum

    if not is_enough(LONG_MAX):
        return None
    return bisect.bisect_left(range(LONG_MAX), True, key=is_enough)


def estimated_ms(plan: CleanPlan, growth: Growth) -> int | None:
    """Return from when on a log is probably eligible by its ratio if it grows as fast as it has; None if never.

    Each time the active segment is full, or old enough, its bytes become dirty. The time is a whole second. None also
    if something else than time keeps the cleaner out of the newest records: more of them would not help.
    """
    config = plan.config
    # What is too young today is old enough before records that do not exist yet.
    older = planned_again(plan, config=replace(config, min_compaction_lag_ms=0))
    missing = missing_dirty_bytes(older)
    if missing is None or planned_after_roll(older).bound is not Reason.ACTIVE_ONLY:
        return None
    active = plan.log.active_segment
    limit_bytes, limit_ms = config.segment_bytes, roll_ms(config) + 1
    wait_ms = growth.ms_for(limit_bytes - active.size_bytes)
    rolls_ms = rolls_from_ms(plan)
    if rolls_ms is not None:
        wait_ms = min(wait_ms, max(0, rolls_ms - plan.now_ms))
    closed = active.size_bytes + growth.bytes_per_ms * wait_ms
    if closed < missing:
        each_ms = min(growth.ms_for(limit_bytes), limit_ms)
        wait_ms += math.ceil((missing - closed) / (growth.bytes_per_ms * each_ms)) * each_ms
    at_s = -(-(plan.now_ms + wait_ms + config.min_compaction_lag_ms) // 1000)
    return at_s * 1000 if at_s * 1000 <= LONG_MAX else None
