"""Real brokers whose topics have other settings than the broker: with ZooKeeper, and with several disks.

After kcompact has run, a broker starts on the directory, and what it serves decides: where a topic's own settings are
unknown, nothing is compacted or deleted that only the broker's settings would.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition

from fixtures.broker import Broker, create_topics, patiently
from kcompact.release import KAFKA_3_9
from tests.oracle.driver import NEWEST
from tests.oracle.kinds_of_brokers import (
    OWN_HANDS_OFF,
    BrokerWithDisks,
    BrokerWithZooKeeper,
    copy_of_home,
    described_by,
)
from tests.oracle.served import HOUR_MS, Record, Served, live, rounds_of, served, served_again, write
from tests.support.broker_files import build_partition_metadata
from tests.support.command_line import Ran, digest, kcompact, note_texts
from tests.support.patience import becomes

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

DELETES = "log.cleanup.policy=delete\nlog.retention.ms=60000\n"
COMPACTS = "log.cleanup.policy=compact\n"
AT_ONCE = "log.initial.task.delay.ms=100\nlog.retention.check.interval.ms=300\n"
"""With these the broker deletes old segments as soon as it runs."""
SMALL_OFFSETS = "offsets.topic.segment.bytes=10000\n"
SMALL = {"segment.bytes": "8192"}
TOPICS = {
    "compacted": {**SMALL, "cleanup.policy": "compact"},
    "deleted": {**SMALL, "cleanup.policy": "delete"},
    "kept": {**SMALL, "cleanup.policy": "delete", "retention.ms": "-1"},
    "both": {**SMALL, "cleanup.policy": "compact,delete", "retention.ms": "-1"},
    "plain": {},
}
POLICIES = {"compacted-0": "compact", "deleted-0": "delete", "kept-0": "delete", "both-0": "compact,delete"}
PARTITIONS = [f"{topic}-0" for topic in TOPICS]
KEYS = 105
FOUR_HUNDRED = 160
"""So many keys have 400 records in four rounds."""
GROUP, COMMITTED = "readers", 60
CLEAN = ("clean", "--yes", "--force")
TOOLS = {
    "kafka-configs of 3.9": ("kafka.admin.ConfigCommand", ("--entity-type", "topics"), KAFKA_3_9.version),
    "kafka-configs": ("org.apache.kafka.tools.ConfigCommand", ("--entity-type", "topics"), NEWEST),
    "kafka-topics": ("org.apache.kafka.tools.TopicCommand", (), NEWEST),
}
"""Kafka's own tools that tell the settings of topics."""


@pytest.fixture(autouse=True)
def sockets_of_clients() -> Iterator[None]:
    """Collect them while the warning is ignored."""
    yield
    gc.collect()


def planned(*arguments: str | Path) -> dict[str, dict[str, Any]]:
    """Return what `plan` says of each partition, by the name of its directory."""
    ran = kcompact("plan", "--json", *arguments)
    assert ran.code == 0, ran.out
    return {Path(entry["directory"]).name: entry for entry in ran.json["partitions"]}


def reasons(*arguments: str | Path) -> dict[str, str]:
    return {name: entry["reason"] for name, entry in planned(*arguments).items() if not name.startswith("__")}


def policies(*arguments: str | Path) -> dict[str, str]:
    return {name: entry["config"]["cleanup.policy"]["value"] for name, entry in planned(*arguments).items()}


# -- ZooKeeper --------------------


