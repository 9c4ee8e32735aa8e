"""What `doctor` says of the broker itself: of which release it is, and that it was down for long."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from kcompact.format.checkpoint import RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from tests.support import metadata_log
from tests.support.command_line import Ran, kcompact, running_broker
from tests.support.metadata_log import ORDERS, of_topic
from tests.support.metadata_records import MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.support.sick_log_dirs import COMPACT, HEALTHY, NOW, checkpoint, healthy


def doctor(log_dir: Path, *options: str) -> dict[str, str]:
    """Return the problems that are found, by kind."""
    ran: Ran = kcompact("doctor", "--json", "--now", NOW, *options, log_dir)
    return {found["finding"]: found["problem"] for found in ran.json["findings"]}


def stop(log_dir: Path, days: float) -> None:
    """Let a broker have stopped so many days ago, by all files that a broker writes."""
    stopped_s = datetime.fromisoformat(NOW).timestamp() - days * 86_400
    for name in (CLEAN_SHUTDOWN_FILE, REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT):
        if (log_dir / name).exists():
            os.utime(log_dir / name, (stopped_s, stopped_s))


@pytest.mark.parametrize(
    ("level", "text"),
    [
        (19, "the last broker was of Kafka 3.7; the rules of Kafka 3.8 hold"),
        (30, "the last broker was of Kafka 4.3; the rules of Kafka 4.3 hold"),
        (32, "the last broker was of Kafka 4.3 or 4.4; the rules of Kafka 4.3 hold"),
    ],
)
def test_the_release_of_a_broker_is_named(level: int, text: str, tmp_path: Path) -> None:
    log_dir = of_cluster(tmp_path, [RegisterBrokerRecord(1, (("metadata.version", level),))])
    assert doctor(log_dir, *COMPACT)["broker-release"] == text


def test_the_release_of_a_broker_with_zookeeper_is_as_good_as_known(tmp_path: Path) -> None:
    log_dir = healthy(tmp_path / "logs").parent
    (log_dir / META_PROPERTIES).write_text("version=0\nbroker.id=1\ncluster.id=c\n", encoding="utf-8")
    (log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(b"")
    problem = doctor(log_dir, *COMPACT)["broker-release"]
    assert problem == "the last broker was of Kafka 3.6 or older; the rules of Kafka 3.9 hold"


def test_each_broker_is_named(tmp_path: Path) -> None:
    """Two brokers of one release, one of which has two log directories; only one of these was closed by 3.6."""
    disks = [
        healthy(tmp_path / name, HEALTHY.replace("log ", f"log name={name}-0 ")).parent for name in ("a", "b", "c")
    ]
    for disk, node in zip(disks, (1, 1, 2), strict=True):
        (disk / META_PROPERTIES).write_text(f"version=0\nbroker.id={node}\ncluster.id=c\n", encoding="utf-8")
        (disk / CLEAN_SHUTDOWN_FILE).write_text("" if disk is disks[1] else "{}", encoding="utf-8")
    ran = kcompact("doctor", "--json", "--now", NOW, *COMPACT, *disks)
    named = {each["directory"]: each["problem"] for each in ran.json["findings"] if each["finding"] == "broker-release"}
    assert named == {
        str(disks[0]): "the last broker was of Kafka 3.6 or older; the rules of Kafka 3.9 hold",
        str(disks[2]): "the last broker was of Kafka 3.9 or older; the rules of Kafka 3.9 hold",
    }


def of_cluster(tmp_path: Path, records: list[MetadataRecord], brokers: tuple[int, ...] = (1,)) -> Path:
    """Write a log directory of broker 1 in a cluster where a partition has replicas on these brokers."""
    log_dir = healthy(tmp_path / "logs").parent
    (log_dir / META_PROPERTIES).unlink()
    records += [
        TopicRecord("orders", ORDERS),
        of_topic("orders", "cleanup.policy", "compact"),
        PartitionRecord(0, ORDERS, brokers),
    ]
    return metadata_log.write(log_dir, {metadata_log.log(): metadata_log.batches(records)}, node_id=1)


@pytest.mark.parametrize(
    ("days", "settings", "is_long"),
    [
        (1.001, (), True),
        (1, (), False),
        (1.01, ("delete.retention.ms=172800000",), False),
        (0.01, ("delete.retention.ms=0",), True),
        (1.01, ("cleanup.policy=delete",), False),
    ],
)
def test_an_outage_is_long_by_the_times_of_the_files(
    days: float, settings: tuple[str, ...], is_long: bool, tmp_path: Path
) -> None:
    log_dir = healthy(tmp_path / "logs").parent
    options = [word for each in settings for word in ("--config", each)]
    stop(log_dir, days)
    assert ("long-outage" in doctor(log_dir, *COMPACT, *options)) == is_long
    os.utime(log_dir / ".kafka_cleanshutdown")  # It was stopped just now.
    assert "long-outage" not in doctor(log_dir, *COMPACT, *options)


@pytest.mark.parametrize("name", [REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT])
def test_a_broker_that_died_wrote_checkpoints_last(name: str, tmp_path: Path) -> None:
    log_dir = healthy(tmp_path / "logs").parent
    stop(log_dir, days=3)
    (log_dir / CLEAN_SHUTDOWN_FILE).unlink()
    assert "last wrote here 3 d ago" in doctor(log_dir, *COMPACT)["long-outage"]
    checkpoint(log_dir, name, 7)
    assert "long-outage" not in doctor(log_dir, *COMPACT)


@pytest.mark.parametrize("brokers", [(1,), (1, 2), (2,), (2, 3), (1, 2, 3), ()])
def test_a_partition_without_other_replicas_lacks_no_tombstone(brokers: tuple[int, ...], tmp_path: Path) -> None:
    log_dir = of_cluster(tmp_path, [], brokers)
    stop(log_dir, days=2)
    assert ("long-outage" in doctor(log_dir, *COMPACT)) == (1 in brokers and len(brokers) > 1)


def test_only_the_topics_that_are_late_are_named(tmp_path: Path) -> None:
    log_dir = healthy(tmp_path / "logs").parent
    healthy(log_dir, HEALTHY.replace("log ", "log name=users-0 "))
    stop(log_dir, days=2)
    users = ("--config", "users:delete.retention.ms=172800001")
    assert "orders (1 d):" in doctor(log_dir, *COMPACT, *users)["long-outage"]


def test_a_topic_whose_policy_is_unknown_may_be_compacted(tmp_path: Path) -> None:
    log_dir = healthy(tmp_path / "logs").parent
    (log_dir / META_PROPERTIES).write_text("version=0\nbroker.id=1\ncluster.id=c\n", encoding="utf-8")
    stop(log_dir, days=2)
    assert "of orders (1 d), if it is compacted:" in doctor(log_dir)["long-outage"]
    assert "delete.retention.ms=86400000" in doctor(log_dir, *COMPACT)["assumed-settings"]


def test_a_running_broker_is_not_down(tmp_path: Path) -> None:
    log_dir = healthy(tmp_path / "logs").parent
    stop(log_dir, days=2)
    with running_broker(log_dir):
        assert "long-outage" not in doctor(log_dir, *COMPACT)


def test_a_copy_keeps_the_time_at_which_the_broker_stopped(tmp_path: Path) -> None:
    log_dir, copy = healthy(tmp_path / "logs").parent, tmp_path / "copy"
    stop(log_dir, days=2)
    assert kcompact("clean", "--now", NOW, *COMPACT, "--force", "--output", copy, log_dir).code == 0
    assert "long-outage" in doctor(copy, *COMPACT)


def test_a_broker_loads_other_directories_too(tmp_path: Path) -> None:
    """Kafka 4.4 ends with a NumberFormatException for such a file, whichever directory has it."""
    healthy(tmp_path / "logs")
    for name in (f"users-0.{32 * 'a'}-delete", f"users-0.{32 * 'b'}-stray", f"users-0.{32 * 'c'}-future", "users-01"):
        (tmp_path / "logs" / name).mkdir()
        (tmp_path / "logs" / name / "backup.log").touch()
        (tmp_path / "logs" / name / "notes").touch()
    found = kcompact("doctor", "--json", *COMPACT, tmp_path / "logs").json["findings"]
    unknown = [Path(each["file"]) for each in found if each["finding"] == "unknown-file"]
    assert [(len({*unknown}), {each.name for each in unknown})] == [(4, {"backup.log"})]


def test_a_link_to_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    healthy(tmp_path / "logs")
    (tmp_path / "logs" / "users-0").symlink_to(tmp_path / "disk" / "users-0")
    found = kcompact("doctor", "--json", *COMPACT, tmp_path / "logs").json["findings"]
    assert [each["file"] for each in found if each["finding"] == "unreadable"] == [str(tmp_path / "logs" / "users-0")]


@pytest.mark.parametrize(
    ("topic_id", "kind"), [("AAAAAAAAAAAAAAAAAAAAAQ", "refused"), ("AAAAAAAA", "bad-checkpoint")], ids=["sound", "cut"]
)
def test_a_partition_metadata_of_a_version_that_no_broker_writes(topic_id: str, kind: str, tmp_path: Path) -> None:
    """Kafka reads it as version 0, and so it stops no broker, unless the rest is damaged."""
    (healthy(tmp_path / "logs") / "partition.metadata").write_text(f"version: 8\ntopic_id: {topic_id}\n")
    found = kcompact("doctor", "--json", *COMPACT, tmp_path / "logs").json["findings"]
    assert [each["finding"] for each in found if each["exit_code"]] == [kind]
