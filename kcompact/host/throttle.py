"""A limit on bytes per second, for reading and writing together.

A bucket of tokens fills at the allowed rate, up to a fifth of a second's worth: what was not used in time is lost, so
that a pause is not made up for by a rush. A piece is taken whole, however large; what the bucket lacks is slept off
afterwards. So the average is right at each return, whether the pieces are single bytes or many seconds' worth.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Self

BURST_S = 0.2
SLICE_S = 0.1
"""The longest sleep in one go: how long an abort may stay unnoticed."""


class Throttle:
    """Makes its callers wait, so that together they handle `max_bytes_per_second * share` bytes a second on average.

    `share` in (0, 1] is the part of the limit that is this one's, where several tasks have it together. A limit of None
    is none: `take` returns at once. May be used by several threads. A copy made by pickling starts afresh.
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
        self._tokens = 0.0  # Empty at first: many short tasks in a row keep to the limit too.
        self._filled_at = clock()

    def __reduce__(self) -> tuple[type[Self], tuple[int | None, float]]:
        return type(self), (self.max_bytes_per_second, self.share)

    def take(self, size_bytes: int, check: Callable[[], None] | None = None) -> None:
        """Return once `size_bytes` more fit the limit. While it waits, `check` is called, to raise on an abort."""
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
    """What a task reports to: it asks the throttle for every byte it reads and writes, and tells what is done.

    `done` takes bytes of source, and raises when the run has been asked to stop.
    """

    throttle: Throttle
    done: Callable[[int], None] = lambda size_bytes: None

    def take(self, size_bytes: int) -> None:
        self.throttle.take(size_bytes, lambda: self.done(0))
