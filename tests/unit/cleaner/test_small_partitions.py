"""How many partitions are cleaned at the same time."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kcompact.cleaner import engines
from kcompact.cleaner.round import clean_log_dir
from kcompact.cleaner.small_partitions import SideBySide, small_side_by_side
from kcompact.engine import in_process
from kcompact.host import turns
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl
from tests.support.command_line import partition, settings
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("size_mib", "threads", "at_once"),
    [(5, 6, 6), (60, 6, 4), (60, 3, 3), (5, 2, 2), (64, 6, 1), (5, 1, 1)],
    ids=["small", "by-size", "by-threads", "two-threads", "large", "one-thread"],  # 64 MiB are not small any more.
)
def test_threads_and_sizes_limit_what_runs_together(
    size_mib: int, threads: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", 0.01)  # Who meets the others has the turn, and keeps it.
    outcomes: list[Any] = [
        SimpleNamespace(number=number, turn=SimpleNamespace(segments=[SimpleNamespace(size_bytes=size_mib << 20)]))
        for number in range(12)
    ]
    meeting, lock, running, most = threading.Barrier(at_once, timeout=PATIENCE_S), threading.Lock(), 0, 0

    def clean(outcome: Any) -> Any:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        meeting.wait()
        time.sleep(0.05)  # Whoever else is let in comes in.
        with lock:
            running -= 1
        return outcome

    assert list(small_side_by_side(outcomes, clean, SideBySide(threads=threads))) == outcomes
    assert most == at_once


def test_two_small_neighbours_are_cleaned_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", 0.01)
    outcomes: list[Any] = [SimpleNamespace(turn=None)] * 2
    meeting = threading.Barrier(2, timeout=PATIENCE_S)

    def clean(outcome: Any) -> Any:
        return meeting.wait()

    places: list[Any] = list(small_side_by_side(outcomes, clean, SideBySide(threads=2)))
    assert sorted(places) == [0, 1]


def test_the_largest_come_first_and_the_results_in_order() -> None:
    sizes = [3, 90, 5, 200, 1, 80]
    outcomes: list[Any] = [
        SimpleNamespace(turn=SimpleNamespace(segments=[SimpleNamespace(size_bytes=size)])) for size in sizes
    ]
    begun = []

    def clean(outcome: Any) -> Any:
        begun.append(outcome.turn.segments[0].size_bytes)
        return outcome

    how = SideBySide(threads=1, each_bytes=100, together_bytes=None, is_largest_first=True)
    assert list(small_side_by_side(outcomes, clean, how)) == outcomes
    assert begun == sorted(sizes, reverse=True)


def test_what_is_larger_than_all_may_be_together_is_cleaned_alone() -> None:
    outcomes: list[Any] = [
        SimpleNamespace(turn=SimpleNamespace(segments=[SimpleNamespace(size_bytes=size)])) for size in (30, 5, 30)
    ]
    how = SideBySide(threads=3, each_bytes=100, together_bytes=10)
    assert list(small_side_by_side(outcomes, lambda outcome: outcome, how)) == outcomes


@pytest.mark.parametrize("out_of_turn_bytes", [0, 1 << 40], ids=["stages-out-of-turn", "stages-in-turn"])
def test_nobody_waits_in_vain_for_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out_of_turn_bytes: int
) -> None:
    """Each turn is given back: also by a stage that has given it, and syncs files in that time."""
    monkeypatch.setattr(turns, "_MOST_WAIT_S", PATIENCE_S)
    monkeypatch.setattr(in_process, "_OUT_OF_TURN_BYTES", out_of_turn_bytes)
    monkeypatch.setattr(engines, "available_cores", lambda: 4)
    for number in range(8):
        partition(tmp_path, settings(f"hw=7 name=orders-{number}"))
    took: list[bool] = []
    take = turns.Turns._take

    def taking(self: turns.Turns) -> None:
        if took and not took[-1]:
            pytest.fail("a turn was not given back")
        take(self)
        took.append(turns._OF_THREAD.has_turn)

    monkeypatch.setattr(turns.Turns, "_take", taking)
    result = clean_log_dir(
        tmp_path, {"cleanup.policy": "compact"}, plan_options=PlanOptions(now_ms=log_dsl.time_of("10:00"))
    )
    assert result.exit_code == 0
    assert len(took) > 8
    assert all(took)
