"""The indexes of a segment: reading, looking up, and which batches get an entry."""

from __future__ import annotations

import contextlib
import itertools
import struct
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptIndexError, RefusedError
from kcompact.format import index as index_format
from kcompact.format.index import (
    AbortedTxn,
    AbortedTxnColumns,
    IndexBuilder,
    OffsetPosition,
    TimestampOffset,
    build_offset_index,
    build_time_index,
    build_txn_index,
    last_time_entry,
    lookup,
    parse_offset_index,
    parse_time_index,
    parse_txn_index,
)
from tests.support.index_entries import aborted_txns, offset_entries, time_entries

FIVE_BATCHES = ((1009, 50), (1019, 40), (1029, 60), (1039, 60), (1049, 10))
TXN = AbortedTxn(producer_id=42, first_offset=100, last_offset=110, last_stable_offset=111)
TXN_HEX = "0000000000000000002a0000000000000064000000000000006e000000000000006f"


def built(batches: tuple[tuple[int, int], ...], *, size_bytes: int = 2000) -> tuple[bytes, bytes]:
    builder = IndexBuilder(1000, 4096)
    for number, (last_offset, max_timestamp) in enumerate(batches):
        builder.append(last_offset, number * size_bytes, size_bytes, max_timestamp)
    return builder.finish()


@pytest.mark.parametrize(
    ("batches", "offsets", "times"),
    [
        ((), (), ()),
        (FIVE_BATCHES, ((39, 6000),), ((60, 29),)),
        ((*FIVE_BATCHES, (1059, 70)), ((39, 6000),), ((60, 29), (70, 59))),
        (((1000, 0),), (), ((0, 0),)),
        (((1000, -1), (1001, -1), (1002, -1), (1003, -1)), ((3, 6000),), ()),
    ],
)
def test_which_batches_are_indexed(
    batches: tuple[tuple[int, int], ...],
    offsets: tuple[tuple[int, int], ...],
    times: tuple[tuple[int, int], ...],
) -> None:
    assert built(batches) == (build_offset_index(offsets), build_time_index(times))


def test_the_interval_must_be_exceeded() -> None:
    builder = IndexBuilder(0, 4096)
    for offset, (position, size) in enumerate([(0, 4096), (4096, 1), (4097, 10)]):
        builder.append(offset, position, size, offset)
    assert builder.finish()[0] == build_offset_index([(2, 4097)])


@pytest.mark.parametrize(("max_index_bytes", "is_refused"), [(16, True), (35, True), (36, False), (None, False)])
def test_a_full_index_is_refused(max_index_bytes: int | None, is_refused: bool) -> None:
    builder = IndexBuilder(0, 0, max_index_bytes=max_index_bytes, file="00000000000000000000.log")

    def fill() -> None:
        for number in range(3):  # room for two entries; the last of the time index is reserved for the final one
            builder.append(number, number * 10, 10, number)

    if is_refused:
        with pytest.raises(RefusedError, match=r"^00000000000000000000\.log: the \w+ index is full: segment"):
            fill()
    else:
        fill()
        assert [len(index) for index in builder.finish()] == [16, 24]


@pytest.mark.parametrize("last_offset", [999, 1000 + 2**31])
def test_an_offset_too_far_from_the_base_is_refused(last_offset: int) -> None:
    with pytest.raises(RefusedError, match="too far from the segment's base offset 1000"):
        IndexBuilder(1000).append(last_offset, 0, 10, 0)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, (1000, 0)),
        (1009, (1000, 0)),
        (1010, (1010, 50)),
        (1011, (1010, 50)),
        (1020, (1020, 90)),
        (2**62, (1020, 90)),
    ],
)
def test_lookup(offset: int, expected: tuple[int, int]) -> None:
    entries = parse_offset_index(build_offset_index([(10, 50), (20, 90)]), base_offset=1000, file="i")
    found = lookup(entries, offset, base_offset=1000)
    assert found == OffsetPosition(offset=expected[0], position=expected[1])


def test_the_last_time_entry() -> None:
    entries = parse_time_index(build_time_index([(5, 1), (9, 3)]), base_offset=1000, file="t")
    assert last_time_entry(entries, base_offset=1000) == TimestampOffset(timestamp=9, offset=1003)


