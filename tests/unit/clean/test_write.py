"""`clean.write`: the parts of a group, wherever they are cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.clean.job import CleanerStats
from kcompact.clean.write import write_part
from kcompact.errors import CorruptBatchError
from tests.support import log_dsl, log_writer
from tests.support.log_writer import SegmentSpec
from tests.support.parts import DATA, PACE, job_of, joined, parts_of, tasks_at
from tests.support.staging import staging_at


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3), (1, 2, 3, 4), (0, 5)])
def test_parts_make_one_segment_wherever_they_are_cut(
    source: Path, staging: Path, cuts: tuple[int, ...], compiled: bool
) -> None:
    parts = parts_of(source, staging, *cuts)
    files = joined(staging, parts)
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
    (task,) = tasks_at(source)
    nothing = write_part(staging_at(staging), job_of(source), task._replace(survivors=(b"\0",)), PACE)
    assert (nothing.size_bytes, len(nothing.output_table)) == (0, 0)
    assert joined(staging, [nothing]) == {f"{0:020d}{suffix}": b"" for suffix in (".log", ".index", ".timeindex")}


def test_a_dry_run_counts_the_same_and_writes_nothing(source: Path, staging: Path) -> None:
    counted = parts_of(source, None, 2)
    assert list(staging.iterdir()) == []
    assert [part.name for part in counted] == ["", ""]
    assert [(part.stats, part.outputs) for part in counted] == [
        (part.stats, part.outputs) for part in parts_of(source, staging, 2)
    ]


def test_two_attempts_share_no_file(source: Path, staging: Path) -> None:
    assert len({part.name for _ in range(3) for part in parts_of(source, staging)}) == 3


def test_damage_in_the_source_stops_the_part(source: Path, staging: Path) -> None:
    path = source / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(CorruptBatchError, match="checksum"):
        parts_of(source, staging)
