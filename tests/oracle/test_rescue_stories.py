"""The commands of `docs/rescue.md` on the log directories of real brokers that were abandoned, killed or filled."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import random
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError as ClientError
from kafka.structs import OffsetAndMetadata

from fixtures.broker import Broker, create_topics, patiently
from kcompact.format.names import CONSUMER_OFFSETS
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE
from kcompact.log.directory import read_log
from tests.oracle.clients import ABOUT_LOGS, COORDINATORS, consumed, loaded, newest, size_of
from tests.oracle.real_kafka import RealKafka, copy_log_dir
from tests.support.command_line import kcompact
from tests.support.disk_in_memory import disk_in_memory
from tests.support.pages import blocks, commands, run
from tests.support.patience import PATIENCE_S, becomes

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "rescue.md"
KEYS = 50
KILLED_AFTER = 100
GOES_ON_FOR = 10
"""Rounds of the writer."""


def story(number: int) -> list[str]:
    """Return the commands of a story of the page, without what only shortens their output."""
    (section,) = re.findall(rf"^## {number}\. .*?(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    found = [command for block in blocks(section) if block.language == "console" for _, command, _ in commands(block)]
    return [re.sub(r"\blogs\b", "log-dir", command.partition(" | ")[0]) for command in found]


def follow(number: int, home: Path) -> None:
    """Run the commands of a story in the folder of a broker's log directory."""
    for command in story(number):
        printed = run(command, home, in_process=True)
        assert not any("[exit code" in line for line in printed), (command, printed)


@pytest.fixture(autouse=True)
def sockets_of_clients() -> Iterator[None]:
    """Collect them while the warning is ignored."""
    yield
    gc.collect()


# -- the dead cleaner --------------------


@pytest.fixture
def kafka() -> Iterator[RealKafka]:
    """A process of its own: it holds the clients."""
    with RealKafka() as kafka:
        yield kafka


def commit_early(address: str) -> None:
    """Commit an offset that stays, so that the segments which are cleaned have one."""
    consumer = KafkaConsumer(bootstrap_servers=address, group_id="early", enable_auto_commit=False)
    try:
        consumer.assign([TopicPartition("prices", 0)])
        patiently(lambda: consumer.commit({TopicPartition("prices", 0): OffsetAndMetadata(7, "", -1)}))
    finally:
        consumer.close()


def live_groups(log_dir: Path) -> dict[str, tuple[int, int]]:
    """Return members and offsets of each group, as the page says to compare them."""
    groups = kcompact("groups", "--json", log_dir).partition["groups"]
    return {each["group"]: (each["members"], each["offsets"]) for each in groups if each["type"] != "deleted"}


def test_the_dead_cleaner(kafka: RealKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broker = Broker(tmp_path, properties=COORDINATORS + "log.cleaner.enable=false\n")
    with broker:
        create_topics(broker.address, {"prices": COMPACTED})
        commit_early(broker.address)
        kafka.use_cluster(broker.address)
        before = kafka.describe_cluster(broker.address)
    assert "early" in before["offsets"]
    offsets = broker.log_dir / f"{CONSUMER_OFFSETS}-0"
    size_bytes, groups = size_of(offsets), live_groups(broker.log_dir)
    follow(1, tmp_path)
    assert live_groups(broker.log_dir) == groups
    assert size_of(offsets) < size_bytes / 2
    seen = len(broker.logged)
    with broker:
        assert loaded(kafka, broker) == before
        assert kafka.go_on(broker.address, offset=77) >= 30
        kafka.leave_cluster()
    complaints = ABOUT_LOGS.findall(broker.logged[seen:])
    assert [line for line in complaints if "log.cleaner.enable" not in line] == []


# -- after kill -9 --------------------

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "500"}
TOPICS = ("prices", "orders", "torn")
"""Written by an idempotent, a transactional and a plain producer."""
CHECKPOINTS = """\
log.initial.task.delay.ms=100
log.flush.offset.checkpoint.interval.ms=200
replica.high.watermark.checkpoint.interval.ms=200
"""


