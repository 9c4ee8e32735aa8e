"""The count of keys, compared with a plain one on random logs, however the work is divided."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kcompact.engine.in_process import InProcess
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys.count import count_keys
from kcompact.questions.keys.counts import CountedKeys, CountOptions, KeyCounts, LogKeys, PrefixKeys, Tally
from kcompact.stages.executor import Executor
from tests.support.key_logs import NOW, KeyLog, Known, Plain, end_of_view, plain_count, random_log
from tests.support.machine_code import switched
from tests.support.parameters import few_examples
from tests.support.shuffled import Shuffled
from tests.support.stages import plan_of

DAY = 86_400_000
OPTIONS = CountOptions(top=3, separator=b":", older_than_ms=50 * DAY)
CLASSES = (
    "live_keys", "superseded_records", "unstamped_tombstones", "waiting_tombstones", "expired_tombstones",
    "null_key_records", "control_records", "aborted_records", "undecided_records", "below_start_records",
)  # fmt: skip

seeds = st.integers(0, 10**9)
executors = st.one_of(st.just(InProcess()), st.builds(Shuffled, seed=st.integers(0, 99)))


def expected_counts(plain: Plain, segment: int) -> dict[str, Tally]:
    return {name: Tally(plain.classes[segment, name], plain.class_bytes[segment, name]) for name in CLASSES}


def agree(log: KeyLog, plan: CleanPlan, found: LogKeys) -> None:
    plain = plain_count(log.records, start_offset=plan.log.log_start_offset, stable_offset=end_of_view(log, plan))
    assert [each.base_offset for each in found.segments] == [each.base_offset for each in log.spec.segments]
    for segment in found.segments:
        assert {name: getattr(segment.counts, name) for name in CLASSES} == expected_counts(plain, segment.base_offset)
        assert segment.role is plan.role_of(next(s for s in plan.log.segments if s.base_offset == segment.base_offset))
    adds_up(log, found.counts)
    assert (found.keys, found.counted_to_offset, found.problem) == (len(plain.keys), plan.log.log_end_offset, None)
    live = {key: own for key, own in plain.keys.items() if own[-1].value is not None}
    assert sum(each.keys for each in found.versions) == len(plain.keys)
    for each in found.versions:
        assert each.keys == sum(each.least <= len(own) <= each.most for own in plain.keys.values())
    for bin_ in found.ages:
        if bin_.kind == "unknown":
            assert bin_.live_keys.number == sum(own[-1].timestamp < 0 for own in live.values())
        if bin_.below_ms == 30 * DAY:
            ages = [NOW - own[-1].timestamp for own in live.values()]
            assert bin_.live_keys.number == sum(7 * DAY <= age < 30 * DAY for age in ages)
    named(found, plain)


def adds_up(log: KeyLog, counts: KeyCounts) -> None:
    """Each record is in one class, and each byte of the files is of a batch."""
    assert counts.records == Tally(len(log.records), sum(each.size_bytes for each in log.records))
    assert counts.empty_batches == Tally(len(log.empty_bytes), sum(log.empty_bytes))
    assert counts.batches.size_bytes == sum(len(segment.data) for segment in log.spec.segments)
    known = counts.data_records.number + counts.control_records.number + counts.aborted_records.number
    assert known + counts.undecided_records.number + counts.below_start_records.number == len(log.records)


def named(found: LogKeys, plain: Plain) -> None:
    def top(order: dict[bytes, int]) -> list[bytes]:
        return sorted(order, key=lambda key: (-order[key], plain.keys[key][-1].offset))[:3]

    assert [each.key for each in found.most_versions] == top({key: len(own) for key, own in plain.keys.items()})
    sizes = {key: sum(each.size_bytes for each in own) for key, own in plain.keys.items()}
    assert [each.key for each in found.most_bytes] == top(sizes)
    for each in found.most_bytes:
        newest = plain.keys[each.key][-1]
        assert (each.offset, each.timestamp_ms) == (newest.offset, newest.timestamp)
        assert (each.versions, each.size_bytes) == (len(plain.keys[each.key]), sizes[each.key])
        assert (each.latest_bytes, each.is_tombstone) == (newest.size_bytes, newest.value is None)
    newest_of = [own[-1] for own in plain.keys.values() if own[-1].value is not None]
    old = [each for each in newest_of if 0 <= each.timestamp < NOW - 50 * DAY]
    assert found.old == Tally(len(old), sum(each.size_bytes for each in old))
    oldest = sorted(old, key=lambda each: (each.timestamp, each.offset))[:3]
    assert [each.key for each in found.oldest] == [each.key for each in oldest]
    assert found.prefixes is not None
    assert found.prefixes.is_complete
    expected = prefixes_of(plain)
    assert found.prefixes.count == len(expected)
    assert all(each == expected[each.prefix] for each in found.prefixes.most_records)
    most = sorted((each.records.number for each in expected.values()), reverse=True)[:3]
    assert [each.records.number for each in found.prefixes.most_records] == most


def prefixes_of(plain: Plain) -> dict[bytes | None, PrefixKeys]:
    grouped: dict[bytes | None, list[list[Known]]] = {}
    for key, own in plain.keys.items():
        prefix, separator, _ = key.partition(b":")
        grouped.setdefault(prefix if separator else None, []).append(own)
    found = {}
    for name, keys in grouped.items():
        records = [each for own in keys for each in own]
        live = [own[-1] for own in keys if own[-1].value is not None]
        found[name] = PrefixKeys(
            name,
            len(keys),
            Tally(len(records), sum(each.size_bytes for each in records)),
            Tally(len(live), sum(each.size_bytes for each in live)),
        )
    return found


@given(seeds, st.booleans(), st.sampled_from([1, 300, None]))
def test_a_count_is_the_plain_one(seed: int, compiled: bool, split_bytes: int | None) -> None:
    log = random_log(seed)
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(log.spec, Path(scratch))
        agree(log, plan, count(plan, InProcess(), compiled=compiled, split_bytes=split_bytes).logs[0])
        first_open = min((each.offset for each in log.records if each.fate == "open"), default=plan.log.log_end_offset)
        assert plan.last_stable_offset == first_open


@given(seeds, st.integers(0, 40))
def test_what_lies_outside_of_what_a_reader_sees_is_its_own_class(seed: int, cut: int) -> None:
    log = random_log(seed)
    first = log.spec.segments[0].base_offset
    outside = replace(log.spec, lone=False, start=first + cut // 4, high_watermark=first + cut)
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(outside, Path(scratch))
        assume(not plan.log.damage)  # The high watermark is in the log.
        agree(log, plan, count(plan, InProcess(), compiled=bool(cut % 2)).logs[0])


@pytest.mark.long
@given(seeds, executors, st.booleans(), st.sampled_from([1, 200]), st.sampled_from([1, None]))
def test_how_the_work_is_cut_and_dealt_changes_nothing(
    seed: int, executor: Executor, compiled: bool, split_bytes: int, memory_bytes: int | None
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(random_log(seed).spec, Path(scratch))
        whole = count(plan, InProcess())
        options = replace(OPTIONS, memory_bytes=memory_bytes)
        with switched(compiled=compiled):
            assert count_keys([plan], executor, options, split_bytes=split_bytes) == whole


@pytest.mark.long
@few_examples()
@given(st.lists(seeds, min_size=2, max_size=4), executors, st.booleans())
def test_several_partitions_count_as_each_alone_and_share_keys(
    some: list[int], executor: Executor, compiled: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        logs = [random_log(seed, name=f"orders-{number}") for number, seed in enumerate(some)]
        plans = [plan_of(log.spec, Path(scratch)) for log in logs]
        with switched(compiled=compiled):
            together = count_keys(plans, executor, OPTIONS)
        assert together.logs == tuple(count(plan, InProcess()).logs[0] for plan in plans)
        keys = [
            set(plain_count(log.records, start_offset=0, stable_offset=plan.last_stable_offset).keys)
            for log, plan in zip(logs, plans, strict=True)
        ]
        every = set[bytes]().union(*keys)
        shared = {
            key: [plan.log.directory for plan, own in zip(plans, keys, strict=True) if key in own] for key in every
        }
        several = {key: held for key, held in shared.items() if len(held) > 1}
        assert (together.distinct_keys, together.shared_keys) == (len(every), len(several))
        assert {each.key: list(each.directories) for each in together.most_shared}.items() <= several.items()
        most = sorted(map(len, several.values()), reverse=True)[:3]
        assert [len(each.directories) for each in together.most_shared] == most


def count(plan: CleanPlan, executor: Executor, *, compiled: bool = True, split_bytes: int | None = None) -> CountedKeys:
    with switched(compiled=compiled):
        return count_keys([plan], executor, OPTIONS, split_bytes=split_bytes)


def test_a_count_without_partitions_and_an_empty_log(tmp_path: Path, compiled: bool) -> None:
    assert count_keys([], InProcess()) == CountedKeys()
    empty = random_log(0).spec
    plan = plan_of(replace(empty, segments=(replace(empty.segments[0], batches=()),), aborted={}), tmp_path)
    found = count(plan, InProcess(), compiled=compiled).logs[0]
    assert (found.keys, found.counts, found.versions, found.counts.duplicate_factor) == (0, KeyCounts(), (), None)
