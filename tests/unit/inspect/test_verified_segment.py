"""The positions and last offsets of batches, against a plain dict."""

from __future__ import annotations

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kcompact.format import index as index_format
from kcompact.format.index import EntryColumns, OffsetEntry
from kcompact.inspect.verified_segment import OffsetPositions

BASE_OFFSET = 100

ascending = st.lists(st.integers(0, 60), unique=True).map(sorted)


@given(ascending, st.booleans(), ascending)
def test_positions_of_batches(positions: list[int], in_one_piece: bool, index: list[int]) -> None:
    batches = {position: BASE_OFFSET + position // 2 for position in positions}
    found = OffsetPositions()
    if in_one_piece:
        found.extend(*(np.array(list(each), np.int64).tobytes() for each in (batches, batches.values())))
    else:
        for position, last_offset in batches.items():
            found.append(position, last_offset)
    assert list(found) == positions
    for position in range(-1, 62):
        assert found.last_offset_at(position) == batches.get(position)
    for wrong in ([], [0], [2, 4], range(100)):
        offsets = [position // 2 + (number in wrong) for number, position in enumerate(index)]
        entries = [OffsetEntry(*pair) for pair in zip(offsets, index, strict=True)]
        expected = [
            number for number, entry in enumerate(entries) if batches.get(entry.position) != BASE_OFFSET + entry[0]
        ]
        assert list(found.wrong_entries(entries, BASE_OFFSET)) == expected
        with mock.patch.object(index_format, "WINDOW_ENTRIES", 3):
            columns = EntryColumns(np.array(offsets, np.int64), np.array(index, np.int64), OffsetEntry._make)
            assert list(found.wrong_entries(columns, BASE_OFFSET)) == expected
