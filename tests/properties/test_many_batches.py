"""Batches that are verified by kernels: the same offsets and the same damage as one after the other."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import CorruptDataError, KcompactError, UnsupportedError
from kcompact.format.batch import Record, build
from kcompact.log import batch_headers, producer_state, segment_reader
from kcompact.log.directory import PartitionLog, read_log
from tests.support.kernel_inputs import LOG_NAME, any_log_bytes
from tests.support.machine_code import switched

PRODUCER = 7


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which each example writes the same file."""
    directory = tmp_path_factory.mktemp("many") / "orders-0"
    directory.mkdir()
    return directory


def offset_at(log: PartitionLog, offset: int) -> object:
    try:
        return producer_state._batch_offset_at(log, offset)
    except KcompactError as problem:
        return str(problem)


def found_in(directory: Path, offsets: list[int]) -> tuple[object, ...]:
    try:
        log = read_log(directory)
    except UnsupportedError as problem:
        return (str(problem),)
    damage = [(type(each), str(each), each.position) for each in log.damage if isinstance(each, CorruptDataError)]
    return log.log_end_offset, damage, [offset_at(log, offset) for offset in offsets]


@given(
    any_log_bytes,
    st.sampled_from([1, 3, batch_headers.TABLE_ROWS]),
    st.lists(st.integers(0, 30), max_size=3),
)
def test_kernels_find_what_the_definition_finds(scratch: Path, data: bytes, rows: int, offsets: list[int]) -> None:
    (scratch / LOG_NAME).write_bytes(data)
    for suffix in (".index", ".timeindex"):
        (scratch / LOG_NAME).with_suffix(suffix).touch()
    with switched(compiled=False):
        expected = found_in(scratch, offsets)
    with mock.patch.object(batch_headers, "TABLE_ROWS", rows):
        assert found_in(scratch, offsets) == expected


def test_a_plan_makes_no_object_for_each_of_many_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offset index is empty, so the log end and the open transaction are searched for from the start."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("the batches are read one by one")

    monkeypatch.setattr(segment_reader, "batches", refuse)
    monkeypatch.setattr(batch_headers, "headers", refuse)
    directory = tmp_path / "orders-0"
    directory.mkdir()
    count = 9000
    batch = bytearray(build([Record(0, 0, b"k", b"v")], producer_id=PRODUCER, base_sequence=0, transactional=True))
    batches = (offset.to_bytes(8, "big") + bytes(batch[8:]) for offset in range(count))
    (directory / LOG_NAME).write_bytes(b"".join(batches))
    for suffix in (".index", ".timeindex"):
        (directory / LOG_NAME).with_suffix(suffix).touch()
    log = read_log(directory)
    assert (log.log_end_offset, log.damage) == (count, ())
    producers = producer_state.load_producers(log, now_ms=0, expiration_ms=1)
    assert producers[PRODUCER].transaction_first_offset == 0
    assert producer_state._batch_offset_at(log, count - 1) == count - 1
