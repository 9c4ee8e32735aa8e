"""The plans of several partitions, added up. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.cost import held_back_segments, rewritten_segments
from kcompact.plan.deletion import plan_forecast
from kcompact.plan.walk import PlannedPartition
from kcompact.values import dataclass

NO_VERDICT = "error"
"""Stands for the reason of a partition that only its error keeps from being cleaned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTotals:
    """The sums of some plans. Sizes are bytes of `.log` files.

    `size_bytes` is the size of all partitions but the `unplanned`: without a plan the size is unknown. The other sizes
    are those of the `to_clean` eligible partitions, of what retention leaves if it comes first: `clean_bytes` and
    `dirty_bytes` of their sections, `input_bytes` of the segments that a cleaning rewrites.
    """

    partitions: int
    unplanned: int
    size_bytes: int
    to_clean: int
    clean_bytes: int
    dirty_bytes: int
    input_bytes: int


def totals_of(entries: Iterable[PlannedPartition]) -> PlanTotals:
    """Return the sums of the plans of some partitions."""
    entries = list(entries)
    plans = [entry.turn for entry in entries if entry.turn is not None and entry.is_eligible]
    return PlanTotals(
        partitions=len(entries),
        unplanned=sum(entry.plan is None for entry in entries),
        size_bytes=sum(entry.plan.log.size_bytes for entry in entries if entry.plan is not None),
        to_clean=len(plans),
        clean_bytes=sum(plan.clean_bytes for plan in plans),
        dirty_bytes=sum(plan.cleanable_bytes for plan in plans),
        input_bytes=sum(segment.size_bytes for plan in plans for segment in plan.segments),
    )


def not_to_clean(entries: Iterable[PlannedPartition]) -> dict[str, list[PlannedPartition]]:
    """Return the partitions that are not eligible by their reason, the most frequent reason first."""
    by_reason = _by_reason(entries, eligible=False)
    return dict(sorted(by_reason.items(), key=lambda item: -len(item[1])))


def _by_reason(entries: Iterable[PlannedPartition], *, eligible: bool) -> dict[str, list[PlannedPartition]]:
    entries_by_reason: dict[str, list[PlannedPartition]] = {}
    for entry in entries:
        if entry.is_eligible is eligible:
            entries_by_reason.setdefault(entry.short_reason or NO_VERDICT, []).append(entry)
    return entries_by_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonTotals:
    """The partitions with the same verdict. The sizes are None if none of them has a plan.

    `bytes_to_win_at_most` are those that a cleaning of their cleanable sections rewrites, eligible or not: what it
    frees is less. `bytes_to_win_later_at_most` are those that it rewrites once the lag, the transaction, the high
    watermark or the recovery is past that keeps it out of the whole partition; 0 for every other reason.
    """

    reason: str
    eligible: bool
    partitions: int
    size_bytes: int | None
    bytes_to_win_at_most: int | None
    bytes_to_win_later_at_most: int | None


def totals_by_reason(entries: Iterable[PlannedPartition]) -> list[ReasonTotals]:
    """Return the partitions by their verdict: those to be cleaned first, then the most frequent."""
    entries = list(entries)
    return [
        _of_reason(reason, entries_of_reason, eligible=is_eligible)
        for is_eligible, by_reason in ((True, _by_reason(entries, eligible=True)), (False, not_to_clean(entries)))
        for reason, entries_of_reason in by_reason.items()
    ]


def _of_reason(reason: str, entries: Sequence[PlannedPartition], *, eligible: bool) -> ReasonTotals:
    plans = [entry.plan for entry in entries if entry.plan is not None]
    return ReasonTotals(
        reason=reason,
        eligible=eligible,
        partitions=len(entries),
        size_bytes=sum(plan.log.size_bytes for plan in plans) if plans else None,
        bytes_to_win_at_most=_size_of(rewritten_segments, plans),
        bytes_to_win_later_at_most=_size_of(held_back_segments, plans),
    )


def _size_of(segments_of: Callable[[CleanPlan], Sequence[Segment]], plans: Sequence[CleanPlan]) -> int | None:
    """Return the size of some segments of each plan, None without a plan."""
    return sum(segment.size_bytes for plan in plans for segment in segments_of(plan)) if plans else None


def deleted_by_retention(entries: Iterable[PlannedPartition]) -> list[Segment]:
    """Return the segments that retention deletes. A partition with an error loses none."""
    plans = [entry.plan for entry in entries if entry.plan is not None and entry.error is None]
    return [due.segment for plan in plans for due in plan_forecast(plan) if not due.is_postponed]
