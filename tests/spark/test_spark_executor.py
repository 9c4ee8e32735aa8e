"""The stages on Spark: the same bytes as in one process; errors, aborts and several partitions at a time."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fixtures import checkout
from kcompact import errors
from kcompact.clean.groups import count_groups, write_groups
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.clean.scan import CLEANING
from kcompact.cleaner import partition, round
from kcompact.cleaner.cleaning import Cleaning
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.round_end import SwappedPartition
from kcompact.cli.output import progress, streams
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark
from kcompact.errors import (
    CleaningAbortedError,
    CorruptBatchError,
    CorruptTransactionIndexError,
    EngineError,
    KcompactError,
    RefusedError,
)
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.partition import plan_partition
from kcompact.plan.replicas import OtherReplica
from kcompact.stages.executor import Progress
from tests.support import log_dsl, log_writer
from tests.support.command_line import COMPACT, environment, flip, kcompact
from tests.support.compare import differences
from tests.support.kafka_rounds import clean_all, round_of
from tests.support.patience import PATIENCE_S, becomes
from tests.support.spark_runs import (
    SPARK,
    content,
    endless,
    left_behind,
    outcome,
    plan_of,
    pretend_session,
    scan_arguments,
    write_log,
    write_partition,
)
from tests.support.staging import staging_at
from tests.support.wrong_transaction_indexes import SPEC, WRONG

pytestmark = SPARK


# Same bytes


@pytest.mark.parametrize(
    "sizes",
    [
        Tuning(),
        # A split is a batch, as in the next test.
        pytest.param(Tuning(split_bytes=1, task_bytes=4_000, bucket_count=1), marks=pytest.mark.slow),
        Tuning(split_bytes=5_000, task_bytes=20_000, bucket_count=7),
        Tuning(split_bytes=30_000, task_bytes=30_000, bucket_count=3),
    ],
    ids=["default", "smallest", "small", "one-split-a-task"],
)
def test_bytes_are_those_of_one_process(on_spark: OnSpark, plan: CleanPlan, sizes: Tuning, tmp_path: Path) -> None:
    ours = outcome(plan, on_spark, sizes, tmp_path / "spark")
    assert ours == outcome(plan, InProcess(), None, tmp_path / "in-process")
    assert len(plan.groups) > 1
    assert 0 < ours[1].messages_written < ours[1].messages_read


def test_what_is_held_back_is_that_of_one_process(on_spark: OnSpark, tmp_path: Path) -> None:
    stamped = " ".join(f"k{number}=~(horizon=10:00)" for number in range(40))
    markers = "commit(pid=7 horizon=10:00) commit(pid=8 horizon=10:00)"
    spec = log_dsl.parse(f"log now=11:00 min.cleanable.dirty.ratio=0\n0: {stamped}\n40: {markers} a=1\n43: b=1")
    plan = plan_partition(log_writer.write(spec, tmp_path / "logs"), spec.config, now_ms=spec.now_ms)
    other = OtherReplica(path=tmp_path, end_offset=25, fetches_from_offset=25)
    plan = dataclasses.replace(plan, replicas=(other,))
    smallest = Tuning(split_bytes=1, task_bytes=400)  # A split is a batch, a task has several.
    ours = outcome(plan, on_spark, smallest, tmp_path / "spark")
    assert ours == outcome(plan, InProcess(), None, tmp_path / "in-process")
    counts = count_groups(prepare_clean(plan, on_spark, tuning=Tuning(split_bytes=1))).counts
    assert (counts.expired, counts.held_tombstones, counts.held_markers) == (25, 15, 2)


@pytest.mark.parametrize("name", ["transactions", "many-groups", "mixed"])
def test_fixture_comes_out_as_kafkas(on_spark: OnSpark, name: str, tmp_path: Path) -> None:
    settings = round_of(name, 0)
    log_dir = checkout.copy_directory(name, settings["from"], tmp_path / "ours")
    clean_all(log_dir, settings, on_spark)
    assert differences(log_dir, checkout.copy_directory(name, settings["to"], tmp_path / "theirs")) == []


def test_dry_run_counts_what_a_run_writes(on_spark: OnSpark, plan: CleanPlan, tmp_path: Path) -> None:
    cleaning = prepare_clean(plan, on_spark)
    counted = count_groups(cleaning).stats
    written = write_groups(cleaning, range(len(plan.groups)), staging_at(tmp_path))
    assert counted == written.stats


def test_progress_adds_up(on_spark: OnSpark, plan: CleanPlan) -> None:
    class Recorder(Progress):
        def __init__(self) -> None:
            self.begun: list[tuple[str, int]] = []
            self.done: list[int] = []

        def begin(self, stage: str, total_bytes: int) -> None:
            self.begun.append((stage, total_bytes))
            self.done.append(0)

        def advance(self, done_bytes: int) -> None:
            self.done[-1] += done_bytes

    recorder = Recorder()
    executor = dataclasses.replace(on_spark, progress=recorder)
    count_groups(prepare_clean(plan, executor))
    total = sum(segment.size_bytes for segment in plan.segments)
    assert recorder.begun == [("scan", total), ("count", total)]
    assert recorder.done == [total, total]


# Errors


def spark_log(executor: OnSpark) -> str:
    return Path(executor.sc.getConf().get("spark.local.dir"), "spark.log").read_text()


def test_corrupt_batch_is_raised_as_it_is(on_spark: OnSpark, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = write_log(tmp_path / "logs")
    plan = plan_of(directory)
    victim = directory / plan.segments[2].log_name
    flip(victim, victim.stat().st_size // 2, 1)
    with pytest.raises(CorruptBatchError) as expected:
        prepare_clean(plan, InProcess())
    log_before = spark_log(on_spark)
    with pytest.raises(CorruptBatchError) as raised:
        prepare_clean(plan, on_spark)
    assert str(raised.value) == str(expected.value)
    assert (raised.value.file, raised.value.position) == (str(victim), expected.value.position)
    assert raised.value.exit_code == 3
    assert capfd.readouterr() == ("", "")
    # The error travels as a value: Spark logs no failed task with its traceback. PySpark's daemon may log one of its
    # own, when Spark has ended the other tasks and closed their sockets.
    assert "CorruptBatchError" not in spark_log(on_spark).removeprefix(log_before)


@pytest.mark.parametrize("wrong", ["missing file", "an entry too many", "active segment: missing file"])
def test_a_wrong_transaction_index_is_refused(wrong: str, on_spark: OnSpark, tmp_path: Path) -> None:
    directory = log_writer.write(SPEC, tmp_path)
    path = WRONG[wrong].apply(directory)
    plan = plan_partition(directory, SPEC.config, now_ms=SPEC.now_ms)
    with pytest.raises(CorruptTransactionIndexError, match=WRONG[wrong].message) as refused:
        prepare_clean(plan, on_spark, tuning=Tuning())
    assert refused.value.file == str(path)


@pytest.mark.parametrize("other", ["gone", "link", "directory"])
def test_another_staging_directory_is_not_written_to(
    on_spark: OnSpark, plan: CleanPlan, tmp_path: Path, other: str
) -> None:
    cleaning = prepare_clean(plan, on_spark)
    made = tmp_path / "made"
    made.mkdir()
    staging = staging_at(made)
    made.rename(tmp_path / "moved")
    if other == "link":
        made.symlink_to(tmp_path / "moved")
    elif other == "directory":
        made.mkdir()
    with pytest.raises(errors.LogChangedError, match="no longer the directory that kcompact created"):
        write_groups(cleaning, [0], staging)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("had_session", [False, True])
def test_our_own_mistake_is_an_engine_error_with_its_cause(
    had_session: bool,
    on_spark: OnSpark,
    plan: CleanPlan,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_session(monkeypatch, had_session=had_session)
    job, tasks = scan_arguments(plan)
    job = dataclasses.replace(job, hash_key=b"k" * 65)
    with pytest.raises(EngineError, match=r"ValueError: \w+") as raised:
        on_spark.scan_and_reduce(job, tasks, CLEANING)
    assert "\n\tat " not in str(raised.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "error",
    [
        CorruptBatchError(file="f", problem="p", position=3, offset=4, hint="h"),
        errors.StorageError(path="p", problem=OSError(5, "Input/output error"), position=7),
        RefusedError(path="p", problem="q", hint="h"),
        EngineError(problem="p"),
        errors.LogDirLockedError(lock="l"),
        errors.LogChangedError(path="p", problem="q"),
        errors.NotEnoughSpaceError(path="p", needed_bytes=2, free_bytes=1),
        errors.RecoveryNeededError(path="p", problem="q", files=["a"]),
        CleaningAbortedError(path="p", exit_code=143),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_the_way_back(error: KcompactError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.exit_code) == (str(error), error.exit_code)
    assert copy.__dict__.keys() == error.__dict__.keys()


# Abort


class AbortAt(Progress):
    """Stops the run at the `turn`-th check."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.asked = 0

    def check(self) -> None:
        self.asked += 1
        if self.asked == self.turn:
            raise CleaningAbortedError(path="orders-0")


