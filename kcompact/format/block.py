"""The packed blocks that the stages exchange: arrays behind a fixed header, little-endian.

    magic "kcb1" | kind u16 | reserved u16 | number i32 | reserved u32 | count i64 | arrays ...

`KEYS` (scan to reduce; `number` is the bucket): `hash_high u64[count]`, `hash_low u64[count]`, `offset i64[count]`,
`in_map u8[count]`.
`OFFSETS` (reduce to write; `number` is the part): `offset i64[count]`, ascending, the records that survive.
Blocks live in memory and in Spark's private shuffle files, never in a partition directory.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HEADER = struct.Struct("<4sHHiIq")
MAGIC = b"kcb1"
KEYS = 1
OFFSETS = 2

KEY_DTYPE = np.dtype([("hash_high", "<u8"), ("hash_low", "<u8"), ("offset", "<i8"), ("in_map", "u1")])
KeyEntries = npt.NDArray[np.void]
"""A row per record with a key: the 128-bit hash of the key, the offset, and whether Kafka's key map would hold it."""
Offsets = npt.NDArray[np.int64]


class BlockHead(NamedTuple):
    kind: int
    number: int
    rows: int


def head(block: bytes) -> BlockHead:
    """Return what a block says of itself. Raises ValueError for bytes that are no block."""
    magic, kind, _, number, _, count = HEADER.unpack_from(block)
    if magic != MAGIC:
        raise ValueError("not a block")
    return BlockHead(kind, number, count)


def pack_keys(bucket: int, entries: KeyEntries) -> bytes:
    """Return a block of keys."""
    columns = [np.ascontiguousarray(entries[name]).tobytes() for name in entries.dtype.names or ()]
    return HEADER.pack(MAGIC, KEYS, 0, bucket, 0, len(entries)) + b"".join(columns)


def unpack_keys(block: bytes) -> KeyEntries:
    """Return the entries of a block of keys. Raises ValueError for another kind."""
    count = _count(block, KEYS)
    entries = np.empty(count, KEY_DTYPE)
    position = HEADER.size
    for name in KEY_DTYPE.names or ():
        entries[name] = np.frombuffer(block, KEY_DTYPE[name], count, position)
        position += KEY_DTYPE[name].itemsize * count
    return entries


def pack_offsets(part: int, offsets: Offsets) -> bytes:
    """Return a block of surviving offsets."""
    return HEADER.pack(MAGIC, OFFSETS, 0, part, 0, len(offsets)) + offsets.astype("<i8").tobytes()


def unpack_offsets(block: bytes) -> Offsets:
    """Return the offsets of a block of offsets. Raises ValueError for another kind."""
    return np.frombuffer(block, "<i8", _count(block, OFFSETS), HEADER.size).astype(np.int64)


def _count(block: bytes, kind: int) -> int:
    found = head(block)
    if found.kind != kind:
        raise ValueError(f"a block of kind {found.kind}, expected {kind}")
    return found.rows
