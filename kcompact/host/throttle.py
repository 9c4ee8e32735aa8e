"""A limit on bytes per second, for reading and writing together.

A token bucket: tokens are bytes, and the bucket fills at the allowed rate up to `BURST_S` seconds' worth. Tokens above
that are lost, so a pause is not followed by a burst. `take` takes all its bytes at once, even when the bucket becomes
negative, and then sleeps until the bucket is back at zero. The average rate is therefore right after every call, for
pieces of one byte and for pieces of many seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Self

BURST_S = 0.2
SLICE_S = 0.1
"""The longest single sleep. An abort is noticed within this time."""


class Throttle:
    """Delays its callers, so that together they handle `max_bytes_per_second * share` bytes per second on average.

    `share` in (0, 1] is this object's part of the limit when several processes divide it. With `max_bytes_per_second`
    None, `take` never waits. Safe for several threads. An unpickled copy has its own, empty bucket.
    """

    def __init__(
        self,
        max_bytes_per_second: int | None,
        share: float = 1.0,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert max_bytes_per_second is None or max_bytes_per_second > 0, max_bytes_per_second
        assert 0 < share <= 1, share
        self.max_bytes_per_second = max_bytes_per_second
        self.share = share
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._rate = None if max_bytes_per_second is None else max_bytes_per_second * share
        self._tokens = 0.0  # A full bucket at the start would let a sequence of short tasks exceed the limit.
        self._filled_at = clock()

    def __reduce__(self) -> tuple[type[Self], tuple[int | None, float]]:
        return type(self), (self.max_bytes_per_second, self.share)

    def take(self, size_bytes: int, check: Callable[[], None] | None = None) -> None:
        """Take `size_bytes` from the bucket and return when they fit the limit.

        `check` is called before each sleep; an exception that it raises ends the wait.
        """
        if self._rate is None:
            return
        with self._lock:
            now = self._clock()
            earned = (now - self._filled_at) * self._rate
            self._tokens = min(self._tokens + earned, BURST_S * self._rate) - size_bytes
            self._filled_at = now
            due = now - self._tokens / self._rate
        while now < due:
            if check is not None:
                check()
            self._sleep(min(due - now, SLICE_S))
            now = self._clock()


class Pace(NamedTuple):
    """The throttle and the progress callback of one task.

    The task calls `take` for every byte that it reads or writes. It calls `done` with the number of source bytes that
    it has processed; `done` raises an exception to stop the task.
    """

    throttle: Throttle
    done: Callable[[int], None] = lambda size_bytes: None

    def take(self, size_bytes: int) -> None:
        """Wait until the throttle allows `size_bytes` more. Raises the exceptions of `done`."""
        self.throttle.take(size_bytes, lambda: self.done(0))
