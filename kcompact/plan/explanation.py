"""Why a partition is cleaned or not, what would change that, when, and what the cleaning costs. Pure.

explanation = explain(plan)
explanation.decided_by              # the condition that decides
explanation.changes_at_ms           # when the verdict changes, and `forecasts` how
explanation.change_by_setting       # which value of one setting takes the deciding condition out of the way

`compare` has the explanation of today beside the one with other settings, of the same files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from kcompact import readable
from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.host.disk import Storage
from kcompact.plan.clean_plan import CleanPlan, planned_again
from kcompact.plan.conditions import ALONE, Condition, Rivals, Verdict, conditions_of
from kcompact.plan.cost import (
    BrokerCost,
    CostHere,
    RetentionFrees,
    broker_cost,
    cost_here,
    retention_frees,
    rewritten_segments,
)
from kcompact.plan.deciding_settings import Remedy, assumed_by, sufficient_min_lag
from kcompact.plan.deletion import plan_at_turn
from kcompact.plan.forecast import (
    Forecast,
    Growth,
    How,
    eligible_after_roll_ms,
    eligible_from_ms,
    estimated_ms,
    growth_of,
    missing_dirty_bytes,
    rolls_from_ms,
)
from kcompact.plan.horizons import Horizons
from kcompact.plan.transactions import TransactionState
from kcompact.plan.verdict import ConditionName, Reason
from kcompact.values import dataclass

_GROWS_OUT_OF = frozenset({Reason.ACTIVE_ONLY, Reason.BELOW_RATIO, Reason.MIN_COMPACTION_LAG})
"""Verdicts that more records change."""

_OF_THE_BROKER = frozenset({ConditionName.CLEANER_ENABLE, ConditionName.BUFFER})
"""What keeps a broker from a partition that kcompact cleans: no time changes that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A plan with its conditions and all that follows from them.

    `forecasts` say when the partition becomes eligible, the earliest first; none if it is, or if nothing that can be
    foreseen makes a broker clean it. `other_remedies` are settings of other conditions with which alone it is eligible.
    """

    plan: CleanPlan
    conditions: tuple[Condition, ...]
    decided_by: ConditionName
    forecasts: tuple[Forecast, ...]
    change_by_setting: Remedy | None
    other_remedies: tuple[Remedy, ...]
    growth: Growth | None
    missing_dirty_bytes: int | None
    broker: BrokerCost
    here: CostHere
    retention: RetentionFrees

    @property
    def decisive(self) -> Condition:
        """The condition that decides."""
        return next(condition for condition in self.conditions if condition.decides)

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumed settings of all conditions, in the order of `TopicConfig.assumed`."""
        asked = {name for condition in self.conditions for name in condition.assumed}
        return tuple(name for name in self.plan.config.assumed if name in asked)

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """The setting of the deciding condition, then those of others."""
        own = () if self.change_by_setting is None else (self.change_by_setting,)
        return (*own, *self.other_remedies)

    @property
    def best_remedy(self) -> Remedy | None:
        """The first setting with which the partition is cleaned, else that of the deciding condition."""
        return next((remedy for remedy in self.remedies if remedy.makes_eligible), self.change_by_setting)

    @property
    def changes_at_ms(self) -> int | None:
        """When the partition becomes eligible, None if that cannot be foreseen, or if it is."""
        return self.forecasts[0].at_ms if self.forecasts else None


def explain(
    plan: CleanPlan,
    rivals: Rivals = ALONE,
    horizons: Horizons | None = None,
    transaction: TransactionState | None = None,
) -> Explanation:
    """Return why a partition is cleaned or not. `rivals` come before it in a broker; the rest as `conditions_of`."""
    conditions = conditions_of(plan, rivals, horizons, transaction)
    turn = plan_at_turn(plan)
    decided_by = _decided_by(plan, conditions)
    growth = growth_of(plan)
    decisive = next(condition for condition in conditions if condition.name is decided_by)
    others = (_remedy(plan, each) for each in conditions if each is not decisive and not plan.eligible)
    return Explanation(
        plan=plan,
        conditions=tuple(
            replace(each, decides=each.name is decided_by, assumed=assumed_by(plan, each.name)) for each in conditions
        ),
        decided_by=decided_by,
        forecasts=() if decided_by in _OF_THE_BROKER else _forecasts(plan, growth),
        change_by_setting=_remedy(plan, decisive),
        other_remedies=tuple(each for each in others if each is not None and each.makes_eligible),
        growth=growth,
        missing_dirty_bytes=missing_dirty_bytes(plan),
        broker=broker_cost(turn),
        here=cost_here(plan, is_on_overlay=Storage.of(plan.log.directory).is_overlay),
        retention=retention_frees(plan),
    )


