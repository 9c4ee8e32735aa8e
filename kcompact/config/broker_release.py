"""The release of Kafka whose rules a partition is cleaned by, as far as the files of its broker prove it.

    meta.properties of version 0        a broker with ZooKeeper: 3.9 or older
    the broker's registration           at each start a broker registers the levels of `metadata.version` that it knows,
                                        and each release of Kafka adds some
    neither                             no proof: the newest release

The level that the cluster has agreed on is no proof. It stays low until an operator raises it.
Rules: `MetaPropertiesVersion`, `MetadataVersion`, `RegisterBrokerRecord`; KIP-584, KIP-778.
"""

from __future__ import annotations

from pathlib import Path

from kcompact.config.metadata_log import METADATA_DIRECTORY, METADATA_VERSION, ClusterMetadata
from kcompact.errors import UnsupportedError
from kcompact.format.properties import MetaProperties
from kcompact.notes import Note, NoteCode
from kcompact.release import NEWEST, OLDEST, RELEASES, Release, ReleaseSource


def proved_release(
    log_dir: Path, properties: MetaProperties | None, metadata: ClusterMetadata | None, *, node_id: int | None
) -> tuple[Release, ReleaseSource, tuple[Note, ...]]:
    """Return the release of a log directory's broker, how it is known, and a note if the broker is older than all.

    Raises UnsupportedError if the broker is newer than every release whose rules are known.
    """
    if properties is not None and properties.version == 0:
        return OLDEST, ReleaseSource.META_PROPERTIES, ()
    level = None if metadata is None or node_id is None else metadata.metadata_versions.get(node_id)
    if level is None:
        return NEWEST, ReleaseSource.NEWEST, ()
    if level > NEWEST.metadata_version:
        raise UnsupportedError(
            path=log_dir / METADATA_DIRECTORY,
            problem=f"broker {node_id} has registered {METADATA_VERSION} {level}, and Kafka {NEWEST.name} knows levels "
            f"up to {NEWEST.metadata_version}: the broker is of a newer release, whose cleaner may have other rules",
            hint=f"Pass --kafka-release {NEWEST.name} to use the newest rules that kcompact has.",
        )
    for release in RELEASES.values():
        if level >= release.metadata_version:
            return release, ReleaseSource.REGISTRATION, ()
    note = Note.of(NoteCode.OLDER_RELEASE, node_id=node_id, feature=METADATA_VERSION, level=level, oldest=OLDEST.name)
    return OLDEST, ReleaseSource.REGISTRATION, (note,)