@dataclass(frozen=True)
class Written:
    """The home of a stopped broker with ZooKeeper, and all records of its partitions.

    `told` are files with what Kafka's tools told of it while it ran, `asked` is what `plan` said then.
    """

    home: Path
    records: dict[str, list[Record]]
    told: dict[str, Path]
    asked: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    home = tmp_path_factory.mktemp("zookeeper")
    broker = BrokerWithZooKeeper(home / "written", properties=OWN_HANDS_OFF + DELETES + SMALL_OFFSETS)
    (home / "written").mkdir()
    records, told = {}, {}
    with broker:
        create_topics(broker.address, TOPICS)
        for name in PARTITIONS:
            keys = FOUR_HUNDRED if name == "deleted-0" else KEYS
            records[name] = write(broker.address, name, rounds_of(keys))
        commit(broker.address)
        for name, (tool, arguments, version) in TOOLS.items():
            told[name] = home / name
            told[name].write_text(described_by(tool, broker.address, *arguments, version=version), encoding="utf-8")
        asked = planned("--bootstrap-server", broker.address, broker.log_dir)
    assert len(records["deleted-0"]) == 400
    assert all(len(list((broker.log_dir / f"{name}-0").glob("*.log"))) > 3 for name in TOPICS if name != "plain")
    return Written(home / "written", records, told, asked)


def commit(address: str) -> None:
    """Let a group commit offsets until its topic has closed segments."""
    reader = group(address)
    try:
        for offset in range(1, COMMITTED + 1):
            position = {TopicPartition("compacted", 0): OffsetAndMetadata(offset, "x" * 1000, -1)}
            patiently(partial(reader.commit, position))
    finally:
        reader.close()


def committed(address: str) -> int | None:
    reader = group(address)
    try:
        offset: int | None = patiently(lambda: reader.committed(TopicPartition("compacted", 0)))
        return offset
    finally:
        reader.close()


def group(address: str) -> Any:
    reader = KafkaConsumer(bootstrap_servers=address, group_id=GROUP, enable_auto_commit=False)
    reader.assign([TopicPartition("compacted", 0)])
    return reader


@dataclass(frozen=True)
class Stopped:
    """A copy of the broker that is stopped, for kcompact."""

    broker: BrokerWithZooKeeper
    log_dir: Path
    file: Path

    def run(self, *arguments: str | Path) -> Ran:
        return kcompact(*arguments, "--broker-config", self.file, self.log_dir)


def copy_of(written: Written, target: Path, properties: str) -> Stopped:
    """Return a copy of the stopped broker, with other static settings."""
    broker = BrokerWithZooKeeper(
        copy_of_home(written.home, target), properties=OWN_HANDS_OFF + properties + SMALL_OFFSETS
    )
    broker.write_properties(broker.server_properties)
    return Stopped(broker, broker.log_dir, target / "server.properties")


UNFRIENDLY = pytest.mark.parametrize("properties", [DELETES, COMPACTS], ids=["broker deletes", "broker compacts"])


@UNFRIENDLY
def test_no_file_has_the_policy(written: Written, tmp_path: Path, properties: str) -> None:
    stopped = copy_of(written, tmp_path / "home", properties)
    found = reasons("--broker-config", stopped.file, stopped.log_dir)
    assert found == dict.fromkeys(PARTITIONS, "policy-unknown")
    before = digest(stopped.log_dir)
    ran = stopped.run(*CLEAN, "--apply-retention")
    assert (ran.code, digest(stopped.log_dir)) == (4, before), ran.err
    again = served_again(stopped.broker, PARTITIONS)
    assert {name: each.records for name, each in again.items()} == written.records


def test_the_users_word_for_one_topic(written: Written, tmp_path: Path) -> None:
    stopped = copy_of(written, tmp_path / "home", DELETES)
    before = digest(stopped.log_dir / "deleted-0")
    ran = stopped.run(*CLEAN, "--apply-retention", "--json", "--config", "compacted:cleanup.policy=compact")
    status = {Path(entry["directory"]).name: entry["status"] for entry in ran.json["partitions"]}
    assert status["compacted-0"] == "cleaned"
    assert digest(stopped.log_dir / "deleted-0") == before
    again = served_again(stopped.broker, PARTITIONS)
    assert len(again["compacted-0"].records) < len(written.records["compacted-0"])
    assert len(again["compacted-0"].live) == KEYS
    assert {name: each.live for name, each in again.items()} == lives(written)


