"""Random logs written by the real Kafka, cleaned by Kafka's cleaner and by kcompact: the same is left.

The seeds are part of the test; `KCOMPACT_ORACLE_SEEDS=first:end` and `KCOMPACT_ORACLE_RECORDS` try others.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.outcome import CleanResult, Status
from kcompact.engine.in_process import InProcess
from kcompact.log.lock import log_dir_lock
from kcompact.plan.partition import plan_partition
from kcompact.stages.executor import Executor
from tests.oracle.generate import LogSpec, Written, random_spec, write_log
from tests.oracle.real_kafka import RealKafka, copy_log_dir
from tests.support.compare import config_of, differences

pytestmark = pytest.mark.oracle

FIRST, END = (int(word) for word in os.environ.get("KCOMPACT_ORACLE_SEEDS", "1000:1012").split(":"))
RECORDS = int(os.environ.get("KCOMPACT_ORACLE_RECORDS", "20000"))


def spec_of(seed: int) -> LogSpec:
    """Return a log without transactions, which kcompact does not clean yet."""
    return random_spec(seed, records=RECORDS)


def clean_with_kcompact(written: Written, log_dir: Path, spec: LogSpec, executor: Executor) -> CleanResult:
    plan = plan_partition(
        log_dir / f"{spec.topic}-{spec.partition}",
        config_of(spec.topic, written.config),
        now_ms=written.now_ms,
    )
    with log_dir_lock(log_dir) as lock:
        return cleaner.clean_partition(plan, executor, lock=lock)


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_the_same_directory_is_left(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    spec = spec_of(seed)
    written = write_log(kafka, tmp_path / "written", spec)
    ours = copy_log_dir(written.log_dir, tmp_path / "ours")
    theirs = copy_log_dir(written.log_dir, tmp_path / "theirs")

    reply = kafka.clean(theirs, config=written.config, now_ms=written.now_ms)
    result = clean_with_kcompact(written, ours, spec, InProcess())

    mtimes = {
        str(path.relative_to(theirs)): path.stat().st_mtime_ns // 1_000_000
        for path in theirs.rglob("*")
        if path.suffix in (".log", ".index", ".timeindex")
    }
    assert differences(ours, theirs, mtimes_ms=mtimes) == []
    if not reply["turns"]:
        assert result.status is Status.SKIPPED
        return
    turn = reply["turns"][0]
    assert result.end_offset == turn["end_offset"]
    for field in "bytes_read messages_read messages_written invalid_messages map_keys map_bytes_read".split():
        assert getattr(result.stats, field) == turn["stats"][field], field

    name = f"{spec.topic}-{spec.partition}"
    seen = [
        kafka.load(log_dir, config=written.config, now_ms=written.now_ms)["partitions"][name]
        for log_dir in (ours, theirs)
    ]
    for view in seen:
        # The size of a recompressed segment is the compression library's.
        view["segments"] = [base_offset for base_offset, _ in view["segments"]]
    assert seen[0] == seen[1]
