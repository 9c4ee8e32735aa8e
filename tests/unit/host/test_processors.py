"""Work on all processors: its order, and its end."""

from __future__ import annotations

import threading
import time

import pytest

from kcompact.host.machine import in_parallel


def test_work_that_is_not_waited_for_is_cancelled() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.05)
        return number

    results = in_parallel(work, range(1000))
    assert [next(results), next(results)] == [0, 1]
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 1000
    assert list(in_parallel(work, [5, 6])) == [5, 6]


def test_with_one_processor_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    threads = in_parallel(lambda number: (number, threading.current_thread()), range(3))
    assert list(threads) == [(number, threading.current_thread()) for number in range(3)]
