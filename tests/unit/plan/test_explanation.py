"""Forecasts and settings of `plan.explanation` come true: the plan of that time, or with that value, says so.

Each is tested on both sides: a millisecond before, and at the next value towards today's, nothing has changed.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.cli.json.plan import EXPLANATION
from kcompact.config.settings import LONG_MAX, TopicConfig
from kcompact.log.directory import PartitionLog
from kcompact.log.producer_state import Producer
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan, planned_again
from kcompact.plan.conditions import Condition, Verdict, conditions_of
from kcompact.plan.cost import buffer_bytes_for_one_pass, keys_per_pass, offset_map_slots
from kcompact.plan.deciding_settings import Remedy
from kcompact.plan.explanation import Explanation, compare, explain
from kcompact.plan.forecast import (
    How,
    estimated_ms,
    growth_of,
    missing_dirty_bytes,
    planned_after_roll,
    roll_ms,
    rolls_from_ms,
)
from kcompact.plan.verdict import ConditionName, Reason
from tests.support.log_values import CONFIG, NOW, log_of, planned, segment

times = st.integers(NOW - 40, NOW + 20)


@st.composite
def segments(draw: st.DrawFn) -> tuple[Segment, ...]:
    """Segments a hundred offsets apart, the last one active; some are empty, some have no timestamp."""
    found = []
    for number in range(draw(st.sampled_from([1, 2, 3, 4, 5]))):
        size = draw(st.sampled_from([100, 0, 1, 50, 1000]))
        first = draw(st.one_of(times, times, st.just(-1))) if size else None
        found.append(segment(100 * number, size, largest=draw(times), first=first))
    return tuple(found)


@st.composite
def plans(draw: st.DrawFn) -> CleanPlan:
    """The plan of a log at `NOW`, with lags and ages of about the same size as its timestamps."""
    log = log_of(*draw(segments()))
    bases = [each.base_offset for each in log.segments]
    end = bases[-1] + (100 if log.active_segment.size_bytes else 0)
    log = replace(log, log_end_offset=end, checkpoint_offset=draw(st.none() | st.integers(0, end)))
    least = draw(st.sampled_from([0, 0, 1, 10, 30, 60]))
    config = TopicConfig(
        cleanup_policy=draw(st.sampled_from([frozenset({"compact"})] * 8 + [frozenset({"delete"}), frozenset(), None])),
        min_cleanable_dirty_ratio=draw(st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0])),
        min_compaction_lag_ms=least,
        max_compaction_lag_ms=max(least, draw(st.sampled_from([1, 20, 50, LONG_MAX, LONG_MAX]))),
        segment_ms=draw(st.sampled_from([1, 10, 30, 100, 10**9, LONG_MAX])),
    )
    open_from = draw(st.none() | st.none() | st.none() | st.integers(0, end))
    producers = {7: Producer(producer_id=7, epoch=0, transaction_first_offset=open_from)} if open_from else {}
    watermark = draw(st.none() | st.none() | st.integers(0, end))
    return planned(log, config, now_ms=NOW, producers=producers, high_watermark=watermark)


def condition(plan: CleanPlan, name: ConditionName) -> Condition:
    return next(each for each in conditions_of(plan) if each.name is name)


def with_setting(plan: CleanPlan, remedy: Remedy, value: object) -> CleanPlan:
    fields = {
        "cleanup.policy": "cleanup_policy",
        "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
        "min.compaction.lag.ms": "min_compaction_lag_ms",
        "max.compaction.lag.ms": "max_compaction_lag_ms",
        "segment.ms": "segment_ms",
    }
    changes: dict[str, Any] = {
        fields[remedy.name]: frozenset(str(value).split(",")) if remedy.name == ConditionName.POLICY else value
    }
    return planned_again(plan, config=replace(plan.config, **changes))


# What decides


@given(plans())
def test_one_condition_decides(plan: CleanPlan) -> None:
    explanation = explain(plan)
    assert [each.name for each in explanation.conditions if each.decides] == [explanation.decided_by]
    assert explanation.decisive.verdict is (Verdict.TRIGGERS if plan.eligible else Verdict.BLOCKS)
    blocking = {each.name for each in explanation.conditions if each.verdict is Verdict.BLOCKS}
    assert bool(blocking) != plan.eligible


@pytest.mark.parametrize(
    ("last_ms", "advice"),
    [
        (NOW - 900_001, "; kafka-transactions.sh find-hanging, then abort"),
        (NOW - 900_000, "; not longer ago than transaction.max.timeout.ms, so its producer or coordinator may still"),
        (-1, "; kafka-transactions.sh find-hanging, then abort"),
    ],
)
def test_only_a_hanging_transaction_has_to_be_aborted(last_ms: int, advice: str) -> None:
    producer = Producer(producer_id=7, epoch=0, transaction_first_offset=150, last_timestamp=last_ms)
    plan = planned(log_of(segment(0), segment(100), segment(200), end=300), producers={7: producer})
    assert advice in condition(plan, ConditionName.LAST_STABLE_OFFSET).explanation


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        (None, "no checkpoint of a cleaner, so all offsets from 0 on count as dirty"),
        (100, "offsets 100 to 299 were never cleaned"),
        (301, "the cleaner's checkpoint, offset 301, is outside the log, so all offsets from 0 on count as dirty"),
    ],
)
def test_who_says_what_is_dirty(checkpoint: int | None, expected: str) -> None:
    log = log_of(segment(0), segment(100), segment(200), checkpoint=checkpoint, end=300)
    assert condition(planned(log), ConditionName.DIRTY_RECORDS).explanation == expected


@given(plans())
def test_each_bound_is_judged_alone(plan: CleanPlan) -> None:
    """What limits the cleanable section is at least one of the bounds, and what does not is none."""
    limited = plan.first_uncleanable_offset < plan.log.active_segment.base_offset and plan.first_dirty_offset < (
        plan.log.active_segment.base_offset
    )
    bounds = [
        condition(plan, name)
        for name in (ConditionName.LAST_STABLE_OFFSET, ConditionName.HIGH_WATERMARK, ConditionName.MIN_LAG)
    ]
    if plan.last_stable_offset == plan.high_watermark:
        assert bounds[0].verdict is Verdict.OK
    cut = any(each.verdict in (Verdict.LIMITS, Verdict.BLOCKS) for each in bounds)
    assert not cut or limited
    assert cut or plan.cleanable_bytes == sum(
        each.size_bytes
        for each in plan.log.segments_between(plan.first_dirty_offset, plan.log.active_segment.base_offset)
    )


# When it changes by itself


@given(plans())
def test_eligible_at_the_time_of_the_forecast(plan: CleanPlan) -> None:
    for forecast in explain(plan).forecasts:
        if forecast.how is How.ESTIMATE:
            continue
        at_ms = forecast.at_ms
        if forecast.how is How.BY_ITSELF:
            assert planned_again(plan, now_ms=at_ms).eligible
            assert not planned_again(plan, now_ms=at_ms - 1).eligible
            continue
        rolls_ms = rolls_from_ms(plan)
        assert rolls_ms is not None
        assert planned_after_roll(plan, now_ms=at_ms).eligible
        if at_ms > max(rolls_ms, plan.now_ms):
            assert not planned_after_roll(plan, now_ms=at_ms - 1).eligible


@given(plans(), st.integers(1, 10**6))
def test_without_a_forecast_time_alone_changes_nothing(plan: CleanPlan, later_ms: int) -> None:
    forecasts = explain(plan).forecasts
    alone = [each.at_ms for each in forecasts if each.how is How.BY_ITSELF]
    eligible = planned_again(plan, now_ms=plan.now_ms + later_ms).eligible
    assert eligible == (plan.eligible or any(at_ms <= plan.now_ms + later_ms for at_ms in alone))


@given(plans())
def test_a_verdict_changes_at_its_time(plan: CleanPlan) -> None:
    for name in (ConditionName.MIN_LAG, ConditionName.MAX_LAG):
        today = condition(plan, name)
        if today.forecast is None:
            assert name is ConditionName.MAX_LAG or today.verdict is Verdict.OK
            continue
        at_ms = today.forecast.at_ms
        assert today.forecast.how is How.BY_ITSELF
        before = condition(planned_again(plan, now_ms=at_ms - 1), name)
        after = condition(planned_again(plan, now_ms=at_ms), name)
        assert before.verdict is today.verdict
        if today.verdict is Verdict.LIMITS:  # Further in, maybe not to the end.
            assert (
                _young(planned_again(plan, now_ms=at_ms - 1))
                == _young(plan)
                != _young(planned_again(plan, now_ms=at_ms))
            )
        else:
            assert after.verdict is not today.verdict


def _young(plan: CleanPlan) -> int | None:
    """Return the first segment that is too young."""
    lag_ms = plan.config.min_compaction_lag_ms
    for each in plan.log.segments_between(plan.first_dirty_offset, plan.log.active_segment.base_offset):
        if lag_ms and each.largest_timestamp_ms > plan.now_ms - lag_ms:
            return each.base_offset
    return None


@pytest.mark.parametrize(
    ("policy", "segment_ms", "lag_ms", "expected"),
    [
        ("compact", 100, LONG_MAX, 100),
        ("compact", 100, 7, 7),
        ("compact", 7, 100, 7),
        ("compact,delete", 100, 7, 7),
        ("delete", 100, 7, 100),  # Only a compacted log has a maximum lag.
    ],
)
def test_the_age_at_which_the_active_segment_is_closed(
    policy: str, segment_ms: int, lag_ms: int, expected: int
) -> None:
    config = TopicConfig(
        cleanup_policy=frozenset(policy.split(",")), segment_ms=segment_ms, max_compaction_lag_ms=lag_ms
    )
    assert roll_ms(config) == expected
    log = log_of(segment(0, first=5), end=100)
    assert rolls_from_ms(planned(log, config)) == 5 + expected + 1


@pytest.mark.parametrize("active", [segment(0, 0, first=None), segment(0, first=-1)])
def test_an_active_segment_without_a_time_has_no_forecast(active: Segment) -> None:
    plan = planned(log_of(active, end=100))
    assert rolls_from_ms(plan) is None
    assert not [each for each in explain(plan).forecasts if each.how is How.AT_APPEND]


# An estimate

GROWING = (segment(0, 1000, first=1), segment(100, 600, first=NOW - 10_000), segment(200, 400, first=NOW - 4000))


@pytest.mark.parametrize(
    ("checkpoint", "settings", "expected_ms"),
    [
        # 100 bytes a second. The active segment lacks 600 bytes: 6 seconds, and then 1600 of 2600 bytes are dirty.
        (100, {"segment_bytes": 1000}, 6000),
        (100, {"segment_bytes": 1000, "min_compaction_lag_ms": 500}, 7000),
        # 8000 dirty bytes more are needed: the active segment with 1000, and 7 more of 10 seconds each.
        (100, {"segment_bytes": 1000, "min_cleanable_dirty_ratio": 0.895}, 76_000),
        # Each is closed after 5 seconds and a bit, 500 bytes: the first one has waited for 4.
        (100, {"segment_bytes": 10**9, "segment_ms": 4999, "min_cleanable_dirty_ratio": 0.52}, 1000),
        (100, {"segment_bytes": 10**9, "segment_ms": 4999, "min_cleanable_dirty_ratio": 0.65}, 11_000),
        (100, {"segment_bytes": 1000, "min_cleanable_dirty_ratio": 1.0}, None),
    ],
)
def test_an_estimate(checkpoint: int, settings: dict[str, Any], expected_ms: int | None) -> None:
    config = replace(CONFIG, **{"min_cleanable_dirty_ratio": 0.5, **settings})
    plan = planned(log_of(*GROWING, checkpoint=checkpoint, end=300), config)
    growth = growth_of(plan)
    assert growth is not None
    assert (growth.size_bytes, growth.segments, growth.duration_ms) == (1000, 2, 10_000)
    assert estimated_ms(plan, growth) == (None if expected_ms is None else NOW + expected_ms)


OPEN = {7: Producer(producer_id=7, epoch=0, transaction_first_offset=250)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {How.AT_APPEND, How.ESTIMATE}),
        # Replication catches up while a broker appends, but an older segment shows that it does not.
        ({"high_watermark": 250}, {How.AT_APPEND, How.ESTIMATE}),
        ({"high_watermark": 150}, set()),
        # More records do not end a transaction.
        ({"producers": OPEN}, set()),
        ({"producers": OPEN, "high_watermark": 220}, set()),
    ],
)
def test_what_more_records_do_not_help(options: dict[str, Any], expected: set[How]) -> None:
    config = replace(CONFIG, segment_bytes=1000, segment_ms=20_000, min_cleanable_dirty_ratio=0.45)
    found = explain(planned(log_of(*GROWING, checkpoint=100, end=300), config, **options))
    assert {each.how for each in found.forecasts} == expected


def test_an_estimate_counts_on_what_is_too_young_today() -> None:
    """The closed segment of 600 bytes is old enough when 500 bytes more are."""
    config = replace(CONFIG, segment_bytes=500, min_compaction_lag_ms=9000)
    young = segment(100, 600, first=NOW - 10_000, largest=NOW - 8000)
    plan = planned(log_of(GROWING[0], young, segment(200, 100, first=NOW - 1), checkpoint=100, end=300), config)
    growth = growth_of(plan)
    assert growth is not None
    assert missing_dirty_bytes(plan) == 1001
    assert estimated_ms(plan, growth) == NOW + 15_000  # 70 bytes a second: 6 seconds for 400 bytes.


@pytest.mark.parametrize(
    "segments",
    [
        (segment(0, 0, first=None),),
        (segment(0, first=-1),),
        (segment(0, first=NOW),),  # Nothing of it is in the past.
    ],
)
def test_a_log_that_does_not_tell_how_it_grows(segments: tuple[Segment, ...]) -> None:
    assert growth_of(planned(log_of(*segments, end=100))) is None


def test_a_cleaned_segment_does_not_tell_how_a_log_grows() -> None:
    found = growth_of(planned(log_of(*GROWING, checkpoint=150, end=300)))
    assert found is not None
    assert found.segments == 1


# Which setting changes it


@given(plans())
def test_a_setting_changes_the_verdict_and_the_next_value_does_not(plan: CleanPlan) -> None:
    for today in conditions_of(plan):
        remedy = today.remedy
        if remedy is None or remedy.at_append or today.name not in SETTINGS:
            continue
        changed = with_setting(plan, remedy, remedy.value)
        assert changed.eligible == remedy.makes_eligible
        if today.name is ConditionName.MIN_LAG and today.verdict is Verdict.LIMITS:
            assert _young(changed) != _young(plan)
            assert _young(with_setting(plan, remedy, int(remedy.value) + 1)) == _young(plan)
            continue
        assert condition(changed, today.name).verdict is not today.verdict
        beyond = next_value(remedy)
        if beyond is not None:
            assert condition(with_setting(plan, remedy, beyond), today.name).verdict is today.verdict


SETTINGS = {ConditionName.POLICY, ConditionName.MIN_LAG, ConditionName.MAX_LAG, ConditionName.RATIO}


def next_value(remedy: Remedy) -> int | float | None:
    """Return the next value towards the one of today."""
    match remedy.value:
        case float():
            return math.nextafter(remedy.value, 1.0)
        case int():
            return remedy.value + 1
    return None


@given(plans())
def test_what_blocks_has_a_setting_if_there_is_one(plan: CleanPlan) -> None:
    for today in conditions_of(plan):
        if today.verdict is Verdict.BLOCKS and today.name in (ConditionName.POLICY, ConditionName.MIN_LAG):
            assert today.remedy is not None
        if today.verdict is Verdict.BLOCKS and today.name is ConditionName.RATIO and plan.cleanable_bytes:
            assert today.remedy is not None


@given(plans())
def test_a_setting_that_closes_the_active_segment(plan: CleanPlan) -> None:
    for remedy in explain(plan).remedies:
        if not remedy.at_append:
            continue
        assert remedy.name in ("segment.ms", "max.compaction.lag.ms")
        rolls_today = rolls_from_ms(plan) in range(plan.now_ms + 1)
        changed = with_setting(plan, remedy, remedy.value)
        assert rolls_from_ms(changed) in range(plan.now_ms + 1)
        assert planned_after_roll(changed).eligible == remedy.makes_eligible
        changed = with_setting(plan, remedy, int(remedy.value) + 1)
        assert (rolls_from_ms(changed) in range(plan.now_ms + 1)) == rolls_today


@pytest.mark.parametrize(
    ("segments", "settings", "expected"),
    [
        # The older one alone is half of the log, which is not enough; with the younger one it is.
        (
            (segment(0), segment(100, largest=NOW - 90), segment(200, largest=NOW - 50), segment(300)),
            {"min_compaction_lag_ms": 100},
            ["min.compaction.lag.ms=50; while it stays, consumers that are behind miss older values sooner"],
        ),
        (
            (segment(0, 1000), segment(100, largest=NOW - 90, first=NOW - 95), segment(200)),
            {"min_compaction_lag_ms": 100},
            ["min.compaction.lag.ms=90; but ratio 0.0909 is not above 0.5"],
        ),
        (
            (segment(0, 1000), segment(100, first=NOW - 60)),
            {"segment_ms": 1000},
            [
                "segment.ms=59: the next record closes the active segment; but ratio 0.0909 is not above 0.5",
                "max.compaction.lag.ms=59: the next record closes the active segment; "
                "take it back afterwards: while it stays, a segment is closed every 59 ms",
            ],
        ),
        (
            (segment(0, 1000), segment(100, first=NOW - 60)),
            {"segment_ms": 1000, "max_compaction_lag_ms": 59},  # The next record closes it already.
            [],
        ),
        (
            (segment(0, 1000), segment(100, first=NOW - 60), segment(200)),
            {"max_compaction_lag_ms": 59},  # It is cleaned at any ratio.
            [],
        ),
        (
            (segment(0, 1000), segment(100, first=NOW - 60, largest=NOW - 60)),
            {"segment_ms": 1000, "min_compaction_lag_ms": 60},  # Kafka accepts no maximum below it.
            ["segment.ms=59: the next record closes the active segment; but ratio 0.0909 is not above 0.5"],
        ),
    ],
)
def test_the_settings_that_are_shown(
    segments: tuple[Segment, ...], settings: dict[str, Any], expected: list[str]
) -> None:
    log = log_of(*segments, checkpoint=100, end=segments[-1].base_offset + 100)
    found = explain(planned(log, replace(CONFIG, **settings)))
    assert [each.sentence for each in found.remedies] == expected


@given(plans())
def test_segment_ms_rolls_at_a_record_of_now(plan: CleanPlan) -> None:
    remedy = condition(plan, ConditionName.ACTIVE_SEGMENT).remedy
    if remedy is None:
        return
    assert rolls_from_ms(with_setting(plan, remedy, remedy.value)) == min(NOW, rolls_from_ms(plan) or NOW)
    beyond = rolls_from_ms(with_setting(plan, remedy, int(remedy.value) + 1))
    assert beyond == min(NOW + 1, rolls_from_ms(plan) or NOW + 1)


@given(plans())
def test_the_text_of_a_setting_has_the_same_effect(plan: CleanPlan) -> None:
    """For people a value is rounded, away from that of today."""
    for today in conditions_of(plan):
        remedy = today.remedy
        if remedy is None or not isinstance(remedy.value, int | float) or today.name not in SETTINGS:
            continue
        shown = type(remedy.value)(remedy.text.partition("=")[2])
        assert 0 <= shown <= remedy.value
        again = with_setting(plan, remedy, shown)
        if remedy.at_append:
            assert planned_after_roll(again).eligible == remedy.makes_eligible
        elif today.name is ConditionName.RATIO:
            assert condition(again, ConditionName.RATIO).verdict is Verdict.TRIGGERS
        else:
            assert again.eligible >= remedy.makes_eligible


@pytest.mark.parametrize(
    ("name", "value", "least", "rounded"),
    [
        ("min.compaction.lag.ms", 0, 0, "0"),
        ("min.compaction.lag.ms", 9_999, 0, "9999"),
        ("min.compaction.lag.ms", 12_345, 0, "12000"),
        ("segment.ms", 3_599_999, 0, "3540000"),
        ("segment.ms", 35_999_999, 0, "35940000"),
        ("segment.ms", 36_000_001, 0, "36000000"),
        ("max.compaction.lag.ms", 864_000_001, 0, "864000000"),
        ("max.compaction.lag.ms", 3_599_999, 3_599_000, "3599000"),
        ("min.cleanable.dirty.ratio", 0.4375, 0, "0.43"),
        ("log.cleaner.dedupe.buffer.size", 1, 0, "1048576"),
    ],
)
def test_values_are_rounded_to_what_people_type(name: str, value: int | float, least: int, rounded: str) -> None:
    assert Remedy(name=name, value=value, least=least).rounded == rounded


def test_what_is_overdue_is_not_asked_for_another_ratio() -> None:
    log = log_of(segment(0, 1000), segment(100, first=NOW - 60), segment(200), checkpoint=100, end=300)
    plan = planned(log, replace(CONFIG, max_compaction_lag_ms=59))
    assert plan.eligible
    assert condition(plan, ConditionName.RATIO).remedy is None


# How much more


@given(plans(), st.integers(0, 10**12))
def test_so_many_dirty_bytes_are_missing(plan: CleanPlan, clean_bytes: int) -> None:
    plan = replace(plan, clean_bytes=clean_bytes)
    missing = missing_dirty_bytes(plan)
    minimum = plan.config.min_cleanable_dirty_ratio

    def ratio(more: int) -> float:
        total = plan.clean_bytes + plan.cleanable_bytes + more
        return (plan.cleanable_bytes + more) / total if total else 0.0

    if missing is None:
        assert not ratio(LONG_MAX) > minimum
        return

    assert ratio(missing) > minimum
    assert not missing or not ratio(missing - 1) > minimum


@pytest.mark.parametrize(
    "settings",
    [
        {"min_cleanable_dirty_ratio": math.nextafter(1.0, 0.0)},
        {"min_cleanable_dirty_ratio": 5e-324},
        {"log_cleaner_io_buffer_load_factor": 1e308},
        {"log_cleaner_io_buffer_load_factor": 5e-324},
        {"log_cleaner_io_max_bytes_per_second": 5e-324},
        {"log_cleaner_io_max_bytes_per_second": 1e308},
        {"log_cleaner_dedupe_buffer_size": LONG_MAX},
        {"delete_retention_ms": LONG_MAX, "retention_ms": LONG_MAX, "segment_ms": LONG_MAX},
        {"min_compaction_lag_ms": LONG_MAX, "max_compaction_lag_ms": LONG_MAX},
    ],
)
def test_extreme_settings_are_explained(settings: dict[str, Any]) -> None:
    log = log_of(segment(0, 10**15), segment(100), segment(200, first=5), checkpoint=100, end=300)
    found = explain(planned(log, replace(CONFIG, **settings)))
    assert json.loads(json.dumps(EXPLANATION.of(found), allow_nan=False))
    assert all(len(each.explanation) < 400 for each in found.conditions)


@given(st.integers(0, 10**8), st.integers(1, 5), st.sampled_from([0.01, 0.5, 0.75, 0.9, 1.0]))
def test_the_buffer_for_one_pass(keys: int, threads: int, load_factor: float) -> None:
    config = TopicConfig(log_cleaner_threads=threads, log_cleaner_io_buffer_load_factor=load_factor)
    buffer = buffer_bytes_for_one_pass(config, keys)

    def suffices(buffer_bytes: int) -> bool:
        changed = replace(config, log_cleaner_dedupe_buffer_size=buffer_bytes)
        return keys <= min(keys_per_pass(changed), offset_map_slots(changed))

    if buffer is None:
        assert not suffices(LONG_MAX)
        return
    assert suffices(buffer)
    assert buffer // threads > 1 << 20
    assert (buffer - 1) // threads <= 1 << 20 or not suffices(buffer - 1)


def test_a_merge_that_keeps_what_is_due() -> None:
    log = log_of(segment(0, first=5, largest=5), segment(100, first=NOW, largest=NOW), segment(200, first=NOW))
    config = replace(CONFIG, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000)
    found = explain(planned(log, config))
    retention = condition(found.plan, ConditionName.RETENTION)
    assert retention.verdict is Verdict.DELAYS
    assert retention.explanation == "the cleaning merges segments that are due with younger ones, so they stay"
    assert (found.retention.segments, found.retention.postponed_segments) == (0, 1)
    kept = explain(planned(log, replace(config, segment_bytes=150)))
    assert (kept.retention.segments, kept.retention.size_bytes, kept.retention.postponed_segments) == (1, 100, 0)
    assert not kept.retention.is_at_most
    by_size = explain(planned(log, replace(config, retention_ms=-1, retention_bytes=100, segment_bytes=150)))
    assert (by_size.retention.segments, by_size.retention.is_at_most) == (2, True)
    asks_nothing = replace(config, retention_ms=-1, retention_bytes=100, min_cleanable_dirty_ratio=1)
    assert not explain(planned(log, asks_nothing)).retention.is_at_most


def test_a_setting_of_the_same_value_changes_nothing() -> None:
    plan = planned(log_of(segment(0), segment(100)))
    assert compare(plan, plan.config).differences == {}


def test_what_a_comparison_finds() -> None:
    log: PartitionLog = log_of(segment(0, 300), segment(100, 100, first=5), segment(200, 10, first=7), checkpoint=100)
    plan = planned(log)
    found = compare(plan, replace(plan.config, min_cleanable_dirty_ratio=0.2, delete_retention_ms=5))
    assert found.differences["reason"] == (Reason.BELOW_RATIO, Reason.DIRTY_RATIO)
    assert found.differences["groups"] == (0, 1)
    assert found.differences["delete_horizon_ms"] == (plan.now_ms + 86_400_000, plan.now_ms + 5)
    assert isinstance(explain(plan), Explanation)
