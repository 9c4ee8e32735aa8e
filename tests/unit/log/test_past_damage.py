"""What is read of a damaged log, and what is not: one line for each kind of damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kcompact.errors import BatchTooLargeError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Batch, Record, build, parse_batches
from kcompact.log import past_damage
from kcompact.log.files import LogFile
from kcompact.log.past_damage import Unreadable, readable_batches
from tests.support import log_dsl


def batch(first: int, last: int, *, value: bytes = b"v") -> bytes:
    return build([Record(offset, 1000 + offset, b"k", value) for offset in range(first, last + 1)])


B = [batch(0, 4), batch(5, 5), batch(6, 9), batch(10, 11)]
SIZES = [len(each) for each in B]
STARTS = [sum(SIZES[:number]) for number in range(len(B) + 1)]
WHOLE = b"".join(B)

LENGTH, MAGIC, CRC, COUNT = 8, 16, 17, 57


def changed(position: int, new: bytes) -> bytes:
    return WHOLE[:position] + new + WHOLE[position + len(new) :]


def lines(data: bytes, tmp_path: Path, **options: int) -> list[str]:
    """The parts that are read: `0-4` is a batch, `!` starts what is not: size, last offset before, problem."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    return [line(part) for part in readable_batches(LogFile.at(path), **options)]


def line(part: Batch | Unreadable) -> str:
    if isinstance(part, Batch):
        return f"{part.header.base_offset}-{part.header.last_offset}"
    given_up = ", given up" if part.is_given_up else ""
    problem = part.problem.size if isinstance(part.problem, BatchTooLargeError) else part.problem.problem
    return f"!{part.end_position - part.position} after {part.after_offset}: {problem}{given_up}"


AT_5 = STARTS[1]
TABLE: list[tuple[str, bytes, list[str]]] = [
    ("sound", WHOLE, ["0-4", "5-5", "6-9", "10-11"]),
    ("nothing", b"", []),
    (
        "a value",
        changed(STARTS[2] - 2, b"X"),
        ["0-4", f"!{SIZES[1]} after 4: checksum", "6-9", "10-11"],
    ),
    ("the first batch", changed(CRC, b"XXXX"), [f"!{SIZES[0]} after -1: checksum", "5-5", "6-9", "10-11"]),
    ("the last batch", changed(STARTS[4] - 2, b"X"), ["0-4", "5-5", "6-9", f"!{SIZES[3]} after 9: checksum"]),
    (
        "a length that leads nowhere",
        changed(AT_5 + LENGTH, (70).to_bytes(4, "big")),
        ["0-4", f"!{SIZES[1]} after 4: checksum", "6-9", "10-11"],
    ),
    (
        "a length beyond the end",
        changed(AT_5 + LENGTH, (1 << 20).to_bytes(4, "big")),
        ["0-4", f"!{SIZES[1]} after 4: a batch of 1048588 bytes", "6-9", "10-11"],
    ),
    ("a magic", changed(AT_5 + MAGIC, b"\x07"), ["0-4", f"!{SIZES[1]} after 4: magic 7", "6-9", "10-11"]),
    (
        "zeros over two batches",
        changed(AT_5 + 3, bytes(SIZES[1] + 30)),
        ["0-4", f"!{SIZES[1] + SIZES[2]} after 4: zeros where", "10-11"],
    ),
    ("a torn tail", WHOLE[:-5], ["0-4", "5-5", "6-9", f"!{SIZES[3] - 5} after 9: a batch of"]),
    ("a torn header", WHOLE[: STARTS[3] + 20], ["0-4", "5-5", "6-9", "!20 after 9: the file ends inside"]),
    ("zeros at the end", WHOLE + bytes(5000), ["0-4", "5-5", "6-9", "10-11", "!5000 after 11: zeros where"]),
    ("only zeros", bytes(5000), ["!5000 after -1: zeros where"]),
    ("a gap of a cleaning", B[0] + B[2] + B[3], ["0-4", "6-9", "10-11"]),
    ("a batch twice", B[0] + B[0] + B[1], ["0-4", f"!{SIZES[0]} after 4: base offset 0 after offset 4", "5-5"]),
    (
        "an offset that is too great",
        changed(AT_5, (900).to_bytes(8, "big")),
        ["0-4", f"!{SIZES[1]} after 4: last offset 900, but the next batch starts at 6", "6-9", "10-11"],
    ),
    (
        "an offset that is too small",
        changed(STARTS[2], (3).to_bytes(8, "big")),
        ["0-4", "5-5", f"!{SIZES[2]} after 5: base offset 3 after offset 5", "10-11"],
    ),
]


