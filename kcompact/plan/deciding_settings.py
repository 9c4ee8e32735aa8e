"""The settings behind a verdict: which are only assumed, and which value of one setting changes the verdict. Pure.

A broker's static settings are in its `server.properties` only. Where nobody has read that file, a setting that neither
the topic nor the cluster has may have another value in the broker than Kafka's default.

The value of a `Remedy` is the last one on the side of today's that changes the verdict: the next value towards today's
changes nothing. People type a rounded one, further from today's, which does too.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal
from itertools import takewhile

from kcompact import readable
from kcompact.config.settings import TopicConfig
from kcompact.plan.clean_plan import CleanPlan, oldest_dirty_ms, planned_again
from kcompact.plan.deletion import assumed_settings, due_now, retention_applies
from kcompact.plan.forecast import closed_dirty_segments, planned_after_roll, roll_ms
from kcompact.plan.verdict import ConditionName, Reason
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """A setting under Kafka's name, and the value that takes a condition out of the way.

    `at_append`: the setting closes the active segment, and a broker does that when it appends the next record.
    `obstacle` is why the partition is not cleaned with this setting either, None if with it alone the partition is.
    `least` is the least value that Kafka accepts.
    """

    name: str
    value: str | int | float | bool
    at_append: bool = False
    obstacle: str | None = None
    least: int = 0

    @property
    def makes_eligible(self) -> bool:
        """Whether with this setting alone the partition is cleaned."""
        return self.obstacle is None

    @property
    def rounded(self) -> str:
        """The value as it is typed, rounded away from that of today.

        Of a fraction few digits; of a time at least ten whole days, hours, minutes or seconds; of a buffer whole MiB.
        """
        value = self.value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, float):
            return f"{_few_digits(value):f}"
        if isinstance(value, int) and self.name.endswith(".ms"):
            unit_ms = next((unit_ms for unit_ms in _UNITS_MS if value >= 10 * unit_ms), 1)
            return str(max(value // unit_ms * unit_ms, self.least))
        if isinstance(value, int):
            return str(-(-value // _MIB) * _MIB)
        return value

    @property
    def text(self) -> str:
        """The setting as it is typed."""
        return f"{self.name}={self.rounded}"

    @property
    def price(self) -> str | None:
        """What the setting costs for as long as it stays, None if nothing."""
        if self.at_append:
            every = readable.duration(int(self.rounded))
            return f"take it back afterwards: while it stays, a segment is closed every {every}"
        return _PRICES.get(self.name)

    @property
    def sentence(self) -> str:
        """The setting, when it works, and its price or what stands in the way nevertheless."""
        when = ": the next record closes the active segment" if self.at_append else ""
        if self.obstacle is not None:
            return f"{self.text}{when}; but {self.obstacle}"
        return f"{self.text}{when}" + (f"; {self.price}" if self.price else "")


_MIB = 1 << 20
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)
_PRICES = {
    "min.cleanable.dirty.ratio": "while it stays, a broker cleans this log more often",
    "min.compaction.lag.ms": "while it stays, consumers that are behind miss older values sooner",
    "max.compaction.lag.ms": "while it stays, a broker cleans this log at least so often, at any ratio",
}


def policy_remedy(plan: CleanPlan) -> Remedy:
    """Return the policy with `compact` in addition."""
    policy = ",".join(sorted((plan.config.cleanup_policy or frozenset()) | {"compact"}))
    return _checked(plan, "cleanup.policy", policy, replace(plan.config, cleanup_policy=frozenset(policy.split(","))))


def ratio_remedy(plan: CleanPlan) -> Remedy | None:
    """Return the greatest minimum that the ratio is above.

    None if nothing is cleanable, if the ratio is above, or if it does not count as `max.compaction.lag.ms` is over.
    """
    ratio = plan.cleanable_ratio
    if plan.need_compaction_now and plan.cleanable_bytes:
        return None
    if not 0 < ratio <= plan.config.min_cleanable_dirty_ratio:
        return None
    minimum = math.nextafter(ratio, 0.0)
    changed = replace(plan.config, min_cleanable_dirty_ratio=minimum)
    return _checked(plan, "min.cleanable.dirty.ratio", minimum, changed)


def min_lag_remedy(plan: CleanPlan, *, cleans_some: bool) -> Remedy | None:
    """Return the greatest `min.compaction.lag.ms` that lets the cleaner in, or further in if it is in already.

    With `cleans_some` some segment of the log must become cleanable, else the first one that is too young must.
    """
    segments, shorter = closed_dirty_segments(plan), _shorter_lags(plan)

    def old(age_ms: int) -> int:
        """Return the bytes, or the number, of the first segments, as far as they are so old."""
        first = takewhile(lambda each: age_ms <= 0 or each.largest_timestamp_ms <= plan.now_ms - age_ms, segments)
        return sum(segment.size_bytes if cleans_some else 1 for segment in first)

    now_old = 0 if cleans_some else old(plan.config.min_compaction_lag_ms)
    sufficient_count = bisect.bisect_left(shorter, True, key=lambda age_ms: old(age_ms) <= now_old)
    if not sufficient_count:
        return None
    value = shorter[sufficient_count - 1]
    return _checked(plan, "min.compaction.lag.ms", value, replace(plan.config, min_compaction_lag_ms=value))


def _shorter_lags(plan: CleanPlan) -> list[int]:
    """Return the values below today's `min.compaction.lag.ms` at which a segment is just old enough, ascending."""
    ages = {plan.now_ms - segment.largest_timestamp_ms for segment in closed_dirty_segments(plan)}
    return [age_ms for age_ms in sorted(ages | {0}) if 0 <= age_ms < plan.config.min_compaction_lag_ms]


