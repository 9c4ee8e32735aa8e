"""What `contents` counts in a segment, with the readable definitions and with kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import checkout
from kcompact.errors import CorruptBatchError
from kcompact.log import batch_headers
from kcompact.log.directory import read_log
from kcompact.log.files import LogFile
from kcompact.questions.contents import SegmentContents, file_contents, log_contents
from kcompact.questions.verify import log as verify
from kcompact.questions.verify.log import verify_log
from tests.support.command_line import flip, partition
from tests.support.machine_code import switched

LOG = "00000000000000000000.log"

MIXED = """\
log now=10:00
0: a=1 [b=2 c=~]@1..4 ~=5 []@6..7
8: x=1(pid=3 epoch=0 seq=0 txn) commit(pid=3 epoch=0)
10: d=~(horizon=11:00)
11:
"""


@pytest.fixture(autouse=True, params=["readable", "compiled"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run each test twice: with the readable definitions and with kernels."""
    with switched(compiled=request.param == "compiled"):
        yield request.param


def test_counts(tmp_path: Path) -> None:
    directory = partition(tmp_path, MIXED)
    from_headers = log_contents(read_log(directory)).segments
    with_records = verify_log(read_log(directory)).segments
    first = with_records[0]
    assert (first.batches, first.records, first.empty_batches) == (4, 4, 1)
    assert (first.first_offset, first.last_offset) == (0, 7)
    assert (first.tombstones, first.null_keys) == (1, 1)
    assert (with_records[1].control_batches, with_records[1].transactional_batches) == (1, 2)
    assert (with_records[2].horizon_batches, with_records[2].tombstones) == (1, 1)
    last = with_records[3]
    assert (last.batches, last.first_offset, last.largest_timestamp_ms) == (0, None, None)
    # The headers show everything else: the formats that hide the number of records are not written here.
    assert from_headers == tuple(replace(each, tombstones=None, null_keys=None) for each in with_records)


def test_counting_stops_where_batches_stop(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00\n0: a=1 b=2 a=3\n3: b=4 c=5 d=~\n6: a=6 a=7\n")
    (length,) = struct.unpack_from(">i", (directory / LOG).read_bytes(), 8)
    flip(directory / LOG, 12 + length + 16, 0x07)  # The magic of the second batch.
    first, second, _ = log_contents(read_log(directory)).segments
    assert (first.batches, first.end_position) == (1, 12 + length)
    assert isinstance(first.damage, CorruptBatchError)
    assert second.batches == 3
    in_file = file_contents(LogFile.at(directory / LOG), 0)
    assert repr(in_file) == repr(first)


@pytest.mark.parametrize("run_batches", [1, 2, 3, 1000])
def test_runs_do_not_matter(run_batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path, MIXED)
    expected = log_contents(read_log(directory)), verify_log(read_log(directory))
    monkeypatch.setattr(verify, "_COUNTED_BATCHES", run_batches)
    monkeypatch.setattr(batch_headers, "TABLE_ROWS", run_batches)
    assert (log_contents(read_log(directory)), verify_log(read_log(directory))) == expected


numbers = st.integers(0, 1000)
record_counts: dict[str, Any] = dict.fromkeys(("tombstones", "null_keys"), st.none() | numbers)
batch_counts: dict[str, Any] = {
    each.name: numbers for each in fields(SegmentContents) if each.name not in ("base_offset", "batches", "damage")
}
parts = st.builds(SegmentContents, base_offset=st.just(7), **record_counts) | st.builds(
    SegmentContents, base_offset=st.just(7), batches=st.integers(1, 1000), **batch_counts | record_counts
)
"""The contents of no batches, and of some."""


@given(parts, parts, parts)
def test_addition_is_associative_and_nothing_is_neutral(
    a: SegmentContents, b: SegmentContents, c: SegmentContents
) -> None:
    assert (a + b) + c == a + (b + c)
    nothing = SegmentContents(base_offset=7)
    assert a + nothing == nothing + a == a


def test_a_compressed_batch_of_an_old_format_does_not_say_where_it_begins(tmp_path: Path) -> None:
    log_dir = checkout.copy_directory("legacy", "before", tmp_path / "logs")
    (directory,) = (path for path in log_dir.iterdir() if path.is_dir())
    log = read_log(directory)
    inspected, verified = log_contents(log).segments, verify_log(log).segments
    assert [(each.first_offset, each.records) for each in inspected] == [
        *((0, None), (None, None), (64, None), (96, 2), (None, 0))
    ]
    assert [(each.first_offset, each.records) for each in verified] == [(0, 32), (32, 32), (64, 32), (96, 2), (None, 0)]
