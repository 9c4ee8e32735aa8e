"""The executor of this process: threads, errors, aborts, what it keeps where, and how fast it may be."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from kcompact.clean.groups import write_groups
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine import in_process
from kcompact.engine.in_process import InProcess, SharedMemory
from kcompact.errors import CleaningAbortedError, CorruptBatchError, KcompactError, RefusedError, ScratchSpaceError
from kcompact.format.batch import HEADER_BYTES, Record, build, read_header, sealed
from kcompact.format.block import Keys, pack_keys, unpack_keys
from kcompact.format.codec import Codec
from kcompact.host.throttle import Throttle
from kcompact.log import inflate
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.stages.executor import Progress
from tests.support import log_dsl, log_writer
from tests.support.jobs import JOB, limit_keys
from tests.support.log_writer import DEFAULT_TIME, SegmentSpec
from tests.support.machine_code import switched
from tests.support.parameters import one_in
from tests.support.patience import PATIENCE_S
from tests.support.staging import staging_at


def segment(
    base_offset: int, records: int, *, keys: int = 50, value: bytes = b"v" * 90, batch: int = 10
) -> list[bytes]:
    return [
        build(
            [
                Record(offset, DEFAULT_TIME, b"key-%d" % (offset * 31 % keys), value)
                for offset in range(start, start + batch)
            ],
            codec=Codec.NONE,
        )
        for start in range(base_offset, base_offset + records, batch)
    ]


def plan_of(log_dir: Path, *, segments: int = 4, records: int = 200, value: bytes = b"v" * 90) -> CleanPlan:
    """A log of some segments of the same size, all but the active one to be cleaned."""
    spec = log_dsl.parse("log now=10:00 min.cleanable.dirty.ratio=0\n0: a=1")
    specs = [
        SegmentSpec(base_offset=base, batches=tuple(segment(base, records, value=value)))
        for base in range(0, segments * records, records)
    ]
    active = SegmentSpec(base_offset=segments * records, batches=())
    directory = log_writer.write(replace(spec, segments=(*specs, active)), log_dir)
    return plan_partition(directory, spec.config, now_ms=spec.now_ms)


def staged(plan: CleanPlan, executor: InProcess, staging: Path, sizes: Tuning) -> dict[str, bytes]:
    staging.mkdir()
    cleaning = prepare_clean(plan, executor, tuning=sizes)
    written = write_groups(cleaning, range(len(plan.groups)), staging_at(staging))
    return {
        file.name: (staging / file.staged_as).read_bytes() for segment in written.segments for file in segment.files
    }


SMALL = Tuning(split_bytes=1_000, task_bytes=5_000)


# --- Side by side ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_any_number_of_threads_stages_the_same(tmp_path: Path, parallelism: int, compiled: bool) -> None:
    plan = plan_of(tmp_path / "logs")
    whole = staged(plan, InProcess(parallelism=1), tmp_path / "whole", Tuning())
    sizes = replace(SMALL, bucket_count=3)
    assert staged(plan, InProcess(parallelism=parallelism), tmp_path / "parts", sizes) == whole


def test_tasks_run_at_the_same_time_and_their_results_come_in_order() -> None:
    meeting = threading.Barrier(3, timeout=PATIENCE_S)

    def task(number: int, done: object) -> int:
        meeting.wait()  # Nobody gets past it alone.
        time.sleep(0.02 * (3 - number))
        return number * number

    assert InProcess(parallelism=3)._run_tasks(JOB, [0, 1, 2], task) == [0, 1, 4]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_executors_that_share_memory_run_only_as_many_tasks_as_it_is_enough_for(workers: int) -> None:
    memory, lock, meeting = SharedMemory(), threading.Lock(), threading.Barrier(workers, timeout=PATIENCE_S)
    running: set[int] = set()
    begun = most = 0

    def task(number: int, done: object) -> int:
        nonlocal begun, most
        with lock:
            running.add(number)
            most = max(most, len(running))
            begun += 1
            is_early = begun <= workers
        if is_early:
            meeting.wait()
        time.sleep(0.01)
        with lock:
            running.remove(number)
        return number

    def run(first: int, parallelism: int) -> list[int]:
        executor = InProcess(parallelism=parallelism, memory=memory)
        return executor._run_tasks(replace(JOB, workers=workers), range(first, first + 4), task)

    with ThreadPoolExecutor(3) as pool:
        found = [each.result() for each in [pool.submit(run, 10 * number, number) for number in (1, 2, 3)]]
    assert found == [[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]
    assert most == workers


def test_a_task_that_needs_the_whole_memory_runs_alone() -> None:
    memory, lock = SharedMemory(), threading.Lock()
    running: list[int] = []
    together: set[tuple[int, ...]] = set()

    def task(workers: int, done: object) -> None:
        with lock:
            running.append(workers)
            together.add(tuple(sorted(running)))
        time.sleep(0.005)
        with lock:
            running.remove(workers)

    def run(workers: int) -> None:
        InProcess(parallelism=2, memory=memory)._run_tasks(replace(JOB, workers=workers), [workers] * 8, task)

    with ThreadPoolExecutor(3) as pool:
        for each in [pool.submit(run, workers) for workers in (1, 2, 2)]:
            each.result()
    assert {(1,), (2,)} <= together <= {(1,), (2,), (2, 2)}


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_task_that_waits_for_memory_can_be_stopped(parallelism: int) -> None:
    memory, job = SharedMemory(), replace(JOB, workers=2)
    executor = InProcess(parallelism=parallelism, memory=memory, progress=StopAfter(1))
    with memory.part(1, lambda: None), pytest.raises(CleaningAbortedError):
        executor._run_tasks(job, range(3), lambda number, done: number)
    assert InProcess(parallelism=parallelism, memory=memory)._run_tasks(job, [7], lambda number, done: number) == [7]


def test_an_error_stops_the_other_tasks() -> None:
    ended: list[int] = []
    has_begun = threading.Event()

    def task(number: int, done: object) -> None:
        if number == 1:
            has_begun.wait()
            raise KcompactError("one of them")
        has_begun.set()
        try:
            while True:
                time.sleep(0.005)
                done(1)  # type: ignore[operator]
        finally:
            ended.append(number)

    threads = set(threading.enumerate())
    with pytest.raises(KcompactError, match="one of them"):
        InProcess(parallelism=3)._run_tasks(JOB, [0, 1, 2, 3, 4], task)
    assert set(ended) <= {0, 2, 3}
    assert 0 in ended
    assert threads.issuperset(threading.enumerate())


class StopAfter(Progress):
    """Is asked to stop after so many looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.threads = looks, set[int]()

    def advance(self, done_bytes: int) -> None:
        self.threads.add(threading.get_ident())

    def check(self) -> None:
        self.threads.add(threading.get_ident())
        self.looks -= 1
        if self.looks < 0:
            raise CleaningAbortedError(path="orders-0")


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("looks", [0, 2])
def test_an_abort_stops_every_task(parallelism: int, looks: int) -> None:
    running = set(range(4))

    def task(number: int, done: object) -> None:
        try:
            for _ in range(2_000):
                time.sleep(0.005)
                done(1)  # type: ignore[operator]
        finally:
            running.discard(number)

    progress = StopAfter(looks)
    with pytest.raises(CleaningAbortedError):
        InProcess(parallelism=parallelism, progress=progress)._run_tasks(JOB, range(4), task)
    assert len(running) >= 4 - parallelism  # The rest has not begun.
    assert progress.threads == {threading.get_ident()}, "only one thread may call the progress"


