"""The small text files of a log directory and of a partition directory.

The five checkpoints share one form: a version line, a line with the number of entries, then an entry a
line. A broker takes a whole log directory offline over a malformed one, so a parser here never guesses:
anything that Kafka does not accept raises `CorruptCheckpointError` with the line, and so does an entry that
comes twice, which Kafka would settle silently.

The order of the entries in an offset checkpoint has no meaning, but Kafka's is not random either: it is the
order in which a Java `HashMap` of the entries is walked. `java_map_order` computes it, so that the file
written after a clean is the very one that Kafka's cleaner would have written.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

from kcompact.errors import CorruptCheckpointError
from kcompact.format.names import TopicPartition

CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

CHECKPOINT_VERSION = 0
PARTITION_METADATA_VERSION = 0
CLEAN_SHUTDOWN_VERSION = 0
MAX_CHECKPOINT_BYTES = 64 * 1024 * 1024
MAX_SMALL_FILE_BYTES = 1024 * 1024

_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_WHITESPACE = re.compile(r"[ \t\n\x0b\f\r]+")
_LINE_END = re.compile(r"\r\n|\n|\r")
_Entry = TypeVar("_Entry")


# --- the checkpoints ---


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEntry:
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


def parse_offset_checkpoint(data: bytes, *, file: str) -> dict[TopicPartition, int]:
    """Return the offsets of an offset checkpoint, in file order.

    A file without bytes, or with the version line only, has no entries. Raises CorruptCheckpointError.
    Rule: CheckpointFile.CheckpointReadBuffer.read, OffsetCheckpointFile.Formatter.
    """

    def entry(words: list[str]) -> tuple[TopicPartition, int]:
        partition = _integer(words[1], low=0, high=2**31 - 1, what="partition")
        return TopicPartition(words[0], partition), _integer(words[2], low=-(2**63), high=2**63 - 1, what="offset")

    return dict(_parse_checkpoint(data, entry, words=3, key=lambda found: found[0], file=file))


def parse_leader_epochs(data: bytes, *, file: str) -> tuple[EpochEntry, ...]:
    """Return the entries of a `leader-epoch-checkpoint`.

    Raises CorruptCheckpointError, also when a column does not rise.
    Rule: LeaderEpochCheckpointFile.Formatter; LeaderEpochFileCache keeps both columns rising.
    """

    def entry(words: list[str]) -> EpochEntry:
        return EpochEntry(
            epoch=_integer(words[0], low=0, high=2**31 - 1, what="epoch"),
            start_offset=_integer(words[1], low=0, high=2**63 - 1, what="offset"),
        )

    entries = _parse_checkpoint(data, entry, words=2, key=lambda found: found.epoch, file=file)
    for number, (earlier, later) in enumerate(pairwise(entries)):
        if later.epoch <= earlier.epoch or later.start_offset <= earlier.start_offset:
            raise _malformed(
                file, number + 4, f"{later.epoch} {later.start_offset} does not rise above the line before"
            )
    return tuple(entries)


def build_offset_checkpoint(entries: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of an offset checkpoint, entries in the mapping's order."""
    return _build_checkpoint(f"{key.topic} {key.partition} {offset}" for key, offset in entries.items())


