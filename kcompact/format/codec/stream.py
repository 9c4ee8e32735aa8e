"""Shared by the four codecs: bounded reading of compressed bytes, and a bounded collector of inflated bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

TOO_SHORT = "the stream ended prematurely"
_NO_MEMORY = ("not enough memory", "error -4 ")
"""What zstd (`ERR_getErrorString` of memory_allocation) and Python's zlib (of Z_MEM_ERROR) say."""
PIECE_BYTES = 1024 * 1024
"""The most bytes that a library inflates in one call."""


class DamagedStreamError(Exception):
    """The problem of a compressed stream. `decompress` adds the file and the position of the batch."""


class TooLongError(Exception):
    """A stream inflates to more bytes than its reader allows."""


class InflatedBytes:
    """The inflated pieces of one stream. Raises TooLongError when they exceed `max_bytes` together."""

    def __init__(self, max_bytes: int) -> None:
        self._pieces: list[bytes] = []
        self.max_bytes = max_bytes
        self.remaining_bytes = max_bytes

    def add(self, piece: bytes) -> None:
        self.remaining_bytes -= len(piece)
        if self.remaining_bytes < 0:
            self.raise_too_long()
        self._pieces.append(piece)

    def raise_too_long(self) -> NoReturn:
        raise TooLongError(f"inflates to more than {self.max_bytes:,} bytes")

    def next_piece_bytes(self) -> int:
        """Return how many bytes to ask for next: one more than `max_bytes` allows is enough to detect the excess."""
        return min(PIECE_BYTES, self.remaining_bytes + 1)

    def joined(self) -> bytes:
        return self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)


def call_library(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what a library call returns. An exception of the library means damaged bytes: DamagedStreamError.

    Raises MemoryError where the library got no memory: that says nothing about the bytes.
    """
    try:
        return call(*args, **kwargs)
    except MemoryError:
        raise
    except Exception as error:  # each library has its own classes, and they differ between releases
        if any(words in str(error).lower() for words in _NO_MEMORY):
            raise MemoryError(str(error)) from error
        raise DamagedStreamError(str(error) or type(error).__name__) from error


def take(source: memoryview, start: int, count: int) -> memoryview:
    """Return the `count` bytes at `start`. Raises DamagedStreamError when there are fewer."""
    taken = source[start : start + count]
    if len(taken) < count:
        raise DamagedStreamError(TOO_SHORT)
    return taken
