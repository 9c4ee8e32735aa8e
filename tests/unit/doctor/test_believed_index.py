"""What a broker makes of wrong entries of indexes. `make starts` compares it with Kafka's own manager of the logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.doctor.believed_index import (
    offset_index_findings,
    time_index_findings,
    too_large_index_findings,
    unstable_findings,
)
from kcompact.doctor.findings import Finding
from kcompact.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kcompact.format.index import build_offset_index, build_time_index
from kcompact.log.directory import PartitionLog, read_log
from tests.support import log_dsl, log_writer
from tests.support.command_line import rewrite
from tests.support.index_entries import OFFSET_ENTRY

# Each batch has 70 bytes: the batch of offset n begins at position 70 n of segment 0.
LOG = "log now=10:00\n0: a=1 b=2 c=3 d=4 e=5 f=6\n6: g=7 h=8\n"
CLOSED, ACTIVE = 0, 6
INDEX, TIME_INDEX = ".index", ".timeindex"
NOW_MS = 1_704_099_600_000
MEMORY_BYTES = 1 << 20


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse(LOG), tmp_path / "logs")


def stopped_at(directory: Path, offset: int) -> None:
    (directory.parent / ".kafka_cleanshutdown").touch()
    (directory.parent / RECOVERY_POINT_CHECKPOINT).write_text(f"0\n1\n{directory.name[:-2]} 0 {offset}\n")


def logs(directory: Path, base_offset: int, size_bytes: int) -> None:
    """Cut the log of a segment."""
    path = directory / f"{base_offset:020d}.log"
    rewrite(path, path.read_bytes()[:size_bytes])


def index(directory: Path, base_offset: int, entries: list[tuple[int, int]], more: bytes = b"") -> PartitionLog:
    (directory / f"{base_offset:020d}{INDEX}").write_bytes(build_offset_index(entries) + more)
    return read_log(directory)


def kinds(found: list[Finding]) -> list[tuple[str, int | None]]:
    return [(each.code.value, each.offset) for each in found]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], []),
        ([(2, 140)], []),
        ([(2, 140), (4, 280)], []),
        # An entry that leads to an earlier batch is only slow.
        ([(4, 140)], []),
        ([(4, 0)], []),
        # What lies between the batch and the place of its entry is not found.
        ([(2, 210)], [("hidden-records", 2)]),
        ([(2, 350)], [("hidden-records", 2)]),
        ([(0, 70)], [("hidden-records", 0)]),
        # No batch begins there.
        ([(2, 141)], [("hidden-records", 2)]),
        # A broker takes it for the start.
        ([(2, -70)], []),
        # The search goes by halves: entries that do not rise lead it elsewhere.
        ([(4, 280), (2, 140)], []),
        ([(2, 140), (1, 350), (4, 280)], [("hidden-records", 3)]),
        # Behind the end, for an offset of the next segment: the entry is wrong.
        ([(2, 140), (7, 900)], []),
        # Behind the end, for an offset that the log has: no batch is found from there on.
        ([(4, 900)], [("hidden-records", 4)]),
    ],
)
def test_entries_of_a_closed_segment(
    entries: list[tuple[int, int]], expected: list[tuple[str, int | None]], directory: Path
) -> None:
    log = index(directory, CLOSED, entries)
    assert kinds(list(offset_index_findings(log, log.segments[0]))) == expected


@pytest.mark.parametrize(
    ("size_bytes", "entries", "expected"),
    [
        (280, [(3, 210)], []),
        (280, [(4, 280)], [("lost-end", 4)]),
        (280, [(5, 350)], [("lost-end", 4)]),
        (0, [(1, 0)], [("lost-end", 0)]),
        (0, [(1, 70)], [("lost-end", 0)]),
        (280, [(4, 0)], []),
    ],
)
def test_a_log_that_is_shorter_than_its_index(
    size_bytes: int, entries: list[tuple[int, int]], expected: list[tuple[str, int | None]], directory: Path
) -> None:
    logs(directory, CLOSED, size_bytes)
    log = index(directory, CLOSED, entries)
    assert kinds(list(offset_index_findings(log, log.segments[0]))) == expected


@pytest.mark.parametrize(
    ("stop", "entries", "expected"),
    [
        (None, [(1, 70)], []),
        (None, [(0, 0)], []),
        # The last entry decides where the log ends.
        (None, [(1, 0)], []),
        (None, [(0, 70)], [("hidden-records", 6)]),
        (None, [(3, 0)], [("lost-end", 6)]),
        (None, [(2, 140)], [("lost-end", 8), ("lost-end", 6)]),
        # It was stopped at the end of the log: nothing is lost.
        (8, [(2, 140)], [("lost-end", 6)]),
        (9, [(2, 140)], [("lost-end", 8), ("lost-end", 6)]),
    ],
)
def test_entries_of_the_last_segment(
    stop: int | None, entries: list[tuple[int, int]], expected: list[tuple[str, int | None]], directory: Path
) -> None:
    if stop is not None:
        stopped_at(directory, stop)
    log = index(directory, ACTIVE, entries)
    assert kinds(list(offset_index_findings(log, log.active_segment))) == expected


def test_zeros_behind_the_entries_lead_to_the_start(directory: Path) -> None:
    log = index(directory, CLOSED, [(2, 140), (4, 280)], bytes(160))
    assert list(offset_index_findings(log, log.segments[0])) == []
    log = index(directory, ACTIVE, [(1, 70)], bytes(80))
    assert list(offset_index_findings(log, log.active_segment)) == []


def test_a_look_up_begins_with_the_last_slots(directory: Path) -> None:
    """Of a large index the last 1,024 slots are looked at first: a wrong one among them decides."""
    (directory / f"{0:020d}{INDEX}").write_bytes(build_offset_index([(0, 350)] * 2000 + [(1, 70)] * 1025))
    log = read_log(directory)
    (found,) = offset_index_findings(log, log.segments[0])
    assert (found.code.value, found.offset, "does not find 1, the first at offset 0" in found.problem) == (
        "hidden-records",
        0,
        True,
    )


@pytest.mark.parametrize(
    ("base_offset", "stop", "last", "expected"),
    [
        (CLOSED, None, 5, []),
        (CLOSED, None, 6, []),
        (ACTIVE, None, 1, []),
        (ACTIVE, 8, 2, []),
        (ACTIVE, None, 2, [("lost-end", 8)]),
        (ACTIVE, 8, 3, [("unwritable-index", 9)]),
        (ACTIVE, None, 9, [("lost-end", 8), ("unwritable-index", 15)]),
    ],
)
def test_the_end_of_a_time_index(
    base_offset: int, stop: int | None, last: int, expected: list[tuple[str, int | None]], directory: Path
) -> None:
    if stop is not None:
        stopped_at(directory, stop)
    time_index = build_time_index([(1_704_099_600_000, last)])
    (directory / f"{base_offset:020d}{TIME_INDEX}").write_bytes(time_index)
    log = read_log(directory)
    segment = next(each for each in log.segments if each.base_offset == base_offset)
    assert kinds(list(time_index_findings(log, segment, now_ms=NOW_MS))) == expected


def test_a_time_index_without_an_offset_index_is_made_again(directory: Path) -> None:
    """It can still be the proof that the log has lost its end."""
    path = directory / f"{ACTIVE:020d}{TIME_INDEX}"
    path.with_suffix(INDEX).unlink()
    for entries, expected in ([], []), ([(1_704_099_600_000, 9)], [("lost-end", 8)]):
        path.write_bytes(build_time_index(entries))
        log = read_log(directory)
        assert kinds(list(time_index_findings(log, log.active_segment, now_ms=NOW_MS))) == expected


def test_batches_of_the_next_segment_are_looked_up_there(directory: Path) -> None:
    closed = directory / f"{CLOSED:020d}.log"
    rewrite(closed, closed.read_bytes() + (directory / f"{ACTIVE:020d}.log").read_bytes())
    log = index(directory, CLOSED, [(5, 490)])
    assert [each.offset for each in offset_index_findings(log, log.segments[0])] == [5]
    log = index(directory, CLOSED, [(6, 490)])
    assert list(offset_index_findings(log, log.segments[0])) == []


def test_a_time_index_of_a_log_that_is_shorter(directory: Path) -> None:
    logs(directory, CLOSED, 280)
    (directory / f"{0:020d}{TIME_INDEX}").write_bytes(build_time_index([(1_704_099_600_000, 5)]))
    log = read_log(directory)
    assert kinds(list(time_index_findings(log, log.segments[0], now_ms=NOW_MS))) == [("lost-end", 4)]


@pytest.mark.parametrize(
    ("segment_index_bytes", "words"), [(24, []), (23, [INDEX]), (12, [INDEX]), (8, [INDEX, TIME_INDEX])]
)
def test_an_index_that_is_larger_than_a_broker_makes_it(
    segment_index_bytes: int, words: list[str], directory: Path
) -> None:
    log = index(directory, ACTIVE, [(1, 70)], bytes(16))
    found = list(too_large_index_findings(log, segment_index_bytes))
    assert [(each.code.value, each.path.suffix) for each in found] == [("unloadable-segment", word) for word in words]


def test_the_open_transaction_is_looked_for(directory: Path) -> None:
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[140:160] = bytes(20)
    rewrite(path, bytes(data))
    log = index(directory, CLOSED, [(3, 210)])
    for offset, word in ((0, None), (1, None), (2, "unloadable-segment"), (3, None), (5, None), (6, None)):
        found = [each.code.value for each in unstable_findings(log, offset, MEMORY_BYTES)]
        assert found == ([] if word is None else [word]), offset


@pytest.mark.parametrize(
    ("magic", "attributes", "words"),
    [
        (2, 6, []),
        (1, 0, []),
        (1, 6, ["unloadable-segment"]),
        (0, 1, ["unloadable-segment"]),
        # A broker takes it for a negative one, so for an old format.
        (255, 0, []),
        (255, 1, ["unloadable-segment"]),
        (127, 1, []),
    ],
)
def test_a_compressed_old_message_is_read_to_find_its_first_offset(
    magic: int, attributes: int, words: list[str], directory: Path
) -> None:
    path = directory / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[140 + 16 : 140 + 18] = bytes([magic, attributes])
    rewrite(path, bytes(data))
    log = read_log(directory)
    assert [each.code.value for each in unstable_findings(log, 2, MEMORY_BYTES)] == words


def test_an_entry_is_only_added_for_a_later_time(directory: Path) -> None:
    stopped_at(directory, 8)
    path = directory / f"{ACTIVE:020d}{TIME_INDEX}"
    for timestamp_ms, expected in ((NOW_MS, ["unwritable-index"]), (NOW_MS + 1, [])):
        path.write_bytes(build_time_index([(timestamp_ms, 9)]))
        log = read_log(directory)
        found = time_index_findings(log, log.active_segment, now_ms=NOW_MS)
        assert [each.code.value for each in found] == expected


@pytest.mark.parametrize(
    ("start_offset", "first", "hidden"), [(0, -7, [0]), (1, -7, [1]), (2, -7, []), (0, 1, [1]), (1, 1, [1]), (2, 1, [])]
)
def test_nobody_asks_for_what_was_deleted(start_offset: int, first: int, hidden: list[int], directory: Path) -> None:
    (directory.parent / LOG_START_OFFSET_CHECKPOINT).write_text(f"0\n1\n{directory.name[:-2]} 0 {start_offset}\n")
    log = index(directory, CLOSED, [])
    entries = OFFSET_ENTRY.pack(first, 140) + OFFSET_ENTRY.pack(2, 140)
    (directory / f"{0:020d}{INDEX}").write_bytes(entries)
    assert [each.offset for each in offset_index_findings(log, log.segments[0])] == hidden
