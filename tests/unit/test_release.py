"""`release`: the rules and defaults of a release of Kafka are one value, which the code really asks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kcompact
from kcompact.clean.join import build_indexes
from kcompact.config.broker_config import UNKNOWN_BROKER
from kcompact.config.layers import merged_config
from kcompact.config.settings import FIELD_NAMES, TopicConfig
from kcompact.release import KAFKA_4_3
from tests.support import log_dsl, log_writer
from tests.support.parts import INDEXES, LINE, parts_of

PACKAGE = Path(kcompact.__file__).parent


def test_the_version_is_written_once() -> None:
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html", ".css")]
    mentions = {path.name: path.read_text(encoding="utf-8").count(KAFKA_4_3.version) for path in sources}
    assert {name: count for name, count in mentions.items() if count} == {"release.py": 1}


def test_each_setting_that_is_used_has_a_default() -> None:
    assert set(KAFKA_4_3.defaults) == set(FIELD_NAMES.values())
    defaults = {name: TopicConfig().value_of(name) for name in FIELD_NAMES.values()}
    assert defaults == {**KAFKA_4_3.defaults, "cleanup.policy": None}, "without a cluster the policy is unknown"


def test_a_default_of_the_release_is_assumed() -> None:
    earlier = replace(KAFKA_4_3, defaults={**KAFKA_4_3.defaults, "segment.bytes": 100})
    assert TopicConfig(release=earlier, segment_bytes=100).is_assumed("segment.bytes")
    assert not TopicConfig(release=earlier).is_assumed("segment.bytes")


def test_a_topic_has_the_defaults_of_its_release() -> None:
    earlier = replace(KAFKA_4_3, defaults={**KAFKA_4_3.defaults, "segment.bytes": 100})
    config = merged_config("orders", overrides=(), broker=UNKNOWN_BROKER, release=earlier)
    assert (config.segment_bytes, config.release, config.is_assumed("segment.bytes")) == (100, earlier, True)


@pytest.mark.parametrize("next_offset", [99, 100, 101])
def test_the_last_batch_of_the_round_stays_empty(next_offset: int) -> None:
    keeps = next_offset == 100
    assert KAFKA_4_3.keeps_empty_last_batch(next_offset, 100, 250) is keeps
    assert KAFKA_4_3.keeps_empty_last_batch(np.array([next_offset]), 100, 250).tolist() == [keeps]


def test_the_release_decides_about_the_final_time_entry(tmp_path: Path, compiled: bool) -> None:
    source = log_writer.write(log_dsl.parse(f"log\n{LINE}"), tmp_path)
    release = replace(KAFKA_4_3, adds_final_time_entry=False)
    parts = parts_of(source, None)
    (_, with_entry), (_, without) = (
        build_indexes(parts, 0, replace(INDEXES, index_interval_bytes=1000, release=each))
        for each in (KAFKA_4_3, release)
    )
    assert (len(with_entry), len(without)) == (12, 0)


def test_a_release_travels_to_the_tasks() -> None:
    travelled = pickle.loads(pickle.dumps(KAFKA_4_3))
    assert travelled == KAFKA_4_3
    assert travelled.defaults == KAFKA_4_3.defaults
