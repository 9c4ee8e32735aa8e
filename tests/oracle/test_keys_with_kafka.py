"""The count of keys on odd logs that Kafka wrote and cleaned, compared with what Kafka's own readers see.

A consumer with `read_committed` says which records count. Kafka's reader of files says what else is in the log.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override
from kcompact.engine.in_process import InProcess
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition
from kcompact.questions.keys.count import count_keys
from kcompact.questions.keys.counts import CountOptions, KeyCounts, LogKeys
from tests.oracle.odd_logs import odd_spec
from tests.oracle.real_kafka import Json, RealKafka, Record
from tests.support.machine_code import switched

pytestmark = pytest.mark.oracle

SEEDS = range(1, 7)
DAY = 86_400_000
Committed = dict[int, Record]
Newest = dict[bytes, Record]


class Seen(NamedTuple):
    """What Kafka's readers see: counts by class, keys, and the keys with most versions."""

    counts: Counter[str]
    versions: Counter[bytes]
    batches: tuple[int, int]
    empty: tuple[int, int]
    old: int


def seen_by_kafka(kafka: RealKafka, directory: Path, view: Json, now_ms: int) -> Seen:
    committed: Committed = {each.offset: each for each in view["committed_records"]}
    newest: Newest = {each.key: each for each in committed.values() if each.key is not None}
    counts, versions = Counter[str](), Counter[bytes]()
    batches, empty = Counter[str](), Counter[str]()
    for file in sorted(directory.glob("*.log")):
        for batch in kafka.records(file)["batches"]:
            batches.update(number=1, size_bytes=batch["size_bytes"])
            if not batch["records"]:
                empty.update(number=1, size_bytes=batch["size_bytes"])
            for record in batch["records"]:
                counts[class_of(record.offset, batch, view, committed, newest, now_ms)] += 1
    for each in committed.values():
        if each.key is not None:
            versions[each.key] += 1
    old = sum(0 <= each.timestamp_ms < now_ms - DAY for each in newest.values() if each.value is not None)
    return Seen(
        +counts,
        versions,
        (batches["number"], batches["size_bytes"]),
        (empty["number"], empty["size_bytes"]),
        old,
    )


def class_of(offset: int, batch: Json, view: Json, committed: Committed, newest: Newest, now_ms: int) -> str:
    if offset >= view["last_stable_offset"]:
        return "undecided_records"
    if offset < view["log_start_offset"]:
        return "below_start_records"
    if batch["is_control"]:
        return "control_records"
    if offset not in committed:
        return "aborted_records"
    record = committed[offset]
    if record.key is None:
        return "null_key_records"
    if newest[record.key].offset != offset:
        return "superseded_records"
    if record.value is not None:
        return "live_keys"
    horizon = batch["delete_horizon_ms"]
    if horizon is None:
        return "unstamped_tombstones"
    return "waiting_tombstones" if horizon > now_ms else "expired_tombstones"


CLASSES = (
    "live_keys", "superseded_records", "unstamped_tombstones", "waiting_tombstones", "expired_tombstones",
    "null_key_records", "control_records", "aborted_records", "undecided_records", "below_start_records",
)  # fmt: skip


def plans_of(log_dir: Path, settings: Json) -> list[CleanPlan]:
    plans = []
    for directory in find_partitions([log_dir]):
        topic = directory.name.rpartition("-")[0]
        config = {**settings["config"], **settings["topics"].get(topic, {})}
        config["producer.id.expiration.ms"] = str(settings["producer_id_expiration_ms"])
        overrides = [Override(name=name, value=value) for name, value in config.items()]
        plans.append(plan_partition(directory, topic_config(topic, overrides=overrides), now_ms=settings["now_ms"]))
    return plans


def agree(found: LogKeys, seen: Seen) -> None:
    counts: KeyCounts = found.counts
    ours = {name: getattr(counts, name).number for name in CLASSES}
    assert {name: number for name, number in ours.items() if number} == dict(seen.counts)
    assert (tuple(counts.batches), tuple(counts.empty_batches)) == (seen.batches, seen.empty)
    assert found.keys == len(seen.versions)
    assert [each.versions for each in found.most_versions] == [number for _, number in seen.versions.most_common(3)]
    assert all(seen.versions[each.key] == each.versions for each in found.most_versions)
    assert found.old is not None
    assert found.old.number == seen.old


@pytest.mark.parametrize("seed", SEEDS)
def test_each_count_is_what_kafkas_readers_see(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    checked = 0
    for settings in odd_spec(seed)["rounds"]:
        options = {"producer_id_expiration_ms": settings["producer_id_expiration_ms"]}
        for request in settings["writes"]:
            kafka.write(log_dir, **request, **options, lenient=True)
        if not log_dir.exists():
            continue
        options |= {name: settings[name] for name in ("config", "now_ms", "topics")} | {"high_watermark": "checkpoint"}
        kafka.load(log_dir, records=False, in_place=True, **options)
        views = kafka.load(log_dir, isolation="both", **options)["partitions"]
        plans = [plan for plan in plans_of(log_dir, settings) if not plan.log.damage]
        for compiled in (False, True):
            with switched(compiled=compiled):
                counted = count_keys(plans, InProcess(), CountOptions(top=3, older_than_ms=DAY))
            assert not counted.failed
            for found in counted.logs:
                seen = seen_by_kafka(kafka, found.directory, views[found.directory.name], settings["now_ms"])
                assert found.problem is None
                agree(found, seen)
                checked += 1
        kafka.clean(log_dir, turns=0, retention=False, **options)
    assert checked
