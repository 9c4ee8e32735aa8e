"""The plan's parts as tables; its whole is in `cases/plan`, and beside Kafka's in `test_golden`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.config.settings import INT_MAX, TopicConfig
from kcompact.errors import CorruptDataError
from kcompact.format.names import TopicPartition
from kcompact.log.directory import LogDir, PartitionLog, Segment
from kcompact.log.files import FileIdentity
from kcompact.log.producer_state import Producer
from kcompact.plan.clean_plan import (
    ELIGIBLE,
    CleanPlan,
    Reason,
    Role,
    compaction_delay_ms,
    dirtiest_first,
    group_segments,
    offsets_to_clean,
    plan_cleaning,
)
from kcompact.plan.passes import kafka_passes_at_least, kafka_passes_at_most, keys_per_pass, offset_map_slots

CONFIG = TopicConfig(cleanup_policy=frozenset({"compact"}))
NOW = 1_000_000


def segment(
    base_offset: int,
    size_bytes: int = 100,
    *,
    largest: int = 0,
    first: int | None = 0,
    index_bytes: int = 0,
    time_index_bytes: int = 0,
) -> Segment:
    file = FileIdentity(name=f"{base_offset:020d}.log", device=1, inode=1, size_bytes=size_bytes, mtime_ns=0)
    return Segment(
        base_offset=base_offset,
        size_bytes=size_bytes,
        index_bytes=index_bytes,
        time_index_bytes=time_index_bytes,
        largest_timestamp_ms=largest,
        first_batch_max_timestamp_ms=first,
        last_modified_ms=0,
        files=(file,),
    )


def log_of(
    *segments: Segment, end: int = 400, checkpoint: int | None = None, start: int | None = None, name: str = "orders-0"
) -> PartitionLog:
    partition = TopicPartition.parse(name)
    assert partition is not None
    return PartitionLog(
        directory=Path(name),
        topic_partition=partition,
        log_dir=LogDir(path=Path()),
        segments=segments,
        snapshots={},
        log_start_offset=segments[0].base_offset if start is None else start,
        log_end_offset=end,
        checkpoint_offset=checkpoint,
    )


FOUR = (segment(0, largest=10), segment(100, largest=30), segment(200, largest=20), segment(300, largest=40))


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
        # Too young is what is greater than now - lag; the third segment is older and not reached.
        (None, None, 400, NOW - 29, (0, 100, Reason.MIN_COMPACTION_LAG, False)),
        (None, None, 400, NOW - 30, (0, 300, Reason.ACTIVE_ONLY, False)),
        (200, None, 400, NOW - 25, (200, 300, Reason.ACTIVE_ONLY, False)),
        (150, None, 400, NOW - 25, (150, 100, Reason.MIN_COMPACTION_LAG, False)),
        (None, None, 400, NOW, (0, 0, Reason.MIN_COMPACTION_LAG, False)),
    ],
)
def test_offsets_to_clean(
    checkpoint: int | None, start: int | None, stable: int, lag: int, expected: tuple[int, int, Reason, bool]
) -> None:
    found = offsets_to_clean(
        log_of(*FOUR, checkpoint=checkpoint, start=start),
        replace(CONFIG, min_compaction_lag_ms=lag),
        now_ms=NOW,
        high_watermark=400,
        last_stable_offset=stable,
    )
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.bound, found.reset) == expected


def test_a_stable_offset_at_the_high_watermark_is_bounded_by_that() -> None:
    found = offsets_to_clean(log_of(*FOUR), CONFIG, now_ms=NOW, high_watermark=250, last_stable_offset=250)
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


# --- The verdict -----------------------------------------------------------------------------------------------


def planned(log: PartitionLog, config: TopicConfig = CONFIG, **options: object) -> CleanPlan:
    arguments: dict[str, object] = {"now_ms": NOW, "producers": {}, **options}
    return plan_cleaning(log, config, **arguments)  # type: ignore[arg-type]


OPEN = {7: Producer(producer_id=7, epoch=0, transaction_first_offset=50)}
DAMAGE = CorruptDataError(file="f", problem="torn")
BROKER = LogDir(path=Path(), is_log_dir=True)
LOG = log_of(*FOUR)
CLEAN = log_of(*FOUR, checkpoint=200)
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
    (Reason.POLICY_UNKNOWN, LOG, TopicConfig(), {"force": True}),
    (Reason.POLICY_DELETE, LOG, TopicConfig(cleanup_policy=frozenset({"delete"})), {"force": True}),
    (Reason.POLICY_DELETE, LOG, TopicConfig(cleanup_policy=frozenset()), {}),
    (Reason.INTERNAL, OF_COORDINATOR, CONFIG, {"force": True}),
    (Reason.DIRTY_RATIO, OF_COORDINATOR, CONFIG, {"include_internal": True}),
    (Reason.INTERNAL, METADATA, CONFIG, {"include_internal": True}),
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
    # What is no partition at all has no plan; its verdict belongs to the command line.
    assert {reason for reason, *_ in VERDICTS} == set(Reason) - {Reason.NOT_A_PARTITION}


def test_sizes_and_ratio() -> None:
    plan = planned(log_of(*FOUR, checkpoint=150))
    assert (plan.clean_bytes, plan.cleanable_bytes, plan.cleanable_ratio) == (200, 200, 0.5)
    assert plan.reason is Reason.BELOW_RATIO
    plan = planned(log_of(*FOUR, checkpoint=150), producers={7: replace(OPEN[7], transaction_first_offset=250)})
    assert (plan.clean_bytes, plan.cleanable_bytes) == (200, 100)
    assert plan.cleanable_ratio == pytest.approx(1 / 3)
    assert plan.last_stable_offset == 250


def test_a_first_dirty_offset_in_the_active_segment_makes_it_count_as_clean() -> None:
    plan = planned(log_of(*FOUR, checkpoint=350))
    assert (plan.clean_bytes, plan.cleanable_bytes) == (400, 0)


@pytest.mark.parametrize(("high_watermark", "expected"), [(None, 400), (300, 300), (4000, 400)])
def test_the_high_watermark_lies_in_the_log(high_watermark: int | None, expected: int) -> None:
    plan = planned(LOG, high_watermark=high_watermark)
    assert (plan.high_watermark, plan.last_stable_offset) == (expected, expected)


def test_a_high_watermark_below_the_log_start_is_raised_to_it() -> None:
    plan = planned(log_of(*FOUR, start=60), high_watermark=50)
    assert (plan.high_watermark, plan.last_stable_offset) == (60, 60)


@pytest.mark.parametrize(("unstable", "expected"), [(40, 40), (250, 250), (500, 400)])
def test_nothing_is_stable_from_the_first_unstable_offset_on(unstable: int, expected: int) -> None:
    plan = planned(log_of(*FOUR, start=60), producers=OPEN, first_unstable_offset=unstable)
    assert plan.last_stable_offset == expected


def test_an_open_transaction_below_the_log_start_counts_from_there() -> None:
    assert planned(log_of(*FOUR, start=60), producers=OPEN).last_stable_offset == 60


def test_roles() -> None:
    plan = planned(log_of(*FOUR, checkpoint=150), high_watermark=250)
    roles = [plan.role_of(segment) for segment in plan.log.segments]
    assert roles == [Role.CLEAN, Role.DIRTY, Role.UNCLEANABLE, Role.ACTIVE]


def test_the_dirtiest_comes_first_and_equal_ones_by_name() -> None:
    names = ["b-0", "a-10", "a-9"]
    plans = [planned(log_of(*FOUR, name=name)) for name in names]
    plans.append(planned(log_of(*FOUR, name="a-0", checkpoint=150)))
    assert [str(plan.log.topic_partition) for plan in dirtiest_first(plans)] == ["a-9", "a-10", "b-0", "a-0"]


# --- The passes of Kafka's own cleaner ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("buffer_bytes", "threads", "load_factor", "slots", "full"),
    [
        (134_217_728, 1, 0.9, 5_592_405, 5_033_164),
        (134_217_728, 4, 0.9, 1_398_101, 1_258_290),
        (134_217_728, 3, 0.5, 1_864_135, 932_067),
        (1 << 40, 1, 0.9, 89_478_485, 80_530_636),  # An array of Java has no more than 2^31 - 1 bytes.
        (1 << 40, 1, 100.0, 89_478_485, INT_MAX),
        (240, 1, 1.0, 10, 10),
        (239, 1, 0.9, 9, 8),
        (24, 1, 0.9, 1, 0),
    ],
)
def test_how_many_keys_kafkas_map_takes(
    buffer_bytes: int, threads: int, load_factor: float, slots: int, full: int
) -> None:
    config = map_of(buffer_bytes, threads=threads, load_factor=load_factor)
    assert (offset_map_slots(config), keys_per_pass(config)) == (slots, full)


def map_of(buffer_bytes: int, *, threads: int = 1, load_factor: float = 1.0) -> TopicConfig:
    return replace(
        CONFIG,
        log_cleaner_dedupe_buffer_size=buffer_bytes,
        log_cleaner_threads=threads,
        log_cleaner_io_buffer_load_factor=load_factor,
    )


GAPS = log_of(segment(0), segment(100, 0), segment(900), segment(1000), end=1050)
"""Only 200 offsets of the closed segments are below a batch: between 100 and 900 there is none."""


@pytest.mark.parametrize(
    ("log", "slots", "load_factor", "expected"),
    [
        (LOG, 300, 1.0, 1),
        (LOG, 299, 1.0, 2),
        (LOG, 150, 1.0, 2),
        (LOG, 149, 1.0, 3),
        (LOG, 1, 1.0, 300),
        (CLEAN, 100, 1.0, 1),  # Dirty from 200 on.
        (CLEAN, 99, 1.0, 2),
        (log_of(*FOUR, checkpoint=250), 50, 1.0, 1),
        (log_of(*FOUR, checkpoint=250), 49, 1.0, 2),
        (log_of(*FOUR, checkpoint=300), 1, 1.0, 0),  # Nothing is cleanable.
        (log_of(segment(0, 0), segment(100), end=200), 1, 1.0, 0),
        (GAPS, 200, 1.0, 1),
        (GAPS, 199, 1.0, 2),
        (LOG, 300, 0.5, 2),
        (LOG, 1, 0.9, None),  # No key gets into the map.
        (LOG, 300, 2.0, 1),
        (LOG, 299, 2.0, None),  # More keys than the map has room for, and Kafka would try.
    ],
)
def test_the_passes_of_kafkas_cleaner(log: PartitionLog, slots: int, load_factor: float, expected: int | None) -> None:
    plan = planned(log, map_of(24 * slots, load_factor=load_factor))
    assert kafka_passes_at_most(plan) == expected


@pytest.mark.parametrize(
    ("map_keys", "slots", "load_factor", "at_least", "at_most"),
    [
        (0, 10, 1.0, 1, 1),
        (9, 10, 1.0, 1, 1),
        (10, 10, 1.0, 1, 30),  # Full with the last of them; whether more records follow is not known.
        (11, 10, 1.0, 2, 30),
        (300, 10, 1.0, 30, 30),
        (20, 10, 0.5, 4, 60),
        (10, 10, 2.0, 1, 1),
        (11, 10, 2.0, None, None),
        (1, 1, 0.9, None, None),
    ],
)
def test_known_keys_narrow_the_passes(
    map_keys: int, slots: int, load_factor: float, at_least: int | None, at_most: int | None
) -> None:
    plan = planned(LOG, map_of(24 * slots, load_factor=load_factor))
    assert kafka_passes_at_least(plan, map_keys=map_keys) == at_least
    assert kafka_passes_at_most(plan, map_keys=map_keys) == at_most
