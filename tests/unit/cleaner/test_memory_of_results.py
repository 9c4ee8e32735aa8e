"""The memory that the result of a round holds for each partition, beside the plan."""

from __future__ import annotations

import gc
import shutil
import traceback
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kcompact.cleaner import cleaning
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import PartitionOutcome, RoundResult
from kcompact.cleaner.round import clean_log_dir
from kcompact.errors import EngineError, UnexpectedError
from kcompact.host.disk import Disk
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl
from tests.support.command_line import LOG0, LOG3, LOG6, flip, partition, settings

MOST_BYTES = 2_000
PARTITIONS = 10
"""Enough to divide what a result holds once for all."""
PLAN = PlanOptions(now_ms=log_dsl.time_of("10:00"))
COMPACT = {"cleanup.policy": "compact"}
MAGIC_POSITION = 16


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    partition(tmp_path / "logs", settings("name=topic-0"))
    return tmp_path / "logs"


def copies_of_first(log_dir: Path) -> Path:
    """Return the log directory with as many partitions as are measured."""
    for number in range(1, PARTITIONS):
        shutil.copytree(log_dir / "topic-0", log_dir / f"topic-{number}")
    return log_dir


def held_bytes(clean: Callable[[], RoundResult]) -> int:
    """Return how many bytes a result holds for each partition, without the plans."""
    tracemalloc.start()
    try:
        result = clean()
        plans = [each.plan for each in result.partitions]
        gc.collect()
        with_result, _ = tracemalloc.get_traced_memory()
        del result
        gc.collect()
        without, _ = tracemalloc.get_traced_memory()
        return (with_result - without) // len(plans)
    finally:
        tracemalloc.stop()


def cleaned(log_dir: Path, options: CleanOptions, status: str, **config: str) -> RoundResult:
    result = clean_log_dir(log_dir, COMPACT | config, plan_options=PLAN, options=options, engine="in-process")
    assert {each.status for each in result.partitions} == {status}
    return result


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    of = Disk.of
    monkeypatch.setattr(Disk, "of", staticmethod(lambda path: of(path)._replace(free_bytes=100)))


def fail_always(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(cleaning, "prepare_clean", fail)


@pytest.mark.parametrize("keeps", [False, True])
def test_results_are_small(log_dir: Path, tmp_path: Path, *, keeps: bool) -> None:
    options = CleanOptions(keep_replaced=tmp_path / "kept" if keeps else None)
    copies_of_first(log_dir)
    assert held_bytes(lambda: cleaned(log_dir, options, "cleaned")) < MOST_BYTES


def test_results_with_deleted_segments_are_small(log_dir: Path) -> None:
    copies_of_first(log_dir)
    config = {"cleanup.policy": "compact,delete", "retention.bytes": "100", "retention.ms": "-1"}
    options = CleanOptions(apply_retention=True)
    assert held_bytes(lambda: cleaned(log_dir, options, "cleaned", **config)) < MOST_BYTES


@pytest.mark.parametrize("why", ["damage", "full disk", "bug"])
def test_errors_are_small(log_dir: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "damage":
        flip(log_dir / "topic-0" / LOG3, -1)
    elif why == "full disk":
        fill_disk(monkeypatch)
    else:
        fail_always(monkeypatch)
    copies_of_first(log_dir)
    assert held_bytes(lambda: cleaned(log_dir, CleanOptions(), "failed")) < MOST_BYTES


def test_damage_that_planning_finds_keeps_no_frames(log_dir: Path) -> None:
    for name in (LOG0, LOG3, LOG6):
        flip(log_dir / "topic-0" / name, MAGIC_POSITION)
    (outcome,) = cleaned(log_dir, CleanOptions(), "failed").partitions
    assert outcome.plan is not None
    assert len(outcome.plan.log.damage) >= 3
    assert all(each.__traceback__ is None for each in outcome.plan.log.damage)


def test_a_bug_keeps_its_traceback_as_text(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_always(monkeypatch)
    (outcome,) = cleaned(log_dir, CleanOptions(), "failed").partitions
    assert isinstance(outcome.error, UnexpectedError)
    shown = "".join(traceback.format_exception(outcome.error))
    assert "TypeError: a bug\nTraceback (most recent call last):\n" in shown
    assert shown.count("in fail\n") == 1
    assert outcome.error.__cause__ is not None
    assert outcome.error.__cause__.__traceback__ is None


def test_partitions_that_share_an_error_of_spark_have_its_text_once() -> None:
    error = EngineError(problem="the job failed")
    for number in range(3):
        with suppress(EngineError):
            raise error
        assert PartitionOutcome(directory=Path(f"topic-{number}"), error=error).error is error
    assert error.__traceback__ is None
    (text,) = error.__notes__
    assert "raise error" in text
