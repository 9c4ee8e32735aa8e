"""`log.segment_reader`: batches and headers between two positions, and the checks of `verified_batches`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Record, build
from kcompact.log import segment_reader
from kcompact.log.batch_headers import verified_producer_headers
from kcompact.log.directory import read_log
from kcompact.log.files import LogFile
from kcompact.log.segment_reader import batches, headers, verified_batches
from tests.support import log_dsl, log_writer

TEXT = "log index.interval.bytes=100\n0: a=1 b=1^09:10 c=1 d=1^09:05\n4: a=2\n5: a=3 b=3 c=3 d=3"
FIRST, ACTIVE = f"{0:020d}.log", f"{5:020d}.log"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse(TEXT), tmp_path / "logs")


@pytest.mark.parametrize("window", [61, 62, 70, 71, 139, 140, 141, 1000])
def test_the_window_size_changes_nothing(directory: Path, window: int) -> None:
    path = directory / FIRST
    whole = [(one.position, one.header, bytes(one.data)) for one in batches(path)]
    found = [(one.position, one.header, bytes(one.data)) for one in batches(path, window_bytes=window)]
    assert found == whole
    assert [(position, header) for position, header, _ in whole] == list(headers(LogFile.at(path)))
    assert b"".join(data for _, _, data in whole) == path.read_bytes()


def test_reading_between_two_positions(directory: Path) -> None:
    path = directory / FIRST
    positions = [position for position, _ in headers(LogFile.at(path))]
    found = [one.position for one in batches(path, start_position=positions[1], end_position=positions[3])]
    assert found == positions[1:3]
    with pytest.raises(CorruptBatchError, match="only 65 are left"):
        list(headers(LogFile.at(path), end_position=positions[1] + 65))
    with pytest.raises(CorruptBatchError):
        list(batches(path, start_position=1))


@pytest.mark.parametrize("missing", [1, 70, 1000])
@pytest.mark.parametrize("read", [batches, headers])
def test_a_file_that_is_too_short(directory: Path, missing: int, read: Callable[..., Iterable[object]]) -> None:
    path = directory / FIRST
    size = path.stat().st_size
    with pytest.raises(CorruptBatchError):
        list(read(LogFile.at(path), end_position=size + missing))


@pytest.mark.parametrize(
    ("name", "base_offset", "end_offset", "problem"),
    [
        (FIRST, 0, 3, "last offset 3, but the next segment starts at 3"),
        (FIRST, 1, 4, "base offset 0 after offset 0"),
        (ACTIVE, 5, 8, "last offset 8"),
    ],
)
def test_overlapping_segments(directory: Path, name: str, base_offset: int, end_offset: int, problem: str) -> None:
    with pytest.raises(CorruptBatchError, match=problem):
        list(verified_batches(LogFile.at(directory / name), base_offset=base_offset, end_offset=end_offset))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("0: a=1(leader=3) b=1(leader=2)", "leader epoch 2 after epoch 3"),
        ("0: a=1@5 b=1@5", "base offset 5 after offset 5"),
        ("0: [a=1@0]@0..9 b=1@9", "base offset 9 after offset 9"),
    ],
)
def test_batches_out_of_order(tmp_path: Path, line: str, problem: str) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / FIRST).write_bytes(log_dsl.parse(f"log\n{line}").segments[0].data)
    with pytest.raises(CorruptBatchError, match=problem):
        list(verified_batches(LogFile.at(directory / FIRST), base_offset=0, end_offset=100))


def test_an_unknown_leader_epoch_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / FIRST
    path.write_bytes(log_dsl.parse("log\n0: a=1(leader=3) b=1(leader=-1) c=1(leader=3)").segments[0].data)
    assert len(list(verified_batches(LogFile.at(path), base_offset=0, end_offset=3))) == 3


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log with two small batches around one that is larger than the window and may not be held."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a batch is read whole")

    monkeypatch.setattr(segment_reader, "require_readable", refuse)
    path = tmp_path / "orders-0" / FIRST
    path.parent.mkdir()
    sizes = (1, segment_reader.WINDOW_BYTES + 1, 1)
    records = [Record(offset, 0, b"k", bytes(size)) for offset, size in enumerate(sizes)]
    path.write_bytes(b"".join(build([each], producer_id=7, base_sequence=each.offset) for each in records))
    return path


def test_a_header_is_found_without_holding_its_batch(large: Path) -> None:
    found = verified_batches(LogFile.at(large), base_offset=0, end_offset=3, holds_large=False)
    assert [(each.position, each.header) for each in found] == list(headers(LogFile.at(large)))
    assert read_log(large.parent).log_end_offset == 3


def test_producers_are_found_without_holding_a_batch(
    large: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    size = large.stat().st_size
    found = verified_producer_headers(LogFile.at(large), base_offset=0, end_offset=3, end_position=size)
    assert [each.header.base_offset for each in found] == [0, 1, 2]


def test_a_batch_that_is_not_held_is_verified(large: Path) -> None:
    content = bytearray(large.read_bytes())
    content[segment_reader.WINDOW_BYTES + 50] ^= 1
    large.write_bytes(content)
    with pytest.raises(CorruptBatchError, match=r"checksum 0x\w+, the header says"):
        list(verified_batches(LogFile.at(large), base_offset=0, end_offset=3, holds_large=False))
    (damage,) = read_log(large.parent).damage
    assert damage.offset == 1
