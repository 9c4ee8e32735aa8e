"""The files of `--topic-configs`: reads them, and prints topics as the tools of Kafka do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from kcompact.config.settings import TopicOverrides
from kcompact.config.topic_configs import read_topic_configs
from kcompact.errors import ConfigError
from tests.support.files_in_memory import directory_in_memory

Topics = Mapping[str, Mapping[str, str]]
Form = Callable[[Topics], str]

NEITHER = "neither a topic nor a setting of one: "
SECRET = "hunter2"
IDS = ("zYoGl7cOTnaU77jc6n6dBA", "zsR0UDWFSkCWlYGRJPQ6xQ", "Ez6Kev4-R6-2QXJBzcaXww")


def read(content: str | bytes) -> dict[str, TopicOverrides]:
    with directory_in_memory() as directory:
        file = directory / "topics.txt"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_topic_configs(file)


def values(content: str | bytes) -> dict[str, dict[str, str]]:
    return {topic: dict(each.values) for topic, each in read(content).items()}


def refusal(content: str | bytes) -> str:
    """Return the message about a file, without its name and the hint."""
    with pytest.raises(ConfigError) as refused:
        read(content)
    where, _, problem = str(refused.value).split("\n")[0].partition("topics.txt: ")
    assert f"{where}topics.txt" == refused.value.path
    return problem


def form(of_topic: Callable[[str, Mapping[str, str]], str]) -> Form:
    """Return the form in which a tool prints topics, of the one in which it prints a topic."""
    return lambda topics: "".join(of_topic(topic, settings) for topic, settings in topics.items())


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(
        f"  {name}={value} sensitive={str(not value).lower()} synonyms={{DYNAMIC_TOPIC_CONFIG:{name}={value}"
        + (f", DEFAULT_CONFIG:log.{name}=delete}}\n" if len(name) % 2 else "}\n")
        for name, value in settings.items()
    )


def _list(settings: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in settings.items())


FIRST = "  a.b=x y, DYNAMIC_TOPIC_CONFIG:z=1 sensitive=false synonyms={STATIC_BROKER_CONFIG:log.a.b=x y}\n"
LAST = "".join(
    f"  {name}=0 sensitive=false synonyms={{}}\n"
    for name in (
        *("delete.retention.ms", "index.interval.bytes", "min.cleanable.dirty.ratio", "min.compaction.lag.ms"),
        *("retention.bytes", "retention.ms", "segment.bytes", "segment.ms"),
    )
)
"""Some of the settings that every topic has, as the broker's."""
POLICY_OF_BROKER = "  cleanup.policy=delete sensitive=false synonyms={DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
# Rule: ConfigCommand.describeResourceConfig, ConfigCommand.describeConfigWithZk.
as_configs = form(lambda topic, settings: f"Dynamic configs for topic {topic} are:\n{_lines(settings)}")
as_all_configs = form(
    lambda topic, settings: f"All configs for topic {topic} are:\n{FIRST}{POLICY_OF_BROKER}{_lines(settings)}{LAST}"
)
as_zookeeper_configs = form(lambda topic, settings: f"Configs for topic '{topic}' are {_list(settings)}\n")
# Rule: TopicCommand.printDescription; TopicCommand.describeTopic of 2.3.
as_topics = form(
    lambda topic, settings: (
        f"Topic: {topic}\tTopicId: {IDS[0]}\tPartitionCount: 2\tReplicationFactor: 3\tConfigs: {_list(settings)}\n"
        f"\tTopic: {topic}\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1\tElr: N/A\tLastKnownElr: N/A\n"
        f"\tTopic: {topic}\tPartition: 12\tLeader: 12\tReplicas: 12\tIsr: \n"
    )
)
as_old_topics = form(
    lambda topic, settings: (
        f"Topic:{topic}\tPartitionCount:1\tReplicationFactor:1\tConfigs:{_list(settings)}\n"
        f"\tTopic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
    )
)
