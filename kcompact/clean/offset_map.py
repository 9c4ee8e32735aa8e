"""Which record supersedes which: the map of keys, cut into pieces of any size.

A record is known by the hash of its key and by its *place*: the number of its split, its row in it (the records of a
split are counted from 0, whatever they are) and whether Kafka's map would hold it.

    place = split << 36 | row << 1 | in_map

Places rise with offsets, so the newer of two records is the one with the greater place. `living` decides who
supersedes whom. It may be applied to any part of the log and again to its own results, part after part: that is why
any number of splits, buckets and tasks gives the same answer, and why nothing here needs to hold all keys at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kcompact.format.block import Bytes, Keys, Rows, pack_keys, pack_rows, unpack_keys

SPLIT_SHIFT = 36
IN_MAP = 1
KEY_BYTES = 24
"""What a key takes in a block."""

if TYPE_CHECKING:
    from kcompact import kernels

Mask = npt.NDArray[np.bool_]
RecordRefs = npt.NDArray[np.int64]

NOTHING = Keys(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))


def latest(keys: Keys) -> Mask:
    """Return which rows no other supersedes: those at or above the greatest place in the map for their key.

    Kafka's map knows the dirty section only, without aborted data (`Cleaner.buildOffsetMap`); a record outside of it
    supersedes none. Idempotent, and the living of a and b together are the living of those of a and those of b.
    The readable definition of `kernels.mark_living`.
    """
    if not keys.rows:
        return np.empty(0, np.bool_)
    order = np.lexsort((keys.record_ref, keys.hash_low, keys.hash_high))
    high, low, record_ref = keys.hash_high[order], keys.hash_low[order], keys.record_ref[order]
    is_first = np.ones(keys.rows, np.bool_)
    np.logical_or(high[1:] != high[:-1], low[1:] != low[:-1], out=is_first[1:])
    key_number = np.cumsum(is_first) - 1
    greatest = np.full(int(key_number[-1]) + 1, -1, np.int64)
    in_map = record_ref & IN_MAP == 1
    np.maximum.at(greatest, key_number[in_map], record_ref[in_map])
    alive = np.empty(keys.rows, np.bool_)
    alive[order] = record_ref >= greatest[key_number]
    return alive


def latest_mask(keys: Keys, *, compiled: bool, scratch: kernels.Scratch | None = None) -> Mask:
    """Return `living(keys)`, compiled if asked for."""
    if not compiled:
        return latest(keys)
    from kcompact import kernels

    alive = np.empty(keys.rows, np.uint8)
    kernels.mark_living(*keys, alive, scratch)
    return alive.view(np.bool_)


def take(keys: Keys, rows: Mask | slice) -> Keys:
    """Return some of the rows."""
    return Keys(keys.hash_high[rows], keys.hash_low[rows], keys.record_ref[rows])


def joined(parts: Sequence[Keys]) -> Keys:
    """Return the rows of parts that follow one another, in arrays of their own."""
    if not parts:
        return NOTHING
    return Keys(
        np.concatenate([part.hash_high for part in parts]),
        np.concatenate([part.hash_low for part in parts]),
        np.concatenate([part.record_ref for part in parts]),
    )


class Survivors:
    """Which records of some splits may survive, a bit each: bit `r & 7` of byte `r >> 3` of the split stands for row r.

    Begins with all records that have a key; `clear` takes away what turns out to be superseded.
    """

    def __init__(self, *, compiled: bool) -> None:
        self.bitmaps: dict[int, Bytes] = {}
        self._compiled = compiled

    def add(self, split: int, records: int, record_refs: RecordRefs) -> None:
        """Set the bits of some rows, in a split of so many records."""
        bitmap = self.bitmaps.setdefault(split, np.zeros((records + 7) // 8, np.uint8))
        if self._compiled:
            from kcompact import kernels

            kernels.set_bits(record_refs, split << SPLIT_SHIFT, bitmap)
        else:
            rows = rows_of(record_refs)
            np.bitwise_or.at(bitmap, rows >> 3, (1 << (rows & 7)).astype(np.uint8))

    def clear(self, record_refs: RecordRefs) -> None:
        """Clear the bits of rows that are dead, of these splits. Places ascending."""
        for split, own in by_split(record_refs):
            if self._compiled:
                from kcompact import kernels

                kernels.clear_bits(own, split << SPLIT_SHIFT, self.bitmaps[split])
            else:
                rows = rows_of(own)
                np.bitwise_and.at(self.bitmaps[split], rows >> 3, ~(1 << (rows & 7)).astype(np.uint8))


def rows_of(record_refs: RecordRefs) -> Rows:
    """Return the row that each place names in its split."""
    return record_refs >> 1 & (1 << SPLIT_SHIFT - 1) - 1


def by_split(record_refs: RecordRefs) -> Iterator[tuple[int, RecordRefs]]:
    """Yield the number of each split that has places among these, and they. Places ascending."""
    start = 0
    while start < len(record_refs):
        split = int(record_refs[start]) >> SPLIT_SHIFT
        end = int(np.searchsorted(record_refs, np.int64(split + 1) << SPLIT_SHIFT))
        yield split, record_refs[start:end]
        start = end


def bits(survivors: Bytes, row: int, count: int) -> Sequence[bool]:
    """Return the bits of `count` rows from `row` on; beyond the end they are not set."""
    some = np.unpackbits(survivors[row >> 3 : (row + count + 7) >> 3], bitorder="little")[row & 7 :][:count]
    found: list[bool] = some.astype(np.bool_).tolist()
    return found + [False] * (count - len(found))


class Collector:
    """The keys of a task's splits, as many as fit in `limit_bytes`; superseded ones are left out as they are found.

    Places must come in ascending order. A caller writes keys into the room behind those that are held, and then says
    how many they are; when there is no more room, and no more can be left out, what is held goes out as blocks.
    """

    def __init__(self, bucket_count: int, limit_bytes: int, *, compiled: bool) -> None:
        self.survivors = Survivors(compiled=compiled)
        self._bucket_count = bucket_count
        self._limit_rows = max(1, limit_bytes // KEY_BYTES)
        self._compiled = compiled
        self._keys = NOTHING
        self._rows = 0
        self._is_merged = True
        self._merges = 0
        self._blocks: list[tuple[int, bytes]] = []
        self._scratch: kernels.Scratch | None = None
        if compiled:
            from kcompact import kernels

            self._scratch = kernels.Scratch()

    def reserve(self, rows: int) -> Keys:
        """Return memory for so many keys."""
        if self._rows + rows > self._limit_rows:
            self._merge()
            if self._rows + rows > self._limit_rows // 2:
                self._flush()
        if self._rows + rows > self._keys.rows:
            grown = _empty(max(self._rows + rows, min(2 * self._keys.rows, self._limit_rows)))
            for column, old in zip(grown, self._keys, strict=True):
                column[: self._rows] = old[: self._rows]
            self._keys = grown
        return take(self._keys, slice(self._rows, self._rows + rows))

    def commit(self, split: int, records: int, rows: int) -> None:
        """Hold the first `rows` keys that were written into the room, of a split of so many records."""
        self.survivors.add(split, records, self._keys.record_ref[self._rows : self._rows + rows])
        self._rows += rows
        self._is_merged = False

    def add(self, split: int, records: int, keys: Keys) -> None:
        """Hold keys."""
        for column, given in zip(self.reserve(keys.rows), keys, strict=True):
            column[:] = given
        self.commit(split, records, keys.rows)

    def savepoint(self) -> tuple[int, int]:
        """Return what `forget` needs to come back to here."""
        return self._rows, self._merges

    def rollback(self, savepoint: tuple[int, int]) -> bool:
        """Drop the keys that were put since; return False when they cannot be told from others any more."""
        rows, merges = savepoint
        if merges != self._merges:
            return False
        self._rows = rows
        return True

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield what has gone out so far, with its bucket."""
        while self._blocks:
            yield self._blocks.pop(0)

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rest too."""
        self._merge()
        self._flush()
        self._keys = NOTHING
        yield from self.blocks()

    def _held(self) -> Keys:
        return self._keys.first(self._rows)

    def _merge(self) -> None:
        if self._is_merged:
            return
        self._merges += 1
        held = self._held()
        alive = latest_mask(held, compiled=self._compiled, scratch=self._scratch)
        self.survivors.clear(held.record_ref[~alive])
        if self._compiled:
            from kcompact import kernels

            self._rows = kernels.keep_living(alive.view(np.uint8), *held)
        else:
            kept = take(held, alive)
            for column, latest_column in zip(self._keys, kept, strict=True):
                column[: kept.rows] = latest_column
            self._rows = kept.rows
        self._is_merged = True

    def _flush(self) -> None:
        for bucket, keys in enumerate(dealt(self._held(), self._bucket_count, compiled=self._compiled)):
            if keys.rows:
                self._blocks.append((bucket, pack_keys(bucket, keys)))
        self._merges += 1
        self._rows = 0


def _empty(rows: int) -> Keys:
    return Keys(np.empty(rows, np.uint64), np.empty(rows, np.uint64), np.empty(rows, np.int64))


def dealt(keys: Keys, bucket_count: int, *, compiled: bool) -> Iterator[Keys]:
    """Yield the rows of each bucket, in their order. Which bucket is a matter of the hash alone."""
    if bucket_count == 1:
        yield keys
    elif compiled:
        from kcompact import kernels

        sorted_keys = _empty(keys.rows)
        starts = kernels.deal(*keys, bucket_count, *sorted_keys)
        for bucket in range(bucket_count):
            yield take(sorted_keys, slice(starts[bucket], starts[bucket + 1]))
    else:
        bucket_of = keys.hash_high % np.uint64(bucket_count)
        for bucket in range(bucket_count):
            yield take(keys, bucket_of == bucket)


def superseded(blocks: Iterable[bytes], *, compiled: bool) -> tuple[list[bytes], int]:
    """Return the dead rows of a bucket as blocks, one per split that has any, and the number of keys in the map.

    `blocks` are all blocks of the bucket, in any order; each holds keys of other splits than the rest.
    """
    parts = sorted((keys for keys in map(unpack_keys, blocks) if keys.rows), key=lambda keys: int(keys.record_ref[0]))
    keys = joined(parts)
    parts.clear()
    alive = latest_mask(keys, compiled=compiled)
    map_keys = int(np.count_nonzero(keys.record_ref[alive] & IN_MAP))
    dead = keys.record_ref[~alive]
    return [pack_rows(split, rows_of(own)) for split, own in by_split(dead)], map_keys