def sufficient_min_lag(plan: CleanPlan) -> Remedy | None:
    """Return the greatest `min.compaction.lag.ms` with which the partition is cleaned; None if none is short enough."""
    shorter = _shorter_lags(plan)

    def is_too_long(age_ms: int) -> bool:
        return not planned_again(plan, config=replace(plan.config, min_compaction_lag_ms=age_ms)).eligible

    sufficient_count = bisect.bisect_left(shorter, True, key=is_too_long)
    return Remedy(name="min.compaction.lag.ms", value=shorter[sufficient_count - 1]) if sufficient_count else None


def max_lag_remedy(plan: CleanPlan) -> Remedy | None:
    """Return the greatest `max.compaction.lag.ms` that the oldest dirty segment is past, if Kafka accepts it.

    If nothing is cleanable, the one that closes the active segment at the next record, if it is cleaned for no other
    reason then.
    """
    if plan.need_compaction_now:
        return None
    oldest_ms = oldest_dirty_ms(plan.log, plan.first_dirty_offset)
    if not plan.cleanable_bytes:
        oldest_ms = plan.log.active_segment.first_batch_max_timestamp_ms
    if oldest_ms is None or oldest_ms <= 0:
        return None
    value = plan.now_ms - oldest_ms - 1
    if value < max(1, plan.config.min_compaction_lag_ms):
        return None
    config = replace(plan.config, max_compaction_lag_ms=value)
    if plan.cleanable_bytes:
        return replace(_checked(plan, "max.compaction.lag.ms", value, config), least=plan.config.min_compaction_lag_ms)
    # If it is enough to close the segment, segment.ms does that.
    if planned_after_roll(plan).eligible or not planned_after_roll(plan, config=config).eligible:
        return None
    return Remedy(name="max.compaction.lag.ms", value=value, at_append=True, least=plan.config.min_compaction_lag_ms)


