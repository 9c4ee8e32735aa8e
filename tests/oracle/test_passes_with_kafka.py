"""How often the real Kafka goes through a log with a small map of keys, and what `plan` said before."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.plan.cost import OFFSET_MAP_ENTRY_BYTES, kafka_passes_at_least, kafka_passes_at_most
from kcompact.plan.partition import plan_partition
from tests.oracle.real_kafka import RealKafka
from tests.support import log_dsl, log_writer

pytestmark = pytest.mark.oracle

DISTINCT = [f"k{number}" for number in range(28)]
ONE_KEY = ["k"] * 28
SKEWED = random.Random(1).choices(DISTINCT, weights=range(1, 29), k=200)


@pytest.mark.parametrize(
    ("keys", "slots", "at_least", "passes", "at_most"),
    [
        (DISTINCT, 33, 1, 1, 1),  # 29 fill the map
        (DISTINCT, 32, 1, 1, 1),  # 28 do, and no record follows
        (DISTINCT, 31, 2, 2, 2),
        (DISTINCT, 16, 2, 2, 2),  # 14 and 14
        (DISTINCT, 15, 3, 3, 3),
        (DISTINCT, 10, 4, 4, 4),
        (DISTINCT, 2, 28, 28, 28),
        (ONE_KEY, 2, 1, 28, 28),  # A full map ends a pass even where the key is in it.
        (ONE_KEY, 3, 1, 1, 14),
        (SKEWED, 10, 4, 19, 23),
    ],
)
def test_kafka_takes_as_many(
    keys: list[str], slots: int, at_least: int, passes: int, at_most: int, kafka: RealKafka, tmp_path: Path
) -> None:
    half = len(keys) // 2
    lines = [
        f"{first}: " + " ".join(f"[{one}=v {other}=w]" for one, other in zip(part[::2], part[1::2], strict=True))
        for first, part in ((0, keys[:half]), (half, keys[half:]))
    ]
    spec = log_dsl.parse("\n".join(["log now=10:00 min.cleanable.dirty.ratio=0", *lines, f"{len(keys)}: z=1"]))
    directory = log_writer.write(spec, tmp_path)
    buffer_bytes = slots * OFFSET_MAP_ENTRY_BYTES
    # No broker would start with so small a buffer, nor would `topic_config` take it.
    config = replace(spec.config, log_cleaner_dedupe_buffer_size=buffer_bytes)
    plan = plan_partition(directory, config, now_ms=spec.now_ms)
    assert kafka_passes_at_least(plan, map_keys=len(set(keys))) == at_least
    assert kafka_passes_at_most(plan) == at_most

    settings = {"cleanup.policy": "compact", **spec.settings}
    reply = kafka.clean(tmp_path, config=settings, now_ms=spec.now_ms, turns=0, dedupe_buffer_bytes=buffer_bytes)
    assert len(reply["turns"]) == passes
