"""The order in which Java's `HashMap` iterates over partitions.

Kafka's cleaner keeps the entries of a checkpoint in a `java.util.HashMap` and writes them in the order in which the map
iterates. No reader depends on that order. It is computed here for one reason: a checkpoint written by kcompact is then
byte for byte the file that Kafka writes, so two results can be compared with `cmp`.

A map is an array of buckets. A key belongs to the bucket that the low bits of its hash code select. Iteration visits
the buckets by number and, in a bucket, the keys as they were added. The order therefore depends on the hash codes, on
the number of buckets, and on the order in which the keys were added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kcompact.format.names import TopicPartition

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
    topic_hash = 0
    units = key.topic.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        topic_hash = (31 * topic_hash + (high << 8 | low)) & 0xFFFFFFFF
    full = (31 * (31 + key.partition) + topic_hash) & 0xFFFFFFFF
    return full ^ full >> 16
