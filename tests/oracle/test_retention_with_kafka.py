"""Retention, alone and after a cleaning, by the real Kafka and by kcompact: the same files and the same log start.

A broker rolls an active segment that is past retention and deletes it too. kcompact leaves this segment alone, and says
so. In all other cases the directories are equal at once, but for an entry of `log-start-offset-checkpoint` at or below
the first segment: a broker drops such an entry, and it means nothing. In every case Kafka's retention makes of what
kcompact left what it makes of the original, byte for byte.
"""

from __future__ import annotations

import random
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.cleaner import partition as cleaner
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.retention import apply_retention
from kcompact.cleaner.round import clean_log_dir
from kcompact.engine.in_process import InProcess
from kcompact.format.names import TopicPartition
from kcompact.log.directory import read_again
from kcompact.log.lock import log_dir_lock
from kcompact.plan.deletion import RetentionReason, reason_to_roll
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import plan_partition
from tests.oracle.generate import LogSpec, write_log
from tests.oracle.real_kafka import RealKafka, copy_log_dir
from tests.oracle.retention_logs import PARTITION, write_retention_log
from tests.oracle.unclean_logs import damage_end
from tests.support.compare import config_of, differences, files
from tests.support.small_disk import SmallDisk

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


def test_space_is_made_by_a_retention_before_the_cleaning(
    kafka: RealKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = write_log(kafka, tmp_path / "written", SPEC)
    config = {**written.config, "cleanup.policy": "compact,delete", "retention.ms": "2400000"}
    disk = SmallDisk(tmp_path / "disk", monkeypatch)
    disk.leave(1 << 30)
    ours = copy_log_dir(written.log_dir, disk.root)
    theirs = copy_log_dir(written.log_dir, tmp_path / "theirs")
    too_much = config | {"retention.bytes": "100000"}

    assert kafka.retain(theirs, config=config, now_ms=written.now_ms)["random-0"]["deleted"]
    assert kafka.clean(theirs, config=too_much, now_ms=written.now_ms)["turns"]
    plan = plan_partition(ours / "random-0", config_of("random", too_much), now_ms=written.now_ms)
    disk.leave(25_000)
    with log_dir_lock(ours) as lock:
        done = cleaner.clean_partition(plan, InProcess(), lock=lock, options=CleanOptions(apply_retention=True))

    assert done.status == "cleaned"
    assert {due.reason for due in done.expired} == {RetentionReason.TIME, RetentionReason.SIZE}
    # Kafka has started twice here, and a start removes the snapshot at the log start.
    kafka.load(ours, config=config, now_ms=written.now_ms, in_place=True, records=False)
    assert differences(ours, theirs) == []


@pytest.mark.parametrize("seed", range(20))
def test_retention_of_random_logs_of_killed_brokers(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    log = write_retention_log(kafka, tmp_path / "ours", seed)
    ours = tmp_path / "ours"
    damage_end(ours, random.Random(seed), TopicPartition("old", 0))
    theirs = copy_log_dir(ours, tmp_path / "theirs")
    plan = plan_partition(ours / PARTITION, config_of("old", log.config), now_ms=log.now_ms, unclean=True)
    if plan.log.damage:
        return
    assert plan.log.recovered_from is not None
    bound = min(plan.log.recovered_from, plan.high_watermark)
    killed: dict[str, Any] = {"config": log.config, "now_ms": log.now_ms, "clean_shutdown": False}

    expected = kafka.retain(theirs, high_watermark=bound, **killed)[PARTITION]
    with log_dir_lock(ours) as lock:
        expired = apply_retention(plan, plan.log, lock, CleanOptions(apply_retention=True))
    assert len(expired) == expected["deleted"]
    assert kafka.retain(ours, high_watermark=bound, **killed)[PARTITION] == {**expected, "deleted": 0}
    assert _after_loading(kafka, ours, theirs, expected["log_start_offset"], **killed) == []


@pytest.mark.parametrize("seed", range(20))
def test_retention_of_random_logs(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    written = tmp_path / "written"
    log = write_retention_log(kafka, written, seed)
    ours = copy_log_dir(written, tmp_path / "ours")
    theirs = copy_log_dir(written, tmp_path / "theirs")
    by_checkpoint: dict[str, Any] = {"config": log.config, "now_ms": log.now_ms, "high_watermark": "checkpoint"}

    expected = kafka.retain(theirs, **by_checkpoint)[PARTITION]
    plan = plan_partition(ours / PARTITION, config_of("old", log.config), now_ms=log.now_ms)
    with log_dir_lock(ours) as lock:
        expired = apply_retention(plan, plan.log, lock, CleanOptions(apply_retention=True))
    left = read_again(plan.log)

    is_rolled = len(expired) < expected["deleted"]
    assert (reason_to_roll(plan) is not None) == is_rolled
    if is_rolled:
        assert expected["segments"] == [[plan.log.log_end_offset, 0]]
        assert [segment.base_offset for segment in left.segments] == [plan.log.active_segment.base_offset]
    else:
        assert left.log_start_offset == expected["log_start_offset"]
        loaded = copy_log_dir(written, tmp_path / "loaded")
        kafka.load(loaded, in_place=True, records=False, **by_checkpoint)
        by_loading = files(loaded).keys() ^ files(written).keys()
        ignored = ("log-start-offset-checkpoint:", *(f"{name}:" for name in by_loading))
        assert [line for line in differences(ours, theirs) if not line.startswith(ignored)] == []

    assert kafka.retain(ours, **by_checkpoint)[PARTITION] == {**expected, "deleted": int(is_rolled)}
    assert _after_loading(kafka, ours, theirs, expected["log_start_offset"], **by_checkpoint) == []


def _after_loading(kafka: RealKafka, ours: Path, theirs: Path, log_start_offset: int, **options: Any) -> list[str]:
    """Return what differs after a start of the broker.

    It removes snapshots at and below the log start, and may make them anew.
    """
    for directory in (ours, theirs):
        kafka.load(directory, in_place=True, records=False, **options)
    snapshot = re.compile(r".*/(\d{20})\.snapshot:")
    found = [(line, snapshot.match(line)) for line in differences(ours, theirs)]
    return [line for line, name in found if not name or int(name[1]) > log_start_offset]


SMALL = {"retention.ms": "1200000", "retention.bytes": "150000"}


@pytest.mark.parametrize("retention", [SMALL, SMALL | {"retention.bytes": "-1", "segment.bytes": "130000"}])
@pytest.mark.parametrize("ratio", ["0.001", "0.9"])
def test_all_logs_but_the_first_lose_segments_before_they_are_cleaned(
    ratio: str, retention: dict[str, str], kafka: RealKafka, tmp_path: Path
) -> None:
    ours = tmp_path / "ours"
    logs = [write_log(kafka, tmp_path / f"{seed}", replace(SPEC, seed=seed, topic=f"t{seed}")) for seed in range(3)]
    _merge([log.log_dir for log in logs], ours)
    written = logs[0]
    now_ms = max(log.now_ms for log in logs)
    theirs = copy_log_dir(ours, tmp_path / "theirs")
    config = written.config | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": ratio, **retention}

    rows = kafka.plan(ours, config=config, now_ms=now_ms)["partitions"]
    ratios = sorted(row["cleanable_ratio"] for row in rows)
    assert ratios[-1] > ratios[-2], "of equal ratios Kafka takes any first"
    for _ in range(2):  # The first time ends after a turn that cleans nothing, although retention may change that.
        kafka.clean(theirs, config=config, now_ms=now_ms, turns=0)
    result = clean_log_dir(
        ours, config, plan_options=PlanOptions(now_ms=now_ms), options=CleanOptions(apply_retention=True)
    )
    assert result.exit_code == 0
    # Kafka has started twice here, and a start removes the snapshot at the log start.
    kafka.load(ours, config=config, now_ms=now_ms, in_place=True, records=False)
    assert differences(ours, theirs) == []


def _merge(log_dirs: list[Path], target: Path) -> None:
    """Make one log directory of several, with the entries of all checkpoints."""
    for log_dir in log_dirs:
        shutil.copytree(log_dir, target, copy_function=shutil.copy2, dirs_exist_ok=True)
    for name in {path.name for path in target.glob("*-checkpoint")}:
        found = [line for log_dir in log_dirs for line in (log_dir / name).read_text().splitlines()[2:]]
        (target / name).write_text("\n".join(["0", str(len(found)), *found, ""]))
