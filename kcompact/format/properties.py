"""The small files that identify a directory: `meta.properties` and `partition.metadata`.

`meta.properties` is a Java properties file, so the reader of that format is here too; it also reads the broker's
`server.properties`. `partition.metadata` holds the topic id, in Kafka's text form of a UUID.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from kcompact.errors import CorruptCheckpointError
from kcompact.format.text_lines import (
    INT_MAX,
    INT_MIN,
    NEWER_FILE,
    malformed,
    parse_integer,
    parse_non_negative,
    quoted,
    split_lines,
    unknown_version,
)
from kcompact.values import dataclass

META_PROPERTIES = "meta.properties"
PARTITION_METADATA = "partition.metadata"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
"""The file that a broker leaves when it is shut down cleanly: empty up to 3.6, JSON since."""

PARTITION_METADATA_VERSION = 0
MAX_SMALL_FILE_BYTES = 1024 * 1024


# Java properties

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\:= \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[:=]?[ \t\f]*")


def parse_java_properties(data: bytes, *, file: str) -> dict[str, str]:
    """Return the pairs of a Java properties file in UTF-8. The last value of a repeated key counts.

    Handles comments, continued lines, escapes, and the separators `=`, `:` and white space. Raises
    CorruptCheckpointError for a broken escape. Rule: java.util.Properties.load.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(split_lines(data, file=file, max_bytes=MAX_SMALL_FILE_BYTES)):
        key = _KEY.match(line)
        assert key is not None  # The pattern also matches the empty string.
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        try:
            properties[_unescaped(key[0])] = _unescaped(line[separator.end() :])
        except ValueError:  # Only the key is shown: the value can be a password.
            raise malformed(file, number, f"{quoted(key[0])} or its value has a malformed \\u escape") from None
    return properties


def parse_properties(data: bytes, *, file: str) -> dict[str, str]:
    """Return the properties in the bytes of a file. Raises CorruptCheckpointError.

    Kafka takes the bytes for ISO 8859-1. Rule: `Utils.loadProps`, `java.util.Properties.load(InputStream)`.
    """
    return parse_java_properties(data.decode("iso-8859-1").encode(), file=file)


def _logical_lines(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield each line with a pair, continued lines joined, and the number of its first line."""
    parts: list[str] = []
    for number, raw in enumerate(lines, start=1):
        line = raw.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if is_continued else line)
        if not is_continued or number == len(lines):
            yield number - len(parts) + 1, "".join(parts)
            parts = []


def _unescaped(text: str) -> str:
    """Return the text without escapes. Raises ValueError for `\\u` without four hex digits."""

    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ValueError(text)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(replace, text)


# meta.properties


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The cluster and the node that a log directory belongs to. Absent values are None.

    `node_id` is the property `broker.id` in version 0 and `node.id` in version 1. A file without a version has 0.
    """

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None

    @property
    def is_of_zookeeper(self) -> bool:
        """Whether only a broker with ZooKeeper writes it so. A cluster that was moved to KRaft keeps the version 0."""
        return self.version == 0 and self.directory_id is None


def parse_meta_properties(data: bytes, *, file: str) -> MetaProperties:
    """Return the content of a `meta.properties`. Raises CorruptCheckpointError. Rule: MetaProperties.Builder."""
    properties = parse_properties(data, file=file)

    def integer(name: str) -> int | None:
        if name not in properties:
            return None
        try:
            return parse_integer(properties[name].strip(), low=INT_MIN, high=INT_MAX, what=name)
        except ValueError as error:
            raise CorruptCheckpointError(file=file, problem=str(error)) from None

    version = integer("version") if "version" in properties else 0
    if version not in (0, 1):
        problem = f"version {quoted(properties['version'])} is unknown"
        raise CorruptCheckpointError(file=file, problem=problem, hint=NEWER_FILE)
    directory_id = properties.get("directory.id")
    if directory_id is not None and decode_uuid(directory_id) is None:
        raise CorruptCheckpointError(file=file, problem=f"directory.id is {quoted(directory_id)}, which is no id")
    return MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=integer("broker.id" if version == 0 else "node.id"),
        directory_id=directory_id,
    )


# partition.metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The topic id of a partition directory, in Kafka's text form of 22 characters."""

    version: int
    topic_id: str


def parse_partition_metadata(data: bytes, *, file: str) -> PartitionMetadata:
    """Return the content of a `partition.metadata`. Raises CorruptCheckpointError, also for the id of only zeros.

    Lines after the second are ignored. Raises UnsupportedError for a version above 0: Kafka reads such a file as
    version 0, so that it can go back to an older release. Here the topic id decides whether a directory is a stale
    replica, and another version may say it otherwise. Rule: PartitionMetadataReadBuffer.read.
    """
    lines = split_lines(data, file=file, max_bytes=MAX_SMALL_FILE_BYTES)
    if len(lines) < 2:
        raise CorruptCheckpointError(file=file, problem=f"{len(lines)} lines, not 2")
    values = []
    for number, line in enumerate(lines[:2], start=1):
        parts = re.split(r":[ \t\n\x0b\f\r]+", line)
        if len(parts) != 2 or not parts[1]:
            raise malformed(file, number, f"{quoted(line)} is not 'name: value'")
        values.append(parts[1])
    version = parse_non_negative(values[0], 1, file=file)
    topic_id = decode_uuid(values[1])
    if topic_id is None or topic_id == bytes(16):
        raise malformed(file, 2, f"{quoted(values[1])} is not a valid topic id")
    if version != PARTITION_METADATA_VERSION:
        raise unknown_version(file, version)
    return PartitionMetadata(version=version, topic_id=encode_uuid(topic_id))


def decode_uuid(text: str) -> bytes | None:
    """Return the 16 bytes of an id (22 characters of base64url), or None. Rule: Uuid.fromString."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}(==)?", text):
        return None
    try:
        return base64.urlsafe_b64decode(text[:22] + "==")
    except (binascii.Error, ValueError):
        return None


def encode_uuid(value: bytes) -> str:
    """Return the text of an id of 16 bytes. Rule: Uuid.toString."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")
