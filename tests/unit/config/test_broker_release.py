"""`config.broker_release`: what the files of a broker prove about its release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.config.broker_release import proved_release
from kcompact.config.metadata_log import read_cluster_metadata
from kcompact.errors import UnsupportedError
from kcompact.format.properties import MetaProperties
from kcompact.notes import NoteCode
from kcompact.plan.options import PlanOptions
from kcompact.release import NEWEST, RELEASES, Release, ReleaseSource
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
) -> tuple[Release, ReleaseSource, list[NoteCode]]:
    metadata = read_cluster_metadata(write(log_dir, {log(): batches(records)})) if records else None
    release, source, notes = proved_release(log_dir, properties, metadata, node_id=node_id)
    return release, source, [note.code for note in notes]


@pytest.mark.parametrize(
    ("level", "name", "notes"),
    [
        (33, "4.4", []),
        (32, "4.3", []),  # a level that 4.3 was developing
        (30, "4.3", []),
        (29, "4.0", []),  # 4.2
        (25, "4.0", []),
        (24, "3.9", []),
        (21, "3.9", []),
        (20, "3.9", [NoteCode.OLDER_RELEASE]),
        (1, "3.9", [NoteCode.OLDER_RELEASE]),
    ],
)
def test_a_registered_level_proves_the_release(tmp_path: Path, level: int, name: str, notes: list[NoteCode]) -> None:
    assert proved(tmp_path, [registered(level)]) == (RELEASES[name], ReleaseSource.REGISTRATION, notes)


NOT_KNOWN: tuple[Release, ReleaseSource, list[NoteCode]] = (NEWEST, ReleaseSource.NEWEST, [])


def test_nothing_is_proved_by_other_records(tmp_path: Path) -> None:
    assert proved(tmp_path / "a", []) == NOT_KNOWN
    assert proved(tmp_path / "b", [FeatureLevelRecord("metadata.version", 21)]) == NOT_KNOWN
    assert proved(tmp_path / "c", [registered(21, node_id=2)]) == NOT_KNOWN
    assert proved(tmp_path / "d", [registered(21)], node_id=None) == NOT_KNOWN
    assert proved(tmp_path / "e", [registered(21), UnregisterBrokerRecord(NODE_ID)]) == NOT_KNOWN
    assert proved(tmp_path / "f", [registered(21), RegisterBrokerRecord(NODE_ID, ())]) == NOT_KNOWN


def test_the_last_registration_counts(tmp_path: Path) -> None:
    release, _, _ = proved(tmp_path, [registered(21), registered(33, node_id=2), registered(30)])
    assert release == RELEASES["4.3"]


def test_a_broker_with_zookeeper_is_of_the_oldest_release(tmp_path: Path) -> None:
    found: tuple[Release, ReleaseSource, list[NoteCode]] = (RELEASES["3.9"], ReleaseSource.META_PROPERTIES, [])
    assert proved(tmp_path, [], properties=ZOOKEEPER) == found


def test_a_cluster_that_was_moved_to_kraft_keeps_the_version_of_zookeeper(tmp_path: Path) -> None:
    moved = replace(ZOOKEEPER, directory_id="d")
    assert proved(tmp_path / "a", [], properties=moved) == NOT_KNOWN
    release, source, _ = proved(tmp_path / "b", [registered(30)], properties=moved)
    assert (release.name, source) == ("4.3", ReleaseSource.REGISTRATION)
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
