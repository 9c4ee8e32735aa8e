"""Everything that Kafka's cleaner asks of a partition, one condition after the other: value, threshold, verdict. Pure.

Each condition is judged alone, so several can stand in the way at once. `explanation` says which of them decides.
Rules: `LogCleanerManager.grabFilthiestCompactedLog`, `LogCleanerManager.cleanableOffsets`.
"""

from __future__ import annotations

import enum
import math

from kcompact import readable
from kcompact.config.settings import LONG_MAX
from kcompact.plan.clean_plan import CleanPlan, oldest_dirty_ms, uncleanable_from
from kcompact.plan.cost import broker_cost, is_throttled
from kcompact.plan.deciding_settings import (
    Remedy,
    max_lag_remedy,
    min_lag_remedy,
    policy_remedy,
    ratio_remedy,
    roll_remedy,
)
from kcompact.plan.deletion import plan_forecast, retention_applies
from kcompact.plan.forecast import (
    Forecast,
    How,
    closed_dirty_segments,
    missing_dirty_bytes,
    roll_ms,
    rolls_from_ms,
)
from kcompact.plan.horizons import Horizons
from kcompact.plan.transactions import TransactionState, how_it_ends, oldest_open
from kcompact.plan.verdict import (
    UNCLEAN_SHUTDOWN,
    ConditionName,
    Reason,
    ruling_by_age,
    ruling_by_ratio,
    why_not_compacted,
    why_not_in_closed_segments,
    why_paused,
)
from kcompact.values import dataclass

_UNTOUCHED_MS = 3_600_000
"""A broker that goes on writing for so long to a partition that its cleaner should have taken has a problem."""


