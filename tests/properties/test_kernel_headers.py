"""The kernels that make tables of batches, compared with `verified_batches` and `headers` of `log.segment_reader`."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Record, parse_batches
from kcompact.kernels import (
    BASE_OFFSET,
    COLUMNS,
    DONE,
    FLAGS,
    FULL,
    HEADER_BYTES,
    IO_ERROR,
    LEGACY,
    POSITION,
    ROW,
    SECTION_END,
    SECTION_START,
    Table,
)
from kcompact.log import batch_headers, batch_runs
from kcompact.log.files import LogFile, open_regular
from kcompact.log.segment_reader import headers, verified_batches
from tests.support.kernel_inputs import LOG_NAME, MAX_OFFSET, any_log_bytes, array, headers_in, log_bytes, table_of


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which each example writes the same file."""
    return tmp_path_factory.mktemp("kernels")


@given(any_log_bytes, st.sampled_from([0, 0, 3, 2**33]), st.sampled_from([MAX_OFFSET, MAX_OFFSET, 20]))
def test_walk_is_verified_batches(scratch: Path, data: bytes, base_offset: int, end_offset: int) -> None:
    path = scratch / LOG_NAME
    path.write_bytes(data)
    table, code = table_of(data, base_offset=base_offset, end_offset=end_offset)
    expected, is_sound = [], True
    try:
        for one in verified_batches(LogFile.at(path), base_offset=base_offset, end_offset=end_offset):
            expected.append(one)
    except KcompactError:
        is_sound = False
    if code == LEGACY or any(one.header.magic < 2 for one in expected):
        return  # Only the definition handles these.
    assert (code == DONE) == is_sound
    assert headers_in(table) == [one.header._replace(crc=0) for one in expected]
    assert table[:, POSITION].tolist() == [one.position for one in expected]
    rows = itertools.accumulate((one.header.records_count for one in expected), initial=0)
    assert table[:, ROW].tolist() == list(rows)[:-1]
    assert table[:, SECTION_START].tolist() == [one.position + HEADER_BYTES for one in expected]
    assert table[:, SECTION_END].tolist() == [one.position + one.header.size_bytes for one in expected]
    assert not table[:, FLAGS].any()


@given(log_bytes(), st.integers(1, 3))
def test_walk_goes_on_where_its_table_ended(data: bytes, rows: int) -> None:
    whole, _ = table_of(data)
    found, at, previous, epoch, code = [], 0, -1, -1, FULL
    while code == FULL:
        table = np.empty((rows, COLUMNS), np.int64)
        rest = array(data[at:])
        count, filled, _, code = kernels.parse_batches(rest, len(rest), previous + 1, MAX_OFFSET, epoch, table)
        found += headers_in(table[:count])
        at += filled
        previous = found[-1].last_offset if found else -1
        epoch = max(-1, *(one.partition_leader_epoch for one in found)) if found else -1
    assert (code, found) == (DONE, headers_in(whole))


@given(any_log_bytes, st.integers(0, 9), st.sampled_from([0, 0, 3]), st.sampled_from([MAX_OFFSET, MAX_OFFSET, 20]))
def test_batches_read_from_a_file_are_those_of_its_bytes(
    scratch: Path, data: bytes, before: int, base_offset: int, end_offset: int
) -> None:
    expected, wanted = table_of(data, base_offset=base_offset, end_offset=end_offset)
    table, code = read_from_file(scratch, bytes(before) + data, before, len(data), base_offset, end_offset)
    assert code == wanted
    assert table.tolist() == expected.tolist()


@pytest.mark.parametrize("before_edge", [0, 1, 16, 17, 60, 61, 62, 70, 90])
def test_batches_at_the_edge_of_what_is_read_at_a_time(scratch: Path, before_edge: int) -> None:
    window_bytes = 512 << 10
    first = batch_format.build([Record(0, 0, b"k", bytes(500_000))])
    first = batch_format.build([Record(0, 0, b"k", bytes(500_000 + window_bytes - before_edge - len(first)))])
    assert len(first) == window_bytes - before_edge
    data = first + b"".join(
        batch_format.build([Record(number, 0, b"k", bytes(size))]) for number, size in ((1, 20), (2, 1 << 20), (3, 0))
    )
    table, code = read_from_file(scratch, data, 0, len(data), 0, MAX_OFFSET)
    assert (code, table.tolist()) == (DONE, table_of(data)[0].tolist())


