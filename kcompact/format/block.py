"""Blocks: the packed arrays that the stages of a cleaning exchange.

    magic "kcb2" | kind u16 | reserved u16 | number i32 | reserved u32 | count i64 | arrays ...

The header has 24 bytes; all integers are little-endian. There are four kinds:

    KEYS     scan to reduce; `number` is the bucket. The arrays are hash_high u64[count], hash_low u64[count] and
             record_ref i64[count], one value per record with a key.
    ROWS     reduce to write; `number` is the split. The array is row u32[count], ascending: the records of the split
             that a newer record supersedes.
    BITMAP   as ROWS, but the array is u8[count]: bit `r & 7` of byte `r >> 3` stands for row r.
    TABLE    scan to reduce of `keys`; `number` is the log. The array is i64[count, columns], row by row; the first
             reserved field is the number of columns.

A record reference names a record of the cleaning by split and row; `clean.offset_map` has its layout. References rise
with offsets. Blocks exist in memory, in private spill files and in Spark's private shuffle files, never in a partition
directory.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

HEADER = struct.Struct("<4sHHiIq")
MAGIC = b"kcb2"
KEYS = 1
ROWS = 2
BITMAP = 3
TABLE = 4

KEY_DTYPE = np.dtype([("hash_high", "<u8"), ("hash_low", "<u8"), ("record_ref", "<i8")])
"""The columns of a block of keys: the hash of the record's key in 128 bits, and the record reference."""

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]


class Keys(NamedTuple):
    """One row per record with a key, as columns of equal length, record references ascending."""

    hash_high: npt.NDArray[np.uint64]
    hash_low: npt.NDArray[np.uint64]
    record_ref: npt.NDArray[np.int64]

    @property
    def rows(self) -> int:
        return len(self.record_ref)

    def first(self, count: int) -> Keys:
        """Return the first `count` rows, as views of the same memory."""
        return Keys(self.hash_high[:count], self.hash_low[:count], self.record_ref[:count])


class BlockHead(NamedTuple):
    """The header of a block. `number` is the bucket (KEYS) or the split; `rows` is `count`, in a BITMAP its bytes."""

    kind: int
    number: int
    rows: int


def head(block: bytes) -> BlockHead:
    """Return the header of a block. Raises ValueError for other bytes."""
    magic, kind, _, number, _, count = HEADER.unpack_from(block)
    if magic != MAGIC:
        raise ValueError("not a block")
    return BlockHead(kind, number, count)


def pack_keys(bucket: int, keys: Keys) -> bytes:
    """Return a block of kind KEYS for a bucket."""
    return HEADER.pack(MAGIC, KEYS, 0, bucket, 0, keys.rows) + b"".join(column.tobytes() for column in keys)


def unpack_keys(block: bytes) -> Keys:
    """Return the keys of a block, read-only. Raises ValueError for another kind and for a truncated block."""
    count = _count(block, KEYS)
    high, low, record_ref = (
        np.frombuffer(block, KEY_DTYPE[number], count, HEADER.size + 8 * count * number) for number in range(3)
    )
    return Keys(high, low, record_ref)


def pack_rows(split: int, rows: Rows) -> bytes:
    """Return a block of `rows` of a split, which ascend: ROWS or BITMAP, whichever is smaller."""
    last = int(rows[-1]) if len(rows) else -1
    if last < 1 << 32 and len(rows) * 4 <= last // 8 + 1:
        return HEADER.pack(MAGIC, ROWS, 0, split, 0, len(rows)) + rows.astype("<u4").tobytes()
    bitmap = np.zeros(last // 8 + 1, np.uint8)
    np.bitwise_or.at(bitmap, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
    return HEADER.pack(MAGIC, BITMAP, 0, split, 0, len(bitmap)) + bitmap.tobytes()


def pack_table(number: int, table: Rows) -> bytes:
    """Return a block of kind TABLE."""
    rows, columns = table.shape
    return HEADER.pack(MAGIC, TABLE, columns, number, 0, rows) + table.astype("<i8", copy=False).tobytes()


def unpack_table(block: bytes) -> tuple[int, Rows]:
    """Return the number and the table of a block, read-only. Raises ValueError for another kind or size."""
    _, _, columns, number, _, rows = HEADER.unpack_from(block)
    _count(block, TABLE)
    return number, np.frombuffer(block, "<i8", offset=HEADER.size).reshape(rows, columns)


def clear_rows(block: bytes, bitmap: Bytes) -> None:
    """Clear the bits of the rows in a block. Raises ValueError for a block of keys and for a truncated block."""
    kind, _, count = head(block)
    if kind == BITMAP:
        superseded = np.frombuffer(block, np.uint8, count, HEADER.size)
        bitmap[:count] &= ~superseded
        return
    rows = np.frombuffer(block, "<u4", _count(block, ROWS), HEADER.size)
    np.bitwise_and.at(bitmap, rows >> 3, ~(1 << (rows & 7)).astype(np.uint8))


def _count(block: bytes, kind: int) -> int:
    """Return the `count` of a block. Raises ValueError when it is of another kind."""
    header = head(block)
    if header.kind != kind:
        raise ValueError(f"a block of kind {header.kind}, expected {kind}")
    return header.rows
