"""A partition that is being moved between two disks, and the disks of a broker that were not found."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner.service import Cleaner
from kcompact.format.names import TopicPartition
from kcompact.format.properties import META_PROPERTIES, MetaProperties
from tests.support import log_dsl, log_writer
from tests.support.broker_files import build_meta_properties
from tests.support.command_line import (
    COMPACT,
    COMPACTED,
    DIRTY,
    NOW,
    digest,
    kcompact,
    note_texts,
    server_properties,
    settings,
    values,
)
from tests.support.metadata_log import CLUSTER_ID, ORDERS, batches, log, topic, write
from tests.support.metadata_records import RegisterBrokerRecord
from tests.support.patience import PATIENCE_S

FUTURE = "orders-0.0123456789abcdef0123456789abcdef-future"
D1 = MetaProperties(version=1, cluster_id=CLUSTER_ID, node_id=1, directory_id="AAAAAAAAAAAAAAAAAAAAAQ")
D2 = replace(D1, directory_id="AAAAAAAAAAAAAAAAAAAAAg")
CLEAN = ("clean", "--engine", "in-process", "--json", *COMPACT)


def disk(path: Path, properties: MetaProperties) -> Path:
    path.mkdir(exist_ok=True)
    (path / META_PROPERTIES).write_bytes(build_meta_properties(properties))
    (path / ".kafka_cleanshutdown").touch()
    return path


def disks(root: Path, future: str = DIRTY) -> tuple[Path, Path]:
    """Make two disks of a broker: `orders-0` on the first one, and its `-future` replica on the second one."""
    log_writer.write(log_dsl.parse(DIRTY), root / "d1")
    second = disk(root / "d2", D2)
    log_writer.write(log_dsl.parse(future), root / "future")
    (root / "future" / "orders-0").rename(second / FUTURE)
    return disk(root / "d1", D1), second


@pytest.mark.parametrize("paths", [("d1", "d2"), ("d2", "d1"), ("d1/orders-0", "d2")], ids=" ".join)
@pytest.mark.parametrize("options", [(), ("--force",), ("--dry-run",)], ids=" ".join)
def test_nothing_is_cleaned_meanwhile(options: tuple[str, ...], paths: tuple[str, ...], tmp_path: Path) -> None:
    disks(tmp_path)
    before = digest(tmp_path / "d1")
    ran = kcompact(*CLEAN, *options, *(tmp_path / each for each in paths))
    is_named = "orders-0" in paths[0]
    assert (ran.code, ran.partition["reason"]) == (4 if is_named else 0, "paused-by-move"), ran
    assert digest(tmp_path / "d1") == before
    if is_named:
        assert f"mv {tmp_path / 'd2' / FUTURE} ELSEWHERE" in ran.partition["error"]
        assert f"--replica {tmp_path / 'd2' / FUTURE}" in ran.partition["error"]


def test_a_disk_with_a_name_like_a_partition(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    for path in (first, second):
        path.rename(tmp_path / f"kafka-logs-{path.name[1]}")
    ran = kcompact(*CLEAN, "--force", tmp_path / "kafka-logs-1", tmp_path / "kafka-logs-2")
    assert (ran.code, ran.partition["reason"]) == (0, "paused-by-move"), ran


def test_any_id_that_a_broker_takes(tmp_path: Path) -> None:
    """Rule: `LocalLog.parseTopicPartitionName`."""
    first, second = disks(tmp_path)
    (second / FUTURE).rename(second / "orders-0.backup-future")
    ran = kcompact(*CLEAN, "--force", first, second)
    assert (ran.code, ran.partition["reason"]) == (0, "paused-by-move"), ran


def test_a_disk_that_is_passed_as_a_replica(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    log_writer.write(log_dsl.parse(DIRTY.replace("now=", "name=users-0 now=")), second)
    disk(second, D2)
    ran = kcompact(*CLEAN, "--force", "--replica", second, first)
    assert (ran.code, ran.partition["reason"]) == (0, "paused-by-move"), ran


def _outdated(file: Path, first: Path, second: Path) -> None:
    """The file in the first place names one disk, with the same settings."""
    (file.parent / "config").mkdir()
    (file.parent / "config" / file.name).write_text(file.read_text())
    server_properties(first)


def _open_to_all(file: Path, first: Path, second: Path) -> None:
    file.chmod(0o666)


def _beside_a_good_one(file: Path, first: Path, second: Path) -> None:
    _outdated(file, first, second)
    (file.parent / "config" / file.name).chmod(0o666)


def _contradicted(file: Path, first: Path, second: Path) -> None:
    _outdated(file, first, second)
    with file.open("a") as opened:
        opened.write("log.retention.ms=5\n")


def _of_another_node(file: Path, first: Path, second: Path) -> None:
    file.write_text(file.read_text().replace("node.id=1", "node.id=2"))


@pytest.mark.parametrize("change", [_outdated, _open_to_all, _beside_a_good_one, _contradicted, _of_another_node])
def test_a_file_that_does_not_decide_still_names_the_disks(
    change: Callable[[Path, Path, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KCOMPACT_BROKER_SEARCH", raising=False)
    first, second = disks(tmp_path)
    change(server_properties(first, second), first, second)
    ran = kcompact(*CLEAN, "--force", first)
    assert (ran.code, ran.partition["reason"]) == (0, "paused-by-move"), ran


def test_a_copy_takes_it_as_it_is(tmp_path: Path) -> None:
    """A log directory is copied alone, so the other disk is known from the broker's file."""
    first, second = disks(tmp_path)
    file, copy = server_properties(first, second), tmp_path / "copy"
    ran = kcompact(*CLEAN, "--force", "--output", copy, "--broker-config", file, first)
    assert (ran.code, ran.partition["reason"], ran.partition["status"]) == (0, "paused-by-move", "copied"), ran
    assert values(copy / "orders-0") == values(first / "orders-0") != COMPACTED


