"""A partition is a task of Spark: the same bytes as in one process, and what befalls one befalls it alone."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from fixtures import checkout
from kcompact import PlanOptions, RoundProgress, clean_log_dir
from kcompact.clean.scan import CLEANING
from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, executor, queue_of
from kcompact.errors import CleaningAbortedError
from kcompact.stages.executor import Progress
from tests.support import misbehaving_tasks
from tests.support.command_line import COMPACT, Ran, kcompact
from tests.support.misbehaving_tasks import MISBEHAVES, NOTES
from tests.support.spark_runs import (
    NOW_MS,
    SPARK,
    Started,
    content,
    left_behind,
    plan_of,
    scan_arguments,
    write_log,
    write_partition,
)

pytestmark = SPARK


def cleaned(engine: str, *log_dirs: Path) -> Ran:
    return kcompact("clean", "--engine", engine, "--force", "--json", "--high-watermark", "leo", *COMPACT, *log_dirs)


def jobs_of(on_spark: OnSpark) -> int:
    """Return how many jobs this Spark has run."""
    return int(on_spark.sc._jsc.sc().dagScheduler().numTotalJobs())


def files(directory: Path) -> dict[str, Any]:
    """Return names and contents; of a checkpoint the lines: the order of some depends on which partition ends first."""
    found: dict[str, Any] = dict(content(directory))
    return found | {name: sorted((directory / name).open()) for name in found if name.endswith("-checkpoint")}


def test_partitions_of_all_kinds_come_out_as_in_one_process(
    started: Started, on_spark: OnSpark, tmp_path: Path
) -> None:
    names = [name for name in checkout.names() if name != "broker"]
    for name in names:
        checkout.copy_directory(name, "before", tmp_path / "logs" / name)
    for number in range(8):
        directory = tmp_path / "logs" / "larger" / f"larger-{number}"
        write_partition(directory, total_bytes=5 << 19, segments=1, value_bytes=2_000)
    shutil.copytree(tmp_path / "logs", tmp_path / "copy")
    before = jobs_of(on_spark)
    on = cleaned("spark", *(tmp_path / "logs").iterdir())
    jobs = jobs_of(on_spark) - before
    assert on.code == 0, on.err
    alone = cleaned("in-process", *(tmp_path / "copy").iterdir())
    assert files(tmp_path / "logs") == files(tmp_path / "copy")
    statuses = [[entry["status"] for entry in ran.json["partitions"]] for ran in (on, alone)]
    assert statuses[0] == statuses[1]
    assert statuses[0].count("cleaned") >= 30
    assert jobs < 30, "each would have one of its own"


def write_logs(log_dir: Path) -> set[str]:
    """Write eight small partitions and return their names."""
    names = {f"small-{number}" for number in range(8)}
    for name in names:
        write_partition(log_dir / name, total_bytes=60_000, segments=3, value_bytes=2_000)
    return names


@pytest.mark.parametrize(
    ("kind", "code", "failed"),
    [
        ("DiesAlways", 1, {MISBEHAVES}),
        ("DiesOnce", 0, set()),
        ("Lies", 1, {MISBEHAVES}),
        ("FillsTheDisk", 7, {MISBEHAVES}),
    ],
)
def test_a_worker_that_dies_or_lies(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: int, failed: set[str]
) -> None:
    logs, copy = tmp_path / "logs", tmp_path / "copy"
    names = write_logs(logs)
    shutil.copytree(logs, copy)
    shutil.copytree(logs / MISBEHAVES, tmp_path / "before")
    monkeypatch.setattr(executor, "WholeTask", getattr(misbehaving_tasks, kind))
    ran = cleaned("spark", logs)
    assert ran.code == code, ran.err
    found = {entry["directory"].rpartition("/")[2]: entry["status"] for entry in ran.json["partitions"]}
    assert found == {name: "failed" if name in failed else "cleaned" for name in names}
    if kind.startswith("Dies"):
        assert (tmp_path / NOTES).read_text().split() == ["dies"] * (2 if failed else 1)
    assert left_behind(logs) == []
    assert cleaned("in-process", copy).code == 0
    for name in names:
        assert content(logs / name) == content(tmp_path / "before" if name in failed else copy / name)


class StopAt(RoundProgress, Progress):
    """Stops the round when a note is found."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def of(self, directory: Path) -> Progress:
        return self

    def check(self) -> None:
        if self.notes.exists():
            raise CleaningAbortedError(path="small", exit_code=143)


def test_a_round_that_stops_during_a_task_leaves_nothing(
    started: Started, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, copy = tmp_path / "logs", tmp_path / "copy"
    names = write_logs(logs)
    shutil.copytree(logs, tmp_path / "before")
    shutil.copytree(logs, copy)
    monkeypatch.setattr(executor, "WholeTask", misbehaving_tasks.TakesLong)
    options = PlanOptions(now_ms=NOW_MS, force=True, use_log_end=True)
    config = {"cleanup.policy": "compact"}
    result = clean_log_dir(logs, config, plan_options=options, engine="spark", progress=StopAt(tmp_path / NOTES))
    assert result.exit_code == 143
    assert left_behind(logs) == []
    clean_log_dir(copy, config, plan_options=options)
    stopped = [outcome.directory.name for outcome in result.partitions if outcome.error is not None]
    assert MISBEHAVES in stopped
    for name in names:
        assert content(logs / name) == content((tmp_path / "before" if name in stopped else copy) / name)


def test_a_java_process_that_has_ended_fails_each_partition(started: Started, tmp_path: Path) -> None:
    class Ended:
        master = "local[2]"

        @property
        def defaultParallelism(self) -> int:  # noqa: N802
            raise Py4JNetworkError

    started.context_ = Ended()
    names = write_logs(tmp_path / "logs")
    ran = cleaned("spark", tmp_path / "logs")
    assert ran.code == 1, ran.err
    errors = {entry["directory"].rpartition("/")[2]: entry["error"] for entry in ran.json["partitions"]}
    assert errors.keys() == names
    assert all("Java process has ended" in error for error in errors.values()), errors


def test_keys_without_room_are_in_sparks_own_directory(
    on_spark: OnSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, tasks = scan_arguments(plan_of(write_log(tmp_path / "logs")))
    job = dataclasses.replace(job, keys_bytes=1, workers=on_spark.parallelism)
    monkeypatch.setattr(executor, "WholeTask", misbehaving_tasks.NotesScratch)
    with queue_of(on_spark.sc) as tasks_:
        scanned, reduced = dataclasses.replace(on_spark, tasks=tasks_).scan_and_reduce(job, tasks, CLEANING)
    expected = InProcess(parallelism=1).scan_and_reduce(job, tasks, CLEANING)
    assert [scan.survivors for scan in scanned] == [scan.survivors for scan in expected[0]]
    assert list(reduced) == list(expected[1])
    made = (tmp_path / NOTES).read_text().split()
    local = on_spark.sc.getConf().get("spark.local.dir")
    assert made
    assert all(Path(directory).is_relative_to(local) for directory in made), made
