"""`plan --explain` beside the real Kafka: each condition has the value of its manager, and each forecast comes true."""

from __future__ import annotations

import math
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import Override
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.conditions import Condition
from kcompact.plan.deciding_settings import Remedy
from kcompact.plan.explanation import Explanation, explain
from kcompact.plan.forecast import How, rolls_from_ms
from kcompact.plan.partition import plan_partition
from kcompact.plan.verdict import ConditionName
from tests.oracle.real_kafka import Json, RealKafka, append, copy_log_dir, marker, record, roll

pytestmark = pytest.mark.oracle

START = 1_704_099_600_000
LOGS = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A log that Kafka wrote, and its settings."""

    log_dir: Path
    config: dict[str, str]
    now_ms: int

    def plan(self) -> CleanPlan:
        settings = {name.removeprefix("internal."): value for name, value in self.config.items()}
        overrides = [Override(name=name, value=value) for name, value in settings.items()]
        return plan_partition(
            self.log_dir / "prices-0", topic_config("prices", overrides=overrides), now_ms=self.now_ms, use_log_end=True
        )


def written(kafka: RealKafka, seed: int, log_dir: Path) -> Written:
    """Return a random log: some batches and rolls, sometimes a transaction that is open, sometimes a checkpoint."""
    rng = random.Random(seed)
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": rng.choice(["0", "0.5", "0.9", "0.9"])}
    config["segment.ms"] = str(rng.choice([1000, 5000, 60_000, 604_800_000]))
    if rng.random() < 0.5:
        config["min.compaction.lag.ms"] = str(rng.choice([1, 3000, 30_000]))
    if rng.random() < 0.3:
        config["max.compaction.lag.ms"] = str(rng.choice([30_000, 90_000]))
    actions: list[Json] = []
    bases, now_ms, offset = [0], START, 0
    for _ in range(rng.randint(1, 4)):
        for _ in range(rng.randint(1, 3)):
            now_ms += rng.randint(0, 400)
            rows = [record(now_ms, b"k%d" % rng.randint(0, 9), bytes(rng.randint(1, 90))) for _ in range(3)]
            actions.append(append(rows, now_ms=now_ms))
            offset += len(rows)
        if rng.random() < 0.8:
            actions.append(roll(now_ms=now_ms))
            bases.append(offset)
    if rng.random() < 0.3:
        actions.append(append([record(now_ms, b"t", b"1")], producer=[7, 0, 0], transactional=True))
        if rng.random() < 0.5:
            actions.append(marker("commit", 7, 0))
        actions.append(append([record(now_ms, b"u", b"1")]))
    checkpoint = rng.choice([None, *bases, *bases])
    # So long that no append of the story closes a segment by itself.
    story = config | {"segment.ms": "604800000", "max.compaction.lag.ms": str(2**63 - 1)}
    kafka.write(log_dir, "prices", config=story, now_ms=START, actions=actions, cleaner_checkpoint=checkpoint)
    return Written(log_dir=log_dir, config=config, now_ms=now_ms + rng.choice([1, 500, 4000, 40_000]))


@pytest.fixture(scope="module")
def logs(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> list[Written]:
    return [written(kafka, seed, tmp_path_factory.mktemp("log") / "logs") for seed in range(LOGS)]


def theirs(
    kafka: RealKafka, log: Written, *, now_ms: int | None = None, settings: Mapping[str, object] | None = None
) -> Json:
    """Return what Kafka's manager computes for the log, at another time or with other settings."""
    changed = {name: str(value) for name, value in (settings or {}).items()}
    at_ms = log.now_ms if now_ms is None else now_ms
    reply = kafka.plan(log.log_dir, config=log.config | changed, now_ms=at_ms)
    found: Json = reply["partitions"][0]
    return found


def values(explanation: Explanation) -> dict[str, Any]:
    return {str(each.name): each.value for each in explanation.conditions}


def test_each_condition_has_the_value_of_kafkas_manager(logs: list[Written], kafka: RealKafka) -> None:
    decided = set()
    for log in logs:
        plan, kafkas = log.plan(), theirs(kafka, log)
        explanation = explain(plan)
        ours = values(explanation)
        decided.add(explanation.decided_by)
        assert plan.eligible == kafkas["eligible"]
        assert ours["last-stable-offset"] == kafkas["last_stable_offset"]
        assert ours["high-watermark"] == kafkas["high_watermark"]
        assert ours["min.cleanable.dirty.ratio"] == (kafkas["cleanable_ratio"] or 0)
        assert ours["dirty-records"] == max(0, kafkas["log_end_offset"] - kafkas["first_dirty_offset"])
        delay_ms = max(0, (ours["max.compaction.lag.ms"] or 0) - plan.config.max_compaction_lag_ms)
        assert delay_ms == kafkas["max_compaction_delay_ms"]
        assert explanation.here.log_bytes_read >= kafkas["cleanable_bytes"]
        if plan.eligible:
            assert explanation.broker.bytes_rewritten == sum(
                segment["size_bytes"]
                for segment in kafkas["segments"]
                if segment["base_offset"] < kafkas["first_uncleanable_offset"]
            )
    assert len(decided) >= 4, decided


