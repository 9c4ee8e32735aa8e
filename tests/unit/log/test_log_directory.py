"""`log.directory` and `log.files`: the state of a partition directory, notes, damage and refusals."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.errors import CorruptCheckpointError, CorruptIndexError, RefusedError, StorageError
from kcompact.format.names import TopicPartition
from kcompact.log.directory import partition_directories, read_log, read_log_dir
from kcompact.log.files import read_file
from kcompact.log.segment_reader import batches
from tests.support import log_dsl, log_writer
from tests.support.log_writer import DEFAULT_TIME

TEXT = "log index.interval.bytes=100\n0: a=1 b=1^09:10 c=1 d=1^09:05\n4: a=2\n5: a=3 b=3 c=3 d=3"
LOGS = [f"{base:020d}.log" for base in (0, 4, 5)]
FIRST, ACTIVE = LOGS[0], LOGS[2]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse(TEXT), tmp_path / "logs")


def edit(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_an_undamaged_directory(directory: Path) -> None:
    found = read_log(directory)
    assert found.topic_partition == TopicPartition("orders", 0)
    assert [segment.base_offset for segment in found.segments] == [0, 4, 5]
    assert [segment.size_bytes for segment in found.segments] == [280, 70, 280]
    assert [segment.log_name for segment in found.segments] == LOGS
    assert found.active_segment.base_offset == 5
    assert found.size_bytes == 630
    assert (found.log_start_offset, found.log_end_offset, found.checkpoint_offset) == (0, 9, None)
    assert (found.leftovers, found.deleted, found.staging, found.foreign, found.notes, found.damage) == ((),) * 6
    first = found.segments[0]
    assert (first.index_bytes, first.time_index_bytes) == (8, 12)
    assert first.largest_timestamp_ms == DEFAULT_TIME + 600_000
    assert first.first_batch_max_timestamp_ms == DEFAULT_TIME
    assert [file.name for file in first.files] == [f"{0:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")]
    assert [found.end_of(segment) for segment in found.segments] == [4, 5, 9]


@pytest.mark.parametrize(
    ("start", "end", "bases"),
    [(0, 9, [0, 4, 5]), (3, 5, [0, 4]), (4, 5, [4]), (4, 4, []), (6, 5, []), (0, 1, [0]), (8, 9, [5])],
)
def test_segments_between(directory: Path, start: int, end: int, bases: list[int]) -> None:
    assert [segment.base_offset for segment in read_log(directory).segments_between(start, end)] == bases


def test_the_checkpoints_of_the_log_directory(tmp_path: Path) -> None:
    spec = replace(log_dsl.parse(TEXT), checkpoint=4, start=2, high_watermark=8)
    found = read_log(log_writer.write(spec, tmp_path))
    assert (found.checkpoint_offset, found.log_start_offset) == (4, 2)
    assert found.log_dir.high_watermarks == {TopicPartition("orders", 0): 8}
    assert found.log_dir.is_log_dir
    assert found.log_dir.is_clean_shutdown


@pytest.mark.parametrize(
    ("names", "is_log_dir"),
    [
        ([], False),
        (["cleaner-offset-checkpoint"], False),
        (["meta.properties"], True),
        (["replication-offset-checkpoint"], True),
        (["recovery-point-offset-checkpoint"], True),
        ([".kafka_cleanshutdown"], False),
    ],
)
def test_what_makes_a_log_directory(tmp_path: Path, names: list[str], is_log_dir: bool) -> None:
    for name in names:
        (tmp_path / name).write_text("0\n0\n")
    assert read_log_dir(tmp_path).is_log_dir == is_log_dir


def test_a_malformed_checkpoint_is_an_error(directory: Path) -> None:
    (directory.parent / "cleaner-offset-checkpoint").write_text("0\n1\norders 0\n")
    with pytest.raises(CorruptCheckpointError):
        read_log(directory)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("00000000000000000000.log.cleaned", "leftovers"),
        ("00000000000000000000.log.swap", "leftovers"),
        ("00000000000000000004.timeindex.swap", "leftovers"),
        ("00000000000000000000.log.deleted", "deleted"),
        ("00000000000000000004.snapshot.deleted", "deleted"),
        (".kcompact-0123456789abcdef", "staging"),
        (".kcompact-0123", "foreign"),
        ("0.log", "foreign"),
        ("00000000000000000000.log.bak", "foreign"),
        ("notes.txt", "foreign"),
        ("leader-epoch-checkpoint", ""),
        ("leader-epoch-checkpoint.tmp", ""),
        ("partition.metadata", ""),
        ("partition.metadata.tmp", ""),
        ("quorum-state", "foreign"),
        ("00000000000000000004-0000000002.checkpoint", "foreign"),
    ],
)
def test_the_kinds_of_file_names(directory: Path, name: str, kind: str) -> None:
    (directory / name).write_bytes(b"")
    found = read_log(directory)
    for field in ("leftovers", "deleted", "staging", "foreign"):
        assert getattr(found, field) == ((name,) if field == kind else ())
    assert [segment.base_offset for segment in found.segments] == [0, 4, 5]


@pytest.mark.parametrize(
    ("name", "is_foreign"),
    [
        ("quorum-state", False),
        ("quorum-state.tmp", False),
        ("00000000000000000004-0000000002.checkpoint", False),
        ("00000000000000000004-0000000002.checkpoint.deleted", False),
        ("00000000000000000004-0000000002-1234567890123456789.checkpoint.part", False),
        ("quorum-state.bak", True),
        ("00000000000000000004-2.checkpoint", True),
        ("00000000000000000004-0000000002.checkpoint.tmp", True),
        ("bootstrap.checkpoint", True),
    ],
)
def test_the_files_of_kraft_beside_the_metadata_log(tmp_path: Path, name: str, is_foreign: bool) -> None:
    directory = log_writer.write(log_dsl.parse("log name=__cluster_metadata-0\n0: a=1"), tmp_path)
    (directory / name).write_bytes(b"")
    assert read_log(directory).foreign == ((name,) if is_foreign else ())


def test_snapshots(tmp_path: Path) -> None:
    spec = log_dsl.parse(f"{TEXT}\nsnapshot 4: pid=7 last=2 seq=3\nsnapshot 9:")
    found = read_log(log_writer.write(spec, tmp_path))
    assert sorted(found.snapshots) == [4, 9]


def test_an_index_without_a_log_is_noted(directory: Path) -> None:
    (directory / f"{2:020d}.index").write_bytes(b"")
    found = read_log(directory)
    assert list(map(str, found.notes)) == [f"{2:020d}.index has no .log beside it; a broker would delete it"]
    assert [orphan.name for orphan in found.orphans] == [f"{2:020d}.index"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_missing_index_is_built_in_memory(directory: Path, suffix: str) -> None:
    complete = read_log(directory)
    # With the default index interval this segment has no offset index entry.
    (directory / FIRST).with_suffix(suffix).unlink()
    found = read_log(directory)
    assert found.segments[0].largest_timestamp_ms == complete.segments[0].largest_timestamp_ms
    assert found.segments[0].index_bytes == 0
    noted = f"{FIRST} has no {suffix} beside it; the plan uses one built from its batches"
    assert list(map(str, found.notes)) == [noted]
    assert found.damage == ()


def test_an_offset_that_no_index_can_have_is_damage(directory: Path) -> None:
    edit(directory / ACTIVE, 0, (1 << 40).to_bytes(8, "big"))
    (directory / ACTIVE).with_suffix(".index").unlink()
    damage = read_log(directory).damage[0]
    assert (damage.position, damage.offset) == (0, 1 << 40)
    assert "is too far from the segment's base offset 5" in str(damage)


def test_ignored_indexes_are_rebuilt(directory: Path) -> None:
    (directory / FIRST).with_suffix(".timeindex").write_bytes(b"nonsense")
    assert isinstance(read_log(directory).damage[0], CorruptIndexError)
    found = read_log(directory, rebuild_indexes=True)
    assert found.damage == ()
    assert found.segments[0].largest_timestamp_ms == DEFAULT_TIME + 600_000


@pytest.mark.parametrize(("size", "suffix"), [(10_485_760, ".index"), (10_485_756, ".timeindex")])
def test_a_preallocated_active_index_may_end_in_zeros(directory: Path, size: int, suffix: str) -> None:
    os.truncate((directory / ACTIVE).with_suffix(suffix), size)
    (directory.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    found = read_log(directory)
    assert (found.log_end_offset, found.damage) == (9, ())
    assert found.active_segment.largest_timestamp_ms == DEFAULT_TIME
    # After a clean stop no zeros are left, and a broker takes the last slot of a time index.
    (directory.parent / ".kafka_cleanshutdown").touch()
    stopped, is_time_index = read_log(directory).active_segment, suffix == ".timeindex"
    assert stopped.largest_timestamp_ms == (0 if is_time_index else DEFAULT_TIME)
    assert stopped.ends_in_zeros == is_time_index


def test_an_empty_active_segment(tmp_path: Path) -> None:
    found = read_log(log_writer.write(log_dsl.parse("log\n0: a=1\n7: ; mtime=10:00"), tmp_path))
    assert found.log_end_offset == 7
    assert found.active_segment.first_batch_max_timestamp_ms is None
    assert found.active_segment.largest_timestamp_ms == DEFAULT_TIME + 3_600_000


@pytest.mark.parametrize(
    ("name", "damage", "problem"),
    [
        (ACTIVE, lambda path: os.truncate(path, 279), "a batch of 70 bytes, but only 69 are left"),
        (ACTIVE, lambda path: os.truncate(path, 215), "the file ends inside a batch header"),
        (ACTIVE, lambda path: edit(path, 210, bytes(70)), "zeros where a batch should start"),
        (FIRST, lambda path: edit(path, 16, b"\x09"), "magic 9"),
        (FIRST, lambda path: os.truncate(path, 5), "ends inside a batch header"),
        (f"{5:020d}.index", lambda path: edit(path, 0, b"\x80"), "does not rise"),
        (f"{0:020d}.timeindex", lambda path: edit(path, 0, b"\x80"), "does not rise"),
        (f"{0:020d}.timeindex", lambda path: os.truncate(path, 5), "not a multiple"),
    ],
)
def test_damage_is_collected(directory: Path, name: str, damage: Callable[[Path], None], problem: str) -> None:
    damage(directory / name)
    found = read_log(directory)
    assert problem in str(found.damage[0])
    assert name in str(found.damage[0])
    assert len(found.segments) == 3


def test_an_index_entry_beyond_the_log_is_ignored(directory: Path) -> None:
    edit(directory / f"{5:020d}.index", 4, b"\x7f\xff\xff\xff")
    assert read_log(directory).log_end_offset == 9


def symlink(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def subdirectory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("make_special", [symlink, fifo, subdirectory])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_special_files_are_refused(directory: Path, make_special: Callable[[Path], None], suffix: str) -> None:
    make_special((directory / FIRST).with_suffix(suffix))
    with pytest.raises(RefusedError, match="not a regular file"):
        read_log(directory)


@pytest.mark.parametrize("make_special", [symlink, fifo, subdirectory])
@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata", "partition.metadata.tmp"])
def test_special_small_files_are_refused(directory: Path, make_special: Callable[[Path], None], name: str) -> None:
    (directory / name).touch()
    read_log(directory)
    make_special(directory / name)
    with pytest.raises(RefusedError, match=f"{name}: not a regular file"):
        read_log(directory)


@pytest.mark.parametrize("make_special", [symlink, fifo, subdirectory])
def test_special_files_are_not_opened(directory: Path, make_special: Callable[[Path], None]) -> None:
    make_special(directory / FIRST)
    with pytest.raises(RefusedError):
        read_file(directory / FIRST)
    with pytest.raises(RefusedError):
        list(batches(directory / FIRST))


def test_missing_and_too_large_files(directory: Path) -> None:
    with pytest.raises(StorageError, match="No such file"):
        read_file(directory / "nothing")
    with pytest.raises(RefusedError, match="larger than 10 bytes"):
        read_file(directory / FIRST, max_bytes=10)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("orders", "its name is not"),
        ("orders-x", "its name is not"),
        ("orders-0.0123456789abcdef0123456789abcdef-delete", "a broker's -delete directory"),
        ("orders-0.0123456789abcdef0123456789abcdef-future", "a broker's -future directory"),
        ("orders-0.0123456789abcdef0123456789abcdef-stray", "a broker's -stray directory"),
    ],
)
def test_directories_that_are_not_partitions(directory: Path, name: str, problem: str) -> None:
    with pytest.raises(RefusedError, match=problem):
        read_log(directory.rename(directory.with_name(name)))


def test_a_directory_without_a_log_file(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.index").write_bytes(b"")
    with pytest.raises(RefusedError, match=r"no \.log file"):
        read_log(tmp_path / "orders-0")


def test_partition_directories_are_in_order(tmp_path: Path) -> None:
    names = ["b-1", "a-10", "a-9", "a-b-0", "a-9.0123456789abcdef0123456789abcdef-delete"]
    for name in [*names, "not a partition", "remote-log-index-cache"]:
        (tmp_path / name).mkdir()
    (tmp_path / "c-1").write_bytes(b"")
    found = [path.name for path in partition_directories(tmp_path)]
    assert found == ["a-9", "a-9.0123456789abcdef0123456789abcdef-delete", "a-10", "a-b-0", "b-1"]


@pytest.mark.parametrize(
    ("name", "problem", "hint"),
    [
        ("recovery-point-offset-checkpoint", "orders-0 was flushed up to offset 4", "Start the broker once"),
        ("replication-offset-checkpoint", "orders-0 has the high watermark offset 4", "Start the broker once"),
        ("log-start-offset-checkpoint", "orders-0 starts at offset 4", "Do not start a broker"),
    ],
)
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_checkpoint_beyond_the_log_end(name: str, problem: str, hint: str, is_clean: bool, tmp_path: Path) -> None:
    spec = replace(log_dsl.parse("log now=10:00\n0: a=1 b=2\n2: c=3"), unclean=not is_clean)
    directory = log_writer.write(spec, tmp_path)
    for offset, is_beyond in ((3, False), (4, True)):
        (tmp_path / name).write_text(f"0\n1\norders 0 {offset}\n")
        damage = read_log(directory).damage
        assert all(each.hint.startswith(hint) for each in damage)
        found = [each.problem for each in damage]
        expected = [f"{problem}, but the log now ends at offset 3"] if is_beyond and is_clean else []
        assert found == expected


def test_half_a_copy_is_damage(directory: Path) -> None:
    log = directory / LOGS[1]
    log.unlink()
    (problem,) = read_log(directory).damage
    assert problem.file == str(log)
    assert "this is half a copy" in str(problem)
    log.with_suffix(".log.deleted").touch()  # A broker was deleting it.
    assert read_log(directory).damage == ()
