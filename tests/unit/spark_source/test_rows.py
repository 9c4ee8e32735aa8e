"""The rows of the data source of Spark, without Spark: every view of every fixture, however the work is divided."""

from __future__ import annotations

import base64
import shutil
import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kcompact.errors import BatchTooLargeError, CorruptBatchError, KcompactError, LogChangedError, RefusedError
from kcompact.export.arrow import MOST_TIME_MS
from kcompact.format.batch import Batch, Record, build, read_records
from kcompact.format.codec import Codec
from kcompact.format.names import parse_directory
from kcompact.log.files import files_in
from kcompact.log.segment_reader import batches
from kcompact.spark_source import planning
from kcompact.spark_source.reading import rows_of
from tests.support import log_dsl, log_writer
from tests.support.command_line import ROOT, kcompact
from tests.support.parameters import one_in
from tests.support.source_rows import Row, rows, rows_in, tasks_of

LOG_DIRS = sorted((ROOT / "fixtures" / "logs").glob("*/before*"))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RECORDS = """
log
0: a=1 [b=2 c=~](lz4) "a b"=""@7^09:30{h=x i=~ h=2}
8: [~=v d=4{h=""}](pid=7 epoch=1 seq=5 txn) commit(pid=7 epoch=1) [e=5 f=6]@20..29(append max=10:00)
30: [g=~](horizon=2d10:00) h=*3000 [""=x](gzip)
"""
OPEN = """
log
0: a=1 [b=2 c=3](pid=1 epoch=0 seq=0 txn) [d=4](pid=2 epoch=0 seq=0 txn) abort(pid=1 epoch=0) e=5
10: [f=6](pid=3 epoch=0 seq=0 txn) g=7 commit(pid=2 epoch=0) h=8
"""
"""Producer 1 aborts, producer 2 commits in the next segment, producer 3 has not ended its transaction."""


def log_of(text: str, tmp_path: Path) -> Path:
    """Return the partition directory that a text describes, as a lone copy: its producers are known by its batches."""
    spec = log_dsl.parse(text)
    log_writer.write(spec, tmp_path / "broker")
    return Path(shutil.copytree(tmp_path / "broker" / spec.name, tmp_path / "copy" / "log-0"))


def time_of(timestamp_ms: int) -> datetime | None:
    return None if timestamp_ms == -1 else EPOCH + timedelta(milliseconds=timestamp_ms)


def unless(value: int, none: int = -1) -> int | None:
    return None if value == none else value


def expected(log: Path, batch: Batch, record: Record) -> Row:
    """The row of a record, by the definitions."""
    header, parsed = batch.header, parse_directory(log.parent.name)
    assert parsed is not None
    sequence = (header.base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
    return {
        "key": record.key,
        "value": record.value,
        "topic": parsed.topic_partition.topic,
        "partition": parsed.topic_partition.partition,
        "offset": record.offset,
        "timestamp": time_of(record.timestamp),
        "timestampType": -1 if header.magic == 0 else int(header.is_log_append_time),
        "headers": [{"key": name.decode(), "value": value} for name, value in record.headers],
        "leaderEpoch": unless(header.partition_leader_epoch),
        "producerId": unless(header.producer_id),
        "producerEpoch": unless(header.producer_epoch),
        "sequence": None if header.base_sequence < 0 else sequence,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "isTombstone": record.key is not None and record.value is None and not header.is_control,
        "segment": int(log.stem),
        "timestampMs": unless(record.timestamp),
    }


def all_expected(*directories: Path) -> list[Row]:
    return [
        expected(log, batch, record)
        for directory in directories
        for log in sorted(directory.glob("*.log"))
        for batch in batches(log)
        for record in read_records(batch, file=str(log))
    ]


def partitions_of(log_dir: Path) -> list[Path]:
    return sorted(path for path in log_dir.iterdir() if path.is_dir())


# What the views have


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=lambda path: "-".join(path.parts[-2:]))
def test_every_fixture_has_the_rows_of_the_definition(log_dir: Path) -> None:
    assert rows_in(log_dir) == all_expected(*partitions_of(log_dir))


