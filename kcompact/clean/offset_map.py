"""Finds which records are superseded: Kafka's offset map, in pieces of any size.

A record is represented by the hash of its key and by a *record reference*: the number of its split, its row (the
records of a split are numbered from 0, control records included) and whether Kafka's offset map would hold it.

    record_ref = split << 36 | row << 1 | in_map

Record references rise with offsets, so the newer of two records has the greater reference. `latest` decides which
record supersedes which. It can be applied to any part of the log, and again to its own results. So the number of
splits, buckets and tasks never changes the answer, and no step needs all keys in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.clean.job import CleanJob
from kcompact.format.block import Bytes, Keys, Rows, pack_keys, pack_rows, unpack_keys
from kcompact.kernels import Mask
from kcompact.stages.collector import Collector

SPLIT_SHIFT = 36
IN_MAP = 1
KEY_BYTES = 24
"""The size of one key in a block."""

RecordRefs = npt.NDArray[np.int64]

NOTHING = Keys(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))


def latest(keys: Keys, *, scratch: kernels.Scratch | None = None) -> Mask:
    """Return a mask of the latest rows: no row in the map has the same key and a greater record reference.

    Kafka's map holds only records of the dirty section, without aborted data (`Cleaner.buildOffsetMap`). Other records
    supersede nothing. Idempotent, and associative: latest(a ∪ b) = latest(latest(a) ∪ latest(b)).
    Record references must rise.
    """
    is_latest = np.empty(keys.rows, np.uint8)
    kernels.mark_latest(*keys, is_latest, scratch)
    return is_latest.view(np.bool_)


def take(keys: Keys, rows: Mask | slice) -> Keys:
    """Return a selection of the rows."""
    return Keys(keys.hash_high[rows], keys.hash_low[rows], keys.record_ref[rows])


def joined(parts: Sequence[Keys]) -> Keys:
    """Return the rows of all parts, in order, in new arrays."""
    if not parts:
        return NOTHING
    return Keys(
        np.concatenate([part.hash_high for part in parts]),
        np.concatenate([part.hash_low for part in parts]),
        np.concatenate([part.record_ref for part in parts]),
    )


class Survivors:
    """A bit for each record of some splits: whether it can survive. Row r is bit `r & 7` of byte `r >> 3`.

    `add` sets the bits of records with a key. `clear` clears the bits of superseded ones; `cleared` counts them.
    """

    def __init__(self) -> None:
        self.bitmaps: dict[int, Bytes] = {}
        self.cleared: Counter[int] = Counter()

    def add(self, split: int, records: int, record_refs: RecordRefs) -> None:
        """Set the bits of some rows of a split that has `records` records."""
        bitmap = self.bitmaps.setdefault(split, np.zeros((records + 7) // 8, np.uint8))
        kernels.set_bits(record_refs, split << SPLIT_SHIFT, bitmap)

    def clear(self, record_refs: RecordRefs) -> None:
        """Clear the bits of superseded rows. The record references must rise."""
        for split, split_refs in by_split(record_refs):
            self.cleared[split] += len(split_refs)
            kernels.clear_bits(split_refs, split << SPLIT_SHIFT, self.bitmaps[split])


def rows_of(record_refs: RecordRefs) -> Rows:
    """Return the row of each record reference."""
    return record_refs >> 1 & (1 << SPLIT_SHIFT - 1) - 1


def by_split(record_refs: RecordRefs) -> Iterator[tuple[int, RecordRefs]]:
    """Yield (split, its record references). The record references must rise."""
    start = 0
    while start < len(record_refs):
        split = int(record_refs[start]) >> SPLIT_SHIFT
        end = int(np.searchsorted(record_refs, np.int64(split + 1) << SPLIT_SHIFT))
        yield split, record_refs[start:end]
        start = end


def count_bits(bitmap: Bytes) -> int:
    """Return how many bits are set."""
    return int(_BITS_OF_BYTE[bitmap].sum(dtype=np.int64))


_BITS_OF_BYTE = np.array([value.bit_count() for value in range(256)], np.uint8)


def bits(survivors: Bytes, row: int, count: int) -> Sequence[bool]:
    """Return the bits of `count` rows, beginning with `row`. Beyond the end every bit is False."""
    unpacked = np.unpackbits(survivors[row >> 3 : (row + count + 7) >> 3], bitorder="little")[row & 7 :][:count]
    flags: list[bool] = unpacked.astype(np.bool_).tolist()
    return flags + [False] * (count - len(flags))


class KeyCollector(Collector):
    """Collects the keys of a task's splits, in at most `limit_bytes`, and drops superseded ones.

    Record references must rise. To merge rows is to drop the superseded ones.
    """

    def __init__(self, bucket_count: int, limit_bytes: int) -> None:
        super().__init__(limit_bytes // KEY_BYTES, *NOTHING)
        self.survivors = Survivors()
        self._bucket_count = bucket_count
        self._scratch = kernels.Scratch()

    def commit(self, split: int, records: int, rows: int) -> None:
        """Keep the first `rows` keys that were written since `reserve`; their split has `records` records."""
        self.survivors.add(split, records, Keys(*self._columns).record_ref[self._rows : self._rows + rows])
        self._committed(rows)

    def add(self, split: int, records: int, keys: Keys) -> None:
        """Copy keys into the collector."""
        self._copy(keys)
        self.commit(split, records, keys.rows)

    def _held(self) -> Keys:
        return Keys(*self._columns).first(self._rows)

    def _merged_rows(self) -> int:
        held = self._held()
        is_latest = latest(held, scratch=self._scratch)
        self.survivors.clear(held.record_ref[~is_latest])
        return int(kernels.keep_latest(is_latest.view(np.uint8), *held))

    def _packed(self) -> Iterator[tuple[int, bytes]]:
        for bucket, keys in enumerate(keys_by_bucket(self._held(), self._bucket_count)):
            if keys.rows:
                yield bucket, pack_keys(bucket, keys)


def keys_by_bucket(keys: Keys, bucket_count: int) -> Iterator[Keys]:
    """Yield the rows of each bucket, in order. The bucket depends only on the hash of the key."""
    if bucket_count == 1:
        yield keys
        return
    sorted_keys = Keys(np.empty_like(keys.hash_high), np.empty_like(keys.hash_low), np.empty_like(keys.record_ref))
    starts = kernels.deal(*keys, bucket_count, *sorted_keys)
    for bucket in range(bucket_count):
        yield take(sorted_keys, slice(starts[bucket], starts[bucket + 1]))


class Reduced(NamedTuple):
    """The result of one bucket: a block of superseded records for each split that has any.

    `keys` is the number of keys in the blocks that came in, `superseded` of them have a newer record. `map_keys` is the
    number of different keys in the offset map.
    """

    blocks: list[bytes]
    keys: int
    superseded: int
    map_keys: int


def reduce_bucket(job: CleanJob, blocks: Iterable[bytes]) -> Reduced:
    """Return the result of one bucket from all its blocks in any order. No two blocks have keys of the same split."""
    parts = sorted((keys for keys in map(unpack_keys, blocks) if keys.rows), key=lambda keys: int(keys.record_ref[0]))
    keys = joined(parts)
    parts.clear()
    is_latest = latest(keys)
    map_keys = int(np.count_nonzero(keys.record_ref[is_latest] & IN_MAP))
    superseded_refs = keys.record_ref[~is_latest]
    row_blocks = [pack_rows(split, rows_of(split_refs)) for split, split_refs in by_split(superseded_refs)]
    return Reduced(row_blocks, keys.rows, len(superseded_refs), map_keys)
