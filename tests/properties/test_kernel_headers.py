"""The kernels that make tables of batches, compared with `verified_batches` and `headers` of `log.segment_reader`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact import kernels
from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Header, Record, parse_batches
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
from kcompact.log import batch_headers, segment_reader
from kcompact.log.batch_headers import header_of, headers
from kcompact.log.files import LogFile, open_regular
from kcompact.log.segment_reader import verified_batches, verified_runs
from tests.support.kernel_inputs import (
    LOG_NAME,
    MAX_OFFSET,
    any_batch,
    any_log_bytes,
    array,
    headers_in,
    log_bytes,
    same_offsets,
    table_of,
)
from tests.support.mutants import legacy_entry


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
    assert headers_in(table) == [one.header for one in expected]
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
    if is_sound:
        assert len(list(headers(LogFile.at(path)))) == 1
    else:
        with pytest.raises(CorruptBatchError, match="beyond the largest offset"):
            list(headers(LogFile.at(path)))


def hopped(file: LogFile, start: int, end: int) -> tuple[list[tuple[int, Header]], str]:
    """Return the headers of a file, and the error at its end."""
    found: list[tuple[int, Header]] = []
    try:
        found.extend(headers(file, start_position=start, end_position=end))
    except KcompactError as problem:
        return found, f"{type(problem).__name__}: {problem}"
    return found, ""


@given(
    any_log_bytes, st.booleans(), st.sampled_from([1, 2, batch_headers.TABLE_ROWS]), st.sampled_from([1, 100, 1 << 18])
)
def test_hop_is_headers(scratch: Path, data: bytes, is_in_the_middle: bool, rows: int, first_bytes: int) -> None:
    path = scratch / LOG_NAME
    before, after = (b"before", b"behind") if is_in_the_middle else (b"", b"")
    path.write_bytes(before + data + after)
    start, end = len(before), len(before) + len(data)
    with kernels.confirming_nothing():
        expected = hopped(LogFile.at(path), start, end)
    with (
        mock.patch.multiple(batch_headers, TABLE_ROWS=rows, _FIRST_BYTES=first_bytes),
        mock.patch.object(batch_headers, "_DEFINED_ROWS", rows),
    ):
        assert hopped(LogFile.at(path), start, end) == expected


def test_hop_goes_on_however_many_tables_there_are(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_headers, "TABLE_ROWS", 2)
    path = scratch / LOG_NAME
    path.write_bytes(b"".join(batch_format.build([Record(offset, 0, b"a", b"b")]) for offset in range(400)))
    assert sum(map(len, batch_headers.header_tables(LogFile.at(path)))) == 400
    monkeypatch.undo()
    path.write_bytes(b"".join(legacy_entry(offset, b"a", b"b", magic=offset % 2) for offset in range(20_000)))
    assert sum(map(len, batch_headers.header_tables(LogFile.at(path)))) == 20_000


def verified(file: LogFile, *, as_runs: bool) -> tuple[list[tuple[int, Header, bytes]], str]:
    """Return the verified batches of a file with their bytes, and the error at its end."""
    found: list[tuple[int, Header, bytes]] = []
    try:
        if as_runs:
            for run in verified_runs(
                file, base_offset=0, end_offset=MAX_OFFSET, end_position=file.identity().size_bytes
            ):
                batches = [run.batch(row, file) for row in range(len(run.table))]
                assert [header_of(row) for row in run.table.tolist()] == [one.header for one in batches]
                counts = run.table[:, kernels.RECORDS_COUNT]
                assert run.table[:, kernels.ROW].tolist() == (np.cumsum(counts) - counts).tolist()
                found += [(one.position, one.header, bytes(one.data)) for one in batches]
                assert run.end_position == found[-1][0] + found[-1][1].size_bytes
                assert run.next_offset == found[-1][1].next_offset
                assert run.epoch == max((one[1].partition_leader_epoch for one in found), default=-1)
        else:
            for one in verified_batches(file, base_offset=0, end_offset=MAX_OFFSET, holds_large=False):
                found.append((one.position, one.header, bytes(one.data)))
    except KcompactError as problem:
        return found, f"{type(problem).__name__}: {problem}"
    return found, ""


@given(
    any_log_bytes | st.lists(any_batch, min_size=1, max_size=4).map(same_offsets),
    st.sampled_from([1, 2, batch_headers.TABLE_ROWS]),
    st.sampled_from([61, 100, 300, segment_reader.WINDOW_BYTES]),
    st.sampled_from([1, 2, 1024]),
)
def test_runs_are_the_verified_batches(scratch: Path, data: bytes, rows: int, window_bytes: int, defined: int) -> None:
    path = scratch / LOG_NAME
    path.write_bytes(data)
    with mock.patch.object(segment_reader, "WINDOW_BYTES", window_bytes):
        expected = verified(LogFile.at(path), as_runs=False)
        with (
            mock.patch.object(batch_headers, "TABLE_ROWS", rows),
            mock.patch.multiple(segment_reader, _FIRST_WINDOW_BYTES=61, _DEFINED_BATCHES=defined),
        ):
            assert verified(LogFile.at(path), as_runs=True) == expected


def test_the_kernels_go_on_behind_old_formats(scratch: Path) -> None:
    """One old batch in a log is no reason to read the rest of it slowly."""
    old = legacy_entry(2000, b"k", b"v", magic=1)
    modern = [batch_format.build([Record(offset, 0, b"a", b"b")]) for offset in range(4000)]
    (scratch / LOG_NAME).write_bytes(b"".join([*modern[:2000], old, *modern[2001:]]))
    file = LogFile.at(scratch / LOG_NAME)
    confirmed = 0

    def parse(*arguments: Any) -> Any:
        nonlocal confirmed
        count, *rest = kernel(*arguments)
        confirmed += count
        return (count, *rest)

    kernel = kernels.parse_batches
    with mock.patch.object(kernels, "parse_batches", parse, create=True):
        assert verified(file, as_runs=True) == verified(file, as_runs=False)
    assert confirmed == 3999 - 1023
    tables = list(batch_headers.header_tables(file))
    assert sum(map(len, tables)) == 4000


def test_hop_reads_many_headers_and_tells_what_it_cannot_read(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = scratch / LOG_NAME
    path.write_bytes(b"".join(batch_format.build([Record(offset, 0, b"a", b"b")]) for offset in range(100)))
    end = path.stat().st_size
    whole = np.concatenate(list(batch_headers.header_tables(LogFile.at(path))))
    assert whole[:, BASE_OFFSET].tolist() == list(range(100))
    monkeypatch.setattr(batch_headers, "TABLE_ROWS", 7)
    parts = list(batch_headers.header_tables(LogFile.at(path)))
    assert {len(part) for part in parts} == {7, 2}
    assert np.array_equal(np.concatenate(parts), whole)
    tables = batch_headers.header_tables(LogFile.at(path), end_position=end + 100)
    with pytest.raises(CorruptBatchError, match="the file ends"):
        list(tables)
