"""The rules again, as compiled loops over arrays: what runs when a log is large.

    declared   what the kernels take and return, and the columns of a table of batches
    loops      the loops themselves
    machine    compiles them once on each machine, keeps the machine code, and links it

The machine code is loaded with the first call; `machine.is_compiled` tells beforehand whether that will be quick.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kcompact.kernels import machine
from kcompact.kernels.declared import *  # noqa: F403
from kcompact.kernels.declared import KERNELS, Bytes

if TYPE_CHECKING:
    crc32c: Callable[..., Any]
    walk: Callable[..., Any]
    hop: Callable[..., Any]
    scan_records: Callable[..., Any]
    verify_records: Callable[..., Any]
    keep_living: Callable[..., Any]
    set_bits: Callable[..., Any]
    clear_bits: Callable[..., Any]
    filter_batches: Callable[..., Any]
    index_entries: Callable[..., Any]

RUN_ROWS = 32_768
"""About how many rows `mark_living` takes at a time: what fits the processor's cache."""


@cache
def load() -> dict[str, Callable[..., Any]]:
    """Return the machine code of each kernel; compiles it, for some ten seconds, where it is not in the cache yet."""
    return machine.load()


def __getattr__(name: str) -> Any:
    if name not in KERNELS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load()[name]


def siphash128(data: Bytes, start: int, end: int, k0: int, k1: int, c_rounds: int = 1, d_rounds: int = 3) -> bytes:
    """Return SipHash-c-d-128 of `data[start:end]`, 16 bytes."""
    low, high = load()["siphash128"](data, start, end, k0, k1, c_rounds, d_rounds)
    return struct.pack("<qq", low, high)


class Scratch:
    """Memory that `mark_living` uses again from call to call; fresh memory costs as much as the work."""

    def __init__(self) -> None:
        self._dealt = np.empty((0, 2), np.uint64)
        self._order = np.empty(0, np.int64)
        self._table = np.empty(0, np.int32)

    def of(self, rows: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return room for so many rows."""
        if len(self._order) < rows:
            self._dealt, self._order = np.empty((rows, 2), np.uint64), np.empty(rows, np.int64)
            self._table = np.empty(1 << max(4, (2 * rows).bit_length()), np.int32)
        return self._dealt, self._order, self._table


def mark_living(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
    alive: Bytes,
    scratch: Scratch | None = None,
) -> None:
    """Set alive u8[n] to 1 where no other record supersedes the row; places ascend."""
    rows = len(places)
    bits = min(12, max(0, (rows // RUN_ROWS).bit_length()))
    starts = np.empty((1 << bits) + 2, np.int64)
    load()["mark_living"](hash_high, hash_low, places, alive, starts, *(scratch or Scratch()).of(max(1, rows)))


def deal(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
    buckets: int,
    high_out: npt.NDArray[np.uint64],
    low_out: npt.NDArray[np.uint64],
    places_out: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Sort rows by bucket into the outputs; return where each begins, and the end of the last."""
    starts = np.empty(buckets + 2, np.int64)
    load()["deal"](hash_high, hash_low, places, buckets, high_out, low_out, places_out, starts)
    return starts[:-1]
