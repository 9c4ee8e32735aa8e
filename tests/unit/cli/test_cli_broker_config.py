"""The broker's static settings: found where brokers keep them, given with --broker-config, or only assumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kcompact.config import admin_client
from kcompact.config.admin_client import LiveCluster
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.config.settings import TopicOverrides
from kcompact.format.properties import encode_uuid
from kcompact.views.findings import FINE, FINE_AS_FAR_AS_READ
from tests.support.command_line import (
    ASSUMED,
    NOW,
    Ran,
    digest,
    kcompact,
    note_texts,
    partition,
    server_properties,
    settings,
)
from tests.support.metadata_log import ORDERS, batches, log, of_broker, topic, write

AT = ("--now", NOW)
COMPACTED = {"cleanup.policy": "compact"}
POLICY = ("--topic-configs", str(Path(__file__).parents[2] / "support" / "examples" / "compacted-orders.json"))
"""What the topic has of its own is known, so all that is assumed is the broker's."""
CLEAN = ("clean", "--engine", "in-process", "--json", *AT)
KRAFT = "process.roles=broker\nnode.id=1\n"
OLD_LOG = """\
log now=10:00
0: a=*1000^08:00
10: b=*1000^09:00
20: c=*1000^09:30
"""
A_MONTH_LATER = ("--now", "2024-02-01T10:00:00Z")


@pytest.fixture
def _searches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCOMPACT_BROKER_SEARCH", "auto")


searches = pytest.mark.usefixtures("_searches")


def file_above(log_dir: Path, text: str = "", head: str = KRAFT) -> Path:
    """Write the broker's file where the archive has it."""
    file = log_dir.parent / "config" / "server.properties"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{head}log.dirs={log_dir}\n{text}\n", encoding="utf-8")
    return file


def plan(*arguments: str | Path) -> Ran:
    ran = kcompact("plan", "--json", *AT, *arguments)
    assert ran.code == 0, ran.err
    return ran


# Found


SETTINGS: list[tuple[str, str, Any, str]] = [
    # a line of server.properties, the setting, its value, the verdict with it
    ("log.cleaner.enable=false", "log.cleaner.enable", False, "dirty-ratio"),
    ("log.segment.bytes=2000000", "segment.bytes", 2_000_000, "dirty-ratio"),
    ("log.cleaner.min.cleanable.ratio=1.0", "min.cleanable.dirty.ratio", 1.0, "below-ratio"),
    ("log.cleaner.min.compaction.lag.ms=7200000", "min.compaction.lag.ms", 7_200_000, "min-compaction-lag"),
    ("log.cleaner.delete.retention.ms=5", "delete.retention.ms", 5, "dirty-ratio"),
]


