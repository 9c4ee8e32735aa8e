"""The array types of the kernels, and the kernels that need scratch arrays, with simpler signatures."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from kcompact.kernels.machine_code import loaded

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]
Column = npt.NDArray[np.int64]
Table = npt.NDArray[np.int64]
"""A row for each batch, a column for each constant of `columns`."""

RUN_ROWS = 32_768
"""About how many rows `mark_latest` compares at a time: as many as fit the processor's cache."""


class Scratch:
    """Memory that `mark_latest` reuses in every call; allocating it each time would take as long as the work itself."""

    def __init__(self) -> None:
        self._dealt = np.empty((0, 2), np.uint64)
        self._order = np.empty(0, np.int64)
        self._table = np.empty(0, np.int32)

    def of(self, rows: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return arrays for at least `rows` rows."""
        if len(self._order) < rows:
            self._dealt, self._order = np.empty((rows, 2), np.uint64), np.empty(rows, np.int64)
            self._table = np.empty(1 << max(4, (2 * rows).bit_length()), np.int32)
        return self._dealt, self._order, self._table


def siphash128(data: Bytes, start: int, end: int, k0: int, k1: int, c_rounds: int = 1, d_rounds: int = 3) -> bytes:
    """Return SipHash-c-d-128 of `data[start:end]`, 16 bytes, the low half first."""
    low, high = loaded()["siphash128"](data, start, end, k0, k1, c_rounds, d_rounds)
    return struct.pack("<qq", low, high)


def mark_latest(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    record_refs: npt.NDArray[np.int64],
    is_latest: Bytes,
    scratch: Scratch | None = None,
) -> None:
    """Set is_latest u8[n] to 1 where no other record supersedes the row, else to 0. `record_refs` must ascend."""
    rows = len(record_refs)
    bits = min(12, max(0, (rows // RUN_ROWS).bit_length()))
    starts = np.empty((1 << bits) + 2, np.int64)
    loaded()["mark_latest"](
        hash_high, hash_low, record_refs, is_latest, starts, *(scratch or Scratch()).of(max(1, rows))
    )


def deal(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    record_refs: npt.NDArray[np.int64],
    buckets: int,
    high_out: npt.NDArray[np.uint64],
    low_out: npt.NDArray[np.uint64],
    record_refs_out: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Sort rows by bucket into the outputs; return the start of each bucket, and the end of the last one."""
    starts = np.empty(buckets + 2, np.int64)
    loaded()["deal"](hash_high, hash_low, record_refs, buckets, high_out, low_out, record_refs_out, starts)
    return starts[:-1]
