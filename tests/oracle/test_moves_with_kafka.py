"""A broker is stopped while it moves a partition to another disk: its cleaner was paused, and kcompact pauses, too.

The replica on the other disk lags: it has the value of a key, and not yet the tombstone, whose delete horizon has
passed. Where the tombstone goes before it has been copied, the broker serves the deleted key as soon as the move ends.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

import kcompact as package
from fixtures.broker import create_topics, patiently
from kcompact import PlanOptions, TopicPartition
from tests.oracle.clients import ABOUT_LOGS
from tests.oracle.kinds_of_brokers import BrokerWithDisks, copy_of_home
from tests.oracle.real_kafka import RealKafka
from tests.oracle.served import HOUR_MS, Record, live, rounds_of, served, write
from tests.support.command_line import digest, kcompact, values
from tests.support.patience import becomes

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

MOVING, CONTROL = "moving-0", ("control-0", "control-1")
COMPACT = {"cleanup.policy": "compact", "segment.ms": str(HOUR_MS), "delete.retention.ms": "0"}
FETCH_BYTES = 32_768
GONE = b"gone"
KEYS = 80
FIRST: list[list[Record]] = [
    [(GONE, b"value"), *rounds_of(KEYS, size=1000)[0]],
    [(b"only-%d" % number, bytes(1000)) for number in range(200)],
    [(GONE, None), *rounds_of(KEYS, size=1000)[1]],
    *rounds_of(KEYS)[2:],
]
"""Far more than one fetch lies between the value and the tombstone, and stays."""
LATER = rounds_of(KEYS)
CLEAN = ("clean", "--yes", "--force")


@pytest.fixture(autouse=True)
def sockets_of_clients() -> Iterator[None]:
    """Collect them while the warning is ignored."""
    yield
    gc.collect()


@dataclass(frozen=True)
class HalfMoved:
    """A stopped broker with a partition that is on its way to another disk, and all records of the partition."""

    broker: BrokerWithDisks
    records: list[Record]

    @property
    def disks(self) -> tuple[Path, Path]:
        return self.broker.disks

    @property
    def partition(self) -> Path:
        return self.broker.directory(MOVING)

    @property
    def future(self) -> Path:
        return self.broker.directory(f"{MOVING}.*-future")

    def has_tombstone(self) -> bool:
        return (GONE, None) in values(self.partition).values()

    def serves_the_rest(self) -> dict[bytes, bytes]:
        """Start the broker, let the move end if there is one, and return the newest value of each key that is live."""
        target = self.disks[1 - self.disks.index(self.partition.parent)]
        is_moving = list(target.glob(f"{MOVING}.*-future"))
        with self.broker as broker:
            throttle(broker.address, 1 << 30)
            assert becomes(lambda: (target / MOVING).is_dir() or not is_moving)
            found = served(broker.address, [MOVING])[MOVING]
        assert ABOUT_LOGS.findall(broker.logged) == []
        return found.live


def throttle(address: str, bytes_per_second: int) -> None:
    """Limit what the broker copies from disk to disk."""
    limit = {"replica.alter.log.dirs.io.max.bytes.per.second": str(bytes_per_second)}
    resource = ConfigResource("broker", "1", limit)
    with_admin(address, lambda admin: admin.alter_configs([resource], raise_on_unknown=False))


def move(address: str, partition: str, target: Path) -> None:
    """Let the broker move a partition to another disk."""
    moved = TopicPartition.parse(partition)
    assert moved is not None
    with_admin(address, lambda admin: admin.alter_replica_log_dirs({(moved.topic, moved.partition, 1): str(target)}))


def with_admin(address: str, call: Callable[[Any], Any]) -> None:
    admin = patiently(lambda: KafkaAdminClient(bootstrap_servers=address))
    try:
        patiently(lambda: call(admin))
    finally:
        admin.close()


@pytest.fixture(scope="module")
def written(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Record]]:
    """The home of the broker. Kafka's own cleaner has set the delete horizon of the tombstone."""
    home = tmp_path_factory.mktemp("moves")
    broker = BrokerWithDisks(home, properties=f"replica.fetch.max.bytes={FETCH_BYTES}\n")
    with broker:
        create_topics(broker.address, {"control": COMPACT}, partitions=2)
        create_topics(broker.address, {"moving": COMPACT})
        for name in CONTROL:
            write(broker.address, name, LATER)
        records = write(broker.address, MOVING, FIRST, hours_ago=8)
        throttle(broker.address, 1)
        partition = broker.directory(MOVING)
        (target,) = {*broker.disks} - {partition.parent}
        move(broker.address, MOVING, target)
        assert becomes(lambda: any(file.stat().st_size for file in target.glob(f"{MOVING}.*-future/*.log")))
    now_ms = int(time.time() * 1000)
    kafka.clean(partition.parent, config=COMPACT | {"min.cleanable.dirty.ratio": "0"}, now_ms=now_ms, only=MOVING)
    with broker:
        records += write(broker.address, MOVING, LATER)
    found = HalfMoved(broker, records)
    assert found.has_tombstone()
    copied = values(found.future).values()
    assert ((GONE, b"value") in copied, (GONE, None) in copied) == (True, False)
    assert (GONE, b"value") not in values(partition).values()
    return home, records


