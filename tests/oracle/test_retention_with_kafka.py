"""Retention after a cleaning, by the real Kafka and by kcompact: the same segments are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.options import CleanOptions
from kcompact.engine.in_process import InProcess
from kcompact.log.lock import log_dir_lock
from kcompact.plan.partition import plan_partition
from tests.oracle.generate import LogSpec, write_log
from tests.oracle.real_kafka import RealKafka, copy_log_dir
from tests.support.compare import config_of, differences

pytestmark = pytest.mark.oracle

SPEC = LogSpec(seed=5, records=4_000, keys=3_000, segment_bytes=40_000, batch_interval_ms=20_000, max_batch_records=20)


@pytest.mark.parametrize(
    "settings",
    [
        {"retention.ms": "1200000"},
        {"retention.ms": "1200000", "segment.bytes": "130000"},
        {"retention.ms": "-1", "retention.bytes": "100000"},
        {"retention.ms": "2400000", "retention.bytes": "150000"},
    ],
)
def test_the_same_segments_are_left(settings: dict[str, str], kafka: RealKafka, tmp_path: Path) -> None:
    written = write_log(kafka, tmp_path / "written", SPEC)
    config = {**written.config, "cleanup.policy": "compact,delete", **settings}
    ours = copy_log_dir(written.log_dir, tmp_path / "ours")
    theirs = copy_log_dir(written.log_dir, tmp_path / "theirs")

    reply = kafka.clean(theirs, config=config, now_ms=written.now_ms)
    plan = plan_partition(ours / "random-0", config_of("random", config), now_ms=written.now_ms)
    with log_dir_lock(ours) as lock:
        done = cleaner.clean_partition(plan, InProcess(), lock=lock, options=CleanOptions(apply_retention=True))

    assert reply["turns"]
    assert done.expired
    assert differences(ours, theirs) == []
