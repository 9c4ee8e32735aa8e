"""`gaps` and `transactions` against Kafka's own readers, its producer state, and its tools on a broker."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from fixtures.broker import Broker
from kcompact import readable
from kcompact.config.layers import topic_config
from kcompact.config.settings import Override
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition
from kcompact.questions.gaps.answer import log_gaps
from kcompact.questions.gaps.walks import GapWalk
from kcompact.questions.transactions.answer import TransactionEnding, TransactionReport, log_transaction_report
from tests.oracle.clients import COORDINATORS
from tests.oracle.driver import class_path
from tests.oracle.odd_logs import odd_spec
from tests.oracle.real_kafka import Json, RealKafka, java
from tests.support.command_line import kcompact
from tests.support.patience import becomes

pytestmark = pytest.mark.oracle

Row = tuple[int, int]
"""Offset and timestamp."""


def plain_walk(rows: Sequence[Row], present: set[int]) -> tuple[Any, ...]:
    """Return rows, gaps, the first gap, the last one with its row and time, and the last offset.

    Offsets in `present` are not missing, even if they are no rows.
    """
    gaps, first, last, previous = 0, None, None, None
    for number, (offset, timestamp) in enumerate(rows, start=1):
        if previous is not None and any(each not in present for each in range(previous + 1, offset)):
            gaps += 1
            first = offset if first is None else first
            last = (offset, number, timestamp)
        previous = offset
    return len(rows), gaps, first, last, previous


def as_plain(walk: GapWalk) -> tuple[Any, ...]:
    last = (walk.last_gap_offset, walk.last_gap_row, walk.last_gap_timestamp_ms) if walk.gaps else None
    return walk.rows, walk.gaps, walk.first_gap_offset, last, walk.last_offset


def plan_of(directory: Path, settings: Json) -> CleanPlan:
    topic = directory.name.rpartition("-")[0]
    config = {**settings["config"], **settings["topics"].get(topic, {})}
    config["producer.id.expiration.ms"] = str(settings["producer_id_expiration_ms"])
    overrides = [Override(name=name, value=value) for name, value in config.items()]
    return plan_partition(
        directory, topic_config(topic, overrides=overrides), now_ms=settings["now_ms"], use_log_end=True
    )


def control_offsets(kafka: RealKafka, directory: Path) -> set[int]:
    """Return the offsets of the control records, by Kafka's reader of a file."""
    return {
        record.offset
        for path in sorted(directory.glob("*.log"))
        for batch in kafka.records(path)["batches"]
        if batch["is_control"]
        for record in batch["records"]
    }


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_kafkas_readers_see(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    """Logs written, cleaned and loaded by Kafka, round after round."""
    log_dir = tmp_path / "logs"
    compared = 0
    for settings in odd_spec(seed)["rounds"]:
        options = {
            "config": settings["config"],
            "now_ms": settings["now_ms"],
            "topics": settings["topics"],
            "producer_id_expiration_ms": settings["producer_id_expiration_ms"],
        }
        for request in settings["writes"]:
            kafka.write(
                log_dir,
                **request,
                producer_id_expiration_ms=settings["producer_id_expiration_ms"],
                lenient=True,
            )
        if not log_dir.exists():
            continue
        kafka.load(log_dir, isolation="both", records=False, in_place=True, **options)
        kafka.clean(log_dir, turns=0, retention=False, **options)
        loaded = kafka.load(log_dir, isolation="both", **options)["partitions"]
        for directory in find_partitions([log_dir]):
            plan = plan_of(directory, settings)
            if plan.log.damage:
                continue
            compared += 1
            seen = loaded[directory.name]
            check_gaps(kafka, plan, seen)
            check_open(log_transaction_report(plan), seen)
    assert compared


def check_gaps(kafka: RealKafka, plan: CleanPlan, seen: Json) -> None:
    found = log_gaps(plan)
    assert found.damage is None
    every = [(record.offset, record.timestamp_ms) for record in seen["records"]]
    committed = [(record.offset, record.timestamp_ms) for record in seen["committed_records"]]
    control = control_offsets(kafka, plan.log.directory)
    assert as_plain(found.on_disk) == plain_walk(every, control)
    assert as_plain(found.read_uncommitted) == plain_walk(every, set())
    assert as_plain(found.read_committed) == plain_walk(committed, set())
    start, end = seen["log_start_offset"], seen["log_end_offset"]
    assert found.counts.missing == end - start - len(every) - len({each for each in control if each >= start})


def check_open(report: TransactionReport, seen: Json) -> None:
    known = {each["producer_id"]: each for each in seen["producers"] if each["current_txn_first_offset"] >= 0}
    ours = {each.producer_id: each for each in report.open if each.is_known_to_broker}
    assert {pid: (each.first_offset, each.producer_epoch) for pid, each in ours.items()} == {
        pid: (each["current_txn_first_offset"], each["epoch"]) for pid, each in known.items()
    }
    assert report.last_stable_offset == seen["last_stable_offset"]


# A broker


def kafka_transactions(address: str, *arguments: str) -> list[dict[str, str]]:
    """Return the table that `kafka-transactions.sh` prints, by the names of its columns."""
    command = [java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", class_path()]
    command += ["org.apache.kafka.tools.TransactionsCommand", "--bootstrap-server", address, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in ran.stdout.splitlines() if "\t" in line]
    header, *others = [[each.strip() for each in row] for row in rows]
    return [dict(zip(header, row, strict=True)) for row in others]


def test_a_brokers_own_tools_find_the_same_transactions(tmp_path: Path) -> None:
    """Committed, aborted and open ones; then the coordinator has forgotten everything, and the open ones hang."""
    broker = Broker(tmp_path, properties=COORDINATORS)
    with broker:
        for name in ("committed", "aborted", "open"):
            producer = KafkaProducer(
                bootstrap_servers=broker.address, transactional_id=name, transaction_timeout_ms=600_000
            )
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(3):
                producer.send("payments", key=b"%d" % number, value=name.encode(), partition=0)
            producer.flush()
            if name == "committed":
                producer.commit_transaction()
            elif name == "aborted":
                producer.abort_transaction()
        described = describe_producers(broker)
        assert sum(each["CurrentTransactionStartOffset"] != "None" for each in described) == 1
        compare(broker, described, [])
    shutil.rmtree(broker.log_dir / "__transaction_state-0")
    with broker:
        assert becomes(lambda: hanging_transactions(broker))
        compare(broker, describe_producers(broker), hanging_transactions(broker))


def hanging_transactions(broker: Broker) -> list[dict[str, str]]:
    arguments = ("--topic", "payments", "--partition", "0", "--max-transaction-timeout", "0")
    return kafka_transactions(broker.address, "find-hanging", *arguments)


def describe_producers(broker: Broker) -> list[dict[str, str]]:
    return kafka_transactions(broker.address, "describe-producers", "--topic", "payments", "--partition", "0")


def compare(broker: Broker, described: list[dict[str, str]], hanging: list[dict[str, str]]) -> None:
    """Compare what the tools say of a running broker with what its files say."""
    ran = kcompact("transactions", "--json", "--config", "transaction.max.timeout.ms=1", broker.log_dir / "payments-0")
    found = ran.partition["transactions"]
    assert (found["committed"], found["aborted"], found["open"]) == (1, 1, 1)
    ours = {
        each["producer_id"]: (each["producer_epoch"], each["last_timestamp_ms"], each["transaction_first_offset"])
        for each in found["producers"]
    }
    theirs = {int(each["ProducerId"]): each for each in described}
    for producer_id, each in theirs.items():
        epoch, last_timestamp_ms, first_offset = ours[producer_id]
        start = each["CurrentTransactionStartOffset"]
        assert str(epoch) == each["ProducerEpoch"]
        assert str(last_timestamp_ms) == each["LastTimestamp"]
        assert first_offset == (None if start == "None" else int(start))
    if hanging:
        listed = [each for each in found["open_transactions"] if each["is_hanging"]]
        assert [(each["producer_id"], each["first_offset"], each["last_timestamp_ms"]) for each in listed] == [
            (int(each["ProducerId"]), int(each["StartOffset"]), int(each["LastTimestamp"])) for each in hanging
        ]
    assert found["totals"][TransactionEnding.OPEN]["records"] == 3


def test_when_the_coordinator_ends_an_open_transaction(tmp_path: Path) -> None:
    """The second transaction of a producer is open, in a segment that a later record has closed."""
    with Broker(tmp_path, properties=f"{COORDINATORS}log.roll.ms=60000\n") as broker:
        producer = KafkaProducer(
            bootstrap_servers=broker.address, transactional_id="payments-1", transaction_timeout_ms=600_000
        )
        producer.init_transactions()
        now_ms = int(time.time() * 1000)
        producer.begin_transaction()
        producer.send("payments", key=b"a", value=b"1", partition=0, timestamp_ms=now_ms)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("payments", key=b"a", value=b"2", partition=0, timestamp_ms=now_ms)
        producer.flush()
        later = KafkaProducer(bootstrap_servers=broker.address)
        later.send("payments", key=b"a", value=b"3", partition=0, timestamp_ms=now_ms + 60_001)
        later.flush()
        (described,) = kafka_transactions(broker.address, "describe", "--transactional-id", "payments-1")
        assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "payments-0")
        aborts_ms = int(described["CurrentTransactionStartTimeMs"]) + int(described["TransactionTimeoutMs"]) + 1
        named = f"producer {described['ProducerId']}, epoch {described['ProducerEpoch']}"
        # Beside a running broker the high watermark is that of its last checkpoint.
        assert becomes(lambda: "a transaction is open from offset 2" in what_ends_it(broker, aborts_ms))
        for at_ms, how in ((aborts_ms - 1, "unless "), (aborts_ms, "transaction.timeout.ms 600000 has passed at ")):
            said = what_ends_it(broker, at_ms)
            assert named in said
            assert f"; transactional.id payments-1; {how}" in said
            assert readable.time(aborts_ms) in said
    # The broker has left the transaction open, and the state beside it.
    assert "; transactional.id payments-1; unless " in what_ends_it(broker, aborts_ms - 1)
    with broker:
        producer.abort_transaction()
        assert becomes(lambda: what_ends_it(broker, aborts_ms) == "no transaction is open")


def what_ends_it(broker: Broker, now_ms: int) -> str:
    """Return what `plan --explain` says of the last stable offset at a time."""
    ran = kcompact(
        *("plan", "--explain", "--json", "--config", "cleanup.policy=compact"),
        *("--now", readable.time(now_ms), broker.log_dir / "payments-0"),
    )
    conditions = ran.partition["explain"]["conditions"]
    (found,) = [each for each in conditions if each["name"] == "last-stable-offset"]
    return str(found["explanation"])
