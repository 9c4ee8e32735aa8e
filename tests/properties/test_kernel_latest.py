"""Which record of a key is the latest, compared with its definition; and the bits of records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.clean import offset_map
from kcompact.format.block import Keys
from tests.support.definitions import defined_latest
from tests.support.kernel_inputs import array, keys_for


def random_keys(seed: int, rows: int, distinct: int, shape: str) -> Keys:
    random = np.random.default_rng(seed)
    chosen = random.integers(0, max(1, distinct), rows)
    high, low = random.integers(0, 2**64, (2, max(1, distinct)), np.uint64)
    if shape == "equal halves":
        high = low
    elif shape == "same low":
        low[:] = 7
    elif shape == "same high":
        high[:] = 7
    elif shape == "small":
        high, low = np.arange(max(1, distinct), dtype=np.uint64), np.zeros(max(1, distinct), np.uint64)
    record_refs = np.cumsum(random.integers(1, 4, rows)) << 1 | random.integers(0, 2, rows)
    return Keys(high[chosen], low[chosen], record_refs.astype(np.int64))


SHAPES = ["random", "equal halves", "same low", "same high", "small"]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("rows", "distinct"), [(0, 0), (1, 1), (2, 1), (9_000, 1), (9_000, 3_000), (70_000, 1), (150_000, 700)]
)
def test_mark_latest(rows: int, distinct: int, shape: str) -> None:
    keys = random_keys(rows + distinct, rows, distinct, shape)
    is_latest = np.full(rows, 9, np.uint8)
    kernels.mark_latest(*keys, is_latest)
    assert np.array_equal(is_latest, defined_latest(keys).astype(np.uint8))


def test_mark_latest_of_more_runs_than_one() -> None:
    rows = 5 * kernels.RUN_ROWS
    keys = random_keys(3, rows, rows // 2, "random")
    is_latest = np.empty(rows, np.uint8)
    kernels.mark_latest(*keys, is_latest)
    assert np.array_equal(is_latest, defined_latest(keys))
    assert 0 < is_latest.sum() < rows


@given(st.integers(0, 999), st.integers(0, 60), st.integers(1, 40), st.sampled_from(SHAPES))
def test_mark_latest_of_few(seed: int, rows: int, distinct: int, shape: str) -> None:
    keys = random_keys(seed, rows, distinct, shape)
    is_latest = np.full(rows, 9, np.uint8)
    kernels.mark_latest(*keys, is_latest)
    assert is_latest.tolist() == defined_latest(keys).astype(int).tolist()


@given(st.integers(0, 999), st.integers(0, 60))
def test_keep_latest(seed: int, rows: int) -> None:
    keys = random_keys(seed, rows, 9, "random")
    is_latest = np.random.default_rng(seed).integers(0, 2, rows).astype(np.uint8)
    expected = offset_map.take(keys, is_latest.astype(np.bool_))
    kept = kernels.keep_latest(is_latest, *keys)
    for column, wanted in zip(keys.first(kept), expected, strict=True):
        assert column.tolist() == wanted.tolist()


@given(st.integers(0, 999), st.integers(0, 60), st.sampled_from([1, 2, 3, 7, 64]), st.sampled_from(SHAPES))
def test_deal(seed: int, rows: int, buckets: int, shape: str) -> None:
    keys = random_keys(seed, rows, 30, shape)
    dealt = keys_for(rows)
    starts = kernels.deal(*keys, buckets, *dealt)
    assert starts.tolist()[0] == 0
    assert starts.tolist()[-1] == rows
    for bucket in range(buckets):
        own = offset_map.take(dealt, slice(starts[bucket], starts[bucket + 1]))
        expected = offset_map.take(keys, keys.hash_high % np.uint64(buckets) == bucket)
        assert [column.tolist() for column in own] == [column.tolist() for column in expected]


@given(st.sets(st.integers(-5, 90)), st.integers(0, 3), st.integers(0, 10), st.binary(min_size=10, max_size=10))
def test_bits_are_set_and_cleared(rows: set[int], split: int, size_bytes: int, content: bytes) -> None:
    record_refs = np.array([(split << 36) + (row << 1 | row & 1) for row in sorted(rows)], np.int64)
    for kernel, bit in ((kernels.set_bits, 1), (kernels.clear_bits, 0)):
        bitmap = array(content[:size_bytes])
        expected = np.unpackbits(bitmap, bitorder="little")
        expected[[row for row in rows if 0 <= row < 8 * size_bytes]] = bit
        kernel(record_refs, split << 36, bitmap)
        assert np.unpackbits(bitmap, bitorder="little").tolist() == expected.tolist()
