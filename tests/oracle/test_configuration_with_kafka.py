"""A real broker's settings: asked while it runs, and read from its metadata log when it has stopped."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from fixtures.broker import CLUSTER_ID, Broker, patiently
from kcompact.config.kafka_names import KAFKA_BROKER_NAMES
from kcompact.config.metadata_log import METADATA_DIRECTORY, read_cluster_metadata
from kcompact.format.names import parse_metadata_snapshot_name
from tests.oracle.clients import config_command
from tests.oracle.driver import class_path
from tests.oracle.real_kafka import JVM_OPTIONS, copy_log_dir, java
from tests.support.command_line import kcompact, note_texts

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

PROPERTIES = """\
log.cleaner.min.cleanable.ratio=0.35
log.retention.hours=5
log.index.interval.bytes=5000
"""
SNAPSHOTS = "metadata.log.max.record.bytes.between.snapshots={}\n"

TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "kept": {"cleanup.policy": "compact", "min.compaction.lag.ms": "60000", "max.compaction.lag.ms": "3600000"},
    "both": {"cleanup.policy": "compact,delete", "retention.ms": "77", "retention.bytes": "1000000"},
    "altered": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
    "taken-back": {"cleanup.policy": "compact", "segment.bytes": "2000000"},
    "remade": {"cleanup.policy": "compact"},
    "removed": {"cleanup.policy": "compact"},
    "busy": {"cleanup.policy": "compact"},
}
LEFT = sorted(TOPICS.keys() - {"removed"})


def change(address: str, kind: str, name: str | None, *changes: str) -> None:
    which = ["--entity-default"] if name is None else ["--entity-name", name]
    config_command(address, "--alter", "--entity-type", kind, *which, *changes)


def described(address: str) -> dict[str, dict[str, str]]:
    """Return every setting of every topic, as Kafka's describeConfigs tells them."""
    found: dict[str, dict[str, str]] = {}
    settings: dict[str, str] = {}
    for line in config_command(address, "--describe", "--all", "--entity-type", "topics").stdout.splitlines():
        if heading := re.match(r"All configs for topic (\S+) are:", line):
            settings = found.setdefault(heading[1], {})
        elif setting := re.match(r"  ([\w.]+)=(.*?) sensitive=", line):
            settings[setting[1]] = setting[2]
    return found


def settle(address: str, *, rounds: int) -> None:
    """Make the topics, change and remove some, and set what brokers have in common and on their own."""
    admin = patiently(lambda: KafkaAdminClient(bootstrap_servers=address))
    try:

        def create(names: Mapping[str, Mapping[str, str]]) -> None:
            topics = {
                name: {"num_partitions": 2, "replication_factor": 1, "configs": dict(settings)}
                for name, settings in names.items()
            }
            patiently(lambda: admin.create_topics(topics, wait_for_metadata=True))

        create(TOPICS)
        patiently(lambda: admin.delete_topics(["removed", "remade"]))
        for number in range(rounds):
            resource = ConfigResource("topic", "busy", {"delete.retention.ms": str(1_000 + number)})
            patiently(functools.partial(admin.alter_configs, [resource]))
        create({"remade": {"segment.index.bytes": "4096"}})
    finally:
        admin.close()
    change(address, "topics", "altered", "--add-config", "min.cleanable.dirty.ratio=0.9,delete.retention.ms=5")
    change(address, "topics", "taken-back", "--delete-config", "cleanup.policy,segment.bytes")
    change(address, "brokers", None, "--add-config", "log.cleanup.policy=compact,log.cleaner.delete.retention.ms=4444")
    change(address, "brokers", "1", "--add-config", "log.segment.bytes=3000000,log.cleaner.delete.retention.ms=5555")
    change(
        address, "brokers", None, "--add-config", "log.index.interval.bytes=6000,log.cleaner.max.compaction.lag.ms=9"
    )
    change(address, "brokers", None, "--delete-config", "log.cleaner.max.compaction.lag.ms")


def planned(log_dir: Path, *options: str | Path) -> dict[str, dict[str, Any]]:
    """Return the settings that `plan` tells of each topic."""
    ran = kcompact("plan", "--json", *options, log_dir)
    entries = {f"{each['topic']}-{each['partition']}": each for each in ran.json["partitions"]}
    assert ran.code == 0, [each["error"] for each in entries.values()]
    del entries["__cluster_metadata-0"]
    assert sorted(entries) == sorted(f"{topic}-{number}" for topic in LEFT for number in (0, 1))
    assert not any("metadata" in note or "know" in note for each in entries.values() for note in note_texts(each))
    for topic in LEFT:
        assert entries[f"{topic}-0"]["config"] == entries[f"{topic}-1"]["config"]
    return {topic: entries[f"{topic}-0"]["config"] for topic in LEFT}


