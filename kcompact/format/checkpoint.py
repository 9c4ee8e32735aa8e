"""The checkpoints of a log directory and of a partition directory: offset checkpoints and leader epochs.

All five files share one form: a line with the version, a line with the number of entries, then one entry per line.
A broker takes a whole log directory offline when one of them is malformed, so the parsers never guess. Everything
that Kafka rejects raises `CorruptCheckpointError` with the line. Of a repeated partition the last entry counts, as in a
broker.

The order of the entries has no meaning. `updated_offset_checkpoint` nevertheless keeps Kafka's order, so the file
written after a cleaning equals the file that Kafka's cleaner writes, and two results can be compared with `cmp`. The
cleaner keeps the entries in a `java.util.HashMap` and writes them in the order in which the map iterates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from kcompact.errors import CorruptCheckpointError
from kcompact.format.names import TopicPartition
from kcompact.format.text_lines import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    NEWER_FILE,
    malformed,
    parse_integer,
    parse_non_negative,
    quoted,
    split_lines,
    split_words,
    unknown_version,
)
from kcompact.values import dataclass

CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
BROKER_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT)
"""The checkpoints that only a broker writes. kcompact writes `cleaner-offset-checkpoint` beside a copied partition."""
OFFSET_CHECKPOINTS = (*BROKER_CHECKPOINTS, CLEANER_OFFSET_CHECKPOINT)
"""The checkpoints of a log directory: an offset for each of its partitions."""
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"

CHECKPOINT_VERSION = 0
MAX_CHECKPOINT_BYTES = 16 * 1024 * 1024

_HEAD_LINES = 2
_Entry = TypeVar("_Entry")


# Offset checkpoints


def parse_offset_checkpoint(data: bytes, *, file: str) -> dict[TopicPartition, int]:
    """Return the offsets of an offset checkpoint, in file order; of a repeated partition the last one.

    An empty file, or one with only the version line, has no entries. Raises CorruptCheckpointError.
    Rule: CheckpointFile.CheckpointReadBuffer.read, OffsetCheckpointFile.read.
    """
    plain = _plain_offsets(data)
    if plain is not None:
        return plain

    def entry(words: list[str]) -> tuple[TopicPartition, int]:
        partition = parse_integer(words[1], low=INT_MIN, high=INT_MAX, what="partition")
        return TopicPartition(words[0], partition), parse_integer(words[2], low=LONG_MIN, high=LONG_MAX, what="offset")

    return dict(_parse_checkpoint(data, entry, words=3, file=file))


_PLAIN_ENTRY = re.compile(r"([a-zA-Z0-9._-]+) (0|[1-9][0-9]{0,8}) (0|[1-9][0-9]{0,17})\n")


def _plain_offsets(data: bytes) -> dict[TopicPartition, int] | None:
    """Return the offsets of a checkpoint as Kafka writes it; None for any other text, which needs the full rules.

    Five times as fast as the full rules.
    """
    version, _, rest = data[:MAX_CHECKPOINT_BYTES].partition(b"\n")
    count, _, lines = rest.partition(b"\n")
    if version != b"%d" % CHECKPOINT_VERSION or len(data) > MAX_CHECKPOINT_BYTES or not lines.isascii():
        return None
    text = lines.decode("ascii")
    entries = _PLAIN_ENTRY.findall(text)
    # All characters belong to an entry, and no entry occurs twice.
    size = sum(len(topic) + len(partition) + len(offset) for topic, partition, offset in entries) + 3 * len(entries)
    offsets = {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    is_plain = size == len(text) and len(offsets) == len(entries) and count == b"%d" % len(entries)
    return offsets if is_plain else None


def build_offset_checkpoint(entries: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of an offset checkpoint, entries in the mapping's order."""
    return _build_checkpoint(f"{key.topic} {key.partition} {offset}" for key, offset in entries.items())


def updated_offset_checkpoint(
    entries: Mapping[TopicPartition, int],
    partition: TopicPartition,
    offset: int,
    *,
    known: Collection[TopicPartition] | None = None,
    java: int = 17,
) -> dict[TopicPartition, int]:
    """Return the entries with the offset of `partition` set, in the order in which Kafka's cleaner writes them.

    `entries` are in file order. A broker drops the entries of partitions that it does not hold: only those in `known`
    stay, or all when `known` is None. `java` is the Java release of the broker; since 19 the order differs.
    Rule: LogCleanerManager.updateCheckpoints, which reads the file into one map, filters it into a second, and copies
    that into a third to set the entry.
    """
    read = iteration_order(entries, capacity=capacity_for(len(entries)))
    kept = iteration_order(key for key in read if known is None or key in known)
    keys = iteration_order([*kept, partition], capacity=copy_capacity(len(kept), java=java))
    return {key: offset if key == partition else entries[key] for key in keys}


