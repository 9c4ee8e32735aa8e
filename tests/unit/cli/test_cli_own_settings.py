"""What a topic has of its own: which source says it, what is said where none does, and what contradicts it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kcompact.config.settings import OF_THE_TOPIC_ALONE
from kcompact.format.properties import META_PROPERTIES, MetaProperties, encode_uuid
from tests.support import log_dsl, log_writer
from tests.support.broker_files import build_meta_properties
from tests.support.command_line import (
    DIRTY,
    NOW,
    Ran,
    digest,
    kcompact,
    partition,
    server_properties,
    settings,
    values,
)
from tests.support.log_writer import LogSpec, SegmentSpec
from tests.support.metadata_log import CLUSTER_ID, ORDERS, OTHER, USERS, batches, log, topic, write
from tests.support.mutants import legacy_entry

AT = ("--now", NOW)
FOR_ALL = ("--config", "cleanup.policy=compact")


def plan(*arguments: str | Path, code: int = 0) -> Ran:
    ran = kcompact("plan", "--json", *AT, *arguments)
    assert ran.code == code, ran
    return ran


def entries(ran: Ran) -> dict[str, Any]:
    return {entry["topic"]: entry for entry in ran.json["partitions"]}


def notes(ran: Ran, code: str) -> list[str]:
    return [note["text"] for note in ran.json["notes"] if note["code"] == code]


def topic_configs(path: Path, topics: dict[str, dict[str, str]]) -> tuple[str, str]:
    path.write_text(json.dumps(topics), encoding="utf-8")
    return ("--topic-configs", str(path))


# Known


def two_topics(root: Path) -> Path:
    """Make a log directory whose metadata log has `orders`, compacted, and `users`, which overrides nothing."""
    for name, topic_id in (("orders-0", ORDERS), ("users-0", USERS)):
        log_writer.write(replace(log_dsl.parse(DIRTY), name=name, topic_id=encode_uuid(topic_id)), root)
    return write(root, {log(): batches([*topic("orders", ORDERS, cleanup_policy="compact"), *topic("users", USERS)])})


def test_a_value_for_all_topics_is_that_of_topics_without_one(tmp_path: Path) -> None:
    log_dir = two_topics(tmp_path / "logs")
    arguments = ("--topic", "orders", "--topic", "users", "--config", "cleanup.policy=delete", log_dir)
    ran = plan(*arguments)
    of_broker = plan(*arguments[:4], "--config", "log.cleanup.policy=delete", log_dir)
    assert notes(of_broker, "decided-for-all") == [
        "--config log.cleanup.policy=delete decides for users, without a value of its own"
    ]
    hours = plan("--config", "log.retention.ms=-1", "--config", "log.retention.hours=1", *arguments)
    assert notes(hours, "decided-for-all")[0].startswith("--config log.retention.ms=-1 decides for users")
    assert not any("hours" in each for each in notes(hours, "decided-for-all"))
    found = {name: (entry["cleanup_policy"], entry["own_settings"]) for name, entry in entries(ran).items()}
    assert found == {"orders": ("compact", "metadata-log"), "users": ("delete", "metadata-log")}
    assert notes(ran, "decided-for-all") == [
        "--config cleanup.policy=delete decides for users, without a value of its own"
    ]
    overruled = "--config cleanup.policy=delete is for topics without a value of their own: not for orders"
    assert notes(ran, "overruled-setting") == [overruled]
    named = plan("--config", "orders:cleanup.policy=delete", *arguments)
    assert entries(named)["orders"]["cleanup_policy"] == "delete"
    assert notes(named, "overruled-setting") == []


def test_a_compared_setting_is_changed_for_each_topic(tmp_path: Path) -> None:
    ran = plan("--compare", "cleanup.policy=delete", "--topic", "orders", two_topics(tmp_path / "logs"))
    assert (ran.partition["reason"], ran.partition["compare"]["changed"]["reason"]) == ("dirty-ratio", "policy-delete")


@pytest.mark.parametrize(("pattern", "is_meant"), [("orders", True), ("ord*", True), ("*", True), ("Orders", False)])
def test_a_pattern_names_topics(pattern: str, is_meant: bool, tmp_path: Path) -> None:
    ran = plan("--config", f"{pattern}:cleanup.policy=delete", "--topic", "orders", two_topics(tmp_path / "logs"))
    assert ran.partition["cleanup_policy"] == ("delete" if is_meant else "compact")
    assert [note["code"] for note in ran.json["notes"]].count("unused-setting") == (not is_meant)


def test_a_file_comes_before_the_metadata_log(tmp_path: Path) -> None:
    file = topic_configs(tmp_path / "topics", {"users": {"cleanup.policy": "compact"}, "others": {}, "more": {}})
    ran = plan(*file, "--topic", "orders", "--topic", "users", two_topics(tmp_path / "logs"))
    sources = {name: (entry["cleanup_policy"], entry["own_settings"]) for name, entry in entries(ran).items()}
    assert sources == {"orders": ("compact", "metadata-log"), "users": ("compact", "topic-configs")}
    (unused,) = notes(ran, "unused-setting")
    assert unused.startswith(
        "--topic-configs for 2 topics has no effect: no partition of them is among the paths: more"
    )


def test_a_file_that_contradicts_the_metadata_log(tmp_path: Path) -> None:
    log_dir = two_topics(tmp_path / "logs")
    contradicted = "the metadata log of the broker is not used: --topic-configs has another value of cleanup.policy"
    for settings_of_orders, expected in (({}, [contradicted]), ({"cleanup.policy": "compact"}, [])):
        ran = plan(*topic_configs(tmp_path / "topics", {"orders": settings_of_orders}), "--topic", "orders", log_dir)
        found = [each["text"] for each in ran.partition["notes"] if each["code"] == "metadata-not-used"]
        assert [text.partition(", or none")[0] for text in found] == expected


@pytest.mark.parametrize(
    ("overrides", "of_broker", "policy"),
    [({}, "compact", None), ({}, "delete", "delete"), ({"cleanup.policy": "compact"}, "delete", "compact")],
)
def test_settings_of_a_broker_whose_metadata_log_is_damaged(
    overrides: dict[str, str], of_broker: str, policy: str | None, tmp_path: Path
) -> None:
    """Its dynamic settings are in there, and are stronger than those of its file."""
    text = f"log.cleanup.policy={of_broker}\nlog.retention.ms=1\nlog.retention.bytes=1"
    log_dir, static = with_damaged_metadata(tmp_path, text)
    entry = plan(*topic_configs(tmp_path / "topics", {"orders": overrides}), *static, log_dir / "orders-0").partition
    limits = [entry["config"][name]["value"] for name in ("retention.ms", "retention.bytes")]
    assert (entry["cleanup_policy"], limits) == (policy, [None, None])
    named = ("--config", "log.retention.ms=7", "--config", "retention.bytes=8")
    entry = plan(*topic_configs(tmp_path / "topics", {"orders": overrides}), *named, log_dir / "orders-0").partition
    assert [entry["config"][name]["value"] for name in ("retention.ms", "retention.bytes")] == [7, 8]
    assert "metadata-not-used" in [each["code"] for each in entry["notes"]]


def test_retention_waits_for_the_dynamic_settings_of_the_broker(tmp_path: Path) -> None:
    log_dir, static = with_damaged_metadata(tmp_path, "log.retention.ms=1\nlog.retention.bytes=1")
    options = ("--apply-retention", "--yes", *static, "--config", "retention.ms=1", *AT)
    delete = topic_configs(tmp_path / "topics", {"orders": {"cleanup.policy": "delete"}})
    before = digest(log_dir)
    ran = kcompact("clean", "--engine", "in-process", *options, *delete, log_dir / "orders-0")
    assert (ran.code, digest(log_dir) == before) == (4, True), ran
    assert "retention.bytes is unknown: the metadata log may have a dynamic setting of the broker" in ran.err
    ran = kcompact(
        "clean", "--engine", "in-process", *options, *delete, "--config", "retention.bytes=-1", log_dir / "orders-0"
    )
    assert (ran.code, digest(log_dir) == before) == (0, False), ran


def with_damaged_metadata(root: Path, static: str) -> tuple[Path, tuple[str, Path]]:
    """Return a log directory with a damaged metadata log, and the option for the broker's file."""
    log_dir = two_topics(root / "logs")
    identity = MetaProperties(version=1, cluster_id=CLUSTER_ID, node_id=1, directory_id=None)
    (log_dir / META_PROPERTIES).write_bytes(build_meta_properties(identity))
    (log_dir / "__cluster_metadata-0" / log()).write_bytes(b"damaged" * 20)
    return log_dir, ("--broker-config", server_properties(log_dir, text=static))


