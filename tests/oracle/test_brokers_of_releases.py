"""Brokers of each release, with KRaft and with ZooKeeper, on log directories cleaned by the rules of each release.

One broker of each kind stops and starts once for each set of rules, its own first. In between its log directory is
cleaned, Kafka's internal topics too. Its clients stay: idempotent producers of all codecs, a transactional producer
with an open transaction, and a group. After each start every key has its newest value, the group its offsets, and the
clients go on. At the end another producer of the same transactional id fences the first.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import InvalidProducerEpochError, ProducerFencedError

from fixtures.broker import CODECS, Broker, create_topics, patiently
from kcompact.release import KAFKA_3_9, RELEASES
from tests.oracle.clients import ABOUT_LOGS, consumed
from tests.oracle.driver import VERSIONS
from tests.oracle.kinds_of_brokers import BrokerWithZooKeeper
from tests.support.command_line import kcompact
from tests.support.patience import PATIENCE_S
from tests.support.releases import release_of

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000
SMALL_SEGMENTS = "offsets.topic.segment.bytes=1048576\ntransaction.state.log.segment.bytes=1048576\n"
LONG_METADATA = "offset.metadata.max.bytes=32000\n"
ONE_OF_EACH = "transaction.state.log.num.partitions=1\ngroup.initial.rebalance.delay.ms=0\n"
COMPACTED = {"cleanup.policy": "compact", "segment.ms": str(30 * 60_000), "delete.retention.ms": "0"}
STOCK, LEDGER = "stock", "ledger"
GROUP = "readers"
KEYS = 300
LONG_NAME = "l" * 30_000
"""A transactional id that fills the topic of the transactions' coordinator soon."""
KINDS = [(KAFKA_3_9.version, "zookeeper"), ("3.6.2", "zookeeper"), *((version, "kraft") for version in VERSIONS)]


