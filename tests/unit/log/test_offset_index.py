"""Which entries of an offset index are true: the definition, its columns, and the look-ups in a log file."""

from __future__ import annotations

import random
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kcompact.errors import CorruptBatchError, CorruptDataError, CorruptIndexError
from kcompact.format import index as index_format
from kcompact.format.batch import Header, Record, build, read_header
from kcompact.format.index import OffsetColumns, build_offset_index
from kcompact.format.names import index_name, log_name
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import headers
from kcompact.log.files import LogFile
from kcompact.log.index_files import read_offset_index
from kcompact.log.offset_index import (
    OffsetPositions,
    contradiction,
    index_or_log,
    is_true,
    last_indexed_position,
    looked_up,
    position_near,
    wrong_entry,
)
from tests.support.index_entries import wrong_entries

BASE_OFFSET = 100

ascending = st.lists(st.integers(0, 12), unique=True).map(sorted)
pairs = st.builds(lambda first, second: list(zip(first, second, strict=False)), ascending, ascending)


class Batch(NamedTuple):
    """A batch, as far as an index is concerned."""

    position: int
    base_offset: int
    last_offset: int

    @property
    def header(self) -> Header:
        last_offset_delta = self.last_offset - self.base_offset
        return DUMMY._replace(base_offset=self.base_offset, last_offset_delta=last_offset_delta)


DUMMY = read_header(build([Record(0, 1, b"k", b"v", ())]), file="", position=0)


def some_batches(places: list[tuple[int, int]], lengths: list[int]) -> list[Batch]:
    """Return batches with these positions and last offsets. They are as long as possible, or shorter."""
    ends = [-1, *(last for _, last in places)]
    return [
        Batch(position, BASE_OFFSET + max(before + 1, last - length), BASE_OFFSET + last)
        for (position, last), before, length in zip(places, ends, lengths, strict=False)
    ]


batches_of_a_log = st.builds(some_batches, pairs, st.lists(st.integers(0, 4), min_size=13, max_size=13))


def columns_of(pairs: Sequence[tuple[int, int]]) -> OffsetColumns:
    return OffsetColumns(np.array(pairs, OffsetColumns.row))


def wrong_by_the_rule(entries: Sequence[tuple[int, int]], batches: Sequence[Batch]) -> list[int]:
    """Return the numbers of the entries by which a look-up of their offset does not find what a search finds."""
    wrong = []
    for number, (relative_offset, position) in enumerate(entries):
        offset = BASE_OFFSET + relative_offset
        end_position = entries[number + 1][1] if number + 1 < len(entries) else 1 << 40
        pointed = [each for each in batches if position <= each.position < end_position]
        starts = pointed[:1] and pointed[0].position == position
        if not starts or not pointed[0].base_offset <= offset <= pointed[-1].last_offset:
            wrong.append(number)
    return wrong


