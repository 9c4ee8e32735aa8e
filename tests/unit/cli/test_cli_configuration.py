"""Where settings come from: a broker's log directory needs no option, the strongest source wins, and doubt refuses."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from fixtures import checkout
from kcompact.config import admin_client
from kcompact.config.admin_client import LiveCluster
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.config.settings import Source, TopicOverrides
from kcompact.errors import ClusterUnreachableError
from kcompact.format.properties import encode_uuid
from kcompact.plan.options import PlanOptions
from tests.support import log_dsl, log_writer
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    NOW,
    ROOT,
    digest,
    environment,
    kcompact,
    note_texts,
    partition,
    server_properties,
    settings,
)
from tests.support.metadata_log import CLUSTER_ID, ORDERS, OTHER, USERS, batches, log, of_broker, topic, write
from tests.support.metadata_records import MetadataRecord, PartitionChangeRecord, RemoveTopicRecord, TopicRecord

AT = ("--now", NOW)
COMPACTED = topic("orders", ORDERS, cleanup_policy="compact", segment_bytes="2000000")


def broker(log_dir: Path, *records: MetadataRecord, topic_id: bytes | None = ORDERS, **options: Any) -> Path:
    """Make a log directory with orders-0 and a metadata log of these records."""
    spec = replace(log_dsl.parse(DIRTY), topic_id=None if topic_id is None else encode_uuid(topic_id))
    log_writer.write(spec, log_dir)
    return write(log_dir, {log(): batches(records)}, **options)


def entry_of(*arguments: str | Path) -> dict[str, Any]:
    ran = kcompact("plan", "--json", *AT, "--topic", "orders", *arguments)
    found: dict[str, Any] = ran.partition
    assert ran.code == found["exit_code"]
    return found


def told(entry: dict[str, Any], name: str) -> tuple[object, str | None, str | None]:
    setting = entry["config"][name]
    return setting["value"], setting["source"], setting["origin"]


def test_a_real_brokers_directory_needs_no_option(tmp_path: Path) -> None:
    log_dir = checkout.copy_directory("broker", "before", tmp_path / "logs")
    before = digest(log_dir)
    ran = kcompact("plan", "--json", "--topic", "inventory", log_dir)
    entry = ran.partition
    assert (ran.code, ran.complaints, entry["reason"], note_texts(entry)) == (0, "", "dirty-ratio", [])
    assert told(entry, "cleanup.policy") == ("compact", "topic-override", "metadata-log")
    assert told(entry, "min.cleanable.dirty.ratio") == (0.5, "topic-override", "metadata-log")
    assert told(entry, "delete.retention.ms") == (3_600_000, "topic-override", "metadata-log")
    assert told(entry, "segment.bytes") == (1_073_741_824, "default", None)
    for command in ("plan", "inspect"):
        assert "compact (topic override in the cluster metadata)" in kcompact(command, log_dir).out
    ran = kcompact("clean", "--engine", "in-process", "--json", "--dry-run", "--topic", "inventory", log_dir)
    assert (ran.code, ran.partition["status"]) == (0, "dry-run")
    assert digest(log_dir) == before


RATIO = "min.cleanable.dirty.ratio"
BROKER_RATIO = "log.cleaner.min.cleanable.ratio"
NODE, ALL = of_broker("1", BROKER_RATIO, "0.1"), of_broker("", BROKER_RATIO, "0.2")
OTHER_NODE = of_broker("2", BROKER_RATIO, "0.3")
WITH_RATIO = topic("orders", ORDERS, cleanup_policy="compact", min_cleanable_dirty_ratio="0.4")
STRENGTHS: list[tuple[list[MetadataRecord], tuple[str, ...], tuple[object, ...]]] = [
    (COMPACTED, (), (0.5, "default", None)),
    ([*COMPACTED, OTHER_NODE], (), (0.5, "default", None)),
    ([*COMPACTED, ALL], (), (0.2, "cluster-default", "metadata-log")),
    ([*COMPACTED, ALL, NODE], (), (0.1, "broker-override", "metadata-log")),
    ([*WITH_RATIO, ALL, NODE], (), (0.4, "topic-override", "metadata-log")),
    ([*COMPACTED, ALL, NODE], ("--config", f"{BROKER_RATIO}=0.6"), (0.6, "option", None)),
    ([*WITH_RATIO, ALL, NODE], ("--config", f"{BROKER_RATIO}=0.6"), (0.4, "topic-override", "metadata-log")),
    ([*WITH_RATIO, ALL, NODE], ("--config", f"{RATIO}=0.7"), (0.4, "topic-override", "metadata-log")),
    ([*WITH_RATIO, ALL, NODE], ("--config", f"orders:{RATIO}=0.7"), (0.7, "option", None)),
    ([*WITH_RATIO, ALL, NODE], ("--config", f"*:{RATIO}=0.7"), (0.7, "option", None)),
    ([*COMPACTED, ALL, NODE], ("--config", f"{RATIO}=0.7"), (0.7, "option", None)),
    (COMPACTED, ("--broker-config",), (0.8, "broker-config", None)),
    ([*COMPACTED, ALL], ("--broker-config",), (0.2, "cluster-default", "metadata-log")),
]


@pytest.mark.parametrize(("records", "options", "expected"), STRENGTHS)
def test_the_strongest_wins(
    records: list[MetadataRecord], options: tuple[str, ...], expected: tuple[object, ...], tmp_path: Path
) -> None:
    if options == ("--broker-config",):
        options = ("--broker-config", str(server_properties(tmp_path / "logs", text=f"{BROKER_RATIO}=0.8")))
    assert told(entry_of(*options, broker(tmp_path / "logs", *records)), RATIO) == expected


POLICIES: list[tuple[list[MetadataRecord], tuple[str, ...], str, str]] = [
    (topic("orders", ORDERS), (), "policy-delete", "delete (Kafka's default, assumed)"),
    (
        [*topic("orders", ORDERS), of_broker("", "log.cleanup.policy", "compact")],
        (),
        "dirty-ratio",
        "compact (dynamic default of all brokers in the cluster metadata)",
    ),
    (
        [*topic("orders", ORDERS), of_broker("1", "log.cleanup.policy", "compact")],
        (),
        "dirty-ratio",
        "compact (dynamic setting of the broker in the cluster metadata)",
    ),
    (topic("orders", ORDERS), ("--config", "cleanup.policy=compact"), "dirty-ratio", "compact"),
    (topic("orders", ORDERS, cleanup_policy=""), (), "policy-delete", "none (topic override in the cluster metadata)"),
]


@pytest.mark.parametrize(("records", "options", "reason", "line"), POLICIES)
def test_the_policy_of_a_known_topic_is_known(
    records: list[MetadataRecord], options: tuple[str, ...], reason: str, line: str, tmp_path: Path
) -> None:
    log_dir = broker(tmp_path / "logs", *records)
    assert entry_of(*options, log_dir)["reason"] == reason
    assert f"  policy   {line}\n" in kcompact("inspect", *AT, *options, log_dir / "orders-0").out


def test_without_metadata_the_policy_is_unknown(tmp_path: Path) -> None:
    partition(tmp_path)
    entry = entry_of(tmp_path)
    assert (entry["reason"], told(entry, "cleanup.policy")) == ("policy-unknown", (None, None, None))


def test_broker_config_names_itself(tmp_path: Path) -> None:
    partition(tmp_path / "logs")
    file = server_properties(tmp_path / "logs", text="log.cleanup.policy=compact\nlog.retention.hours=2")
    (topics := tmp_path / "topics.json").write_text('{"orders": {}}')
    options = ("--broker-config", file, "--topic-configs", topics)
    entry = entry_of(*options, tmp_path / "logs")
    assert told(entry, "cleanup.policy") == ("compact", "broker-config", None)
    assert told(entry, "retention.ms") == (7_200_000, "broker-config", None)
    unknown = entry_of("--broker-config", file, tmp_path / "logs")
    assert told(unknown, "cleanup.policy") == told(unknown, "retention.ms") == (None, None, None)
    out = kcompact("inspect", *options, tmp_path / "logs").out
    assert "  policy   compact (--broker-config)\n" in out


# Directories that are not what the cluster knows


def test_a_topic_id_that_cannot_be_read_fails_its_partition_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = broker(tmp_path, *COMPACTED)
    partition(log_dir, DIRTY.replace("now=10:00", "now=10:00 name=other-0", 1))

    def fail(directory: Path) -> None:
        if directory.name == "orders-0":
            raise PermissionError(13, "Permission denied", str(directory / "partition.metadata"))

    monkeypatch.setattr("kcompact.config.metadata_log.read_topic_id", fail)
    ran = kcompact("plan", "--json", *COMPACT, log_dir)
    entries = {entry["topic"]: entry for entry in ran.json["partitions"]}
    assert entries["orders"]["error"].splitlines()[0].endswith("/orders-0/partition.metadata: Permission denied")
    assert entries["other"]["reason"] == "dirty-ratio"
    assert ran.code == entries["orders"]["exit_code"] == 4


def test_a_stale_replica_is_refused(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, *COMPACTED, topic_id=OTHER)
    before = digest(log_dir)
    forced = ("--config", "cleanup.policy=compact")
    for command in (("plan",), ("inspect",), ("verify",), ("clean", "--engine", "in-process")):
        ran = kcompact(*command, "--json", *AT, *forced, "--topic", "orders", log_dir)
        entry = ran.partition
        assert (ran.code, entry["reason"], entry["eligible"]) == (4, "not-a-partition", False)
        assert "stale replica" in entry["error"]
        assert bool(entry["segments"]) == (command[0] in ("inspect", "verify"))
        shown = kcompact(*command, *AT, *forced, "--topic", "orders", log_dir)
        assert "stale replica" in shown.out + shown.err
        assert "to be cleaned: dirty" not in shown.out
    assert digest(log_dir) == before


def test_a_topic_that_was_deleted(tmp_path: Path) -> None:
    entry = entry_of(broker(tmp_path, *COMPACTED, RemoveTopicRecord(ORDERS)))
    assert (entry["reason"], told(entry, "cleanup.policy")) == ("policy-unknown", (None, None, None))
    assert "stray" in note_texts(entry)[0]


STRAYS: dict[str, tuple[list[MetadataRecord], bytes | None, str | None]] = {
    "without a topic id": ([*topic("other", ORDERS)], None, "no topic id: partition.metadata is missing"),
    "no such partition": ([TopicRecord("orders", ORDERS)], ORDERS, "has the topic, but no partition 0 of it"),
    "on other brokers": (
        [*COMPACTED, PartitionChangeRecord(0, ORDERS, None), PartitionChangeRecord(0, ORDERS, (2, 3))],
        ORDERS,
        "has the partition on 2, 3, not on this broker, 1",
    ),
    "known by its id": ([*topic("other", ORDERS), *topic("users", USERS)], ORDERS, None),
    "on this broker": ([*COMPACTED], ORDERS, None),
}


@pytest.mark.parametrize("name", STRAYS)
def test_a_broker_knows_a_replica_by_its_topic_id(name: str, tmp_path: Path) -> None:
    records, topic_id, why = STRAYS[name]
    notes = note_texts(entry_of(broker(tmp_path, *records, topic_id=topic_id)))
    found = [note for note in notes if "move the directory aside as stray" in note]
    assert len(found) == (why is not None), notes
    assert all(str(why) in note for note in found)
    findings = kcompact("doctor", "--json", tmp_path).json["findings"]
    assert ("stray-replica" in [finding["finding"] for finding in findings]) == (why is not None)


def test_a_stray_directory_keeps_no_other_from_being_cleaned(tmp_path: Path) -> None:
    log_dir = broker(tmp_path / "logs", *COMPACTED, NODE)
    stray = partition(log_dir, settings("name=gone-0"))
    run = ("clean", "--engine", "in-process", "--json", *AT)
    copied = kcompact(*run, "--output", tmp_path / "copy", log_dir)
    assert copied.code == 0, copied.err
    statuses = {entry["topic"]: entry["status"] for entry in copied.json["partitions"]}
    assert (copied.code, statuses["gone"], statuses["orders"]) == (0, "copied", "cleaned"), copied.err
    assert (tmp_path / "copy" / "gone-0").is_dir()

    ran = kcompact(*run, log_dir)
    statuses = {entry["topic"]: entry["status"] for entry in ran.json["partitions"]}
    assert (ran.code, statuses["gone"], statuses["orders"]) == (0, "skipped", "cleaned"), ran.err
    assert "hint: If the topic is compacted, pass --config gone:" in kcompact("plan", *AT, log_dir).out
    assert kcompact(*run, stray).code == 4  # It is named itself.


def test_a_topic_that_the_running_cluster_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, **__: answer(topics={}, brokers={}, cluster_id=None))
    partition(tmp_path)
    ran = kcompact("clean", "--engine", "in-process", "--json", *LIVE, tmp_path)
    assert (ran.code, ran.partition["status"], ran.partition["reason"]) == (0, "skipped", "policy-unknown")


def test_another_topics_settings_do_not_count(tmp_path: Path) -> None:
    records = [*topic("users", USERS, cleanup_policy="compact"), of_broker("", "log.cleanup.policy", "compact")]
    assert entry_of(broker(tmp_path, *records))["reason"] == "policy-unknown"


def test_a_directory_without_an_id(tmp_path: Path) -> None:
    assert entry_of(broker(tmp_path, *COMPACTED, topic_id=None))["reason"] == "dirty-ratio"


# Damage


def test_a_damaged_metadata_log(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, *COMPACTED)
    file = log_dir / METADATA_DIRECTORY / log()
    file.write_bytes(file.read_bytes()[:70] + b"x" + file.read_bytes()[71:])
    for options in ((), ("--config", "cleanup.policy=compact")):
        ran = kcompact("plan", "--json", *AT, "--topic", "orders", *options, log_dir)
        assert (ran.code, ran.partition["reason"]) == (3, "corrupt")
        assert f"{METADATA_DIRECTORY}/{log()}, position 0, offset 0: checksum" in ran.partition["error"]
        assert "--bootstrap-server" in ran.partition["error"]
    ran = kcompact("verify", "--json", "--topic", "orders", log_dir)
    assert (ran.code, ran.partition["findings"][0]["file"]) == (3, log())
    assert ran.partition["segments"]


def test_a_torn_metadata_log_is_noted(tmp_path: Path) -> None:
    log_dir = broker(tmp_path, *COMPACTED)
    (log_dir / ".kafka_cleanshutdown").unlink()
    file = log_dir / METADATA_DIRECTORY / log()
    file.write_bytes(file.read_bytes() + b"torn")
    assert any("ends inside the batch at position" in note for note in note_texts(entry_of(log_dir)))


@pytest.mark.parametrize("value", ["compakt", "compact;delete"])
def test_a_setting_of_a_later_kafka(value: str, tmp_path: Path) -> None:
    entry = entry_of(broker(tmp_path, *topic("orders", ORDERS, cleanup_policy=value)))
    assert (entry["exit_code"], entry["reason"]) == (4, None)
    assert f"cleanup.policy of orders: the cluster has '{value}'" in entry["error"]


def test_settings_that_do_not_matter_may_be_anything(tmp_path: Path) -> None:
    entry = entry_of(broker(tmp_path, *topic("orders", ORDERS, cleanup_policy="compact", no_such_thing="x")))
    assert entry["reason"] == "dirty-ratio"


# A metadata log in another directory


def test_the_metadata_log_directory_of_server_properties(tmp_path: Path) -> None:
    data = broker(tmp_path / "data", topic_id=ORDERS)
    for file in (data / METADATA_DIRECTORY).iterdir():
        file.unlink()
    apart = write(tmp_path / "apart", {log(): batches(COMPACTED)})
    for written in (f"metadata.log.dir={apart}", f"log.dirs={apart},{data}"):
        file = server_properties(data, text=written)
        assert told(entry_of("--broker-config", file, data), "cleanup.policy")[1] == "topic-override"
    (apart / "meta.properties").write_text("version=1\ncluster.id=another\nnode.id=1\n")
    assert entry_of("--broker-config", file, data)["reason"] == "policy-unknown"


# A live cluster


def answer(**settings: Any) -> LiveCluster:
    fields: dict[str, Any] = {
        "address": "host:1",
        "cluster_id": CLUSTER_ID,
        "topics": {
            "orders": TopicOverrides(
                values={"cleanup.policy": "compact"}, origin="bootstrap-server", topic_id=encode_uuid(ORDERS)
            )
        },
        "cluster_defaults": {BROKER_RATIO: "0.2"},
        "brokers": {1: [(Source.BROKER_CONFIG, {BROKER_RATIO: "0.3"}), (Source.BROKER_OVERRIDE, {})]},
    }
    return LiveCluster(**fields | settings)


LIVE = ("--bootstrap-server", "host:1")
NOT_COMPACTED = topic("orders", ORDERS, cleanup_policy="delete", delete_retention_ms="7")
ANSWERS: list[tuple[dict[str, Any], tuple[str, ...], str, tuple[object, ...], str]] = [
    ({}, (), "dirty-ratio", (0.3, "broker-config", "bootstrap-server"), ""),
    ({}, ("--config", f"{RATIO}=0.6"), "dirty-ratio", (0.6, "option", None), ""),
    ({"brokers": {}}, (), "dirty-ratio", (0.1, "broker-override", "bootstrap-server"), "broker 1 is not up"),
    ({"topics": {}}, (), "policy-delete", (0.1, "broker-override", "metadata-log"), "does not have this topic"),
    (
        {"topics": {}, "hidden": frozenset({"orders"})},
        (),
        "policy-delete",
        (0.1, "broker-override", "metadata-log"),
        "host:1 does not let this user read the settings of this topic",
    ),
    (
        {"brokers": {}, "hidden_brokers": frozenset({1})},
        (),
        "dirty-ratio",
        (0.1, "broker-override", "bootstrap-server"),
        "this user may not read the settings of broker 1 (DescribeConfigs on the cluster)",
    ),
    (
        {"topics": {"orders": TopicOverrides(values={}, origin="bootstrap-server", topic_id=None)}},
        (),
        "policy-delete",
        (0.3, "broker-config", "bootstrap-server"),
        "",
    ),
]


@pytest.mark.parametrize(("fields", "options", "reason", "ratio", "note"), ANSWERS)
def test_a_live_cluster_is_stronger(
    fields: dict[str, Any],
    options: tuple[str, ...],
    reason: str,
    ratio: tuple[object, ...],
    note: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[object, ...]] = []

    def ask(address: str, *, topics: object, nodes: object, client: object) -> LiveCluster:
        assert client is None
        asked.append((address, topics, nodes))
        return answer(**fields)

    monkeypatch.setattr(admin_client, "ask_cluster", ask)
    entry = entry_of(*LIVE, *options, broker(tmp_path, *NOT_COMPACTED, NODE, ALL))
    assert asked == [("host:1", ["orders"], [1])]
    assert (entry["reason"], told(entry, RATIO)) == (reason, ratio)
    assert [each for each in note_texts(entry) if "high watermark" not in each] == (
        [] if not note else note_texts(entry)[:1]
    )
    assert note in "".join(note_texts(entry))


def test_hidden_settings_without_another_source_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition(tmp_path)
    hidden = answer(topics={}, brokers={}, cluster_id=None, hidden=frozenset({"orders"}))
    monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, **__: hidden)
    ran = kcompact("plan", "--json", *LIVE, tmp_path)
    assert (ran.code, ran.partition["exit_code"]) == (1, 1)
    assert "this user may not read the settings of the topic\nTo allow it: kafka-acls.sh" in ran.partition["error"]


def test_a_live_cluster_makes_up_for_a_damaged_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = broker(tmp_path, *NOT_COMPACTED)
    (log_dir / METADATA_DIRECTORY / log()).write_bytes(b"rubbish")
    monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, **__: answer())
    assert entry_of(*LIVE, log_dir)["reason"] == "dirty-ratio"
    assert "compact (topic override in the running cluster)" in kcompact("plan", *AT, *LIVE, log_dir).out


def test_what_a_live_cluster_contradicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = broker(tmp_path, *NOT_COMPACTED)
    other_id = {"orders": TopicOverrides(values={}, origin="bootstrap-server", topic_id=encode_uuid(OTHER))}
    monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, **__: answer(topics=other_id))
    assert "stale replica" in entry_of(*LIVE, log_dir)["error"]
    monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, **__: answer(cluster_id="another"))
    ran = kcompact("plan", *LIVE, log_dir)
    assert (ran.code, ran.out) == (4, "")
    assert f"belongs to the cluster {CLUSTER_ID}, but host:1 belongs to the cluster another" in ran.err


@pytest.mark.parametrize("value", ["host", "host:", ":9092", "host:0", "host:65536", "host:x"])
def test_addresses(value: str, tmp_path: Path) -> None:
    ran = kcompact("plan", "--bootstrap-server", value, tmp_path)
    assert (ran.code, "is not HOST:PORT" in ran.err) == (2, True)


def test_asking_a_cluster_needs_an_extra_for_pkcs12_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert any(name.startswith("kafka-python") for name in project["dependencies"])
    assert [name.partition(">")[0] for name in project["optional-dependencies"]["live"]] == ["cryptography"]


def test_the_client_is_loaded_only_when_asked() -> None:
    code = (
        "import sys; from kcompact.cli.app import main\n"
        "names = {'kafka', 'kcompact.config.admin_client', 'pyspark'}\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: print(sorted(names & sys.modules.keys()))"
    )
    ran = python(code, "plan", checkout.LOGS / "broker" / "before")
    assert ran.stdout.splitlines()[-1] == "[]"


def python(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program that takes kcompact's arguments, in a process of its own."""
    command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())