def test_an_empty_index_answers_with_the_base() -> None:
    offsets = parse_offset_index(b"", base_offset=7, file="i")
    assert lookup(offsets, 9, base_offset=7) == OffsetPosition(offset=7, position=0)
    times = parse_time_index(b"", base_offset=7, file="t")
    assert last_time_entry(times, base_offset=7) == TimestampOffset(timestamp=-1, offset=7)


@pytest.mark.parametrize(
    ("pairs", "zero_entries", "expected"),
    [
        ([], 1000, 0),  # allocated, nothing written
        ([(10, 50), (20, 90)], 0, 2),
        ([(10, 50), (20, 90)], 1000, 2),
        ([(0, 0)], 0, 1),
        ([(0, 50)], 5, 1),
    ],
)
def test_zeros_at_the_end_are_not_entries(pairs: list[tuple[int, int]], zero_entries: int, expected: int) -> None:
    offsets = build_offset_index(pairs) + bytes(8 * zero_entries)
    assert len(parse_offset_index(offsets, base_offset=0, file="i")) == expected
    times = build_time_index([(timestamp, offset) for offset, timestamp in pairs]) + bytes(12 * zero_entries)
    assert len(parse_time_index(times, base_offset=0, file="t")) == expected


@pytest.mark.parametrize(
    ("data", "position", "problem", "kept"),
    [
        (bytes(7), 0, "7 bytes are not a multiple of the 8 bytes", 0),
        (build_offset_index([(10, 5), (10, 9)]), 8, r"entry 1 \(10, 9\) after \(10, 5\)", 1),
        (build_offset_index([(10, 5), (20, 5)]), 8, "does not rise", 1),
        (build_offset_index([(10, 5), (20, 9), (5, 20)]), 16, "entry 2", 2),
        (build_offset_index([(-1, 5)]), 0, "entry 0", 0),
        (build_offset_index([(1, -5)]), 0, "entry 0", 0),
        (build_offset_index([(10, 5), (0, 0), (20, 9)]), 8, "entry 1 is empty, but entries follow it", 1),
        (build_offset_index([(10, 5), (0, 3)]), 8, "entry 1 is empty, but entries follow it", 1),
    ],
)
def test_a_damaged_offset_index(data: bytes, position: int, problem: str, kept: int) -> None:
    with pytest.raises(CorruptIndexError, match=problem) as caught:
        parse_offset_index(data, base_offset=100, file="00000000000000000100.index")
    assert (caught.value.file, caught.value.position) == ("00000000000000000100.index", position)
    assert len(parse_offset_index(data, base_offset=100, file="x", tolerant=True)) == kept


@pytest.mark.parametrize(
    ("data", "position", "problem", "kept"),
    [
        (build_time_index([(5, 1)]) + b"\0", 12, "not a multiple of the 12", 1),
        (build_time_index([(5, 1), (5, 2)]), 12, r"entry 1 \(5, 2\) after \(5, 1\)", 1),
        (build_time_index([(5, 2), (6, 1)]), 12, "does not rise", 1),
        (build_time_index([(-1, 2)]), 0, "entry 0", 0),
        (build_time_index([(5, 2), (0, 0), (6, 3)]), 12, "entries follow it", 1),
    ],
)
def test_a_damaged_time_index(data: bytes, position: int, problem: str, kept: int) -> None:
    with pytest.raises(CorruptIndexError, match=problem) as caught:
        parse_time_index(data, base_offset=100, file="t")
    assert caught.value.position == position
    assert len(parse_time_index(data, base_offset=100, file="t", tolerant=True)) == kept


def test_an_entry_past_the_last_offset_there_can_be() -> None:
    data = build_offset_index([(1, 10), (9, 20)])
    with pytest.raises(CorruptIndexError, match="entry 1"):
        parse_offset_index(data, base_offset=2**63 - 5, file="i")