def running_tasks(executor: OnSpark) -> int:
    infos = executor.sc._jsc.sc().statusTracker().getExecutorInfos()
    return sum(info.numRunningTasks() for info in infos)


@pytest.mark.parametrize("turn", [1, pytest.param(5, marks=pytest.mark.slow)], ids=["at-once", "running"])
def test_abort_stops_an_endless_job(on_spark: OnSpark, plan: CleanPlan, turn: int, tmp_path: Path) -> None:
    job, tasks = endless(plan)
    with pytest.raises(CleaningAbortedError):
        dataclasses.replace(on_spark, progress=AbortAt(turn)).scan_and_reduce(job, tasks, CLEANING)
    assert becomes(lambda: running_tasks(on_spark) == 0)  # Spark's status lags behind its tasks.
    # The context is as good as before.
    outcome(plan, on_spark, None, tmp_path / "staging")


# Several partitions


def write_logs(log_dir: Path, count: int) -> list[str]:
    """Write so many small partitions, the dirtiest of which is the first by name, and return their names."""
    for number in range(count):
        write_partition(log_dir / f"small-{number}", total_bytes=60_000, segments=3, value_bytes=2_000)
    return [f"small-{number}" for number in range(count)]


@pytest.mark.usefixtures("started")
def test_small_partitions_side_by_side(tmp_path: Path) -> None:
    names = write_logs(tmp_path / "logs", 7)
    victim = tmp_path / "logs" / "small-3" / f"{0:020d}.log"
    flip(victim, victim.stat().st_size // 2)
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    options = ("clean", "--force", "--json", "--high-watermark", "leo", *COMPACT)
    ran = {
        "spark": kcompact(*options, "--engine", "spark", tmp_path / "logs"),
        "in-process": kcompact(*options, "--engine", "in-process", tmp_path / "copy"),
    }
    entries = {}
    for engine, done in ran.items():
        assert done.code == 3, done.err
        entries[engine] = done.json["partitions"]
        found = {entry["directory"].rpartition("/")[2]: entry for entry in entries[engine]}
        assert sorted(found) == names
        assert [name for name, entry in found.items() if entry["status"] == "failed"] == ["small-3"]
        assert "small-3" in found["small-3"]["error"]
        assert {entry["engine"] for entry in found.values() if entry["status"] == "cleaned"} == {engine}
    orders = [[entry["directory"].rpartition("/")[2] for entry in listed] for listed in entries.values()]
    assert orders[0] == orders[1]
    assert content(tmp_path / "logs") == content(tmp_path / "copy")
    checkpoint = (tmp_path / "logs" / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(line.split()[0] + "-" + line.split()[1] for line in checkpoint[2:]) == sorted({*names} - {"small-3"})


@pytest.mark.usefixtures("started")
def test_a_fault_is_its_own_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(cleaning: Cleaning) -> SwappedPartition | CleanResult:
        if cleaning.plan.log.directory.name == "small-1":
            raise ZeroDivisionError("not what anybody expected")
        return partition.swap_in(cleaning)

    monkeypatch.setattr(round, "swap_in", faulty)
    write_logs(tmp_path / "logs", 3)
    ran = kcompact(
        "clean", "--engine", "spark", "--force", "--json", "--high-watermark", "leo", *COMPACT, tmp_path / "logs"
    )
    assert ran.code == 1
    statuses = {entry["directory"][-1]: entry["status"] for entry in ran.json["partitions"]}
    assert statuses == {"0": "cleaned", "1": "failed", "2": "cleaned"}
    assert {entry["engine"] for entry in ran.json["partitions"] if entry["status"] == "cleaned"} == {"spark"}
    assert "ZeroDivisionError: not what anybody expected" in ran.err


@pytest.mark.usefixtures("started")
def test_a_request_to_stop_ends_all_that_run_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_logs(tmp_path, 40)
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    tell, sent = streams.tell, list[signal.Signals]()

    def told(line: str) -> None:
        tell(line)
        if " of 40 partitions, " in line and not sent:
            sent.append(signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(streams, "tell", told)
    ran = kcompact("clean", "--engine", "spark", "--force", "--high-watermark", "leo", *COMPACT, tmp_path)
    assert sent, "it ended before anything was written"
    assert ran.code == 143, ran.err
    assert_nothing_is_left(tmp_path)


def assert_nothing_is_left(log_dir: Path) -> None:
    assert left_behind(log_dir) == []
    assert (log_dir / ".kafka_cleanshutdown").exists()
    verified = kcompact("verify", *COMPACT, log_dir)
    assert verified.code == 0, verified.err


WITH_EACH_LINE = """
import sys
from kcompact.cli import app
from kcompact.cli.output import progress
progress.LINE_EVERY_S = 0.0
app.main(sys.argv[1:], prog_name="kcompact")
"""
"""Prints a line of progress whenever there is any."""


@pytest.mark.slow
def test_a_signal_to_the_process_ends_all_that_run_side_by_side(tmp_path: Path) -> None:
    write_logs(tmp_path, 40)
    arguments = ("clean", "--force", "--high-watermark", "leo", *COMPACT, "--master", "local[2]", tmp_path)
    program = [sys.executable, "-c", WITH_EACH_LINE, *map(str, arguments)]
    running = subprocess.Popen(program, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        while " of 40 partitions, " not in (line := running.stderr.readline()):
            assert line, "it ended before anything was written"
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=PATIENCE_S)
    finally:
        running.kill()
    assert running.returncode == 143, said
    assert "Traceback" not in said
    assert_nothing_is_left(tmp_path)