class Writer(threading.Thread):
    """Writes to the topics, waits while no broker is there, and goes on. Remembers what was acknowledged, by offset."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.sent: dict[str, dict[int, tuple[bytes, bytes | None]]] = {topic: {} for topic in TOPICS}
        self.rounds = 0
        self.stopped = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Write rounds. Each second round aborts its transaction, and some records are tombstones."""
        try:
            common: dict[str, Any] = {"bootstrap_servers": self.address, "delivery_timeout_ms": 900_000}
            producers = {
                "prices": KafkaProducer(**common, enable_idempotence=True),
                "orders": KafkaProducer(**common, transactional_id="shop", transaction_timeout_ms=900_000),
                "torn": KafkaProducer(**common, enable_idempotence=False),
            }
            producers["orders"].init_transactions()
            while not self.stopped.is_set():
                producers["orders"].begin_transaction()
                for topic, producer in producers.items():
                    self.write(topic, producer)
                self.rounds += 1
            for producer in producers.values():
                producer.close()
        except Exception as problem:
            self.failure = problem

    def write(self, topic: str, producer: Any) -> None:
        """Write a round to a topic: a key that is never written again, and values of some keys."""
        written = []
        for number in range(self.rounds * 20, self.rounds * 20 + 20):
            key = b"key-%d" % (number % KEYS) if number % 20 else b"only-%d" % number
            value = None if number % 9 == 0 else b"value-%d" % number
            written.append((key, value, producer.send(topic, key=key, value=value, partition=0)))
        producer.flush()
        if topic == "orders" and self.rounds % 2:
            producer.abort_transaction()
            return
        if topic == "orders":
            producer.commit_transaction()
        for key, value, future in written:
            self.sent[topic][future.get(timeout=600).offset] = (key, value)

    def wait(self, rounds: int) -> None:
        """Wait until it has written so many rounds."""
        assert becomes(lambda: self.failure or self.rounds >= rounds), f"{self.rounds} rounds"
        assert self.failure is None, self.failure

    def stop(self) -> None:
        """Let it end its round, and wait for it."""
        self.stopped.set()
        self.join(PATIENCE_S)
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def writing(address: str) -> Iterator[Writer]:
    """Let a writer write during the block."""
    writer = Writer(address)
    writer.start()
    try:
        yield writer
    finally:
        writer.stop()