@pytest.mark.parametrize("log_dir", one_in(2, LOG_DIRS), ids=lambda path: "-".join(path.parts[-2:]))
@pytest.mark.parametrize("options", [(), ("--latest",)], ids=["records", "latest"])
def test_every_fixture_has_the_rows_of_the_command(log_dir: Path, options: tuple[str, ...]) -> None:
    if "__cluster_metadata-0" in [path.name for path in log_dir.iterdir()]:
        log_dir = log_dir / "inventory-0"
    ran = kcompact("records", "--json", "--print-data", *options, log_dir)
    assert ran.code == 0, ran.err
    found = rows_in(log_dir, view="latest" if options else "records")
    listed = [listed_row(line) for line in ran.lines]
    assert [{name: row[name] for name in line} for row, line in zip(found, listed, strict=True)] == listed


def listed_row(line: dict[str, Any]) -> Row:
    """What a line of the command says, under the names of the columns."""
    time = line.get("CreateTime", line.get("LogAppendTime", -1))
    row: Row = {"offset": line["offset"], "timestamp": time_of(time)}
    if "endTxnMarker" not in line:
        for name, field in (("key", "key"), ("value", "payload")):
            row[name] = base64.b64decode(line[f"{field}Base64"]) if f"{field}Base64" in line else line[field]
            row[name] = row[name].encode() if isinstance(row[name], str) else row[name]
    if "sequence" in line:
        row["sequence"] = unless(line["sequence"])
    return row


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=lambda path: "-".join(path.parts[-2:]))
def test_every_fixture_has_the_batches_of_the_definition(log_dir: Path) -> None:
    found = [(row["segment"], row["position"], row["size"], row["crc"]) for row in rows_in(log_dir, view="batches")]
    assert found == [
        (int(log.stem), batch.position, batch.header.size_bytes, batch.header.crc)
        for directory in partitions_of(log_dir)
        for log in sorted(directory.glob("*.log"))
        for batch in batches(log)
    ]


def test_a_batch_has_all_its_fields(tmp_path: Path) -> None:
    log = log_of("log\n0: [a=1 b=2](pid=7 epoch=1 seq=5 txn lz4) [g=~](horizon=2d10:00)", tmp_path)
    first, second = rows_in(log, view="batches")
    (header, _), (other, _) = ((batch.header, batch) for batch in batches(next(log.glob("*.log"))))
    assert first == {
        "topic": "log",
        "partition": 0,
        "segment": 0,
        "baseOffset": 0,
        "lastOffset": 1,
        "count": 2,
        "baseSequence": 5,
        "lastSequence": 6,
        "producerId": 7,
        "producerEpoch": 1,
        "partitionLeaderEpoch": unless(header.partition_leader_epoch),
        "isTransactional": True,
        "isControl": False,
        "deleteHorizonMs": None,
        "position": 0,
        "timestamp": time_of(header.max_timestamp),
        "timestampType": 0,
        "size": header.size_bytes,
        "magic": 2,
        "compresscodec": "lz4",
        "crc": header.crc,
        "timestampMs": header.max_timestamp,
    }
    assert second["deleteHorizonMs"] == other.delete_horizon_ms is not None
    assert (second["compresscodec"], second["producerId"], second["lastSequence"]) == ("none", None, None)


def test_the_last_sequence_counts_from_the_base_of_the_batch(tmp_path: Path) -> None:
    log = log_of("log\n8: [d=4 e=5 f=6](pid=7 epoch=1 seq=5)", tmp_path)
    assert [(row["baseOffset"], row["lastSequence"]) for row in rows_in(log, view="batches")] == [(8, 7)]


