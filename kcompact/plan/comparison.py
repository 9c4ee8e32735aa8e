"""What other settings would change: the plan of today beside the plan with them, of the same files. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.plan.clean_plan import CleanPlan, planned_again
from kcompact.plan.cost import retention_frees
from kcompact.plan.explanation import explain
from kcompact.plan.forecast import rolls_from_ms


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
class Comparison:
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


def compare(plan: CleanPlan, config: TopicConfig) -> Comparison:
    """Return a partition today and with these settings."""
    changed_plan = planned_again(plan, config=config)
    return Comparison(plan=plan, changed_plan=changed_plan, today=outlook(plan), changed=outlook(changed_plan))


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