def test_the_topic_of_a_file_is_known_by_its_id(tmp_path: Path) -> None:
    described = f"Topic: orders\tTopicId: {encode_uuid(OTHER)}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: \n"
    (file := tmp_path / "topics").write_text(described)
    ran = plan("--topic-configs", file, "--topic", "orders", two_topics(tmp_path / "logs"), code=4)
    assert f"--topic-configs has {encode_uuid(OTHER)} for orders" in ran.partition["error"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"cleanup.polciy": "compact"},
            "'cleanup.polciy' of 'orders' is no setting of a topic; did you mean cleanup.policy?",
        ),
        ({"log.cleanup.policy": "compact"}, "is no setting of a topic; did you mean cleanup.policy?"),
        (
            {"cleanup.policy": "compacted"},
            "cleanup.policy of orders in --topic-configs: 'compacted' must be compact, delete or",
        ),
        ({"of.a.newer.kafka": "1", "cleanup.policy": "compact"}, None),
    ],
)
def test_a_wrong_setting_in_json_is_a_usage_error(
    settings: dict[str, str], problem: str | None, tmp_path: Path
) -> None:
    file = topic_configs(tmp_path / "topics", {"orders": settings})
    ran = kcompact("plan", *AT, *file, partition(tmp_path / "logs"))
    assert ran.code == (0 if problem is None else 2)
    assert (problem or "") in ran.err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nonsense\n", "line 1: neither a topic nor a setting of one: 'nonsense'"),
        ("", "the file is empty"),
        ('{"orders": {}\n', "line 2: not valid JSON"),
    ],
)
def test_a_wrong_file_is_a_usage_error(text: str, problem: str, tmp_path: Path) -> None:
    directory, file = partition(tmp_path / "logs"), tmp_path / "topics"
    file.write_text(text)
    before = digest(tmp_path)
    ran = kcompact("clean", "--yes", *AT, *FOR_ALL, "--topic-configs", file, directory)
    assert (ran.code, ran.out, digest(tmp_path) == before) == (2, "", True)
    assert f"{file}: {problem}" in ran.err