def test_times_that_spark_does_not_have_are_null(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    times = [0, -1, MOST_TIME_MS, MOST_TIME_MS + 1, -MOST_TIME_MS, -MOST_TIME_MS - 1, 1 << 62, -(1 << 62), -2]
    records = [Record(offset, time_ms, b"k", b"v") for offset, time_ms in enumerate(times)]
    (directory / f"{0:020}.log").write_bytes(build(records))
    (task,) = tasks_of(directory, columns="timestamp,timestampMs")
    (batch,) = rows_of(task)
    assert batch.column(0).is_null().to_pylist() == [False, True, False, True, False, True, True, True, False]
    near = [0, MOST_TIME_MS, -MOST_TIME_MS, -2]
    assert batch.column(0).cast("int64").drop_null().to_pylist() == [time_ms * 1000 for time_ms in near]
    assert batch.column(1).to_pylist() == [unless(time_ms) for time_ms in times]
    (task,) = tasks_of(directory, view="batches", columns="timestamp,timestampMs")
    (batch,) = rows_of(task)
    assert batch.to_pylist() == [{"timestamp": None, "timestampMs": 1 << 62}]


def test_the_tasks_of_all_processors_fit_into_the_memory_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "available_cores", lambda: 4)
    monkeypatch.setattr(planning, "default_memory_bytes", lambda: 1 << 30)
    assert {task.memory_bytes for task in tasks_of(many_batches(tmp_path, 20))} == {1 << 28}


@pytest.mark.parametrize("view", ["records", "committed", "batches"])
def test_a_file_is_known_without_its_device_which_has_another_number_on_another_machine(
    view: str, tmp_path: Path
) -> None:
    directory = many_batches(tmp_path, 20)
    found = [part.split.identity for task in tasks_of(directory, view=view) for part in task.parts]
    (identity,) = found
    assert identity is not None
    assert identity == replace(files_in(directory).identity(f"{0:020}.log"), device=-1)


def test_committed_rows_end_where_a_transaction_is_open(tmp_path: Path) -> None:
    log = log_of(OPEN, tmp_path)
    assert [row["key"] for row in rows_in(log, view="committed")] == [b"a", b"d", b"e"]
    assert len(rows_in(log)) == 10


def test_committed_rows_begin_at_the_log_start(tmp_path: Path) -> None:
    log = log_of(RECORDS, tmp_path)
    start = log.parent / "log-start-offset-checkpoint"
    assert [row["offset"] for row in rows_in(log, view="committed")][:2] == [0, 1]
    start.write_text("0\n1\nlog 0 2\n")
    assert rows_in(log, view="committed")[0]["offset"] == 2


@pytest.mark.parametrize("view", ["records", "committed", "latest", "batches"])
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("transactions/before-5", (2, 5, 1000)),
        ("several-partitions/before", (5,)),
        ("mixed/before", (2, 5)),
        ("legacy/before", (2, 5, 1000)),
        *(
            pytest.param(name, (2, 5, 1000), marks=pytest.mark.slow)
            for name in ("several-partitions/before", "mixed/before")
        ),
    ],
)
def test_any_division_has_the_same_rows(
    view: str, name: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = ROOT / "fixtures" / "logs" / name
    whole = rows_in(log_dir, view=view)
    monkeypatch.setattr(planning, "LEAST_TASK_BYTES", 1)
    for tasks in counts:
        divided = tasks_of(log_dir, view=view, minPartitions=str(tasks))
        assert rows(divided) == whole
        assert len(divided) <= tasks


def test_large_segments_are_cut_unless_damage_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = many_batches(tmp_path, 400)
    monkeypatch.setattr(planning, "LEAST_TASK_BYTES", 1)
    options = {"minPartitions": "8", "columns": "offset"}
    cut_, whole = tasks_of(log, **options), tasks_of(log, failOnDamage="false", **options)
    assert len(cut_) == 8
    assert len(whole) == 1
    assert rows(cut_) == rows(whole) == [{"offset": offset} for offset in range(400)]


def many_batches(tmp_path: Path, count: int) -> Path:
    """Write a log of batches of one record."""
    directory = tmp_path / "ones-3"
    directory.mkdir()
    one_each = (build([Record(offset, 1000 + offset, b"k%d" % (offset % 7), b"v" * 50, ())]) for offset in range(count))
    log_writer.write_segment(directory, 0, one_each, index_interval_bytes=1)
    return directory


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_come_in_the_order_that_is_asked_for(codec: Codec, tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    header = (b"n\xffme", None)
    records = [Record(3, 5, None, b"v", ()), Record(4, 6, b"", b"", (header,)), Record(9, 7, b"k" * 5000, None, ())]
    (directory / f"{3:020}.log").write_bytes(build(records, codec=codec))
    assert [list(row) for row in rows_in(directory, columns=" HEADERS, offset ,key")] == 3 * [
        ["headers", "offset", "key"]
    ]
    assert [row["key"] for row in rows_in(directory)] == [None, b"", b"k" * 5000]
    assert rows_in(directory)[1]["headers"] == [{"key": "n\ufffdme", "value": None}]


# Bounds


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingOffset": "5"}, range(5, 20)),
        ({"endingOffset": "5"}, range(5)),
        ({"startingOffset": "7", "endingOffset": "9"}, [7, 8]),
        ({"startingOffset": "earliest", "endingOffset": "latest"}, range(20)),
        ({"startingTimestamp": "1003", "endingTimestamp": "1006"}, [3, 4, 5]),
        ({"startingOffset": "9", "endingOffset": "9"}, []),
        ({"startingOffset": "9000"}, []),
    ],
)
def test_bounds(options: dict[str, str], offsets: Any, tmp_path: Path) -> None:
    log = many_batches(tmp_path, 20)
    assert [row["offset"] for row in rows_in(log, **options)] == list(offsets)
    assert [row["baseOffset"] for row in rows_in(log, view="batches", **options)] == list(offsets)
    latest = [row["offset"] for row in rows_in(log, view="latest", **options)]
    assert latest == [offset for offset in range(13, 20) if offset in list(offsets)]