@dataclass
class Clients:
    """The clients of a broker, and what they must find: the newest value of each key, and the group's offset.

    `pending` is what the open transaction has written.
    """

    address: str
    start_ms: int
    stack: ExitStack
    stock: dict[bytes, bytes | None] = field(default_factory=dict)
    ledger: dict[bytes, bytes | None] = field(default_factory=dict)
    pending: dict[bytes, bytes | None] = field(default_factory=dict)
    offset: int = 0
    ticks: Iterator[int] = field(default_factory=lambda: itertools.count(0, 7_500))
    """Up to 11 hours: a broker takes no record of later than an hour from now."""

    def connect(self) -> None:
        """Make the clients, which stay."""
        self.idempotent = [self._producer(enable_idempotence=True, compression_type=codec) for codec in CODECS]
        self.transactional = self._transactional()
        self.reader = KafkaConsumer(bootstrap_servers=self.address, group_id=GROUP, enable_auto_commit=False)
        self.stack.callback(self.reader.close)
        self.reader.assign([TopicPartition(STOCK, 0)])

    def _producer(self, **options: Any) -> Any:
        producer = KafkaProducer(bootstrap_servers=self.address, linger_ms=5, retries=1_000, **options)
        self.stack.callback(producer.close)
        return producer

    def _transactional(self) -> Any:
        producer = self._producer(transactional_id=LONG_NAME, transaction_timeout_ms=600_000, compression_type="lz4")
        patiently(producer.init_transactions)
        return producer

    def go_on(self, name: str) -> None:
        """Produce to both topics, a third of the transactions aborted, and commit offsets.

        The transaction that was open is committed, and the last one stays open. Of the first idempotent producers each
        key is written again by a later one.
        """
        for turn, producer in enumerate(self.idempotent):
            self._write_stock(producer, name, range(turn * KEYS // 2, (turn + 1) * KEYS // 2))
        if self.pending:
            self._end_transaction(commit=True)
        for number in range(20):
            self._begin_transaction({b"account-%d" % (each % 50): name for each in range(number, number + 3)}, number)
            self._end_transaction(commit=number % 3 > 0)
        self._begin_transaction({b"account-%d" % each: f"{name}, late" for each in range(5)}, 20)
        for _ in range(36):
            self.offset += 1
            position = {TopicPartition(STOCK, 0): OffsetAndMetadata(self.offset, "x" * 32_000, -1)}
            patiently(partial(self.reader.commit, position))

    def _write_stock(self, producer: Any, name: str, numbers: range) -> None:
        sent = []
        for number in numbers:
            key = b"item-%d" % (number * number % KEYS)
            value = None if number % 17 == 0 else f"{name} {number}".encode()
            time_ms = self.start_ms + next(self.ticks)
            headers = [("source", name.encode())] if number % 5 == 0 else []
            sent.append(producer.send(STOCK, key=key, value=value, timestamp_ms=time_ms, headers=headers))
            self.stock[key] = value
        producer.flush()
        for each in sent:
            each.get(timeout=PATIENCE_S)

    def _begin_transaction(self, names: dict[bytes, str], number: int) -> None:
        self.pending = {key: f"{name} {number}".encode() for key, name in names.items()}
        self.transactional.begin_transaction()
        sent = [self.transactional.send(LEDGER, key=key, value=value) for key, value in self.pending.items()]
        self.transactional.flush()
        for each in sent:
            each.get(timeout=PATIENCE_S)

    def _end_transaction(self, *, commit: bool) -> None:
        if commit:
            self.transactional.commit_transaction()
            self.ledger.update(self.pending)
        else:
            self.transactional.abort_transaction()
        self.pending = {}

    def fence(self) -> None:
        """Let another producer take the transactional id: the open transaction ends, and the first is refused."""
        with self._transactional() as other:
            other.begin_transaction()
            other.send(LEDGER, key=b"account-0", value=b"the other's").get(timeout=PATIENCE_S)
            other.commit_transaction()
        self.ledger[b"account-0"] = b"the other's"
        with pytest.raises((ProducerFencedError, InvalidProducerEpochError)):
            self.transactional.commit_transaction()

    def wrong(self) -> list[str]:
        """Return what a new reader finds otherwise than it was written."""
        found = []
        for topic, expected, isolation in (
            (STOCK, self.stock, "read_uncommitted"),
            (STOCK, self.stock, "read_committed"),
            (LEDGER, self.ledger, "read_committed"),
        ):
            _, records = consumed(self.address, topic, isolation=isolation)
            newest = {key: value for _, (key, value) in sorted(records.items())}
            unlike = [key for key in {*expected, *newest} if newest.get(key) != expected.get(key)]
            if unlike:
                found.append(f"{topic} has other values for a reader of {isolation}: {sorted(unlike)[:5]}")
        _, records = consumed(self.address, LEDGER)
        lost = self.ledger.items() - set(records.values())
        if lost:
            found.append(f"{LEDGER} lacks values for a reader of read_uncommitted: {sorted(lost)[:5]}")
        reader = KafkaConsumer(bootstrap_servers=self.address, group_id=GROUP, enable_auto_commit=False)
        try:
            committed = patiently(lambda: reader.committed(TopicPartition(STOCK, 0)))
        finally:
            reader.close()
        if committed != self.offset:
            found.append(f"the group has the offset {committed}, not {self.offset}")
        return found


def cleaned(broker: Broker, release: str | None) -> None:
    """Clean everything of a stopped broker, by the rules of a release or of its own; each topic must shrink."""
    options = ["--engine", "in-process", "--force", "--include-internal", "--yes", "--json"]
    if isinstance(broker, BrokerWithZooKeeper):
        options += ["--config", f"{STOCK}:cleanup.policy=compact", "--config", f"{LEDGER}:cleanup.policy=compact"]
    ran = kcompact("clean", *options, *(["--kafka-release", release] if release else []), broker.log_dir)
    assert ran.code == 0, ran.err
    entries = {Path(entry["directory"]).name: entry for entry in ran.json["partitions"]}
    for name in (f"{STOCK}-0", f"{LEDGER}-0", "__consumer_offsets-0", "__transaction_state-0"):
        if release and name.startswith("__") and entries[name]["status"] == "skipped":
            continue  # Since the last cleaning no segment was closed.
        assert (name, entries[name]["status"]) == (name, "cleaned")
        assert entries[name]["bytes_written"] < entries[name]["bytes_read"], name
    source = "meta-properties" if isinstance(broker, BrokerWithZooKeeper) else "broker-registration"
    known = entries[f"{STOCK}-0"]
    assert (known["kafka_release"], known["kafka_release_source"]) == (
        (release, "option") if release else (own_rules(broker), source)
    )


def own_rules(broker: Broker) -> str:
    """Return the rules that kcompact takes for a broker: ZooKeeper proves no version."""
    return KAFKA_3_9.name if isinstance(broker, BrokerWithZooKeeper) else release_of(broker.version).name


@pytest.mark.parametrize(("version", "metadata"), KINDS, ids=lambda part: part)
def test_a_broker_goes_on_after_cleanings_by_all_rules(version: str, metadata: str, tmp_path: Path) -> None:
    kind = BrokerWithZooKeeper if metadata == "zookeeper" else Broker
    broker = kind(tmp_path, properties=SMALL_SEGMENTS + LONG_METADATA + ONE_OF_EACH, version=version)
    others = [name for name in RELEASES if name != own_rules(broker)]
    with ExitStack() as stack:
        stack.enter_context(broker)
        create_topics(broker.address, {STOCK: COMPACTED, LEDGER: {**COMPACTED, "segment.ms": "200"}})
        # Less than a day ago: a broker that starts forgets older producers.
        clients = Clients(broker.address, int(time.time() * 1000) - 12 * HOUR_MS, stack)
        clients.connect()
        clients.go_on("first")
        broker.stop()
        broker.start()  # On what nobody has cleaned: it may say the same things after a cleaning.
        assert clients.wrong() == [], "nothing was cleaned"
        clients.go_on("second")
        before = complaints(broker)
        for release in (None, *others):
            broker.stop()
            cleaned(broker, release)
            broker.start()
            assert clients.wrong() == [], release
            clients.go_on(f"after {release or 'its own'}")
            assert clients.wrong() == [], f"{release}, after the clients have gone on"
        clients.fence()
        assert clients.wrong() == [], "after another producer has taken the transactional id"
        broker.stop()
        assert ABOUT_LOGS.findall(broker.logged) == []
        assert not [line for line in complaints(broker) if line.startswith("ERROR")]
        assert complaints(broker) <= before


def complaints(broker: Broker) -> set[str]:
    """Return the warnings and errors in a broker's log, without what differs from one time to the next.

    A node registers with its own controller, which may not be the active one yet. It tries again.
    """
    lines = [line for line in broker.logged.splitlines() if line.startswith(("WARN", "ERROR"))]
    lines = [line for line in lines if "ControllerRegistrationRequest" not in line]
    return {re.sub(r"\d+|\[.*?\]|\(.*?\)", "_", line) for line in lines}