@pytest.fixture
def half_moved(written: tuple[Path, list[Record]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HalfMoved:
    """A copy, for kcompact, which looks for the broker's file, as it does unless it is told otherwise."""
    monkeypatch.delenv("KCOMPACT_BROKER_SEARCH")
    home, records = written
    broker = BrokerWithDisks(copy_of_home(home, tmp_path / "home"))
    broker.write_properties(broker.server_properties)
    return HalfMoved(broker, records)


def planned(*arguments: str | Path) -> dict[str, Any]:
    """Return what `plan` says of the partition that is moved."""
    ran = kcompact("plan", "--json", "--topic", "moving", *arguments)
    assert ran.code == 0, ran.err
    return ran.partition


def test_nothing_is_cleaned_meanwhile(half_moved: HalfMoved, tmp_path: Path) -> None:
    source, file = half_moved.partition.parent, half_moved.broker.log_dir.with_name("server.properties")
    for named in ([source], [*half_moved.disks], [half_moved.partition], ["--broker-config", file, source]):
        assert planned(*named)["reason"] == "paused-by-move", named
    before = digest(half_moved.partition)
    for status, more in (("skipped", ["--apply-retention"]), ("copied", ["--output", tmp_path / "out"])):
        ran = kcompact(*CLEAN, *more, "--json", source)
        assert ran.code == 0, ran.err
        (entry,) = [each for each in ran.json["partitions"] if each["topic"] == "moving"]
        assert (entry["status"], entry["reason"]) == (status, "paused-by-move")
        assert digest(half_moved.partition) == before
    assert values(tmp_path / "out" / MOVING) == values(half_moved.partition)
    assert half_moved.serves_the_rest() == live(half_moved.records)


def test_the_cleaner_from_python(half_moved: HalfMoved) -> None:
    source = half_moved.partition.parent
    before = digest(half_moved.partition)
    cleaned: list[str] = []
    choices: list[int] = []

    def clock() -> int:
        choices.append(int(time.time() * 1000))
        return choices[-1]

    with package.Cleaner(
        [source],
        {"log.cleaner.backoff.ms": "10"},
        plan_options=PlanOptions(now_ms=clock(), by_clock=True, force=True),
        clock=clock,
        on_cleaned=lambda result: cleaned.append(str(result.plan.log.topic_partition)),
    ):
        assert becomes(lambda: cleaned)
        seen = len(choices)
        assert becomes(lambda: len(choices) > seen + 5)
    assert set(cleaned) <= set(CONTROL)
    package.clean_log_dir(source, plan_options=PlanOptions(now_ms=clock(), by_clock=True, force=True)).raise_failure()
    assert digest(half_moved.partition) == before
    assert half_moved.serves_the_rest() == live(half_moved.records)


def test_why_it_is_paused(half_moved: HalfMoved) -> None:
    entry = planned("--explain", half_moved.partition.parent)
    assert entry["explain"]["decided_by"] == "move"
    (condition,) = [each for each in entry["explain"]["conditions"] if each["name"] == "move"]
    assert str(half_moved.future) in condition["explanation"]
    assert str(half_moved.future) in entry["hint"]
    assert "Start the broker" in entry["hint"]
    assert f"--replica {half_moved.future}" in entry["hint"]


def test_with_the_other_replica_in_sight(half_moved: HalfMoved) -> None:
    source = half_moved.partition.parent
    assert planned("--replica", half_moved.future, source)["reason"] == "below-ratio"
    before = values(half_moved.partition)
    end = max(values(half_moved.future)) + 1
    ran = kcompact(*CLEAN, "--json", "--topic", "moving", "--replica", half_moved.future, source)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran.err
    after = values(half_moved.partition)
    assert len(after) < len(before)
    assert half_moved.has_tombstone()
    dropped = {offset: before[offset] for offset in before.keys() - after.keys()}
    assert [offset for offset, (_, value) in dropped.items() if offset >= end and value is None] == []
    assert half_moved.serves_the_rest() == live(half_moved.records)


def test_without_the_other_replica(half_moved: HalfMoved, tmp_path: Path) -> None:
    shutil.move(half_moved.future, tmp_path)
    ran = kcompact(*CLEAN, "--json", "--topic", "moving", half_moved.partition.parent)
    assert (ran.code, ran.partition["status"]) == (0, "cleaned"), ran.err
    assert not half_moved.has_tombstone()
    assert half_moved.serves_the_rest() == live(half_moved.records)
