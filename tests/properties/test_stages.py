"""The stages against the cleaner that is a dict, on random logs, however the work is cut and dealt."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kcompact import cleaner
from kcompact.clean.executor import Executor, Progress, Reduced, reduce
from kcompact.clean.groups import count_groups, map_bytes, write_groups
from kcompact.clean.job import CleanerStats, CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.prepare import PreparedClean, Tuning, prepare_clean
from kcompact.clean.scan import Scanned, scan_splits
from kcompact.clean.write import write_part
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptDataError, CorruptIndexError, KcompactError
from kcompact.format.batch import parse_batches
from kcompact.host.throttle import Pace, Throttle
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer, reference_cleaner, strategies
from tests.support.log_writer import LogSpec, SegmentSpec

PACE = Pace(Throttle(None))

pytestmark = pytest.mark.usefixtures("no_sync_ever")


@pytest.fixture(scope="module", autouse=True)
def no_sync_ever() -> object:
    """As `no_sync`, but of a scope that hypothesis allows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Shuffled:
    """Runs the tasks in another order than they are given, and hands the blocks on in another one still."""

    seed: int
    parallelism: int = 3
    name: str = "shuffled"
    progress: Progress = field(default_factory=Progress)

    def scan_and_reduce(self, job: CleanJob, tasks: Sequence[Sequence[Split]]) -> tuple[list[Scanned], list[Reduced]]:
        random = np.random.default_rng(self.seed)
        summaries: list[Scanned] = []
        buckets: dict[int, list[bytes]] = {}
        for number in random.permutation(len(tasks)):
            found = scan_splits(job, tasks[number], PACE)
            while True:
                try:
                    bucket, block = next(found)
                except StopIteration as end:
                    summaries += end.value
                    break
                buckets.setdefault(bucket, []).append(block)
        reduced = []
        for bucket in random.permutation(list(buckets)):
            blocks_of_bucket = buckets[bucket]
            shuffled = [blocks_of_bucket[at] for at in random.permutation(len(blocks_of_bucket))]
            reduced.append(reduce(job, shuffled))
        return summaries, reduced

    def write(self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: str | None) -> list[WrittenPart]:
        order = np.random.default_rng(self.seed).permutation(len(tasks))
        return [write_part(job, part, staging, PACE) for number in order for part in tasks[number]]


executors = st.builds(Shuffled, seed=st.integers(0, 99), parallelism=st.integers(1, 5))
any_sizes = st.builds(
    Tuning,
    split_bytes=st.sampled_from([1, 100, 300, 10**9]),
    task_bytes=st.sampled_from([1, 150, 400, 10**9]),
    bucket_count=st.sampled_from([None, 1, 2, 7]),
    memory_bytes=st.sampled_from([None, 1]),
    compiled=st.sampled_from([None, True]),
)


def plan_of(spec: LogSpec, log_dir: Path) -> CleanPlan:
    directory = log_writer.write(spec, log_dir)
    return plan_partition(directory, spec.config, now_ms=spec.now_ms)


def staged(
    plan: CleanPlan,
    executor: Executor,
    *,
    sizes: Tuning | None = None,
    keep_tombstones: bool = False,
    rebuild_indexes: bool = False,
) -> tuple[dict[str, bytes], CleanerStats]:
    """Return every file that a cleaning stages, and what it counted."""
    cleaning = prepare_clean(
        plan, executor, tuning=sizes, keep_tombstones=keep_tombstones, rebuild_indexes=rebuild_indexes
    )
    with tempfile.TemporaryDirectory() as staging:
        segments, stats, _, _ = write_groups(cleaning, range(len(plan.groups)), staging, executor)
        files = {}
        for segment in segments:
            for file in segment.files:
                data = (Path(staging) / file.staged_as).read_bytes()
                assert len(data) == file.size_bytes
                files[file.name] = data
    dry = count_groups(cleaning, executor).stats
    assert dry == stats, "the dry run counted something else"
    assert stats.bytes_written == sum(len(data) for name, data in files.items() if name.endswith(".log"))
    return files, stats + CleanerStats(map_keys=cleaning.map_keys)


def agree(spec: LogSpec, *, keep_tombstones: bool = False, compiled: bool = False) -> reference_cleaner.Outcome:
    """Clean a log in both ways, compare, and return the outcome."""
    expected = reference_cleaner.clean(spec, keep_tombstones=keep_tombstones)
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(spec, Path(scratch) / "logs")
        assert (plan.first_dirty_offset, plan.first_uncleanable_offset) == reference_cleaner.dirty_range(spec)
        assert plan.eligible == bool(plan.cleanable_bytes)
        if not plan.eligible:
            return expected
        sizes = Tuning(compiled=compiled)
        files, stats = staged(plan, InProcess(), sizes=sizes, keep_tombstones=keep_tombstones)
        assert [[segment.base_offset for segment in group] for group in plan.groups] == expected.groups
    for name in files:
        assert files[name] == expected.files[name], name
    assert files.keys() == expected.files.keys()
    for count in ("messages_read", "messages_written", "invalid_messages", "map_keys"):
        assert getattr(stats, count) == getattr(expected, count), count
    assert stats.bytes_read == sum(segment.size_bytes for segment in plan.segments)
    return expected


@given(strategies.logs(), st.booleans(), st.booleans())
def test_the_result_is_the_references(spec: LogSpec, keep_tombstones: bool, compiled: bool) -> None:
    agree(spec, keep_tombstones=keep_tombstones, compiled=compiled)


