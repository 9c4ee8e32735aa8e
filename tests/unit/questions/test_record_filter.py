"""The filters of records: what the columns choose is what a look at each record chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kcompact.errors import CorruptDataError
from kcompact.format.batch import Batch, Record, build, parse_batches, read_records
from kcompact.format.codec import Codec
from kcompact.log.files import LogFile
from kcompact.log.markers import read_marker
from kcompact.log.records import RecordRun, record_parts, record_runs
from kcompact.log.transactions import read_outcomes
from kcompact.questions.record_filter import RecordFilter, Transactional

LOG = f"{0:020d}.log"
OTHER = f"{100:020d}.log"


def data_batch(offset: int, keys: list[bytes | None], **fields: Any) -> bytes:
    records = [
        Record(offset + 2 * number, 1000 + 10 * (offset + number), key, None if number % 3 == 1 else b"v")
        for number, key in enumerate(keys)
    ]
    return build(records, **fields)


def marker(offset: int, kind: int, producer_id: int) -> bytes:
    record = Record(offset, 1000 + 10 * offset, bytes([0, 0, 0, kind]), bytes(6))
    return build([record], producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


def transactional(offset: int, producer_id: int, *keys: bytes) -> bytes:
    return data_batch(offset, list(keys), producer_id=producer_id, producer_epoch=0, transactional=True)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Two segments: one transaction ends in the second, one never."""
    first = [
        data_batch(0, [b"a", b"ab", None, b"", b"b\xff"], codec=Codec.LZ4),
        transactional(10, 7, b"a", b"b"),
        transactional(14, 8, b"ab", b"c"),
        marker(18, 0, 7),
        data_batch(20, [b"a", b"abc"], partition_leader_epoch=4, log_append_time=True),
        marker(24, 1, 8),
        transactional(26, 7, b"a", b"d"),
        transactional(30, 9, b"a"),
    ]
    second = [marker(100, 1, 7), data_batch(102, [b"a", b"z"], producer_id=9, producer_epoch=0, base_sequence=0)]
    for name, batches in ((LOG, first), (OTHER, second)):
        (tmp_path / name).write_bytes(b"".join(batches))
    return [tmp_path / LOG, tmp_path / OTHER]


class Row(NamedTuple):
    """A record with its batch, and how its transaction ends by a look at all later batches."""

    batch: Batch
    record: Record
    end: str

    @property
    def key(self) -> bytes | None:
        return None if self.batch.header.is_control else self.record.key


def rows_of(logs: list[Path]) -> list[Row]:
    batches = [batch for log in logs for batch in parse_batches(log.read_bytes(), file="")]
    return [
        Row(batch, record, end_of(batch, batches[number:]))
        for number, batch in enumerate(batches)
        for record in read_records(batch, file="")
    ]


def end_of(batch: Batch, following: list[Batch]) -> str:
    if not batch.header.is_transactional:
        return "none"
    for other in following:
        if other.header.is_control and other.header.producer_id == batch.header.producer_id:
            found = read_marker(other, file="")
            assert found is not None
            return "committed" if found.kind == 1 else "aborted"
    return "open"


def starts(row: Row, *prefixes: bytes) -> bool:
    return row.key is not None and row.key.startswith(prefixes)


HASH = hashlib.sha256(b"ab").hexdigest()

