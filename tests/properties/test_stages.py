"""The stages, compared with the plain reference cleaner on random logs, however the work is divided."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kcompact.clean.groups import count_groups
from kcompact.clean.held_back import HeldBack, held_back_at_most
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.format.batch import parse_batches
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.replicas import OtherReplica
from tests.support import reference_cleaner, strategies
from tests.support.history_logs import random_log
from tests.support.log_writer import LogSpec, SegmentSpec
from tests.support.machine_code import switched
from tests.support.parameters import few_examples, one_in
from tests.support.shuffled import Shuffled
from tests.support.stages import plan_of, staged

executors = st.builds(Shuffled, seed=st.integers(0, 99), parallelism=st.integers(1, 5))
any_sizes = st.builds(
    Tuning,
    split_bytes=st.sampled_from([1, 100, 300, 10**9]),
    task_bytes=st.sampled_from([1, 150, 400, 10**9]),
    bucket_count=st.sampled_from([None, 1, 2, 7]),
    memory_bytes=st.sampled_from([None, 1]),
)


def agree(
    spec: LogSpec, *, keep_tombstones: bool = False, replica_end: int | None = None, compiled: bool = False
) -> reference_cleaner.Outcome:
    """Clean a log with kcompact and the reference cleaner, compare, and return the outcome."""
    expected = reference_cleaner.clean(spec, keep_tombstones=keep_tombstones, held_back_from_offset=replica_end)
    with tempfile.TemporaryDirectory() as scratch:
        plan = held_back_for(plan_of(spec, Path(scratch) / "logs"), replica_end)
        assert (plan.first_dirty_offset, plan.first_uncleanable_offset) == reference_cleaner.dirty_range(spec)
        assert plan.eligible == bool(plan.cleanable_bytes)
        if not plan.eligible:
            return expected
        with switched(compiled=compiled):
            files, stats = staged(plan, InProcess(), sizes=Tuning(), keep_tombstones=keep_tombstones)
        assert [[segment.base_offset for segment in group] for group in plan.groups] == expected.groups
    for name in files:
        assert files[name] == expected.files[name], name
    assert files.keys() == expected.files.keys()
    for count in ("messages_read", "messages_written", "invalid_messages", "map_keys"):
        assert getattr(stats, count) == getattr(expected, count), count
    assert stats.bytes_read == sum(segment.size_bytes for segment in plan.segments)
    return expected


def held_back_for(plan: CleanPlan, replica_end: int | None) -> CleanPlan:
    """Return the plan with a replica that ends there."""
    other = OtherReplica(path=Path("orders-0"), end_offset=replica_end, fetches_from_offset=replica_end)
    return replace(plan, replicas=(other,))


@given(strategies.logs(), st.booleans(), st.booleans())
def test_the_result_is_the_references(spec: LogSpec, keep_tombstones: bool, compiled: bool) -> None:
    agree(spec, keep_tombstones=keep_tombstones, compiled=compiled)


@given(strategies.logs(), st.integers(0, 40), st.booleans())
def test_what_is_held_back_is_the_references(spec: LogSpec, replica_end: int, compiled: bool) -> None:
    agree(spec, replica_end=replica_end, compiled=compiled)


@pytest.mark.long
@pytest.mark.parametrize("seeds", [30, pytest.param(120, marks=pytest.mark.slow)])
@pytest.mark.parametrize("compiled", one_in(2, [True, False]))
def test_above_a_replicas_end_nothing_expires_and_all_else_is_kafkas(
    tmp_path: Path, compiled: bool, seeds: int
) -> None:
    """Transactions too: below the end a plain cleaning, above it one before all delete horizons."""
    held_back = HeldBack()
    for seed in range(seeds):
        spec = random_log(seed)
        settings = {**spec.settings, "min.cleanable.dirty.ratio": "0"}
        spec = replace(spec, now_ms=spec.now_ms + seed % 3 * strategies.HOUR, settings=settings, checkpoint=None)
        plan = plan_of(spec, tmp_path / str(seed))
        if not plan.eligible:
            continue
        first_offset, log_end = spec.segments[0].base_offset, plan.log.log_end_offset
        end_offset = first_offset + (log_end - first_offset) * (seed % 5) // 4
        with switched(compiled=compiled):
            lagging = held_back_for(as_markers_say(plan), end_offset)
            found = HeldBack.of(count_groups(prepare_clean(lagging, InProcess())).counts)
            most = held_back_at_most(lagging)
            held = staged(held_back_for(plan, end_offset), InProcess(), rebuild_indexes=True)[0]
            plain, keeping = (
                staged(plan, InProcess(), rebuild_indexes=True, keep_tombstones=keeps)[0] for keeps in (False, True)
            )
        held_back = HeldBack(
            tombstones=held_back.tombstones + found.tombstones, markers=held_back.markers + found.markers
        )
        assert (found.tombstones <= most.tombstones, found.markers <= most.markers) == (True, True), seed
        expected = [each for each in batches_in(plain) if each[0] < end_offset]
        assert batches_in(held) == expected + [each for each in batches_in(keeping) if each[0] >= end_offset], seed
        assert {name: held[name] for name in plain if name.endswith(".txnindex")} == {
            name: plain[name] for name in plain if name.endswith(".txnindex")
        }
    assert held_back.tombstones > 10
    assert held_back.markers > 3


def as_markers_say(plan: CleanPlan) -> CleanPlan:
    """Return the plan without its index files, which lack the aborted transactions."""
    return replace(plan, log=replace(plan.log, ignores_indexes=True))


def batches_in(files: dict[str, bytes]) -> list[tuple[int, bytes]]:
    """Return the last offset and the bytes of each batch of the staged logs."""
    logs = [data for name, data in sorted(files.items()) if name.endswith(".log")]
    return [(one.header.last_offset, bytes(one.data)) for data in logs for one in parse_batches(data, file="")]


@pytest.mark.long
@few_examples()
@given(strategies.logs(), executors, any_sizes, st.booleans())
def test_how_the_work_is_cut_and_dealt_changes_no_byte(
    spec: LogSpec, executor: Shuffled, sizes: Tuning, rebuild_indexes: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(spec, Path(scratch) / "logs")
        assume(plan.eligible)
        whole = staged(plan, InProcess())
        assert staged(plan, executor, sizes=sizes, rebuild_indexes=rebuild_indexes) == whole


@few_examples()
@given(strategies.logs())
def test_cleaning_again_at_the_same_time_changes_nothing(spec: LogSpec) -> None:
    # With a retention of nothing a tombstone's horizon is over as soon as it is set.
    assume(spec.settings["delete.retention.ms"] != "0")
    first = reference_cleaner.clean(spec)
    cleaned = replace(reference_cleaner.after(spec, first), checkpoint=spec.checkpoint)
    # The same range again, in groups of the new sizes; the log may have become too small to have the same ones.
    second = agree(cleaned)
    if second.groups:
        before = [data for base in sorted(first.segments) for data in first.segments[base]]
        assert [data for base in sorted(second.segments) for data in second.segments[base]] == before


@pytest.mark.long
@few_examples()
@given(strategies.logs(lawful=True), strategies.segments(fresh=True, max_segments=3), st.integers(0, 3))
def test_the_view_is_preserved(spec: LogSpec, more: tuple[SegmentSpec, ...], hours: int) -> None:
    outcome = agree(spec)
    cleaned = reference_cleaner.after(spec, outcome) if outcome.groups else spec
    assert_same_view(spec, cleaned)

    # The log grows, time passes, and it is cleaned once more.
    end_offset = reference_cleaner.log_end(cleaned)
    active = cleaned.segments[-1]
    follow = [shifted(segment, end_offset + 1) for segment in more]
    follow = [segment for segment in follow if segment.base_offset > active.base_offset]
    grown = replace(
        cleaned,
        segments=(*cleaned.segments, *follow),
        now_ms=spec.now_ms + hours * strategies.HOUR,
        high_watermark=None,
        snapshots={},
    )
    outcome = agree(grown)
    if outcome.groups:
        assert_same_view(grown, reference_cleaner.after(grown, outcome))


def shifted(segment: SegmentSpec, by: int) -> SegmentSpec:
    batches = [
        data[:0] + (one.header.base_offset + by).to_bytes(8, "big") + data[8:]
        for data in segment.batches
        for one in parse_batches(data, file="")
    ]
    return replace(segment, base_offset=segment.base_offset + by, batches=tuple(batches))


def assert_same_view(before: LogSpec, after: LogSpec) -> None:
    assert reference_cleaner.view(after) == reference_cleaner.view(before)
    assert reference_cleaner.log_end(after) == reference_cleaner.log_end(before)
    offsets = [
        (one.header.base_offset, one.header.last_offset)
        for segment in after.segments
        for one in reference_cleaner.batches_of(segment)
    ]
    flat = [offset for pair in offsets for offset in pair]
    assert flat == sorted(flat)
    _, stop = reference_cleaner.dirty_range(before)
    uncleaned = [segment for segment in before.segments if segment.base_offset >= stop]
    assert [segment for segment in after.segments if segment.base_offset >= stop] == uncleaned
