"""Each kind of finding that `verify` returns."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES, parse_batches, sealed
from kcompact.log import segment_reader
from kcompact.log.directory import read_log
from kcompact.questions.verify.findings import FileFinding, FileSeverity
from kcompact.questions.verify.log import findings, verify_log
from tests.support.command_line import flip, partition, rewrite
from tests.support.machine_code import switched

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"
TIME_INDEX = "00000000000000000000.timeindex"
ACTIVE = "00000000000000000006.log"

SCENE = """\
log now=10:00 index.interval.bytes=50
0: a=1 b=2 a=3
3: b=4 c=5 d=~
6: a=6 a=7
"""


@pytest.fixture(autouse=True, params=["readable", "compiled"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run each test twice: with the readable definitions and with kernels."""
    is_compiled = request.param == "compiled"
    if is_compiled:
        monkeypatch.setattr(segment_reader, "WINDOW_BYTES", 200)
    with switched(compiled=is_compiled):
        yield request.param


def found(directory: Path) -> tuple[FileFinding, ...]:
    return findings(read_log(directory), index_interval_bytes=50)


def test_sound_log_has_no_findings(tmp_path: Path) -> None:
    assert found(partition(tmp_path, SCENE)) == ()


def second_batch(directory: Path) -> int:
    length: int = struct.unpack_from(">i", (directory / LOG).read_bytes(), 8)[0]
    return 12 + length


def flip_record(directory: Path) -> None:
    flip(directory / LOG, second_batch(directory) + HEADER_BYTES + 3)


def flip_magic(directory: Path) -> None:
    flip(directory / LOG, second_batch(directory) + 16, 0x07)


def raise_base_offset(directory: Path) -> None:
    flip(directory / LOG, second_batch(directory) + 7, 0x01)


def raise_past_next_segment(directory: Path) -> None:
    flip(directory / LOG, second_batch(directory) + 7, 0x10)


def raise_epoch(directory: Path) -> None:
    flip(directory / LOG, 15, 0x05)


def cut_tail(directory: Path) -> None:
    rewrite(directory / ACTIVE, (directory / ACTIVE).read_bytes()[:-3])


def cut_header(directory: Path) -> None:
    rewrite(directory / ACTIVE, (directory / ACTIVE).read_bytes() + b"\0\0\0\0\0\0\0\x09\0\0")


def cut_inactive(directory: Path) -> None:
    rewrite(directory / LOG, (directory / LOG).read_bytes()[:-3])


def zeros(directory: Path) -> None:
    rewrite(directory / ACTIVE, (directory / ACTIVE).read_bytes() + bytes(4096))


def index_elsewhere(directory: Path) -> None:
    flip(directory / INDEX, 7, 0x01)


def index_other_offset(directory: Path) -> None:
    flip(directory / INDEX, 3, 0x04)


def index_half_entry(directory: Path) -> None:
    rewrite(directory / INDEX, (directory / INDEX).read_bytes()[:-1])


def wrong_time_index(directory: Path) -> None:
    flip(directory / TIME_INDEX, -5, 0x01)


def bad_snapshot(directory: Path) -> None:
    (directory / "00000000000000000006.snapshot").write_bytes(b"\0\x01nonsense")