@searches
@pytest.mark.parametrize(("line", "name", "value", "reason"), SETTINGS, ids=[case[1] for case in SETTINGS])
def test_a_file_that_names_the_directory_decides(line: str, name: str, value: Any, reason: str, tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    file = file_above(tmp_path / "logs", line)
    before = digest(tmp_path)
    for path in (directory, tmp_path / "logs"):
        ran = plan(*POLICY, path)
        entry = ran.partition
        assert entry["config"][name] == {"value": value, "source": "broker-config", "origin": None}
        assert (entry["reason"], entry["assumed"], entry["broker_config"]) == (reason, [], str(file))
        found = f"the broker's static settings are those of {file}: its log.dirs names {tmp_path / 'logs'}"
        assert note_texts(ran.json) == [found]
        assert f"note: {found}\n" == ran.err
    given = plan(*POLICY, "--broker-config", file, directory)
    assert given.partition == entry
    assert given.err == ""
    assert digest(tmp_path) == before


@searches
def test_clean_takes_what_the_broker_would(tmp_path: Path) -> None:
    partition(tmp_path / "logs")
    file_above(tmp_path / "logs", "log.cleaner.min.compaction.lag.ms=7200000")
    assert kcompact(*CLEAN, *POLICY, tmp_path / "logs").partition["reason"] == "min-compaction-lag"
    file_above(tmp_path / "logs", "log.segment.bytes=150")
    entry = kcompact(*CLEAN, *POLICY, tmp_path / "logs").partition
    assert (entry["status"], entry["assumed"]) == ("cleaned", [])
    assert len(list((tmp_path / "logs" / "orders-0").glob("*.log"))) == 3  # No two segments fit into one.


@searches
def test_the_order_of_the_sources(tmp_path: Path) -> None:
    log_dir, ratio = tmp_path / "logs", "log.cleaner.min.cleanable.ratio"
    partition(log_dir)
    compacted = topic("orders", ORDERS, cleanup_policy="compact")
    file_above(log_dir, f"{ratio}=0.3")
    other = tmp_path / "given.properties"
    other.write_text(f"{KRAFT}log.dirs={log_dir}\n{ratio}=0.4\n")

    def source(*options: str | Path) -> tuple[Any, Any]:
        found = plan(*options, log_dir / "orders-0").partition["config"]["min.cleanable.dirty.ratio"]
        return found["value"], found["source"]

    assert source(*POLICY) == (0.3, "broker-config")
    assert source(*POLICY, "--broker-config", other) == (0.4, "broker-config")
    assert "given.properties" in plan(*POLICY, "--broker-config", other, log_dir).partition["broker_config"]
    write(log_dir, {log(): batches(compacted)})
    assert source() == (0.3, "broker-config")
    shutil.rmtree(log_dir / METADATA_DIRECTORY)
    write(log_dir, {log(): batches([*compacted, of_broker("1", ratio, "0.2")])})
    assert source() == (0.2, "broker-override")
    assert source("--broker-config", other) == (0.2, "broker-override")
    assert source("--config", f"{ratio}=0.1") == (0.1, "option")


@searches
def test_the_file_leads_to_the_metadata_log(tmp_path: Path) -> None:
    """With several log directories, only one of them has the metadata log."""
    partition(tmp_path / "data")
    apart = write(tmp_path / "apart", {log(): batches(topic("orders", ORDERS, cleanup_policy="compact"))})
    meta = (apart / "meta.properties").read_bytes()
    (tmp_path / "data" / "meta.properties").write_bytes(meta)
    assert plan(tmp_path / "data").partition["reason"] == "policy-unknown"
    file_above(tmp_path / "data", f"metadata.log.dir={apart}")
    assert plan(tmp_path / "data").partition["reason"] != "policy-unknown"


@searches
def test_a_file_with_a_value_that_a_broker_refuses(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    lines = ("log.cleaner.threads=0", "log.cleaner.min.cleanable.ratio=0,2", "log.cleaner.min.compaction.lag.ms=5")
    file = file_above(tmp_path / "logs", "\n".join(lines))
    ran = plan(*POLICY, directory)
    unknown = ["min.cleanable.dirty.ratio", "log.cleaner.threads"]
    assert (ran.partition["broker_config"], ran.partition["assumed"]) == (str(file), unknown)
    assert ran.partition["config"]["min.compaction.lag.ms"]["value"] == 5
    for name, problem in (("threads", "'0' must be between 1 and"), ("min.cleanable.ratio", "'0,2' is not a number")):
        assert f"log.cleaner.{name} of {file} has no effect: {problem}" in ran.err
    assert f"{file} has values for them that a broker refuses: Kafka's defaults are assumed, and decide here" in ran.err
    assert str(file) in findings(tmp_path / "logs")["bad-setting"]["problem"]


@searches
def test_numbers_that_are_none(tmp_path: Path) -> None:
    """Kafka takes them. No ratio is above NaN, and a map with such a load factor has no room."""
    directory = partition(tmp_path / "logs")
    names = ("min.cleanable.ratio", "io.buffer.load.factor", "io.max.bytes.per.second")
    file_above(tmp_path / "logs", "\n".join(f"log.cleaner.{name}=NaN" for name in names))
    ran = plan(*POLICY, "--explain", directory)
    shown = ran.partition["config"]["min.cleanable.dirty.ratio"]
    assert (ran.partition["reason"], shown["value"], shown["source"]) == ("below-ratio", "NaN", "broker-config")
    broker = ran.partition["explain"]["broker"]
    assert (broker["load_factor"], broker["passes_at_most"], broker["seconds_throttled"]) == (None, None, None)
    assert "is not above NaN" in kcompact("plan", "--explain", *AT, *POLICY, directory).out
    assert "never-dirty-enough" in findings(tmp_path / "logs", *POLICY)


@searches
def test_what_only_the_broker_can_resolve(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    file = file_above(tmp_path / "logs", "config.providers=env\nlog.cleaner.enable=${env:CLEANER}")
    ran = plan(*POLICY, directory)
    assert (ran.partition["assumed"], ran.partition["broker_config"]) == (["log.cleaner.enable"], str(file))
    why = "has values for them that only the broker can resolve: Kafka's defaults are assumed, and decide here, for"
    assert f"note: {file} {why} log.cleaner.enable; pass --config NAME=VALUE\n" in ran.err
    assert kcompact("plan", *AT, *POLICY, "--config", "log.cleaner.enable=true", directory).err.count("note") == 1


@searches
def test_wrong_names_in_a_file_that_is_found(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    file = file_above(tmp_path / "logs", "log.cleaner.enabled=false")
    assert f"log.cleaner.enabled of {file} has no effect" in plan(*POLICY, directory).err
    assert "log.cleaner.enabled" in findings(tmp_path / "logs")["unused-setting"]["problem"]


# Assumed


def note_of(ran: Ran) -> str:
    (line,) = ASSUMED.findall(ran.err)
    assert line.removeprefix("note: ").rstrip("\n") in note_texts(ran.json)
    return str(line)


NAMES = "segment.bytes, segment.index.bytes, index.interval.bytes, log.cleaner.enable"


def test_one_note_names_what_decides_and_is_assumed(tmp_path: Path) -> None:
    partition(tmp_path / "logs")
    partition(tmp_path / "logs", settings("name=users-0"))
    (topics := tmp_path / "topics.json").write_text(json.dumps(dict.fromkeys(("orders", "users"), COMPACTED)))
    ran = plan("--topic-configs", topics, tmp_path / "logs")
    deciding = f"min.cleanable.dirty.ratio, min.compaction.lag.ms, delete.retention.ms, {NAMES}"
    assert note_of(ran) == (
        f"note: no server.properties that names {tmp_path / 'logs'} was read: Kafka's defaults are assumed, and decide "
        f"here, for {deciding}; pass --broker-config FILE\n"
    )
    entry = ran.json["partitions"][0]
    assert entry["broker_config"] is None
    assert set(deciding.split(", ")) < set(entry["assumed"])
    assert all(entry["config"][name]["source"] == "default" for name in entry["assumed"])
    assert "cleanup.policy" not in entry["assumed"]


def test_what_is_given_is_not_assumed(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    given = ["min.cleanable.dirty.ratio=0.5", "log.cleaner.delete.retention.ms=86400000", "log.cleaner.enable=true"]
    options = [word for each in given for word in ("--config", each)]
    ran = plan(*POLICY, *options, directory)
    names = "min.compaction.lag.ms, segment.bytes, segment.index.bytes, index.interval.bytes"
    assert f" for {names}; pass" in note_of(ran)
    assert not {"min.cleanable.dirty.ratio", "delete.retention.ms", "log.cleaner.enable"} & {*ran.partition["assumed"]}
    file = server_properties(tmp_path / "logs")
    known = plan(*POLICY, "--broker-config", file, directory)
    assert (known.partition["assumed"], known.err) == ([], "")


def test_every_command_says_it(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    for command in (("plan",), ("inspect",), ("clean", "--dry-run", "--engine", "in-process")):
        ran = kcompact(*command, "--json", *AT, *POLICY, directory)
        assert NAMES in note_of(ran), command
        assert "log.cleaner.enable" in ran.partition["assumed"]


def test_the_question_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path / "logs")
    monkeypatch.setattr("kcompact.cli.consent.is_needed", lambda *_, **__: True)
    ran = kcompact("clean", "--engine", "in-process", *AT, *POLICY, directory)
    above, question, _ = ran.err.partition("Clean 1 partition")
    assert question
    assert above.count("Kafka's defaults are assumed, and decide here, for") == 1
    assert above.rstrip().endswith("pass --broker-config FILE")


def test_explain_marks_what_is_assumed(tmp_path: Path) -> None:
    directory = partition(tmp_path / "logs")
    ratio = ("--config", "min.cleanable.dirty.ratio=0.5")
    conditions = plan(*POLICY, *ratio, "--explain", directory).partition["explain"]["conditions"]
    assumed = {each["name"]: each["assumed"] for each in conditions}
    assert assumed["log.cleaner.enable"] == ["log.cleaner.enable"]
    assert assumed["active-segment"] == ["segment.bytes", "segment.ms", "segment.jitter.ms", "max.compaction.lag.ms"]
    assert assumed["min.cleanable.dirty.ratio"] == assumed["cleanup.policy"] == assumed["high-watermark"] == []
    lines = kcompact("plan", *AT, *POLICY, *ratio, "--explain", directory).out.splitlines()
    marked = {line.split()[0] for line in lines if ", assumed  " in line}
    assert marked == {name for name, settings in assumed.items() if settings}
    (last,) = [line for line in lines if line.startswith("  assumed ")]
    why = f"no server.properties that names {tmp_path / 'logs'} was read"
    assert last.startswith(f"  assumed    Kafka's defaults, because {why}: ")
    assert "log.cleaner.enable=true" in last
    assert "min.cleanable.dirty.ratio" not in last
    file = server_properties(tmp_path / "logs")
    known = kcompact("plan", *AT, *POLICY, "--broker-config", file, "--explain", directory).out
    assert "assumed" not in known


@pytest.mark.long
@pytest.mark.usefixtures("without_figures")
def test_the_report_marks_what_is_assumed(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    directory, page = partition(tmp_path / "logs"), tmp_path / "report.html"
    assert kcompact("report", *AT, *POLICY, "-o", page, directory).code == 0
    text = page.read_text(encoding="utf-8")
    assert "ok, assumed" in text
    assert "Kafka&#39;s default, assumed" in text
    assert "and decide here, for" in text
    file = server_properties(tmp_path / "logs")
    assert kcompact("report", *AT, *POLICY, "--broker-config", file, "-o", page, directory).code == 0
    assert "assumed" not in page.read_text(encoding="utf-8")


def findings(log_dir: Path, *options: str | Path) -> dict[str, dict[str, Any]]:
    ran = kcompact("doctor", "--json", *AT, *POLICY, *options, log_dir)
    return {each["finding"]: each for each in ran.json["findings"]}


def test_doctor_does_not_say_what_it_cannot_know(tmp_path: Path) -> None:
    partition(tmp_path / "logs", settings("hw=7"))
    (tmp_path / "logs" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    found = findings(tmp_path / "logs")
    assert "log.cleaner.enable=true" in found["assumed-settings"]["problem"]
    assert found["assumed-settings"]["severity"] == "note"
    options = (*AT, *POLICY, "--topic", "orders")
    ran = kcompact("doctor", *options, tmp_path / "logs")
    assert (ran.code, FINE_AS_FAR_AS_READ in ran.out, FINE in ran.out) == (0, True, False), ran.out
    known = kcompact("doctor", *options, "--broker-config", server_properties(tmp_path / "logs"), tmp_path / "logs")
    assert (known.code, FINE in known.out) == (0, True), known.out


@searches
def test_doctor_finds_what_the_file_stops(tmp_path: Path) -> None:
    partition(tmp_path / "logs", settings("hw=7"))
    file = file_above(tmp_path / "logs", "log.cleaner.enable=false")
    found = findings(tmp_path / "logs")
    assert found["broker-config"]["file"] == str(file)
    assert found["cleaner-disabled"]["severity"] == "stops its cleaner"
    assert "assumed-settings" not in found


def test_a_cluster_that_shows_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition(tmp_path / "logs")
    (tmp_path / "logs" / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")

    def live(*, is_up: bool) -> LiveCluster:
        orders = TopicOverrides(
            values={"cleanup.policy": "compact"}, origin="bootstrap-server", topic_id=encode_uuid(ORDERS)
        )
        brokers: dict[int, Any] = {1: []} if is_up else {}
        return LiveCluster(
            address="host:1", cluster_id="c", topics={"orders": orders}, cluster_defaults={}, brokers=brokers
        )

    for is_up in (True, False):
        monkeypatch.setattr(admin_client, "ask_cluster", lambda *_, is_up=is_up, **__: live(is_up=is_up))
        entry = plan("--bootstrap-server", "host:1", tmp_path / "logs").partition
        assert (entry["assumed"] == []) == is_up


# Given


def given(kind: str, log_dir: Path) -> Path:
    """Write a file that is not the one of the log directory's broker, and return it."""
    file = log_dir.parent / "given.properties"
    texts = {
        "meta.properties": "version=1\ncluster.id=c\nnode.id=1\ndirectory.id=d\n",
        "a controller's": f"process.roles=controller\nnode.id=1\nlog.dirs={log_dir}\n",
        "another broker's": f"{KRAFT}log.dirs=/elsewhere\n",
        "a fragment": f"node.id=1\nlog.dirs={log_dir}\n",
    }
    file.write_text(texts[kind])
    return file


@pytest.mark.parametrize("kind", ["meta.properties", "a controller's", "another broker's", "a fragment"])
def test_a_file_of_something_else_deletes_nothing(kind: str, tmp_path: Path) -> None:
    """By Kafka's default of seven days each closed segment is due."""
    log_dir = tmp_path / "logs"
    partition(log_dir, OLD_LOG)
    file = given(kind, log_dir)
    before = digest(log_dir)
    (topics := tmp_path / "topics.json").write_text('{"orders": {"cleanup.policy": "delete"}}')
    retention = ("--topic-configs", topics, "--apply-retention", *A_MONTH_LATER)
    clean = ("clean", "--engine", "in-process", "--yes", *retention, "--broker-config", file)
    ran = kcompact(*clean, log_dir)
    assert (ran.code, ran.out) == (2, "")
    assert digest(log_dir) == before
    moved = kcompact(*clean, "--log-dirs-moved", log_dir)
    if kind == "another broker's":  # It is the user's word that it is the same broker's.
        assert (moved.code, len(list((log_dir / "orders-0").glob("*.log")))) == (0, 1)
    else:
        assert (moved.code, digest(log_dir) == before) == (2, True)


def test_the_file_of_another_node_deletes_nothing(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition(log_dir, OLD_LOG)
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    file = server_properties(log_dir, text="log.retention.ms=1")
    file.write_text(file.read_text().replace("node.id=1", "node.id=2"))
    before = digest(log_dir)
    clean = ("clean", "--yes", "--apply-retention", *A_MONTH_LATER, *POLICY, "--broker-config", file, log_dir)
    ran = kcompact(*clean)
    assert (ran.code, ran.out, digest(log_dir) == before) == (2, "", True)
    assert f"has the node id 2, and meta.properties of {log_dir} has 1: it is that of another broker" in ran.err


COMMANDS = (("plan",), ("inspect",), ("doctor",), CLEAN[:-2], ("report", "-o", "-"))


@pytest.mark.parametrize("command", COMMANDS, ids=[command[0] for command in COMMANDS])
def test_a_copy_is_easily_said_to_be_one(command: tuple[str, ...], tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition(log_dir)
    file = given("another broker's", log_dir)
    before = digest(log_dir)
    options = (*command, *AT, *POLICY, "--broker-config", str(file))
    ran = kcompact(*options, log_dir)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"error: {file}: log.dirs names /elsewhere, and not {log_dir}\n"
        "If the directory is a copy or another mount of a log directory of this broker, add --log-dirs-moved. "
        "Else pass the file of its own broker, or single settings with --config.\n"
    )
    assert digest(log_dir) == before
    if command[0] != "report":
        assert kcompact(*options, "--log-dirs-moved", log_dir).code != 2


def test_the_word_of_the_user_needs_a_file(tmp_path: Path) -> None:
    ran = kcompact("plan", "--log-dirs-moved", partition(tmp_path))
    assert (ran.code, "--log-dirs-moved needs --broker-config" in ran.err) == (2, True)


def test_the_file_of_another_node_is_noted_if_the_user_says_that_it_is_the_brokers(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    partition(log_dir)
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=2\n")
    file = server_properties(log_dir)
    why = f"{file} has the node id 1, and meta.properties has 2: its settings are those of another broker"
    assert why in note_texts(plan(*POLICY, "--broker-config", file, "--log-dirs-moved", log_dir).partition)


def test_every_directory_must_be_named(tmp_path: Path) -> None:
    partition(tmp_path / "a")
    partition(tmp_path / "b", settings("name=users-0"))
    file = server_properties(tmp_path / "a")
    ran = kcompact("plan", *AT, *POLICY, "--broker-config", file, tmp_path / "a", tmp_path / "b")
    assert (ran.code, f"and not {tmp_path / 'b'}" in ran.err) == (2, True)
    both = server_properties(tmp_path / "a", tmp_path / "b")
    assert kcompact("plan", *AT, *POLICY, "--broker-config", both, tmp_path / "a", tmp_path / "b").code == 0


def test_the_search_can_only_be_on_or_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KCOMPACT_BROKER_SEARCH", "maybe")
    ran = kcompact("plan", *AT, *POLICY, partition(tmp_path))
    assert (ran.code, "KCOMPACT_BROKER_SEARCH: 'maybe' is neither auto nor off" in ran.err) == (2, True)
