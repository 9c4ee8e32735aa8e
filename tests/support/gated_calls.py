"""Calls to the system by some threads: one fails, and one waits at a gate until the test opens it.

The threads of a service and of the test's callers are known by their names. Calls of all other threads go through.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.support.patience import PATIENCE_S

CALLS = {
    **dict.fromkeys(("rename", "unlink", "rmdir", "mkdir", "write", "writev", "fsync", "utime", "link"), errno.ENOSPC),
    **dict.fromkeys(("open", "listdir", "scandir"), errno.EMFILE),
    **dict.fromkeys(("stat", "fstat", "pread", "preadv", "read", "fchmod", "fchown", "statvfs"), errno.EIO),
}
"""Calls of the module `os`, with an error that each may have beside EIO."""
START = "start"
"""The start of a thread, which fails as one does that the system does not grant."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The call of this name that comes after `after` others fails; with `is_lasting` all that follow fail too."""

    name: str
    number: int
    after: int
    is_lasting: bool

    def hits(self, seen: int) -> bool:
        return seen >= self.after if self.is_lasting else seen == self.after


class GatedCalls:
    """A fault for the calls of `threads` (beginnings of names), and a gate for those of `held_threads`."""

    def __init__(self, threads: tuple[str, ...], held_threads: str) -> None:
        self.reached = threading.Event()
        """Set when a thread waits at the gate."""
        self._threads, self._held_threads = threads, held_threads
        self._counting = threading.Lock()
        self._fault: Fault | None = None
        self._seen = self._until_gate = 0
        self._opened = threading.Event()
        self._own = threading.local()

    def arm(self, fault: Fault | None, wait_at: int) -> None:
        """Let the fault happen from now on, and the call of this number wait at the gate; 0 is no call."""
        with self._counting:
            self._fault, self._seen, self._until_gate = fault, 0, wait_at
            self.reached, self._opened = threading.Event(), threading.Event()

    @property
    def is_armed(self) -> bool:
        return not self._opened.is_set()

    def open(self) -> None:
        """Let the thread at the gate go on, and no other one wait."""
        with self._counting:
            self._until_gate = 0
            self._opened.set()

    def disarm(self) -> None:
        """Open the gate, and let every call succeed."""
        self.open()
        with self._counting:
            self._fault = None

    @contextmanager
    def by_the_test(self) -> Iterator[None]:
        """Let the calls of this thread go through, because the test makes them."""
        self._own.is_exempt = True
        try:
            yield
        finally:
            self._own.is_exempt = False

    @contextmanager
    def watched(self, thread_class: type[threading.Thread]) -> Iterator[None]:
        """Watch the calls, and the starts of the threads of a class, until the end of the block."""
        with ExitStack() as stack:
            for where, name in [(os, name) for name in CALLS] + [(thread_class, START)]:
                stack.enter_context(patch.object(where, name, self._watching(name, getattr(where, name))))
            yield

    def _watching(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def watch(*arguments: Any, **options: Any) -> Any:
            self._before(name)
            return real(*arguments, **options)

        return watch

    def _before(self, name: str) -> None:
        thread = threading.current_thread().name
        if not thread.startswith(self._threads) or getattr(self._own, "is_exempt", False):
            return
        problem: Exception | None = None
        with self._counting:
            opened, is_counted = self._opened, self._until_gate > 0 and thread.startswith(self._held_threads)
            self._until_gate -= is_counted
            is_held = is_counted and self._until_gate == 0
            if self._fault is not None and self._fault.name == name:
                if self._fault.hits(self._seen):
                    problem = OSError(self._fault.number, os.strerror(self._fault.number))
                self._seen += 1
        if is_held:
            self.reached.set()
            assert opened.wait(PATIENCE_S)
        if problem is not None:
            raise RuntimeError("can't start new thread") if name == START else problem
