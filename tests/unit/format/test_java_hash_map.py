"""The order of Java's `HashMap`, and with it the order of a checkpoint that Kafka's cleaner writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.format.checkpoint import (
    iteration_order,
    updated_offset_checkpoint,
    updated_offset_checkpoint_by_many,
)
from kcompact.format.names import TopicPartition

# What Java 17 gives for these files (in file order) once orders-0 is set, by the three maps of Kafka's cleaner.
# AaAa, AaBB and so on have the same hash code.
JAVA_ORDERS = [
    ("", "orders 0"),
    ("orders:1", "orders 0"),
    ("orders:3,Aa:2,BB:2", "Aa 1,BB 1,Aa 0,BB 0,orders 0,orders 1,orders 2"),
    (
        "orders:2,AaAa:1,AaBB:1,BBAa:1,BBBB:1,C#Aa:1,C#BB:1,AaC#:1,BBC#:1,C#C#:1,z:1",
        "orders 1,AaAa 0,AaBB 0,BBAa 0,BBBB 0,C#Aa 0,C#BB 0,AaC# 0,BBC# 0,C#C# 0,orders 0,z 0",
    ),
    (
        "orders:12",
        "orders 7,orders 8,orders 9,orders 10,orders 11,orders 0,orders 1,orders 2,orders 3,orders 4,orders 5,orders 6",
    ),
    ("a:7,b:6", "a 2,b 3,a 1,b 2,a 0,b 1,b 0,orders 0,a 6,a 5,a 4,b 5,a 3,b 4"),
    ("a:12", "a 2,a 1,a 0,a 11,a 10,a 9,orders 0,a 8,a 7,a 6,a 5,a 4,a 3"),
    (
        "a:24",
        "a 1,a 22,a 20,a 18,a 16,a 14,a 12,a 10,a 8,a 6,a 4,a 2,a 0,"
        "a 23,a 21,a 19,a 17,a 15,a 13,a 11,a 9,orders 0,a 7,a 5,a 3",
    ),
]


@pytest.mark.parametrize(("before", "after"), JAVA_ORDERS)
def test_the_order_of_kafka_s_cleaner(before: str, after: str) -> None:
    counts = [word.split(":") for word in before.split(",") if word]
    entries = {TopicPartition(topic, number): 5 for topic, count in counts for number in range(int(count))}
    updated = updated_offset_checkpoint(entries, TopicPartition("orders", 0), 9)
    assert ",".join(f"{key.topic} {key.partition}" for key in updated) == after
    assert updated == {**entries, TopicPartition("orders", 0): 9}


def test_a_copied_map_is_smaller_since_java_19() -> None:
    entries = {TopicPartition("a", number): 0 for number in range(24)}
    orders = [list(updated_offset_checkpoint(entries, TopicPartition("a", 0), 9, java=java)) for java in (17, 21)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


@given(st.lists(st.builds(TopicPartition, st.text(max_size=3), st.integers(0, 200)), max_size=200))
def test_the_order_neither_adds_nor_drops(keys: list[TopicPartition]) -> None:
    assert sorted(iteration_order(keys)) == sorted(set(keys))


PARTITIONS = st.builds(
    TopicPartition, st.sampled_from(["a", "orders", "Aa", "BB", "AaAa", "BBBB", "é"]), st.integers(0, 90)
)


@given(
    st.dictionaries(PARTITIONS, st.integers(0, 9), max_size=200),
    st.dictionaries(PARTITIONS, st.integers(10, 19), max_size=40),
)
def test_many_updates_at_once_are_updates_one_after_the_other(
    entries: dict[TopicPartition, int], offsets: dict[TopicPartition, int]
) -> None:
    one_by_one = entries
    for partition, offset in offsets.items():
        one_by_one = updated_offset_checkpoint(one_by_one, partition, offset)
    at_once = updated_offset_checkpoint_by_many(entries, offsets)
    assert list(at_once.items()) == list(one_by_one.items())