def test_progress_adds_up(tmp_path: Path) -> None:
    class Recorder(Progress):
        def __init__(self) -> None:
            self.begun: list[tuple[str, int]] = []
            self.done: list[int] = []

        def begin(self, stage: str, total_bytes: int) -> None:
            self.begun.append((stage, total_bytes))
            self.done.append(0)

        def advance(self, done_bytes: int) -> None:
            self.done[-1] += done_bytes

    plan = plan_of(tmp_path / "logs")
    total = sum(segment.size_bytes for segment in plan.segments)
    for parallelism in (1, 3):
        progress = Recorder()
        staged(plan, InProcess(parallelism=parallelism, progress=progress), tmp_path / f"staging-{parallelism}", SMALL)
        assert progress.begun == [("scan", total), ("write", total)]
        assert progress.done == [total, total]


# --- What is wrong with the data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("victim", [0, 1, 3])
@pytest.mark.parametrize("keys_rows", [1, 30, 10_000])
@pytest.mark.parametrize("sizes", one_in(2, [SMALL, Tuning()]))
def test_damage_is_the_same_error_whoever_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: int, keys_rows: int, sizes: Tuning
) -> None:
    """A record that does not add up, behind a right checksum; with room for few keys, so that they are merged often."""
    plan = plan_of(tmp_path / "logs")
    path = plan.log.directory / plan.segments[victim].log_name
    data, status = path.read_bytes(), path.stat()
    header = read_header(data, file="", position=0)
    size = header.size_bytes
    broken = sealed(header, data[HEADER_BYTES : size - 1] + b"\x7f")
    at = size * 12
    path.write_bytes(
        data[:at] + sealed(read_header(data[at:], file="", position=0), broken[HEADER_BYTES:]) + data[at + size :]
    )
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    limit_keys(monkeypatch, keys_bytes=keys_rows * 24, buckets=2)
    monkeypatch.setattr(inflate, "RUN_RECORDS", 30)
    problems = []
    for by_kernels in (False, True):
        with switched(compiled=by_kernels), pytest.raises(CorruptBatchError) as stopped:
            prepare_clean(plan, InProcess(parallelism=2), tuning=sizes)
        problems.append(str(stopped.value))
    assert problems[0] == problems[1]
    assert path.name in problems[0]