def _remedy(plan: CleanPlan, condition: Condition) -> Remedy | None:
    """Return the setting of a condition: with which the partition is cleaned, else which changes the verdict."""
    remedy = condition.remedy
    if (
        condition.name is ConditionName.MIN_LAG
        and remedy is not None
        and not remedy.makes_eligible
        and not plan.eligible
    ):
        return sufficient_min_lag(plan) or remedy
    return remedy


def _decided_by(plan: CleanPlan, conditions: Sequence[Condition]) -> ConditionName:
    """Return the condition that decides: of the plan, or what keeps a broker from a partition that kcompact cleans."""
    blocking = {condition.name for condition in conditions if condition.verdict is Verdict.BLOCKS}
    if ConditionName.CLEANER_ENABLE in blocking and plan.config.compacts:
        return ConditionName.CLEANER_ENABLE
    if ConditionName.BUFFER in blocking and plan.eligible:
        return ConditionName.BUFFER
    return plan.reason.condition


def _forecasts(plan: CleanPlan, growth: Growth | None) -> tuple[Forecast, ...]:
    """Return when a partition that is not eligible becomes so, the earliest first."""
    if plan.eligible:
        return ()
    forecasts = []
    alone_ms = eligible_from_ms(plan)
    if alone_ms is not None:
        sentence = f"eligible from {readable.time(alone_ms)} on, without a new record"
        forecasts.append(Forecast(at_ms=alone_ms, how=How.BY_ITSELF, explanation=sentence))
    rolled_ms, rolls_ms = eligible_after_roll_ms(plan), rolls_from_ms(plan)
    if rolled_ms is not None and rolls_ms is not None and (alone_ms is None or rolled_ms < alone_ms):
        record = "the next record" if rolls_ms <= plan.now_ms else f"a record of {readable.time(rolls_ms)} or later"
        sentence = f"eligible from {readable.time(rolled_ms)} on: {record} closes the active segment"
        forecasts.append(Forecast(at_ms=rolled_ms, how=How.AT_APPEND, explanation=sentence))
    if growth is not None and plan.reason in _GROWS_OUT_OF:
        estimate_ms = estimated_ms(plan, growth)
        if estimate_ms is not None and all(estimate_ms < each.at_ms for each in forecasts):
            sentence = f"an estimate: eligible about {readable.time(estimate_ms)} if it grows as it has ({growth})"
            forecasts.append(Forecast(at_ms=estimate_ms, how=How.ESTIMATE, explanation=sentence))
    return tuple(sorted(forecasts, key=lambda forecast: forecast.at_ms))


def explain_all(
    plans: Sequence[CleanPlan],
    horizons: Sequence[Horizons | None] = (),
    transactions: Sequence[TransactionState | None] = (),
) -> list[Explanation]:
    """Return the explanation of each plan, in their order. Those of one log directory are rivals.

    `horizons` and `transactions` have those of each plan, nothing if nobody has looked.
    """
    rivals = _rivals_of(plans)
    unknown = [None] * len(plans)
    return [
        explain(plan, rivals.get(id(plan), ALONE), own_horizons, transaction)
        for plan, own_horizons, transaction in zip(plans, horizons or unknown, transactions or unknown, strict=True)
    ]


