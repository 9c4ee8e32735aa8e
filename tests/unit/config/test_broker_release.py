"""`config.broker_release`: what the files of a broker prove about its release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.config.broker_release import UNKNOWN_RELEASE, KnownRelease, proved_release
from kcompact.config.metadata_log import read_cluster_metadata
from kcompact.errors import UnsupportedError
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, MetaProperties
from kcompact.plan.options import PlanOptions
from kcompact.release import KAFKA_3_9, RELEASES, ReleaseSource, release_of
from kcompact.remarks import RemarkCode
from tests.support import log_dsl, log_writer
from tests.support.metadata_log import ORDERS, batches, log, topic, write
from tests.support.metadata_records import (
    FeatureLevelRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

NODE_ID = 1
ZOOKEEPER = MetaProperties(version=0, cluster_id="c", node_id=NODE_ID, directory_id=None)
KRAFT = MetaProperties(version=1, cluster_id="c", node_id=NODE_ID, directory_id=None)

LATER_REGISTRATION = b"\x01\x00\x05" + NODE_ID.to_bytes(4, "big") + b"rest"
"""Version 5: the number of the broker, and fields that no known release has."""


def registered(level: int, node_id: int = NODE_ID) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(node_id, (("group.version", 1), ("metadata.version", level)))


def proved(
    log_dir: Path,
    records: Sequence[MetadataRecord | bytes],
    *,
    properties: MetaProperties | None = KRAFT,
    node_id: int | None = NODE_ID,
) -> KnownRelease:
    metadata = read_cluster_metadata(write(log_dir, {log(): batches(records)})) if records else None
    return proved_release([log_dir], properties, metadata, node_id=node_id)


@pytest.mark.parametrize(
    ("level", "rules", "broker"),
    [
        (33, "4.4", "4.4"),
        (32, "4.3", "4.3 or 4.4"),  # 4.3 with unstable features has levels of 4.4 too.
        (31, "4.3", "4.3 or 4.4"),
        (30, "4.3", "4.3"),
        (29, "4.0", "4.2"),
        (27, "4.0", "4.1"),
        (25, "4.0", "4.0"),
        (24, "3.9", "3.9 or 4.0"),
        (21, "3.9", "3.9"),
        (20, "3.8", "3.8"),
        (19, "3.8", "3.7"),
        (14, "3.8", "3.6"),
        (11, "3.8", "3.5"),
        (9, "3.8", "3.4 or 3.5"),
        (8, "3.8", "3.4"),
        (7, "3.8", "3.3"),
        (6, "3.9", "older than 3.3"),
        (0, "3.9", "older than 3.3"),  # Up to 3.2 no level is registered.
    ],
)
def test_a_registered_level_proves_the_release(tmp_path: Path, level: int, rules: str, broker: str) -> None:
    known = proved(tmp_path, [registered(level) if level else RegisterBrokerRecord(NODE_ID, ())])
    assert (known.release.name, known.source, known.broker_release) == (rules, ReleaseSource.REGISTRATION, broker)
    assert (known.release.producer_expiration == "producer.id.expiration.ms") == (level >= 8)
    expected = {"3.9": [RemarkCode.UNKNOWN_PATCH_RELEASE if level >= 21 else RemarkCode.OLDER_RELEASE]}.get(rules, [])
    assert [note.code for note in known.notes] == expected


NOT_KNOWN = UNKNOWN_RELEASE


def test_nothing_is_proved_by_other_records(tmp_path: Path) -> None:
    assert proved(tmp_path / "a", []) == NOT_KNOWN
    assert proved(tmp_path / "b", [FeatureLevelRecord("metadata.version", 21)]) == NOT_KNOWN
    assert proved(tmp_path / "c", [registered(21, node_id=2)]) == NOT_KNOWN
    assert proved(tmp_path / "d", [registered(21)], node_id=None) == NOT_KNOWN
    assert proved(tmp_path / "e", [registered(21), UnregisterBrokerRecord(NODE_ID)]) == NOT_KNOWN


def test_a_broker_whose_cluster_moves_to_kraft_registers_no_level_of_its_own(tmp_path: Path) -> None:
    migrating = RegisterBrokerRecord(NODE_ID, (("metadata.version", 14),), is_migrating=True)
    expected = KnownRelease(KAFKA_3_9, ReleaseSource.REGISTRATION, "3.9 or older")
    assert proved(tmp_path / "a", [migrating], properties=ZOOKEEPER) == expected
    assert proved(tmp_path / "b", [migrating, registered(25)]).broker_release == "4.0"
    assert proved(tmp_path / "c", [migrating, UnregisterBrokerRecord(NODE_ID), registered(14)]).broker_release == "3.6"


def test_the_last_registration_counts(tmp_path: Path) -> None:
    assert proved(tmp_path, [registered(21), registered(33, node_id=2), registered(30)]).release == RELEASES["4.3"]


@pytest.mark.parametrize(
    ("marker", "broker"),
    [(None, "3.9 or older"), ('{"version":0,"brokerEpoch":"5"}', "3.9 or older"), ("", "3.6 or older")],
)
def test_a_broker_with_zookeeper_is_of_3_9_or_older(tmp_path: Path, marker: str | None, broker: str) -> None:
    if marker is not None:
        (tmp_path / CLEAN_SHUTDOWN_FILE).write_text(marker, encoding="utf-8")
    known = proved(tmp_path, [], properties=ZOOKEEPER)
    assert known == KnownRelease(KAFKA_3_9, ReleaseSource.META_PROPERTIES, broker)
    assert [note.text for note in known.notes] == [
        "an empty last batch stays, by the rules of Kafka 3.9.2; the broker may be older and drop it: "
        "--kafka-release VERSION names its version"
    ]


def test_an_empty_marker_on_one_of_several_disks_proves_3_6(tmp_path: Path) -> None:
    disks = [tmp_path / "d1", tmp_path / "d2", tmp_path / "d3"]
    for disk, marker in zip(disks, ('{"version":0,"brokerEpoch":"5"}', "", None), strict=True):
        disk.mkdir()
        if marker is not None:
            (disk / CLEAN_SHUTDOWN_FILE).write_text(marker, encoding="utf-8")
    assert proved_release(disks, ZOOKEEPER, None, node_id=NODE_ID).broker_release == "3.6 or older"
    assert proved_release(disks[::2], ZOOKEEPER, None, node_id=NODE_ID).broker_release == "3.9 or older"


def test_an_option_needs_no_proof() -> None:
    assert not [*KnownRelease(KAFKA_3_9, ReleaseSource.OPTION).notes]
    (note,) = KnownRelease(release_of("2.8.2"), ReleaseSource.OPTION).notes
    assert note.code is RemarkCode.OLDER_RELEASE


def test_a_cluster_that_was_moved_to_kraft_keeps_the_version_of_zookeeper(tmp_path: Path) -> None:
    moved = replace(ZOOKEEPER, directory_id="d")
    assert proved(tmp_path / "a", [], properties=moved) == NOT_KNOWN
    known = proved(tmp_path / "b", [registered(30)], properties=moved)
    assert (known.release.name, known.source) == ("4.3", ReleaseSource.REGISTRATION)
    assert proved(tmp_path / "c", [FeatureLevelRecord("metadata.version", 21)], properties=ZOOKEEPER) == NOT_KNOWN


def test_a_newer_release_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"broker 1 has registered metadata.version 34, and Kafka 4.4 knows"):
        proved(tmp_path / "a", [registered(34)])
    with pytest.raises(UnsupportedError, match=r"the cluster has agreed on metadata.version 34"):
        proved(tmp_path / "b", [registered(33), FeatureLevelRecord("metadata.version", 34)])
    with pytest.raises(UnsupportedError, match=r"the cluster has agreed on transaction.version 3"):
        proved(tmp_path / "c", [FeatureLevelRecord("transaction.version", 3)])
    with pytest.raises(UnsupportedError, match=r"the registration of broker 1 has a version that Kafka 4.4 lacks"):
        proved(tmp_path / "e", [registered(30), LATER_REGISTRATION])
    assert proved(tmp_path / "f", [registered(30), LATER_REGISTRATION], node_id=2) == NOT_KNOWN
    proved(tmp_path / "d", [FeatureLevelRecord("unheard.of", 99), FeatureLevelRecord("transaction.version", 2)])


def test_an_option_decides_over_the_files(tmp_path: Path) -> None:
    directory = log_writer.write(log_dsl.parse("log\n0: a=1\n1: a=2"), tmp_path)
    write(tmp_path, {log(): batches([*topic("orders", ORDERS, cleanup_policy="compact"), registered(34)])}, node_id=1)
    (configured,) = PlanOptions(now_ms=0).configs_of([directory]).values()
    assert isinstance(configured.problem, UnsupportedError)
    (configured,) = PlanOptions(now_ms=0, release=RELEASES["4.3"]).configs_of([directory]).values()
    assert configured.problem is None
    assert (configured.config.release.name, configured.config.release_source) == ("4.3", ReleaseSource.OPTION)