def test_aborted_transactions() -> None:
    assert build_txn_index([TXN]).hex() == TXN_HEX
    assert list(parse_txn_index(bytes.fromhex(TXN_HEX), base_offset=100, file="x")) == [TXN]
    assert list(parse_txn_index(bytes.fromhex(TXN_HEX) + bytes(33), base_offset=100, file="x")) == [TXN]
    assert not parse_txn_index(b"", base_offset=100, file="x")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([(1, 42, 100, 110, 111)], "entry 0: version 1 is unknown"),
        ([(-1, 42, 100, 110, 111)], "entry 0: version -1 is unknown"),
        ([(0, 42, 90, 99, 111)], "entry 0: last offset 99 does not rise above 99"),
        ([(0, 42, 100, 110, 111), (0, 42, 100, 110, 111)], "entry 1: last offset 110 does not rise above 110"),
        ([(0, 42, 111, 110, 111)], "entry 0: first offset 111"),
        ([(0, 42, -1, 110, 111)], "entry 0: first offset -1"),
    ],
)
def test_damaged_aborted_transactions(fields: list[tuple[int, ...]], problem: str) -> None:
    data = b"".join(struct.pack(">hqqqq", *entry) for entry in fields)
    with pytest.raises(CorruptIndexError, match=problem):
        parse_txn_index(data, base_offset=100, file="x")


rising = st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1000)), max_size=50).map(
    lambda steps: [tuple(map(sum, zip(*steps[: n + 1], strict=True))) for n in range(len(steps))]
)


@given(rising)
def test_indexes_come_back(pairs: list[tuple[int, int]]) -> None:
    assert list(parse_offset_index(build_offset_index(pairs), base_offset=0, file="i")) == pairs
    assert list(parse_time_index(build_time_index(pairs), base_offset=0, file="t")) == pairs


@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(-1, 50)), max_size=40),
    st.integers(0, 6000),
    st.integers(0, 2**62),
)
def test_what_is_built_can_be_read(batches: list[tuple[int, int]], interval: int, base_offset: int) -> None:
    builder = IndexBuilder(base_offset, interval)
    positions = [0, *itertools.accumulate(size for size, _ in batches)]
    for number, (size, timestamp) in enumerate(batches):
        builder.append(base_offset + number, positions[number], size, timestamp)
    offset_index, time_index = builder.finish()
    for entry in parse_offset_index(offset_index, base_offset=base_offset, file="i"):
        assert positions[entry.relative_offset] == entry.position > 0
    last = last_time_entry(parse_time_index(time_index, base_offset=base_offset, file="t"), base_offset=base_offset)
    assert last.timestamp == max((timestamp for _, timestamp in batches), default=-1)


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_an_index_or_corrupt(data: bytes, tolerant: bool) -> None:
    for parse in (parse_offset_index, parse_time_index):
        try:
            parse(data, base_offset=3, file="f", tolerant=tolerant)
        except CorruptIndexError:
            assert not tolerant
    with contextlib.suppress(CorruptIndexError):
        parse_txn_index(data, base_offset=3, file="f")


# Indexes are parsed by columns. These tests compare them with the entries one by one.

DEFINITIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    parse_offset_index: offset_entries,
    parse_time_index: time_entries,
    parse_txn_index: aborted_txns,
}


def read_by(parse: Callable[..., Any], data: bytes, **options: Any) -> object:
    """Return the entries: all, each and some; or the position and message of the error."""
    with mock.patch.object(index_format, "WINDOW_ENTRIES", 3):
        try:
            entries = parse(data, file="f", **options)
        except CorruptIndexError as problem:
            return type(problem), problem.position, str(problem)
        return [entries[number] for number in range(len(entries))], list(entries), list(entries[1:3])


@st.composite
def nearly_indexes(draw: st.DrawFn) -> tuple[Callable[..., Any], bytes]:
    """Draw an index: valid, or with a changed number, with zeros at its end, or with its end cut off."""
    pairs = [list(pair) for pair in draw(rising.filter(lambda pairs: len(pairs) > 1))]
    if draw(st.booleans()):
        pairs[0] = [0, 0]
    if draw(st.booleans()):
        edges = st.sampled_from([-1, 0, 1, 2**31 - 1]) | st.integers(-(2**31), 2**31 - 1)
        pairs[draw(st.integers(0, len(pairs) - 1))][draw(st.integers(0, 1))] = draw(edges)
    parse, build = draw(
        st.sampled_from([(parse_offset_index, build_offset_index), (parse_time_index, build_time_index)])
    )
    data = build([(first, second) for first, second in pairs]) + bytes(draw(st.sampled_from([0, 0, 24, 24_000])))
    return parse, data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 12]))]