def leader_epochs_from(entries: Iterable[EpochEntry], start_offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of a log that now starts at `start_offset`: the one it is in starts there.

    Rule: LeaderEpochFileCache.truncateFromStart.
    """
    earlier = [entry for entry in entries if entry.start_offset <= start_offset]
    later = [entry for entry in entries if entry.start_offset > start_offset]
    return (*(replace(entry, start_offset=start_offset) for entry in earlier[-1:]), *later)


def build_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the bytes of a `leader-epoch-checkpoint`."""
    return _build_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def _build_checkpoint(lines: Iterable[str]) -> bytes:
    listed = list(lines)
    return "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, len(listed), *listed)).encode()


def _parse_checkpoint(
    data: bytes,
    entry: Callable[[list[str]], _Entry],
    *,
    words: int,
    key: Callable[[_Entry], object],
    file: str,
) -> list[_Entry]:
    lines = _lines(data, file=file, max_bytes=MAX_CHECKPOINT_BYTES)
    if lines and _number(lines[0], 1, file=file) != CHECKPOINT_VERSION:
        raise _malformed(file, 1, f"version {_shown(lines[0])} is unknown")
    if len(lines) < 2:
        return []
    declared = _number(lines[1], 2, file=file)
    found: list[_Entry] = []
    keys: set[object] = set()
    for number, line in enumerate(lines[2:], start=3):
        split = _split(line)
        if len(split) != words:
            raise _malformed(file, number, f"{_shown(line)} has {len(split)} words, not {words}")
        try:
            found.append(entry(split))
        except ValueError as error:
            raise _malformed(file, number, str(error)) from None
        if key(found[-1]) in keys:
            raise _malformed(file, number, f"{_shown(line)}: this entry comes twice")
        keys.add(key(found[-1]))
    if declared != len(found):
        raise _malformed(file, 2, f"{declared} entries declared, {len(found)} found")
    return found


def _lines(data: bytes, *, file: str, max_bytes: int) -> list[str]:
    """Return the lines as Java's BufferedReader splits them. Raises when not UTF-8, or far too long."""
    if len(data) > max_bytes:
        problem = f"{len(data):,} bytes are too many for such a file, the limit is {max_bytes:,}"
        raise CorruptCheckpointError(file=file, problem=problem)
    try:
        lines = _LINE_END.split(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(file=file, position=error.start, problem="not UTF-8") from None
    return lines[:-1] if lines[-1] == "" else lines


def _split(line: str) -> list[str]:
    """Split at white space as Java does: an empty word counts before leading space, not at the end."""
    words = _WHITESPACE.split(line)
    while len(words) > 1 and words[-1] == "":
        words.pop()
    return words


def _number(line: str, number: int, *, file: str) -> int:
    try:
        return _integer(line, low=0, high=2**31 - 1, what="number")
    except ValueError as error:
        raise _malformed(file, number, str(error)) from None


def _integer(word: str, *, low: int, high: int, what: str) -> int:
    if not _INTEGER.fullmatch(word) or not low <= int(word) <= high:
        raise ValueError(f"{_shown(word)} is no {what}")
    return int(word)


def _malformed(file: str, line: int, problem: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(file=file, problem=f"line {line}: {problem}")


def _shown(text: str) -> str:
    """Quote foreign text for a message: escaped, and cut when long."""
    return ascii(text if len(text) <= 80 else text[:80] + "...")


# --- updating the cleaner's checkpoint, in Java's order ---

_COPY_SIZING_CHANGED_IN_JAVA = 19
_LOAD_FACTOR = 0.75
_DEFAULT_CAPACITY = 16
_LONG_BUCKET = 8
_MIN_TREE_CAPACITY = 64


def updated_offset_checkpoint(
    entries: Mapping[TopicPartition, int],
    partition: TopicPartition,
    offset: int,
    *,
    known: Collection[TopicPartition] | None = None,
    java: int = 17,
) -> dict[TopicPartition, int]:
    """Return the entries with one set, in the order in which Kafka's cleaner would write them.

    `entries` are in file order. A broker drops entries of partitions it does not hold; `known` says which
    it holds, None keeps all. `java` is the Java release of the broker to agree with: since 19 a copied map
    can be smaller, which changes the order. Rule: LogCleanerManager.updateCheckpoints: read into a map,
    filtered into a second one, copied into a third and put.
    """
    read = java_map_order(entries, capacity=_power_of_two(len(entries)))
    kept = java_map_order(key for key in read if known is None or key in known)
    keys = java_map_order([*kept, partition], capacity=_copy_capacity(len(kept), java=java))
    return {key: offset if key == partition else entries[key] for key in keys}


def java_map_order(
    entries: Iterable[TopicPartition], *, capacity: int = _DEFAULT_CAPACITY
) -> tuple[TopicPartition, ...]:
    """Return the keys as a `java.util.HashMap` is walked that was filled in the order given.

    `capacity` is the number of buckets at the start; it doubles when the map is three quarters full, and
    when a bucket of a map with fewer than 64 holds eight. Not modelled: the trees into which larger maps
    turn buckets of eight and more. Rule: HashMap.putVal, HashMap.resize, TopicPartition.hashCode.
    """
    buckets: dict[int, dict[TopicPartition, int]] = {}
    size = 0
    for key in entries:
        spread = _spread_hash(key)
        bucket = buckets.setdefault(spread & (capacity - 1), {})
        if key in bucket:
            continue
        bucket[key] = spread
        size += 1
        is_long = len(bucket) > _LONG_BUCKET and capacity < _MIN_TREE_CAPACITY
        for is_due in (is_long, size > int(capacity * (2 if is_long else 1) * _LOAD_FACTOR)):
            if is_due:
                capacity *= 2
                buckets = _rehashed(buckets, capacity)
    return tuple(key for index in sorted(buckets) for key in buckets[index])


def _rehashed(
    buckets: Mapping[int, Mapping[TopicPartition, int]], capacity: int
) -> dict[int, dict[TopicPartition, int]]:
    moved: dict[int, dict[TopicPartition, int]] = {}
    for index in sorted(buckets):
        for key, spread in buckets[index].items():
            moved.setdefault(spread & (capacity - 1), {})[key] = spread
    return moved


def _spread_hash(key: TopicPartition) -> int:
    topic_hash = 0
    units = key.topic.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        topic_hash = (31 * topic_hash + (high << 8 | low)) & 0xFFFFFFFF
    full = (31 * (31 + key.partition) + topic_hash) & 0xFFFFFFFF
    return full ^ full >> 16


def _copy_capacity(size: int, *, java: int) -> int:
    """Return the number of buckets of `new HashMap<>(map)`. Rule: HashMap.putMapEntries; JDK-8281631."""
    if size == 0:
        return _DEFAULT_CAPACITY
    if java < _COPY_SIZING_CHANGED_IN_JAVA:
        return _power_of_two(int(size / _LOAD_FACTOR + 1))
    return _power_of_two(-(-size * 4 // 3))


def _power_of_two(at_least: int) -> int:
    return 1 << max(at_least - 1, 0).bit_length()


# --- partition.metadata ---


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """The topic id of a partition directory, as the 22 characters that Kafka shows."""

    version: int
    topic_id: str


def parse_partition_metadata(data: bytes, *, file: str) -> PartitionMetadata:
    """Return what `partition.metadata` says. Raises CorruptCheckpointError, also for the id of zeros.

    Versions above 0 are read as 0, and what follows the second line is ignored. Rule:
    PartitionMetadataReadBuffer.read.
    """
    lines = _lines(data, file=file, max_bytes=MAX_SMALL_FILE_BYTES)
    if len(lines) < 2:
        raise CorruptCheckpointError(file=file, problem=f"{len(lines)} lines, not 2")
    values = []
    for number, line in enumerate(lines[:2], start=1):
        parts = re.split(r":[ \t\n\x0b\f\r]+", line)
        if len(parts) != 2 or not parts[1]:
            raise _malformed(file, number, f"{_shown(line)} is not 'name: value'")
        values.append(parts[1])
    topic_id = decode_uuid(values[1])
    if topic_id is None or topic_id == bytes(16):
        raise _malformed(file, 2, f"{_shown(values[1])} is no topic id")
    return PartitionMetadata(version=_number(values[0], 1, file=file), topic_id=encode_uuid(topic_id))


def build_partition_metadata(topic_id: str) -> bytes:
    """Return the bytes of `partition.metadata`; no newline ends it. Rule: PartitionMetadata.encode."""
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {topic_id}".encode()


def decode_uuid(text: str) -> bytes | None:
    """Return the 16 bytes of an id (22 characters of base64url), or None. Rule: Uuid.fromString."""
    if not re.fullmatch(r"[A-Za-z0-9_-]{22}(==)?", text):
        return None
    try:
        return base64.urlsafe_b64decode(text[:22] + "==")
    except (binascii.Error, ValueError):
        return None


def encode_uuid(value: bytes) -> str:
    """Return a Kafka id as text. Rule: Uuid.toString."""
    return base64.urlsafe_b64encode(value).decode("ascii").rstrip("=")


# --- meta.properties ---


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Who wrote a log directory. `node_id` is `broker.id` in version 0. Absent values are None."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def parse_meta_properties(data: bytes, *, file: str) -> MetaProperties:
    """Return what `meta.properties` says. Raises CorruptCheckpointError. Rule: MetaProperties.Builder."""
    properties = parse_java_properties(data, file=file)

    def integer(name: str) -> int | None:
        if name not in properties:
            return None
        try:
            return _integer(properties[name].strip(), low=-(2**31), high=2**31 - 1, what=name)
        except ValueError as error:
            raise CorruptCheckpointError(file=file, problem=str(error)) from None

    version = integer("version")
    if version not in (0, 1):
        raise CorruptCheckpointError(file=file, problem=f"version {_shown(properties.get('version', ''))} is unknown")
    return MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=integer("broker.id" if version == 0 else "node.id"),
        directory_id=properties.get("directory.id"),
    )


def build_meta_properties(properties: MetaProperties) -> bytes:
    """Return the bytes of a `meta.properties`, without the comment lines and the date that Java puts first."""
    named = {
        "cluster.id": properties.cluster_id,
        "version": properties.version,
        "directory.id": properties.directory_id,
        "broker.id" if properties.version == 0 else "node.id": properties.node_id,
    }
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in named.items() if value is not None).encode()


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\:= \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[:=]?[ \t\f]*")


def parse_java_properties(data: bytes, *, file: str) -> dict[str, str]:
    """Return the pairs of a Java properties file; when a key comes twice, the last value counts.

    Comments, continued lines, the separators `=`, `:` and white space, and escapes are understood, in
    UTF-8. Raises CorruptCheckpointError for a broken escape. Also reads `server.properties`. Rule:
    java.util.Properties.load.
    """
    properties: dict[str, str] = {}
    for number, line in _logical_lines(_lines(data, file=file, max_bytes=MAX_SMALL_FILE_BYTES)):
        key = _KEY.match(line)
        assert key is not None  # it also matches nothing
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        try:
            properties[_unescaped(key[0])] = _unescaped(line[separator.end() :])
        except ValueError:
            raise _malformed(file, number, f"{_shown(line)} has a malformed \\u escape") from None
    return properties


def _logical_lines(lines: list[str]) -> Iterable[tuple[int, str]]:
    """Yield the lines that carry a pair, continued ones joined, with the number of their first line."""
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
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ValueError(text)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        return _ESCAPES.get(escape, escape)

    return _ESCAPE.sub(replace, text)


def _escaped(text: str) -> str:
    return "".join(
        f"\\{char}" if char in "\\:=#! " else {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}.get(char, char)
        for char in text
    )


# --- .kafka_cleanshutdown ---


def parse_clean_shutdown(data: bytes) -> int | None:
    """Return the broker epoch that `.kafka_cleanshutdown` tells, or None.

    The file's existence alone means a clean shutdown. Nothing in it is an error: Kafka reads any other
    content as "epoch unknown". Rule: CleanShutdownFileHandler.read.
    """
    if len(data) > MAX_SMALL_FILE_BYTES:
        return None
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    epoch = content.get("brokerEpoch") if isinstance(content, dict) else None
    return epoch if type(epoch) is int and -(2**63) <= epoch < 2**63 else None


def build_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the bytes of `.kafka_cleanshutdown`. Rule: CleanShutdownFileHandler.write; KIP-966."""
    return json.dumps({"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
