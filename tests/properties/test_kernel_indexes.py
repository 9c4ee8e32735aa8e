"""The kernel that makes index entries, compared with `format.index.IndexBuilder`."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import KcompactError
from kcompact.format.index import IndexBuilder
from kcompact.log.index_files import indexes_of


@given(
    st.lists(
        st.tuples(
            st.sampled_from([1, 1, 1, 9, 2**30, 2**31]), st.integers(-1, 20) | st.just(2**62), st.integers(61, 300)
        ),
        max_size=30,
    ),
    st.sampled_from([0, 5, 2**40]),
    st.sampled_from([0, 61, 200, 4096]),
    st.sampled_from([0, 8, 12, 24, 36, 50, 10_000]),
)
def test_indexes(batches: list[tuple[int, int, int]], base_offset: int, interval_bytes: int, max_bytes: int) -> None:
    builder = IndexBuilder(base_offset, interval_bytes=interval_bytes, max_index_bytes=max_bytes)
    offsets = list(itertools.accumulate((step for step, _, _ in batches), initial=base_offset - 1))[1:]
    expected: tuple[bytes, bytes] | str
    try:
        position = 0
        for offset, (_, timestamp, size) in zip(offsets, batches, strict=True):
            builder.append(offset, position, size, timestamp)
            position += size
        expected = builder.finish()
    except KcompactError as problem:
        expected = str(problem)
    columns = [offsets, [timestamp for _, timestamp, _ in batches], [size for _, _, size in batches]]
    found: tuple[bytes, bytes] | str
    try:
        found = indexes_of(
            *(np.array(column, np.int64) for column in columns),
            base_offset=base_offset,
            interval_bytes=interval_bytes,
            max_index_bytes=max_bytes,
            file="",
        )
    except KcompactError as problem:
        found = str(problem)
    assert found == expected
