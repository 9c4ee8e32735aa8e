"""`clean.verify_input` and `clean.scan`: damage stops a cleaning before anything is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.engine.in_process import InProcess
from kcompact.errors import CorruptDataError, CorruptIndexError, LogChangedError, UnsupportedError
from tests.support import log_dsl
from tests.support.log_dsl import parse
from tests.support.stages import THREE, plan_of, prepared


def test_a_sound_log_is_prepared(tmp_path: Path) -> None:
    assert prepared(THREE, tmp_path / "logs").map_keys == 5


@pytest.mark.parametrize(
    ("file", "position", "data", "problem"),
    [
        ("00000000000000000000.index", 0, bytes([0, 0, 0, 1]), "where no batch starts"),
        ("00000000000000000000.index", 4, bytes([0, 0, 0, 1]), "where no batch starts"),
        ("00000000000000000000.timeindex", 19, bytes([255]), "the greatest in the log is"),
        ("00000000000000000000.log", 68, b"!", "checksum"),
        ("00000000000000000000.log", 7, b"\x03", "base offset 1 after offset 3"),
        ("00000000000000000000.log", 15, b"\x05", "leader epoch 0 after epoch 5"),
        ("00000000000000000005.log", 7, b"\x04", "base offset 4 after offset 4"),
        ("00000000000000000005.log", 7, b"\x06", "the next segment starts at 6"),
    ],
)
def test_damage_stops_the_scan(tmp_path: Path, file: str, position: int, data: bytes, problem: str) -> None:
    with pytest.raises(CorruptDataError, match=problem) as stopped:
        prepared(THREE, tmp_path / "logs", {file: (position, data)})
    assert file in stopped.value.file
    assert isinstance(stopped.value, CorruptIndexError) == file.endswith("index")


@pytest.mark.parametrize(("kind", "is_known"), [(2, True), (6, True), (7, False), (-1, False), (32_767, False)])
def test_a_control_record_of_an_unknown_type_is_refused(
    tmp_path: Path, compiled: bool, kind: int, is_known: bool
) -> None:
    """Kafka's own cleaner keeps it, but it may decide which records count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_dsl, "_MARKERS", {"commit": kind})
        spec = parse("log\n0: a=1(pid=7 txn) commit(pid=7) a=2\n3: b=1")
    if is_known:
        assert prepare_clean(plan_of(spec, tmp_path), InProcess(), tuning=Tuning()).map_keys == 1
    else:
        with pytest.raises(UnsupportedError, match=f"offset 1: a control record of type {kind}, which Kafka"):
            prepare_clean(plan_of(spec, tmp_path), InProcess(), tuning=Tuning())


def test_no_other_log_is_read_than_the_planned_one(tmp_path: Path, compiled: bool) -> None:
    """The owner of a log directory can exchange a partition for a link while root reads it."""
    plan = plan_of(parse(THREE), tmp_path / "own")
    others = plan_of(parse(THREE), tmp_path / "others").log.directory
    directory = plan.log.directory
    for path in directory.iterdir():  # Only the inodes tell the files apart.
        shutil.copystat(path, others / path.name)
    directory.rename(tmp_path / "away")
    directory.symlink_to(others)
    with pytest.raises(LogChangedError, match="replaced since the plan"):
        prepare_clean(plan, InProcess(), tuning=Tuning())