def bad_epochs(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n7\n0 0\n")


def bad_metadata(directory: Path) -> None:
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: \x1b[31m")


def bad_txn_index(directory: Path) -> None:
    (directory / "00000000000000000000.txnindex").write_bytes(struct.pack(">hqqqq", 7, 1, 0, 1, 2))


def marker_elsewhere(directory: Path) -> None:
    (directory / "00000000000000000000.txnindex").write_bytes(struct.pack(">hqqqq", 0, 1, 0, 99, 100))


DAMAGE: list[tuple[Callable[[Path], None], str, str]] = [
    (flip_record, LOG, "checksum"),
    (flip_magic, LOG, "magic 5"),
    (raise_base_offset, LOG, "offsets do not rise"),
    (raise_past_next_segment, LOG, "overlaps the next segment"),
    (raise_epoch, LOG, "leader epoch"),
    (cut_tail, ACTIVE, "torn tail"),
    (cut_header, ACTIVE, "torn tail"),
    (cut_inactive, LOG, "not a complete batch"),
    (zeros, ACTIVE, "zeros to the end of the file"),
    (index_elsewhere, INDEX, "no batch starts there"),
    (index_other_offset, INDEX, ""),
    (index_half_entry, INDEX, "multiple of the 8 bytes"),
    (wrong_time_index, TIME_INDEX, "the greatest in the log is"),
    (bad_snapshot, "00000000000000000006.snapshot", ""),
    (bad_epochs, "leader-epoch-checkpoint", ""),
    (bad_metadata, "partition.metadata", "topic id"),
    (bad_txn_index, "00000000000000000000.txnindex", "version 7"),
    (marker_elsewhere, "00000000000000000000.txnindex", "no ABORT marker"),
]


@pytest.mark.parametrize(("damage", "file", "problem"), DAMAGE, ids=[row[0].__name__ for row in DAMAGE])
def test_damage(damage: Callable[[Path], None], file: str, problem: str, tmp_path: Path) -> None:
    directory = partition(tmp_path, SCENE)
    damage(directory)
    found_here = [each for each in found(directory) if each.file == file]
    assert [each.severity for each in found_here][:1] == [FileSeverity.DAMAGE]
    assert problem in " ".join(each.problem for each in found_here)


def aside(directory: Path, name: str) -> str:
    (directory / name).write_bytes(b"")
    return name


def missing_index(directory: Path) -> str:
    (directory / INDEX).unlink()
    return INDEX


def missing_time_index(directory: Path) -> str:
    (directory / TIME_INDEX).unlink()
    return TIME_INDEX


def staging(directory: Path) -> str:
    (directory / ".kcompact-0123456789abcdef").mkdir()
    return ".kcompact-0123456789abcdef"


def padded_index(directory: Path) -> str:
    rewrite(directory / INDEX, (directory / INDEX).read_bytes() + bytes(800))
    return INDEX


def sparse_index(directory: Path) -> str:
    rewrite(directory / INDEX, b"")
    return INDEX


def low_time_index(directory: Path) -> str:
    data = (directory / TIME_INDEX).read_bytes()
    last = len(data) - index.TIME_ENTRY_BYTES
    timestamp = int.from_bytes(data[last : last + 8]) - 1
    rewrite(directory / TIME_INDEX, data[:last] + timestamp.to_bytes(8) + data[last + 8 :])
    return TIME_INDEX


def unknown_bits(directory: Path) -> str:
    first, *others = parse_batches((directory / LOG).read_bytes(), file="")
    header = first.header._replace(attributes=first.header.attributes | 0x100)
    newer = sealed(header, bytes(first.data[HEADER_BYTES:]))
    rewrite(directory / LOG, b"".join([newer, *(bytes(each.data) for each in others)]))
    return LOG


def high_checkpoint(directory: Path) -> str:
    (directory.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 99\n")
    return "cleaner-offset-checkpoint"


def high_watermark(directory: Path) -> str:
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 99\n")
    (directory.parent / ".kafka_cleanshutdown").unlink()  # After a clean shutdown it is damage.
    return "replication-offset-checkpoint"


REMARKS: list[tuple[Callable[[Path], str], FileSeverity, str]] = [
    (lambda d: aside(d, f"{LOG}.cleaned"), FileSeverity.WARNING, "interrupted cleaning"),
    (lambda d: aside(d, f"{LOG}.swap"), FileSeverity.WARNING, "not yet renamed"),
    (lambda d: aside(d, f"{LOG}.deleted"), FileSeverity.INFO, "about to be deleted"),
    (lambda d: aside(d, "notes.txt"), FileSeverity.WARNING, "not a file of Kafka"),
    (lambda d: aside(d, "00000000000000000004.index"), FileSeverity.WARNING, "index without a log"),
    (staging, FileSeverity.WARNING, "interrupted run of kcompact"),
    (missing_index, FileSeverity.WARNING, "missing"),
    (missing_time_index, FileSeverity.WARNING, "missing"),
    (padded_index, FileSeverity.INFO, "zero bytes after the last entry"),
    (sparse_index, FileSeverity.INFO, "index.interval.bytes"),
    (low_time_index, FileSeverity.WARNING, "take the lower one"),
    (unknown_bits, FileSeverity.WARNING, "has the attributes 0x100, and Kafka uses no other bits than 0x7f"),
    (high_checkpoint, FileSeverity.WARNING, "outside [0, 8]"),
    (high_watermark, FileSeverity.WARNING, "above the log end"),
]


@pytest.mark.parametrize(("remark", "severity", "problem"), REMARKS)
def test_remarks_are_no_damage(
    remark: Callable[[Path], str], severity: FileSeverity, problem: str, tmp_path: Path
) -> None:
    directory = partition(tmp_path, SCENE)
    name = remark(directory)
    (finding,) = found(directory)
    assert (finding.file, finding.severity) == (name, severity)
    assert problem in finding.problem


def test_padded_indexes_of_the_active_segment_are_normal(tmp_path: Path) -> None:
    directory = partition(tmp_path, SCENE)
    for name in ("00000000000000000006.index", "00000000000000000006.timeindex"):
        rewrite(directory / name, (directory / name).read_bytes() + bytes(1200))
    assert found(directory) == ()


def test_verification_goes_on_after_a_wrong_checksum(tmp_path: Path) -> None:
    directory = partition(tmp_path, SCENE)
    flip(directory / LOG, HEADER_BYTES + 3)
    flip(directory / LOG, -1)
    assert [each.offset for each in found(directory) if each.file == LOG] == [0, 2]


def test_verification_goes_on_after_unknown_bits(tmp_path: Path) -> None:
    directory = partition(tmp_path, SCENE)
    unknown_bits(directory)
    flip(directory / LOG, -1)
    assert [(each.severity, each.offset) for each in found(directory) if each.file == LOG] == [
        (FileSeverity.DAMAGE, 2),
        (FileSeverity.WARNING, 0),
    ]


def test_worst_comes_first(tmp_path: Path) -> None:
    directory = partition(tmp_path, SCENE)
    aside(directory, "notes.txt")
    aside(directory, f"{LOG}.deleted")
    flip_record(directory)
    assert [each.severity for each in found(directory)] == [
        FileSeverity.DAMAGE,
        FileSeverity.WARNING,
        FileSeverity.INFO,
    ]


@pytest.mark.long
@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_any_flipped_byte_is_found_except_in_a_leader_epoch(tmp_path: Path, stride: int) -> None:
    directory = partition(tmp_path, SCENE)
    log = directory / LOG
    whole = log.read_bytes()
    size = second_batch(directory)
    unseen = set()
    for position in range(0, len(whole), stride):
        flip(log, position)
        if not verify_log(read_log(directory)).is_damaged:
            unseen.add(position)
        rewrite(log, whole)
    # The checksum does not cover the leader epoch; only an epoch that falls is found, and -1 is no epoch.
    assert unseen <= {batch * size + byte for batch in range(3) for byte in range(12, 16)}


# A damaged file may have millions of wrong entries.

MANY = "log now=10:00 index.interval.bytes=0\n0: " + " ".join(f"k{number:02}=1" for number in range(30)) + "\n30: z=1\n"


def wrong_entries(directory: Path) -> str:
    entries = struct.unpack(f">{2 * 29}i", (directory / INDEX).read_bytes())
    rewrite(
        directory / INDEX, struct.pack(f">{2 * 29}i", *(entry + number % 2 for number, entry in enumerate(entries)))
    )
    return INDEX


def wrong_checksums(directory: Path) -> str:
    data = bytearray((directory / LOG).read_bytes())
    for position in range(0, len(data), len(data) // 30):
        data[position + 17] ^= 1
    rewrite(directory / LOG, bytes(data))
    return LOG


def entries_without_markers(directory: Path) -> str:
    entries = [struct.pack(">hqqqq", 0, 1, number, number, number + 1) for number in range(30)]
    (directory / "00000000000000000000.txnindex").write_bytes(b"".join(entries))
    return "00000000000000000000.txnindex"


@pytest.mark.parametrize(
    ("damage", "rest"),
    [
        (wrong_entries, "and 9 more entries like these"),
        (wrong_checksums, "and 10 more findings about batches"),
        (entries_without_markers, "further contradictions of this log are not listed"),
    ],
)
def test_few_of_many_findings_are_listed(damage: Callable[[Path], str], rest: str, tmp_path: Path) -> None:
    directory = partition(tmp_path, MANY)
    name = damage(directory)
    found_here = [each for each in found(directory) if each.file == name and each.severity is FileSeverity.DAMAGE]
    assert len(found_here) == 21
    assert rest in found_here[-1].problem
    assert not any(rest in each.problem for each in found_here[:-1])


def test_few_of_many_names_are_listed(tmp_path: Path) -> None:
    directory = partition(tmp_path, SCENE)
    for number in range(30):
        aside(directory, f"note-{number}")
        aside(directory, f"{100 + number:020d}.index")
    problems = [each.problem for each in found(directory)]
    assert len(problems) == 42
    assert problems.count("and 10 more files like these") == 2
    notes = read_log(directory).notes
    assert (len(notes), str(notes[-1])) == (21, "and 10 more indexes have no .log beside them")
