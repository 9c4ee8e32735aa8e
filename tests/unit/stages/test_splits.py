"""`stages.splits`: a log is cut where its index points, or from its batch headers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.clean.prepare import Tuning
from kcompact.clean.splits import number_splits
from kcompact.engine.in_process import InProcess
from kcompact.log.files import LogFile
from kcompact.plan.partition import plan_partition
from kcompact.stages import splits
from kcompact.stages.job import Split
from tests.support import log_dsl, log_writer
from tests.support.jobs import JOB
from tests.support.stages import THREE, staged


def test_an_index_that_lies_is_not_asked_when_told_so(tmp_path: Path) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    for path in directory.glob("*.*index"):
        path.write_bytes(b"")
    whole = staged(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess())
    (directory / "00000000000000000000.index").write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 1]))
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms, rebuild_indexes=True)
    assert staged(plan, InProcess(), rebuild_indexes=True, sizes=Tuning(split_bytes=1)) == whole


@pytest.mark.parametrize(("limit", "is_ahead"), [(None, True), (1 << 30, False)])
def test_the_next_split_is_read_ahead(
    limit: int | None, is_ahead: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    cut = [split for own in number_splits(plan, 1).values() for split in own]
    assert len(cut) > 2
    seen: list[tuple[str, int, int]] = []

    def advised(fd: int, start: int, size: int, advice: int) -> None:
        seen.append((str(Path(f"/proc/self/fd/{fd}").readlink()), start, size))

    monkeypatch.setattr(os, "posix_fadvise", advised)
    monkeypatch.setattr(splits, "_AHEAD_BYTES", 1)
    job = replace(JOB, directory=str(directory), max_bytes_per_second=limit)
    for number, split in enumerate(splits.ahead(job, cut)):
        assert split == cut[number]
        assert len(seen) == (min(number + 1, len(cut) - 1) if is_ahead else 0)
    assert seen == [(str(split.log), split.start_position, split.size_bytes) for split in cut[1:] if is_ahead]


def test_a_split_that_cannot_be_read_ahead_is_none_the_less_yielded(tmp_path: Path) -> None:
    cut = [
        Split(log=LogFile.at(tmp_path / f"{0:020d}.log"), start_position=0, end_position=9, base_offset=0, end_offset=9)
    ] * 2
    assert list(splits.ahead(replace(JOB, directory=str(tmp_path)), cut)) == cut


def test_a_missing_index_is_done_without(tmp_path: Path) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    whole = staged(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess())
    for path in directory.glob("*.*index"):
        path.unlink()
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    assert staged(plan, InProcess(), sizes=Tuning(split_bytes=1)) == whole
