"""`log.segment_reader`: batches and headers between two positions, and the checks of `verified_batches`."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from kcompact import kernels
from kcompact.errors import CorruptBatchError, UnsupportedError
from kcompact.format import legacy
from kcompact.format.batch import Record, build, parse_batches, read_records, sealed
from kcompact.format.codec import Codec
from kcompact.log import segment_reader
from kcompact.log.batch_headers import headers
from kcompact.log.directory import read_log
from kcompact.log.files import LogFile
from kcompact.log.producer_state import verified_producer_headers
from kcompact.log.segment_reader import batches, verified_batches
from tests.support import log_dsl, log_writer
from tests.support.kernel_inputs import array

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


@pytest.mark.parametrize("bit", range(16))
def test_unknown_bits_of_the_attributes(bit: int, tmp_path: Path) -> None:
    (one,) = parse_batches(build([Record(5, 0, b"k", b"v")]), file="")
    attributes = (1 << bit) - (1 << 16 if bit == 15 else 0)
    data = sealed(one.header._replace(attributes=attributes), bytes(one.data[61:]))
    table = np.empty((2, kernels.COLUMNS), np.int64)
    *_, code = kernels.parse_batches(array(data), len(data), 5, 100, -1, table)
    (tmp_path / "0.log").write_bytes(data)
    found = verified_batches(LogFile.at(tmp_path / "0.log"), base_offset=5, end_offset=100)
    if bit < 7:
        assert (code, len(list(found))) == (kernels.DONE, 1)
        return
    assert code == kernels.DAMAGED
    with pytest.raises(UnsupportedError, match=rf"position 0, offset 5: .* magic 2 has the attributes {1 << bit:#x}"):
        list(found)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("bit", range(3, 8))
def test_unknown_bits_of_the_attributes_of_old_formats(bit: int, magic: int, tmp_path: Path) -> None:
    fields = bytes((magic, 1 << bit)) + bytes(8 * magic) + bytes.fromhex("000000016b0000000176")
    message = (5).to_bytes(8) + (4 + len(fields)).to_bytes(4) + legacy.checksum(fields).to_bytes(4) + fields
    (tmp_path / "0.log").write_bytes(message)
    found = verified_batches(LogFile.at(tmp_path / "0.log"), base_offset=5, end_offset=100)
    if (magic, bit) == (1, 3):
        assert len(list(found)) == 1
        return
    with pytest.raises(UnsupportedError, match=f"position 0, offset 5: a batch of magic {magic} has .* {1 << bit:#x},"):
        list(found)


@pytest.mark.parametrize("magic", [0, 1])
def test_unknown_bits_inside_of_a_compressed_message(magic: int, tmp_path: Path) -> None:
    def message(offset: int, attributes: int, value: bytes) -> bytes:
        fields = (
            bytes((magic, attributes)) + bytes(8 * magic) + bytes.fromhex("ffffffff") + len(value).to_bytes(4) + value
        )
        return offset.to_bytes(8) + (4 + len(fields)).to_bytes(4) + legacy.checksum(fields).to_bytes(4) + fields

    inner = message(0, 0, b"a") + message(1, 0x40, b"b")
    (tmp_path / "0.log").write_bytes(message(6, Codec.GZIP, gzip.compress(inner)))
    (batch,) = verified_batches(LogFile.at(tmp_path / "0.log"), base_offset=5, end_offset=100)
    with pytest.raises(UnsupportedError, match=f"offset 6: a message of magic {magic} inside .* attributes 0x40,"):
        read_records(batch, file="0.log")


def test_a_small_file_is_read_into_small_arrays(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(b"".join(build([Record(offset, 0, b"k", b"v")]) for offset in range(3)))
    (run,) = segment_reader.confirmed_runs(LogFile.at(path), base_offset=0, end_offset=3)
    assert len(run.table) == 3
    assert run.buffer.nbytes == path.stat().st_size
    assert run.table.base is not None
    assert run.table.base.nbytes < 1000
