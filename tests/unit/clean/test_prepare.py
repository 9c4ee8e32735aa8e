"""`clean.prepare`: the scan stops between splits if its progress raises, and how the writing is divided."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean import prepare
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.errors import BatchTooLargeError, KcompactError
from kcompact.stages import sizing
from kcompact.stages.executor import Progress
from kcompact.stages.job import Split
from tests.support import log_dsl
from tests.support.stages import THREE, plan_of


def test_progress_can_stop_the_scan_between_splits(tmp_path: Path) -> None:
    class Stop(Progress):
        def check(self) -> None:
            raise KcompactError("stopped")

    spec = log_dsl.parse(THREE)
    with pytest.raises(KcompactError, match="stopped"):
        prepare_clean(plan_of(spec, tmp_path / "logs"), InProcess(progress=Stop()))


def test_a_second_try_with_one_worker_does_not_decide_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    real = prepare._aborted_and_decisions

    def decide(*arguments: Any, **options: Any) -> Any:
        calls.append("decide")
        return real(*arguments, **options)

    class Full(InProcess):
        def scan_and_reduce(self, job: Any, tasks: Sequence[Sequence[Split]], stages: Any) -> Any:
            calls.append("scan")
            if calls.count("scan") == 1:
                raise BatchTooLargeError(file="x", position=0, offset=0, problem="a batch", needed_bytes=None)
            return super().scan_and_reduce(job, tasks, stages)

    monkeypatch.setattr(prepare, "_aborted_and_decisions", decide)
    prepare_clean(plan_of(log_dsl.parse(THREE), tmp_path / "logs"), Full(parallelism=4))
    assert calls == ["decide", "scan", "scan"]


def test_writing_is_divided_by_what_is_left(tmp_path: Path) -> None:
    # Of the first 60 batches nothing is left, of the last 20 everything.
    batches = " ".join([*(f"[a={number}]" for number in range(60)), *(f"[k{number}=1]" for number in range(20))])
    plan = plan_of(log_dsl.parse(f"log now=10:00\n0: {batches}\n80:"), tmp_path / "logs")
    prepared = prepare_clean(plan, InProcess(parallelism=2), tuning=Tuning(split_bytes=1))
    second, first = (sum(len(task.splits) for task in tasks) for tasks in prepared.tasks_of([0]))
    assert (first + second, 50 < first < 75) == (80, True)


LITTLE = "a" * 61 + "bcdefghijklmnopqrst"
MUCH = "a" * 60 + "bcdefghijklmnopqrstu"  # More than a fourth survives.


@pytest.mark.parametrize(
    ("keys", "codecs", "parallelism", "tasks"),
    [
        (LITTLE, ["gzip"], 2, 8),
        (LITTLE, ["zstd"], 2, 8),
        (LITTLE, ["zstd", "zstd", "gzip", "none"], 2, 8),
        (LITTLE, ["zstd", "none", "none"], 2, 2),
        (LITTLE, ["lz4"], 2, 2),
        (LITTLE, ["snappy"], 2, 2),
        (LITTLE, ["none"], 2, 2),
        (LITTLE, ["gzip"], 1, 1),
        (MUCH, ["gzip"], 2, 2),
    ],
)
def test_slow_writing_of_a_few_survivors_has_more_tasks_than_workers(
    tmp_path: Path, keys: str, codecs: list[str], parallelism: int, tasks: int, compiled: bool
) -> None:
    batches = " ".join(f"[{key}=1]({codec})".replace("(none)", "") for key, codec in zip(keys, cycle(codecs)))
    plan = plan_of(log_dsl.parse(f"log now=10:00\n0: {batches}\n80:"), tmp_path / "logs")
    tuning = Tuning(split_bytes=1)
    assert len(prepare_clean(plan, InProcess(parallelism=parallelism), tuning=tuning).tasks_of([0])) == tasks


@pytest.mark.parametrize(
    ("segments", "tasks", "whole"), [(7, [4, 4], 6), (8, [1] * 8, 8), (20, [2, 3, 2, 3, 2, 3, 2, 3], 20)]
)
def test_of_many_groups_none_is_in_two_tasks(tmp_path: Path, segments: int, tasks: list[int], whole: int) -> None:
    log = "\n".join(f"{4 * at}: [a{at}=1] [b{at}=1] [c{at}=1] [d{at}=1]" for at in range(segments))
    spec = log_dsl.parse(f"log now=10:00 segment.bytes=300\n{log}\n{4 * segments}:")
    plan = plan_of(spec, tmp_path / "logs")
    prepared = prepare_clean(plan, InProcess(parallelism=2), tuning=Tuning(split_bytes=1))
    written = prepared.tasks_of(range(segments))
    assert len(plan.groups) == segments
    assert [len(parts) for parts in written] == tasks
    assert sum(part.is_only for parts in written for part in parts) == whole


def test_the_last_part_of_the_log_is_written_first(tmp_path: Path) -> None:
    batches = " ".join(f"[a={number}](zstd)" for number in range(80))
    plan = plan_of(log_dsl.parse(f"log now=10:00\n0: {batches}\n80:"), tmp_path / "logs")
    prepared = prepare_clean(plan, InProcess(parallelism=2), tuning=Tuning(split_bytes=1))
    numbers = [[split.number for task in tasks for split in task.splits] for tasks in prepared.tasks_of([0])]
    assert len(numbers) == 8
    assert numbers == sorted(numbers, reverse=True)


def test_a_batch_that_leaves_room_for_fewer_workers_leaves_as_few_tasks(tmp_path: Path) -> None:
    value = "v" * (4 << 20)
    batches = " ".join([f"[a={value}]", *(f"[a={number}](zstd)" for number in range(40))])
    plan = plan_of(log_dsl.parse(f"log now=10:00\n0: {batches}\n41:"), tmp_path / "logs")
    tuning = Tuning(split_bytes=1, memory_bytes=64 << 20)
    prepared = prepare_clean(plan, InProcess(parallelism=8), tuning=tuning)
    assert 1 < prepared.job.workers < 8
    assert len(prepared.tasks_of([0])) <= prepared.job.workers


def test_a_log_of_small_batches_is_cut_into_smaller_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "MIN_SPLIT_BYTES", 1)
    monkeypatch.setattr(sizing, "SPLIT_BATCHES", 10)
    batches = " ".join(f"[k{number}=1]" for number in range(80))
    plan = plan_of(log_dsl.parse(f"log now=10:00\n0: {batches}\n80:"), tmp_path / "logs")
    (task,) = prepare_clean(plan, InProcess(parallelism=1)).tasks
    assert 5 < len(task.splits) < 10