def updated_offset_checkpoint_by_many(
    entries: Mapping[TopicPartition, int], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the entries after `updated_offset_checkpoint` for each of some partitions, in their order.

    In a map with many buckets all of these updates are one. Each update goes through three maps, of which the last one
    has at least as many buckets as the others. Keys of one bucket of the last map therefore share a bucket in the
    others too, where they stay in the order in which they were added: that of the file, then the new ones.
    """
    if len(entries) < _MIN_TREE_CAPACITY:
        updated = dict(entries)
        for partition, offset in offsets.items():
            updated = updated_offset_checkpoint(updated, partition, offset)
        return updated
    updated = {**entries, **offsets}
    is_last_new = bool(offsets) and [*offsets][-1] not in entries
    size_before = len(updated) - is_last_new
    keys = iteration_order(updated, capacity=copy_capacity(size_before, java=17))
    return {key: updated[key] for key in keys}


# Leader epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEntry:
    """A leader epoch and the first offset written in it."""

    epoch: int
    start_offset: int


def parse_leader_epochs(data: bytes, *, file: str) -> tuple[EpochEntry, ...]:
    """Return the entries of a `leader-epoch-checkpoint`, epochs and offsets rising, as a broker has them.

    An entry drops those before it that do not lie below it. Raises CorruptCheckpointError; UnsupportedError for another
    version than 0, which a broker refuses too.
    Rule: LeaderEpochCheckpointFile.Formatter, LeaderEpochFileCache.assign.
    """

    def entry(words: list[str]) -> EpochEntry:
        return EpochEntry(
            epoch=parse_integer(words[0], low=0, high=INT_MAX, what="epoch"),
            start_offset=parse_integer(words[1], low=0, high=LONG_MAX, what="offset"),
        )

    entries: list[EpochEntry] = []
    for each in _parse_checkpoint(data, entry, words=2, file=file, is_of_partition=True):
        if entries and entries[-1].epoch == each.epoch and entries[-1].start_offset <= each.start_offset:
            continue
        while entries and (entries[-1].epoch >= each.epoch or entries[-1].start_offset >= each.start_offset):
            entries.pop()
        entries.append(each)
    return tuple(entries)


def build_leader_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the bytes of a `leader-epoch-checkpoint`."""
    return _build_checkpoint(f"{entry.epoch} {entry.start_offset}" for entry in entries)


def leader_epochs_from(entries: Iterable[EpochEntry], start_offset: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of a log whose start moved to `start_offset`; the epoch of that offset starts there.

    Rule: LeaderEpochFileCache.truncateFromStart.
    """
    earlier = [entry for entry in entries if entry.start_offset <= start_offset]
    later = [entry for entry in entries if entry.start_offset > start_offset]
    return (*(replace(entry, start_offset=start_offset) for entry in earlier[-1:]), *later)


# The common form


def _build_checkpoint(lines: Iterable[str]) -> bytes:
    listed = list(lines)
    return "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, len(listed), *listed)).encode()


def _parse_checkpoint(
    data: bytes,
    entry: Callable[[list[str]], _Entry],
    *,
    words: int,
    file: str,
    is_of_partition: bool = False,
) -> list[_Entry]:
    lines = split_lines(data, file=file, max_bytes=MAX_CHECKPOINT_BYTES)
    version = parse_non_negative(lines[0], 1, file=file) if lines else CHECKPOINT_VERSION
    if version != CHECKPOINT_VERSION and is_of_partition:
        raise unknown_version(file, version)
    if version != CHECKPOINT_VERSION:
        problem = f"line 1: version {quoted(lines[0])} is unknown"
        raise CorruptCheckpointError(file=file, problem=problem, hint=NEWER_FILE)
    if len(lines) < _HEAD_LINES:
        return []
    declared = parse_non_negative(lines[1], 2, file=file)
    entries: list[_Entry] = []
    for number, line in enumerate(lines[_HEAD_LINES:], start=_HEAD_LINES + 1):
        split = split_words(line)
        if len(split) != words:
            raise malformed(file, number, f"{quoted(line)} has {len(split)} words, not {words}")
        try:
            entries.append(entry(split))
        except ValueError as error:
            bad_number = malformed(file, number, str(error))
            bad_number.has_bad_number = True
            raise bad_number from None
    if declared != len(entries):
        raise malformed(file, 2, f"{declared} entries declared, {len(entries)} found")
    return entries


# The order in which Java's `HashMap` iterates
#
# A map is an array of buckets. A key belongs to the bucket that the low bits of its hash code select. Iteration visits
# the buckets by number and, in a bucket, the keys as they were added. The order therefore depends on the hash codes, on
# the number of buckets, and on the order in which the keys were added.

DEFAULT_CAPACITY = 16

_LOAD_FACTOR = 0.75
_LONG_BUCKET = 8
_MIN_TREE_CAPACITY = 64
_COPY_SIZING_CHANGED_IN_JAVA = 19


def iteration_order(keys: Iterable[TopicPartition], *, capacity: int = DEFAULT_CAPACITY) -> tuple[TopicPartition, ...]:
    """Return the keys in the order of a `HashMap` that was filled with them in the given order. Repeats count once.

    `capacity` is the initial number of buckets. It doubles when the map is more than three quarters full, and when a
    bucket exceeds 8 keys in a map with fewer than 64 buckets. Not modelled: in larger maps Java turns such a bucket
    into a tree. Rule: HashMap.putVal, HashMap.resize, HashMap.treeifyBin.
    """
    if capacity >= _MIN_TREE_CAPACITY:
        # Doubling keeps the order of the keys of a bucket, so only the number of buckets at the end counts.
        spreads = {key: _spread_hash(key) for key in keys}
        while len(spreads) > int(capacity * _LOAD_FACTOR):
            capacity *= 2
        return tuple(sorted(spreads, key=lambda key: spreads[key] & (capacity - 1)))
    buckets: dict[int, dict[TopicPartition, int]] = {}
    size = 0
    for key in keys:
        spread = _spread_hash(key)
        bucket = buckets.setdefault(spread & (capacity - 1), {})
        if key in bucket:
            continue
        bucket[key] = spread
        size += 1
        # One insertion can double the capacity twice: Java tests the bucket first, then the size of the map.
        if len(bucket) > _LONG_BUCKET and capacity < _MIN_TREE_CAPACITY:
            capacity *= 2
            buckets = _rehashed(buckets, capacity)
        if size > int(capacity * _LOAD_FACTOR):
            capacity *= 2
            buckets = _rehashed(buckets, capacity)
    return tuple(key for index in sorted(buckets) for key in buckets[index])


def capacity_for(initial_capacity: int) -> int:
    """Return the number of buckets of `new HashMap<>(initial_capacity)`. Rule: HashMap.tableSizeFor."""
    return 1 << max(initial_capacity - 1, 0).bit_length()


def copy_capacity(size: int, *, java: int) -> int:
    """Return the number of buckets of `new HashMap<>(map)` for a map of `size` keys, in the Java release `java`.

    Rule: HashMap.putMapEntries. Since Java 19 the copy can be smaller (JDK-8281631).
    """
    if size == 0:
        return DEFAULT_CAPACITY
    if java < _COPY_SIZING_CHANGED_IN_JAVA:
        return capacity_for(int(size / _LOAD_FACTOR + 1))
    return capacity_for(-(-size * 4 // 3))


def _rehashed(
    buckets: Mapping[int, Mapping[TopicPartition, int]], capacity: int
) -> dict[int, dict[TopicPartition, int]]:
    moved: dict[int, dict[TopicPartition, int]] = {}
    for index in sorted(buckets):
        for key, spread in buckets[index].items():
            moved.setdefault(spread & (capacity - 1), {})[key] = spread
    return moved


def _spread_hash(key: TopicPartition) -> int:
    """Return the hash that selects the bucket. Rule: TopicPartition.hashCode, String.hashCode, HashMap.hash."""
    full = (31 * (31 + key.partition) + _string_hash(key.topic)) & 0xFFFFFFFF
    return full ^ full >> 16


@lru_cache(maxsize=1 << 14)
def _string_hash(text: str) -> int:
    """Return the hash code of a string. Rule: String.hashCode."""
    hash_code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        hash_code = (31 * hash_code + (high << 8 | low)) & 0xFFFFFFFF
    return hash_code
