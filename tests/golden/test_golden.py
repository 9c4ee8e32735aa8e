"""Directories that Kafka's own cleaner cleaned, cleaned again by kcompact: the same is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures import checkout
from kcompact.engine.in_process import InProcess
from kcompact.format.index import DEFAULT_INTERVAL_BYTES
from tests.support.compare import differences
from tests.support.kafka_rounds import clean_all, plans, round_of
from tests.support.releases import likeness_of

ROUNDS = [
    pytest.param(name, number, id=f"{name}-{number}")
    for name in sorted(checkout.names())
    for number in range(len(checkout.read_manifest(name)["rounds"]))
]


@pytest.mark.parametrize(("name", "number"), ROUNDS)
def test_plan_is_kafkas(name: str, number: int, tmp_path: Path) -> None:
    settings = round_of(name, number)
    log_dir = checkout.copy_directory(name, settings["from"], tmp_path / "logs")
    ours = {(p.log.topic_partition.topic, p.log.topic_partition.partition): p for p in plans(log_dir, settings)}
    for theirs in settings["plan"]["partitions"]:
        plan = ours[theirs["topic"], theirs["partition"]]
        assert plan.log.log_start_offset == theirs["log_start_offset"]
        assert plan.log.log_end_offset == theirs["log_end_offset"]
        assert plan.high_watermark == theirs["high_watermark"]
        assert plan.last_stable_offset == theirs["last_stable_offset"]
        assert plan.log.checkpoint_offset == theirs["checkpoint"]
        if not theirs["compacted"]:
            continue
        fields = (
            "first_dirty_offset first_uncleanable_offset clean_bytes cleanable_bytes "
            "need_compaction_now max_compaction_delay_ms eligible"
        ).split()
        assert {f: getattr(plan, f) for f in fields} == {f: theirs[f] for f in fields}
        assert plan.cleanable_ratio == pytest.approx(theirs["cleanable_ratio"] or 0.0)
        assert [s.size_bytes for s in plan.log.segments] == [s["size_bytes"] for s in theirs["segments"]]
        assert [s.largest_timestamp_ms for s in plan.log.segments] == [
            s["largest_timestamp_ms"] for s in theirs["segments"]
        ]
        if plan.eligible:
            assert [[s.base_offset for s in group] for group in plan.groups] == theirs["groups"]


@pytest.mark.long
@pytest.mark.parametrize(("name", "number"), ROUNDS)
def test_directory_is_kafkas(name: str, number: int, tmp_path: Path) -> None:
    settings = round_of(name, number)
    log_dir = checkout.copy_directory(name, settings["from"], tmp_path / "ours")
    results = clean_all(log_dir, settings, InProcess())

    expected = checkout.copy_directory(name, settings["to"], tmp_path / "theirs")
    listed = checkout.read_manifest(name)["directories"][settings["to"]]
    timed = (".log", ".index", ".timeindex")
    mtimes = {file: entry["mtime_ms"] for file, entry in listed.items() if file.endswith(timed)}
    found = differences(
        log_dir,
        expected,
        mtimes_ms=mtimes,
        index_interval_bytes=int(settings["config"].get("index.interval.bytes", DEFAULT_INTERVAL_BYTES)),
        same_indexes=likeness_of(settings["kafka"]).indexes,
    )
    assert found == []

    for result, turn in zip(results, settings["clean"]["turns"], strict=True):
        assert result.end_offset == turn["end_offset"]
        # `bytes_written` depends on the compression library, and `map_messages_read` on nothing that a user asks for.
        for field in "bytes_read messages_read messages_written invalid_messages map_keys map_bytes_read".split():
            assert getattr(result.stats, field) == turn["stats"][field], field