def test_a_file_that_is_shorter_than_expected(scratch: Path) -> None:
    data = b"".join(batch_format.build([Record(n, 0, b"k", bytes(300_000))]) for n in range(3))
    table, code = read_from_file(scratch, data[:-1], 0, len(data), 0, MAX_OFFSET)
    assert (code, len(table)) == (IO_ERROR, 2)
    assert read_from_file(scratch, data, len(data), 70, 0, MAX_OFFSET)[1] == IO_ERROR


def read_from_file(
    directory: Path, content: bytes, start: int, size: int, base_offset: int, end_offset: int
) -> tuple[Table, int]:
    path = directory / "read"
    path.write_bytes(content)
    buffer, table = array(bytes(size)), np.empty((size // HEADER_BYTES + 1, COLUMNS), np.int64)
    with open_regular(path) as opened:
        count, _, code = kernels.read_batches(
            opened.descriptor, start, size, base_offset, end_offset, -1, buffer, table
        )
    return table[:count], code


def test_walk_stops_at_older_formats() -> None:
    data = bytearray(batch_format.build([Record(0, 0, b"a", b"b" * 40)]))
    for magic in (0, 1):
        data[16] = magic
        assert table_of(bytes(data))[1] == LEGACY


@pytest.mark.parametrize(
    ("base_offset", "last_offset_delta", "is_sound"),
    [
        (MAX_OFFSET - 6, 5, True),
        (MAX_OFFSET - 5, 5, False),  # The offset after the last one does not exist.
        (MAX_OFFSET - 4, 5, False),  # The sum overflows.
        (MAX_OFFSET, 2**31 - 1, False),
    ],
)
def test_last_offsets_near_the_largest(
    base_offset: int, last_offset_delta: int, is_sound: bool, tmp_path: Path
) -> None:
    (one,) = parse_batches(batch_format.build([Record(0, 0, b"a", b"b")]), file="f")
    header = one.header._replace(base_offset=base_offset, last_offset_delta=last_offset_delta)
    data = batch_format.sealed(header, bytes(one.data[HEADER_BYTES:]))
    assert (table_of(data)[1] == DONE) is is_sound
    path = tmp_path / LOG_NAME
    path.write_bytes(data)
    assert (batch_headers.read_header_table(LogFile.at(path), end_position=len(data)) is not None) is is_sound
    if is_sound:
        assert len(list(headers(LogFile.at(path)))) == 1
    else:
        with pytest.raises(CorruptBatchError, match="beyond the largest offset"):
            list(headers(LogFile.at(path)))


@given(any_log_bytes, st.booleans())
def test_hop_is_headers(scratch: Path, data: bytes, is_in_the_middle: bool) -> None:
    path = scratch / LOG_NAME
    before, after = (b"before", b"behind") if is_in_the_middle else (b"", b"")
    path.write_bytes(before + data + after)
    start, end = len(before), len(before) + len(data)
    table = batch_headers.read_header_table(LogFile.at(path), start_position=start, end_position=end)
    try:
        expected = list(headers(LogFile.at(path), start_position=start, end_position=end))
    except KcompactError:
        assert table is None
        return
    if any(header.magic < 2 or header.last_offset > MAX_OFFSET for _, header in expected):
        assert table is None
        return
    assert table is not None
    assert list(zip(table[:, POSITION].tolist(), headers_in(table), strict=True)) == [
        (position, header._replace(crc=0)) for position, header in expected
    ]


def test_hop_reads_many_headers_and_tells_what_it_cannot_read(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scratch / LOG_NAME
    path.write_bytes(b"".join(batch_format.build([Record(offset, 0, b"a", b"b")]) for offset in range(100)))
    end = path.stat().st_size
    whole = batch_headers.read_header_table(LogFile.at(path), end_position=end)
    assert whole is not None
    assert whole[:, BASE_OFFSET].tolist() == list(range(100))
    monkeypatch.setattr(batch_runs, "TABLE_ROWS", 7)
    parts = batch_headers.read_header_table(LogFile.at(path), end_position=end)
    assert parts is not None
    assert np.array_equal(parts, whole)
    assert (
        batch_headers.read_header_table(LogFile.at(path), end_position=end + 100) is None
    )  # Such a file ends before it should.