@pytest.mark.long
@given(strategies.logs(), executors, any_sizes, st.booleans())
def test_how_the_work_is_cut_and_dealt_changes_no_byte(
    spec: LogSpec, executor: Shuffled, sizes: Tuning, rebuild_indexes: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        plan = plan_of(spec, Path(scratch) / "logs")
        assume(plan.eligible)
        whole = staged(plan, InProcess())
        assert staged(plan, executor, sizes=sizes, rebuild_indexes=rebuild_indexes) == whole


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


# --- What a scan refuses ------------------------------------------------------------------------------------

ROUND = "log now=10:00 index.interval.bytes=100 min.cleanable.dirty.ratio=0\n"
THREE = ROUND + "0: a=1 b=2 c=3 d=4^09:30 e=5\n5: a=2\n6: f=1"


def prepared(text: str, log_dir: Path, damage: dict[str, tuple[int, bytes]] | None = None) -> PreparedClean:
    spec = log_dsl.parse(text)
    plan = plan_of(spec, log_dir)
    for name, (position, data) in (damage or {}).items():
        path = plan.log.directory / name
        content = bytearray(path.read_bytes())
        content[position : position + len(data)] = data
        path.write_bytes(content)
    return prepare_clean(plan, InProcess())


def test_a_sound_log_is_prepared(tmp_path: Path) -> None:
    assert prepared(THREE, tmp_path / "logs").map_keys == 5


@pytest.mark.parametrize(
    ("file", "position", "data", "problem"),
    [
        ("00000000000000000000.index", 0, bytes([0, 0, 0, 3]), "no batch with this last offset"),
        ("00000000000000000000.index", 4, bytes([0, 0, 0, 1]), "no batch with this last offset"),
        ("00000000000000000000.timeindex", 19, bytes([255]), "the greatest in the log is"),
        ("00000000000000000000.log", 68, b"!", "checksum"),
        ("00000000000000000000.log", 7, b"\x03", "base offset 1 after offset 3"),
        ("00000000000000000000.log", 15, b"\x05", "leader epoch 0 after epoch 5"),
        ("00000000000000000005.log", 7, b"\x04", "base offset 4 after offset 4"),
        ("00000000000000000005.log", 7, b"\x06", "the next segment starts at 6"),
    ],
)
def test_damage_stops_the_scan(tmp_path: Path, file: str, position: int, data: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem) as stopped:
        prepared(THREE, tmp_path / "logs", {file: (position, data)})
    assert file in stopped.value.file
    assert isinstance(stopped.value, CorruptIndexError) == file.endswith("index")


def test_an_index_that_lies_is_not_asked_when_told_so(tmp_path: Path) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    for path in directory.glob("*.*index"):
        path.write_bytes(b"")
    whole = staged(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess())
    (directory / "00000000000000000000.index").write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 1]))
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms, rebuild_indexes=True)
    assert staged(plan, InProcess(), rebuild_indexes=True, sizes=Tuning(split_bytes=1)) == whole


def test_a_missing_index_is_done_without(tmp_path: Path) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    whole = staged(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess())
    for path in directory.glob("*.*index"):
        path.unlink()
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    assert staged(plan, InProcess(), sizes=Tuning(split_bytes=1)) == whole


def test_a_watch_can_stop_between_splits(tmp_path: Path) -> None:
    class Stop(Progress):
        def check(self) -> None:
            raise KcompactError("stopped")

    spec = log_dsl.parse(THREE)
    with pytest.raises(KcompactError, match="stopped"):
        prepare_clean(plan_of(spec, tmp_path / "logs"), InProcess(progress=Stop()))


def test_map_bytes_start_where_the_index_leads(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(THREE), checkpoint=3)
    plan = plan_of(spec, tmp_path / "logs")
    sizes = [len(data) for segment in spec.segments[:2] for data in segment.batches]
    # Batches of 69 bytes: the third and the fifth have index entries, the one at or below offset 3 is the third.
    assert map_bytes(plan) == sum(sizes[2:])


def test_a_dry_run_counts_what_the_run_counts(tmp_path: Path) -> None:
    # The index that says where the map begins is another one after the run.
    directory = log_writer.write(replace(log_dsl.parse(THREE), checkpoint=3), tmp_path / "logs")
    plan = plan_partition(directory, log_dsl.parse(THREE).config, now_ms=log_dsl.parse(THREE).now_ms)
    with log_dir_lock(directory.parent) as lock:
        dry = cleaner.clean_partition(plan, InProcess(), lock=None, options=cleaner.CleanOptions(dry_run=True))
        assert cleaner.clean_partition(plan, InProcess(), lock=lock).stats == dry.stats


def test_snapshots_of_the_bases_that_disappear_go_with_them(tmp_path: Path) -> None:
    text = THREE.replace("5: a=2\n", "5: a=2 g=1\n") + "\n8: h=1\nsnapshot 3:\nsnapshot 5:\nsnapshot 6:\nsnapshot 8:"
    cleaning = prepared(text.replace("6: f=1", "7: f=1"), tmp_path / "logs")
    with tempfile.TemporaryDirectory() as staging:
        (segment,), *_ = write_groups(cleaning, [0], staging, InProcess())
    names = {file.name.lstrip("0") for file in segment.replaces if file.name.endswith(".snapshot")}
    assert names == {"3.snapshot", "5.snapshot", "6.snapshot"}