def files_in(directory: Path) -> dict[str, bytes]:
    """Return the files of a partition and their bytes."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def views(
    address: str, bounds: Mapping[str, int] | None = None
) -> dict[str, tuple[int, dict[bytes, tuple[int, bytes | None]]]]:
    """Return where each topic ends, at its bound at most, and the newest offset and value of each key below.

    What was aborted does not count.
    """
    found = {}
    for topic in TOPICS:
        end, records = consumed(address, topic, isolation="read_committed")
        end = min(end, (bounds or {}).get(topic, end))
        found[topic] = (end, newest(records, end))
    return found


def complaints(broker: Broker, start: int = 0) -> set[str]:
    """What a broker has logged of its logs since then, without its paths."""
    return {line.replace(str(broker.log_dir), "") for line in ABOUT_LOGS.findall(broker.logged[start:])}


def test_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broker = Broker(tmp_path, properties=CHECKPOINTS)
    untouched = Broker(tmp_path / "untouched")
    broker.start()
    create_topics(broker.address, dict.fromkeys(TOPICS, COMPACTED))
    with writing(broker.address) as writer:
        writer.wait(KILLED_AFTER)
        broker.kill()
        rounds = writer.rounds
        with sorted((broker.log_dir / "torn-0").glob("*.log"))[-1].open("ab") as active:
            active.write(bytes.fromhex("00000000 7fff0000 00000044"))  # The beginning of a batch.
        copy_log_dir(broker.log_dir, untouched.log_dir)
        partitions = {topic: untouched.log_dir / f"{topic}-0" for topic in TOPICS}
        ends = {topic: read_log(path, as_recovered=True).log_end_offset for topic, path in partitions.items()}
        # A broker that is killed before it writes the marker of a transaction may never write it: the marker of the
        # next one then decides about both. So a transaction that was not decided on the disk is not looked at.
        planned = kcompact("plan", "--unclean", "--json", "--config", "cleanup.policy=compact", partitions["orders"])
        decided = planned.partition["last_stable_offset"]
        clean_and_restore_and_clean(broker.log_dir, untouched.log_dir)
        with untouched:
            expected = views(untouched.address, {"orders": decided})
        seen = len(broker.logged)
        with broker:
            # The writer is at work again, so only what was there before is compared.
            for topic, (end, view) in expected.items():
                _, records = consumed(broker.address, topic, isolation="read_committed")
                assert newest(records, end) == view, topic
            writer.wait(rounds + GOES_ON_FOR)
            writer.stop()
            for topic in ("prices", "orders"):
                end, records = consumed(broker.address, topic, isolation="read_committed")
                first = ends[topic]
                sent = {offset: record for offset, record in writer.sent[topic].items() if offset >= first}
                assert sent
                assert newest(sent, end).items() <= newest(records, end).items(), topic
    assert complaints(broker, seen) == complaints(untouched)
    (torn,) = complaints(untouched)
    assert re.search(r"partition=torn-0, dir=\] Corruption found in segment \d+, truncating to offset \d+$", torn)
    assert kcompact("verify", broker.log_dir).code == 0


def clean_and_restore_and_clean(log_dir: Path, untouched: Path) -> None:
    """Follow the page, take the way back, and follow the page again."""
    follow(3, log_dir.parent)
    assert _size_of_topics(log_dir) < _size_of_topics(untouched)
    assert not (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    kept = log_dir.parent / "kept"
    assert kcompact("restore", kept).code == 0
    for topic in TOPICS:
        assert files_in(log_dir / f"{topic}-0") == files_in(untouched / f"{topic}-0"), topic
    shutil.rmtree(kept)
    follow(3, log_dir.parent)
    assert _size_of_topics(log_dir) < _size_of_topics(untouched)


def _size_of_topics(log_dir: Path) -> int:
    return sum(size_of(log_dir / f"{topic}-0") for topic in TOPICS)


# -- the full disk --------------------

DISK_BYTES = 64 << 20
OTHER_BYTES = 8 << 20
"""What is not Kafka's, and is deleted first."""
FILLED = {"cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.9"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, which is the current directory."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk in memory")
    with disk_in_memory(tmp_path / "disk", str(DISK_BYTES)) as disk, contextlib.chdir(disk):
        yield disk