@given(batches_of_a_log, pairs, st.booleans())
@example([Batch(0, 100, 104), Batch(5, 105, 109)], [(2, 0), (7, 5)], True)  # Within a batch.
@example([Batch(0, 100, 104), Batch(5, 105, 109)], [(2, 0), (7, 5)], False)
@example([Batch(each, 100 + each, 100 + each) for each in range(7)], [(0, 0), (1, 1), (4, 2), (5, 3)], True)
def test_true_entries(batches: list[Batch], pairs: list[tuple[int, int]], in_one_piece: bool) -> None:
    entries = columns_of(pairs)
    found = OffsetPositions()
    if in_one_piece:
        table = np.zeros((len(batches), c.COLUMNS), np.int64)
        for column, values in zip((c.POSITION, c.BASE_OFFSET, c.LAST_OFFSET), zip(*batches, strict=True), strict=False):
            table[:, column] = values
        table[:, c.POSITION] -= 7
        found.extend(table, 7)
    else:
        for batch in batches:
            found.append(batch.position, batch.header)
    assert list(found) == [batch.position for batch in batches]
    assert [position for position in range(14) if found.has_batch_at(position)] == list(found)
    expected = wrong_by_the_rule(entries, batches)
    read = ((batch.position, batch.header) for batch in batches)
    assert list(wrong_entries(entries, read, base_offset=BASE_OFFSET)) == expected
    assert list(found.wrong_entries(entries, BASE_OFFSET)) == expected
    with mock.patch.object(index_format, "WINDOW_ENTRIES", 3):
        assert list(found.wrong_entries(entries, BASE_OFFSET)) == expected


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
    batches = [Batch(position, header.base_offset, header.last_offset) for position, header in headers(log)]
    positions = [batch.position for batch in batches]
    chosen = sorted(data.draw(st.sets(st.sampled_from(positions), min_size=1)))
    offsets = sorted(data.draw(st.sets(st.integers(0, 14), min_size=len(chosen), max_size=len(chosen))))
    entries = columns_of(list(zip(offsets, chosen, strict=True)))
    file = LogFile.at(Path(log.path).with_name(index_name(BASE_OFFSET)))
    Path(file.path).write_bytes(build_offset_index(entries))
    wrong = wrong_by_the_rule(entries, batches)
    assert [number for number in range(len(entries)) if not is_true(log, entries, number)] == wrong
    for offset in range(15):
        number = sum(each <= offset for each in offsets) - 1
        begins = bisect_left([batch.last_offset for batch in batches], BASE_OFFSET + offset)
        if number in wrong and chosen[number]:
            with pytest.raises(CorruptIndexError, match="where no batch starts"):
                looked_up(file, BASE_OFFSET + offset)
            assert position_near(log, BASE_OFFSET + offset) == 0
        elif begins < len(batches):
            position = looked_up(file, BASE_OFFSET + offset)
            assert position_near(log, BASE_OFFSET + offset) == position <= positions[begins]
            assert position == (0 if number < 0 else chosen[number])
    if len(entries) - 1 in wrong:
        with pytest.raises(CorruptIndexError, match="where no batch starts"):
            last_indexed_position(file, 1 << 20)
    else:
        assert last_indexed_position(file, 1 << 20) == chosen[-1]


def test_an_index_that_points_behind_its_log(log: LogFile) -> None:
    file = LogFile.at(Path(log.path).with_name(index_name(BASE_OFFSET)))
    Path(file.path).write_bytes(build_offset_index([(0, 0), (13, 1000)]))
    with pytest.raises(CorruptIndexError, match="but the log has 900 bytes: the log has lost its end"):
        last_indexed_position(file, 900)


def test_a_growing_index_is_used_up_to_its_half_written_entry(log: LogFile) -> None:
    *_, (position, header) = headers(log)
    entries = [(header.last_offset - BASE_OFFSET, position), (1, 0)]
    Path(log.path).with_name(index_name(BASE_OFFSET)).write_bytes(build_offset_index(entries))
    assert position_near(log, header.last_offset) == position


def test_a_damaged_log_is_blamed_before_its_malformed_index(log: LogFile, tmp_path: Path) -> None:
    damaged = tmp_path / log_name(BASE_OFFSET)
    content = bytearray(Path(log.path).read_bytes())
    file = LogFile.at(damaged.with_name(index_name(BASE_OFFSET)))
    Path(file.path).write_bytes(b"torn")
    damaged.write_bytes(content)
    assert isinstance(contradiction(file), CorruptIndexError)
    content[30] ^= 1
    damaged.write_bytes(content)
    assert isinstance(contradiction(file), CorruptBatchError)


def contradiction_batch_by_batch(file: LogFile) -> CorruptDataError | None:
    """The definition of `contradiction`: no header is read that no entry needs."""
    log, entries = file.with_suffix(".log"), read_offset_index(file)
    try:
        number = next(wrong_entries(entries, headers(log), base_offset=file.base_offset), None)
    except CorruptBatchError as damage:
        return damage
    return None if number is None else index_or_log(wrong_entry(file, number, entries[number]), log)


