"""Parts, joining them, and disks that lie or are full."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import crc32c
import numpy as np
import pytest

from kcompact.clean import join, read_back, staged_files
from kcompact.clean.filter import clean_batch
from kcompact.clean.job import CleanerStats, CleanJob, Split, WriteTask, WrittenPart
from kcompact.clean.join import join_parts
from kcompact.clean.staged_files import create
from kcompact.clean.write import write_part
from kcompact.errors import (
    CorruptBatchError,
    CorruptDataError,
    KcompactError,
    NotEnoughSpaceError,
    RefusedError,
    StorageError,
)
from kcompact.format.batch import DELETE_HORIZON_BIT, parse_batches, read_header
from kcompact.format.index import AbortedTxn, IndexBuilder, build_txn_index
from kcompact.host.throttle import Pace, Throttle
from tests.support import log_dsl, log_writer
from tests.support.log_writer import DEFAULT_TIME, SegmentSpec

LINE = "0: a=1 [b=1 c=1] ~=1 b=2(lz4) d=~^09:30"
ALIVE = ([True], [False, True], [False], [True], [True])
"""Of each batch, which records no newer one supersedes."""
PACE = Pace(Throttle(None))
DATA = log_dsl.parse(f"log\n{LINE}").segments[0].batches
ABORTED = AbortedTxn(producer_id=7, first_offset=1, last_offset=3, last_stable_offset=4)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return log_writer.write(log_dsl.parse(f"log\n{LINE}"), tmp_path / "logs")


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    path = tmp_path / "staging"
    path.mkdir()
    return path


def job_of(source: Path, *, compiled: bool = False) -> CleanJob:
    return CleanJob(
        directory=str(source),
        first_dirty_offset=0,
        upper_bound_offset=100,
        now_ms=DEFAULT_TIME,
        delete_retention_ms=1,
        keep_tombstones=False,
        last_records={},
        hash_key=bytes(16),
        bucket_count=1,
        compiled=compiled,
    )


def tasks_at(*cuts: int, is_only: bool | None = None) -> list[WriteTask]:
    """Return the source in parts: `cuts` are numbers of batches. `is_only`: the part is read back where it is made."""
    ends = [0, *np.cumsum([len(data) for data in DATA]).tolist()]
    offsets = [0, 1, 3, 4, 5, 6]
    bounds = [0, *cuts, len(DATA)]
    tasks = []
    for part, (start, end) in enumerate(itertools.pairwise(bounds)):
        split = Split(
            log_name=f"{0:020d}.log",
            start_position=ends[start],
            end_position=ends[end],
            base_offset=offsets[start],
            end_offset=offsets[end],
        )
        alive = [one for batch in ALIVE[start:end] for one in batch]
        tasks.append(
            WriteTask(
                group=0,
                part=part,
                run=part,
                splits=(split,),
                survivors=(np.packbits(np.array(alive, np.bool_), bitorder="little").tobytes(),),
                unkeyed_or_tombstones=(2,),
                is_only=not cuts if is_only is None else is_only,
            )
        )
    return tasks


def parts_of(
    source: Path, staging: Path | None, *cuts: int, compiled: bool = False, is_only: bool | None = None
) -> list[WrittenPart]:
    where = None if staging is None else str(staging)
    job = job_of(source, compiled=compiled)
    return [write_part(job, task, where, PACE) for task in tasks_at(*cuts, is_only=is_only)]


def joined(staging: Path, parts: list[WrittenPart], **options: object) -> dict[str, bytes]:
    arguments: dict[str, object] = {"index_interval_bytes": 60, "index_max_bytes": 10_000, **options}
    files = join_parts(staging, 0, parts, **arguments).files  # type: ignore[arg-type]
    for file in files:
        assert (staging / file.staged_as).stat().st_size == file.size_bytes
        assert (staging / file.staged_as).stat().st_mode & 0o777 == 0o600
        assert crc32c.crc32c((staging / file.staged_as).read_bytes()) == file.crc32c
    return {file.name: (staging / file.staged_as).read_bytes() for file in files}


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3), (1, 2, 3, 4), (0, 5)])
@pytest.mark.parametrize("compiled", [False, True])
def test_parts_make_one_segment_wherever_they_are_cut(
    source: Path, staging: Path, cuts: tuple[int, ...], compiled: bool
) -> None:
    parts = parts_of(source, staging, *cuts, compiled=compiled)
    files = joined(staging, parts, compiled=compiled)
    found = log_dsl.segment_text(SegmentSpec(base_offset=0, batches=(files[f"{0:020d}.log"],)))
    assert found == "0: a=1@0 [c=1@2]@1..2 b=2@4(lz4) d=~@5^09:30(horizon=09:00:00.001)"
    segment = SegmentSpec(base_offset=0, batches=(files[f"{0:020d}.log"],))
    expected = log_writer.indexes_of(segment, interval_bytes=60)
    assert (files[f"{0:020d}.index"], files[f"{0:020d}.timeindex"]) == expected
    stats = sum((part.stats for part in parts), CleanerStats())
    assert (stats.messages_read, stats.messages_written, stats.invalid_messages) == (6, 4, 1)
    assert stats.bytes_read == sum(len(data) for data in DATA)
    assert stats.bytes_written == len(files[f"{0:020d}.log"]) == sum(part.size_bytes for part in parts)


def test_a_part_of_which_nothing_is_left(source: Path, staging: Path) -> None:
    (task,) = tasks_at()
    nothing = write_part(job_of(source), task._replace(survivors=(b"\0",)), str(staging), PACE)
    assert (nothing.size_bytes, len(nothing.output_table)) == (0, 0)
    assert joined(staging, [nothing]) == {f"{0:020d}{suffix}": b"" for suffix in (".log", ".index", ".timeindex")}


def test_a_dry_run_counts_the_same_and_writes_nothing(source: Path, staging: Path) -> None:
    counted = parts_of(source, None, 2)
    assert list(staging.iterdir()) == []
    assert [part.name for part in counted] == ["", ""]
    assert [(part.stats, part.outputs) for part in counted] == [
        (part.stats, part.outputs) for part in parts_of(source, staging, 2)
    ]


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ("[a=1^-2 b=1]", "the timestamp -2"),
        ("[a=1 b=1](txn)", "a transaction but no producer id"),
        ("[a=1 b=1](pid=7 epoch=-1)", "no producer epoch"),
        ("[a=1 b=1](pid=7 epoch=0 seq=-1)", "no sequence number"),
    ],
)
def test_what_kafka_reads_and_does_not_write(tmp_path: Path, staging: Path, batch: str, problem: str) -> None:
    (data,) = log_dsl.parse(f"log\n0: {batch}").segments[0].batches
    (source,) = parse_batches(data, file="f")
    job = job_of(tmp_path)
    assert clean_batch(source, job, [True, True], file="f").data == data
    with pytest.raises(RefusedError, match=problem):
        clean_batch(source, job, [True, False], file="f")


def test_a_negative_horizon_counts_and_is_not_written_again(tmp_path: Path) -> None:
    (data,) = log_dsl.parse("log\n0: [a=1 b=~ c=1]").segments[0].batches
    (source,) = parse_batches(data, file="f")
    header = source.header._replace(attributes=DELETE_HORIZON_BIT, base_timestamp=-1)
    cleaned = clean_batch(source._replace(header=header), job_of(tmp_path), [True, True, False], file="f")
    assert cleaned.data is not None
    assert (cleaned.messages_read, cleaned.messages_written) == (3, 1)
    assert read_header(cleaned.data, file="f", position=0).delete_horizon_ms is None


def test_two_attempts_share_no_file(source: Path, staging: Path) -> None:
    assert len({part.name for _ in range(3) for part in parts_of(source, staging)}) == 3


def test_an_aborted_transaction_makes_a_file(source: Path, staging: Path) -> None:
    files = joined(staging, parts_of(source, staging), aborted=[ABORTED])
    assert files[f"{0:020d}.txnindex"] == build_txn_index([ABORTED])


def test_much_data_goes_out_in_pieces(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = joined(staging, parts_of(source, staging))
    monkeypatch.setattr(staged_files, "MAX_PIECES", 1)
    monkeypatch.setattr(read_back, "VERIFY_BYTES", 50)
    monkeypatch.setattr(join, "COPY_BYTES", 7)
    other = staging / "other"
    other.mkdir()
    assert joined(other, parts_of(source, other, 1, 3)) == whole


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM])
@pytest.mark.parametrize("turn", [0, 1, 3])
def test_a_file_system_that_cannot_copy(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, turn: int
) -> None:
    whole = joined(staging, parts_of(source, staging))
    really, calls = os.copy_file_range, itertools.count()

    def copy(*arguments: int) -> int:
        if next(calls) >= turn:
            raise OSError(code, os.strerror(code))
        return really(*arguments)

    monkeypatch.setattr(os, "copy_file_range", copy)
    monkeypatch.setattr(join, "COPY_BYTES", 30)
    other = staging / "other"
    other.mkdir()
    assert joined(other, parts_of(source, other, 1, 3)) == whole
    assert next(calls) > turn


def test_a_copy_that_ends_early_goes_on_by_hand(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = joined(staging, parts_of(source, staging))
    monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    other = staging / "other"
    other.mkdir()
    assert joined(other, parts_of(source, other, 2)) == whole


@pytest.mark.parametrize(("code", "error"), [(errno.ENOSPC, NotEnoughSpaceError), (errno.EIO, StorageError)])
def test_a_copy_that_fails(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[KcompactError]
) -> None:
    def fail(*_: int) -> int:
        raise OSError(code, os.strerror(code))

    parts = parts_of(source, staging, 2)
    monkeypatch.setattr(os, "copy_file_range", fail)
    with pytest.raises(error):
        joined(staging, parts)


def test_joined_parts_do_not_stay(source: Path, staging: Path) -> None:
    parts = parts_of(source, staging, 1, 3)
    joined(staging, parts)
    assert {path.name for path in staging.iterdir() if path.name.startswith("group")} == {parts[0].name}


def test_damage_in_the_source_stops_the_part(source: Path, staging: Path) -> None:
    path = source / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptBatchError, match="checksum"):
        parts_of(source, staging)


# --- The disk gives back other bytes ---------------------------------------------------------------------------


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: flip(path, 5), "are out of order"),
        (lambda path: flip(path, path.stat().st_size - 1), "differs from what was written"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes were written"),
        (lambda path: os.truncate(path, 0), "bytes were written"),
        (lambda path: os.truncate(path, path.stat().st_size + 1), "bytes were written"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_part_is_noticed(
    source: Path, staging: Path, damage: Callable[[Path], None], problem: str, number: int
) -> None:
    parts = parts_of(source, staging, 2)
    damage(staging / parts[number].name)
    with pytest.raises(CorruptDataError, match=problem):
        joined(staging, parts)


@pytest.mark.long
@pytest.mark.parametrize("compiled", [False, True])
def test_every_flipped_byte_is_noticed(source: Path, staging: Path, no_sync: None, compiled: bool) -> None:
    (part,) = parts_of(source, staging, is_only=False)
    for position in range(part.size_bytes):
        flip(staging / part.name, position)
        with pytest.raises(CorruptDataError):
            joined(staging, [part], compiled=compiled)
        flip(staging / part.name, position)
    joined(staging, [part], compiled=compiled)


@pytest.mark.parametrize("compiled", [False, True])
def test_the_only_part_is_read_back_where_it_is_written(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    (part,) = parts_of(source, staging, compiled=compiled)
    assert part.is_verified
    assert [one.is_verified for one in parts_of(source, staging, 2)] == [False, False]
    assert [one.is_verified for one in parts_of(source, None)] == [False]

    def sync_and_forget(descriptor: int) -> None:
        flip(Path(f"/proc/self/fd/{descriptor}").readlink(), 60)

    monkeypatch.setattr(os, "fsync", sync_and_forget)
    with pytest.raises(CorruptDataError, match="differs from what was written"):
        parts_of(source, staging, compiled=compiled)


def test_an_index_that_comes_back_otherwise(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(source, staging)
    really = os.write

    def write_other_bytes(descriptor: int, data: bytes) -> int:
        return really(descriptor, bytes(len(data)))

    monkeypatch.setattr(os, "write", write_other_bytes)
    with pytest.raises(CorruptDataError, match="differs from what was written"):
        joined(staging, parts)


def test_parts_in_the_wrong_order(source: Path, staging: Path) -> None:
    with pytest.raises(CorruptDataError, match="are out of order"):
        joined(staging, parts_of(source, staging, 2)[::-1])


def test_a_count_that_does_not_agree(source: Path, staging: Path) -> None:
    (part,) = parts_of(source, staging, is_only=False)
    other = replace(part, stats=replace(part.stats, messages_written=9))
    with pytest.raises(CorruptDataError, match="does not have as many records"):
        joined(staging, [other])


def test_a_full_index(source: Path, staging: Path) -> None:
    with pytest.raises(KcompactError, match="index is full"):
        joined(staging, parts_of(source, staging), index_max_bytes=8)


# --- The disk is full, or fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, NotEnoughSpaceError),
        (errno.EDQUOT, NotEnoughSpaceError),
        (errno.EFBIG, NotEnoughSpaceError),
        (errno.EIO, StorageError),
    ],
)
@pytest.mark.parametrize("call", ["writev", "fsync", "open"])
def test_errors_of_the_disk(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[KcompactError], call: str
) -> None:
    really = os.open

    def fail(*arguments: object, **options: object) -> int:
        if call == "open" and not int(arguments[1]) & os.O_CREAT:  # type: ignore[call-overload]
            return really(*arguments, **options)  # type: ignore[arg-type]
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(error) as stopped:
        parts_of(source, staging)
    assert type(stopped.value) is error
    assert str(staging) in str(stopped.value)


def test_a_short_write_is_gone_on_with(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = joined(staging, parts_of(source, staging))
    really = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: really(descriptor, bytes(data[:3])))
    for number, taken in enumerate((0, 3, 100)):
        monkeypatch.setattr(
            os, "writev", lambda descriptor, pieces, taken=taken: really(descriptor, b"".join(pieces)[:taken])
        )
        other = staging / f"other-{number}"
        other.mkdir()
        assert joined(other, parts_of(source, other, 2)) == whole


FULL = """
import resource, signal, sys
from pathlib import Path
from kcompact.clean import staged_files
from kcompact.errors import NotEnoughSpaceError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
path = Path(sys.argv[1]) / "file"
descriptor = staged_files.create(path)
try:
    staged_files.write_all(descriptor, bytes(250), path=path)
