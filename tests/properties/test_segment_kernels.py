"""The kernels return the same contents and the same findings as the readable definitions, for any log."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.errors import StorageError, UnsupportedError
from kcompact.format.batch import HEADER_BYTES, Record, build, computed_crc, parse_batches
from kcompact.format.codec import Codec
from kcompact.format.index import build_offset_index, parse_offset_index
from kcompact.log import batch_headers, inflate, segment_reader
from kcompact.log.directory import PartitionLog, read_log
from kcompact.log.files import LogFile
from kcompact.questions.contents import LogContents, file_contents, log_contents
from kcompact.questions.verify import log as verify
from kcompact.questions.verify.log import verify_file, verify_log
from kcompact.questions.verify.segment import SegmentToVerify, verified_by_kernels
from tests.support import log_writer, strategies
from tests.support.command_line import flip, partition
from tests.support.log_writer import LogSpec
from tests.support.machine_code import switched
from tests.support.parameters import few_examples


def described(seen: LogContents) -> list[dict[str, Any]]:
    """Return the contents of a log in a form that can be compared: two equal errors do not compare equal."""
    rows = [
        asdict(segment) | {"damage": repr(segment.damage), "text": str(segment.damage)} for segment in seen.segments
    ]
    return [*rows, *(asdict(each) | {"error": repr(each.error)} for each in seen.findings)]


def both_ways(work: Callable[[], LogContents], *, window_bytes: int, rows: int) -> tuple[Any, Any]:
    """Return what the readable definitions return, and what the kernels do."""
    with switched(compiled=False):
        readable = described(work())
    with (
        mock.patch.object(segment_reader, "WINDOW_BYTES", window_bytes),
        mock.patch.object(batch_headers, "TABLE_ROWS", rows),
        mock.patch.multiple(inflate, INFLATED_BYTES=window_bytes),
    ):
        return readable, described(work())


def agree(
    log: PartitionLog, *, window_bytes: int = segment_reader.WINDOW_BYTES, rows: int = batch_headers.TABLE_ROWS
) -> bool:
    """Assert that both ways return the same for a log; return whether the log is damaged."""
    for work in (lambda: log_contents(log), lambda: verify_log(log, index_interval_bytes=50)):
        readable, compiled = both_ways(work, window_bytes=window_bytes, rows=rows)
        assert compiled == readable
    for segment in log.segments:
        path = log.directory / segment.log_name
        for file_work in (
            lambda path=path, base=segment.base_offset: LogContents(segments=(file_contents(LogFile.at(path), base),)),
            lambda path=path, base=segment.base_offset: verify_file(LogFile.at(path), base),
        ):
            readable, compiled = both_ways(file_work, window_bytes=window_bytes, rows=rows)
            assert compiled == readable
    return verify_log(log).is_damaged


sizes = st.sampled_from([61, 100, 300, segment_reader.WINDOW_BYTES])
rows = st.sampled_from([1, 2, 100])


@pytest.mark.long
@few_examples()
@given(strategies.logs(), sizes, rows)
def test_logs_in_any_state(spec: LogSpec, window_bytes: int, table_rows: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        agree(read_log(log_writer.write(spec, Path(scratch))), window_bytes=window_bytes, rows=table_rows)


@pytest.mark.long
@few_examples()
@given(strategies.logs(), st.data(), sizes, rows)
def test_damaged_logs(spec: LogSpec, data: st.DataObject, window_bytes: int, table_rows: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = log_writer.write(spec, Path(scratch))
        logs = [path for path in sorted(directory.glob("*.log")) if path.stat().st_size]
        if logs:
            damage(data.draw(st.sampled_from(logs)), data)
        try:
            log = read_log(directory)
        except UnsupportedError:
            return  # Unknown attributes under a right checksum, at the end of the log.
        agree(log, window_bytes=window_bytes, rows=table_rows)


def damage(path: Path, data: st.DataObject) -> None:
    """Change something in a log: a byte, with or without a checksum that fits, or its end."""
    content = bytearray(path.read_bytes())
    match data.draw(st.sampled_from(["byte", "sealed byte", "cut", "more"])):
        case "byte":
            content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "sealed byte":
            starts = [one.position for one in parse_batches(bytes(content), file="")]
            start = data.draw(st.sampled_from(starts))
            size = int.from_bytes(content[start + 8 : start + 12], "big") + 12
            content[start + data.draw(st.integers(21, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
            crc = computed_crc(content[start : start + size])
            content[start + 17 : start + 21] = crc.to_bytes(4, "big")
        case "cut":
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        case "more":
            content += data.draw(st.sampled_from([bytes(10), bytes(100), b"\xff" * 100]) | st.binary(max_size=80))
    path.write_bytes(content)


@pytest.mark.long
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_bit_of_records_with_a_right_checksum(tmp_path: Path, stride: int) -> None:
    """The checksum is right, so only the records can show the damage. With a stride, every so many bits are flipped."""
    text = "log now=10:00\n0: [a=1 bb=~^09:01{h=x i=~} ~=5]@0..4 c=1(pid=3 epoch=0 seq=0 txn) commit(pid=3 epoch=0)\n9:"
    directory = partition(tmp_path, text)
    path = directory / "00000000000000000000.log"
    whole = path.read_bytes()
    damaged = 0
    for one in parse_batches(whole, file=""):
        end = one.position + one.header.size_bytes
        for bit in range((one.position + HEADER_BYTES) * 8, end * 8, stride):
            content = bytearray(whole)
            content[bit // 8] ^= 1 << bit % 8
            content[one.position + 17 : one.position + 21] = computed_crc(content[one.position : end]).to_bytes(
                4, "big"
            )
            path.write_bytes(content)
            log = read_log(directory)
            readable, compiled = both_ways(functools.partial(verify_log, log), window_bytes=1000, rows=10)
            assert compiled == readable
            damaged += any(row.get("severity") == "damage" for row in readable)
    assert damaged > 200 // stride


@functools.cache
def sixty_batches(codec: Codec) -> list[bytes]:
    batches = []
    for number in range(60):
        keys = random.Random(number)
        values = [None if keys.random() < 0.1 else keys.randbytes(keys.randrange(300)) for _ in range(50)]
        content = [Record(number * 50 + at, 1000 + at, b"k%d" % at, value) for at, value in enumerate(values)]
        batches.append(build(content, codec=codec, partition_leader_epoch=number // 20 + 3))
    return batches


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("window_bytes", [61, 5_000, 60_000, segment_reader.WINDOW_BYTES])
def test_the_kernels_confirm_a_sound_segment(codec: Codec, window_bytes: int, tmp_path: Path) -> None:
    path, batches = tmp_path / "0.log", sixty_batches(codec)
    path.write_bytes(b"".join(batches))
    with (
        mock.patch.object(segment_reader, "WINDOW_BYTES", window_bytes),
        mock.patch.object(batch_headers, "TABLE_ROWS", 7),
        mock.patch.multiple(inflate, INFLATED_BYTES=20_000),
    ):
        verified = verified_by_kernels(SegmentToVerify(log=LogFile.at(path), base_offset=0, end_offset=3000))
        assert verified is not None
        assert sum(map(len, batch_headers.header_tables(LogFile.at(path)))) == 60
        for base_offset, end_offset in ((1, 3000), (0, 2999)):
            file = SegmentToVerify(log=LogFile.at(path), base_offset=base_offset, end_offset=end_offset)
            assert verified_by_kernels(file) is None
    found = verified.contents
    assert (found.batches, found.records, found.last_offset, found.end_position) == (
        *(60, 3000, 2999, path.stat().st_size),
    )
    assert (verified.first_leader_epoch, verified.largest_leader_epoch) == (3, 5)
    expected = verify.verify_segment(SegmentToVerify(log=LogFile.at(path), base_offset=0, end_offset=3000))
    assert found == expected.contents
    assert found.tombstones is not None
    assert found.tombstones > 0
    assert (expected.first_leader_epoch, expected.largest_leader_epoch) == (3, 5)
    starts = [sum(map(len, batches[:number])) for number in range(60)]
    for offset_positions in (verified.offset_positions, expected.offset_positions):
        assert list(offset_positions) == starts
        assert [offset_positions.has_batch_at(starts[1] + after) for after in (0, 1, 1 << 40)] == [True, False, False]
        for offset, wrong in ((49, [0]), (50, []), (99, []), (100, [0])):
            data = build_offset_index([(offset, starts[1]), (2999, starts[2])])
            entries = parse_offset_index(data, base_offset=0, file="")
            assert list(offset_positions.wrong_entries(entries, 0)) == wrong


def test_epochs_that_fall_from_one_segment_to_the_next(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00\n0: a=1(leader=5)\n1: b=2(leader=4)\n2: c=3(leader=6)")
    assert agree(read_log(directory))
    assert [each.problem for each in verify_log(read_log(directory)).findings] == ["leader epoch 4 after epoch 5"]


def test_a_file_that_cannot_be_read_is_left_to_the_definitions(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    log = read_log(directory)
    path = directory / log.segments[0].log_name
    target = tmp_path / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    assert verified_by_kernels(SegmentToVerify(log=LogFile.at(path), base_offset=0, end_offset=3)) is None
    assert file_contents(LogFile.at(path), 0).end_position == 0
    readable, compiled = both_ways(lambda: verify_log(log), window_bytes=1000, rows=10)
    assert compiled == readable
    assert "a symbolic link" in compiled[0]["text"]
    path.unlink()
    for work in (file_contents, verify_file):
        with pytest.raises(StorageError, match="No such file"):
            work(LogFile.at(path), 0)
    with pytest.raises(StorageError, match="No such file"):
        verify_log(log)


@pytest.mark.long
def test_a_wrong_large_index(tmp_path: Path) -> None:
    directory = partition(tmp_path, "log now=10:00 index.interval.bytes=0\n0: a=1 b=2 c=3 d=4\n4: e=5")
    log = read_log(directory)
    assert not agree(log)
    for byte in range(24):
        flip(directory / "00000000000000000000.index", byte, 0x01)
        assert agree(read_log(directory))
        flip(directory / "00000000000000000000.index", byte, 0x01)
