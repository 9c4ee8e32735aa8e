"""`questions.keys.rows`: tables of keys are merged as their definition says, in memory that is used again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.kernels import KEY_COLUMNS, Table
from kcompact.kernels import columns as c
from kcompact.questions.keys import rows
from kcompact.questions.keys.rows import Merger, bucket_starts
from tests.support.key_definitions import merged

USED_BITS = 3
numbers = st.integers(-(2**40), 2**40)
halves = st.sampled_from([0, 1, -1, 2**62, -(2**63), 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
hashes = st.lists(st.tuples(halves, halves), min_size=1, max_size=8)


@st.composite
def tables(draw: st.DrawFn, columns: int) -> Table:
    """Rows of a few keys, each with a record reference of its own."""
    some = draw(hashes)
    refs = draw(st.lists(st.integers(0, 2**62), max_size=40, unique=True))
    found = np.array(
        [[*draw(st.sampled_from(some)), ref, *(draw(numbers) for _ in range(columns - 3))] for ref in refs], np.int64
    )
    found = found.reshape(-1, columns)
    found[:, KEY_COLUMNS:] = found[:, :1] >> 3  # The hash of the prefix, which is the same in all rows of a key.
    return found


@pytest.mark.parametrize("columns", [KEY_COLUMNS, KEY_COLUMNS + 1])
@pytest.mark.parametrize("used_bits", [0, USED_BITS])
@given(data=st.data(), order_bits=st.integers(0, 6), run_rows=st.sampled_from([1, 3, rows.RUN_ROWS]))
def test_merged_tables(columns: int, used_bits: int, data: st.DataObject, order_bits: int, run_rows: int) -> None:
    merger = Merger()
    for keys in data.draw(st.lists(tables(columns), min_size=1, max_size=3)):
        if used_bits:
            keys[:, c.KEY_LOW] &= 2 ** (63 - used_bits) - 1  # The highest bits are the same in all rows.
        expected = merged(keys.copy())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rows, "RUN_ROWS", run_rows)
            found = keys[: merger.merge(keys, order_bits=order_bits, used_bits=used_bits)]
        assert merged(found.copy()).tolist() == expected.tolist()
        assert len(found) == len(expected)
        order = (
            found[:, c.KEY_LOW].view(np.uint64) << np.uint64(used_bits) >> np.uint64(1) >> np.uint64(63 - order_bits)
        )
        assert (np.diff(order.astype(np.int64)) >= 0).all()
        if not used_bits:
            starts = bucket_starts(found, order_bits)
            assert np.diff(starts).tolist() == np.bincount(order.astype(np.int64), minlength=1 << order_bits).tolist()
