"""The blocks that the stages exchange."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.format import block
from kcompact.format.block import BITMAP, KEYS, ROWS, Keys

halves = st.integers(0, 2**64 - 1)
record_refs = st.integers(0, 2**63 - 1)
row_sets = st.sets(st.integers(0, 500)) | st.sets(st.integers(0, 100_000), max_size=5)


def keys_of(rows: list[tuple[int, int, int]]) -> Keys:
    high, low, record_ref = zip(*rows, strict=True) if rows else ((), (), ())
    return Keys(np.array(high, np.uint64), np.array(low, np.uint64), np.array(record_ref, np.int64))


def rows_in(keys: Keys) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in keys), strict=True))


def named(packed: bytes, size_bytes: int) -> list[int]:
    """Return the rows that a block clears in a bitmap of ones."""
    bitmap = np.full(size_bytes, 0xFF, np.uint8)
    block.clear_rows(packed, bitmap)
    return np.flatnonzero(np.unpackbits(bitmap, bitorder="little") == 0).tolist()


def array(rows: set[int]) -> npt.NDArray[np.int64]:
    return np.array(sorted(rows), np.int64)


@given(st.integers(0, 2**31 - 1), st.lists(st.tuples(halves, halves, record_refs)))
def test_keys(bucket: int, rows: list[tuple[int, int, int]]) -> None:
    packed = block.pack_keys(bucket, keys_of(rows))
    assert block.head(packed) == (KEYS, bucket, len(rows))
    assert rows_in(block.unpack_keys(packed)) == rows


@given(st.integers(0, 2**31 - 1), row_sets, st.integers(0, 9))
def test_rows(split: int, rows: set[int], more_bytes: int) -> None:
    packed = block.pack_rows(split, array(rows))
    assert block.head(packed).number == split
    assert named(packed, max(rows, default=0) // 8 + 1 + more_bytes) == sorted(rows)


@given(row_sets)
def test_rows_take_the_smaller_form(rows: set[int]) -> None:
    list_bytes, bitmap_bytes = 4 * len(rows), (max(rows) // 8 + 1) if rows else 0
    packed = block.pack_rows(0, array(rows))
    assert len(packed) == block.HEADER.size + min(list_bytes, bitmap_bytes)
    assert block.head(packed).kind == (ROWS if list_bytes <= bitmap_bytes else BITMAP)


def test_what_is_cleared_stays_cleared() -> None:
    bitmap = np.array([0b0000_1101, 0b0000_0001], np.uint8)
    for rows in ({0, 1, 2}, {2, 9}):
        block.clear_rows(block.pack_rows(0, array(rows)), bitmap)
    assert bitmap.tolist() == [0b0000_1000, 0b0000_0001]


def test_the_layout() -> None:
    head = "6b636232 0200 0000 03000000 00000000 0200000000000000"
    assert block.pack_rows(3, array({1, 1000})) == bytes.fromhex(head + "01000000 e8030000")
    head = "6b636232 0300 0000 03000000 00000000 0200000000000000"
    assert block.pack_rows(3, array({1, 3, 8})) == bytes.fromhex(head + "0a 01")
    head = "6b636232 0100 0000 07000000 00000000 0100000000000000"
    packed = block.pack_keys(7, keys_of([(1, 2, 3)]))
    assert packed == bytes.fromhex(head + "0100000000000000 0200000000000000 0300000000000000")


def test_a_slice_of_keys_is_packed_by_value() -> None:
    keys = keys_of([(1, 2, 3), (4, 5, 6), (7, 8, 9)])
    sliced = Keys(keys.hash_high[::2], keys.hash_low[::2], keys.record_ref[::2])
    assert rows_in(block.unpack_keys(block.pack_keys(0, sliced))) == [(1, 2, 3), (7, 8, 9)]
    assert rows_in(keys.first(2)) == [(1, 2, 3), (4, 5, 6)]


def test_other_bytes_are_no_block() -> None:
    bitmap = np.zeros(200, np.uint8)
    with pytest.raises(ValueError, match="not a block"):
        block.head(bytes(24))
    with pytest.raises(ValueError, match="kind 2, expected 1"):
        block.unpack_keys(block.pack_rows(0, array({1000})))
    with pytest.raises(ValueError, match="kind 1, expected 2"):
        block.clear_rows(block.pack_keys(0, keys_of([])), bitmap)
    with pytest.raises(ValueError, match="smaller than requested"):
        block.clear_rows(block.pack_rows(0, array({1, 1000}))[:-4], bitmap)
    with pytest.raises(ValueError, match="smaller than requested"):
        block.clear_rows(block.pack_rows(0, array({1, 3, 8}))[:-1], bitmap)
    with pytest.raises(ValueError, match="smaller than requested"):
        block.unpack_keys(block.pack_keys(0, keys_of([(1, 2, 3)]))[:-1])
