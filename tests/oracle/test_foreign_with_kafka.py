"""What a broker's interrupted cleaning leaves, ended by Kafka's loader and by `recover --foreign`: the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kcompact.swap import recovery
from tests.oracle.real_kafka import RealKafka
from tests.support import crash
from tests.support.compare import differences

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