CASES: list[tuple[RecordFilter, Callable[[Row], bool]]] = [
    (RecordFilter(), lambda row: True),
    (RecordFilter(offsets=(2, 20, 5)), lambda row: row.record.offset in (2, 20)),
    (RecordFilter(from_offset=12), lambda row: row.record.offset >= 12),
    (RecordFilter(until_offset=12), lambda row: row.record.offset < 12),
    (RecordFilter(from_offset=4, until_offset=21), lambda row: 4 <= row.record.offset < 21),
    (RecordFilter(since_ms=1110), lambda row: row.record.timestamp >= 1110),
    (RecordFilter(until_ms=1210), lambda row: row.record.timestamp < 1210),
    (RecordFilter(keys=(b"a",)), lambda row: row.key == b"a"),
    (RecordFilter(keys=(b"a", b"", b"nobody")), lambda row: row.key in (b"a", b"")),
    (RecordFilter(keys=(b"\0\0\0\0",)), lambda row: False),  # The key of a marker.
    (RecordFilter(key_prefixes=(b"a",)), lambda row: starts(row, b"a")),
    (RecordFilter(key_prefixes=(b"ab", b"b\xff")), lambda row: starts(row, b"ab", b"b\xff")),
    (RecordFilter(key_prefixes=(b"",)), lambda row: row.key is not None),
    (RecordFilter(key_hashes=(HASH[:16],)), lambda row: row.key == b"ab"),
    (RecordFilter(key_hashes=(HASH, HASH[::-1])), lambda row: row.key == b"ab"),
    (RecordFilter(key_prefixes=(b"a",), key_hashes=(HASH[:8],)), lambda row: row.key == b"ab"),
    (RecordFilter(tombstones=True), lambda row: row.key is not None and row.record.value is None),
    (RecordFilter(producer_ids=(7, 9)), lambda row: row.batch.header.producer_id in (7, 9)),
    (RecordFilter(producer_ids=(-1,)), lambda row: row.batch.header.producer_id == -1),
    (RecordFilter(leader_epochs=(4,)), lambda row: row.batch.header.partition_leader_epoch == 4),
    *((RecordFilter(transactions=(one,)), lambda row, one=one: row.end == one) for one in Transactional),
    (
        RecordFilter(transactions=(Transactional.OPEN, Transactional.ABORTED), keys=(b"a",)),
        lambda row: row.end in ("open", "aborted") and row.key == b"a",
    ),
    (
        RecordFilter(keys=(b"a",), from_offset=11, since_ms=1200, producer_ids=(7,)),
        lambda row: row.key == b"a" and row.record.offset >= 11 and row.batch.header.producer_id == 7,
    ),
]


@pytest.mark.parametrize(("chosen", "is_wanted"), CASES)
def test_a_filter(chosen: RecordFilter, is_wanted: Callable[[Row], bool], compiled: bool, logs: list[Path]) -> None:
    outcomes, _ = read_outcomes([LogFile.at(log) for log in logs])
    found = [
        run.record(row)
        for log in logs
        for run in record_runs(LogFile.at(log))
        for row in chosen.mask_of(run, outcomes).nonzero()[0].tolist()
    ]
    rows = rows_of(logs)
    assert found == [row.record for row in rows if is_wanted(row)]


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (RecordFilter(), ""),
        (RecordFilter(from_offset=5, until_offset=6), ""),
        (RecordFilter(from_offset=5, until_offset=5), "the offsets exclude each other"),
        (RecordFilter(offsets=(3, 4), from_offset=5), "the offsets exclude each other"),
        (RecordFilter(offsets=(3, 9), from_offset=5), ""),
        (RecordFilter(offsets=(9,), until_offset=9), "the offsets exclude each other"),
        (RecordFilter(since_ms=5, until_ms=5), "--until is not after --since"),
        (RecordFilter(keys=(b"ab",), key_prefixes=(b"a", b"b")), ""),
        (RecordFilter(keys=(b"ab", b"c"), key_prefixes=(b"b",)), "no --key has the --key-prefix"),
    ],
)
def test_what_no_record_can_fulfil(chosen: RecordFilter, problem: str) -> None:
    assert chosen.contradiction() == problem


@pytest.mark.parametrize(
    ("segment", "batch", "expected"),
    [
        (0, 0, [30]),  # All markers are behind the damage.
        (0, 3, [30]),  # The producer's next marker counts for the transaction whose own is damaged.
        (1, 0, [26, 28, 30]),
    ],
)
def test_only_markers_in_damage_are_unknown(
    segment: int, batch: int, expected: list[int], compiled: bool, logs: list[Path]
) -> None:
    data = bytearray(logs[segment].read_bytes())
    data[list(parse_batches(bytes(data), file=""))[batch].position + 16] = 9  # The magic.
    logs[segment].write_bytes(bytes(data))
    outcomes, problem = read_outcomes([LogFile.at(log) for log in logs])
    assert isinstance(problem, CorruptDataError)
    opened = RecordFilter(transactions=(Transactional.OPEN,))
    parts = [part for log in logs for part in record_parts(LogFile.at(log))]
    runs = [part for part in parts if isinstance(part, RecordRun)]
    found = [int(offset) for run in runs for offset in run.offset[opened.mask_of(run, outcomes)]]
    assert found == expected
