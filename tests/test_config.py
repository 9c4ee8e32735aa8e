"""Settings: who wins, what Kafka would refuse, and its names."""

from __future__ import annotations

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import INT_MAX, LONG_MAX, Override, TopicConfig, parse_override
from kcompact.errors import ConfigError

RETENTION = "delete.retention.ms"
BROKER_RETENTION = "log.cleaner.delete.retention.ms"


def test_kafkas_defaults() -> None:
    config = topic_config("orders")
    assert config == TopicConfig()
    assert config.cleanup_policy is None
    assert not config.compacts
    assert config.policy_text is None
    assert config.min_cleanable_dirty_ratio == 0.5
    assert config.min_compaction_lag_ms == 0
    assert config.max_compaction_lag_ms == LONG_MAX
    assert config.delete_retention_ms == 86_400_000
    assert config.segment_bytes == 1_073_741_824
    assert config.segment_index_bytes == 10_485_760
    assert config.index_interval_bytes == 4096
    assert config.producer_id_expiration_ms == 86_400_000
    assert not config.remote_storage_enable
    assert config.log_cleaner_dedupe_buffer_size == 134_217_728
    assert config.log_cleaner_threads == 1
    assert config.log_cleaner_io_buffer_load_factor == 0.9


@pytest.mark.parametrize(
    ("overrides", "broker", "expected"),
    [
        ([], {}, 86_400_000),
        ([], {BROKER_RETENTION: "1"}, 1),
        ([f"{BROKER_RETENTION}=2"], {BROKER_RETENTION: "1"}, 2),
        ([f"{RETENTION}=3"], {BROKER_RETENTION: "1"}, 3),
        ([f"{RETENTION}=3", f"{BROKER_RETENTION}=2"], {BROKER_RETENTION: "1"}, 3),
        ([f"orders:{RETENTION}=4", f"{RETENTION}=3"], {}, 4),
        ([f"{RETENTION}=3", f"orders:{RETENTION}=4"], {}, 4),
        ([f"other:{RETENTION}=5"], {}, 86_400_000),
        ([f"other:{RETENTION}=5", f"{RETENTION}=3"], {}, 3),
        ([f"{RETENTION}=3", f"{RETENTION}=6"], {}, 6),
        ([f"orders:{RETENTION}=4", f"orders:{RETENTION}=7"], {}, 7),
        # A topic's name in server.properties is no broker property.
        ([], {RETENTION: "8"}, 86_400_000),
    ],
)
def test_the_strongest_wins(overrides: list[str], broker: dict[str, str], expected: int) -> None:
    config = topic_config("orders", overrides=[parse_override(text) for text in overrides], broker_properties=broker)
    assert config.delete_retention_ms == expected


@pytest.mark.parametrize(
    ("broker_name", "topic_name", "value", "field", "expected"),
    [
        ("log.cleanup.policy", "cleanup.policy", "compact", "cleanup_policy", frozenset({"compact"})),
        ("log.cleaner.min.cleanable.ratio", "min.cleanable.dirty.ratio", "0.25", "min_cleanable_dirty_ratio", 0.25),
        ("log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms", "7", "min_compaction_lag_ms", 7),
        ("log.cleaner.max.compaction.lag.ms", "max.compaction.lag.ms", "7", "max_compaction_lag_ms", 7),
        (BROKER_RETENTION, RETENTION, "7", "delete_retention_ms", 7),
        ("log.segment.bytes", "segment.bytes", "1048576", "segment_bytes", 1_048_576),
        ("log.index.size.max.bytes", "segment.index.bytes", "77", "segment_index_bytes", 77),
        ("log.index.interval.bytes", "index.interval.bytes", "7", "index_interval_bytes", 7),
    ],
)
def test_a_brokers_names_and_a_topics(
    broker_name: str, topic_name: str, value: str, field: str, expected: object
) -> None:
    for config in (
        topic_config("orders", broker_properties={broker_name: value}),
        topic_config("orders", overrides=[Override(name=broker_name, value=value)]),
        topic_config("orders", overrides=[Override(name=topic_name, value=value)]),
        topic_config("orders", overrides=[Override(name=topic_name, value=value, topic="orders")]),
    ):
        assert getattr(config, field) == expected


def test_what_only_a_broker_has() -> None:
    config = topic_config("orders", broker_properties={"producer.id.expiration.ms": "5", "num.io.threads": "8"})
    assert config.producer_id_expiration_ms == 5


