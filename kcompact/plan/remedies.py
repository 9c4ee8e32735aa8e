"""Which value of one setting changes a verdict. Pure.

Each value is the last one on the side of today's that does: the next value towards today's changes nothing.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal

from kcompact.config.settings import TopicConfig
from kcompact.plan.clean_plan import CleanPlan, oldest_dirty_ms, planned_again
from kcompact.plan.forecast import closed_dirty_segments, rolled


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A setting under Kafka's name, and the value that takes a condition out of the way.

    `at_append`: the setting closes the active segment, and a broker does that when it appends the next record.
    `makes_eligible`: with this setting alone the partition is cleaned; otherwise something else stands in the way too.
    """

    name: str
    value: str | int | float | bool
    at_append: bool = False
    makes_eligible: bool = False

    @property
    def text(self) -> str:
        """The setting as it is typed. Of a fraction few digits, rounded away from the value of today."""
        value: object = self.value
        if isinstance(value, bool):
            value = str(value).lower()
        elif isinstance(value, float):
            value = f"{_few_digits(value):f}"
        return f"{self.name}={value}"


def policy_remedy(plan: CleanPlan) -> Remedy:
    """Return the policy with `compact` in addition."""
    policy = ",".join(sorted((plan.config.cleanup_policy or frozenset()) | {"compact"}))
    return _checked(plan, "cleanup.policy", policy, replace(plan.config, cleanup_policy=frozenset(policy.split(","))))


def ratio_remedy(plan: CleanPlan) -> Remedy | None:
    """Return the greatest minimum that the ratio is above; None if nothing is cleanable, or the ratio is above."""
    ratio = plan.cleanable_ratio
    if not 0 < ratio <= plan.config.min_cleanable_dirty_ratio:
        return None
    minimum = math.nextafter(ratio, 0.0)
    changed = replace(plan.config, min_cleanable_dirty_ratio=minimum)
    return _checked(plan, "min.cleanable.dirty.ratio", minimum, changed)


def min_lag_remedy(plan: CleanPlan, *, cleans_some: bool) -> Remedy | None:
    """Return the greatest `min.compaction.lag.ms` that lets the cleaner in, or further in if it is in already.

    With `cleans_some` some segment of the log must become cleanable, else the first one that is too young must.
    """
    lag_ms = plan.config.min_compaction_lag_ms
    segments = closed_dirty_segments(plan)
    ages = sorted({plan.now_ms - segment.largest_timestamp_ms for segment in segments} | {0})
    shorter = [age_ms for age_ms in ages if 0 <= age_ms < lag_ms]

    def is_too_long(age_ms: int) -> bool:
        old = 0
        for segment in segments:
            if age_ms > 0 and segment.largest_timestamp_ms > plan.now_ms - age_ms:
                break
            old += segment.size_bytes if cleans_some else 1
        return old <= now_old

    now_old = 0
    if not cleans_some:
        for segment in segments:
            if segment.largest_timestamp_ms > plan.now_ms - lag_ms:
                break
            now_old += 1
    found = bisect.bisect_left(shorter, True, key=is_too_long)
    if not found:
        return None
    value = shorter[found - 1]
    return _checked(plan, "min.compaction.lag.ms", value, replace(plan.config, min_compaction_lag_ms=value))


def max_lag_remedy(plan: CleanPlan) -> Remedy | None:
    """Return the greatest `max.compaction.lag.ms` that the oldest dirty segment is past, if Kafka accepts it."""
    oldest_ms = oldest_dirty_ms(plan.log, plan.first_dirty_offset)
    if oldest_ms is None or plan.need_compaction_now or not plan.cleanable_bytes:
        return None
    value = plan.now_ms - oldest_ms - 1
    if value < max(1, plan.config.min_compaction_lag_ms):
        return None
    return _checked(plan, "max.compaction.lag.ms", value, replace(plan.config, max_compaction_lag_ms=value))


def roll_remedy(plan: CleanPlan) -> Remedy | None:
    """Return the greatest `segment.ms` at which a record of this moment closes the active segment."""
    first_ms = plan.log.active_segment.first_batch_max_timestamp_ms
    if first_ms is None or first_ms < 0:
        return None
    value = plan.now_ms - first_ms - 1
    if not 1 <= value < plan.config.segment_ms:
        return None
    after = planned_again(plan, log=rolled(plan.log), config=replace(plan.config, segment_ms=value))
    return Remedy(name="segment.ms", value=value, at_append=True, makes_eligible=after.eligible)


def _few_digits(limit: float) -> Decimal:
    """Return a number of two digits, or more if it is small, at or below a limit between 0 and 1."""
    exact = Decimal(limit)
    return exact.quantize(Decimal(1).scaleb(min(-2, exact.adjusted() - 1)), ROUND_FLOOR)


def _checked(plan: CleanPlan, name: str, value: str | int | float, config: TopicConfig) -> Remedy:
    return Remedy(name=name, value=value, makes_eligible=planned_again(plan, config=config).eligible)
