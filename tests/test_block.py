"""The blocks between the stages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.format import block
from kcompact.format.block import KEY_DTYPE, KEYS, OFFSETS

halves = st.integers(0, 2**64 - 1)
offsets = st.integers(0, 2**63 - 1)


@given(st.integers(0, 2**31 - 1), st.lists(st.tuples(halves, halves, offsets, st.integers(0, 1))))
def test_keys(bucket: int, rows: list[tuple[int, int, int, int]]) -> None:
    packed = block.pack_keys(bucket, np.array(rows, KEY_DTYPE))
    assert block.head(packed) == (KEYS, bucket, len(rows))
    assert block.unpack_keys(packed).tolist() == rows


@given(st.integers(0, 2**31 - 1), st.lists(offsets))
def test_offsets(part: int, values: list[int]) -> None:
    packed = block.pack_offsets(part, np.array(values, np.int64))
    assert block.head(packed) == (OFFSETS, part, len(values))
    assert block.unpack_offsets(packed).tolist() == values


def test_the_layout() -> None:
    packed = block.pack_offsets(3, np.array([1, 2], np.int64))
    head = "6b636231 0200 0000 03000000 00000000 0200000000000000"
    assert packed == bytes.fromhex(head + "0100000000000000 0200000000000000")


def test_a_slice_of_entries_is_packed_by_value() -> None:
    rows = np.array([(1, 2, 3, 1), (4, 5, 6, 0), (7, 8, 9, 1)], KEY_DTYPE)
    assert block.unpack_keys(block.pack_keys(0, rows[::2])).tolist() == [(1, 2, 3, 1), (7, 8, 9, 1)]


def test_other_bytes_are_no_block() -> None:
    with pytest.raises(ValueError, match="not a block"):
        block.head(bytes(24))
    with pytest.raises(ValueError, match="kind 2, expected 1"):
        block.unpack_keys(block.pack_offsets(0, np.empty(0, np.int64)))
    with pytest.raises(ValueError, match="kind 1, expected 2"):
        block.unpack_offsets(block.pack_keys(0, np.empty(0, KEY_DTYPE)))
    with pytest.raises(ValueError, match="smaller than requested"):
        block.unpack_offsets(block.pack_offsets(0, np.array([1, 2], np.int64))[:-8])
