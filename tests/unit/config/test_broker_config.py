"""`config.broker_config`: which file is that of the broker of a log directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.config.broker_config import (
    UNKNOWN_BROKER,
    BrokerConfig,
    check_broker_properties,
    is_of_broker,
)
from kcompact.config.layers import merged_config, topic_config, with_refusals
from kcompact.config.server_properties import read_broker_config
from kcompact.config.settings import parse_override
from kcompact.errors import ConfigError
from tests.support.log_writer import NO_OVERRIDES


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "var" / "lib" / "kafka"
    directory.mkdir(parents=True)
    return directory


def of(written: str, origin: Path | None = None) -> BrokerConfig:
    return BrokerConfig(properties={"log.dirs": written}, origin=None if origin is None else str(origin))


# What the file names


@pytest.mark.parametrize("written", ["{}", "/elsewhere, {} ,/third", "{}/", "{}/../kafka", "{}/."])
def test_a_file_names_the_directory_to_which_its_path_leads(written: str, log_dir: Path) -> None:
    named = of(written.format(log_dir)).naming(log_dir)
    assert named is not None
    assert named.root == Path("/")


@pytest.mark.parametrize("written", ["", "/\0", "/elsewhere", "{}/below", "{}-other", "kafka", "{}/.."])
def test_it_names_no_other_directory(written: str, log_dir: Path) -> None:
    assert of(written.format(log_dir)).naming(log_dir) is None


def test_a_link_leads_to_the_directory(log_dir: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(log_dir)
    assert of(str(link)).naming(log_dir)
    assert of(str(log_dir)).naming(link)


def test_log_dirs_replaces_log_dir(log_dir: Path) -> None:
    both = {"log.dir": str(log_dir), "log.dirs": "/elsewhere"}
    assert BrokerConfig(properties=both).naming(log_dir) is None
    assert BrokerConfig(properties={"log.dir": str(log_dir)}).naming(log_dir)
    assert BrokerConfig(properties={}).log_dirs == (str(Path("/", "tmp", "kafka-logs")),)


def test_a_relative_path_needs_the_working_directory_of_the_broker(log_dir: Path) -> None:
    config = of("kafka")
    assert config.naming(log_dir) is None
    assert BrokerConfig(properties=config.properties, working_directory=log_dir.parent).naming(log_dir)


def test_a_file_on_the_same_mounted_disk_names_the_directory(log_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "etc" / "kafka" / "server.properties"
    named = of("/var/lib/kafka", file).naming(log_dir)
    assert named is not None
    assert named.root == tmp_path
    assert named.located("/var/lib") == tmp_path / "var" / "lib"
    elsewhere = tmp_path.with_name("elsewhere") / "server.properties"
    assert of("/var/lib/kafka", elsewhere).naming(log_dir) is None
    assert of("/lib/kafka", file).naming(log_dir) is None  # The file is not below /…/var.
    assert of("/ib/kafka", file).naming(log_dir) is None


# What the user gives


MOVED = "is a copy or another mount of a log directory of this broker, add `log_dirs_moved=True`"
REFUSED = {
    "/a,/b": "log.dirs names /a, /b, and not ",
    "/a,/b,/c,/d,/e": "log.dirs names /a, /b, /c and 2 more, and not ",
    "": "log.dirs names nothing, and not ",
    "data": "log.dirs has 'data', a path relative to the directory in which the broker was started",
}


@pytest.mark.parametrize("written", REFUSED)
def test_the_file_of_another_broker_is_refused(written: str, log_dir: Path) -> None:
    config = of(written, Path("/x/server.properties"))
    with pytest.raises(ConfigError) as caught:
        config.require_naming(log_dir)
    assert str(caught.value).startswith(f"/x/server.properties: {REFUSED[written]}")
    assert MOVED in str(caught.value)
    assert "or single settings as settings of your own" in str(caught.value)


def test_what_a_user_or_a_program_says_is_not_checked(log_dir: Path) -> None:
    moved = BrokerConfig(properties={"log.dirs": "/a"}, origin="/x/server.properties", log_dirs_moved=True)
    assert moved.require_naming(log_dir) is moved
    given = BrokerConfig(properties={"log.cleaner.threads": "2"})
    assert given.require_naming(log_dir) is given


# Whose file it is


ROLES = "process.roles=broker\n"
META = "a meta.properties, which says whose log directory it is"
KINDS = {
    "process.roles=controller\nnode.id=1\nlog.dirs=/a\n": "process.roles is 'controller': the file of a controller",
    "process.roles=\nnode.id=1\n": "process.roles is '', and a broker needs the role broker",
    "version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=def\n": META,
    "version=0\nbroker.id=1\ncluster.id=abc\n": META,
    "node.id=1\nlog.dirs=/a\n": "neither process.roles nor zookeeper.connect is set",
    "bootstrap.servers=host:1\ngroup.id=x\n": "not one line sets a broker setting of Kafka",
    "": "not one line sets a broker setting of Kafka",
}


@pytest.mark.parametrize("text", KINDS)
def test_other_files_are_refused_and_named(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_broker_config(file, log_dirs_moved=True)
    assert KINDS[text] in str(caught.value)
    assert "Pass the file with which the broker is started" in str(caught.value)


@pytest.mark.parametrize("roles", ["broker", "broker,controller", "controller, broker"])
def test_files_of_brokers(roles: str) -> None:
    assert is_of_broker({"process.roles": roles})
    assert is_of_broker({"zookeeper.connect": "host:2181"})
    assert not is_of_broker({"process.roles": "controller", "zookeeper.connect": "host:2181"})
    check_broker_properties({"process.roles": roles}, file="x")


def test_only_settings_that_are_used_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{ROLES}ssl.key.password=secret\nlog.retention.ms=5\nlog.cleaner.thread=1\nvendor.x=1\n")
    config = read_broker_config(file)
    assert config.properties == {"process.roles": "broker", "log.retention.ms": "5", "log.cleaner.thread": "1"}
    assert config.origin == str(file)


# What it knows


def test_what_a_provider_has_is_unknown_and_not_the_default() -> None:
    properties = {
        "config.providers": "env",
        "log.cleaner.enable": "${env:CLEANER}",
        "log.retention.hours": "5",
        "log.retention.ms": "${file:/etc/secret:retention}",
        "log.roll.hours": "${env:ROLL}",
        "log.roll.ms": "7",
    }
    broker = BrokerConfig(properties=properties)
    config = merged_config("orders", overrides=(), own=NO_OVERRIDES, broker=broker)
    assert config.unresolved == {"log.cleaner.enable", "retention.ms"}  # log.roll.ms is stronger than log.roll.hours.
    assert (config.log_cleaner_enable, config.retention_ms, config.segment_ms) == (True, 604_800_000, 7)
    assert config.assumed == ("retention.ms", "log.cleaner.enable")
    option = parse_override("log.cleaner.enable=false")
    known = merged_config("orders", overrides=[option], own=NO_OVERRIDES, broker=broker)
    assert (known.assumed, known.log_cleaner_enable) == (("retention.ms",), False)


def test_without_providers_such_a_value_is_wrong() -> None:
    with pytest.raises(ConfigError, match="must be true or false"):
        topic_config("orders", broker_properties={"log.cleaner.enable": "${env:CLEANER}"})


LAGS = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "9"}
BUFFER = {"log.cleaner.dedupe.buffer.size": "1", "log.cleaner.threads": "2"}


@pytest.mark.parametrize(
    ("properties", "refused"),
    [
        ({"log.roll.ms": "7"}, set()),
        (
            {"log.roll.ms": "x", "log.roll.hours": "y", "log.segment.bytes": "2000000"},
            {"log.roll.ms", "log.roll.hours"},
        ),
        ({"log.retention.ms": "5", "log.retention.hours": "0"}, set()),
        ({"log.retention.hours": "0", "log.segment.bytes": "2000000"}, {"log.retention.hours"}),
        (LAGS, {*LAGS}),
        (BUFFER, {*BUFFER}),
        ({"log.cleaner.threads": "200"}, {"log.cleaner.threads"}),
        ({"log.cleaner.threads": "200", "log.cleaner.dedupe.buffer.size": "x"}, {"log.cleaner.dedupe.buffer.size"}),
    ],
)
def test_values_with_which_no_broker_starts(properties: dict[str, str], refused: set[str]) -> None:
    broker = with_refusals(BrokerConfig(properties=properties))
    assert {*broker.refused} == refused
    config = merged_config("orders", overrides=(), own=NO_OVERRIDES, broker=broker)
    assert bool(config.assumed) == bool(refused)
    assert config.segment_bytes == int(properties.get("log.segment.bytes", config.segment_bytes))


def test_a_value_that_only_the_broker_can_resolve_contradicts_no_other() -> None:
    properties = {"config.providers": "env", "log.cleaner.threads": "200"}
    properties["log.cleaner.dedupe.buffer.size"] = "${env:BUFFER}"
    broker = with_refusals(BrokerConfig(properties=properties))
    assert broker.refused == {}
    properties |= {"log.cleaner.threads": "${env:THREADS}", "log.cleaner.dedupe.buffer.size": "1000"}
    broker = with_refusals(BrokerConfig(properties=properties))
    assert {*broker.refused} == {"log.cleaner.dedupe.buffer.size"}


def test_what_is_assumed() -> None:
    assert "log.cleaner.enable" in topic_config("orders").assumed
    assert "cleanup.policy" not in topic_config("orders").assumed  # It is unknown.
    assert topic_config("orders", own=NO_OVERRIDES, broker_properties={}).assumed == ()
    assert "retention.ms" not in topic_config("orders", broker_properties={}).assumed  # It is unknown.
    of_broker = topic_config("orders", broker_properties={"log.cleaner.min.cleanable.ratio": "0.1"})
    assert "min.cleanable.dirty.ratio" in of_broker.assumed  # The topic may have another.
    assert "log.cleaner.enable" not in of_broker.assumed
    ratio = parse_override("min.cleanable.dirty.ratio=0.5")
    assert "min.cleanable.dirty.ratio" not in topic_config("orders", overrides=[ratio]).assumed
    assert merged_config("orders", overrides=(), broker=UNKNOWN_BROKER) == topic_config("orders")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"node.id": " 7 "}, 7),
        ({"broker.id": "8"}, 8),
        ({"broker.id": "-1"}, None),
        ({}, None),
        ({"node.id": "x"}, None),
    ],
)
def test_the_id_of_the_node(properties: dict[str, str], expected: int | None) -> None:
    assert BrokerConfig(properties=properties).node_id == expected
