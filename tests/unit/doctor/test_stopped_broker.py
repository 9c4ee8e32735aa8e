"""What `doctor` says of the broker itself: of which release it is, and that it was down for long."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import pytest

from kcompact.format.checkpoint import RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES
from tests.support import metadata_log
from tests.support.command_line import Ran, kcompact
from tests.support.metadata_log import ORDERS, of_topic
from tests.support.metadata_records import MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from tests.support.sick_log_dirs import COMPACT, NOW, healthy


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
        (1.01, (), True),
        (0.99, (), False),
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


@pytest.mark.parametrize("brokers", [(1,), (1, 2)])
def test_a_partition_without_other_replicas_lacks_no_tombstone(brokers: tuple[int, ...], tmp_path: Path) -> None:
    log_dir = of_cluster(tmp_path, [], brokers)
    stop(log_dir, days=2)
    assert ("long-outage" in doctor(log_dir, *COMPACT)) == (len(brokers) > 1)