def test_a_file_does_not_hide_that_the_topic_was_created_again(tmp_path: Path) -> None:
    log_dir = two_topics(tmp_path / "logs")
    write_id = log_dir / "orders-0" / "partition.metadata"
    write_id.write_text(f"version: 0\ntopic_id: {encode_uuid(OTHER)}")
    file = topic_configs(tmp_path / "topics", {"orders": {"cleanup.policy": "compact"}})
    ran = plan(*file, "--topic", "orders", log_dir, code=4)
    assert ran.partition["reason"] == "not-a-partition"


# Unknown


def with_zookeeper(root: Path, text: str = DIRTY, name: str = "orders-0") -> Path:
    """Make a log directory of a broker with ZooKeeper, whose topics no file knows; return a partition directory."""
    directory = log_writer.write(replace(log_dsl.parse(text), name=name), root)
    identity = MetaProperties(version=0, cluster_id=CLUSTER_ID, node_id=1, directory_id=None)
    (root / META_PROPERTIES).write_bytes(build_meta_properties(identity))
    return directory


BROKER = "log.cleanup.policy=compact,delete\nlog.retention.ms=1\nlog.retention.bytes=1\n"


def of_broker(root: Path, text: str = BROKER) -> tuple[str, str]:
    file = root.with_name("server.properties")
    file.write_text(f"broker.id=1\nzookeeper.connect=localhost:2181\nlog.dirs={root}\n{text}")
    return ("--broker-config", str(file))


def test_nothing_of_the_broker_is_the_topics(tmp_path: Path) -> None:
    with_zookeeper(tmp_path / "logs")
    entry = plan(*of_broker(tmp_path / "logs"), tmp_path / "logs").partition
    assert (entry["reason"], entry["own_settings"]) == ("policy-unknown", None)
    assert [entry["config"][name]["value"] for name in OF_THE_TOPIC_ALONE] == [None] * 3
    assert entry["explanation"].endswith("is unknown: the broker uses ZooKeeper, which has them")
    assert not {*OF_THE_TOPIC_ALONE} & {*entry["assumed"]}
    assert {"min.cleanable.dirty.ratio", "delete.retention.ms"} < {*entry["assumed"]}
    before = digest(tmp_path / "logs")
    arguments = ("--yes", "--force", "--apply-retention", *AT, *of_broker(tmp_path / "logs"))
    assert kcompact("clean", *arguments, tmp_path / "logs").code == 4
    assert digest(tmp_path / "logs") == before


def test_a_value_for_all_topics_decides_and_the_topics_are_named(tmp_path: Path) -> None:
    for name in ("orders-0", "users-0"):
        with_zookeeper(tmp_path / "logs", name=name)
    ran = plan(*of_broker(tmp_path / "logs"), *FOR_ALL, "--config", "users:cleanup.policy=delete", tmp_path / "logs")
    assert {name: entry["cleanup_policy"] for name, entry in entries(ran).items()} == {
        "orders": "compact",
        "users": "delete",
    }
    (said,) = notes(ran, "unknown-settings")
    assert said.startswith("no source has the settings that orders, users may have of their own: the broker uses ")
    assert "; --config cleanup.policy=compact decides for orders; " in said
    assert "min.cleanable.dirty.ratio" in said