@pytest.mark.parametrize(("name", "data", "expected"), TABLE, ids=[name for name, *_ in TABLE])
def test_parts_of_a_log(name: str, data: bytes, expected: list[str], tmp_path: Path) -> None:
    found = lines(data, tmp_path)
    assert [each.startswith(start) for each, start in zip(found, expected, strict=True)] == [True] * len(found), found


def test_a_small_window_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [lines(data, tmp_path) for _, data, _ in TABLE]
    monkeypatch.setattr(past_damage, "WINDOW_BYTES", 64)
    monkeypatch.setattr(past_damage, "_SEARCHED_BYTES", 7)
    assert [lines(data, tmp_path) for _, data, _ in TABLE] == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"base_offset": 3}, ["!", "5-5", "6-9", "10-11"]),
        ({"end_offset": 10}, ["0-4", "5-5", "6-9", "!"]),
        ({"start_position": STARTS[1], "after_offset": 4, "end_position": STARTS[3]}, ["5-5", "6-9"]),
        ({"start_position": STARTS[1], "after_offset": 5}, ["!", "6-9", "10-11"]),
    ],
)
def test_offsets_and_positions(options: dict[str, int], expected: list[str], tmp_path: Path) -> None:
    found = lines(WHOLE, tmp_path, **options)
    assert [each[: len(start)] for each, start in zip(found, expected, strict=True)] == expected


def test_batches_of_old_formats(tmp_path: Path) -> None:
    def message(offset: int) -> bytes:
        from zlib import crc32

        body = b"\x01\x00" + (1000).to_bytes(8, "big") + b"\0\0\0\1k\0\0\0\1v"
        entry = crc32(body).to_bytes(4, "big") + body
        return offset.to_bytes(8, "big") + len(entry).to_bytes(4, "big") + entry

    messages = [message(offset) for offset in range(4)]
    size = len(messages[0])
    damaged = messages[0] + messages[1][:MAGIC] + b"\x09" + messages[1][MAGIC + 1 :] + messages[2] + bytes(90)
    assert [each[:12] for each in lines(damaged + messages[3], tmp_path)] == [
        *("0-0", f"!{size} after 0:", "2-2", "!90 after 2:", "3-3")
    ]


def test_a_batch_inside_a_value_is_no_batch_of_the_log(tmp_path: Path) -> None:
    """The damaged batch says where it ends, so nothing inside it is looked at."""
    outer = build([Record(5, 1000, b"k", batch(5, 5) + batch(6, 6))])
    data = B[0] + outer + B[2]
    damaged = data[: SIZES[0] + CRC] + b"XXXX" + data[SIZES[0] + CRC + 4 :]
    assert [each.split(" ")[0] for each in lines(damaged, tmp_path)] == ["0-4", f"!{len(outer)}", "6-9"]


def test_a_search_ends_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes that look like headers of large batches at every place cannot make the time grow with the square."""
    monkeypatch.setattr(past_damage, "_LEAST_CHECKED_BYTES", 1000)
    checked = []
    original = batch_format.computed_crc_of

    def counting(pieces: Any, *, magic: int) -> int:
        checked.append(magic)
        return original(pieces, magic=magic)

    monkeypatch.setattr(past_damage, "computed_crc_of", counting)
    header = bytearray(batch(7, 7)[:61])
    header[LENGTH : LENGTH + 4] = (3000).to_bytes(4, "big")
    hostile = bytes(header) * 100
    found = lines(B[0] + b"\xff" + hostile + B[3], tmp_path)
    assert found[-1].endswith("given up")
    assert len(checked) < 20


def test_a_batch_that_is_too_large_is_passed_over(tmp_path: Path) -> None:
    large = batch(5, 5, value=bytes(100_000))
    found = lines(B[0] + large + B[2], tmp_path, memory_bytes=100_000)
    assert [each.split(":")[0] for each in found] == ["0-4", f"!{len(large)} after 4", "6-9"]


def test_the_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    spec = log_dsl.parse("log\n0: a=1 [b=2 c=~](lz4) d=4")
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(spec.segments[0].data)
    expected = list(parse_batches(spec.segments[0].data, file=""))
    found = list(readable_batches(LogFile.at(path)))
    assert [(each.position, each.header) for each in found if isinstance(each, Batch)] == [
        (each.position, each.header) for each in expected
    ]
