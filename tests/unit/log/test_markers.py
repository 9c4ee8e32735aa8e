"""`log.markers`: headers and their markers; and which of them decide about producers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Record, build, parse_batches
from kcompact.kernels import ABORT, COMMIT
from kcompact.log.files import LogFile
from kcompact.log.markers import Marker, read_headers, read_marker
from kcompact.log.producer_state import producer_headers
from tests.support import log_dsl

LINE = "a=1 b=1(pid=7) c=1(pid=8 txn) commit(pid=8 epoch=1) []@4..4(pid=8 control) d=1"


def segment_of(line: str, directory: Path) -> Path:
    path = directory / f"{0:020d}.log"
    path.write_bytes(log_dsl.parse(f"log\n0: {line}").segments[0].data)
    return path


def test_control_batches_come_with_their_marker(tmp_path: Path) -> None:
    path = segment_of(LINE, tmp_path)
    found = list(read_headers(LogFile.at(path), end_position=path.stat().st_size))
    assert [batch.header.base_offset for batch in found] == [0, 1, 2, 3, 4, 5]
    assert [batch.marker.kind if batch.marker else None for batch in found] == [None, None, None, COMMIT, None, None]


def test_the_headers_that_matter_to_producers(compiled: bool, tmp_path: Path) -> None:
    """An emptied control batch changes no producer."""
    path = segment_of(LINE, tmp_path)
    end = path.stat().st_size
    found = list(producer_headers(LogFile.at(path), end_position=end))
    assert found == list(read_headers(LogFile.at(path), end_position=end))[1:4]


def test_an_empty_file_has_no_headers(compiled: bool, tmp_path: Path) -> None:
    path = segment_of("", tmp_path)
    assert list(producer_headers(LogFile.at(path), end_position=0)) == []


def test_a_damaged_file_is_an_error(compiled: bool, tmp_path: Path) -> None:
    path = segment_of(LINE, tmp_path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptBatchError, match="but only"):
        list(producer_headers(LogFile.at(path), end_position=path.stat().st_size))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("00000000", "000000000005", Marker(ABORT, 5, 1)),
        ("00000001", "000000000005", Marker(COMMIT, 5, 1)),
        ("0000000199", "00000000000599", Marker(COMMIT, 5, 1)),
        ("00000002", "", Marker(2, -1, 1)),
        ("00000001", "0000", None),
        ("000000", "000000000005", None),
        ("", "", None),
    ],
)
def test_the_record_of_a_control_batch(key: str, value: str, expected: Marker | None) -> None:
    record = Record(0, 1, bytes.fromhex(key), bytes.fromhex(value))
    (one,) = parse_batches(build([record], control=True, producer_id=7, producer_epoch=0, transactional=True), file="f")
    if expected is not None:
        assert read_marker(one, file="f") == expected
        return
    with pytest.raises(CorruptBatchError, match="the control record is too short"):
        read_marker(one, file="f")
