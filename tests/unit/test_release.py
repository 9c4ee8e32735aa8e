"""`release`: the rules and defaults of a release of Kafka are one value, which the code really asks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kcompact
from kcompact.config.broker_config import UNKNOWN_BROKER
from kcompact.config.layers import merged_config
from kcompact.config.settings import FIELD_NAMES, TopicConfig
from kcompact.release import NEWEST, OLDEST, RELEASES, Release

PACKAGE = Path(kcompact.__file__).parent
EARLIER = replace(NEWEST, defaults={**NEWEST.defaults, "segment.bytes": 100})

every_release = pytest.mark.parametrize("release", RELEASES.values(), ids=list(RELEASES))


@every_release
def test_a_version_is_written_once(release: Release) -> None:
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html", ".css")]
    mentions = {path.name: path.read_text(encoding="utf-8").count(release.version) for path in sources}
    assert {name: count for name, count in mentions.items() if count} == {"release.py": 1}


def test_the_newest_is_first_and_registers_the_greatest_level() -> None:
    releases = list(RELEASES.values())
    assert (releases[0], releases[-1]) == (NEWEST, OLDEST)
    levels = [release.metadata_version for release in releases]
    assert levels == sorted(levels, reverse=True)
    assert all(release.version.startswith(f"{name}.") for name, release in RELEASES.items())


@every_release
def test_each_setting_that_is_used_has_a_default(release: Release) -> None:
    assert set(release.defaults) == set(FIELD_NAMES.values())


def test_a_configuration_has_the_defaults_of_the_newest() -> None:
    defaults = {name: TopicConfig().value_of(name) for name in FIELD_NAMES.values()}
    assert defaults == {**NEWEST.defaults, "cleanup.policy": None}, "without a cluster the policy is unknown"


def test_a_default_of_the_release_is_assumed() -> None:
    assert TopicConfig(release=EARLIER, segment_bytes=100).is_assumed("segment.bytes")
    assert not TopicConfig(release=EARLIER).is_assumed("segment.bytes")


def test_a_topic_has_the_defaults_of_its_release() -> None:
    config = merged_config("orders", overrides=(), broker=UNKNOWN_BROKER, release=EARLIER)
    assert (config.segment_bytes, config.release, config.is_assumed("segment.bytes")) == (100, EARLIER, True)


@pytest.mark.parametrize(
    ("name", "next_offset", "high_watermark", "keeps"),
    [
        ("4.4", 100, 100, True),
        ("4.4", 100, 250, False),
        ("4.4", 99, 100, False),
        ("4.3", 100, 100, True),
        ("4.3", 100, 250, True),
        ("4.3", 99, 250, False),
        ("4.0", 100, 250, True),
        ("3.9", 100, 250, True),
    ],
)
def test_the_last_batch_of_the_round_stays_empty(name: str, next_offset: int, high_watermark: int, keeps: bool) -> None:
    release = RELEASES[name]
    assert release.keeps_empty_last_batch(next_offset, 100, high_watermark) is keeps
    assert release.keeps_empty_last_batch(np.array([next_offset]), 100, high_watermark).tolist() == [keeps]


@every_release
def test_a_release_travels_to_the_tasks(release: Release) -> None:
    travelled = pickle.loads(pickle.dumps(release))
    assert travelled == release
    assert travelled.defaults == release.defaults