class Verdict(enum.StrEnum):
    """What a condition does to a partition."""

    TRIGGERS = "triggers"
    """Asks for the cleaning."""
    OK = "ok"
    """Does not stand in the way."""
    LIMITS = "limits"
    """Keeps the cleaner out of a part of the dirty section."""
    BLOCKS = "blocks"
    """Keeps the cleaner out of the partition."""
    DELAYS = "delays"
    """Makes a broker come later, take longer, or keep something until later."""


Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a partition.

    `value` is compared with `threshold`. `remedy` is the setting that changes the verdict, `forecast` when the verdict
    changes without one. `decides`: this condition is why the partition is cleaned, or why it is not. `assumed` are the
    settings that the condition asks and that are only assumed to have Kafka's defaults.
    """

    name: ConditionName
    value: Value
    threshold: Value
    verdict: Verdict
    explanation: str
    remedy: Remedy | None = None
    forecast: Forecast | None = None
    decides: bool = False
    assumed: tuple[str, ...] = ()

    @property
    def verdict_text(self) -> str:
        """The verdict, whether it decides, and whether it rests on assumed settings, for tables."""
        decides, assumed = ", decides" if self.decides else "", ", assumed" if self.assumed else ""
        return f"{self.verdict}{decides}{assumed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """The dirtier partitions of the same log directory, which a broker cleans first, and those with the same ratio.

    Of equal ratios a broker takes any first. `size_bytes` are those that the dirtier ones rewrite.
    """

    partitions: int = 0
    size_bytes: int = 0
    equals: int = 0


ALONE = Rivals()


def conditions_of(
    plan: CleanPlan,
    rivals: Rivals = ALONE,
    horizons: Horizons | None = None,
    transaction: TransactionState | None = None,
) -> list[Condition]:
    """Return the conditions of a partition in the order of their names. Those that do not apply are left out.

    `horizons` are those of its batches, None if nobody has looked; `transaction` is what the coordinator says of its
    oldest open transaction, None if that is not known. No cleaner looks at the metadata log.
    """
    conditions = [_uncleanable(plan), _internal(plan)]
    if not plan.log.is_cluster_metadata:
        conditions = [
            *(_policy(plan), _cleaner_enable(plan), *conditions, _clean_shutdown(plan), _move(plan)),
            *(_dirty_records(plan), _last_stable_offset(plan, transaction), _high_watermark(plan)),
            *(_active_segment(plan), _min_lag(plan), _max_lag(plan), _ratio(plan), _order(plan, rivals)),
            *(_buffer(plan), _throttle(plan), _tombstones(plan, horizons), _retention(plan)),
        ]
    return [condition for condition in conditions if condition is not None]


# Who may clean the partition at all


def _policy(plan: CleanPlan) -> Condition:
    ruling = why_not_compacted(plan.config)
    explanation = "the topic is compacted" if ruling is None else ruling[1]
    if plan.config.cleanup_policy is None:
        explanation = "no source has the cleanup.policy of the topic"
    return Condition(
        name=ConditionName.POLICY,
        value=plan.config.policy_text,
        threshold="compact",
        verdict=Verdict.OK if ruling is None else Verdict.BLOCKS,
        explanation=explanation,
        remedy=None if ruling is None else policy_remedy(plan),
    )


def _cleaner_enable(plan: CleanPlan) -> Condition:
    is_on = plan.config.log_cleaner_enable
    obstacle = None if plan.eligible else plan.explanation
    return Condition(
        name=ConditionName.CLEANER_ENABLE,
        value=is_on,
        threshold=True,
        verdict=Verdict.OK if is_on else Verdict.BLOCKS,
        explanation="the broker has a cleaner"
        if is_on
        else "the broker's own cleaner is switched off and compacts nothing; kcompact does",
        remedy=None if is_on else Remedy(name=ConditionName.CLEANER_ENABLE, value=True, obstacle=obstacle),
    )


def _uncleanable(plan: CleanPlan) -> Condition:
    damage = str(plan.log.damage[0]).splitlines()[0] if plan.log.damage else None
    is_unusable = plan.reason.condition is ConditionName.UNCLEANABLE
    verdict, explanation = Verdict.OK, "no damage where the plan looks; verify reads every byte"
    if is_unusable or damage:
        verdict = Verdict.BLOCKS
        why = damage or plan.explanation
        explanation = f"{why}; a cleaner that meets this stops, and marks the partition uncleanable until a restart"
        if plan.reason is not Reason.CORRUPT:
            explanation = why
    elif (since_ms := _untouched_since(plan)) is not None:
        verdict = Verdict.DELAYS
        explanation = (
            f"eligible since {readable.time(since_ms)} at the latest, and a broker has gone on writing: unless its "
            "cleaner is far behind, a thread of it has died or has marked the partition uncleanable; its "
            "log-cleaner.log says so"
        )
    return Condition(
        name=ConditionName.UNCLEANABLE,
        value=str(Reason.CORRUPT) if damage else str(plan.reason) if is_unusable else None,
        threshold=None,
        verdict=verdict,
        explanation=explanation,
    )


def _untouched_since(plan: CleanPlan) -> int | None:
    """Return since when a partition has been eligible at the latest, if a broker has written to it long after that."""
    active = plan.log.active_segment
    first_ms = active.first_batch_max_timestamp_ms
    if not plan.eligible or plan.reason is Reason.FORCED or first_ms is None or first_ms <= 0:
        return None
    # When the active segment had its first batch all others were closed; each is older than the lag now. Timestamps
    # may be those of another log that was copied record by record, so the files must say the same.
    closed = [
        max(segment.largest_timestamp_ms + plan.config.min_compaction_lag_ms, segment.last_modified_ms)
        for segment in plan.segments
    ]
    since_ms = max(first_ms, *closed)
    if plan.reason is Reason.MAX_COMPACTION_LAG:
        since_ms = max(since_ms, plan.now_ms - plan.max_compaction_delay_ms)
    written_ms = min(active.largest_timestamp_ms, active.last_modified_ms)
    return since_ms if written_ms - since_ms > _UNTOUCHED_MS else None


def _internal(plan: CleanPlan) -> Condition | None:
    if plan.reason is not Reason.INTERNAL:
        return None
    topic = plan.log.topic_partition.topic
    explanation = f"{topic} is an internal topic of Kafka; kcompact cleans it with --include-internal only"
    if plan.log.is_cluster_metadata:
        explanation = f"{topic} is the metadata log of Kafka, which is cut behind its snapshots and never compacted"
    return Condition(
        name=ConditionName.INTERNAL, value=topic, threshold=None, verdict=Verdict.BLOCKS, explanation=explanation
    )


def _clean_shutdown(plan: CleanPlan) -> Condition:
    log = plan.log
    verdict, explanation = Verdict.OK, "the broker was shut down cleanly"
    if log.needs_recovery:
        verdict, explanation = Verdict.BLOCKS, UNCLEAN_SHUTDOWN
    elif log.recovered_from is not None:
        verdict = _verdict_of_bound(plan, Reason.RECOVERY_POINT)
        explanation = f"a broker recovers the log from offset {log.recovered_from} on when it starts"
    elif log.log_dir.is_running:
        explanation = "a broker is running"
    elif not log.log_dir.is_log_dir:
        explanation = "no broker has used the directory around the partition"
    value = None if log.log_dir.is_running or not log.log_dir.is_log_dir else log.log_dir.is_clean_shutdown
    return Condition(
        name=ConditionName.CLEAN_SHUTDOWN, value=value, threshold=True, verdict=verdict, explanation=explanation
    )


def _move(plan: CleanPlan) -> Condition | None:
    ruling = why_paused(plan.log)
    if ruling is None:
        return None
    sentence = "until the move ends, which a broker brings about; if it has failed, the pause never ends by itself"
    return Condition(
        name=ConditionName.MOVE,
        value=str(plan.log.moves[0]),
        threshold=None,
        verdict=Verdict.BLOCKS,
        explanation=f"{ruling[1]}; a broker's cleaner is paused {sentence}",
    )


# How much of the log is cleanable


def _dirty_records(plan: CleanPlan) -> Condition:
    log = plan.log
    offsets = max(0, log.log_end_offset - plan.first_dirty_offset)
    reason, explanation = why_not_in_closed_segments(log, plan.first_dirty_offset) or (None, "")
    is_dirty = reason in (None, Reason.ACTIVE_ONLY)
    if is_dirty:
        explanation = f"offsets {plan.first_dirty_offset} to {log.log_end_offset - 1} were never cleaned"
        if log.checkpoint_offset is None:
            explanation = f"no checkpoint of a cleaner, so all offsets from {plan.first_dirty_offset} on count as dirty"
        elif plan.checkpoint_reset:
            outside = f"the cleaner's checkpoint, offset {log.checkpoint_offset}, is outside the log"
            explanation = f"{outside}, so all offsets from {plan.first_dirty_offset} on count as dirty"
    elif reason is Reason.NOTHING_DIRTY:
        explanation += "; without new records it stays so"
    return Condition(
        name=ConditionName.DIRTY_RECORDS,
        value=offsets,
        threshold=1,
        verdict=Verdict.OK if is_dirty else Verdict.BLOCKS,
        explanation=explanation,
    )


def _closed_bytes(plan: CleanPlan) -> int:
    return sum(segment.size_bytes for segment in closed_dirty_segments(plan))


def _verdict_of_bound(plan: CleanPlan, reason: Reason) -> Verdict:
    """Return what the offset from which on nothing may be cleaned for a reason does to the closed dirty segments."""
    bound, closed = plan.bound_by(reason), _closed_bytes(plan)
    if bound is None:
        return Verdict.OK
    limit = uncleanable_from(plan.log, plan.first_dirty_offset, bound)
    cleanable = sum(segment.size_bytes for segment in plan.log.segments_between(plan.first_dirty_offset, limit))
    if cleanable == closed:
        return Verdict.OK
    return Verdict.LIMITS if cleanable else Verdict.BLOCKS


def _last_stable_offset(plan: CleanPlan, transaction: TransactionState | None) -> Condition:
    stable = plan.last_stable_offset
    explanation = "no transaction is open"
    if plan.bound_by(Reason.OPEN_TRANSACTION) is not None:
        explanation = f"a transaction is open from offset {stable}; nothing from its segment on is cleaned"
        oldest = oldest_open(plan)
        if oldest is not None:
            explanation += f": producer {oldest.producer_id}, epoch {oldest.epoch}"
            if oldest.last_timestamp >= 0:
                explanation += f", last record {readable.time(oldest.last_timestamp)}"
        explanation += f"; {how_it_ends(plan, oldest, transaction)}"
    return Condition(
        name=ConditionName.LAST_STABLE_OFFSET,
        value=stable,
        threshold=plan.log.active_segment.base_offset,
        verdict=_verdict_of_bound(plan, Reason.OPEN_TRANSACTION),
        explanation=explanation,
    )


def _high_watermark(plan: CleanPlan) -> Condition:
    verdict = _verdict_of_bound(plan, Reason.HIGH_WATERMARK)
    explanation = "all closed segments are replicated"
    if verdict is not Verdict.OK:
        explanation = f"records from offset {plan.high_watermark} on are not known to be on all in-sync replicas"
    return Condition(
        name=ConditionName.HIGH_WATERMARK,
        value=plan.high_watermark,
        threshold=plan.log.active_segment.base_offset,
        verdict=verdict,
        explanation=explanation,
    )


def _active_segment(plan: CleanPlan) -> Condition:
    """Its value is how long a record of this moment finds it waiting, its threshold how long it waits."""
    active, limit_ms = plan.log.active_segment, roll_ms(plan.config)
    size = f"{readable.size(active.size_bytes)} of segment.bytes {readable.size(plan.config.segment_bytes)}"
    first_ms = active.first_batch_max_timestamp_ms
    waited_ms = None if first_ms is None or first_ms < 0 else plan.now_ms - first_ms
    has_dirty = active.size_bytes > 0 and plan.first_dirty_offset < plan.log.log_end_offset
    if not has_dirty:
        verdict, explanation = Verdict.OK, "the active segment holds nothing dirty"
    else:
        verdict = Verdict.LIMITS if _closed_bytes(plan) else Verdict.BLOCKS
        start = "all dirty records are" if verdict is Verdict.BLOCKS else "the newest records are"
        explanation = f"{start} in the active segment, which is never cleaned and supersedes nothing: {size}"
    forecast = None
    if has_dirty and (rolls_ms := rolls_from_ms(plan)) is not None:
        jitter = ", or earlier by segment.jitter.ms" if plan.config.segment_jitter_ms else ""
        sentence = f"a broker closes it when it appends a record of {readable.time(rolls_ms)} or later{jitter}"
        if rolls_ms <= plan.now_ms:
            sentence = "it is old enough: a broker closes it when it appends the next record"
        forecast = Forecast(at_ms=max(rolls_ms, plan.now_ms), how=How.AT_APPEND, explanation=sentence)
    return Condition(
        name=ConditionName.ACTIVE_SEGMENT,
        value=waited_ms,
        threshold=limit_ms,
        verdict=verdict,
        explanation=explanation,
        remedy=roll_remedy(plan) if has_dirty else None,
        forecast=forecast,
    )


def _min_lag(plan: CleanPlan) -> Condition:
    """Its value is the age of the first segment that is too young, or else of the youngest."""
    lag_ms, segments = plan.config.min_compaction_lag_ms, closed_dirty_segments(plan)
    young = plan.bound_by(Reason.MIN_COMPACTION_LAG)
    ages = [plan.now_ms - segment.largest_timestamp_ms for segment in segments if young in (None, segment.base_offset)]
    verdict, explanation = _verdict_of_bound(plan, Reason.MIN_COMPACTION_LAG), "no closed segment is too young"
    forecast, remedy = None, None
    if young is not None:
        explanation = f"segment {young} and those after it are younger than min.compaction.lag.ms {lag_ms}"
    if verdict is not Verdict.OK:
        blocks = verdict is Verdict.BLOCKS
        remedy = min_lag_remedy(plan, cleans_some=blocks)
        forecast = _lag_forecast(plan, blocks=blocks)
    return Condition(
        name=ConditionName.MIN_LAG,
        value=min(ages, default=None),
        threshold=lag_ms,
        verdict=verdict,
        explanation=explanation,
        remedy=remedy,
        forecast=forecast,
    )


def _lag_forecast(plan: CleanPlan, *, blocks: bool) -> Forecast | None:
    """Return when the lag lets the cleaner in, or further in if it does not block.

    A segment is old enough once all before it are, so what counts is the greatest timestamp up to it.
    """
    lag_ms, at_ms, old_bytes = plan.config.min_compaction_lag_ms, 0, 0
    for segment in closed_dirty_segments(plan):
        at_ms = max(at_ms, segment.largest_timestamp_ms + lag_ms)
        old_bytes += segment.size_bytes
        if at_ms > plan.now_ms and (old_bytes or not blocks):
            if at_ms > LONG_MAX:
                return None
            sentence = f"segment {segment.base_offset} is as old as min.compaction.lag.ms at {readable.time(at_ms)}"
            return Forecast(at_ms=at_ms, how=How.BY_ITSELF, explanation=sentence)
    return None


# Whether it is worth it


def _max_lag(plan: CleanPlan) -> Condition:
    limit_ms, oldest_ms = plan.config.max_compaction_lag_ms, oldest_dirty_ms(plan.log, plan.first_dirty_offset)
    age_ms = None if oldest_ms is None else plan.now_ms - oldest_ms
    verdict, forecast, explanation = Verdict.OK, None, "no limit is set"
    if limit_ms < LONG_MAX:
        explanation = "no dirty record in a closed segment is that old"
        ruling = ruling_by_age(plan.max_compaction_delay_ms)
        if ruling is not None:
            _, explanation = ruling
            if plan.cleanable_bytes:
                verdict = Verdict.TRIGGERS
            else:
                explanation += ", but nothing is cleanable"
        elif oldest_ms is not None and plan.cleanable_bytes and (at_ms := oldest_ms + limit_ms + 1) <= LONG_MAX:
            sentence = f"the oldest dirty segment is past max.compaction.lag.ms from {readable.time(at_ms)} on"
            forecast = Forecast(at_ms=at_ms, how=How.BY_ITSELF, explanation=sentence)
    return Condition(
        name=ConditionName.MAX_LAG,
        value=age_ms,
        threshold=limit_ms,
        verdict=verdict,
        explanation=explanation,
        remedy=max_lag_remedy(plan),
        forecast=forecast,
    )


def _ratio(plan: CleanPlan) -> Condition:
    ratio, minimum = plan.cleanable_ratio, plan.config.min_cleanable_dirty_ratio
    missing = missing_dirty_bytes(plan)
    reason, explanation = ruling_by_ratio(ratio, plan.config)
    if reason is Reason.DIRTY_RATIO:
        verdict = Verdict.TRIGGERS
    elif plan.need_compaction_now and plan.cleanable_bytes:
        verdict = Verdict.OK
        explanation += ", but max.compaction.lag.ms asks at any ratio"
    else:
        verdict = Verdict.BLOCKS
        # If a transaction or the lag keeps segments back, newer segments are kept back too.
        where = "in closed segments" if plan.bound is Reason.ACTIVE_ONLY else "that are cleanable"
        more = "no ratio is" if missing is None else f"{readable.size(missing)} more {where} would be enough"
        explanation += f"; {more}"
        if not plan.cleanable_bytes:
            explanation = "the ratio is 0 as long as nothing is cleanable"
    return Condition(
        name=ConditionName.RATIO,
        value=ratio,
        threshold=None if math.isnan(minimum) else minimum,
        verdict=verdict,
        explanation=explanation,
        remedy=ratio_remedy(plan),
    )


# When a broker gets to it, and what stays nevertheless


def _order(plan: CleanPlan, rivals: Rivals) -> Condition:
    threads = plan.config.log_cleaner_threads
    rank = rivals.partitions + 1 if plan.eligible else None
    verdict, explanation = Verdict.OK, "a partition that is not eligible has no place in the order"
    if rank is not None:
        explanation = "no partition that was read is dirtier"
        if rivals.partitions:
            before = f"{readable.counted(rivals.partitions, 'partition')} with {readable.size(rivals.size_bytes)}"
            explanation = f"{before} to rewrite {'comes' if rivals.partitions == 1 else 'come'} before it"
        if rivals.equals:
            explanation += f"; {rivals.equals + 1:,} are equal, the order of these is not specified"
        if rank + rivals.equals > threads:
            verdict = Verdict.DELAYS
            explanation += f"; {readable.counted(threads, 'thread')} of the broker always takes the dirtiest"
    return Condition(name=ConditionName.ORDER, value=rank, threshold=threads, verdict=verdict, explanation=explanation)


def _buffer(plan: CleanPlan) -> Condition:
    cost = broker_cost(plan)
    passes, verdict, remedy = cost.passes_at_most, Verdict.OK, None
    keys = f"at most {readable.counted(cost.keys_at_most, 'key')}, and the map is full at {cost.keys_per_pass:,}"
    explanation = f"one pass: {keys}" if passes else "nothing is cleanable"
    if passes is None:
        verdict, explanation = Verdict.BLOCKS, f"the broker's cleaner might never finish: {keys}"
    elif passes > 1:
        verdict, explanation = Verdict.DELAYS, f"up to {passes:,} passes: {keys}"
    if verdict is not Verdict.OK and cost.buffer_bytes_for_one_pass is not None:
        remedy = Remedy(name=ConditionName.BUFFER, value=cost.buffer_bytes_for_one_pass)
    return Condition(
        name=ConditionName.BUFFER, value=passes, threshold=1, verdict=verdict, explanation=explanation, remedy=remedy
    )


def _throttle(plan: CleanPlan) -> Condition:
    cost, rate = broker_cost(plan), plan.config.log_cleaner_io_max_bytes_per_second
    is_limited = is_throttled(plan.config)
    verdict, explanation = Verdict.OK, "reading and writing are not limited"
    if is_limited:
        most = readable.size(int(rate)) if rate >= 1 else f"{rate:g} B"
        explanation = f"all threads together read and write at most {most} a second"
        if cost.seconds_throttled is not None and cost.bytes_rewritten:
            verdict = Verdict.DELAYS
            explanation += f": about {cost.seconds_throttled:,.0f} seconds for this partition"
    return Condition(
        name=ConditionName.THROTTLE,
        value=rate if is_limited else None,
        threshold=None,
        verdict=verdict,
        explanation=explanation,
    )


def _tombstones(plan: CleanPlan, horizons: Horizons | None) -> Condition | None:
    """Its value is the last horizon that a batch waits for, else the one that a cleaning now sets."""
    if not plan.config.compacts:
        return None
    horizon_ms = plan.now_ms + plan.config.delete_retention_ms
    value = horizon_ms if horizon_ms <= LONG_MAX else None
    explanation = f"a cleaning now keeps tombstones until {readable.time(value) if value else 'the end of time'}"
    verdict, forecast = Verdict.OK, None
    waiting, passed = (horizons.waiting, horizons.passed) if horizons else ((), ())
    if waiting:
        verdict, value = Verdict.DELAYS, waiting[-1]
        wait = "batch that kept tombstones or markers waits for its horizon"
        if len(waiting) > 1:
            wait = "batches that kept tombstones or markers wait for their horizons"
        last = f"the last one {readable.time(waiting[-1])}"
        explanation = f"{len(waiting):,} {wait}, {last}; the first cleaning after it drops them"
        sentence = f"a cleaning from {readable.time(waiting[0])} on drops the first of them"
        forecast = Forecast(at_ms=waiting[0], how=How.BY_ITSELF, explanation=sentence)
    elif passed:  # Of most of them a cleaning has dropped the tombstones already: the horizon stays.
        explanation = f"horizons that have passed: {len(passed):,}; the next cleaning drops what they have left"
    if (waiting or passed) and (start_offset := plan.held_back_from_offset) is not None:
        explanation += f", but nothing from offset {start_offset} on, where a replica ends"
    if horizons is not None and not horizons.is_complete:
        explanation += f" (of the first {horizons.batches:,} batches)"
    return Condition(
        name=ConditionName.TOMBSTONES,
        value=value,
        threshold=plan.config.delete_retention_ms,
        verdict=verdict,
        explanation=explanation,
        forecast=forecast,
    )


def _retention(plan: CleanPlan) -> Condition | None:
    """Its value is how long ago the first record of a segment that is kept was written, the oldest one's."""
    if not retention_applies(plan) or "delete" not in (plan.config.cleanup_policy or ()):
        return None
    limit_ms = plan.config.retention_ms
    due = plan_forecast(plan)
    deleted = {each.segment.base_offset for each in due if not each.is_postponed}
    left = [segment for segment in plan.log.segments[:-1] if segment.base_offset not in deleted]
    first_ms = left[0].first_batch_max_timestamp_ms if left else None
    age_ms = None if first_ms is None or first_ms <= 0 else plan.now_ms - first_ms
    is_past = limit_ms is not None and age_ms is not None and 0 <= limit_ms < age_ms
    verdict, explanation, forecast = Verdict.OK, "no segment is kept longer than its first record", None
    if any(each.is_postponed for each in due):
        verdict = Verdict.DELAYS
        explanation = "the cleaning merges segments that are due with younger ones, so they stay"
    elif limit_ms is not None and is_past:
        verdict, newest_ms = Verdict.DELAYS, left[0].largest_timestamp_ms
        explanation = (
            f"segment {left[0].base_offset} holds records past retention.ms, and one of {readable.time(newest_ms)}: a "
            "merged segment is deleted as a whole, when its newest record is old enough"
        )
        if plan.now_ms < (at_ms := newest_ms + limit_ms + 1) <= LONG_MAX:
            sentence = f"segment {left[0].base_offset} is due from {readable.time(at_ms)} on"
            forecast = Forecast(at_ms=at_ms, how=How.BY_ITSELF, explanation=sentence)
    return Condition(
        name=ConditionName.RETENTION,
        value=age_ms,
        threshold=limit_ms,
        verdict=verdict,
        explanation=explanation,
        forecast=forecast,
    )