def test_a_move_on_the_same_disk_is_seen_without_a_broker(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    (second / FUTURE).rename(first / FUTURE)
    (first / META_PROPERTIES).unlink()
    for path in (first, first / "orders-0"):
        ran = kcompact("plan", "--json", *COMPACT, path)
        assert ran.partition["reason"] == "paused-by-move"


def _damaged(second: Path) -> None:
    (second / META_PROPERTIES).write_bytes(b"\377\376")


def _missing(second: Path) -> None:
    (second / META_PROPERTIES).unlink()


def _of_another_cluster(second: Path) -> None:
    disk(second, replace(D2, cluster_id="kcompactTestsCluster01"))


@pytest.mark.parametrize(
    ("change", "is_paused"),
    [(_damaged, True), (_missing, True), (_of_another_cluster, False)],
    ids=["damaged", "missing", "another cluster"],
)
def test_a_disk_whose_owner_is_not_known_may_be_of_the_broker(
    change: Callable[[Path], None], is_paused: bool, tmp_path: Path
) -> None:
    first, second = disks(tmp_path)
    change(second)
    before = digest(first)
    for paths in ((first, second), (second, first)):
        ran = kcompact("clean", "--json", "--dry-run", "--engine", "in-process", "--force", *COMPACT, *paths)
        reasons = {entry["directory"]: entry["reason"] for entry in ran.json["partitions"]}
        assert (reasons[str(first / "orders-0")] == "paused-by-move") == is_paused, ran
    assert digest(first) == before


@pytest.mark.parametrize("identity", [replace(D1, version=0, cluster_id=None, directory_id=None), None])
def test_the_file_of_a_broker_names_its_disks(identity: MetaProperties | None, tmp_path: Path) -> None:
    """Old brokers with ZooKeeper write no cluster id."""
    first, second = disks(tmp_path)
    for path in (first, second):
        (path / META_PROPERTIES).unlink()
        if identity is not None:
            disk(path, identity)
    file = server_properties(first, second)
    for path in (first, first / "orders-0"):
        ran = kcompact("plan", "--json", *COMPACT, "--broker-config", file, path)
        assert ran.partition["reason"] == "paused-by-move", ran


@pytest.mark.parametrize("order", [("c", "d1", "d2"), ("d1", "c", "d2"), ("d2", "c", "d1"), ("d2", "d1", "c")])
def test_a_copy_beside_the_disks_hides_no_move(order: tuple[str, ...], tmp_path: Path) -> None:
    first, _ = disks(tmp_path)
    shutil.copytree(first, tmp_path / "c")
    before = digest(tmp_path)
    ran = kcompact(*CLEAN, "--force", *(tmp_path / name for name in order))
    assert {entry["reason"] for entry in ran.json["partitions"]} == {"paused-by-move"}
    assert digest(tmp_path) == before


def test_a_path_of_the_file_that_leads_nowhere_is_missing(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    file = server_properties(first, second)
    file.write_text(file.read_text().replace(str(second), second.name))  # Relative to where the broker was started.
    ran = kcompact("clean", "--engine", "in-process", *COMPACT, "--broker-config", file, first)
    assert (ran.code, values(first / "orders-0") != COMPACTED) == (4, True), ran
    assert "log directories of the broker were not found: d2; no terminal" in ran.err


def test_the_disk_of_the_metadata_log_is_one_of_the_broker(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    file = server_properties(first, text=f"metadata.log.dir={second}")
    ran = kcompact("plan", "--json", *COMPACT, "--broker-config", file, first, second)
    assert (ran.code, ran.partition["reason"]) == (0, "paused-by-move"), ran


def test_retention_waits_too(tmp_path: Path) -> None:
    """Rule: `LogCleanerManager.pauseCleaningForNonCompactedPartitions`."""
    first, second = disks(tmp_path)
    named = ("cleanup.policy=delete", "retention.ms=1", "retention.bytes=1")
    options = [word for setting in named for word in ("--config", setting)]
    before = digest(first)
    for replica in ((), ("--replica", second / FUTURE)):
        ran = kcompact("clean", "--yes", "--json", "--apply-retention", "--now", NOW, *options, *replica, first, second)
        assert (ran.code, digest(first) == before) == (0, True), ran


def test_why_it_is_paused(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    entry = kcompact("plan", "--json", "--explain", *COMPACT, first, second).partition
    (condition,) = [each for each in entry["explain"]["conditions"] if each["name"] == "move"]
    assert (entry["explain"]["decided_by"], condition["verdict"]) == ("move", "blocks")
    assert condition["value"] == str(second / FUTURE)
    assert "if it has failed, the pause never ends by itself" in condition["explanation"]
    assert "--replica" in entry["hint"]
    found = {each["finding"] for each in kcompact("doctor", "--json", *COMPACT, first, second).json["findings"]}
    assert "paused-by-move" in found


@pytest.mark.parametrize(("policy", "reason"), [("delete", "policy-delete"), ("compact", "paused-by-move")])
def test_what_is_not_compacted_is_not_paused(policy: str, reason: str, tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    ran = kcompact("plan", "--json", "--config", f"cleanup.policy={policy}", "--now", NOW, first, second)
    assert ran.partition["reason"] == reason


def test_the_other_replica_lifts_it_and_holds_back_what_it_lacks(tmp_path: Path) -> None:
    passed = "log now=10:00\n0: a=1 b=2 a=3\n3: b=4 c=5 [d=~](horizon=09:30)\n6: a=6\n"
    first, second = disks(tmp_path, "log now=10:00\n0: a=1 b=2 a=3\n")
    shutil.rmtree(first / "orders-0")
    log_writer.write(log_dsl.parse(passed), first)
    disk(first, D1)
    arguments = (*CLEAN, "--force", first, second)
    for directory in (first / "orders-0", second / FUTURE):
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert kcompact(*arguments, "--replica", second).code == 4  # It is not named itself.
    ran = kcompact(*arguments, "--replica", second / FUTURE)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran
    assert ran.partition["held_back_from_offset"] == 3
    assert 5 in values(first / "orders-0")


def test_the_service_waits_until_it_has_ended(tmp_path: Path) -> None:
    first, second = disks(tmp_path)
    log_writer.write(log_dsl.parse(DIRTY.replace("now=", "name=prices-0 now=")), first)
    disk(first, D1)
    before = digest(first / "orders-0")
    times = itertools.count(log_dsl.time_of("10:00"), 60_000)  # So that no plan is recent.
    config = {"cleanup.policy": "compact", "log.cleaner.backoff.ms": "10"}
    with Cleaner([first, second], config, clock=lambda: next(times)) as cleaner:
        assert cleaner.await_cleaned(TopicPartition("prices", 0), 6, PATIENCE_S)
        assert (cleaner.uncleanable_partitions, digest(first / "orders-0") == before) == ({}, True)
        (second / FUTURE).rename(tmp_path / "elsewhere")
        assert cleaner.await_cleaned(TopicPartition("orders", 0), 6, PATIENCE_S)
    assert values(first / "orders-0") == COMPACTED


# Disks that are not there


def registered(root: Path) -> Path:
    """Make the first of two disks that a broker has registered; the second one is not there."""
    rows = [
        RegisterBrokerRecord(1, (), (str(D1.directory_id), str(D2.directory_id))),
        *topic("orders", ORDERS, cleanup_policy="compact"),
    ]
    log_writer.write(log_dsl.parse(settings("hw=7")), root / "d1")
    write(root / "d1", {log(): batches(rows)})
    return disk(root / "d1", D1)


MISSING = f"has 1 more log directory that was not found: directory.id {D2.directory_id}"


def test_a_disk_that_is_missing_is_said_and_asked_about(tmp_path: Path) -> None:
    first = registered(tmp_path)
    before = digest(first)
    assert any(MISSING in note for note in note_texts(kcompact("plan", "--json", "--now", NOW, first).json))
    ran = kcompact("clean", "--engine", "in-process", "--now", NOW, first)
    assert (ran.code, digest(first) == before) == (4, True), ran
    assert f"were not found: directory.id {D2.directory_id}; no terminal, so there is nobody to ask" in ran.err
    for options in (("--dry-run",), ("--output", str(tmp_path / "copy"))):
        assert kcompact("clean", "--engine", "in-process", "--now", NOW, *options, first).code == 0
    assert digest(first) == before
    ran = kcompact(*CLEAN, "--yes", first)
    assert (ran.code, values(first / "orders-0") == COMPACTED) == (0, True), ran
    assert any(MISSING in note for note in note_texts(ran.json))


def test_every_disk_is_passed(tmp_path: Path) -> None:
    first = registered(tmp_path)
    ran = kcompact(*CLEAN, first, disk(tmp_path / "d2", D2))
    assert (ran.code, values(first / "orders-0") == COMPACTED) == (0, True), ran
    assert not any("not found" in note for note in note_texts(ran.json))


def test_findings_of_one_disk_do_not_hide_those_of_another(tmp_path: Path) -> None:
    first, second = registered(tmp_path), disk(tmp_path / "d2", D2)
    for path, name in ((first, "orders-1"), (second, "orders-2")):
        log_writer.write(log_dsl.parse(DIRTY.replace("now=", f"name={name} now=")), path)
        disk(path, D1 if path is first else D2)
        (path / name / "00000000000000000003.log").unlink()

    def found(*paths: Path) -> set[tuple[str, str]]:
        ran = kcompact("doctor", "--json", "--now", NOW, *paths)
        return {(each["finding"], each["directory"]) for each in ran.json["findings"]}

    both = found(first, second)
    alone = {each for path in (first, second) for each in found(path) if each[0] != "missing-log-dir"}
    # Beside the first one the metadata log says what the topics of the second one have.
    assert {each for each in alone if each[0] not in ("policy-unknown", "assumed-settings")} <= both
