"""Copies of a running broker that writes, compacts and deletes, compared with a topic that is never cleaned.

One producer writes the same records in the same transactions to `compacted`, `expiring` and `mirror`, so a record has
the same offset in each of them. A quarter of the transactions is aborted, and some records are in none. The broker's
own cleaner works on the first two, its retention on the second, and nothing on the mirror. A copy must be as of a
moment between its start and its end. A reader of it must find what the mirror has below that offset: for each key the
latest committed record, no record of an aborted transaction, and no other record.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from fixtures.broker import Broker, create_topics, patiently
from kcompact.errors import LogChangedError
from kcompact.format.names import MAX_OFFSET
from tests.support.command_line import kcompact
from tests.support.consumer_view import ReadBatch, View, checkpoint, read_batches, view
from tests.support.patience import becomes
from tests.torture.children import scratch
from tests.torture.tally import Tally

ROUNDS = 100
"""Copies, at share 1."""
ATTEMPTS = 20
"""For each copy: with exit code 6 it is tried again."""
KEYS = 60
COPIED = ("compacted", "expiring")
MIRROR = "mirror"
COMMON = {"segment.ms": "500", "file.delete.delay.ms": "200", "delete.retention.ms": "500"}
CONFIGS = {
    "compacted": COMMON | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    # By bytes: a cleaned segment is as recent as its last record.
    "expiring": COMMON
    | {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.95", "retention.bytes": "40000"},
    MIRROR: {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
}
PROPERTIES = """\
log.cleaner.backoff.ms=50
log.retention.check.interval.ms=300
log.initial.task.delay.ms=100
replica.high.watermark.checkpoint.interval.ms=200
log.flush.offset.checkpoint.interval.ms=300
log.flush.start.offset.checkpoint.interval.ms=300
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a copy of a partition has, and the ends of the partition before and after the copy was made."""

    topic: str
    seen: View
    start: int
    end: int
    log_ends: tuple[int, int]
    start_after: int


def run(*, share: float, seed: int) -> Tally:
    """Make a share of the copies."""
    rounds, tally, copies = max(1, round(ROUNDS * share)), Tally(), []
    with scratch() as work:
        home = work / "broker"
        home.mkdir()
        with Broker(home, properties=PROPERTIES) as broker:
            create_topics(broker.address, CONFIGS)
            with writing(broker.address, seed), reading(broker.address) as reader:
                await_cleaning(broker.log_dir)
                for number in range(rounds):
                    copies += copied(broker.log_dir, work / f"copy-{number}", reader, tally)
        mirror = list(read_batches(broker.log_dir / f"{MIRROR}-0"))
    for copy in copies:
        tally.count(f"copies of {copy.topic}")
        for problem in problems(copy, mirror)[:1]:
            tally.fail(f"{copy.topic}, copied up to {copy.end}: {problem}")
    return tally


# --- The broker and its clients -------------------------------------------------------------------------


@contextmanager
def writing(address: str, seed: int) -> Iterator[None]:
    """Produce transactions while the block runs."""
    stopped, failures = threading.Event(), []

    def write() -> None:
        try:
            _write_until(stopped, address, random.Random(seed))
        except Exception as problem:
            failures.append(problem)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stopped.set()
        writer.join()
    if failures:
        raise failures[0]


def _write_until(stopped: threading.Event, address: str, dice: random.Random) -> None:
    producer = KafkaProducer(bootstrap_servers=address, transactional_id="copies", linger_ms=1)
    plain = KafkaProducer(bootstrap_servers=address, enable_idempotence=True, linger_ms=1)
    patiently(producer.init_transactions)
    number = 0
    while not stopped.is_set():
        # The markers of a transaction are written before the next one begins. So nothing is sent between the two: the
        # order would differ from topic to topic.
        producer.begin_transaction()
        for sender in (producer, plain) if dice.random() < 0.3 else (producer,):
            for _ in range(dice.randint(1, 15)):
                number += 1
                key = b"key-%d" % dice.randrange(KEYS)
                value = None if dice.random() < 0.1 else b"value-%d" % number
                for topic in CONFIGS:
                    sender.send(topic, key=key, value=value, partition=0)
            sender.flush()
        if dice.random() < 0.25:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
        time.sleep(dice.random() / 20)
    producer.close()
    plain.close()


@contextmanager
def reading(address: str) -> Iterator[Any]:
    """Give a consumer that is asked where partitions begin and end."""
    consumer = patiently(lambda: KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, group_id=None))
    try:
        yield consumer
    finally:
        consumer.close()


def await_cleaning(log_dir: Path) -> None:
    """Return when the broker has cleaned both topics and has deleted segments of one."""

    def is_at_work() -> bool:
        checkpoints = (checkpoint(log_dir / "cleaner-offset-checkpoint", f"{topic}-0") for topic in COPIED)
        return all(checkpoints) and first_offset(log_dir / "expiring-0") > 0

    assert becomes(is_at_work), "the broker neither cleans nor deletes"


def first_offset(directory: Path) -> int:
    """Return the base offset of the first segment."""
    return min(int(path.stem) for path in directory.glob("*.log"))


# --- The copies -----------------------------------------------------------------------------------------


def copied(log_dir: Path, output: Path, reader: Any, tally: Tally) -> list[Copied]:
    """Copy the two topics, and return what the copies have."""
    partitions = [TopicPartition(topic, 0) for topic in COPIED]
    for _ in range(ATTEMPTS):
        before = patiently(lambda: reader.end_offsets(partitions))
        ran = kcompact(
            *("clean", "--yes", "--force", "--engine", "in-process"),
            *(word for topic in COPIED for word in ("--topic", topic)),
            *("--output", output, log_dir),
        )
        if ran.code != LogChangedError.exit_code:
            break
        tally.count("copies that gave up")
        shutil.rmtree(output, ignore_errors=True)
    after = patiently(lambda: reader.end_offsets(partitions))
    starts = patiently(lambda: reader.beginning_offsets(partitions))
    if ran.code != 0:
        tally.fail(f"exit code {ran.code}: {ran.err}")
        return []
    # A broker raises the high watermark of this file, which lags behind, to the log end. Its cleaner knew the true one.
    (output / "replication-offset-checkpoint").unlink()
    found = []
    for partition in partitions:
        directory = output / f"{partition.topic}-0"
        start = checkpoint(output / "log-start-offset-checkpoint", directory.name) or 0
        found.append(
            Copied(
                topic=partition.topic,
                seen=view(output, directory),
                start=max(start, first_offset(directory)),
                end=max((batch.last_offset + 1 for batch in read_batches(directory)), default=0),
                log_ends=(before[partition], after[partition]),
                start_after=starts[partition],
            )
        )
    shutil.rmtree(output)
    return found


def problems(copy: Copied, mirror: Sequence[ReadBatch]) -> list[str]:
    """Return how a copy differs from what the mirror says."""
    found = []
    earliest, latest = copy.log_ends
    if not earliest <= copy.end <= latest:
        found.append(f"the log ended between {earliest} and {latest}")
    if copy.start > copy.start_after:
        found.append(f"begins at {copy.start}, the log later at {copy.start_after}")
    if copy.seen.problem:
        found.append(f"not readable: {copy.seen.problem}")
    below = [batch for batch in mirror if batch.last_offset < copy.end]
    # A batch of the mirror may end later: a producer closes the batches of each topic when it sends them.
    written = {record for batch in mirror for record in batch.records if record[0] < copy.end}
    if invented := copy.seen.records - written:
        found.append(f"records that were never written: {sorted(invented)[:3]}")
    expected = committed(below, copy.start)
    if expected != copy.seen.latest:
        found.append(f"the latest committed records differ: {sorted(expected.items() ^ copy.seen.latest.items())[:6]}")
    return found


def committed(batches: Sequence[ReadBatch], start: int) -> dict[bytes, tuple[int, bytes]]:
    """Return offset and value of each key's latest record that is committed, not deleted, and not below `start`."""
    records: list[tuple[int, bytes | None, bytes | None]] = []
    opened: dict[int, list[ReadBatch]] = {}
    for batch in batches:
        if batch.control:
            ended = opened.pop(batch.producer_id, [])
            records += [record for each in ended for record in each.records if not batch.is_abort]
        elif batch.transactional:
            opened.setdefault(batch.producer_id, []).append(batch)
        else:
            records += batch.records
    stable = min((each[0].base_offset for each in opened.values()), default=MAX_OFFSET)
    latest = {key: (offset, value) for offset, key, value in sorted(records) if key and start <= offset < stable}
    return {key: (offset, value) for key, (offset, value) in latest.items() if value is not None}
