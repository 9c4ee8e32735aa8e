"""Threads that take turns: one of them works, the others wait for the disk, or for their turn.

Python runs one thread at a time, and changes over at each system call if others are ready. Many threads that do small
work lose more by that than they gain. They all gain by waiting for the disk at the same time. So a thread keeps its
turn until it waits for the disk (`out_of_turn`, `sync`), and takes one again afterwards.

A turn is a matter of speed only. A thread that does not get one within `_MOST_WAIT_S` works without: so threads that
wait for each other elsewhere, for a lock or for memory, never wait for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

_MOST_WAIT_S = 0.2


class Turns:
    """The turns of some threads."""

    def __init__(self) -> None:
        self._free = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Work in turn with the other threads for the length of the block."""
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def given(self) -> Iterator[None]:
        """Let other threads work for the length of the block. A block inside it has no turn to give."""
        self._give()
        try:
            yield
        finally:
            self._take()

    def _take(self) -> None:
        _OF_THREAD.turns = self
        _OF_THREAD.has_turn = self._free.acquire(timeout=_MOST_WAIT_S)

    def _give(self) -> None:
        _OF_THREAD.turns = None
        if _OF_THREAD.has_turn:
            self._free.release()


class _OfThread(threading.local):
    turns: Turns | None = None
    has_turn = False


_OF_THREAD = _OfThread()


@contextmanager
def out_of_turn() -> Iterator[None]:
    """Let other threads work for the length of the block, if this thread takes turns."""
    turns = _OF_THREAD.turns
    with nullcontext() if turns is None else turns.given():
        yield


@contextmanager
def holding(lock: threading.Lock) -> Iterator[None]:
    """Hold a lock for the length of the block; other threads work while this one waits for it.

    Every lock that is held during a `sync` is taken in this way.
    """
    if not lock.acquire(blocking=False):
        with out_of_turn():
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def sync(descriptor: int) -> None:
    """Wait until a file or a directory is on the disk; other threads work meanwhile. Raises OSError."""
    with out_of_turn():
        os.fsync(descriptor)
