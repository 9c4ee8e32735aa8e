"""Larger logs cleaned on Spark and by Kafka's own cleaner: the same directory is left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.engine.spark import OnSpark
from kcompact.log.lock import log_dir_lock
from kcompact.plan.partition import plan_partition
from tests.oracle.generate import CODECS, LogSpec, random_spec, write_log
from tests.oracle.real_kafka import RealKafka, copy_log_dir
from tests.support.compare import config_of, differences
from tests.support.spark_runs import SPARK

pytestmark = [*SPARK, pytest.mark.oracle]

SPECS = {
    "uncompressed": replace(random_spec(1, records=60_000), codecs=("none",), cleanings=1, segment_bytes=300_000),
    "all-codecs": replace(random_spec(2, records=30_000), codecs=CODECS, cleanings=2, segment_bytes=100_000),
    "transactions": replace(
        random_spec(3, records=20_000),
        codecs=("none",),
        producers=3,
        transactional_producers=5,
        cleanings=2,
        segment_bytes=100_000,
    ),
}
STATS = "bytes_read messages_read messages_written invalid_messages map_keys map_bytes_read".split()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_same_directory_is_left(spec: LogSpec, kafka: RealKafka, on_spark: OnSpark, tmp_path: Path) -> None:
    written = write_log(kafka, tmp_path / "written", spec)
    ours = copy_log_dir(written.log_dir, tmp_path / "ours")
    theirs = copy_log_dir(written.log_dir, tmp_path / "theirs")

    (turn,) = kafka.clean(theirs, config=written.config, now_ms=written.now_ms)["turns"]
    plan = plan_partition(
        ours / f"{spec.topic}-{spec.partition}", config_of(spec.topic, written.config), now_ms=written.now_ms
    )
    with log_dir_lock(ours) as lock:
        result = cleaner.clean_partition(plan, on_spark, lock=lock)

    mtimes = {
        str(path.relative_to(theirs)): path.stat().st_mtime_ns // 1_000_000
        for path in theirs.rglob("*")
        if path.suffix in (".log", ".index", ".timeindex")
    }
    assert differences(ours, theirs, mtimes_ms=mtimes) == []
    assert result.end_offset == turn["end_offset"]
    assert {name: getattr(result.stats, name) for name in STATS} == {name: turn["stats"][name] for name in STATS}
