"""`config.settings`: Kafka's defaults, the bounds of each value, and the form of an override."""

from __future__ import annotations

import pytest

from kcompact.config.layers import topic_config
from kcompact.config.settings import INT_MAX, LONG_MAX, Override, TopicConfig, parse_override
from kcompact.errors import ConfigError
from tests.support.log_writer import NO_OVERRIDES


def test_kafkas_defaults() -> None:
    config = topic_config("orders")
    assert config == TopicConfig(retention_bytes=None, retention_ms=None)
    assert topic_config("orders", own=NO_OVERRIDES).policy_text == "delete"
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
    ("text", "policies", "written"),
    [
        ("compact", {"compact"}, "compact"),
        ("delete", {"delete"}, "delete"),
        ("compact,delete", {"compact", "delete"}, "compact,delete"),
        (" delete\t, compact\x00", {"compact", "delete"}, "compact,delete"),
        ("compact,compact", {"compact"}, "compact"),
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
        ("min.cleanable.dirty.ratio", ["0", "1", "0.9d", "0x1p-1", "NaN"], ["-0.1", "1.1", "nan", "half", ""]),
        ("min.compaction.lag.ms", ["0", str(LONG_MAX - 1)], ["-1", str(LONG_MAX + 1), "1h"]),
        ("max.compaction.lag.ms", ["1", str(LONG_MAX)], ["0", "-1"]),
        ("delete.retention.ms", ["0", str(LONG_MAX)], ["-1", str(LONG_MAX + 1), "1.5"]),
        ("segment.bytes", ["14", "1048576", str(INT_MAX)], ["13", "0", str(INT_MAX + 1)]),
        ("segment.index.bytes", ["4", str(INT_MAX)], ["3", "-1"]),
        ("index.interval.bytes", ["0", str(INT_MAX)], ["-1"]),
        (
            "cleanup.policy",
            ["compact", ""],
            ["compacted", "compact;delete", "Compact", "compact,", ",", "compact,\xa0delete"],
        ),
        ("remote.storage.enable", ["true", " FALSE\t", "fal\u017fe"], ["yes", "1", "", "true\xa0"]),
        ("producer.id.expiration.ms", ["1", str(INT_MAX)], ["0", str(INT_MAX + 1)]),
        ("log.cleaner.dedupe.buffer.size", ["1048577", str(LONG_MAX)], ["0", "-1", str(LONG_MAX + 1), "128m"]),
        ("log.cleaner.threads", ["1", "127"], ["0", "-1", str(INT_MAX + 1)]),
        ("log.cleaner.io.buffer.load.factor", ["0.9", "1.5", "0", "-1", "NaN", "Infinity"], ["nan", "inf", "", "most"]),
        ("log.cleaner.threads", ["+5", "\u0665", " 5 "], ["1_0", "\xa05", "\U0001d7d3", "5.0", "-", "0x5"]),
        ("log.retention.hours", ["-1", "-9", "1", str(INT_MAX)], ["0", str(INT_MAX + 1), ""]),
        ("log.retention.ms", ["-1", str(-LONG_MAX), "1", str(LONG_MAX)], ["0", str(LONG_MAX + 1), "1h"]),
        ("log.roll.hours", ["1", str(INT_MAX)], ["0", "-1", str(INT_MAX + 1)]),
        ("log.roll.jitter.hours", ["0"], ["-1"]),
    ],
)
def test_values_and_their_bounds(name: str, good: list[str], bad: list[str]) -> None:
    for value in good:
        topic_config("orders", overrides=[Override(name=name, value=value)])
    for value in bad:
        with pytest.raises(ConfigError, match=f"{name}: '{value}'"):
            topic_config("orders", overrides=[Override(name=name, value=value)])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cleanup.policy=compact", Override(name="cleanup.policy", value="compact")),
        (" cleanup.policy = compact ", Override(name="cleanup.policy", value="compact")),
        ("orders:cleanup.policy=", Override(name="cleanup.policy", value="", topic="orders")),
        ("a.b-c_d:segment.bytes=1=2", Override(name="segment.bytes", value="1=2", topic="a.b-c_d")),
        ("log.cleanup.policy=compact", Override(name="log.cleanup.policy", value="compact")),
        ("cleanup.policy=\tcompact\xa0", Override(name="cleanup.policy", value="compact\xa0")),
        ("num.io.threads=8", Override(name="num.io.threads", value="8")),
        ("max.message.bytes=8", Override(name="max.message.bytes", value="8")),
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
        ("cleanup.polciy=compact", "is neither a topic setting nor a broker .*\nDid you mean cleanup.policy"),
        ("log.cleaner.io.bufer.size=1", "is neither .*\nDid you mean log.cleaner.io.buffer.size"),
        ("log.cleanup.polcy=compact", "is neither .*\nDid you mean log.cleanup.policy"),
        ("num.io.treads=8", "is neither .*\nDid you mean num.io.threads"),
        ("orders:num.io.threads=8", "is a broker setting and holds for all topics"),
        ("orders:log.cleanup.policy=compact", "is a broker setting and holds for all topics"),
        ("no.such.thing=1", "is neither a topic setting nor a broker setting of Kafka$"),
    ],
)
def test_malformed_overrides(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        parse_override(text)
    assert refused.value.exit_code == 2