def _rivals_of(plans: Iterable[CleanPlan]) -> dict[int, Rivals]:
    """Return the rivals of each plan that is to be cleaned at its turn, by its identity.

    The ratio is the one that retention leaves; but the log that is the dirtiest now is chosen before retention.
    """
    by_log_dir: dict[str, list[CleanPlan]] = {}
    for plan in plans:
        by_log_dir.setdefault(str(plan.log.log_dir.path), []).append(plan)
    rivals = {}
    for log_dir_plans in by_log_dir.values():
        first_ratio = max((plan.cleanable_ratio for plan in log_dir_plans if plan.eligible), default=1.0)
        by_ratio: dict[tuple[float, bool], dict[int, CleanPlan]] = {}
        for plan in log_dir_plans:
            turn = plan_at_turn(plan)
            if turn.eligible:
                ratio = -min(turn.cleanable_ratio, first_ratio), turn.cleanable_ratio > first_ratio
                by_ratio.setdefault(ratio, {})[id(plan)] = turn
        before = ALONE
        for _, equals in sorted(by_ratio.items()):
            own = replace(before, equals=len(equals) - 1)
            rivals.update(dict.fromkeys(equals, own))
            more = sum(segment.size_bytes for turn in equals.values() for segment in rewritten_segments(turn))
            before = Rivals(partitions=before.partitions + len(equals), size_bytes=before.size_bytes + more)
    return rivals


def most_keys(explanations: Iterable[Explanation]) -> Explanation | None:
    """Return the partition whose cleanable section may have most keys, which decides how much buffer a broker needs.

    None if nothing is cleanable.
    """
    cleanable = (each for each in explanations if each.broker.keys_at_most)
    return max(cleanable, key=lambda each: each.broker.keys_at_most, default=None)


# Other settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What depends on the settings of a partition. The names of the fields are those of the JSON.

    `delete_horizon_ms` is what a tombstone gets that the cleaning keeps, `rolls_from_ms` the record that closes the
    active segment, `eligible_from_ms` when a partition is eligible, None if that cannot be foreseen, `retention_bytes`
    what a broker deletes.
    """

    cleanup_policy: str | None
    eligible: bool
    reason: str
    decided_by: str
    cleanable_ratio: float
    first_uncleanable_offset: int
    cleanable_bytes: int
    bytes_rewritten: int
    groups: int
    kafka_passes_at_most: int | None
    kafka_seconds_throttled: float | None
    delete_horizon_ms: int | None
    rolls_from_ms: int | None
    eligible_from_ms: int | None
    retention_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsComparison:
    """A partition today and with the changed settings."""

    plan: CleanPlan
    changed_plan: CleanPlan
    today: Outlook
    changed: Outlook

    @property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Return what differs, by the name of the field: the value of today and the other."""
        both = ((one.name, getattr(self.today, one.name), getattr(self.changed, one.name)) for one in fields(Outlook))
        return {name: (today, changed) for name, today, changed in both if today != changed}


def compare(plan: CleanPlan, config: TopicConfig) -> SettingsComparison:
    """Return a partition today and with these settings."""
    changed_plan = planned_again(plan, config=config)
    return SettingsComparison(plan=plan, changed_plan=changed_plan, today=outlook(plan), changed=outlook(changed_plan))


def outlook(plan: CleanPlan) -> Outlook:
    """Return what depends on the settings of a partition."""
    explanation = explain(plan)
    horizon_ms = plan.now_ms + plan.config.delete_retention_ms
    return Outlook(
        cleanup_policy=plan.config.policy_text,
        eligible=plan.eligible,
        reason=str(plan.reason),
        decided_by=str(explanation.decided_by),
        cleanable_ratio=plan.cleanable_ratio,
        first_uncleanable_offset=plan.first_uncleanable_offset,
        cleanable_bytes=plan.cleanable_bytes,
        bytes_rewritten=sum(segment.size_bytes for segment in plan.segments),
        groups=len(plan.groups),
        kafka_passes_at_most=explanation.broker.passes_at_most,
        kafka_seconds_throttled=explanation.broker.seconds_throttled,
        delete_horizon_ms=horizon_ms if horizon_ms <= LONG_MAX else None,
        rolls_from_ms=rolls_from_ms(plan),
        eligible_from_ms=plan.now_ms if plan.eligible else explanation.changes_at_ms,
        retention_bytes=retention_frees(plan).size_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums of some outlooks."""

    to_clean: int
    cleanable_bytes: int
    bytes_rewritten: int
    retention_bytes: int


def total(outlooks: Sequence[Outlook]) -> Totals:
    """Return the sums of some outlooks; the cleanable bytes are those of the partitions to clean."""
    eligible = [each for each in outlooks if each.eligible]
    return Totals(
        to_clean=len(eligible),
        cleanable_bytes=sum(each.cleanable_bytes for each in eligible),
        bytes_rewritten=sum(each.bytes_rewritten for each in eligible),
        retention_bytes=sum(each.retention_bytes for each in outlooks),
    )
