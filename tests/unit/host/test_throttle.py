"""`host.throttle`: the average rate, bursts and aborts, with a simulated clock and shortly with the real one."""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.host.throttle import BURST_S, SLICE_S, Throttle
from tests.support.patience import PATIENCE_S

MIB = 1 << 20


@dataclass
class Clock:
    """A simulated clock. A sleep takes a little longer than requested, as real sleeps do."""

    now: float = 1000.0
    late_s: float = 60e-6
    longest_s: float = 0.0

    def read(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.longest_s = max(self.longest_s, seconds)
        self.now += seconds + self.late_s


def throttle_of(clock: Clock, rate: int, share: float = 1.0) -> Throttle:
    return Throttle(rate, share, clock=clock.read, sleep=clock.sleep)


@pytest.mark.long
@pytest.mark.parametrize("share", [1.0, 0.25])
@pytest.mark.parametrize(
    ("rate", "piece_bytes"),
    [
        (1_000, 1),
        pytest.param(50_000, 1, marks=pytest.mark.slow),
        (100_000, 61),
        pytest.param(1_000_000, 61, marks=pytest.mark.slow),
        (10 * MIB, 4096),
        (10 * MIB, 8 * MIB),
        (10 * MIB, 64 * MIB),
        (MIB, 64 * MIB),
        (1000 * MIB, 64 * MIB),
        (10**12, 64 * MIB),
    ],
)
def test_the_average_is_the_limit(rate: int, piece_bytes: int, share: float) -> None:
    clock = Clock()
    throttle = throttle_of(clock, round(rate / share), share)
    started, taken = clock.now, 0
    while clock.now - started < 10:
        throttle.take(piece_bytes)
        taken += piece_bytes
    assert taken / (clock.now - started) == pytest.approx(rate, rel=0.1)
    assert clock.longest_s <= SLICE_S


@given(
    st.lists(st.tuples(st.integers(0, 64 * MIB), st.floats(0, 3)), min_size=1, max_size=50),
    st.integers(MIB, 100 * MIB),
)
def test_a_pause_is_not_followed_by_a_burst(pieces: list[tuple[int, float]], rate: int) -> None:
    """In any interval no more bytes pass than the rate allows, plus one burst."""
    clock = Clock()
    throttle = throttle_of(clock, rate)
    moments = []
    for size_bytes, pause_s in pieces:
        clock.now += pause_s
        began = clock.now
        throttle.take(size_bytes)
        moments.append((began, clock.now, size_bytes))
    for first in range(len(moments)):
        taken = 0
        for last in range(first, len(moments)):
            taken += moments[last][2]
            elapsed_s = moments[last][1] - moments[first][0]
            assert taken <= rate * (elapsed_s + BURST_S) + 1


def test_a_caller_below_the_limit_never_waits() -> None:
    clock = Clock()
    throttle = throttle_of(clock, 1000)
    for _ in range(100):
        clock.now += 0.1
        throttle.take(99)
    assert clock.longest_s == 0


def test_without_a_limit_nothing_waits() -> None:
    clock = Clock()
    throttle = Throttle(None, clock=clock.read, sleep=clock.sleep)
    throttle.take(1 << 60)
    assert clock == Clock()
    assert pickle.loads(pickle.dumps(Throttle(None))).max_bytes_per_second is None


def test_an_abort_ends_the_wait() -> None:
    clock = Clock()
    throttle = throttle_of(clock, 1000)

    def check() -> None:
        if clock.now >= 1003:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        throttle.take(1_000_000, check)
    assert clock.now == pytest.approx(1003, abs=2 * SLICE_S)


def test_an_unpickled_copy_has_its_own_bucket() -> None:
    clock = Clock()
    throttle = throttle_of(clock, 1 << 30, 0.5)
    throttle.take(500 << 30)
    copy = pickle.loads(pickle.dumps(throttle))
    assert (copy.max_bytes_per_second, copy.share) == (1 << 30, 0.5)
    started = time.monotonic()
    copy.take(64 * MIB)
    # 64 MiB at 512 MiB/s; the original is still a quarter of an hour behind.
    assert 0.12 < time.monotonic() - started < PATIENCE_S


def test_threads_share_the_limit() -> None:
    throttle = Throttle(100 * MIB)
    started = time.monotonic()

    def work() -> None:
        for _ in range(100):
            throttle.take(MIB // 8)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - started >= 0.5  # 50 MiB at 100 MiB/s, from an empty bucket.