def roll_remedy(plan: CleanPlan) -> Remedy | None:
    """Return the greatest `segment.ms` at which a record of this moment closes the active segment.

    None if such a record closes it already, by `segment.ms` or by `max.compaction.lag.ms`.
    """
    first_ms = plan.log.active_segment.first_batch_max_timestamp_ms
    if first_ms is None or first_ms < 0:
        return None
    value = plan.now_ms - first_ms - 1
    if not 1 <= value < roll_ms(plan.config):
        return None
    after = planned_after_roll(plan, config=replace(plan.config, segment_ms=value))
    return Remedy(name="segment.ms", value=value, at_append=True, obstacle=_obstacle(after))


def _few_digits(limit: float) -> Decimal:
    """Return a number of two digits, or more if it is small, at or below a limit between 0 and 1."""
    exact = Decimal(limit)
    return exact.quantize(Decimal(1).scaleb(min(-2, exact.adjusted() - 1)), ROUND_FLOOR)


def _checked(plan: CleanPlan, name: str, value: str | int | float, config: TopicConfig) -> Remedy:
    return Remedy(name=name, value=value, obstacle=_obstacle(planned_again(plan, config=config)))


def _obstacle(plan: CleanPlan) -> str | None:
    return None if plan.eligible else plan.explanation


_SETTINGS_OF: dict[ConditionName, tuple[str, ...]] = {
    ConditionName.POLICY: ("cleanup.policy",),
    ConditionName.CLEANER_ENABLE: ("log.cleaner.enable",),
    ConditionName.ACTIVE_SEGMENT: ("segment.bytes", "segment.ms", "segment.jitter.ms", "max.compaction.lag.ms"),
    ConditionName.MIN_LAG: ("min.compaction.lag.ms",),
    ConditionName.MAX_LAG: ("max.compaction.lag.ms",),
    ConditionName.RATIO: ("min.cleanable.dirty.ratio",),
    ConditionName.ORDER: ("log.cleaner.threads",),
    ConditionName.BUFFER: (
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.threads",
        "log.cleaner.io.buffer.load.factor",
    ),
    ConditionName.THROTTLE: ("log.cleaner.io.max.bytes.per.second",),
    ConditionName.TOMBSTONES: ("delete.retention.ms",),
    ConditionName.RETENTION: ("retention.ms", "retention.bytes"),
}
"""The settings that each condition of the cleaner asks. The others depend on the log alone."""


def assumed_by(plan: CleanPlan, condition: ConditionName) -> tuple[str, ...]:
    """Return the settings of a condition that are only assumed."""
    return tuple(name for name in _SETTINGS_OF.get(condition, ()) if plan.config.is_assumed(name))


def deciding_assumptions(plan: CleanPlan) -> tuple[str, ...]:
    """Return the assumed settings that decide: another value could change the verdict, the bytes or a delete horizon.

    They are in the order of `TopicConfig.assumed`.
    """
    if not retention_applies(plan) or plan.log.is_cluster_metadata:
        return ()  # The state of the log decides, whatever the settings.
    deciding = {*_deciding_of_cleaning(plan), *assumed_settings(due_now(plan), plan.config)}
    return tuple(name for name in plan.config.assumed if name in deciding)


def _deciding_of_cleaning(plan: CleanPlan) -> set[str]:
    """Return the settings of which another value could have the partition cleaned, not cleaned, or cleaned otherwise.

    Only one of them has another value at a time.
    """
    if not plan.config.compacts:
        return {"cleanup.policy"} if policy_remedy(plan).makes_eligible else set()
    if plan.reason is Reason.BELOW_RATIO:
        return {"min.cleanable.dirty.ratio", "max.compaction.lag.ms"}
    if not plan.eligible:
        return set()
    setting_names = {"cleanup.policy", "log.cleaner.enable", "min.compaction.lag.ms"}
    setting_names |= {"delete.retention.ms", "index.interval.bytes"}
    if plan.reason is Reason.DIRTY_RATIO and not plan.need_compaction_now:
        setting_names.add("min.cleanable.dirty.ratio")
    if len(plan.segments) > 1:
        setting_names |= {"segment.bytes", "segment.index.bytes"}
    return setting_names | ({"producer.id.expiration.ms"} if plan.producers else set())
