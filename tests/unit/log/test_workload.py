"""`log.workload`: how much work a log is does not depend on how well it is compressed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.clean.prepare import is_for_kernels
from kcompact.format.batch import Record, build
from kcompact.format.codec import Codec
from kcompact.log.workload import expected_work
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.stages import plan_of

RECORDS = 20_000


@pytest.mark.parametrize(("codec", "count"), [(Codec.NONE, 30), (Codec.ZSTD, 1), (Codec.GZIP, 2)])
def test_records_are_counted_whatever_the_codec(codec: Codec, count: int, tmp_path: Path) -> None:
    step = RECORDS // count
    batches = tuple(
        build([Record(first + at, DEFAULT_TIME, b"k%d" % (at % 7), b"v") for at in range(step)], codec=codec)
        for first in range(0, step * count, step)
    )
    active = SegmentSpec(base_offset=step * count, batches=(build([Record(step * count, DEFAULT_TIME, b"k", b"v")]),))
    plan = plan_of(LogSpec(segments=(SegmentSpec(base_offset=0, batches=batches), active)), tmp_path / "logs")
    log = plan.log.directory / f"{0:020d}.log"
    expected = expected_work([(log, log.stat().st_size)])
    assert (expected.size_bytes, expected.batches) == (log.stat().st_size, count)
    assert abs(expected.records - step * count) <= 1
    assert expected.size_bytes < 2 << 20 < expected.work_bytes
    assert is_for_kernels(plan)


def test_unreadable_and_damaged_files_are_no_work(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_bytes(bytes(100))
    expected = expected_work([(tmp_path / "damaged", 100), (tmp_path / "missing", 100)])
    assert (expected.batches, expected.records, expected.work_bytes) == (0, 0, 200)
