"""`release`: the rules and defaults of a release of Kafka are one value, which the code really asks."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import kcompact
from kcompact.config.broker_config import UNKNOWN_BROKER, BrokerConfig
from kcompact.config.layers import merged_config
from kcompact.config.settings import FIELD_NAMES, Override, TopicConfig
from kcompact.release import METADATA_LEVELS, NEWEST, RELEASES, Release, release_of

PACKAGE = Path(kcompact.__file__).parent
EARLIER = replace(NEWEST, defaults={**NEWEST.defaults, "segment.bytes": 100})

every_release = pytest.mark.parametrize("release", RELEASES.values(), ids=list(RELEASES))


@every_release
def test_a_version_is_written_once(release: Release) -> None:
    sources = [path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html", ".css")]
    mentions = {path.name: path.read_text(encoding="utf-8").count(release.version) for path in sources}
    assert {name: count for name, count in mentions.items() if count} == {"release.py": 1}


def test_the_newest_is_first_and_registers_the_greatest_level() -> None:
    assert next(iter(RELEASES.values())) == NEWEST
    for ordered in ([release.since for release in RELEASES.values()], [*METADATA_LEVELS.values()]):
        assert ordered == sorted(ordered, reverse=True)
    assert all(release.version.startswith(f"{name}.") for name, release in RELEASES.items())


@pytest.mark.parametrize(
    ("versions", "name"),
    [
        ("4.4 4.4.0 4.4.7", "4.4"),
        ("4.3 4.3.1", "4.3"),
        ("4.2.2 4.1.0 4.0 4.0.0", "4.0"),
        ("3.9 3.9.2 3.9.3", "3.9"),
        ("3.9.1 3.9.0 3.8 3.7.2 3.6.2 3.4.1 3.3.2 3.1.0", "3.8"),
        ("3.0 3.0.2 2.8.0", "3.9"),
    ],
)
def test_each_version_has_the_rules_of_a_release(versions: str, name: str) -> None:
    for version in versions.split():
        release = release_of(version)
        assert release == RELEASES[name] or version < "3.4"
        assert release.name == name
        assert release.defaults["producer.id.expiration.ms"] == (86_400_000 if version >= "3.4" else 604_800_000)


@pytest.mark.parametrize(
    "version",
    ["2.7", "2.8.x", "4.5", "5.0", "3.10", "3", "4", "", "3.9.2.1", "3.9-SNAPSHOT", "3.6.\u0662", "3.9." + "1" * 5000],
)
def test_what_is_no_known_version(version: str) -> None:
    with pytest.raises(ValueError, match=r"is not a version of Kafka from 2.8 to 4.4"):
        release_of(version)


@pytest.mark.parametrize(("version", "hours"), [("4.4", 24), ("3.4", 24), ("3.3.2", 168), ("2.8", 168)])
def test_when_producers_expire(version: str, hours: int) -> None:
    release = release_of(version)

    def expiration_ms(**properties: str) -> int:
        broker = BrokerConfig(properties={name.replace("_", "."): value for name, value in properties.items()})
        return merged_config("orders", overrides=(), broker=broker, release=release).producer_id_expiration_ms

    assert expiration_ms() == hours * 3_600_000
    both = {"producer_id_expiration_ms": "5", "transactional_id_expiration_ms": "7"}
    assert expiration_ms(**both) == (5 if hours == 24 else 7)
    secret = {"config.providers": "file", "transactional.id.expiration.ms": "${file:secrets:expiration}"}
    unresolved = BrokerConfig(properties=secret)
    config = merged_config("orders", overrides=(), broker=unresolved, release=release)
    assert config.unresolved == (set() if hours == 24 else {"producer.id.expiration.ms"})
    options = [Override(name="producer.id.expiration.ms", value="9")]
    config = merged_config("orders", overrides=options, broker=UNKNOWN_BROKER, release=release)
    assert config.producer_id_expiration_ms == 9


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
        ("3.8", 100, 100, False),
        ("3.8", 100, 250, False),
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
