"""How many partitions are cleaned at the same time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kcompact.cleaner.small_partitions import SideBySide, small_side_by_side
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("size_mib", "threads", "at_once"),
    [(5, 6, 6), (60, 6, 4), (60, 3, 3), (64, 6, 1), (5, 1, 1)],
    ids=["small", "by-size", "by-threads", "large", "one-thread"],
)
def test_threads_and_sizes_limit_what_runs_together(size_mib: int, threads: int, at_once: int) -> None:
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
        with lock:
            running -= 1
        return outcome

    assert list(small_side_by_side(outcomes, clean, SideBySide(threads=threads))) == outcomes
    assert most == at_once


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