# What is wrong


def damage(log: Path, position: int) -> None:
    data = bytearray(log.read_bytes())
    data[position] ^= 1
    log.write_bytes(bytes(data))


@pytest.mark.parametrize("view", ["records", "committed", "batches", "latest"])
def test_damage_is_an_error_that_says_where(view: str, tmp_path: Path) -> None:
    directory = many_batches(tmp_path, 20)
    log = next(directory.glob("*.log"))
    damage(log, 1200 + 70)
    with pytest.raises(CorruptBatchError, match=r"00000000000000000000\.log, position 1200, offset 10: checksum"):
        rows_in(directory, view=view)


@pytest.mark.parametrize("view", ["records", "committed", "batches"])
def test_damage_can_be_left_out_and_is_logged(view: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = many_batches(tmp_path, 20)
    log = next(directory.glob("*.log"))
    size = log.stat().st_size // 20
    damage(log, size * 10 + 70)
    name = "baseOffset" if view == "batches" else "offset"
    found = [row[name] for row in rows_in(directory, view=view, failOnDamage="false")]
    assert len(found) == 19
    listed = kcompact("records", "--json", directory)
    assert found == [line["offset"] for line in listed.lines if "offset" in line]
    assert "bytes up to position" in caplog.text
    assert "are not listed" in caplog.text


def test_the_view_of_damage_has_what_is_left_out(tmp_path: Path) -> None:
    directory = many_batches(tmp_path, 20)
    log = next(directory.glob("*.log"))
    size = log.stat().st_size // 20
    assert rows_in(directory, view="damage") == []
    damage(log, size * 10 + 70)
    (row,) = rows_in(directory, view="damage")
    assert row["problem"].startswith("checksum 0x")
    del row["problem"]
    expected = {"segment": 0, "position": size * 10, "size": size, "offset": 10, "isGivenUp": False}
    assert row == {"topic": "ones", "partition": 3, **expected}
    assert rows_in(directory, view="damage", endingOffset="10") == []
    assert rows_in(directory, view="damage", columns="size,offset") == [{"size": size, "offset": 10}]


def test_damage_is_an_error_in_the_view_latest_in_any_case(tmp_path: Path) -> None:
    directory = many_batches(tmp_path, 20)
    damage(next(directory.glob("*.log")), 700)
    with pytest.raises(CorruptBatchError):
        rows_in(directory, view="latest", failOnDamage="false")


def test_a_file_that_is_replaced_after_the_planning_is_not_read(tmp_path: Path) -> None:
    directory = many_batches(tmp_path, 20)
    tasks = tasks_of(directory)
    log = next(directory.glob("*.log"))
    log.write_bytes(log.read_bytes() * 2)
    with pytest.raises(LogChangedError, match="was changed or replaced"):
        rows(tasks)


def test_a_batch_that_is_too_large_for_the_memory_names_the_option(tmp_path: Path) -> None:
    directory = tmp_path / "large-0"
    directory.mkdir()
    (directory / f"{0:020}.log").write_bytes(build([Record(0, 1, b"k", bytes(9 << 20), ())]))
    with pytest.raises(BatchTooLargeError, match="a batch of 9,437,"):
        rows_in(directory, memoryBytes=str(16 << 20))
    assert len(rows_in(directory, memoryBytes=str(64 << 20))[0]["value"]) == 9 << 20


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("missing-0", "no such directory"),
        ("*-7", "no directory matches this pattern"),
        ("ones-3/00000000000000000000.log", "not a directory"),
        ("empty", "neither a partition directory nor a log directory"),
        ("none-0", "neither a partition directory"),
        ("link-0", "a symbolic link"),
        ("s3://bucket/logs", "s3://bucket/logs: is in a bucket; here only a local path is possible"),
        ("abfs+x://bucket/logs", "is no local path; here only a local path is possible"),
        ("GS://bucket/*", "is no local path; here only a local path is possible"),
    ],
)
def test_a_path_that_is_no_log_is_an_error(path: str, words: str, tmp_path: Path) -> None:
    directory = many_batches(tmp_path, 2)
    (tmp_path / "empty").mkdir()
    (tmp_path / "none-0").mkdir()
    (tmp_path / "link-0").symlink_to(directory)
    with pytest.raises(RefusedError, match=words):
        rows_in(path if "://" in path else tmp_path / path)


