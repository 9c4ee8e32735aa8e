"""`clean.splits`: a log is cut where its index points, or from its batch headers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.clean.prepare import Tuning
from kcompact.engine.in_process import InProcess
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl, log_writer
from tests.support.stages import THREE, staged

pytestmark = pytest.mark.usefixtures("no_sync")


def test_an_index_that_lies_is_not_asked_when_told_so(tmp_path: Path) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    for path in directory.glob("*.*index"):
        path.write_bytes(b"")
    whole = staged(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess())
    (directory / "00000000000000000000.index").write_bytes(bytes([0, 0, 0, 9, 0, 0, 0, 1]))
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms, rebuild_indexes=True)
    assert staged(plan, InProcess(), rebuild_indexes=True, sizes=Tuning(split_bytes=1)) == whole


def test_a_missing_index_is_done_without(tmp_path: Path) -> None:
    spec = log_dsl.parse(THREE)
    directory = log_writer.write(spec, tmp_path / "logs")
    whole = staged(plan_partition(directory, spec.config, now_ms=spec.now_ms), InProcess())
    for path in directory.glob("*.*index"):
        path.unlink()
    plan = plan_partition(directory, spec.config, now_ms=spec.now_ms)
    assert staged(plan, InProcess(), sizes=Tuning(split_bytes=1)) == whole
