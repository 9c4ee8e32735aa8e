"""Tables with a row for each key: merged wherever they are, so that no step needs all keys in memory.

A row has the hash of the key in two halves; the newest record of the key with its time and its bytes; and the number of
records of the key with their bytes. `kernels.columns` names the columns. The newest record is known by its *record
reference*, one integer:

    record_ref = split << 36 | row << 2 | kind

Its lowest two bits are the kind of the record: a value, or a tombstone without a delete horizon, before it or after it.
References rise with offsets, so the newer of two records has the greater one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from kcompact import kernels
from kcompact.format.block import pack_table
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.stages.collector import Collector
from kcompact.stages.sizing import TABLE_BYTES

ROW_BYTES = 8
"""The size of a column of a row."""
SAVED_PART = 8
"""Rows are merged in larger tables while so large a part of them goes away: then there are fewer blocks."""
RUN_ROWS = 8192
"""About how many rows `merge_keys` compares at a time: as many as fit the processor's cache."""


class Merger:
    """Merges tables in place, with memory that is used again in every call."""

    def __init__(self) -> None:
        self._dealt: Table = np.empty((0, 0), np.int64)
        self._slots = np.empty(0, np.int32)

    def merge(self, keys: Table, *, order_bits: int, used_bits: int = 0) -> int:
        """Move one row for each key to the front of the table and return their number.

        A row has the newest record of its key, and the sums of its versions and bytes. Associative, and the order of
        the rows does not matter. They are then in the order of `order_bits` bits of KEY_LOW, after the highest
        `used_bits`, which are the same in all rows.
        """
        rows, columns = keys.shape
        if len(self._dealt) < rows or self._dealt.shape[1] != columns:
            self._dealt = np.empty((rows, columns), np.int64)
            self._slots = np.empty(1 << max(4, (2 * rows).bit_length()), np.int32)
        bits = max(order_bits, min(12, (rows // RUN_ROWS).bit_length()))
        starts = np.empty((1 << bits) + 2, np.int64)
        return int(kernels.merge_keys(keys, rows, used_bits, bits, starts, self._dealt, self._slots))


def bucket_starts(keys: Table, bucket_bits: int) -> Column:
    """Return where the rows of each bucket begin, and the end of the last, in rows that are in the order of buckets."""
    if not bucket_bits:
        return np.array([0, len(keys)], np.int64)
    buckets = keys[:, c.KEY_LOW].view(np.uint64) >> np.uint64(64 - bucket_bits)
    starts: Column = np.searchsorted(buckets, np.arange((1 << bucket_bits) + 1, dtype=np.uint64))
    return starts


class RowCollector(Collector):
    """Collects the keys of one log from a task's splits, and merges them.

    Few keys take little memory, however many records they have: TABLE_BYTES are merged first. If too much of them is
    left, more are held before they are packed: up to `limit_bytes`, or up to `most_bytes` while merging saves blocks.
    """

    def __init__(
        self, log: int, *, columns: int, bucket_bits: int, limit_bytes: int, most_bytes: int | None = None
    ) -> None:
        row_bytes = ROW_BYTES * columns
        super().__init__(min(limit_bytes, TABLE_BYTES) // row_bytes, np.empty((0, columns), np.int64))
        self._full_rows, self._most_rows = limit_bytes // row_bytes, (most_bytes or limit_bytes) // row_bytes
        self._log = log
        self._bucket_bits = bucket_bits
        self._merger = Merger()

    def commit(self, rows: int) -> None:
        """Keep the first `rows` keys that were written since `reserve`."""
        self._committed(rows)

    def add(self, keys: Table) -> None:
        """Copy keys into the collector."""
        self._copy([keys])
        self.commit(len(keys))

    def _raise_limit(self, held: int, rows: int) -> bool:
        most = self._most_rows if self._rows <= held - held // SAVED_PART else self._full_rows
        needed = max(2 * self._rows, self._rows + rows)
        while self._limit_rows < min(needed, most):
            self._limit_rows = min(2 * self._limit_rows, most)
        return needed <= self._limit_rows

    def _held(self) -> Table:
        (keys,) = self._columns
        return keys[: self._rows]

    def _merged_rows(self) -> int:
        return self._merger.merge(self._held(), order_bits=self._bucket_bits)

    def _packed(self) -> Iterator[tuple[int, bytes]]:
        held = self._held()
        starts = bucket_starts(held, self._bucket_bits).tolist()
        for bucket, (start, end) in enumerate(pairwise(starts)):
            if start < end:
                yield bucket, pack_table(self._log, held[start:end])
