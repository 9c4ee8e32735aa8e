"""`clean.prepare`: the scan stops between splits if its progress raises."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kcompact.clean import prepare
from kcompact.clean.executor import Progress
from kcompact.clean.job import CleanJob, Split
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.errors import BatchTooLargeError, KcompactError
from tests.support import log_dsl
from tests.support.stages import THREE, plan_of

pytestmark = pytest.mark.usefixtures("no_sync")


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
        def scan_and_reduce(self, job: CleanJob, tasks: Sequence[Sequence[Split]]) -> Any:
            calls.append("scan")
            if calls.count("scan") == 1:
                raise BatchTooLargeError(file="x", position=0, offset=0, problem="a batch", needed_bytes=None)
            return super().scan_and_reduce(job, tasks)

    monkeypatch.setattr(prepare, "_aborted_and_decisions", decide)
    prepare_clean(plan_of(log_dsl.parse(THREE), tmp_path / "logs"), Full(parallelism=4))
    assert calls == ["decide", "scan", "scan"]


def test_writing_is_divided_by_what_is_left(tmp_path: Path) -> None:
    # Of the first 60 batches nothing is left, of the last 20 everything.
    batches = " ".join([*(f"[a={number}]" for number in range(60)), *(f"[k{number}=1]" for number in range(20))])
    plan = plan_of(log_dsl.parse(f"log now=10:00\n0: {batches}\n80:"), tmp_path / "logs")
    prepared = prepare_clean(plan, InProcess(parallelism=2), tuning=Tuning(split_bytes=1))
    first, second = (sum(len(task.splits) for task in tasks) for tasks in prepared.tasks_of([0]))
    assert (first + second, 50 < first < 75) == (80, True)
