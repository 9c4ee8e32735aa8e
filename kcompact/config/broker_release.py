"""The release of Kafka whose rules a partition is cleaned by, as far as the files of its broker prove it.

    the broker's registration           at each start a broker registers the levels of `metadata.version` that it knows,
                                        and each release of Kafka adds some
    meta.properties of version 0        without a metadata log and a `directory.id`: a broker with ZooKeeper, 3.9 or
                                        older. A cluster that was moved from ZooKeeper to KRaft keeps the version
    neither                             no proof: the newest release

The level that the cluster has agreed on is no proof. It stays low until an operator raises it. But a level that no
known release has is that of a newer one, whose rules are unknown.
Rules: `MetaPropertiesVersion`, `MetadataVersion`, `TransactionVersion`, `RegisterBrokerRecord`; KIP-584, KIP-778.
"""

from __future__ import annotations

from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY, METADATA_VERSION, ClusterMetadata
from kcompact.errors import UnsupportedError
from kcompact.format.properties import MetaProperties
from kcompact.notes import Note, NoteCode
from kcompact.release import NEWEST, OLDEST, RELEASES, Release, ReleaseSource

TRANSACTION_VERSION = "transaction.version"
_GREATEST_LEVELS = {METADATA_VERSION: NEWEST.metadata_version, TRANSACTION_VERSION: 2}
"""The features whose levels can change what the files of a log mean, and the greatest level that is known."""


def proved_release(
    log_dir: Path, properties: MetaProperties | None, metadata: ClusterMetadata | None, *, node_id: int | None
) -> tuple[Release, ReleaseSource, tuple[Note, ...]]:
    """Return the release of a log directory's broker, how it is known, and a note if the broker is older than all.

    Raises UnsupportedError if the broker is newer than every release whose rules are known.
    """
    if metadata is None:
        if properties is not None and properties.is_of_zookeeper:
            return OLDEST, ReleaseSource.META_PROPERTIES, ()
        return NEWEST, ReleaseSource.NEWEST, ()
    for feature in _GREATEST_LEVELS:
        _require_known(log_dir, "the cluster has agreed on", feature, metadata.feature_levels.get(feature, 0))
    if node_id is None or node_id not in metadata.metadata_versions:
        return NEWEST, ReleaseSource.NEWEST, ()
    level = metadata.metadata_versions[node_id]
    if level is None:
        raise _newer(log_dir, f"the registration of broker {node_id} has a version that Kafka {NEWEST.name} lacks")
    _require_known(log_dir, f"broker {node_id} has registered", METADATA_VERSION, level)
    for release in RELEASES.values():
        if level >= release.metadata_version:
            return release, ReleaseSource.REGISTRATION, ()
    note = Note.of(NoteCode.OLDER_RELEASE, node_id=node_id, feature=METADATA_VERSION, level=level, oldest=OLDEST.name)
    return OLDEST, ReleaseSource.REGISTRATION, (note,)


def _require_known(log_dir: Path, who: str, feature: str, level: int) -> None:
    """Raise UnsupportedError for a level of a feature that only a newer Kafka has."""
    if level > _GREATEST_LEVELS[feature]:
        known = f"and Kafka {NEWEST.name} knows levels up to {_GREATEST_LEVELS[feature]}"
        raise _newer(log_dir, f"{who} {feature} {level}, {known}")


def _newer(log_dir: Path, problem: str) -> UnsupportedError:
    return UnsupportedError(
        path=log_dir / METADATA_DIRECTORY,
        problem=f"{problem}: it is a newer Kafka, whose cleaner may have other rules",
        hint=f"Pass --kafka-release {NEWEST.name} to use the newest rules that kcompact has.",
    )
