"""Finds the latest record of each key: kernels over rows of (hash of the key, record reference)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.loops.memory import loop

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes


@loop
def mark_latest(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    record_refs: npt.NDArray[np.int64],
    is_latest: Bytes,
    starts: npt.NDArray[np.int64],
    dealt: npt.NDArray[np.uint64],
    order: npt.NDArray[np.int64],
    table: npt.NDArray[np.int32],
) -> None:
    """hash_high, hash_low u64[n], record_refs i64[n] ascending -> is_latest u8[n]: 0 where a row is superseded.

    Definition: `tests.support.definitions.defined_latest`. The rows are sorted by hash into runs that fit the
    processor's cache. Each run is read from its newest record to its oldest. A hash table with open addressing holds,
    for each key, the row of its newest record that is in the map.
    Scratch: starts i64[2^b + 2] for 2^b runs, dealt u64[n, 2], order i64[n], table i32[a power of two above 2n].
    """
    n = record_refs.shape[0]
    runs = starts.shape[0] - 2
    mask_of_run = np.uint64(runs - 1)
    starts[:] = 0
    for i in range(n):
        starts[np.int64(hash_low[i] & mask_of_run) + 2] += 1
    for run in range(runs):
        starts[run + 2] += starts[run + 1]
    # Now `starts[run + 1]` is the position of the next row of a run. After the loop it is the end of the run.
    for i in range(n):
        low = hash_low[i]
        run = np.int64(low & mask_of_run)
        target = starts[run + 1]
        dealt[target, 0], dealt[target, 1] = hash_high[i], low
        order[target] = i << 1 | record_refs[i] & 1
        starts[run + 1] = target + 1
    for run in range(runs):
        first, end = starts[run], starts[run + 1]
        slots = 16
        while slots < 2 * (end - first):
            slots *= 2
        table[:slots] = -1
        mask = np.uint64(slots - 1)
        for j in range(end - 1, first - 1, -1):
            high, low = dealt[j, 0], dealt[j, 1]
            slot = (high >> np.uint64(32)) & mask  # `deal` chose the bucket of these rows by the low bits of `high`.
            known = table[slot]
            while known >= 0 and (dealt[known, 0] != high or dealt[known, 1] != low):
                slot = (slot + np.uint64(1)) & mask
                known = table[slot]
            is_latest[order[j] >> 1] = known < 0
            if known < 0 and order[j] & 1:
                table[slot] = j


@loop
def keep_latest(
    is_latest: Bytes,
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    record_refs: npt.NDArray[np.int64],
) -> int:
    """is_latest u8[n] -> the number of latest rows, which are moved to the front in their order.

    Definition: `clean.offset_map.take`.
    """
    kept = 0
    for i in range(record_refs.shape[0]):
        if is_latest[i]:
            hash_high[kept], hash_low[kept], record_refs[kept] = hash_high[i], hash_low[i], record_refs[i]
            kept += 1
    return kept


@loop
def deal(
    hash_high: npt.NDArray[np.uint64],
    hash_low: npt.NDArray[np.uint64],
    record_refs: npt.NDArray[np.int64],
    buckets: int,
    high_out: npt.NDArray[np.uint64],
    low_out: npt.NDArray[np.uint64],
    record_refs_out: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
) -> None:
    """Sort the rows by bucket, `hash_high % buckets`; rows of one bucket stay in their order.

    starts i64[buckets + 2]: afterwards bucket b is [starts[b], starts[b + 1]).
    """
    starts[:] = 0
    divisor = np.uint64(buckets)
    for i in range(record_refs.shape[0]):
        starts[np.int64(hash_high[i] % divisor) + 2] += 1
    for bucket in range(buckets):
        starts[bucket + 2] += starts[bucket + 1]
    for i in range(record_refs.shape[0]):
        bucket = np.int64(hash_high[i] % divisor)
        target = starts[bucket + 1]
        high_out[target], low_out[target], record_refs_out[target] = hash_high[i], hash_low[i], record_refs[i]
        starts[bucket + 1] = target + 1
