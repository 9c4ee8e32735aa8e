"""Hashes records whose fields are known as columns: the key alone, and all that a reader sees of a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    HEADERS_COUNT,
    HEADERS_START,
    KEY_HIGH,
    KEY_LOW,
    KEY_SIZE,
    KEY_START,
    RECORD_TIMESTAMP,
    VALUE_SIZE,
    VALUE_START,
)
from kcompact.kernels.loops.memory import loop
from kcompact.kernels.loops.records import read_varint
from kcompact.kernels.loops.siphash import siphash128

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Bytes, Table


@loop
def _inside(data, start, size):
    """Return start and end of a field, an empty one if it leaves the data."""
    if start < 0 or size < 0 or start > data.shape[0] or size > data.shape[0] - start:
        return np.int64(0), np.int64(0)
    return start, start + size


@loop
def hash_record_keys(data: Bytes, columns: Table, rows: npt.NDArray[np.int64], k0: int, k1: int, keys: Table) -> None:
    """columns i64[9, m], rows i64[n] -> columns KEY_HIGH and KEY_LOW of keys i64[n, >= 2]: the hash of each key.

    No row has a null key. Definition: `stages.collector.key_hash`.
    """
    for number in range(rows.shape[0]):
        row = rows[number]
        start, end = _inside(data, columns[KEY_START, row], columns[KEY_SIZE, row])
        low, high = siphash128(data, start, end, k0, k1, 1, 3)
        keys[number, KEY_HIGH], keys[number, KEY_LOW] = np.int64(high), np.int64(low)


@loop
def _hash_field(data, start, size, k0, k1):
    """Return a hash of a field that also tells null from empty."""
    if size < 0:
        return k0 ^ np.uint64(0x9E3779B97F4A7C15)
    start, end = _inside(data, start, size)
    low, _ = siphash128(data, start, end, k0, k1, 1, 3)
    return low


@loop
def _headers_end(data, start, count):
    """Return where so many record headers end, or `start` if they leave the data."""
    position = start
    if start < 0 or count > data.shape[0]:
        return start
    for _ in range(count):
        for _ in range(2):
            size, position = read_varint(data, position, data.shape[0])
            if position < 0 or size > data.shape[0] - position:
                return start
            if size > 0:
                position += size
    return position


@loop
def hash_record_contents(
    data: Bytes, columns: Table, rows: npt.NDArray[np.int64], k0: int, k1: int, hashes: npt.NDArray[np.int64]
) -> None:
    """columns i64[9, m], rows i64[n] -> hashes i64[n]: of timestamp, key, value and headers of each record.

    Two records have the same hash exactly if these are the same, with headers as they are encoded.
    """
    for number in range(rows.shape[0]):
        row = rows[number]
        state = k0 ^ np.uint64(columns[RECORD_TIMESTAMP, row])
        state = _hash_field(data, columns[KEY_START, row], columns[KEY_SIZE, row], state, k1)
        state = _hash_field(data, columns[VALUE_START, row], columns[VALUE_SIZE, row], state, k1)
        start = columns[HEADERS_START, row]
        end = _headers_end(data, start, columns[HEADERS_COUNT, row])
        hashes[number] = np.int64(_hash_field(data, start, end - start, state, k1))