# --- What does not fit in memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keys_rows", [1, 7, 100])
def test_keys_that_do_not_fit_go_to_files_that_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_rows: int, compiled: bool
) -> None:
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    made: list[str] = []
    really = tempfile.TemporaryFile

    def make(*, prefix: str, dir: str | None) -> IO[bytes]:
        made.append(prefix)
        return really(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", make)
    plan = plan_of(tmp_path / "logs")
    whole = staged(plan, InProcess(parallelism=1), tmp_path / "whole", Tuning())
    assert made == []
    limit_keys(monkeypatch, keys_bytes=keys_rows * 24, buckets=3)
    found = staged(plan, InProcess(parallelism=2), tmp_path / "parts", SMALL)
    assert found == whole
    assert len(made) == 1
    assert list(spill.iterdir()) == []


def test_blocks_come_back_from_memory_and_from_the_file() -> None:
    def block(number: int, rows: int) -> bytes:
        column = np.arange(rows, dtype=np.int64)
        return pack_keys(number, Keys(column.astype(np.uint64), column.astype(np.uint64), column))

    with in_process._Blocks(2, 1_000, SharedMemory()) as blocks:
        given = [(number % 2, block(number % 2, rows)) for number, rows in enumerate((3, 50, 0, 9, 100, 1))]
        for bucket, one in given:
            blocks.add(bucket, one)
        for bucket in (0, 1):
            taken = list(blocks.take(bucket))
            assert sorted(taken) == sorted(one for own, one in given if own == bucket)
            assert all(unpack_keys(one).rows >= 0 for one in taken)


def test_blocks_of_executors_that_clean_at_the_same_time_share_the_limit() -> None:
    memory = SharedMemory()

    def held(blocks: in_process._Blocks) -> list[int]:
        return [len(block) for own in blocks._held for block in own]

    with in_process._Blocks(1, 100, memory) as others:
        with in_process._Blocks(2, 100, memory) as blocks:
            for to, size in ((blocks, 60), (others, 30), (blocks, 11), (blocks, 10), (others, 1)):
                to.add(0, bytes(size))
            assert (held(blocks), held(others)) == ([60, 10], [30])
            assert sorted(map(len, blocks.take(0))) == [10, 11, 60]
            others.add(0, bytes(70))
            blocks.add(1, b"none is left")
            assert (held(blocks), held(others)) == ([], [30, 70])
        assert sorted(map(len, others.take(0))) == [1, 30, 70]
        others.add(0, bytes(100))
        assert held(others) == [100]
    with in_process._Blocks(1, 100, memory) as blocks:
        blocks.add(0, bytes(100))
        assert held(blocks) == [100], "what has ended holds nothing"


def test_a_disk_without_most_records_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(tmp_path / "logs")
    whole = staged(plan, InProcess(parallelism=1), tmp_path / "whole", Tuning())
    limit_keys(monkeypatch, keys_bytes=24, buckets=3)
    really = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: really(descriptor, data[:11], at))
    assert staged(plan, InProcess(parallelism=1), tmp_path / "parts", SMALL) == whole

    def full(descriptor: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(ScratchSpaceError, match="No space left on device") as raised:
        prepare_clean(plan, InProcess(parallelism=2), tuning=SMALL)
    assert raised.value.exit_code == 7


def test_short_reads_of_keys_are_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    really = os.pread
    monkeypatch.setattr(os, "pread", lambda descriptor, size_bytes, at: really(descriptor, min(size_bytes, 7), at))
    with in_process._Blocks(1, 0, SharedMemory()) as blocks:
        blocks.add(0, b"a block of keys")
        assert list(blocks.take(0)) == [b"a block of keys"]


def test_no_temporary_directory_can_be_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with (
        in_process._Blocks(1, 0, SharedMemory()) as blocks,
        pytest.raises(RefusedError, match="Set TMPDIR to a directory"),
    ):
        blocks.add(0, b"a block of keys")


# --- A limit on bytes per second ------------------------------------------------------------------------------------


class Clock:
    """A simulated clock. Several threads that sleep at once only make it go faster."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def read(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_limited_run_takes_its_time_and_changes_nothing(
    tmp_path: Path, parallelism: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(in_process, "Throttle", partial(Throttle, clock=clock.read, sleep=clock.sleep))
    plan = plan_of(tmp_path / "logs", segments=3, records=1_000, value=b"v" * 200)
    executor = InProcess(parallelism=parallelism)
    whole = staged(plan, executor, tmp_path / "whole", Tuning())
    source = sum(segment.size_bytes for segment in plan.segments)
    result = sum(len(data) for name, data in whole.items() if name.endswith(".log"))
    limit = source  # It is read twice; what is written is small, and read back.
    staging = tmp_path / "limited"
    staging.mkdir()
    started_s = clock.now_s
    cleaning = prepare_clean(plan, executor, max_bytes_per_second=limit, tuning=Tuning())
    written = write_groups(cleaning, range(len(plan.groups)), staging_at(staging))
    took_s = clock.now_s - started_s
    expected_s = (2 * source + 2 * result) / limit
    assert 2 <= expected_s <= 3
    assert took_s >= expected_s * 0.95
    assert {
        file.name: (staging / file.staged_as).read_bytes() for one in written.segments for file in one.files
    } == whole


def test_an_abort_does_not_wait_for_the_limit(tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "logs")
    with pytest.raises(CleaningAbortedError):
        prepare_clean(plan, InProcess(progress=StopAfter(3)), max_bytes_per_second=10)  # That would be hours.
