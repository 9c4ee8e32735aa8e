"""What a broker's interrupted cleaning leaves, ended by Kafka's loader and by `recover --foreign`: the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kcompact.errors import RecoveryNeededError
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.swap.recovery import interrupted_round as recovery
from tests.oracle.real_kafka import RealKafka
from tests.support import crash
from tests.support.compare import differences
from tests.torture import scene as torture_scene

pytestmark = pytest.mark.oracle

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576"}


def test_kafkas_loader_and_recover_foreign_end_alike(kafka: RealKafka, tmp_path: Path) -> None:
    scene = crash.build(tmp_path / "data", crash.GROUPS[1], has_aborted=False)
    states = 0
    for number, state in crash.stopped_states(scene, tmp_path, crash.broker_round):
        if number == 0:
            continue
        ours, theirs = tmp_path / f"ours-{number}", tmp_path / f"theirs-{number}"
        for copy in (ours, theirs):
            shutil.copytree(state.log_dir, copy, copy_function=shutil.copy2)
        recovery.recover(ours / str(crash.PARTITION), log_dir=ours, foreign=True)
        views = [
            kafka.load(log_dir, config=CONFIG, now_ms=crash.T0 + 1_000, clean_shutdown=True, in_place=True)
            for log_dir in (ours, theirs)
        ]
        assert views[0] == views[1], number
        assert differences(ours, theirs) == [], number
        states += 1
    assert states > 15


def test_a_broker_that_makes_an_index_anew_keeps_an_open_transaction(kafka: RealKafka, tmp_path: Path) -> None:
    """After a clean shutdown Kafka forgets it: the first segment ends before the next one begins."""
    log_dir = tmp_path / "data"
    torture_scene.write(kafka, log_dir)
    config, now_ms = torture_scene.CONFIG, torture_scene.NOW_MS
    kafka.clean(log_dir, config=config, now_ms=now_ms, only=torture_scene.ORDERS)

    def last_stable_offset() -> int:
        copy = tmp_path / "copy"
        shutil.copytree(log_dir, copy)
        view = kafka.load(copy, config=config, now_ms=now_ms, in_place=True, only=torture_scene.ORDERS)
        shutil.rmtree(copy)
        return int(view["partitions"][torture_scene.ORDERS]["last_stable_offset"])

    assert last_stable_offset() == 90
    directory = log_dir / torture_scene.ORDERS
    (directory / f"{0:020d}.index").rename(directory / f"{0:020d}.index.deleted")
    assert last_stable_offset() == 93
    with pytest.raises(RecoveryNeededError, match=CLEAN_SHUTDOWN_FILE):
        recovery.recover(directory, log_dir=log_dir, foreign=True)
    (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    recovery.recover(directory, log_dir=log_dir, foreign=True)
    assert last_stable_offset() == 90
