"""Which entries of an offset index are true: the definition, its columns, and the look-ups in a log file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptIndexError
from kcompact.format import index as index_format
from kcompact.format.batch import Record, build
from kcompact.format.index import EntryColumns, OffsetEntry, build_offset_index
from kcompact.format.names import index_name, log_name
from kcompact.log.files import LogFile
from kcompact.log.offset_index import (
    OffsetPositions,
    is_true,
    last_indexed_position,
    looked_up,
    position_near,
    wrong_entries,
)
from kcompact.log.segment_reader import headers

BASE_OFFSET = 100

ascending = st.lists(st.integers(0, 12), unique=True).map(sorted)
pairs = st.builds(lambda first, second: list(zip(first, second, strict=False)), ascending, ascending)


def wrong_by_the_rule(entries: Sequence[tuple[int, int]], batches: Sequence[tuple[int, int]]) -> list[int]:
    ends = [*(position for _, position in entries[1:]), 1 << 40]
    return [
        number
        for number, ((offset, position), end) in enumerate(zip(entries, ends, strict=False))
        if position not in dict(batches)
        or all(not position <= start < end or last != BASE_OFFSET + offset for start, last in batches)
    ]


@given(pairs, pairs, st.booleans())
def test_true_entries(batches: list[tuple[int, int]], pairs: list[tuple[int, int]], in_one_piece: bool) -> None:
    batches = [(position, BASE_OFFSET + last) for position, last in batches]
    entries = [OffsetEntry(*pair) for pair in pairs]
    found = OffsetPositions()
    if in_one_piece:
        found.extend(*np.array(batches, np.int64).reshape(-1, 2).T)
    else:
        for batch in batches:
            found.append(*batch)
    assert list(found) == [position for position, _ in batches]
    assert [found.last_offset_at(position) for position in range(14)] == [*map(dict(batches).get, range(14))]
    expected = wrong_by_the_rule(entries, batches)
    assert list(wrong_entries(entries, batches, base_offset=BASE_OFFSET)) == expected
    assert list(found.wrong_entries(entries, BASE_OFFSET)) == expected
    with mock.patch.object(index_format, "WINDOW_ENTRIES", 3):
        offsets, positions = np.array(pairs, np.int64).reshape(-1, 2).T
        columns = EntryColumns(offsets, positions, OffsetEntry._make)
        assert list(found.wrong_entries(columns, BASE_OFFSET)) == expected


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogFile:
    """A log of eight batches, of one to three records."""
    ends = list(accumulate([1, 3, 1, 2, 1, 1, 3, 2]))
    batches = [
        build([Record(BASE_OFFSET + offset, 1, b"k", b"v", ()) for offset in range(start, end)])
        for start, end in zip([0, *ends], ends, strict=False)
    ]
    path = tmp_path_factory.mktemp("log") / log_name(BASE_OFFSET)
    path.write_bytes(b"".join(batches))
    return LogFile.at(path)


@given(st.data())
def test_each_true_entry_leads_a_look_up_to_its_batch(log: LogFile, data: st.DataObject) -> None:
    batches = [(position, header.last_offset) for position, header in headers(log)]
    positions = [position for position, _ in batches]
    chosen = sorted(data.draw(st.sets(st.sampled_from(positions), min_size=1)))
    offsets = sorted(data.draw(st.sets(st.integers(0, 14), min_size=len(chosen), max_size=len(chosen))))
    entries = [OffsetEntry(*pair) for pair in zip(offsets, chosen, strict=True)]
    file = LogFile.at(Path(log.path).with_name(index_name(BASE_OFFSET)))
    Path(file.path).write_bytes(build_offset_index(entries))
    wrong = wrong_by_the_rule(entries, batches)
    assert [number for number in range(len(entries)) if not is_true(log, entries, number)] == wrong
    for offset in range(15):
        number = sum(each <= offset for each in offsets) - 1
        begins = bisect_left([last for _, last in batches], BASE_OFFSET + offset)
        if number in wrong and chosen[number]:
            with pytest.raises(CorruptIndexError, match="no batch with this last offset"):
                looked_up(file, BASE_OFFSET + offset)
            assert position_near(log, BASE_OFFSET + offset) == 0
        elif begins < len(batches):
            position = looked_up(file, BASE_OFFSET + offset)
            assert position_near(log, BASE_OFFSET + offset) == position <= positions[begins]
            assert position == (0 if number < 0 else chosen[number])
    if len(entries) - 1 in wrong:
        with pytest.raises(CorruptIndexError, match="no batch with this last offset"):
            last_indexed_position(file, 1 << 20)
    else:
        assert last_indexed_position(file, 1 << 20) == chosen[-1]