def values(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings as Kafka writes them."""
    shown = {name: setting["value"] for name, setting in config.items()}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in shown.items()}


def sources(config: Mapping[str, Any]) -> dict[str, str]:
    return {name: setting["source"] for name, setting in config.items() if setting["source"] != "default"}


@pytest.fixture(scope="module", params=[0, 200], ids=["log", "snapshot"])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """Give a stopped broker's home, what Kafka said of its topics, and what kcompact was told by it."""
    between = 2_000 if request.param else 20_000_000
    home = tmp_path_factory.mktemp("broker")
    with Broker(home, properties=PROPERTIES + SNAPSHOTS.format(between)) as broker:
        settle(broker.address, rounds=request.param)
        kafka = described(broker.address)
        live = planned(broker.log_dir, "--bootstrap-server", broker.address)
    names = [entry.name for entry in (broker.log_dir / METADATA_DIRECTORY).iterdir()]
    taken = [snapshot for name in names if (snapshot := parse_metadata_snapshot_name(name)) and snapshot.end_offset]
    assert bool(taken) == bool(request.param)
    return home, kafka, live


BROKERS = {
    "cleanup.policy": "cluster-default",
    "min.cleanable.dirty.ratio": "broker-config",
    "delete.retention.ms": "broker-override",
    "segment.bytes": "broker-override",
    "index.interval.bytes": "cluster-default",
    "retention.ms": "broker-config",
    "log.cleaner.dedupe.buffer.size": "broker-config",
    "log.cleaner.backoff.ms": "broker-config",
}
OVERRIDES = {
    **TOPICS,
    "altered": {"cleanup.policy": "", "min.cleanable.dirty.ratio": "", "delete.retention.ms": ""},
    "taken-back": {},
    "remade": {"segment.index.bytes": ""},
}


OF_THE_BROKER = {
    "producer.id.expiration.ms": "86400000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.cleaner.enable": "true",
    "transaction.max.timeout.ms": "900000",
    "log.cleaner.threads": "1",
    "log.cleaner.io.buffer.load.factor": "0.9",
    "log.cleaner.backoff.ms": "1000000000",
    "log.cleaner.io.max.bytes.per.second": "1.7976931348623157e+308",
}
"""What Kafka does not tell of a topic."""


def test_running_and_stopped(stopped: tuple[Path, Any, Any]) -> None:
    home, kafka, live = stopped
    offline = planned(home / "log-dir", "--broker-config", home / "server.properties")
    for topic in LEFT:
        own = {**OVERRIDES[topic]}
        if topic == "busy" and "delete.retention.ms" in overridden(home):
            own["delete.retention.ms"] = ""
        for config in (live[topic], offline[topic]):
            shown = values(config)
            told = {name: kafka[topic].get(name) for name in shown}
            told["cleanup.policy"] = ",".join(sorted(str(told["cleanup.policy"]).split(",")))
            told |= OF_THE_BROKER
            assert shown == told, topic
            assert sources(config) == BROKERS | dict.fromkeys(own, "topic-override"), topic
    assert origins(live["kept"]) == {"bootstrap-server"}
    assert origins(offline["kept"]) == {"metadata-log", None}


def overridden(home: Path) -> set[str]:
    metadata = read_cluster_metadata(home / "log-dir")
    assert metadata is not None
    return set(metadata.topics["busy"].overrides)


def origins(config: Mapping[str, Any]) -> set[str | None]:
    """Return who told the settings that are no defaults."""
    return {setting["origin"] for setting in config.values() if setting["source"] != "default"}


def test_what_is_not_the_brokers(stopped: tuple[Path, Any, Any], tmp_path: Path) -> None:
    home, _, _ = stopped
    log_dir = copy_log_dir(home / "log-dir", tmp_path / "copy")
    metadata = read_cluster_metadata(log_dir)
    assert metadata is not None
    assert sorted(metadata.topics) == LEFT
    assert all(topic.partitions == {0: (1,), 1: (1,)} for topic in metadata.topics.values())
    assert metadata.notes == ()
    # The directory of a topic under the name of another: the id tells.
    shutil.copy(log_dir / "kept-0" / "partition.metadata", log_dir / "both-0" / "partition.metadata")
    shutil.copytree(log_dir / "kept-0", log_dir / "removed-0")
    ran = kcompact("plan", "--json", log_dir)
    entries = {f"{each['topic']}-{each['partition']}": each for each in ran.json["partitions"]}
    assert (ran.code, entries["both-0"]["reason"]) == (4, "not-a-partition")
    assert "A broker does not serve such a partition" in entries["both-0"]["error"]
    assert (entries["removed-0"]["reason"], entries["removed-0"]["exit_code"]) == ("policy-unknown", 0)
    # A broker would keep it: it does not compare the id with the name.
    assert "its topic id is that of another" in note_texts(entries["removed-0"])[0]
    assert entries["kept-0"]["config"]["cleanup.policy"]["value"] == "compact"


def test_another_cluster(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker:
        elsewhere = tmp_path / "elsewhere"
        shutil.copytree(broker.log_dir, elsewhere)
        file = elsewhere / "meta.properties"
        file.write_text(file.read_text().replace(CLUSTER_ID, "anotherClusterEntirely"))
        (elsewhere / "orders-0").mkdir()
        (elsewhere / "orders-0" / "00000000000000000000.log").write_bytes(b"")
        ran = kcompact("plan", "--bootstrap-server", broker.address, elsewhere)
        assert (ran.code, "belongs to the cluster" in ran.err) == (4, True)


def test_the_names_of_all_settings_of_a_broker() -> None:
    """Kafka prints its documentation, which has all names but the internal ones."""
    command = [java(), *JVM_OPTIONS, "-cp", class_path(), "kafka.server.KafkaConfig"]
    page = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r'<a id="([\w.]+)"></a>', page))
    assert len(names) > 300
    assert names <= KAFKA_BROKER_NAMES
