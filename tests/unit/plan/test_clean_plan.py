"""`plan.clean_plan`, function by function. `tests/cases/plan` and `test_golden` test whole plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.config.settings import INT_MAX, TopicConfig
from kcompact.errors import CorruptDataError
from kcompact.log.directory import LogDir, PartitionLog
from kcompact.log.producer_state import Producer
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import (
    Role,
    compaction_delay_ms,
    dirtiest_first,
    group_segments,
    plan_cleaning,
    planned_again,
)
from kcompact.plan.verdict import ELIGIBLE, Reason
from tests.support.log_values import CLEAN, CONFIG, FOUR, LOG, NOW, log_of, planned, segment


@pytest.mark.parametrize(
    ("checkpoint", "start", "stable", "lag", "expected"),
    [
        # (first dirty, first uncleanable, bound, reset)
        (None, None, 400, 0, (0, 300, Reason.ACTIVE_ONLY, False)),
        (0, None, 400, 0, (0, 300, Reason.ACTIVE_ONLY, False)),
        (150, None, 400, 0, (150, 300, Reason.ACTIVE_ONLY, False)),
        (150, None, 250, 0, (150, 200, Reason.OPEN_TRANSACTION, False)),
        (150, None, 200, 0, (150, 200, Reason.OPEN_TRANSACTION, False)),
        (150, None, 199, 0, (150, 100, Reason.OPEN_TRANSACTION, False)),
        (150, None, 50, 0, (150, 100, Reason.OPEN_TRANSACTION, False)),
        (None, 50, 400, 0, (50, 300, Reason.ACTIVE_ONLY, False)),
        (49, 50, 400, 0, (50, 300, Reason.ACTIVE_ONLY, True)),
        (50, 50, 400, 0, (50, 300, Reason.ACTIVE_ONLY, False)),
        (400, None, 400, 0, (400, 300, Reason.ACTIVE_ONLY, False)),
        (401, None, 400, 0, (0, 300, Reason.ACTIVE_ONLY, True)),
        (350, None, 400, 0, (350, 300, Reason.ACTIVE_ONLY, False)),
        (None, 350, 400, 0, (350, 300, Reason.ACTIVE_ONLY, False)),
        # A segment is too young if its timestamp is above now - lag. The older third segment is not reached.
        (None, None, 400, NOW - 29, (0, 100, Reason.MIN_COMPACTION_LAG, False)),
        (None, None, 400, NOW - 30, (0, 300, Reason.ACTIVE_ONLY, False)),
        (200, None, 400, NOW - 25, (200, 300, Reason.ACTIVE_ONLY, False)),
        (150, None, 400, NOW - 25, (150, 100, Reason.MIN_COMPACTION_LAG, False)),
        (None, None, 400, NOW, (0, 0, Reason.MIN_COMPACTION_LAG, False)),
    ],
)
def test_the_cleanable_range(
    checkpoint: int | None, start: int | None, stable: int, lag: int, expected: tuple[int, int, Reason, bool]
) -> None:
    found = plan_cleaning(
        log_of(*FOUR, checkpoint=checkpoint, start=start),
        replace(CONFIG, min_compaction_lag_ms=lag),
        now_ms=NOW,
        producers={},
        high_watermark=400,
        first_unstable_offset=stable,
    )
    offsets = found.first_dirty_offset, found.first_uncleanable_offset
    assert (*offsets, found.bound, found.checkpoint_reset) == expected


def test_the_high_watermark_is_the_bound_without_an_open_transaction() -> None:
    found = plan_cleaning(log_of(*FOUR), CONFIG, now_ms=NOW, producers={}, high_watermark=250)
    assert (found.first_uncleanable_offset, found.bound) == (200, Reason.HIGH_WATERMARK)


@pytest.mark.parametrize(
    ("firsts", "first_dirty", "lag", "expected"),
    [
        ([10, 20, 30], 0, 100, NOW - 110),
        ([10, 20, 30], 100, 100, NOW - 120),
        ([10, 20, 30], 150, 100, NOW - 120),
        ([30, 10, 20], 0, 100, NOW - 110),
        ([NOW, NOW, NOW], 0, 0, 0),
        ([10, 20, 30], 0, NOW - 10, 0),
        ([10, 20, 30], 0, NOW - 11, 1),
        ([0, -1, None], 0, 100, 0),
        ([0, -1, 30], 0, 100, NOW - 130),
        ([10, 20, 30], 300, 100, 0),
        ([10, 20, 30], 400, 100, 0),
    ],
)
def test_compaction_delay(firsts: list[int | None], first_dirty: int, lag: int, expected: int) -> None:
    segments = [segment(100 * number, first=first) for number, first in enumerate(firsts)]
    log = log_of(*segments, segment(300, first=1))
    found = compaction_delay_ms(log, first_dirty_offset=first_dirty, max_compaction_lag_ms=lag, now_ms=NOW)
    assert found == expected


def groups_of(segments: Sequence[Segment], *, size: int = INT_MAX, index: int = INT_MAX, end: int) -> list[list[int]]:
    found = group_segments(segments, segment_bytes=size, segment_index_bytes=index, first_uncleanable_offset=end)
    return [[member.base_offset for member in group] for group in found]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([400, 500, 200, 0, 900], [[0, 10], [20, 30], [40]]),
        ([1000, 1], [[0], [10]]),
        ([1001, 0], [[0], [10]]),
        ([0, 0, 1000, 0], [[0, 10, 20, 30]]),
        ([500, 500, 0, 1], [[0, 10, 20], [30]]),
        ([2000, 2000, 100], [[0], [10], [20]]),
    ],
)
def test_groups_by_size(sizes: list[int], expected: list[list[int]]) -> None:
    segments = [segment(10 * number, size) for number, size in enumerate(sizes)]
    assert groups_of(segments, size=1000, end=100) == expected


@pytest.mark.parametrize("which", ["index_bytes", "time_index_bytes"])
def test_groups_by_index_size(which: str) -> None:
    sizes = enumerate([50, 50, 1, 99, 10_000])
    if which == "index_bytes":
        segments = [segment(10 * number, index_bytes=size) for number, size in sizes]
    else:
        segments = [segment(10 * number, time_index_bytes=size) for number, size in sizes]
    assert groups_of(segments, index=100, end=100) == [[0, 10], [20, 30], [40]]


@pytest.mark.parametrize(
    ("bases", "empty", "end", "expected"),
    [
        ([0, 10], [], INT_MAX + 1, [[0, 10]]),
        ([0, 10], [], INT_MAX + 2, [[0], [10]]),
        ([5, 10], [], INT_MAX + 6, [[5, 10]]),
        ([0, 10, INT_MAX + 1], [], INT_MAX + 10, [[0, 10], [INT_MAX + 1]]),
        ([0, 10, INT_MAX + 2], [], INT_MAX + 10, [[0], [10, INT_MAX + 2]]),
        ([0, 10, INT_MAX + 2], [10], INT_MAX + 10, [[0, 10], [INT_MAX + 2]]),
        ([0, 10, 9 * INT_MAX], [10, 9 * INT_MAX], 10 * INT_MAX, [[0, 10, 9 * INT_MAX]]),
        ([0], [], 10 * INT_MAX, [[0]]),
    ],
)
def test_groups_by_offsets(bases: list[int], empty: list[int], end: int, expected: list[list[int]]) -> None:
    segments = [segment(base, 0 if base in empty else 100) for base in bases]
    assert groups_of(segments, end=end) == expected


OPEN = {7: Producer(producer_id=7, epoch=0, transaction_first_offset=50)}
DAMAGE = CorruptDataError(file="f", problem="torn")
BROKER = LogDir(path=Path(), is_log_dir=True)
YOUNG = replace(CONFIG, min_compaction_lag_ms=NOW)
LATE = replace(CONFIG, max_compaction_lag_ms=1)
OF_COORDINATOR = log_of(*FOUR, name="__consumer_offsets-0")
METADATA = log_of(*FOUR, name="__cluster_metadata-0")

VERDICTS: list[tuple[Reason, PartitionLog, TopicConfig, dict[str, object]]] = [
    (Reason.DIRTY_RATIO, LOG, CONFIG, {}),
    (Reason.BELOW_RATIO, CLEAN, CONFIG, {}),
    (Reason.FORCED, CLEAN, CONFIG, {"force": True}),
    (Reason.DIRTY_RATIO, LOG, CONFIG, {"force": True}),
    (Reason.MAX_COMPACTION_LAG, log_of(segment(0), segment(100, 10, first=5), segment(200), checkpoint=100), LATE, {}),
    (Reason.EMPTY, log_of(segment(0, 0), end=0), CONFIG, {}),
    (Reason.EMPTY, log_of(segment(0, 0), segment(5, 0), end=5), CONFIG, {}),
    (Reason.NOTHING_DIRTY, log_of(segment(0), segment(100, 0), end=100, checkpoint=100), CONFIG, {}),
    (Reason.NOTHING_DIRTY, log_of(segment(0), segment(100), end=150, checkpoint=150), CONFIG, {}),
    (Reason.ACTIVE_ONLY, log_of(segment(0), end=10), CONFIG, {}),
    (Reason.ACTIVE_ONLY, log_of(segment(0), end=10), CONFIG, {"force": True}),
    (Reason.ACTIVE_ONLY, log_of(segment(0), segment(100), end=150, checkpoint=100), CONFIG, {}),
    (Reason.MIN_COMPACTION_LAG, LOG, YOUNG, {}),
    (Reason.MIN_COMPACTION_LAG, LOG, YOUNG, {"force": True}),
    (Reason.OPEN_TRANSACTION, LOG, CONFIG, {"producers": OPEN}),
    (Reason.HIGH_WATERMARK, LOG, CONFIG, {"high_watermark": 50}),
    (Reason.HIGH_WATERMARK, LOG, CONFIG, {"high_watermark": 50, "producers": OPEN}),
    (Reason.RECOVERY_POINT, replace(LOG, recovered_from=0, log_dir=BROKER), CONFIG, {"force": True}),
    (Reason.DIRTY_RATIO, replace(LOG, recovered_from=200, log_dir=BROKER), CONFIG, {}),
    (Reason.UNCLEAN_SHUTDOWN, replace(LOG, damage=(DAMAGE,), log_dir=BROKER), CONFIG, {}),
    (Reason.CORRUPT, replace(LOG, damage=(DAMAGE,), log_dir=BROKER, recovered_from=200), CONFIG, {}),
    (Reason.POLICY_UNKNOWN, LOG, TopicConfig(), {"force": True}),
    (Reason.POLICY_DELETE, LOG, TopicConfig(cleanup_policy=frozenset({"delete"})), {"force": True}),
    (Reason.POLICY_DELETE, LOG, TopicConfig(cleanup_policy=frozenset()), {}),
    (Reason.INTERNAL, OF_COORDINATOR, CONFIG, {"force": True}),
    (Reason.DIRTY_RATIO, OF_COORDINATOR, CONFIG, {"include_internal": True}),
    (Reason.INTERNAL, METADATA, CONFIG, {"include_internal": True}),
    (Reason.PAUSED_BY_MOVE, replace(LOG, moves=(Path("/d2/orders-0.0-future"),)), CONFIG, {"force": True}),
    (Reason.LEFTOVERS, replace(LOG, leftovers=("x.log.swap",)), CONFIG, {"force": True}),
    (Reason.LEFTOVERS, replace(LOG, staging=(".kcompact-7f",)), CONFIG, {}),
    (Reason.CORRUPT, replace(LOG, damage=(DAMAGE,)), CONFIG, {"force": True}),
    (Reason.CORRUPT, replace(LOG, damage=(DAMAGE,), leftovers=("x.log.swap",)), TopicConfig(), {}),
    (Reason.UNCLEAN_SHUTDOWN, replace(LOG, log_dir=BROKER), CONFIG, {"force": True}),
    (Reason.DIRTY_RATIO, replace(LOG, log_dir=replace(BROKER, is_clean_shutdown=True)), CONFIG, {}),
]


@pytest.mark.parametrize(("reason", "log", "config", "options"), VERDICTS)
def test_verdicts(reason: Reason, log: PartitionLog, config: TopicConfig, options: dict[str, object]) -> None:
    plan = planned(log, config, **options)
    assert plan.reason is reason
    assert plan.explanation
    assert plan.eligible == (reason in ELIGIBLE) == bool(plan.groups) == bool(plan.segments)


def test_every_verdict_is_reached() -> None:
    # A directory that is not a partition has no plan; the command line reports that reason.
    assert {reason for reason, *_ in VERDICTS} == set(Reason) - {Reason.NOT_A_PARTITION}


def test_sizes_and_ratio() -> None:
    plan = planned(log_of(*FOUR, checkpoint=150))
    assert (plan.clean_bytes, plan.cleanable_bytes, plan.cleanable_ratio) == (200, 200, 0.5)
    assert plan.reason is Reason.BELOW_RATIO
    plan = planned(log_of(*FOUR, checkpoint=150), producers={7: replace(OPEN[7], transaction_first_offset=250)})
    assert (plan.clean_bytes, plan.cleanable_bytes) == (200, 100)
    assert plan.cleanable_ratio == pytest.approx(1 / 3)
    assert plan.last_stable_offset == 250


def test_an_active_segment_with_the_first_dirty_offset_counts_as_clean() -> None:
    plan = planned(log_of(*FOUR, checkpoint=350))
    assert (plan.clean_bytes, plan.cleanable_bytes) == (400, 0)


@pytest.mark.parametrize(("high_watermark", "expected"), [(None, 400), (300, 300), (4000, 400)])
def test_the_high_watermark_is_limited_to_the_log(high_watermark: int | None, expected: int) -> None:
    plan = planned(LOG, high_watermark=high_watermark)
    assert (plan.high_watermark, plan.last_stable_offset) == (expected, expected)


def test_a_high_watermark_below_the_log_start_is_raised_to_it() -> None:
    plan = planned(log_of(*FOUR, start=60), high_watermark=50)
    assert (plan.high_watermark, plan.last_stable_offset) == (60, 60)


@pytest.mark.parametrize(("unstable", "expected"), [(40, 40), (250, 250), (500, 400)])
def test_the_last_stable_offset_is_at_most_the_first_unstable_offset(unstable: int, expected: int) -> None:
    plan = planned(log_of(*FOUR, start=60), producers=OPEN, first_unstable_offset=unstable)
    assert plan.last_stable_offset == expected


def test_an_open_transaction_below_the_log_start_counts_from_the_log_start() -> None:
    assert planned(log_of(*FOUR, start=60), producers=OPEN).last_stable_offset == 60


def test_roles() -> None:
    plan = planned(log_of(*FOUR, checkpoint=150), high_watermark=250)
    roles = [plan.role_of(segment) for segment in plan.log.segments]
    assert roles == [Role.CLEAN, Role.DIRTY, Role.UNCLEANABLE, Role.ACTIVE]


def test_the_dirtiest_log_comes_first_and_equal_ratios_are_ordered_by_name() -> None:
    names = ["b-0", "a-10", "a-9"]
    plans = [planned(log_of(*FOUR, name=name)) for name in names]
    plans.append(planned(log_of(*FOUR, name="a-0", checkpoint=150)))
    assert [str(plan.log.topic_partition) for plan in dirtiest_first(plans)] == ["a-9", "a-10", "b-0", "a-0"]


def test_a_plan_made_again_has_the_bounds_and_the_leave_of_the_first() -> None:
    held_back = planned(LOG, high_watermark=250)
    assert (held_back.high_watermark, held_back.first_uncleanable_offset) == (250, 200)
    assert planned_again(held_back) == held_back
    assert planned_again(held_back, is_replicated=True).first_uncleanable_offset == 300
    offsets = log_of(*FOUR, name="__consumer_offsets-0")
    for is_allowed, reason in ((False, Reason.INTERNAL), (True, Reason.DIRTY_RATIO)):
        plan = planned(offsets, include_internal=is_allowed)
        assert plan.reason is planned_again(plan).reason is reason