def test_a_linked_segment_is_refused(tmp_path: Path) -> None:
    directory = many_batches(tmp_path, 2)
    log = next(directory.glob("*.log"))
    log.rename(tmp_path / "elsewhere.log")
    log.symlink_to(tmp_path / "elsewhere.log")
    with pytest.raises(KcompactError, match=r"not a regular file|symbolic link"):
        rows_in(directory)


def test_patterns_lists_and_topics_choose_partitions(tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1", "users-0"):
        directory = tmp_path / name
        directory.mkdir()
        (directory / f"{0:020}.log").write_bytes(build([Record(0, 1, name.encode(), b"v", ())]))
    (tmp_path / "meta.properties").touch()

    def keys(*paths: Path | str, **options: str) -> list[bytes]:
        return [row["key"] for row in rows_in(*paths, **options)]

    assert (
        keys(tmp_path) == keys(f"{tmp_path}/*") == keys(f"file://{tmp_path}") == [b"orders-0", b"orders-1", b"users-0"]
    )
    assert keys(f"{tmp_path}/orders-*") == keys(tmp_path, topic="ord*") == [b"orders-0", b"orders-1"]
    assert keys(tmp_path / "users-0", f"{tmp_path}/*-0") == [b"users-0", b"orders-0"]
    with pytest.raises(RefusedError, match="no partition of a topic that matches 'user'"):
        keys(tmp_path, topic="user")


def test_an_empty_partition_has_no_rows_and_no_task(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    (directory / f"{0:020}.log").touch()
    assert tasks_of(directory) == tasks_of(directory, view="committed") == []
    assert rows_in(directory, view="latest") == []


def test_a_wrong_index_only_keeps_a_segment_from_being_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = many_batches(tmp_path, 50)
    (directory / f"{0:020}.index").write_bytes(struct.pack(">ii", 20, 777))
    monkeypatch.setattr(planning, "LEAST_TASK_BYTES", 1)
    tasks = tasks_of(directory, minPartitions="9")
    assert len(tasks) == 1
    assert [row["offset"] for row in rows(tasks)] == list(range(50))
