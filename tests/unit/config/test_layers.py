"""`config.layers`: the strongest source wins, broker and topic names, settings that contradict each other."""

from __future__ import annotations

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import (
    UNKNOWN_OVERRIDES,
    DynamicConfig,
    Override,
    Source,
    TopicOverrides,
    parse_override,
)
from kcompact.errors import ConfigError
from tests.support.log_writer import NO_OVERRIDES

RETENTION = "delete.retention.ms"
BROKER_RETENTION = "log.cleaner.delete.retention.ms"


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
        # server.properties has no topic settings.
        ([], {RETENTION: "8"}, 86_400_000),
    ],
)
def test_the_strongest_source_wins(overrides: list[str], broker: dict[str, str], expected: int) -> None:
    overrides_of = [parse_override(text) for text in overrides]
    for own in (UNKNOWN_OVERRIDES, NO_OVERRIDES):
        config = topic_config("orders", overrides=overrides_of, own=own, broker_properties=broker)
        assert config.delete_retention_ms == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], 5),
        ([f"{RETENTION}=3"], 5),
        ([f"{BROKER_RETENTION}=3"], 5),
        ([f"orders:{RETENTION}=3"], 3),
        ([f"ord*:{RETENTION}=3"], 3),
        ([f"*:{RETENTION}=3"], 3),
        ([f"Ord*:{RETENTION}=3"], 5),
        ([f"orders:{RETENTION}=3", f"*:{RETENTION}=4"], 4),
    ],
)
def test_what_a_topic_has_of_its_own_gives_way_to_its_name_only(overrides: list[str], expected: int) -> None:
    own = TopicOverrides(values={RETENTION: "5"}, origin="metadata-log")
    config = topic_config("orders", overrides=[parse_override(text) for text in overrides], own=own)
    assert config.delete_retention_ms == expected


OF_THE_BROKER = {"log.cleanup.policy": "compact,delete", "log.retention.ms": "7", "log.retention.bytes": "8"}
OF_ALL_BROKERS = DynamicConfig(origin="metadata-log", layers=[(Source.CLUSTER_DEFAULT, OF_THE_BROKER)])
UNKNOWN = (None, None, None)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], UNKNOWN),
        (["log.cleanup.policy=compact", "log.retention.ms=1", "log.retention.bytes=2"], UNKNOWN),
        (["other:cleanup.policy=compact"], UNKNOWN),
        (["cleanup.policy=compact"], ("compact", None, None)),
        (["orders:cleanup.policy=delete", "cleanup.policy=compact", "retention.ms=3"], ("delete", 3, None)),
        (["or*:retention.ms=3", "retention.bytes=4"], (None, 3, 4)),
    ],
)
def test_no_value_for_all_topics_is_the_policy_or_the_retention_of_one_that_nobody_knows(
    overrides: list[str], expected: tuple[object, ...]
) -> None:
    parsed = [parse_override(text) for text in overrides]
    for dynamic in (None, OF_ALL_BROKERS):
        config = topic_config("orders", overrides=parsed, broker_properties=OF_THE_BROKER, dynamic=dynamic)
        assert (config.policy_text, config.retention_ms, config.retention_bytes) == expected
    known = topic_config("orders", own=NO_OVERRIDES, broker_properties=OF_THE_BROKER)
    assert (known.policy_text, known.retention_ms, known.retention_bytes) == ("compact,delete", 7, 8)


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
def test_broker_names_and_topic_names(
    broker_name: str, topic_name: str, value: str, field: str, expected: object
) -> None:
    for config in (
        topic_config("orders", own=NO_OVERRIDES, broker_properties={broker_name: value}),
        topic_config("orders", own=NO_OVERRIDES, overrides=[Override(name=broker_name, value=value)]),
        topic_config("orders", overrides=[Override(name=topic_name, value=value)]),
        topic_config("orders", overrides=[Override(name=topic_name, value=value, topic="orders")]),
    ):
        assert getattr(config, field) == expected


def test_a_setting_that_only_brokers_have() -> None:
    config = topic_config("orders", broker_properties={"producer.id.expiration.ms": "5", "num.io.threads": "8"})
    assert config.producer_id_expiration_ms == 5


def test_settings_that_cleaning_does_not_use_are_accepted() -> None:
    for text in ("compression.type=zstd", "log.flush.interval.ms=1"):
        assert topic_config("orders", overrides=[parse_override(text)]) == topic_config("orders")


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
    assert topic_config("orders", own=NO_OVERRIDES, broker_properties=properties).retention_ms == expected
    with pytest.raises(ConfigError, match=r"log\.retention\.hours: 'x'"):
        topic_config("orders", broker_properties=properties | {"log.retention.hours": "x"})


def test_the_lags_must_not_contradict_each_other() -> None:
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
def test_each_cleaner_thread_needs_more_than_a_mebibyte(properties: dict[str, str], is_refused: bool) -> None:
    if is_refused:
        with pytest.raises(
            ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size: .* must be more than 1 MiB for each"
        ):
            topic_config("orders", broker_properties=properties)
    else:
        topic_config("orders", broker_properties=properties)


def test_internal_segment_bytes_replaces_segment_bytes() -> None:
    both = [parse_override("internal.segment.bytes=500"), parse_override("segment.bytes=1048576")]
    for overrides in (both, both[::-1]):
        assert topic_config("orders", overrides=overrides).segment_bytes == 500


def test_internal_topics_have_their_own_defaults() -> None:
    config = topic_config("__consumer_offsets", broker_properties={"log.cleanup.policy": "delete"})
    assert config.compacts
    assert config.segment_bytes == 104_857_600
    for text, expected in (("segment.bytes", 104_857_600), ("__consumer_offsets:segment.bytes", 2_000_000)):
        changed = topic_config("__consumer_offsets", overrides=[parse_override(f"{text}=2000000")])
        assert changed.segment_bytes == expected


@pytest.mark.parametrize(
    ("topic", "policy", "retention_ms"),
    [
        ("__consumer_offsets", "compact", None),
        ("__transaction_state", "compact", None),
        ("__share_group_state", "delete", -1),
    ],
)
def test_internal_topics_have_what_their_coordinator_gave_them(
    topic: str, policy: str, retention_ms: int | None
) -> None:
    """Their own retention may be anything else: that of the broker's file is not theirs."""
    config = topic_config(topic, broker_properties={"log.cleanup.policy": "delete", "log.retention.bytes": "5"})
    assert (config.policy_text, config.retention_ms, config.segment_bytes) == (policy, retention_ms, 104_857_600)
    assert config.retention_bytes is None
    for_all = parse_override("cleanup.policy=delete"), parse_override("*:cleanup.policy=delete")
    assert topic_config(topic, overrides=for_all).policy_text == policy
    assert topic_config(topic, overrides=[parse_override("__*:cleanup.policy=compact,delete")]).policy_text != policy