def lives(written: Written) -> dict[str, dict[bytes, bytes]]:
    return {name: live(records) for name, records in written.records.items()}


def test_the_users_word_for_retention(written: Written, tmp_path: Path) -> None:
    stopped = copy_of(written, tmp_path / "home", DELETES)
    own = (*CLEAN, "--apply-retention", "--topic", "compacted", "--config", "compacted:cleanup.policy=compact,delete")
    by_time, by_size = (("--config", f"compacted:retention.{name}") for name in ("ms=1", "bytes=-1"))
    for named in ((), by_time, by_size):
        stopped.run(*own, *named)
        assert deleted_up_to(stopped) == 0, named
    again = served_again(stopped.broker, ["compacted-0"])["compacted-0"]
    assert (again.start_offset, again.live) == (0, live(written.records["compacted-0"]))
    ran = stopped.run(*own, *by_time, *by_size)
    assert ran.code == 0, ran.err
    active = max(stopped.log_dir.glob("compacted-0/*.log")).stem
    assert served_again(stopped.broker, ["compacted-0"])["compacted-0"].start_offset == int(active) > 0


def deleted_up_to(stopped: Stopped) -> int:
    return int(min(stopped.log_dir.glob("compacted-0/*.log")).stem)


def test_the_users_word_for_every_topic(written: Written, tmp_path: Path) -> None:
    stopped = copy_of(written, tmp_path / "home", DELETES)
    word = ("--config", "cleanup.policy=compact")
    said = " ".join(note_texts(stopped.run("plan", "--json", *word).json))
    assert [topic for topic in TOPICS if topic not in said] == []
    ran = stopped.run(*CLEAN, "--apply-retention", *word)
    assert ran.code == 0, ran.err
    again = served_again(stopped.broker, PARTITIONS)
    assert len(again["deleted-0"].records) < len(written.records["deleted-0"])
    assert {name: each.live for name, each in again.items()} == lives(written)


@pytest.mark.parametrize("tool", TOOLS)
def test_what_kafkas_tools_told(written: Written, tmp_path: Path, tool: str) -> None:
    stopped = copy_of(written, tmp_path / "home", COMPACTS)
    known = ("--broker-config", stopped.file, "--topic-configs", written.told[tool])
    found = planned(*known, stopped.log_dir)
    for name, policy in POLICIES.items():
        setting = found[name]["config"]["cleanup.policy"]
        assert setting == {"value": policy, "source": "topic-override", "origin": "topic-configs"}, name
        assert found[name]["assumed"] == []
    # kafka-topics shows each value that is no default of Kafka, also the broker's of that time.
    told = written.told[tool].read_text(encoding="utf-8")
    assert found["plain-0"]["config"]["cleanup.policy"]["value"] == (
        "delete" if "PartitionCount" in told else "compact"
    )
    assert policies(*known, "--config", "cleanup.policy=compact", stopped.log_dir).items() >= POLICIES.items()
    said = " ".join(note_texts(stopped.run("plan", "--json", *known[2:], "--config", "cleanup.policy=compact").json))
    assert "deleted" in said
    assert policies(*known, "--config", "del*:cleanup.policy=compact", stopped.log_dir)["deleted-0"] == "compact"


@pytest.mark.parametrize("tool", TOOLS)
def test_the_running_broker_says_the_same(written: Written, tmp_path: Path, tool: str) -> None:
    stopped = copy_of(written, tmp_path / "home", DELETES)
    found = planned("--broker-config", stopped.file, "--topic-configs", written.told[tool], stopped.log_dir)
    for name in PARTITIONS:
        told, asked = found[name]["config"], written.asked[name]["config"]
        assert {setting: each["value"] for setting, each in told.items()} == {
            setting: each["value"] for setting, each in asked.items()
        }, name
        assert asked["cleanup.policy"]["origin"] == "bootstrap-server"