# What an answer of kafka-python comes to


class Client:
    """Answers as `KafkaAdminClient` does."""

    def __init__(self, **_: object) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def describe_cluster(self) -> dict[str, Any]:
        brokers = [{"broker_id": 1, "is_fenced": False}, {"broker_id": 2, "is_fenced": True}]
        return {"cluster_id": "c", "brokers": brokers}

    def describe_topics(self, topics: list[str]) -> list[dict[str, Any]]:
        known = {"orders": str(uuid.UUID(bytes=ORDERS)), "hidden": str(uuid.UUID(bytes=USERS))}
        return [{"name": name, "topic_id": known.get(name), "error_code": 0 if name in known else 3} for name in topics]

    def describe_configs(self, resources: list[Any], **_: object) -> dict[str, Any]:
        assert [(str(each.resource_type.name), each.name) for each in resources] == [
            ("TOPIC", "orders"),
            ("TOPIC", "hidden"),
            ("BROKER", "1"),
        ]
        synonyms = [
            {"name": "cleanup.policy", "value": "compact", "source": "DYNAMIC_TOPIC_CONFIG"},
            {"name": "log.cleanup.policy", "value": "delete", "source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
            {"name": "log.cleanup.policy", "value": "x", "source": "STATIC_BROKER_CONFIG"},
        ]
        setting = {"value": "compact", "config_source": "DYNAMIC_TOPIC_CONFIG", "synonyms": synonyms}
        inherited = {"value": "9", "config_source": "STATIC_BROKER_CONFIG", "synonyms": []}
        own = {
            "log.cleanup.policy": {"value": "delete", "config_source": "DYNAMIC_DEFAULT_BROKER_CONFIG"},
            "log.segment.bytes": {"value": "9", "config_source": "STATIC_BROKER_CONFIG"},
            "log.index.interval.bytes": {"value": "4096", "config_source": "DEFAULT_CONFIG"},
            "log.retention.ms": {"value": None, "config_source": "DEFAULT_CONFIG"},
            "ssl.key": {"value": "secret", "config_source": "DYNAMIC_BROKER_CONFIG"},
        }
        return {
            "topic": {"orders": {"cleanup.policy": setting, "segment.bytes": inherited}, "hidden": {}},
            "broker": {"1": own},
        }


def test_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka.KafkaAdminClient", Client)
    monkeypatch.setattr(admin_client, "usable_address", lambda address, *_: address)
    found = admin_client.ask_cluster("host:1", topics=["orders", "hidden", "gone"], nodes=[1, 2])
    assert found == LiveCluster(
        address="host:1",
        cluster_id="c",
        topics={
            "orders": TopicOverrides(
                values={"cleanup.policy": "compact"}, origin="bootstrap-server", topic_id=encode_uuid(ORDERS)
            )
        },
        cluster_defaults={"log.cleanup.policy": "delete"},
        brokers={
            1: [
                (Source.DEFAULT, {"log.index.interval.bytes": "4096"}),
                (Source.BROKER_CONFIG, {"log.segment.bytes": "9"}),
                (Source.CLUSTER_DEFAULT, {"log.cleanup.policy": "delete"}),
                (Source.BROKER_OVERRIDE, {}),
            ]
        },
        hidden=frozenset({"hidden"}),
    )


def test_an_answer_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka.KafkaAdminClient", Client)
    monkeypatch.setattr(admin_client, "usable_address", lambda address, *_: address)
    monkeypatch.setattr(Client, "describe_cluster", dict)
    with pytest.raises(ClusterUnreachableError, match="no usable answer"):
        admin_client.ask_cluster("host:1", topics=["orders"], nodes=[])


def test_a_broker_that_cannot_be_reached_where_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise KafkaConnectionError("DNS Resolution failure")

    monkeypatch.setattr("kafka.KafkaAdminClient", Client)
    monkeypatch.setattr(admin_client, "usable_address", lambda address, *_: address)
    monkeypatch.setattr(Client, "describe_cluster", fail)
    with pytest.raises(ClusterUnreachableError, match=r"failure\)\nThis .* of their advertised.listeners"):
        admin_client.ask_cluster("host:1", topics=["orders"], nodes=[])


def test_settings_ask_nobody_unless_told(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    configured = PlanOptions(now_ms=0).configs_of([directory])[directory]
    assert (configured.problem, configured.notes) == (None, ())
