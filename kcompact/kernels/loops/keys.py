"""Counts records and bytes by key: kernels over tables with a row for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ABORTED,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BELOW_START,
    CODEC_MASK,
    CONTROL,
    CONTROL_BIT,
    DAMAGED,
    DELETE_HORIZON_BIT,
    DONE,
    DUE,
    EXCLUDED_FROM_MAP,
    FLAGS,
    KEY_BYTES,
    KEY_COLUMNS,
    KEY_HIGH,
    KEY_LATEST_BYTES,
    KEY_LOW,
    KEY_PREFIX,
    KEY_REF,
    KEY_REF_ROW_SHIFT,
    KEY_TIMESTAMP,
    KEY_VERSIONS,
    KEYED,
    LAST_OFFSET,
    LOG_APPEND_TIME_BIT,
    MAX_TIMESTAMP,
    MIN_RECORD_BYTES,
    NO_PREFIX,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    UNKEYED,
    UNSTABLE,
    UNSTAMPED,
    VALUE,
    WAITING,
)
from kcompact.kernels.loops.memory import loop
from kcompact.kernels.loops.records import read_record
from kcompact.kernels.loops.siphash import siphash128

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes, Table


@loop
def _prefix_end(section, key_start, key_end, separator):
    """Return the end of the part of a key before the first `separator`, -1 for a key without one."""
    size = separator.shape[0]
    for position in range(key_start, key_end - size + 1):
        matches = True
        for index in range(size):
            if section[position + index] != separator[index]:
                matches = False
                break
        if matches:
            return position
    return np.int64(-1)


@loop
def _hash_key(section, key_start, key_end, k0, k1, separator, keys, entry):
    """Write the hash of a key into a row of `keys`, and that of its prefix if there is a column for it."""
    low, high = siphash128(section, key_start, key_end, k0, k1, 1, 3)
    keys[entry, KEY_HIGH], keys[entry, KEY_LOW] = np.int64(high), np.int64(low)
    if keys.shape[1] > KEY_COLUMNS:
        prefix_end = _prefix_end(section, key_start, key_end, separator)
        keys[entry, KEY_PREFIX] = NO_PREFIX
        if prefix_end >= 0:
            low, high = siphash128(section, key_start, prefix_end, k0, k1, 1, 3)
            keys[entry, KEY_PREFIX] = np.int64(low)


@loop
def _class_of(row, offset, key_start, start_offset, stable_offset):
    """Return the class of a record of a batch. Definition: `questions.keys.scan.class_of`."""
    if offset >= stable_offset:
        return UNSTABLE
    if offset < start_offset:
        return BELOW_START
    if row[ATTRIBUTES] & CONTROL_BIT:
        return CONTROL
    if row[FLAGS] & EXCLUDED_FROM_MAP:
        return ABORTED
    return KEYED if key_start >= 0 else UNKEYED


@loop
def _timestamp_of(row, timestamp_delta):
    """Return the timestamp of a record of a batch."""
    if row[ATTRIBUTES] & LOG_APPEND_TIME_BIT:
        return row[MAX_TIMESTAMP]
    return row[BASE_TIMESTAMP] + timestamp_delta


@loop
def _kind_of(row, value_start, now_ms):
    """Return whether a record has a value, or which tombstone it is. Definition: `questions.keys.scan.kind_of`."""
    if value_start >= 0:
        return np.int64(VALUE)
    if not row[ATTRIBUTES] & DELETE_HORIZON_BIT:
        return np.int64(UNSTAMPED)
    return np.int64(WAITING if row[BASE_TIMESTAMP] > now_ms else DUE)


@loop
def scan_keys(
    buffer: Bytes,
    inflated: Bytes,
    table: Table,
    first: int,
    end: int,
    start_offset: int,
    stable_offset: int,
    now_ms: int,
    record_ref: int,
    k0: int,
    k1: int,
    separator: Bytes,
    keys: Table,
    counts: Table,
) -> tuple[int, int]:
    """table i64[m, 18], keys i64[>= records, 7 or 8], counts i64[6, 2] -> (keyed, code).

    Reads and checks every record of the batches [first, end) and adds it to the counts of its class. A record with a
    key that a `read_committed` reader sees becomes a row of `keys`, with the reference `record_ref + (row << 2 | kind)`
    and in an eighth column the hash of the key before the first `separator`, or NO_PREFIX.
    Definition: `questions.keys.scan.read_split`.
    """
    entries = 0
    for number in range(first, end):
        row = table[number]
        count = row[RECORDS_COUNT]
        if count == 0:
            continue
        section = inflated if row[ATTRIBUTES] & CODEC_MASK else buffer
        position, section_end = row[SECTION_START], row[SECTION_END]
        if count > (section_end - position) // MIN_RECORD_BYTES:
            return entries, DAMAGED
        previous = np.int64(-1)
        span = row[LAST_OFFSET] - row[BASE_OFFSET]
        for index in range(count):
            start = position
            position, timestamp_delta, offset_delta, _, key_start, key_end, value_start, _ = read_record(
                section, position, section_end, True
            )
            if position < 0 or offset_delta <= previous or offset_delta > span:
                return entries, DAMAGED
            previous = offset_delta
            size_bytes = position - start
            offset = row[BASE_OFFSET] + offset_delta
            record_class = _class_of(row, offset, key_start, start_offset, stable_offset)
            counts[record_class, 0] += 1
            counts[record_class, 1] += size_bytes
            if record_class != KEYED:
                continue
            _hash_key(section, key_start, key_end, k0, k1, separator, keys, entries)
            ref = (row[ROW] + index) << KEY_REF_ROW_SHIFT | _kind_of(row, value_start, now_ms)
            keys[entries, KEY_REF] = record_ref + ref
            keys[entries, KEY_TIMESTAMP] = _timestamp_of(row, timestamp_delta)
            keys[entries, KEY_LATEST_BYTES] = keys[entries, KEY_BYTES] = size_bytes
            keys[entries, KEY_VERSIONS] = 1
            entries += 1
        if position != section_end:
            return entries, DAMAGED
    return entries, DONE


@loop
def _run_of(low, used_bits, run_bits):
    """Return the run of a row: the `run_bits` bits of the hash below the highest `used_bits`."""
    # Two shifts, because a shift by 64 bits is not defined.
    return np.int64(np.uint64(low) << np.uint64(used_bits) >> np.uint64(1) >> np.uint64(63 - run_bits))


@loop
def _add(keys, known, row):
    """Add a row to that of the same key."""
    keys[known, KEY_VERSIONS] += row[KEY_VERSIONS]
    keys[known, KEY_BYTES] += row[KEY_BYTES]
    if row[KEY_REF] > keys[known, KEY_REF]:
        keys[known, KEY_REF] = row[KEY_REF]
        keys[known, KEY_TIMESTAMP] = row[KEY_TIMESTAMP]
        keys[known, KEY_LATEST_BYTES] = row[KEY_LATEST_BYTES]


@loop
def merge_keys(
    keys: Table,
    rows: int,
    used_bits: int,
    run_bits: int,
    starts: npt.NDArray[np.int64],
    dealt: Table,
    slots: npt.NDArray[np.int32],
) -> int:
    """keys i64[>= rows, 7 or 8] -> the number of different keys, which are moved to the front, in the order of runs.

    Definition: `tests.support.key_definitions.merged`. As `mark_latest`: the rows are sorted by `run_bits` bits of
    KEY_LOW below the highest `used_bits`, which are the same in all rows, into runs that fit the processor's cache. In
    a run a hash table with open addressing holds for each key the row that all its rows are added to.
    Scratch: starts i64[2^run_bits + 2], dealt like keys, slots i32[a power of two above 2 rows].
    """
    runs = 1 << run_bits
    starts[:] = 0
    for i in range(rows):
        starts[_run_of(keys[i, KEY_LOW], used_bits, run_bits) + 2] += 1
    for run in range(runs):
        starts[run + 2] += starts[run + 1]
    for i in range(rows):
        run = _run_of(keys[i, KEY_LOW], used_bits, run_bits)
        target = starts[run + 1]
        for column in range(keys.shape[1]):
            dealt[target, column] = keys[i, column]
        starts[run + 1] = target + 1
    kept = 0
    for run in range(runs):
        first, end = starts[run], starts[run + 1]
        size = 16
        while size < 2 * (end - first):
            size *= 2
        slots[:size] = -1
        mask = np.uint64(size - 1)
        for j in range(first, end):
            high, low = dealt[j, KEY_HIGH], dealt[j, KEY_LOW]
            slot = (np.uint64(high) >> np.uint64(32)) & mask
            known = np.int64(slots[slot])
            while known >= 0 and (keys[known, KEY_HIGH] != high or keys[known, KEY_LOW] != low):
                slot = (slot + np.uint64(1)) & mask
                known = np.int64(slots[slot])
            if known >= 0:
                _add(keys, known, dealt[j])
                continue
            slots[slot] = kept
            for column in range(keys.shape[1]):
                keys[kept, column] = dealt[j, column]
            kept += 1
    return kept