@pytest.mark.parametrize("tool", ["kafka-configs", "kafka-topics"])
def test_retention_by_what_kafkas_tools_told(written: Written, tmp_path: Path, tool: str) -> None:
    stopped = copy_of(written, tmp_path / "home", DELETES)
    ran = stopped.run(*CLEAN, "--apply-retention", "--topic-configs", written.told[tool])
    assert ran.code == 0, ran.err
    again = served_again(stopped.broker, PARTITIONS)
    assert again["kept-0"].records == written.records["kept-0"]
    for name in ("compacted-0", "both-0"):
        assert (again[name].start_offset, again[name].live) == (0, live(written.records[name]))
        assert len(again[name].records) < len(written.records[name])
    by_kafka = deleted_by_kafka(copy_of(written, tmp_path / "kafka's", DELETES + AT_ONCE).broker)
    assert 0 < again["deleted-0"].start_offset <= by_kafka["deleted-0"]
    assert {name for name, offset in by_kafka.items() if offset} <= {"deleted-0", "plain-0"}


def deleted_by_kafka(broker: Broker) -> dict[str, int]:
    """Let a broker delete the old segments of what nobody has cleaned; return where each partition starts then."""
    with broker:
        assert becomes(lambda: served(broker.address, ["deleted-0"])["deleted-0"].start_offset)
        return {name: each.start_offset for name, each in served(broker.address, PARTITIONS).items()}


def test_the_offsets_of_groups(written: Written, tmp_path: Path) -> None:
    stopped = copy_of(written, tmp_path / "home", DELETES)
    internal = ("--include-internal", "--topic", "__consumer_offsets")
    entry = stopped.run("plan", "--json", *internal).partition
    assert (entry["config"]["cleanup.policy"]["value"], entry["reason"]) == ("compact", "below-ratio")
    ran = stopped.run(*CLEAN, "--json", "--apply-retention", *internal)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran.err
    assert ran.partition["bytes_written"] < ran.partition["bytes_read"] / 2
    with stopped.broker as broker:
        assert committed(broker.address) == COMMITTED


# -- two disks --------------------

HOURLY = {"segment.ms": str(HOUR_MS)}
ON_DISKS = {
    "compacted": {**HOURLY, "cleanup.policy": "compact"},
    "kept": {**HOURLY, "cleanup.policy": "delete", "retention.ms": "-1"},
    "aged": {**HOURLY, "cleanup.policy": "delete", "retention.ms": str(3 * HOUR_MS)},
    "plain": HOURLY,
}
"""Each has two partitions, one on each disk."""
OWN_POLICIES = {"compacted": "compact", "kept": "delete", "aged": "delete"}
ALL_ON_DISKS = [f"{topic}-{number}" for topic in ON_DISKS for number in (0, 1)]
KEYS_ON_DISKS = 200


@dataclass(frozen=True)
class Disks:
    """A broker with two disks that is stopped, and all records of each of its partitions."""

    broker: BrokerWithDisks
    records: list[Record]

    @property
    def paths(self) -> tuple[Path, Path]:
        return self.broker.disks

    @property
    def file(self) -> Path:
        return self.broker.log_dir.with_name("server.properties")

    def serves(self) -> dict[str, Served]:
        return served_again(self.broker, ALL_ON_DISKS)


@pytest.fixture(scope="module")
def written_on_disks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    home = tmp_path_factory.mktemp("disks")
    records: list[Record] = []
    broker = BrokerWithDisks(home, properties=COMPACTS)
    with broker:
        for topic, settings in ON_DISKS.items():
            create_topics(broker.address, {topic: settings}, partitions=2)
        for name in ALL_ON_DISKS:
            records = write(broker.address, name, rounds_of(KEYS_ON_DISKS), at_once=100)
    for disk in broker.disks:
        assert sorted(path.name[:-2] for path in disk.glob("[a-z]*-[01]")) == sorted(ON_DISKS)
    return home, records