@pytest.mark.parametrize(
    ("text", "policies", "written"),
    [
        ("compact", {"compact"}, "compact"),
        ("Compact", {"compact"}, "compact"),
        ("delete", {"delete"}, "delete"),
        ("compact,delete", {"compact", "delete"}, "compact,delete"),
        (" delete , compact ", {"compact", "delete"}, "compact,delete"),
        ("", set(), ""),
    ],
)
def test_policies(text: str, policies: set[str], written: str) -> None:
    config = topic_config("orders", overrides=[Override(name="cleanup.policy", value=text)])
    assert config.cleanup_policy == frozenset(policies)
    assert config.policy_text == written
    assert config.compacts == ("compact" in policies)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("min.cleanable.dirty.ratio", ["0", "1", "0.5", "1e-3"], ["-0.1", "1.1", "nan", "half", ""]),
        ("min.compaction.lag.ms", ["0", str(LONG_MAX - 1)], ["-1", str(LONG_MAX + 1), "1h"]),
        ("max.compaction.lag.ms", ["1", str(LONG_MAX)], ["0", "-1"]),
        (RETENTION, ["0", str(LONG_MAX)], ["-1", str(LONG_MAX + 1), "1.5"]),
        ("segment.bytes", ["14", "1048576", str(INT_MAX)], ["13", "0", str(INT_MAX + 1)]),
        ("segment.index.bytes", ["4", str(INT_MAX)], ["3", "-1"]),
        ("index.interval.bytes", ["0", str(INT_MAX)], ["-1"]),
        ("cleanup.policy", ["compact", ""], ["compacted", "delete.and.compact", "compact;delete"]),
        ("remote.storage.enable", ["true", "FALSE"], ["yes", "1", ""]),
        ("producer.id.expiration.ms", ["1", str(INT_MAX)], ["0", str(INT_MAX + 1)]),
        ("log.cleaner.dedupe.buffer.size", ["1048577", str(LONG_MAX)], ["0", "-1", str(LONG_MAX + 1), "128m"]),
        ("log.cleaner.threads", ["1", "127"], ["0", "-1", str(INT_MAX + 1)]),
        ("log.cleaner.io.buffer.load.factor", ["0.9", "1", "1.5", "1e-9"], ["0", "-0.5", "nan", "inf", "", "most"]),
    ],
)
def test_values_and_their_bounds(name: str, good: list[str], bad: list[str]) -> None:
    for value in good:
        topic_config("orders", overrides=[Override(name=name, value=value)])
    for value in bad:
        with pytest.raises(ConfigError, match=f"{name}: '{value}'"):
            topic_config("orders", overrides=[Override(name=name, value=value)])


def test_settings_that_cleaning_does_not_use_are_taken() -> None:
    assert topic_config("orders", overrides=[parse_override("compression.type=zstd")]) == TopicConfig()
    assert topic_config("orders", overrides=[parse_override("log.roll.hours=1")]) == TopicConfig()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4", "log.retention.hours": "2"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_in_other_units(properties: dict[str, str], expected: int) -> None:
    assert topic_config("orders", broker_properties=properties).retention_ms == expected
    with pytest.raises(ConfigError, match=r"log\.retention\.hours: 'x'"):
        topic_config("orders", broker_properties=properties | {"log.retention.hours": "x"})


def test_the_lags_must_fit_together() -> None:
    overrides = [parse_override("min.compaction.lag.ms=10"), parse_override("max.compaction.lag.ms=9")]
    with pytest.raises(ConfigError, match=r"max\.compaction\.lag\.ms 9 is less than min\.compaction\.lag\.ms 10"):
        topic_config("orders", overrides=overrides)
    equal = [overrides[0], parse_override("max.compaction.lag.ms=10")]
    assert topic_config("orders", overrides=equal).max_compaction_lag_ms == 10


@pytest.mark.parametrize(
    ("properties", "is_refused"),
    [
        ({"log.cleaner.dedupe.buffer.size": "1048576"}, True),
        ({"log.cleaner.dedupe.buffer.size": "1048577"}, False),
        ({"log.cleaner.dedupe.buffer.size": "4194307", "log.cleaner.threads": "4"}, True),
        ({"log.cleaner.dedupe.buffer.size": "4194308", "log.cleaner.threads": "4"}, False),
        ({"log.cleaner.threads": "128"}, True),
    ],
)
def test_each_cleaner_thread_has_a_mebibyte(properties: dict[str, str], is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(
            ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size: .* must be more than 1 MiB for each"
        ):
            topic_config("orders", broker_properties=properties)
    else:
        topic_config("orders", broker_properties=properties)


def test_the_internal_segment_size_replaces_the_other() -> None:
    both = [parse_override("internal.segment.bytes=500"), parse_override("segment.bytes=1048576")]
    for overrides in (both, both[::-1]):
        assert topic_config("orders", overrides=overrides).segment_bytes == 500


def test_kafkas_own_topics_carry_their_settings() -> None:
    config = topic_config("__consumer_offsets", broker_properties={"log.cleanup.policy": "delete"})
    assert config.compacts
    assert config.segment_bytes == 104_857_600
    changed = topic_config("__consumer_offsets", overrides=[parse_override("segment.bytes=2000000")])
    assert changed.segment_bytes == 2_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cleanup.policy=compact", Override(name="cleanup.policy", value="compact")),
        (" cleanup.policy = compact ", Override(name="cleanup.policy", value="compact")),
        ("orders:cleanup.policy=", Override(name="cleanup.policy", value="", topic="orders")),
        ("a.b-c_d:segment.bytes=1=2", Override(name="segment.bytes", value="1=2", topic="a.b-c_d")),
        ("log.cleanup.policy=compact", Override(name="log.cleanup.policy", value="compact")),
    ],
)
def test_overrides(text: str, expected: Override) -> None:
    assert parse_override(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("cleanup.policy", "is not"),
        ("=compact", "is not"),
        ("orders:=1", "is not"),
        ("cleanup.polciy=compact", "is no topic or broker setting\nDid you mean cleanup.policy"),
        ("orders:log.cleanup.policy=compact", "a broker's setting: it has no topic before it"),
        ("no.such.thing=1", "is no topic or broker setting"),
    ],
)
def test_what_is_no_override(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_override(text)
    assert refused.value.exit_code == 2
