"""Threads that take turns: one works at a time, and nobody waits for ever."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from kcompact.host import turns
from kcompact.host.turns import Turns
from tests.support.patience import PATIENCE_S


def in_threads(*bodies: object) -> None:
    threads = [threading.Thread(target=body, daemon=True) for body in bodies]  # type: ignore[arg-type]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE_S)
        assert not each.is_alive()


def test_one_thread_works_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", PATIENCE_S)
    shared, together, working, most = Turns(), threading.Barrier(4, timeout=PATIENCE_S), 0, 0

    def body() -> None:
        nonlocal working, most
        together.wait()
        for _ in range(20):
            with shared.taken():
                working += 1
                most = max(most, working)
                time.sleep(0.001)  # Python runs another thread now, which must not work.
                working -= 1

    in_threads(*[body] * 4)
    assert most == 1


def test_others_work_while_one_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", PATIENCE_S)
    shared, meeting = Turns(), threading.Barrier(2, timeout=PATIENCE_S)
    monkeypatch.setattr(os, "fsync", lambda descriptor: meeting.wait())

    def body() -> None:
        with shared.taken():
            turns.sync(0)

    in_threads(body, body)  # Both are in the sync at the same time.


def test_a_lock_that_is_held_during_a_sync_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", PATIENCE_S)
    shared, lock, done = Turns(), threading.Lock(), []
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)

    def body() -> None:
        for _ in range(100):
            with shared.taken(), turns.holding(lock):
                turns.sync(0)
        done.append(True)

    in_threads(*[body] * 4)
    assert len(done) == 4


def test_a_thread_without_a_turn_works_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", 0.01)
    shared, release = Turns(), threading.Event()

    def keeps_its_turn() -> None:
        with shared.taken():
            release.wait(PATIENCE_S)

    def waits() -> None:
        with shared.taken(), turns.out_of_turn():
            release.set()

    in_threads(keeps_its_turn, waits)


def test_the_turn_is_given_back_after_an_error() -> None:
    shared = Turns()
    with pytest.raises(ZeroDivisionError), shared.taken(), turns.out_of_turn():
        raise ZeroDivisionError
    assert not shared._free.locked()


def test_a_block_inside_another_takes_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_WAIT_S", PATIENCE_S)
    shared = Turns()
    with shared.taken():
        with turns.out_of_turn():
            with turns.out_of_turn():
                assert not shared._free.locked()
            assert not shared._free.locked()
        assert shared._free.locked()
    assert not shared._free.locked()


def test_without_turns_nothing_is_given_up() -> None:
    with turns.out_of_turn():
        assert turns._OF_THREAD.turns is None
