"""A real broker rolls, cleans and deletes while kcompact reads beside it: no false damage, and copies that load."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from fixtures.broker import Broker, create_topics
from kcompact.errors import LogChangedError
from tests.oracle.clients import consumed, newest
from tests.support.command_line import Ran, kcompact
from tests.support.patience import PATIENCE_S, becomes

pytestmark = pytest.mark.oracle

COMMON = {"segment.ms": "400", "index.interval.bytes": "100", "file.delete.delay.ms": "200"}
CLEANED = {**COMMON, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
DELETED = {**COMMON, "cleanup.policy": "compact,delete", "retention.ms": "1500", "min.cleanable.dirty.ratio": "0.9"}
KEPT = {**COMMON, "cleanup.policy": "delete"}
TOPICS = {"cleaned": CLEANED, "deleted": DELETED, "kept": KEPT}
PROPERTIES = """\
log.cleaner.backoff.ms=50
log.retention.check.interval.ms=300
log.initial.task.delay.ms=100
log.roll.ms=400
replica.high.watermark.checkpoint.interval.ms=200
log.flush.offset.checkpoint.interval.ms=300
"""
KEYS = 50
ROUNDS = 12
COMMANDS = (
    ("plan", "--json"),
    ("inspect", "--json"),
    ("verify", "--json"),
    ("clean", "--dry-run", "--force", "--config", "cleanup.policy=compact", "--engine", "in-process", "--json"),
)
COPY = ("clean", "--yes", "--force", "--engine", "in-process", "--include-internal", "--json", "--output")


class Writer(threading.Thread):
    """Produces to all topics until it is stopped, and remembers the offset and the value of each record."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.sent: dict[str, dict[int, tuple[bytes, bytes | None]]] = {topic: {} for topic in TOPICS}
        self.stopped = threading.Event()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Send small batches: each round is a value of every topic's next keys."""
        try:
            producer = KafkaProducer(bootstrap_servers=self.address, enable_idempotence=True, linger_ms=5)
            number = 0
            while not self.stopped.is_set():
                for topic, sent in self.sent.items():
                    batch = []
                    for _ in range(20):
                        key, value = b"key-%d" % (number % KEYS), b"value-%d" % number
                        batch.append((key, value, producer.send(topic, key=key, value=value, partition=0)))
                        number += 1
                    producer.flush()
                    for key, value, future in batch:
                        sent[future.get(timeout=PATIENCE_S).offset] = (key, value)
            producer.close()
        except Exception as problem:
            self.failure = problem


@contextmanager
def writing(address: str) -> Iterator[Writer]:
    writer = Writer(address)
    writer.start()
    try:
        yield writer
    finally:
        writer.stopped.set()
        writer.join()
    if writer.failure is not None:
        raise writer.failure


def problems(ran: Ran) -> list[str]:
    """Return what a command says that it may not say of a log that is sound."""
    if ran.code not in (0, 6):
        return [f"exit code {ran.code}: {ran.err}"]
    wrong = []
    for entry in json.loads(ran.out)["partitions"]:
        wrong += [str(each) for each in entry.get("findings") or () if each["severity"] == "damage"]
        if entry.get("error") is not None and entry["exit_code"] != 6:
            wrong.append(str(entry["error"]))
        if entry.get("reason") in ("unclean-shutdown", "corrupt", "leftovers"):
            wrong.append(f"{entry['topic']}: {entry['reason']}")
    return wrong


def require_success(*command: str | Path) -> None:
    """Run a command until the broker leaves each partition alone while it is read."""
    ran: list[Ran] = []

    def is_left_alone() -> bool:
        ran[:] = [kcompact(*command)]
        return ran[0].code != LogChangedError.exit_code

    assert becomes(is_left_alone), ran[0].err
    assert (ran[0].code, problems(ran[0])) == (0, [])


def names_in(log_dir: Path) -> set[str]:
    return {path.name for topic in TOPICS for path in (log_dir / f"{topic}-0").glob("*.log")}


def test_it_reads_and_copies_beside_a_broker_that_rolls_cleans_and_deletes(tmp_path: Path) -> None:
    wrong: list[str] = []
    seen: set[str] = set()
    copies: list[Path] = []
    (tmp_path / "live").mkdir()
    with Broker(tmp_path / "live", properties=PROPERTIES) as broker:
        create_topics(broker.address, TOPICS)
        with writing(broker.address) as writer:
            time.sleep(2)
            for number in range(ROUNDS):
                for command in COMMANDS:
                    ran = kcompact(*command, broker.log_dir)
                    wrong += [f"{' '.join(command[:2])}: {each}" for each in problems(ran)]
                    seen |= names_in(broker.log_dir)
                output = tmp_path / f"copy-{number}" / "log-dir"
                ran = kcompact(*COPY, output, broker.log_dir)
                wrong += [f"copy: {each}" for each in problems(ran)]
                if ran.code == 0:
                    copies.append(output)
            left = names_in(broker.log_dir)
            in_place = kcompact("clean", "--yes", "--engine", "in-process", broker.log_dir)
        # How often a broker changes a partition meanwhile depends on the machine. Once nothing is written it must not.
        for command in COMMANDS:
            require_success(*command, broker.log_dir)
        if not copies:
            copies.append(tmp_path / "quiet" / "log-dir")
            require_success(*COPY, copies[-1], broker.log_dir)
        assert (in_place.code, in_place.err.count(") holds this lock")) == (5, 1)
    assert wrong == []
    assert len(seen) > len(left) + ROUNDS  # The broker has rolled, and what it has cleaned or deleted is gone.
    _require_loads(copies[-1], writer.sent)


def _require_loads(log_dir: Path, sent: dict[str, dict[int, tuple[bytes, bytes | None]]]) -> None:
    """Start a broker on a copy and compare what it serves with what was sent."""
    with Broker(log_dir.parent) as broker:
        for topic, records in sent.items():
            end, served = consumed(broker.address, topic)
            expected = newest(records, end)
            assert all(records[offset] == record for offset, record in served.items()), topic
            assert end > 0
            if topic == "cleaned":
                assert newest(served, end) == expected
            elif topic == "kept":
                assert served == {offset: record for offset, record in records.items() if offset < end}
            else:
                found: dict[bytes, Any] = newest(served, end)
                assert found.items() <= expected.items()
