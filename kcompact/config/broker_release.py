"""The release of Kafka whose rules a partition is cleaned by, as far as the files of its broker prove it.

    the broker's registration           at each start a broker registers the levels of `metadata.version` that it knows,
                                        and each release of Kafka adds some. Patch releases have the same; with unstable
                                        features a broker has levels of the next release. A broker whose cluster moves
                                        from ZooKeeper to KRaft registers its `inter.broker.protocol.version` instead
    meta.properties of version 0        without a metadata log and a `directory.id`: a broker with ZooKeeper, 3.9 or
                                        older; with an empty `.kafka_cleanshutdown` 3.6 or older. A cluster that has
                                        moved keeps the version
    neither                             no proof: the newest release

Brokers of 3.9.1 and older drop an empty last batch of a round, which nobody needs. Where such a broker is not proved,
the batch stays.

The level that the cluster has agreed on is no proof. It stays low until an operator raises it. But a level that no
known release has is that of a newer one, whose rules are unknown.
Rules: `MetaPropertiesVersion`, `MetadataVersion`, `TransactionVersion`, `RegisterBrokerRecord`; KIP-584, KIP-778.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kcompact.config.metadata_log import METADATA_VERSION, ClusterMetadata
from kcompact.errors import RefusedError, UnsupportedError
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, MetaProperties
from kcompact.log.files import files_in
from kcompact.release import KAFKA_3_9, METADATA_LEVELS, NEWEST, OLDER, Release, ReleaseSource, release_of
from kcompact.remarks import Note, RemarkCode

TRANSACTION_VERSION = "transaction.version"
_GREATEST_LEVELS = {METADATA_VERSION: METADATA_LEVELS[NEWEST.name], TRANSACTION_VERSION: 2}
"""The features whose levels can change what the files of a log mean, and the greatest level that is known."""


class KnownRelease(NamedTuple):
    """The rules for a broker, how they are known, and its own release as far as files tell it."""

    release: Release
    source: ReleaseSource
    broker_release: str | None = None

    @property
    def notes(self) -> Iterator[Note]:
        """What a user should know of the rules."""
        if self.release == OLDER:
            yield Note.of(RemarkCode.OLDER_RELEASE, rules=OLDER.name)
        elif self.release == KAFKA_3_9 and self.source is not ReleaseSource.OPTION:
            yield Note.of(RemarkCode.UNKNOWN_PATCH_RELEASE, repaired=KAFKA_3_9.version)


UNKNOWN_RELEASE = KnownRelease(NEWEST, ReleaseSource.NEWEST)


def proved_release(
    log_dirs: Sequence[Path],
    properties: MetaProperties | None,
    metadata: ClusterMetadata | None,
    *,
    node_id: int | None,
) -> KnownRelease:
    """Return what the files of a broker prove about its release; `log_dirs` are its log directories.

    Raises UnsupportedError if the broker is newer than every release whose rules are known, StorageError.
    """
    if metadata is None:
        if properties is None or not properties.is_of_zookeeper:
            return UNKNOWN_RELEASE
        is_empty = False
        for marker in (files_in(log_dir).file(CLEAN_SHUTDOWN_FILE) for log_dir in log_dirs):
            with suppress(RefusedError):  # A directory or a link of that name.
                is_empty = is_empty or (marker.exists() and not marker.identity().size_bytes)
        newest = "3.6" if is_empty else "3.9"  # Since 3.7 it has the broker's epoch.
        return KnownRelease(KAFKA_3_9, ReleaseSource.META_PROPERTIES, f"{newest} or older")
    for feature in _GREATEST_LEVELS:
        _require_known(metadata, "the cluster has agreed on", feature, metadata.feature_levels.get(feature, 0))
    if node_id is None or node_id not in metadata.registrations:
        return UNKNOWN_RELEASE
    registration = metadata.registrations[node_id]
    if registration is None:
        raise _newer(metadata, f"the registration of broker {node_id} has a version that Kafka {NEWEST.name} lacks")
    level = registration.level
    _require_known(metadata, f"broker {node_id} has registered", METADATA_VERSION, level)
    if registration.is_migrating:
        return KnownRelease(KAFKA_3_9, ReleaseSource.REGISTRATION, f"{KAFKA_3_9.name} or older")
    at_most = [version for version, greatest in METADATA_LEVELS.items() if greatest <= level]
    if not at_most:
        return KnownRelease(OLDER, ReleaseSource.REGISTRATION, f"older than {[*METADATA_LEVELS][-1]}")
    # A level between is of the next release, or of this one with unstable features.
    between = [version for version, greatest in METADATA_LEVELS.items() if greatest > level][-1:]
    versions = at_most[:1] if METADATA_LEVELS[at_most[0]] == level else [at_most[0], *between]
    return KnownRelease(release_of(at_most[0]), ReleaseSource.REGISTRATION, " or ".join(versions))


def _require_known(metadata: ClusterMetadata, who: str, feature: str, level: int) -> None:
    """Raise UnsupportedError for a level of a feature that only a newer Kafka has."""
    if level > _GREATEST_LEVELS[feature]:
        known = f"and Kafka {NEWEST.name} knows levels up to {_GREATEST_LEVELS[feature]}"
        raise _newer(metadata, f"{who} {feature} {level}, {known}")


def _newer(metadata: ClusterMetadata, problem: str) -> UnsupportedError:
    return UnsupportedError(
        path=metadata.directory,
        problem=f"{problem}: it is a newer Kafka, whose cleaner may have other rules",
        hint=f"Pass --kafka-release {NEWEST.name} to use the newest rules that kcompact has.",
    )