@pytest.fixture
def disks(written_on_disks: tuple[Path, list[Record]], tmp_path: Path) -> Disks:
    """A copy, for kcompact."""
    home, records = written_on_disks
    return disks_at(home, tmp_path / "home", records)


def disks_at(home: Path, target: Path, records: list[Record], properties: str = "") -> Disks:
    broker = BrokerWithDisks(copy_of_home(home, target), properties=COMPACTS + properties)
    broker.write_properties(broker.server_properties)
    return Disks(broker, records)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kcompact look for the file of the broker, as it does unless it is told otherwise."""
    monkeypatch.delenv("KCOMPACT_BROKER_SEARCH")


def settings_on(disk: Path, *arguments: str | Path) -> dict[str, tuple[str, Any]]:
    """Return what `plan` says of the partitions on one disk: the reason and all settings, with their sources."""
    found = planned(*arguments)
    return {path.name: (found[path.name]["reason"], found[path.name]["config"]) for path in disk.glob("[a-z]*-[01]")}


def test_each_way_to_name_the_disks(disks: Disks, monkeypatch: pytest.MonkeyPatch) -> None:
    d1, d2 = disks.paths
    given = ("--broker-config", disks.file)
    found = [settings_on(d2, *given, *named) for named in ([d2], [d1, d2], [d2, d1])]
    monkeypatch.delenv("KCOMPACT_BROKER_SEARCH")
    found += [settings_on(d2, *named) for named in ([d2], [d1, d2], [d2, d1])]
    assert [each for each in found if each != found[0]] == []
    for name, (reason, config) in found[0].items():
        topic = name[:-2]
        policy = config["cleanup.policy"]
        where = ("broker-config", None) if topic == "plain" else ("topic-override", "metadata-log")
        assert (policy["source"], policy["origin"]) == where, name
        assert policy["value"] == OWN_POLICIES.get(topic, "compact"), name
        assert reason == ("below-ratio" if policy["value"] == "compact" else "policy-delete"), name


def test_a_disk_beside_that_of_the_metadata_log(disks: Disks) -> None:
    """Nobody looks for the broker's file, so its own settings are unknown, but not those of the topics."""
    d1, d2 = disks.paths
    first, second = (settings_on(d2, *named) for named in ([d1, d2], [d2, d1]))
    assert first == second
    own = {name[:-2]: config["cleanup.policy"] for name, (_, config) in first.items() if name[:-2] in OWN_POLICIES}
    assert {topic: policy["value"] for topic, policy in own.items()} == OWN_POLICIES
    assert {policy["origin"] for policy in own.values()} == {"metadata-log"}


def test_cleaning_and_retention_on_both_disks(
    disks: Disks, written_on_disks: tuple[Path, list[Record]], tmp_path: Path, searches: None
) -> None:
    home, records = written_on_disks
    ran = kcompact(*CLEAN, "--apply-retention", *disks.paths)
    assert ran.code == 0, ran.err
    again = disks.serves()
    by_kafka = starts_by_kafka(disks_at(home, tmp_path / "kafka's", records, AT_ONCE))
    for name, each in again.items():
        assert each.start_offset == by_kafka[name], name
        if name.startswith("kept"):
            assert each.records == records, name
        elif not name.startswith("aged"):
            assert each.live == live(records), name
            assert len(each.live) == KEYS_ON_DISKS < len(each.records) < len(records)
    assert {name for name, each in again.items() if each.start_offset} == {"aged-0", "aged-1"}


def starts_by_kafka(disks: Disks) -> dict[str, int]:
    """Let a broker delete the old segments of what nobody has cleaned; return where each partition starts then."""
    aged = ["aged-0", "aged-1"]
    with disks.broker as broker:
        assert becomes(lambda: all(each.start_offset for each in served(broker.address, aged).values()))
        return {name: each.start_offset for name, each in served(broker.address, ALL_ON_DISKS).items()}


