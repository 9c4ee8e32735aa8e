"""`config.topic_configs`: what Kafka's tools print of topics, literally, and the same in JSON; and what is refused."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kcompact.config.settings import TopicOverrides
from kcompact.config.topic_configs import ORIGIN, read_topic_configs
from kcompact.errors import ConfigError, KcompactError, RefusedError, StorageError
from kcompact.log.files import MAX_SMALL_FILE_BYTES
from tests.support.topic_configs import IDS, LAST, NEITHER, SECRET, Topics, read, refusal, values

# What the tools of a release have printed about the same topics. 3.9.2, 4.3.1 and 4.4.0 print the same for CONFIGS.
CONFIGS = """\
Dynamic configs for topic plain are:
Dynamic configs for topic emptypolicy are:
  cleanup.policy= sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=, DEFAULT_CONFIG:log.cleanup.policy=delete}
Dynamic configs for topic _under.score-9 are:
  compression.type=zstd sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:compression.type=zstd, DEFAULT_CONFIG:compression.type=producer}
  leader.replication.throttled.replicas= sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:leader.replication.throttled.replicas=}
  max.compaction.lag.ms=9223372036854775807 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:max.compaction.lag.ms=9223372036854775807, DEFAULT_CONFIG:log.cleaner.max.compaction.lag.ms=9223372036854775807}
  preallocate=true sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:preallocate=true, DEFAULT_CONFIG:log.preallocate=false}
Dynamic configs for topic orders are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}
  min.cleanable.dirty.ratio=0.01 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:min.cleanable.dirty.ratio=0.01, DEFAULT_CONFIG:log.cleaner.min.cleanable.ratio=0.5}
  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1}
Dynamic configs for topic a.dotted-name_x are:
  cleanup.policy=delete,compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete,compact, DEFAULT_CONFIG:log.cleanup.policy=delete}
  follower.replication.throttled.replicas=* sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:follower.replication.throttled.replicas=*}
  leader.replication.throttled.replicas=0:1,1:2 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:leader.replication.throttled.replicas=0:1,1:2}
"""  # noqa: E501
# With --all, of a broker whose file has log.retention.hours=100 and log.cleaner.min.compaction.lag.ms=7; some lines.
CONFIGS_ALL = """\
All configs for topic plain are:
  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}
  flush.ms=9223372036854775807 sensitive=false synonyms={}
  retention.ms=360000000 sensitive=false synonyms={}
{LAST}All configs for topic orders are:
  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, DEFAULT_CONFIG:log.cleanup.policy=delete}
  compression.type=producer sensitive=false synonyms={DEFAULT_CONFIG:compression.type=producer}
  delete.retention.ms=12345 sensitive=false synonyms={DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.delete.retention.ms=12345, DEFAULT_CONFIG:log.cleaner.delete.retention.ms=86400000}
  follower.replication.throttled.replicas= sensitive=false synonyms={}
  index.interval.bytes=8192 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.index.interval.bytes=8192, DEFAULT_CONFIG:log.index.interval.bytes=4096}
  min.compaction.lag.ms=7 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.cleaner.min.compaction.lag.ms=7, DEFAULT_CONFIG:log.cleaner.min.compaction.lag.ms=0}
  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1}
  segment.jitter.ms=0 sensitive=false synonyms={}
{LAST}""".replace("{LAST}", LAST)  # noqa: E501
# 4.3.1 with the same broker. Of its file `log.retention.hours` is missing.
TOPICS = """\
Topic: orders\tTopicId: zYoGl7cOTnaU77jc6n6dBA\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,cleanup.policy=compact,delete,retention.ms=-1,min.compaction.lag.ms=7
\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n\
Topic: a.dotted-name_x\tTopicId: zsR0UDWFSkCWlYGRJPQ6xQ\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: leader.replication.throttled.replicas=0:1,1:2,cleanup.policy=delete,compact,follower.replication.throttled.replicas=*
\tTopic: a.dotted-name_x\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n\
Topic: emptypolicy\tTopicId: Ez6Kev4-R6-2QXJBzcaXww\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: min.insync.replicas=1,cleanup.policy=,min.compaction.lag.ms=7
\tTopic: emptypolicy\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"""  # noqa: E501
# 3.9.2 with ZooKeeper. The topic `odd` has a setting that the broker does not know: foo.bar is `x=y,z w`.
CONFIGS_3_9 = """\
Dynamic configs for topic odd are:
  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact, DEFAULT_CONFIG:log.cleanup.policy=delete}
  foo.bar=null sensitive=true synonyms={DYNAMIC_TOPIC_CONFIG:foo.bar=null}