def test_the_question_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcompact.cli.consent.is_needed", lambda *_, **__: True)
    asked: list[str] = []
    monkeypatch.setattr("click.confirm", lambda question, **_: asked.append(question))
    with_zookeeper(tmp_path / "logs")
    assert kcompact("clean", *AT, *FOR_ALL, "--engine", "in-process", tmp_path / "logs").code == 130
    assert asked[0].endswith(" --config cleanup.policy=compact decides for orders.")


RETENTION = ("retention.ms=1", "retention.bytes=1")


@pytest.mark.parametrize("named", [(), RETENTION[:1], RETENTION[1:], RETENTION])
def test_retention_deletes_only_by_both_limits(named: tuple[str, ...], tmp_path: Path) -> None:
    with_zookeeper(tmp_path / "logs")
    given = [word for setting in ("cleanup.policy=delete", *named) for word in ("--config", setting)]
    arguments = ("--apply-retention", "--engine", "in-process", *given, *of_broker(tmp_path / "logs"))
    ran = kcompact("clean", "--yes", "--now", "2024-02-01T00:00:00Z", *arguments, tmp_path / "logs")
    left = len(list((tmp_path / "logs" / "orders-0").glob("*.log")))
    assert left == (1 if named == RETENTION else 3), ran
    if len(named) == 1:
        assert (ran.code, "of the topic is unknown" in ran.err) == (4, True)


OLD, CLEAN, DIRTY_MS = (log_dsl.time_of(text) for text in ("00:00", "3d00:00", "4d00:00"))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("named", "is_kept"),
    [
        ((), True),
        (("--config", "log.cleaner.delete.retention.ms=86400000"), True),  # The topic may have another.
        (("--config", "delete.retention.ms=86400000"), False),
    ],
)
def test_tombstones_without_a_horizon_expire_by_a_named_setting_only(
    named: tuple[str, ...], is_kept: bool, magic: int, tmp_path: Path
) -> None:
    """The tombstone is older than the last clean segment by more than Kafka's default of a day."""
    segments = [
        SegmentSpec(base_offset=0, batches=(legacy_entry(0, b"a", None, magic=magic),), mtime_ms=OLD),
        SegmentSpec(base_offset=1, batches=(legacy_entry(1, b"b", b"1", magic=magic),), mtime_ms=CLEAN),
        SegmentSpec(base_offset=2, batches=(legacy_entry(2, b"b", b"2", magic=magic),), mtime_ms=DIRTY_MS),
        SegmentSpec(base_offset=3, batches=(legacy_entry(3, b"c", b"1", magic=magic),), mtime_ms=DIRTY_MS),
    ]
    spec = LogSpec(segments=tuple(segments), checkpoint=2)
    directory = log_writer.write(spec, tmp_path / "logs")
    ran = kcompact("clean", "--force", "--engine", "in-process", "--now", "2024-01-06", *FOR_ALL, *named, directory)
    assert ran.code == 0, ran
    assert {key for key, _ in values(directory).values()} == ({b"a", b"b", b"c"} if is_kept else {b"b", b"c"})


def test_internal_topics_are_never_unknown(tmp_path: Path) -> None:
    with_zookeeper(tmp_path / "logs", name="__consumer_offsets-0")
    options = ("--include-internal", "--config", "cleanup.policy=delete", *of_broker(tmp_path / "logs"))
    ran = plan(*options, tmp_path / "logs")
    assert (ran.partition["cleanup_policy"], ran.partition["own_settings"]) == ("compact", "internal-topic")
    assert notes(ran, "unknown-settings") == []
    assert len(notes(ran, "overruled-setting")) == 1
    (unused,) = notes(plan("--include-internal", "--config", "*:segment.ms=5", tmp_path / "logs"), "unused-setting")
    assert unused.endswith("a pattern that is to match internal topics begins with __")


# Contradicted


@pytest.mark.parametrize(
    ("text", "trace"),
    [
        (settings("checkpoint=3"), "an entry in cleaner-offset-checkpoint"),
        ("log now=10:00\n0: a=1 b=~(horizon=09:00)\n2: a=2\n4: c=1\n", "batches with a delete horizon"),
        (DIRTY, None),
    ],
)
def test_traces_of_the_cleaner_contradict_a_policy_without_compact(
    text: str, trace: str | None, tmp_path: Path
) -> None:
    directory = partition(tmp_path / "logs", text)
    ran = plan("--config", "cleanup.policy=delete", directory)
    assert notes(ran, "compacted-before") == (
        []
        if trace is None
        else [
            f"orders counts as delete (--config), and has {trace}: a cleaner has compacted it before; check its "
            "cleanup.policy"
        ]
    )
    assert notes(plan(*FOR_ALL, directory), "compacted-before") == []