except NotEnoughSpaceError as full:
    assert full.needed_bytes == 150, full.needed_bytes
    sys.exit(full.exit_code)
"""


def test_a_limit_of_the_operating_system(staging: Path) -> None:
    assert resource.RLIMIT_FSIZE
    assert signal.SIGXFSZ
    done = subprocess.run([sys.executable, "-c", FULL, str(staging)], check=False, cwd=Path(__file__).parents[3])
    assert done.returncode == NotEnoughSpaceError.exit_code
    assert (staging / "file").stat().st_size == 100


def test_a_file_that_is_there_is_not_written_over(staging: Path) -> None:
    (staging / "file").write_bytes(b"x")
    with pytest.raises(StorageError, match="File exists"):
        create(staging / "file")
    (staging / "link").symlink_to(staging / "nowhere")
    with pytest.raises(StorageError):
        create(staging / "link")
    assert not (staging / "nowhere").exists()


def open_files() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def descriptors() -> Iterator[None]:
    before = open_files()
    yield
    assert open_files() <= before


@pytest.mark.usefixtures("descriptors")
def test_a_failure_leaves_no_file_open(source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: list[bytes]) -> int:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        with pytest.raises(NotEnoughSpaceError):
            parts_of(source, staging)


def test_statistics_add_up() -> None:
    one = CleanerStats(bytes_read=1, bytes_written=2, messages_read=3, messages_written=4, map_bytes_read=5, map_keys=6)
    assert one + CleanerStats() == one
    assert (one + one).map_keys == 12
    assert sum([one] * 3, CleanerStats()).bytes_read == 3


def test_the_indexes_of_the_worked_example() -> None:
    builder = IndexBuilder(1000)
    for number, (last_offset, timestamp) in enumerate([(1009, 50), (1019, 40), (1029, 60), (1039, 60), (1049, 10)]):
        builder.append(last_offset, 2000 * number, 2000, timestamp)
    assert [data.hex() for data in builder.finish()] == ["0000002700001770", "000000000000003c0000001d"]