def fill(address: str, records: int = DISK_BYTES // 90_000) -> dict[bytes, bytes]:
    """Write so many records, or until the broker does not answer. Return the newest acknowledged value of each key."""
    producer = KafkaProducer(
        bootstrap_servers=address, delivery_timeout_ms=120_000, request_timeout_ms=60_000, retries=0
    )
    dice = random.Random("full")
    newest_values: dict[bytes, bytes] = {}

    def write(key: bytes, value: bytes) -> None:
        producer.send("prices", key=key, value=value, partition=0).get(timeout=PATIENCE_S)

    with contextlib.suppress(ClientError):
        for number in range(records):
            key, value = b"key-%d" % (number % 20) if number % 14 else b"only-%d" % number, dice.randbytes(100_000)
            if newest_values:
                write(key, value)
            else:
                patiently(functools.partial(write, key, value))  # The leader of a new topic may need a moment.
            newest_values[key] = value
    producer.close(timeout=1)
    return newest_values


def fill_the_disk(broker: Broker, disk: Path) -> dict[bytes, bytes]:
    """Run a broker on a small disk until it dies. Return the newest acknowledged value of each key."""
    broker.log_dir = disk / "log-dir"
    (disk / "old.log").write_bytes(bytes(OTHER_BYTES))
    broker.start()
    create_topics(broker.address, dict.fromkeys(TOPICS, FILLED))
    values = fill(broker.address)
    assert broker.wait() == 1
    return values


def test_the_full_disk(disk: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path, properties=CHECKPOINTS)
    values = fill_the_disk(broker, disk)
    assert os.statvfs(disk).f_bavail == 0
    assert re.search(r"Error while appending records to prices-0 in dir .*\n.*: No space left on device", broker.logged)
    assert f"Shutdown broker because all log dirs in {broker.log_dir} have failed" in broker.logged
    with pytest.raises(RuntimeError, match=r"unsafe memory access operation|No space left on device"):
        broker.start()
    prices = broker.log_dir / "prices-0"
    found = files_in(prices)
    ran = kcompact("clean", "--engine", "in-process", "--unclean", "--force", broker.log_dir)
    assert (ran.code, files_in(prices)) == (7, found), ran.err
    (disk / "old.log").unlink()
    follow(2, disk)
    seen = len(broker.logged)
    with broker:
        end, records = consumed(broker.address, "prices")
        assert {key: value for key, (_, value) in newest(records, end).items()} == values
        assert len(fill(broker.address, records=20)) == 20
    (torn,) = complaints(broker, seen)
    assert re.search(r"partition=prices-0, dir=\] Corruption found in segment \d+, truncating to offset \d+$", torn)


@pytest.mark.parametrize("frees", [True, False], ids=["space is freed", "a copy on another disk"])
def test_the_full_disk_before_the_first_checkpoint(frees: bool, disk: Path, tmp_path: Path) -> None:
    """The page says that the broker has to come up once, and how."""
    clean = ("clean", "--engine", "in-process", "--force", "--json")
    broker = Broker(tmp_path, properties=CHECKPOINTS.replace("delay.ms=100", "delay.ms=600000"))
    values = fill_the_disk(broker, disk)
    refused = kcompact(*clean, "--unclean", "--topic", "prices", broker.log_dir)
    assert (refused.code, refused.partition["reason"]) == (0, "recovery-point"), refused.err
    assert "start it once, stop it cleanly" in refused.partition["hint"]
    if frees:
        (disk / "old.log").unlink()
    else:
        copied = kcompact(*clean, "--unclean", "--output", tmp_path / "copy", broker.log_dir)
        assert copied.code == 0, copied.err
        broker.log_dir = tmp_path / "copy"
    seen = len(broker.logged)
    with broker:
        # One that is stopped before it has loaded its logs writes no clean shutdown file.
        consumed(broker.address, "prices")
    assert all("Corruption found in segment" in line for line in complaints(broker, seen))
    prices = broker.log_dir / "prices-0"
    before = size_of(prices)
    ran = kcompact(*clean, "--topic", "prices", broker.log_dir)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran.err
    assert size_of(prices) < before
    with broker:
        end, records = consumed(broker.address, "prices")
        assert {key: value for key, (_, value) in newest(records, end).items()} == values


# -- the backup --------------------


def test_the_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    broker = Broker(tmp_path)
    with broker:
        create_topics(broker.address, dict.fromkeys(TOPICS, COMPACTED))
        with writing(broker.address) as writer:
            writer.wait(KILLED_AFTER)
        expected = views(broker.address)
    size_bytes = size_of(broker.log_dir / "prices-0")
    broker.log_dir = broker.log_dir.rename(tmp_path / "backup")
    backup = {topic: files_in(broker.log_dir / f"{topic}-0") for topic in TOPICS}
    follow(4, tmp_path)
    assert {topic: files_in(tmp_path / "backup" / f"{topic}-0") for topic in TOPICS} == backup
    broker.log_dir = tmp_path / "fresh"
    assert size_of(broker.log_dir / "prices-0") < size_bytes * 0.8
    seen = len(broker.logged)
    with broker:
        assert views(broker.address) == expected
    assert complaints(broker, seen) == set()
