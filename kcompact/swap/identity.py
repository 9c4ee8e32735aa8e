"""Which partition a manifest belongs to. A manifest of another partition decides nothing.

Inodes and paths are no part of an identity: recovery also has to work in a copy of a log directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kcompact.errors import CorruptDataError, RefusedError
from kcompact.format.names import TopicPartition
from kcompact.format.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    decode_uuid,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.format.sealed_json import NUMBER, TEXT, SealedDocument, optional
from kcompact.log.directory import partition_by_name
from kcompact.log.files import read_file
from kcompact.log.lock import LogDirLock
from kcompact.swap.open_directory import OpenDirectory
from kcompact.values import dataclass

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionIdentity:
    """A partition: its name, the topic id in its `partition.metadata`, the `directory.id` of its `meta.properties`.

    An id is None where its file is missing or malformed, or has no valid id.
    """

    topic_partition: TopicPartition
    topic_id: str | None = None
    directory_id: str | None = None

    @property
    def topic(self) -> str:
        """The topic."""
        return self.topic_partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition."""
        return self.topic_partition.partition

    def difference_from(self, present: PartitionIdentity) -> str:
        """Return why a manifest with this identity is not of the partition that is present; "" if it is.

        A directory id is compared if both are known: a lone copy of a partition has no `meta.properties`.
        """
        if self.topic_partition != present.topic_partition:
            return f"it is of {self.topic_partition}, not of {present.topic_partition}"
        if self.topic_id != present.topic_id:
            return f"it is of the topic id {self.topic_id}, and {PARTITION_METADATA} has {present.topic_id}"
        if None not in (self.directory_id, present.directory_id) and self.directory_id != present.directory_id:
            return f"it is of the log directory {self.directory_id}, and {META_PROPERTIES} has {present.directory_id}"
        return ""


def identity_of(partition: OpenDirectory, log_dir: OpenDirectory | None) -> PartitionIdentity:
    """Return the identity of a partition directory in a log directory, None if that is unknown.

    Raises RefusedError if the name is not that of a partition; StorageError.
    """
    return _identity_of(partition, None if log_dir is None else _directory_id(log_dir))


def identity_under_lock(partition: OpenDirectory, lock: LogDirLock) -> PartitionIdentity:
    """Return the identity of a partition directory in a log directory that is locked. Raises as `identity_of`."""

    def found() -> str | None:
        with OpenDirectory.of_log_dir(lock.path.parent, lock) as log_dir:
            return _directory_id(log_dir)

    return _identity_of(partition, lock.once("directory.id", found))


def _identity_of(partition: OpenDirectory, directory_id: str | None) -> PartitionIdentity:
    metadata = _parsed(partition, PARTITION_METADATA, parse_partition_metadata)
    return PartitionIdentity(
        topic_partition=partition_by_name(partition.path),  # `OpenDirectory` has followed no link.
        topic_id=None if metadata is None else metadata.topic_id,
        directory_id=directory_id,
    )


def _directory_id(log_dir: OpenDirectory) -> str | None:
    """Return the `directory.id` of a log directory, None without a valid one."""
    properties = _parsed(log_dir, META_PROPERTIES, parse_meta_properties)
    directory_id = None if properties is None else properties.directory_id
    return None if directory_id is None or decode_uuid(directory_id) is None else directory_id


def _identity(topic: str, partition: int, topic_id: str | None, directory_id: str | None) -> PartitionIdentity:
    name = f"{topic}-{partition}"
    topic_partition = TopicPartition.parse(name)
    if topic_partition is None:
        raise ValueError(f"{name!r} is not a partition")
    return PartitionIdentity(topic_partition=topic_partition, topic_id=topic_id, directory_id=directory_id)


IDENTITY = SealedDocument(_identity, topic=TEXT, partition=NUMBER, topic_id=optional(TEXT), directory_id=optional(TEXT))
"""The fields that bind a manifest to its partition."""


def _parsed(directory: OpenDirectory, name: str, parse: Callable[..., Parsed]) -> Parsed | None:
    if directory.status(name) is None:
        return None
    path = directory.path / name
    try:
        return parse(read_file(path, dir_fd=directory.fd()), file=str(path))
    except (CorruptDataError, RefusedError):  # A broker does not start with it, and `doctor` reports it.
        return None
