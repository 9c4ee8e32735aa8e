"""`plan.deciding_settings`: the settings that are named decide, and the others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.config.broker_config import BrokerConfig
from kcompact.config.settings import FIELD_NAMES, INT_MAX, Setting, Source, TopicConfig
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan, planned_again
from kcompact.plan.deciding_settings import deciding_assumptions
from kcompact.plan.verdict import Reason
from tests.support.log_values import NOW, log_of, planned, segment

DAY_MS = 86_400_000
FAR = 10**15
COMPACT = TopicConfig(
    cleanup_policy=frozenset({"compact"}), settings={"cleanup.policy": Setting(source=Source.TOPIC_OVERRIDE)}
)
DELETE = TopicConfig(cleanup_policy=frozenset({"delete"}), settings={"cleanup.policy": Setting(source=Source.DEFAULT)})
"""The policies, both of a topic that the cluster has; all other settings are assumed."""

OTHER_VALUES: dict[str, tuple[Any, ...]] = {
    "cleanup.policy": (frozenset({"compact"}), frozenset({"delete"})),
    "min.cleanable.dirty.ratio": (0.0, 0.2, 0.9, 1.0),
    "min.compaction.lag.ms": (1, 15, FAR),
    "max.compaction.lag.ms": (1, 15),
    "segment.bytes": (14, 200, 1200, INT_MAX),
    "segment.index.bytes": (4, 16),
}
FIELDS = {name: field for field, name in FIELD_NAMES.items()}


def verdict(plan: CleanPlan) -> object:
    return plan.eligible, plan.groups


def changes(plan: CleanPlan, name: str) -> bool:
    """Return whether another value of a setting has the partition cleaned, not cleaned, or cleaned otherwise."""
    for value in OTHER_VALUES[name]:
        field: dict[str, Any] = {FIELDS[name]: value}
        if verdict(planned_again(plan, config=replace(plan.config, **field))) != verdict(plan):
            return True
    return False


@st.composite
def plans(draw: st.DrawFn) -> CleanPlan:
    times = st.integers(NOW - 40, NOW - 2)
    found: list[Segment] = []
    for number in range(draw(st.integers(1, 5))):
        size = draw(st.sampled_from([100, 0, 50, 1000]))
        first = draw(times) if size else None
        one = segment(100 * number, size, largest=draw(times), first=first)
        found.append(replace(one, index_bytes=draw(st.sampled_from([0, 8, 24]))))
    log = log_of(*found)
    end = 100 * len(found)
    log = replace(log, log_end_offset=end, checkpoint_offset=draw(st.none() | st.integers(0, end)))
    watermark = draw(st.none() | st.none() | st.integers(0, end))
    return planned(log, draw(st.sampled_from([COMPACT, COMPACT, DELETE])), now_ms=NOW, high_watermark=watermark)


@given(plan=plans())
def test_what_is_not_named_decides_nothing(plan: CleanPlan) -> None:
    deciding = deciding_assumptions(plan)
    for name in OTHER_VALUES:
        if name not in deciding and plan.config.is_assumed(name):
            assert not changes(plan, name), name


@given(plan=plans())
def test_what_is_named_decides(plan: CleanPlan) -> None:
    grouped = len(plan.segments) > 1
    for name in deciding_assumptions(plan):
        # Without indexes or sizes no limit changes the groups.
        if name in OTHER_VALUES and not (name.startswith("segment.") and grouped):
            assert changes(plan, name), name


def of(*sizes: int, **settings: Any) -> CleanPlan:
    """Return the plan of closed segments of these sizes and an active one, with settings that are no defaults."""
    log = log_of(*(segment(100 * number, size, largest=NOW - 20, first=NOW - 20) for number, size in enumerate(sizes)))
    named: dict[str, Any] = {FIELDS[name.replace("_", ".")]: value for name, value in settings.items()}
    sources = {name.replace("_", "."): Setting(source=Source.OPTION) for name in settings}
    config = replace(COMPACT, **named, settings={**COMPACT.settings, **sources})
    return planned(log, config, now_ms=NOW)


ALWAYS = {"min.compaction.lag.ms", "delete.retention.ms", "index.interval.bytes", "log.cleaner.enable"}
RATIO, GROUPS = {"min.cleanable.dirty.ratio"}, {"segment.bytes", "segment.index.bytes"}
CASES: list[tuple[CleanPlan, Reason, set[str]]] = [
    (of(100, 100, 100), Reason.DIRTY_RATIO, ALWAYS | RATIO | GROUPS),
    (of(100, 100), Reason.DIRTY_RATIO, ALWAYS | RATIO),
    (of(100), Reason.ACTIVE_ONLY, set()),
    (of(0, 0), Reason.EMPTY, set()),
    (of(100, 100, min_cleanable_dirty_ratio=1.0), Reason.BELOW_RATIO, {"max.compaction.lag.ms"}),
    (of(100, 100, min_cleanable_dirty_ratio=0.1), Reason.DIRTY_RATIO, ALWAYS),
    (of(100, 100, max_compaction_lag_ms=1), Reason.DIRTY_RATIO, ALWAYS),
    (of(100, 100, min_compaction_lag_ms=FAR), Reason.MIN_COMPACTION_LAG, set()),
]


@pytest.mark.parametrize(("plan", "reason", "expected"), CASES)
def test_by_verdict(plan: CleanPlan, reason: Reason, expected: set[str]) -> None:
    assert (plan.reason, set(deciding_assumptions(plan))) == (reason, expected)
    known = planned_again(plan, config=replace(plan.config, broker=BrokerConfig()))
    assert deciding_assumptions(known) == ()


def test_by_retention() -> None:
    log = log_of(*(segment(100 * number, 100, largest=NOW - 8 * DAY_MS, first=1) for number in range(3)))
    plan = planned(log, DELETE, now_ms=NOW)
    assert deciding_assumptions(plan) == ("cleanup.policy", "retention.ms")
    young = log_of(*(segment(100 * number, 100, largest=NOW - DAY_MS, first=1) for number in range(3)))
    # With compact in the broker's policy it would be cleaned.
    assert deciding_assumptions(planned(young, DELETE, now_ms=NOW)) == ("cleanup.policy",)
    assert deciding_assumptions(planned(log_of(segment(0, 100)), DELETE, now_ms=NOW)) == ()
