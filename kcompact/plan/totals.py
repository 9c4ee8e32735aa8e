"""The plans of several partitions, added up. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kcompact.log.directory import Segment
from kcompact.plan.deletion import plan_forecast
from kcompact.plan.planned import PlannedPartition

NO_VERDICT = "error"
"""Stands for the reason of a partition that only its error keeps from being cleaned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTotals:
    """The sums of some plans. Sizes are bytes of `.log` files.

    `size_bytes` is the size of all partitions but the `unplanned`: without a plan the size is unknown. The other sizes
    are those of the `to_clean` eligible partitions: `clean_bytes` and `dirty_bytes` of their sections, `input_bytes` of
    the segments that a cleaning rewrites.
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
    plans = [entry.plan for entry in entries if entry.plan is not None and entry.is_eligible]
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
    by_reason: dict[str, list[PlannedPartition]] = {}
    for entry in entries:
        if not entry.is_eligible:
            by_reason.setdefault(entry.short_reason or NO_VERDICT, []).append(entry)
    return dict(sorted(by_reason.items(), key=lambda item: -len(item[1])))


def deleted_by_retention(entries: Iterable[PlannedPartition]) -> list[Segment]:
    """Return the segments that retention deletes after the cleaning. A partition with an error loses none."""
    plans = [entry.plan for entry in entries if entry.plan is not None and entry.error is None]
    return [due.segment for plan in plans for due in plan_forecast(plan) if not due.is_postponed]
