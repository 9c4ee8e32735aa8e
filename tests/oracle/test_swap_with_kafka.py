"""A swap that is stopped after any step, and then the broker starts: Kafka's own loader finds every record once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.real_kafka import RealKafka
from tests.support import crash

pytestmark = pytest.mark.oracle

CONFIG = {"cleanup.policy": "compact", "segment.bytes": "1048576"}


@pytest.mark.parametrize("clean_shutdown", [True, False], ids=["clean-shutdown", "unclean-shutdown"])
@pytest.mark.parametrize(("groups", "files"), [*((groups, {}) for groups in crash.GROUPS), (2, crash.ORPHANS)])
def test_kafkas_loader_recovers_every_stopped_swap(
    groups: int, files: dict[str, bytes], clean_shutdown: bool, kafka: RealKafka, tmp_path: Path
) -> None:
    scene = crash.build(tmp_path / "logs", crash.GROUPS[groups], files)
    states = 0
    for _, state in crash.stopped_states(scene, tmp_path):
        view = kafka.load(state.log_dir, config=CONFIG, now_ms=crash.T0 + 1_000, clean_shutdown=clean_shutdown)
        partition = view["partitions"][str(crash.PARTITION)]
        assert partition["log_end_offset"] == 602
        assert partition["log_start_offset"] == 0
        offsets = [record.offset for record in partition["records"]]
        assert offsets == sorted(set(offsets))
        latest = {record.key.decode(): record.value.decode() for record in partition["records"]}
        assert latest == scene.view
        states += 1
    assert states > 30 * groups