@given(st.data())
def test_contradictions_of_a_damaged_log(log: LogFile, data: st.DataObject) -> None:
    positions = [position for position, _ in headers(log)]
    chosen = sorted(data.draw(st.sets(st.sampled_from(positions) | st.integers(0, 600), min_size=1, max_size=15)))
    offsets = sorted(data.draw(st.sets(st.integers(0, 14), min_size=len(chosen), max_size=len(chosen))))
    content = bytearray(Path(log.path).read_bytes())
    for _ in range(data.draw(st.integers(0, 2))):
        # Not the offsets: where they fall, only the damage of the log counts.
        at = data.draw(st.sampled_from(positions)) + data.draw(st.integers(8, 22) | st.integers(27, 60))
        content[at] ^= data.draw(st.sampled_from([1, 2, 64, 128]))
    with tempfile.TemporaryDirectory() as directory:
        damaged = Path(directory, log_name(BASE_OFFSET))
        damaged.write_bytes(content)
        file = LogFile.at(damaged.with_name(index_name(BASE_OFFSET)))
        Path(file.path).write_bytes(build_offset_index(zip(offsets, chosen, strict=False)))
        assert repr(contradiction(file)) == repr(contradiction_batch_by_batch(file))
        entries = read_offset_index(file)
        for number, entry in enumerate(entries):
            end_position = entries[number + 1].position if number + 1 < len(entries) else None
            batches = headers(file.with_suffix(".log"), start_position=entry.position, end_position=end_position)
            try:
                expected = not any(True for _ in wrong_entries([entry], batches, base_offset=BASE_OFFSET))
            except CorruptBatchError:
                expected = False
            assert is_true(file.with_suffix(".log"), entries, number) == expected


@pytest.mark.parametrize("offset", [0, 2, 4, 9, 13])
def test_no_header_is_read_that_is_not_needed(log: LogFile, offset: int, tmp_path: Path) -> None:
    places = list(headers(log))
    needed = next(number for number, (_, header) in enumerate(places) if header.last_offset >= BASE_OFFSET + offset)
    content = Path(log.path).read_bytes()
    damaged = LogFile.at(tmp_path / log_name(BASE_OFFSET))
    file = damaged.with_suffix(".index")
    Path(file.path).write_bytes(build_offset_index([(offset, 0)]))
    for number, (position, _) in enumerate(places):
        Path(damaged.path).write_bytes(content[:position].ljust(len(content), b"\0"))
        assert is_true(damaged, read_offset_index(file), 0) == (number > needed)
        assert (contradiction(file) is None) == (number > needed)


@pytest.mark.long
def test_a_changed_bit_is_refused_or_harms_no_look_up() -> None:
    """Of 200 entries as the cleaners and followers of old releases write them: for appends of several batches."""
    dice = random.Random(46)
    batches, pairs, position, offset = [], list[tuple[int, int]](), 0, 0
    for _ in range(200):
        start = position
        for _ in range(dice.randrange(1, 6)):
            records, gap = dice.randrange(1, 5), dice.choice([0, 0, 3])
            offset += gap
            batches.append(Batch(position, BASE_OFFSET + offset, BASE_OFFSET + offset + records - 1))
            offset, position = offset + records, position + 61 + 40 * records
        pairs.append((offset - dice.randrange(1, records + 1), start))
    found = OffsetPositions()
    for batch in batches:
        found.append(batch.position, batch.header)
    last_offsets = [batch.last_offset for batch in batches]
    sound = build_offset_index(pairs)
    refused = accepted = 0
    for bit in range(len(sound) * 8):
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        try:
            entries = index_format.parse_offset_index(bytes(changed), base_offset=BASE_OFFSET, file="")
        except CorruptIndexError:
            refused += 1
            continue
        if any(True for _ in found.wrong_entries(entries, BASE_OFFSET)):
            refused += 1
            continue
        accepted += 1
        number = bit // 64
        for offset in range(pairs[max(0, number - 1)][0], pairs[min(number + 2, 199)][0]):
            looked_up = index_format.lookup(entries, BASE_OFFSET + offset, base_offset=BASE_OFFSET).position
            assert looked_up <= batches[bisect_left(last_offsets, BASE_OFFSET + offset)].position
    assert (refused, accepted) == (12_428, 372)