@given(nearly_indexes(), st.sampled_from([0, 100, 2**63 - 500]), st.booleans())
def test_columns_are_what_the_entries_are(
    case: tuple[Callable[..., Any], bytes], base_offset: int, tolerant: bool
) -> None:
    parse, data = case
    options = {"base_offset": base_offset, "tolerant": tolerant}
    assert read_by(parse, data, **options) == read_by(DEFINITIONS[parse], data, **options)


@pytest.mark.parametrize(
    ("parse", "data"),
    [
        *((parse_offset_index, build_offset_index(pairs)) for pairs in (
            [(0, 0), (1, 1)],
            [(0, 5), (2**31 - 1, 2**31 - 1)],
            [(-1, 5), (2, 9), (3, 10)],
            [(1, -5), (2, 9), (3, 10)],
            [(10, 5), (10, 9), (11, 12)],
            [(10, 5), (20, 5), (30, 6)],
            [(10, 5), (20, 4), (30, 6)],
            [(10, 5), (5, 9), (30, 10)],
        )),
        *((parse_time_index, build_time_index(pairs)) for pairs in (
            [(0, 0), (1, 1)],
            [(5, 2), (6, 2), (7, 2)],
            [(-1, 2), (5, 3), (6, 4)],
            [(5, -1), (6, 3), (7, 4)],
            [(5, 0), (6, 0), (7, 4)],
            [(5, 0), (6, 0), (7, 0)],
            [(5, 2), (5, 3), (6, 4)],
            [(5, 2), (6, 1), (7, 4)],
        )),
    ],
)  # fmt: skip
@pytest.mark.parametrize("tolerant", [False, True])
def test_columns_have_the_same_limits(parse: Callable[..., Any], data: bytes, tolerant: bool) -> None:
    options = {"base_offset": 100, "tolerant": tolerant}
    assert read_by(parse, data, **options) == read_by(DEFINITIONS[parse], data, **options)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5), st.integers(1, 9)), max_size=12),
    st.none() | st.tuples(st.integers(0, 12 * 34), st.integers(0, 255)),
    st.sampled_from([0, 100, 2**63 - 1]),
)
def test_transactions_in_columns_are_what_the_entries_are(
    steps: list[tuple[int, int, int]], damage: tuple[int, int] | None, base_offset: int
) -> None:
    data, last_offset = bytearray(), 99
    for producer_id, length, step in steps:
        last_offset += step
        data += struct.pack(">hqqqq", 0, producer_id, last_offset - length, last_offset, last_offset + 1)
    if damage is not None and damage[0] < len(data):
        data[damage[0]] = damage[1]
    found = read_by(parse_txn_index, bytes(data), base_offset=base_offset)
    assert found == read_by(aborted_txns, bytes(data), base_offset=base_offset)


def test_aborted_transactions_are_put_together() -> None:
    others = [TXN._replace(last_offset=last_offset) for last_offset in (120, 130)]
    entries = AbortedTxnColumns.of(AbortedTxnColumns.of([TXN]), (), others)
    assert list(entries) == [TXN, *others]
    assert entries.table.tolist() == [list(entry) for entry in entries]
    assert not AbortedTxnColumns.of()


def test_an_index_looks_like_a_list_of_entries() -> None:
    pairs = [(number + 1, 2 * number + 50) for number in range(9000)]
    data = build_offset_index(pairs)
    entries = parse_offset_index(data + bytes(80_000), base_offset=7, file="i")
    assert list(entries) == pairs
    assert (entries[0], entries[-1], list(entries[3:5])) == (pairs[0], pairs[-1], pairs[3:5])
    assert entries[-1].position == pairs[-1][1]
    assert lookup(entries, 7 + 500, base_offset=7) == OffsetPosition(offset=507, position=pairs[499][1])
    with pytest.raises(CorruptIndexError, match="entry 400 is empty"):
        parse_offset_index(data[: 400 * 8] + bytes(8) + data[401 * 8 :], base_offset=7, file="i")


def test_the_indexes_of_the_worked_example() -> None:
    builder = IndexBuilder(1000)
    for number, (last_offset, timestamp) in enumerate([(1009, 50), (1019, 40), (1029, 60), (1039, 60), (1049, 10)]):
        builder.append(last_offset, 2000 * number, 2000, timestamp)
    assert [data.hex() for data in builder.finish()] == ["0000002700001770", "000000000000003c0000001d"]
