"""The memory that executors share when they clean at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction

POLL_S = 0.1


class SharedMemory:
    """Lets only as many tasks run at the same time, and hold as many keys, as the memory is enough for.

    A task takes one part of the memory, of as many parts as `CleanJob.workers` says, so a task that needs the whole
    memory runs alone.
    """

    def __init__(self) -> None:
        self._free = Fraction(1)
        self._changed = threading.Condition()
        self._held_bytes = 0

    @contextmanager
    def part(self, workers: int, waiting: Callable[[], None]) -> Iterator[None]:
        """Take one of `workers` parts as soon as it is free. Calls `waiting` meanwhile, which may raise."""
        part = Fraction(1, workers)
        while not self._taken(part):
            waiting()
        try:
            yield
        finally:
            with self._changed:
                self._free += part
                self._changed.notify_all()

    def hold(self, size_bytes: int, limit_bytes: int) -> bool:
        """Return whether all keys that are held have at most `limit_bytes` with these. Only then they are held too."""
        with self._changed:
            if self._held_bytes + size_bytes > limit_bytes:
                return False
            self._held_bytes += size_bytes
            return True

    def release(self, size_bytes: int) -> None:
        """Hold so many bytes of keys less."""
        with self._changed:
            self._held_bytes -= size_bytes

    def _taken(self, part: Fraction) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self._free >= part, POLL_S):
                return False
            self._free -= part
            return True