def test_time_alone(logs: list[Written], kafka: RealKafka) -> None:
    tried = 0
    for log in logs:
        for forecast in explain(log.plan()).forecasts:
            if forecast.how is How.BY_ITSELF:
                assert theirs(kafka, log, now_ms=forecast.at_ms)["eligible"]
                assert not theirs(kafka, log, now_ms=forecast.at_ms - 1)["eligible"]
                tried += 1
    assert tried >= 2


def test_settings(logs: list[Written], kafka: RealKafka) -> None:
    """With the value Kafka cleans the log, with the next value towards today's it does not."""
    tried = set()
    for log in logs:
        plan = log.plan()
        explanation = explain(plan)
        for remedy in (explanation.change_by_setting, *explanation.other_remedies):
            if remedy is None or remedy.at_append or plan.eligible:
                continue
            name = remedy.name
            assert theirs(kafka, log, settings={name: remedy.value})["eligible"] == remedy.makes_eligible
            if remedy.makes_eligible:
                assert not theirs(kafka, log, settings={name: beyond(remedy)})["eligible"], (remedy, plan)
                tried.add(remedy.name)
    assert {"min.cleanable.dirty.ratio", "max.compaction.lag.ms"} <= tried


def beyond(remedy: Remedy) -> int | float:
    assert isinstance(remedy.value, int | float)
    return math.nextafter(remedy.value, 1.0) if isinstance(remedy.value, float) else remedy.value + 1


def active(explanation: Explanation) -> Condition:
    return next(each for each in explanation.conditions if each.name is ConditionName.ACTIVE_SEGMENT)


def rolls(
    kafka: RealKafka, log: Written, scratch: Path, *, at_ms: int, settings: Mapping[str, object] | None = None
) -> bool:
    """Return whether a record of this time closes the active segment of a copy, which is left in `scratch`."""
    shutil.rmtree(scratch, ignore_errors=True)
    copy_log_dir(log.log_dir, scratch)
    before = len(theirs(kafka, log)["segments"])
    config = log.config | {name: str(value) for name, value in (settings or {}).items()}
    rows = append([record(at_ms, b"new", b"1")], now_ms=at_ms)
    reply = kafka.write(scratch, "prices", config=config, now_ms=at_ms, actions=[rows])
    return len(reply["segments"]) > before


def test_the_roll_comes_with_its_record(logs: list[Written], kafka: RealKafka, tmp_path: Path) -> None:
    tried = 0
    for log in logs:
        plan = log.plan()
        explanation = explain(plan)
        at_ms = rolls_from_ms(plan)
        if at_ms is None:
            continue
        assert not rolls(kafka, log, tmp_path / "copy", at_ms=at_ms - 1)
        assert rolls(kafka, log, tmp_path / "copy", at_ms=at_ms)
        for forecast in explanation.forecasts:
            if forecast.how is How.AT_APPEND:
                after = kafka.plan(tmp_path / "copy", config=log.config, now_ms=max(at_ms, forecast.at_ms))
                assert after["partitions"][0]["eligible"], (plan, forecast)
                tried += 1
        remedy = active(explanation).remedy
        if remedy is not None and plan.now_ms < at_ms:
            value = int(remedy.value)
            assert rolls(kafka, log, tmp_path / "copy", at_ms=log.now_ms, settings={"segment.ms": value})
            assert not rolls(kafka, log, tmp_path / "copy", at_ms=log.now_ms, settings={"segment.ms": value + 1})
    assert tried >= 3


def test_settings_that_work_at_the_next_record(logs: list[Written], kafka: RealKafka, tmp_path: Path) -> None:
    tried = 0
    for log in logs:
        for remedy in explain(log.plan()).remedies:
            if not remedy.at_append or remedy.name != ConditionName.MAX_LAG:
                continue
            value = int(remedy.value)
            for lag_ms, expected in ((value, remedy.makes_eligible), (value + 1, False)):
                changed = {"max.compaction.lag.ms": str(lag_ms)}
                rolls(kafka, log, tmp_path / "copy", at_ms=log.now_ms, settings=changed)
                after = kafka.plan(tmp_path / "copy", config=log.config | changed, now_ms=log.now_ms)
                assert after["partitions"][0]["eligible"] == expected, (log, remedy)
            tried += 1
    assert tried >= 2