"""  # noqa: E501
TOPICS_3_9 = """\
Topic: odd\tTopicId: ZTjhfzOkTEGkjlrsBukbiw\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: cleanup.policy=compact,foo.bar=null,segment.ms=7654321
\tTopic: odd\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A
"""  # noqa: E501
ZOOKEEPER_2_8 = """\
Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.
Use --bootstrap-server instead to specify a broker to connect to.
Configs for topic 'orders' are cleanup.policy=compact,delete,retention.ms=-1
Configs for topic 'a.b_c-d' are leader.replication.throttled.replicas=0:1,1:2,follower.replication.throttled.replicas=*
Configs for topic 'plain' are \n\
Configs for topic 'odd' are cleanup.policy=compact,foo.bar=x=y,z w
"""
TOPICS_2_4 = """\
Topic: odd\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: cleanup.policy=compact,foo.bar=x=y,z w
\tTopic: odd\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1
Topic: plain\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n\
\tTopic: plain\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1
"""
TOPICS_2_2 = """\
Topic:orders\tPartitionCount:1\tReplicationFactor:1\tConfigs:cleanup.policy=compact,delete,retention.ms=-1,min.compaction.lag.ms=7
\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1
"""
# By the sources of 2.1 and 0.9.
MARKED = """\
Topic:orders\tPartitionCount:1\tReplicationFactor:1\tConfigs:retention.ms=5\tMarkedForDeletion:true
Topic: plain\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \tMarkedForDeletion: true
\tTopic: plain\tPartition: 0\tLeader: none\tReplicas: 1\tIsr: \tMarkedForDeletion: true
"""
ZOOKEEPER_0_9 = "Configs for topics:orders are retention.ms=5,cleanup.policy=compact\nConfigs for topics:plain are \n"
# A tool of 2.5 with a broker before 1.1, which sends no synonyms.
WITHOUT_SYNONYMS = "Dynamic configs for topic old are:\n  retention.ms=5 sensitive=false synonyms={}\n"

COMPACT, BOTH = {"cleanup.policy": "compact"}, {"cleanup.policy": "compact,delete"}
FIVE, LAG, INSYNC = {"retention.ms": "5"}, {"min.compaction.lag.ms": "7"}, {"min.insync.replicas": "1"}
ORDERS = {**BOTH, "retention.ms": "-1"}
REPLICAS = {"leader.replication.throttled.replicas": "0:1,1:2", "follower.replication.throttled.replicas": "*"}
NO_REPLICAS = {"leader.replication.throttled.replicas": ""}
UNKNOWN = {**COMPACT, "foo.bar": "x=y,z w"}
DOTTED = {"cleanup.policy": "delete,compact", **REPLICAS}
NO_POLICY = {"cleanup.policy": ""}
ZSTD = {"compression.type": "zstd", "preallocate": "true", "max.compaction.lag.ms": "9223372036854775807"}
IN_CONFIGS = {"plain": {}, "emptypolicy": NO_POLICY, "_under.score-9": {**ZSTD, **NO_REPLICAS}}
IN_CONFIGS |= {"orders": {**ORDERS, "min.cleanable.dirty.ratio": "0.01"}, "a.dotted-name_x": DOTTED}
IN_TOPICS = {"orders": {**ORDERS, **INSYNC, **LAG}, "a.dotted-name_x": DOTTED, "emptypolicy": NO_POLICY | INSYNC | LAG}
IN_ZOOKEEPER: Topics = {"orders": ORDERS, "a.b_c-d": REPLICAS, "plain": {}, "odd": UNKNOWN}
PRINTED: dict[str, tuple[str, Topics]] = {
    "kafka-configs": (CONFIGS, IN_CONFIGS),
    "kafka-configs --all": (CONFIGS_ALL, {"plain": {}, "orders": ORDERS}),
    "kafka-configs of 3.9": (CONFIGS_3_9, {"odd": COMPACT}),
    "kafka-configs of 2.8 with ZooKeeper": (ZOOKEEPER_2_8, IN_ZOOKEEPER),
    "kafka-configs of 0.9": (ZOOKEEPER_0_9, {"orders": {**FIVE, **COMPACT}, "plain": {}}),
    "a broker without synonyms": (WITHOUT_SYNONYMS, {"old": FIVE}),
    "kafka-topics": (TOPICS, IN_TOPICS),
    "kafka-topics of 3.9": (TOPICS_3_9, {"odd": {**COMPACT, "segment.ms": "7654321"}}),
    "kafka-topics of 2.4": (TOPICS_2_4, {"odd": UNKNOWN, "plain": {}}),
    "kafka-topics of 2.2": (TOPICS_2_2, {"orders": {**ORDERS, **LAG}}),
    "topics that are being deleted": (MARKED, {"orders": FIVE, "plain": {}}),
}
# What is read


@pytest.mark.parametrize(("text", "expected"), PRINTED.values(), ids=PRINTED)
def test_what_the_tools_print(text: str, expected: Topics) -> None:
    assert values(text) == expected
    assert {each.origin for each in read(text).values()} == {ORIGIN}


def test_ids_of_topics() -> None:
    assert {topic: each.topic_id for topic, each in read(TOPICS).items()} == dict(zip(IN_TOPICS, IDS, strict=True))
    for text in (CONFIGS, TOPICS_2_4, ZOOKEEPER_2_8, '{"orders": {}}'):
        assert {each.topic_id for each in read(text).values()} == {None}


def test_the_output_of_several_commands() -> None:
    """Also of different ones, and of the same topic if nothing contradicts; the id counts wherever it is."""
    orders = DESCRIBED.replace(" t\t", " orders\t") + "retention.ms=-1,cleanup.policy=compact,delete\n"
    joined = CONFIGS_ALL + orders + ZOOKEEPER_2_8 + "\n \n" + CONFIGS_3_9.replace("topic odd", "topic o")
    assert values(joined) == {**IN_ZOOKEEPER, "o": COMPACT}
    for text in (joined, orders + CONFIGS_ALL):
        assert read(text)["orders"] == TopicOverrides(values=ORDERS, origin=ORIGIN, topic_id=IDS[0])


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "lines of Windows": lambda text: text.replace("\n", "\r\n").encode(),
    "lines of the old Mac": lambda text: text.replace("\n", "\r").encode(),
    "mixed lines": lambda text: text.replace("\n", "\r\n", 2).replace("are:\n", "are:\r").encode(),
    "UTF-8 with a mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "UTF-16, little": lambda text: codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le"),
    "UTF-16, big": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "no last end of line": lambda text: re.sub(r"(\}|N/A)\n\Z", r"\1", text).encode(),
    "without indentation": lambda text: re.sub(r"^\s+", "", text, flags=re.MULTILINE).encode(),
    "spaces at the ends": lambda text: text.replace("\n", "  \n").encode(),
}


@pytest.mark.parametrize("encoded", ENCODINGS.values(), ids=ENCODINGS)
def test_encodings(encoded: Callable[[str], bytes]) -> None:
    for text in (CONFIGS, CONFIGS_ALL, TOPICS, ZOOKEEPER_2_8, JSON):
        assert read(encoded(text)) == read(text)


def test_tabs_that_a_terminal_has_made_spaces() -> None:
    for text in (TOPICS, TOPICS_2_2, MARKED):
        assert read(text.replace("\t", "    ")) == read(text)


WARNINGS = [
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
    "Only topic id will be used when both --topic and --topic-id are specified and topicId is not Uuid.ZERO_UUID",
    "OpenJDK 64-Bit Server VM warning: Option UseBiasedLocking was deprecated in version 15.0",
    "Java HotSpot(TM) 64-Bit Server VM warning: ignoring option MaxPermSize=256m; support was removed in 8.0",
    "Picked up JAVA_TOOL_OPTIONS: -Da=b",
    "Picked up _JAVA_OPTIONS: -Xmx1g",
    "NOTE: Picked up JDK_JAVA_OPTIONS: -Da=b",
    'SLF4J: Failed to load class "org.slf4j.impl.StaticLoggerBinder".',
    "log4j:WARN Please initialize the log4j system properly.",
    "[2026-01-02 03:04:05,678] WARN [AdminClient clientId=adminclient-1] Connection to node -1 failed.",
]


@pytest.mark.parametrize("warning", WARNINGS)
def test_warnings_among_the_lines(warning: str) -> None:
    for text in (CONFIGS, TOPICS, ZOOKEEPER_2_8):
        assert read(text.replace("\n", f"\n{warning}\n")) == read(text)
    assert refusal(f"{warning}\n") == "no topic with its settings in this file"


LIKE_WARNINGS = [
    *(f"x{warning}" for warning in WARNINGS),
    *(warning[:6] for warning in WARNINGS),
    *(f"{warning} x" for warning in WARNINGS[:3]),
    "[2026-01-02 03:04:05,678] ERROR WARN x",
    *("[2026-01-02 03:04:05] WARN x", "WARN x", "A VM warning: x"),
    "OpenJDK 64-Bit Server VM (build 17.0.15+6, mixed mode)",
]


@pytest.mark.parametrize("line", LIKE_WARNINGS)
def test_what_only_looks_like_a_warning(line: str) -> None:
    assert refusal(f"{TOPICS}{line}\n").startswith("line 7: neither a topic nor a setting of one: ")


# JSON

JSON = """
{
  "orders": {"cleanup.policy": "compact", "retention.ms": -1, "min.cleanable.dirty.ratio": 0.50, "preallocate": true},
  "a.b_c-d": {"cleanup.policy": "compact,delete", "remote.storage.enable": false, "segment.ms": null, "x.y": "null"},
  "plain": {}
}
"""


def test_json() -> None:
    orders = {**COMPACT, "retention.ms": "-1", "min.cleanable.dirty.ratio": "0.50", "preallocate": "true"}
    others = {"a.b_c-d": {**BOTH, "remote.storage.enable": "false", "x.y": "null"}, "plain": {}}
    assert values(JSON) == {"orders": orders, **others}
    assert {each.origin for each in read(JSON).values()} == {ORIGIN}


def test_numbers_in_json_stay_as_they_are_written() -> None:
    numbers = {"x.a": "9" * 5000, "x.b": "1e3", "x.c": "-0.10", "x.d": "0"}
    assert values(f'{{"t": {{"x.a": {numbers["x.a"]}, "x.b": 1e3, "x.c": -0.10, "x.d": 0}}}}') == {"t": numbers}
    assert values('{"t": {"x.a": 1, "x.a": "1"}, "t": {"x.a": 1}}') == {"t": {"x.a": "1"}}


NO_SETTING = "of 't' is no setting of a topic"
BAD_JSON = {
    "a colon too many": ('{"t": {\n"a":: 1\n}}', "line 2: not valid JSON: "),
    "lines of the old Mac": ('{"t": {\r"a" 1}}', "line 2: not valid JSON: Expecting ':' delimiter"),
    "an end too early": ('{"t": {"a": 1}', "line 1: not valid JSON: "),
    "more after it": ('{"t": {}}\n\n{}', "line 3: not valid JSON: Extra data"),
    "no topic": ("{}", "no topic with its settings in this file"),
    "the settings are no object": ('{"t": [1]}', "line 1: 't' has no object with settings"),
    "no settings": ('{"t": null}', "line 1: 't' has no object with settings"),
    "another JSON file of Kafka": ('{"version": 1, "partitions": []}', "line 1: 'version' has no object with settings"),
    "a list": ('{"t": {"x.a": ["x"]}}', "line 1: 'x.a' of 't' is neither text, nor a number, nor a boolean"),
    "no number": ('{"t": {"x.a": NaN}}', "line 1: 'x.a' of 't' is neither text, nor a number, nor a boolean"),
    "in the third line": ('{"t": {},\n "s": {},\n "v": []}', "line 3: 'v' has no object with settings"),
    "a name with a blank": ('{"a b": {}}', "line 1: not a valid name of a topic: 'a b'"),
    "no name": ('{"": {}}', "line 1: not a valid name of a topic: ''"),
    "a name in capitals": ('{"t": {"CLEANUP.POLICY": ""}}', f"line 1: 'CLEANUP.POLICY' {NO_SETTING}; did you mean"),
    "a name of a shell": (
        '{"t": {"RETENTION_MS": 1}}',
        f"line 1: 'RETENTION_MS' {NO_SETTING}; did you",
    ),
    "a policy for a name": ('{"t": {"compact": true}}', f"line 1: 'compact' {NO_SETTING}"),
    "no policy": ('{"t": {"cleanup.policy": null}}', "line 1: 'cleanup.policy' of 't' has no value; leave it out"),
    "two topics": ('{"t": {"a": 1}, "t": {"a": 2}}', "JSON: 't' is there twice, with different values"),
    "two settings": ('{"t": {"a": 1, "a": 2}}', "JSON: 'a' is there twice, with different values"),
    "levels": ('{"t":' * 200_000, "JSON with too many levels"),
}


@pytest.mark.parametrize(("text", "problem"), BAD_JSON.values(), ids=BAD_JSON)
def test_what_is_wrong_with_json(text: str, problem: str) -> None:
    assert refusal(text).startswith(problem)


# What is refused

HEADER = "Dynamic configs for topic t are:\n"
RETENTION = "  retention.ms=5 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5}\n"
DESCRIBED = "Topic: t\tTopicId: zYoGl7cOTnaU77jc6n6dBA\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: "
OTHER_ENTITIES = {
    # As printed by 4.3.1.
    "Dynamic configs for broker 1 are:": "broker 1",
    "Default configs for brokers in the cluster are:": "brokers in the cluster",
    "Quota configs for client-id 'cl' are producer_byte_rate=1024.0": "client-id 'cl'",
    "SCRAM credential configs for user-principal 'alice' are SCRAM-SHA-256=iterations=4096": "user-principal 'alice'",
    # By the sources.
    "All configs for broker-logger 1 are:": "broker-logger 1",
    "Quota configs for the default ip are connection_creation_rate=1.0": "the default ip",
    # Before 2.5.
    "Configs for broker 1 are:": "broker 1",
}
NEITHER_LINES = {
    "Error while executing topic command : Topic 'nope' does not exist": "Error while executing topic command :...",
    "The topic 'nope' doesn't exist and doesn't have dynamic config.": "The topic 'nope' doesn't exist and doesn...",
    "Topic nope doesn't exist!": "Topic nope doesn't exist!",
    "orders": "orders",
    "retention.ms=5": "retention.ms=...",
    "\x1b[2J\u202e": "\\x1b[2J\\u202e",
    "[2026-01-02 03:04:05,678] ERROR Something": "[2026-01-02 03:...",
    DESCRIBED.replace("Count: 1", "Count: x"): "Topic:...",
    DESCRIBED.replace("Configs:", ""): "Topic:...",
    "\tTopic: t\tPartition: x\tLeader: 1": "Topic:...",
    "  a=b sensitive=maybe synonyms={}": "a=...",
    "  a=b sensitive=true synonyms={": "a=...",
    "  a=b sensitive=true synonyms={} c": "a=...",
    "  a b=b sensitive=true synonyms={}": "a b=...",
    # The synonym must have the name and the value of the line.
    "  a=b sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:a=c}": "a=...",
    "  a=b sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:b=b}": "a=...",
    "  a=b sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:a=bb}": "a=...",
}
BAD_LINES = {line: f"{NEITHER}'{shown}'" for line, shown in NEITHER_LINES.items()} | {
    "Dynamic configs for topic a b are:": "not a valid name of a topic: 'a b'",
    "Configs for topic 'a b' are a=b": "not a valid name of a topic: 'a b'",
    "Configs for topic '' are a=b": "not a valid name of a topic: ''",
    "Dynamic configs for topic .. are:": "not a valid name of a topic: '..'",
    f"All configs for topic {'x' * 250} are:": f"not a valid name of a topic: '{'x' * 40}...'",
    "Configs for topic 'x' are a": "not NAME=VALUE in the settings of 'x': 'a'",
    "Configs for topic 'x' are =a": "not NAME=VALUE in the settings of 'x': '=...'",
    "Configs for topic 'x' are a=b,a=c": "'a' has had another value",
    DESCRIBED + "a": "not NAME=VALUE in the settings of 't': 'a'",
    DESCRIBED + "cleanup.policy=null": "Kafka does not show the value of 'cleanup.policy'",
    DESCRIBED.replace(": t", ": é"): "not a valid name of a topic: 'é'",
    DESCRIBED.replace("dBA", "d:A"): "'zYoGl7cOTnaU77jc6n6d:...' is not a topic id",
    DESCRIBED.replace("TopicId: ", "TopicId: x"): "'xzYoGl7cOTnaU77jc6n6dBA' is not a topic id",
}


@pytest.mark.parametrize(("line", "entity"), OTHER_ENTITIES.items(), ids=OTHER_ENTITIES)
def test_settings_of_something_else(line: str, entity: str) -> None:
    assert refusal(f"{line}\n") == f"line 1: the settings of {entity}, not of a topic"
    assert refusal(f"{CONFIGS}{line}\n") == f"line 17: the settings of {entity}, not of a topic"


@pytest.mark.parametrize(("line", "problem"), BAD_LINES.items())
def test_wrong_lines(line: str, problem: str) -> None:
    assert refusal(f"{HEADER}{RETENTION}\n{line}\n") == f"line 4: {problem}"


NO_TOPIC_ABOVE = "a setting without a topic above it: 'retention.ms'"
ORDERS_AGAIN = f"{HEADER}{RETENTION}Dynamic configs for topic orders are:\n{RETENTION}"
PARTITION = "\tTopic: orders\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: \n"
HIDDEN = RETENTION.replace("=5", "=null")
HIDDEN_2 = HIDDEN.replace("retention", "segment")
FAILED = "no settings of 'nope' below: the tool has failed here"
UNCLEAR = "the broker does not say which settings are overrides: run kafka-configs.sh without --all"
LAST_IS_MISSING = "no segment.ms of 'orders' below: the output is cut off"
NO_TOPICS = "is no setting of a topic; did you mean cleanup.policy?"
ALL_NOTHING = "All configs for topic nope are:\n"
ALL_UNCLEAR = "All configs for topic old are:\n  cleanup.policy=compact sensitive=false synonyms={}\n"
ANOTHER_ID = f"{DESCRIBED}\n{HEADER}{DESCRIBED.replace('zYo', 'zYp')}\n"
BAD_FILES = {
    "an empty file": ("", "the file is empty"),
    "blank lines": (" \r\n\t\n", "the file is empty"),
    "only a mark": (codecs.BOM_UTF8, "the file is empty"),
    "only partitions": (PARTITION, "no topic with its settings in this file"),
    "a setting first": (f"\n{RETENTION}", f"line 2: {NO_TOPIC_ABOVE}"),
    "a setting below kafka-topics": (f"{HEADER}{TOPICS}{RETENTION}", f"line 8: {NO_TOPIC_ABOVE}"),
    "a setting below ZooKeeper": (f"{ZOOKEEPER_0_9}{RETENTION}", f"line 3: {NO_TOPIC_ABOVE}"),
    "all settings cut off": (
        ALL_NOTHING + RETENTION,
        "line 1: no cleanup.policy of 'nope' below: the output is cut off",
    ),
    "a name alone": (HEADER, "line 1: no settings of 't' below: so ends also a tool that has failed"),
    "two values": (f"{HEADER}{RETENTION}{HIDDEN.replace('null', '6')}", "line 3: 'retention.ms' has had another value"),
    "a hidden value": (HEADER + HIDDEN, "line 2: Kafka does not show the value of 'retention.ms'"),
    "a hidden value of a forecast": (HEADER + HIDDEN_2, "line 2: Kafka does not show the value of 'segment.ms'"),
    "other settings": (f"{CONFIGS}\n{ORDERS_AGAIN}", "line 20: 'orders' differs from what line 9 says of it"),
    "fewer settings": (HEADER + RETENTION + HEADER, "line 3: 't' differs from what line 1 says of it"),
    "more settings": (HEADER + HEADER + RETENTION, "line 2: 't' differs from what line 1 says of it"),
    "other settings in a line": (f"{HEADER}{DESCRIBED}a=b\n", "line 2: 't' differs from what line 1 says of it"),
    "a list that is cut off": (f"{DESCRIBED}retention.ms=60", "line 1: cut off: it has no end of line"),
    "another id": (ANOTHER_ID, "line 3: 't' differs from what line 1 says of it"),
    # 3.9.2 and 4.3.1 print this and fail, when the topic does not exist.
    "no settings among all": (ALL_NOTHING, f"line 1: {FAILED}"),
    "none of the last topic": (CONFIGS_ALL + ALL_NOTHING, f"line 30: {FAILED}"),
    "all settings, cut off": (CONFIGS_ALL[: CONFIGS_ALL.rindex("  segment.ms")], f"line 13: {LAST_IS_MISSING}"),
    "the next line begun": (f"{HEADER}{RETENTION}  ", "line 3: cut off: it has no end of line"),
    "capitals": (
        HEADER + RETENTION.replace("ret", "RET"),
        "line 2: 'RETention.ms' is no setting of a topic; did you mean retention.ms?",
    ),
    "a name of the broker": (f"{DESCRIBED}log.cleanup.policy=compact\n", f"line 1: 'log.cleanup.policy' {NO_TOPICS}"),
    "a name of a shell": (f"{DESCRIBED}cleanup_policy=compact\n", f"line 1: 'cleanup_policy' {NO_TOPICS}"),
    "all settings, but no synonyms": (ALL_UNCLEAR, f"line 2: {UNCLEAR}"),
    "Latin-1": (b"\n\nM\xfcnchen\n", "line 3: not UTF-8"),
    "not UTF-8 after a mark": (codecs.BOM_UTF8 + b"\r\n\r\xff", "line 3: not UTF-8"),
    "half a letter of UTF-16": ("a\r\nb".encode("utf-16") + b"\n", "line 2: not UTF-16"),
    "UTF-16 without a mark": ("ab\n".encode("utf-16-le"), f"line 1: {NEITHER}'a\\x00b\\x00'"),
    "a list in JSON": ("[]", f"line 1: {NEITHER}'[]'"),
}


@pytest.mark.parametrize(("content", "problem"), BAD_FILES.values(), ids=BAD_FILES)
def test_wrong_files(content: str | bytes, problem: str) -> None:
    assert refusal(content) == problem


def test_the_hint_says_what_is_accepted(tmp_path: Path) -> None:
    for text in ("", "orders\n", "{", '{"t": 1}', "\tTopic: t\tPartition: 0\tLeader: 1\n"):
        (file := tmp_path / "topics.txt").write_text(text)
        with pytest.raises(ConfigError, match=r"kafka-configs\.sh --describe --entity-type topics") as refused:
            read_topic_configs(file)
        assert "kafka-topics.sh --describe" in refused.value.hint
        assert (refused.value.exit_code, "JSON" in refused.value.hint) == (2, True)


SECRETS = [
    f"sasl.jaas.config={SECRET}",
    f"password: {SECRET}",
    f"a long text of which more than the start may be secret {SECRET}",
    f"  a={SECRET} sensitive=false synonyms={{DYNAMIC_TOPIC_CONFIG:a=b}}",
    f"Configs for user-principal 'x' are SCRAM-SHA-256={SECRET}",
    f"Configs for user-principal 'x={SECRET}' are ",
    f"Configs for topic 't' are a={SECRET},a=b",
    f"Configs for topic 't' are ={SECRET}",
    f"Configs for topic 'a:{SECRET}' are ",
    f"{DESCRIBED}a={SECRET},a=b",
    f"Topic: t\tTopicId: x={SECRET}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: ",
    f'{{"t": {{"a": "{SECRET}", "a": 1}}}}',
    f'{{"t": {{"a": ["{SECRET}"]}}}}',
    f'{{"a={SECRET}": {{}}}}',
    f'{{"t": {{"a": "{SECRET}" 1}}}}',
    f'{{"t": "{SECRET}"}}',
    f'{{"t": {{"a": "\\{SECRET}"}}}}',
]


@pytest.mark.parametrize("text", SECRETS)
def test_values_are_not_shown(text: str) -> None:
    assert SECRET not in refusal(text)


# Which file


def test_links_are_followed(tmp_path: Path) -> None:
    """Kubernetes mounts files as links."""
    (tmp_path / "topics.txt").write_text(CONFIGS)
    (tmp_path / "link").symlink_to("topics.txt")
    assert read_topic_configs(tmp_path / "link") == read_topic_configs(str(tmp_path / "topics.txt")) == read(CONFIGS)


def large(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(MAX_SMALL_FILE_BYTES + 1)


NOT_READ: dict[str, tuple[Callable[[Path], object], type[KcompactError], str]] = {
    "a directory": (Path.mkdir, RefusedError, "not a regular file"),
    "a pipe": (os.mkfifo, RefusedError, "not a regular file"),
    "too large": (large, RefusedError, "larger than 67,108,864 bytes"),
    "a link to itself": (lambda file: file.symlink_to(file.name), RefusedError, "a symbolic link"),
    "missing": (lambda file: None, StorageError, "No such file"),
}


@pytest.mark.parametrize(("make", "kind", "problem"), NOT_READ.values(), ids=NOT_READ)
def test_files_that_are_not_read(
    make: Callable[[Path], object], kind: type[KcompactError], problem: str, tmp_path: Path
) -> None:
    make(tmp_path / "topics.txt")
    with pytest.raises(kind, match=problem) as refused:
        read_topic_configs(tmp_path / "topics.txt")
    assert type(refused.value) is kind
    assert str(refused.value).startswith(f"{tmp_path / 'topics.txt'}: ")


def test_an_address_is_no_local_path() -> None:
    with pytest.raises(ConfigError, match="only a local path"):
        read_topic_configs("s3://bucket/topics.txt")
