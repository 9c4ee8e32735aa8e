"""What a test writes to partitions through a broker, and what the broker serves of them afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as ClientPartition

from fixtures.broker import Broker, patiently
from kcompact.format.names import TopicPartition
from tests.oracle.clients import ABOUT_LOGS
from tests.support.patience import PATIENCE_S

HOUR_MS = 3_600_000
Record = tuple[bytes, bytes | None]


class Served(NamedTuple):
    """What a reader of committed records gets from a partition, from its beginning to its end."""

    start_offset: int
    records: list[Record]

    @property
    def live(self) -> dict[bytes, bytes]:
        """The newest value of each key that is not deleted."""
        return live(self.records)


def live(records: Iterable[Record]) -> dict[bytes, bytes]:
    """Return the newest value of each key that is not deleted."""
    return {key: value for key, value in dict(records).items() if value is not None}


def rounds_of(keys: int, *, rounds: int = 4, size: int = 100) -> list[list[Record]]:
    """Return records in rounds. The newest values of a quarter of the keys are in each of four: each loss is seen."""
    return [
        [
            (b"key-%d" % key, (b"value %d of key-%d " % (number, key)).ljust(size, b"."))
            for key in range(keys)
            if key % rounds >= number
        ]
        for number in range(rounds)
    ]


def write(
    address: str, partition: str, rounds: Sequence[Sequence[Record]], *, at_once: int = 20, hours_ago: int = 0
) -> list[Record]:
    """Write rounds to a partition, `at_once` records in a batch, and return all records.

    The last round is of so many hours ago, and each other two hours older than the next.
    """
    last_ms = int(time.time() * 1000) - hours_ago * HOUR_MS
    producer = KafkaProducer(bootstrap_servers=address, linger_ms=60_000, batch_size=1 << 20)
    try:
        for number, each in enumerate(rounds):
            timestamp_ms = last_ms - 2 * HOUR_MS * (len(rounds) - 1 - number)
            for first in range(0, len(each), at_once):
                _write_batch(producer, partition, each[first : first + at_once], timestamp_ms)
    finally:
        producer.close()
    return [record for each in rounds for record in each]


def _write_batch(producer: Any, partition: str, records: Sequence[Record], timestamp_ms: int) -> None:
    one = _partition(partition)
    sent = [
        producer.send(one.topic, key=key, value=value, partition=one.partition, timestamp_ms=timestamp_ms)
        for key, value in records
    ]
    producer.flush()
    for each in sent:
        each.get(timeout=PATIENCE_S)


def _partition(name: str) -> ClientPartition:
    parsed = TopicPartition.parse(name)
    assert parsed is not None, name
    return ClientPartition(parsed.topic, parsed.partition)


def served(address: str, partitions: Iterable[str]) -> dict[str, Served]:
    """Return what a reader of committed records gets from each partition."""
    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, group_id=None, isolation_level="read_committed"
    )
    try:
        return {name: _served(consumer, _partition(name)) for name in partitions}
    finally:
        consumer.close()


def _served(consumer: Any, partition: ClientPartition) -> Served:
    consumer.assign([partition])
    start = patiently(partial(consumer.beginning_offsets, [partition]))[partition]
    end = patiently(partial(consumer.end_offsets, [partition]))[partition]
    consumer.seek(partition, start)
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while consumer.position(partition) < end:
        assert time.monotonic() < deadline, f"{partition}: read up to {consumer.position(partition)} of {end}"
        records += [(each.key, each.value) for each in consumer.poll(timeout_ms=1_000).get(partition, [])]
    return Served(start, records)


def served_again(broker: Broker, partitions: Iterable[str]) -> dict[str, Served]:
    """Start a broker on what was left, and return what it serves. It must find nothing wrong in its logs."""
    with broker:
        found = served(broker.address, partitions)
    assert ABOUT_LOGS.findall(broker.logged) == []
    return found