def test_a_disk_alone(disks: Disks) -> None:
    """Neither the broker's file nor the disk with the metadata log is there."""
    _, d2 = disks.paths
    for name, entry in planned(d2).items():
        assert entry["reason"] == "policy-unknown"
        assert f"--config {name[:-2]}:cleanup.policy=compact" in entry["hint"]
    assert "--topic-configs FILE" in kcompact("plan", d2).out
    unchanged(disks, *CLEAN, "--apply-retention", d2)
    assert {name: each.records for name, each in disks.serves().items()} == dict.fromkeys(ALL_ON_DISKS, disks.records)


def unchanged(disks: Disks, *arguments: str | Path) -> str:
    """Run a command that must refuse, and change nothing of the broker's; return what it says."""
    before = digest(disks.file.parent)
    ran = kcompact(*arguments)
    assert (ran.code, digest(disks.file.parent)) == (4, before), ran.err
    return ran.out + ran.err


def test_the_disk_of_the_metadata_log_is_gone(disks: Disks, searches: None) -> None:
    d1, d2 = disks.paths
    away = d1.rename(d1.with_name("away"))
    for given in ((), ("--broker-config", disks.file)):
        assert str(d1) in unchanged(disks, *CLEAN, "--apply-retention", *given, d2)
        assert set(reasons(*given, d2).values()) == {"policy-unknown"}
    ran = kcompact("doctor", "--json", d2)
    (said,) = [each["broker_says"] for each in ran.json["findings"] if each["finding"] == "no-meta-properties"]
    with pytest.raises(RuntimeError):
        disks.broker.start()
    disks.broker.stop()
    assert said in disks.broker.logged
    away.rename(d1)
    assert {name: each.records for name, each in disks.serves().items()} == dict.fromkeys(ALL_ON_DISKS, disks.records)


def test_a_disk_of_the_broker_is_missing(disks: Disks, searches: None) -> None:
    d1, d2 = disks.paths
    away = d2.rename(d2.with_name("away"))
    unchanged(disks, "clean", "--force", d1)
    ran = kcompact(*CLEAN, d1)
    assert ran.code == 0, ran.err
    away.rename(d2)
    again = disks.serves()
    assert {name: each.live for name, each in again.items()} == dict.fromkeys(ALL_ON_DISKS, live(disks.records))
    shorter = {name for name, each in again.items() if each.records != disks.records}
    assert shorter == {path.name for topic in ("compacted", "plain") for path in d1.glob(f"{topic}-*")}


def test_doctor_finds_on_both_disks_what_it_finds_on_each(disks: Disks, searches: None) -> None:
    d1, d2 = disks.paths
    (d1 / "lost+found").mkdir()
    shutil.copytree(next(d2.glob("kept-*")), d2 / "gone-0")
    (d2 / "gone-0" / "partition.metadata").write_bytes(build_partition_metadata("aTopicOfNoClusterAtAll"))
    for disk in disks.paths:
        log = next(disk.glob("plain-*/*.log"))
        shutil.copy(log, log.with_name("backup.log"))
    one, other, both = findings(d1), findings(d2), findings(d1, d2)
    kinds = {kind for kind, _ in one}, {kind for kind, _ in other}
    assert kinds[0] >= {"unknown-directory", "unknown-file", "never-dirty-enough"}
    assert kinds[1] >= {"stray-replica", "unknown-file", "never-dirty-enough"}
    # The release is that of the broker, and named once.
    assert (one | other) - both == {("broker-release", str(d2))}


def findings(*log_dirs: Path) -> set[tuple[str, str]]:
    """Return each finding and its file, or its directory."""
    found = kcompact("doctor", "--json", *log_dirs).json["findings"]
    return {(each["finding"], each["file"] or each["directory"]) for each in found}
