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
from kcompact.clean.stages import Collector
from kcompact.format.block import pack_table
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c

ROW_BYTES = 8
"""The size of a column of a row."""
RUN_ROWS = 8192
"""About how many rows `merge_keys` compares at a time: as many as fit the processor's cache."""


def merged(keys: Table) -> Table:
    """Return one row for each key: the newest record, and the sums of versions and bytes.

    Associative, and the order of the rows does not matter. This is the readable definition of `kernels.merge_keys`,
    which returns the rows in another order.
    """
    if not len(keys):
        return keys
    low, high = keys[:, c.KEY_LOW].view(np.uint64), keys[:, c.KEY_HIGH].view(np.uint64)
    rows = keys[np.lexsort((keys[:, c.KEY_REF], high, low))]
    is_first = np.ones(len(rows), np.bool_)
    np.any(rows[1:, [c.KEY_HIGH, c.KEY_LOW]] != rows[:-1, [c.KEY_HIGH, c.KEY_LOW]], axis=1, out=is_first[1:])
    starts = np.flatnonzero(is_first)
    found: Table = rows[np.append(starts[1:], len(rows)) - 1]
    for column in (c.KEY_VERSIONS, c.KEY_BYTES):
        found[:, column] = np.add.reduceat(rows[:, column], starts)
    return found


class Merger:
    """Merges tables in place: by the kernel, with memory that is used again in every call, or by the definition."""

    def __init__(self) -> None:
        self._by_kernel = kernels.in_use()
        self._dealt: Table = np.empty((0, 0), np.int64)
        self._slots = np.empty(0, np.int32)

    def merge(self, keys: Table, *, order_bits: int, used_bits: int = 0) -> int:
        """Move one row for each key to the front of the table and return their number.

        The rows are then in the order of `order_bits` bits of KEY_LOW, after the highest `used_bits`, which are the
        same in all rows.
        """
        if not self._by_kernel:
            found = merged(keys)
            keys[: len(found)] = found
            return len(found)
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
    """Collects the keys of one log from a task's splits, in at most `limit_bytes`, and merges them."""

    def __init__(self, log: int, *, columns: int, bucket_bits: int, limit_bytes: int) -> None:
        super().__init__(limit_bytes // (ROW_BYTES * columns), np.empty((0, columns), np.int64))
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
