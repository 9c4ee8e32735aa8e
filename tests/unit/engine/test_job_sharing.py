"""Small stages of several threads run in shared jobs: each has its own result, error and end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from kcompact.engine.spark.job_sharing import SharedJobs
from kcompact.errors import EngineError
from tests.support.patience import PATIENCE_S


class Jobs:
    """Runs jobs as Spark does: each one waits for a `go`. The stage "bad" makes its job fail."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.begun = threading.Event()
        self.ran: list[list[str]] = []
        self.cancelled: list[str] = []

    def run(self, group: str, stages: Sequence[str]) -> list[bytes]:
        self.ran.append(list(stages))
        self.begun.set()
        assert self.go.acquire(timeout=PATIENCE_S)
        if "bad" in stages:
            raise ValueError("bad")
        return [stage.encode() for stage in stages]

    def cancel(self, group: str, ended: Callable[[float], bool]) -> None:
        if not ended(0):
            self.cancelled.append(group)
            self.go.release()
        assert ended(PATIENCE_S)


def waiting(shared: SharedJobs[str], count: int) -> None:
    while len(shared._waiting) < count:
        threading.Event().wait(0.01)


@pytest.mark.parametrize("stages", [["a"], ["a", "b", "c"], ["a", "bad", "c"], ["bad"]], ids=" ".join)
def test_stages_that_wait_are_one_job_and_fail_alone(stages: list[str]) -> None:
    jobs = Jobs()
    shared = SharedJobs(jobs.run, jobs.cancel)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(shared.result, "first", lambda: None)
        assert jobs.begun.wait(PATIENCE_S)
        rest = [pool.submit(shared.result, stage, lambda: None) for stage in stages]
        waiting(shared, len(stages))
        jobs.go.release(10)
        assert first.result(PATIENCE_S) == b"first"
        for stage, result in zip(stages, rest, strict=True):
            if stage == "bad":
                with pytest.raises(ValueError, match="bad"):
                    result.result(PATIENCE_S)
            else:
                assert result.result(PATIENCE_S) == stage.encode()
    shared.end()
    assert jobs.ran[0] == ["first"]
    assert sorted(jobs.ran[1]) == sorted(stages)
    again = sorted(jobs.ran[2:])
    assert again == ([[stage] for stage in sorted(stages)] if "bad" in stages else [])


@pytest.mark.parametrize("count", [0, 2])
def test_another_number_of_results_is_an_error(count: int) -> None:
    shared = SharedJobs[str](lambda group, stages: [b"result"] * count, Jobs().cancel)
    with pytest.raises(EngineError, match=f"Spark returned {count} results of 1 stages"):
        shared.result("stage", lambda: None)
    shared.end()


class StopError(Exception):
    pass


def raising(stop: threading.Event) -> Callable[[], None]:
    def check() -> None:
        if stop.is_set():
            raise StopError

    return check


def test_a_job_that_nobody_wants_is_cancelled() -> None:
    jobs, stop = Jobs(), threading.Event()
    shared = SharedJobs(jobs.run, jobs.cancel)
    with ThreadPoolExecutor() as pool:
        runs = pool.submit(shared.result, "runs", raising(stop))
        assert jobs.begun.wait(PATIENCE_S)
        waits = pool.submit(shared.result, "waits", raising(stop))
        waiting(shared, 1)
        stop.set()
        for stopped in (runs, waits):
            with pytest.raises(StopError):
                stopped.result(PATIENCE_S)
    shared.end()
    assert jobs.ran == [["runs"]]
    assert len(jobs.cancelled) == 1


def test_a_job_that_another_wants_is_not_cancelled() -> None:
    jobs, stop = Jobs(), threading.Event()
    shared = SharedJobs(jobs.run, jobs.cancel)
    with ThreadPoolExecutor() as pool:
        first = pool.submit(shared.result, "first", lambda: None)
        assert jobs.begun.wait(PATIENCE_S)
        stays = pool.submit(shared.result, "stays", lambda: None)
        leaves = pool.submit(shared.result, "leaves", raising(stop))
        waiting(shared, 2)
        jobs.begun.clear()
        jobs.go.release()
        assert first.result(PATIENCE_S) == b"first"
        assert jobs.begun.wait(PATIENCE_S)
        stop.set()
        with pytest.raises(TimeoutError):
            leaves.result(0.5)  # Its stage may still write files.
        jobs.go.release()
        assert stays.result(PATIENCE_S) == b"stays"
        with pytest.raises(StopError):
            leaves.result(PATIENCE_S)
    shared.end()
    assert jobs.cancelled == []
