"""How many partitions are cleaned at the same time."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from kcompact.cleaner.small_partitions import small_side_by_side
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

    assert list(small_side_by_side(outcomes, clean, threads=threads)) == outcomes
    assert most == at_once
