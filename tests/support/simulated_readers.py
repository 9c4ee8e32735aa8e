"""Random histories of a partition, and what each of its readers ends with: a model of who reads beside the cleaner.

    followers        fetch batches as they are, with leader epochs or without, after outages of any length
    future replicas  fetch from the current replica of their broker, a part at a time, and then take its place
    brokers          stop, and load what is on the disk
    consumers        read each replica as if it led: all records, or committed ones

Nothing in a history depends on who cleans. So it can be told twice, with kcompact as the cleaner of all brokers and
with another one, and what the readers end with can be compared.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.round import clean_log_dir
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.plan.options import PlanOptions
from tests.support import consumer_view, log_writer, reference_cleaner
from tests.support.log_reader import read_segments
from tests.support.log_writer import LogSpec
from tests.support.simulated_fetches import begin, elect, load
from tests.support.simulated_replicas import (
    HOUR_MS,
    NAME,
    Cleaner,
    Keeps,
    Line,
    Replica,
    SimulatedPartition,
    end_of,
    newest_values,
    records_of,
)

ROUNDS = 4
FUTURE = f"{NAME}.{'0123456789abcdef' * 2}-future"


def clean_by_kcompact(directory: Path, settings: dict[str, str], now_ms: int, log_dirs: tuple[Path, ...]) -> None:
    """Clean as kcompact does when it decides itself. `log_dirs` are other log directories of the broker."""
    clean_log_dir(
        directory.parent,
        settings,
        plan_options=PlanOptions(now_ms=now_ms, use_log_end=True, log_dirs=log_dirs),
        options=CleanOptions(journal=None),
        engine="in-process",
    ).raise_failure()


def clean_by_definition(directory: Path, settings: dict[str, str], now_ms: int, log_dirs: tuple[Path, ...]) -> None:
    """Clean as `reference_cleaner` does. It knows no transactions and no old formats. A move pauses it."""
    if log_dirs:
        return
    offset = consumer_view.checkpoint(directory.parent / CLEANER_OFFSET_CHECKPOINT, directory.name)
    spec = LogSpec(segments=read_segments(directory), now_ms=now_ms, settings=settings, checkpoint=offset)
    left = reference_cleaner.after(spec, reference_cleaner.clean(spec))
    shutil.rmtree(directory.parent)
    log_writer.write(left, directory.parent)


class Reader(NamedTuple):
    """A consumer of a replica."""

    replica: int
    reads_committed: bool


def told(path: Path, seed: int, cleaner: Cleaner, *, transactions: bool = False) -> SimulatedPartition:
    """Return a partition after a random history. At its end all replicas are in sync, and no move is on its way."""
    chance = random.Random(seed)
    partition = SimulatedPartition(
        path,
        chance.choice([2, 3]),
        chance,
        retention_ms=chance.choice([0, HOUR_MS, HOUR_MS, 10 * HOUR_MS]),
        keeps=chance.choice([Keeps.EPOCHS, Keeps.EPOCHS, *Keeps]),
    )
    partition.bumps_epochs = chance.random() < 0.5
    producers = [7, 8] if transactions else []
    moves = _Moves(partition)
    for turn in range(ROUNDS):
        # Later rounds write other keys: what is wrong stays so.
        keys = [b"%d-%d" % (turn, number) for number in range(chance.choice([30, 60]))]
        _write(partition, keys, producers, batches=chance.choice([12, 24]))
        event = chance.choice(["outage", "outage", "outage", "move", "restart"])
        followers = [number for number in range(partition.count) if number != partition.leader]
        number = chance.choice(followers if event == "outage" else range(partition.count))
        replica = partition.replicas[number]
        replica.starts_anew = event == "restart"
        replica.is_online = event != "outage"
        for _ in range(chance.choice([3, 5])):
            if event == "move":
                moves.go_on(number, at_most=chance.choice([1, 3, 8]))
            _write(partition, keys, producers, batches=chance.choice([4, 10]))
            partition.now_ms += chance.choice([60_000, HOUR_MS // 2, 4 * HOUR_MS])
            for other, each in enumerate(partition.replicas):
                if each.is_online and chance.random() < 0.7:
                    each.clean(cleaner, partition.now_ms, partition.retention_ms, moves.log_dirs_of(other))
        replica.is_online = True
        partition.replicate()
        if number in moves.futures:
            moves.go_on(number, at_most=1 << 30)
            partition.replicate()
        if chance.random() < 0.5:
            partition.lead(chance.randrange(partition.count))
    return partition


def _write(partition: SimulatedPartition, keys: list[bytes], producers: list[int], *, batches: int) -> None:
    """Write values and tombstones, some of them in transactions, and end some of these."""
    chance = partition.chance
    for _ in range(batches):
        partition.now_ms += 1000
        values = [
            None if chance.random() < 0.4 else b"v%d" % chance.randrange(1 << 30)
            for _ in range(chance.choice([1, 1, 2, 5]))
        ]
        producer = chance.choice(producers) if producers and chance.random() < 0.4 else None
        partition.produce([(chance.choice(keys), value) for value in values], producer=producer)
        if partition.open_producers and chance.random() < 0.3:
            partition.end_transaction(chance.choice(partition.open_producers), commit=chance.random() < 0.5)


class _Moves:
    """Moves of replicas to other log directories of their brokers."""

    def __init__(self, partition: SimulatedPartition) -> None:
        self.futures: dict[int, Replica] = {}
        self._partition = partition
        self._begun = 0

    def log_dirs_of(self, number: int) -> tuple[Path, ...]:
        """Return the log directory that a replica is on its way to, if it is on its way."""
        return (self.futures[number].path,) if number in self.futures else ()

    def go_on(self, number: int, *, at_most: int) -> None:
        """Let a future replica fetch so many batches. One that has all of them takes the place of the current one."""
        current = self._partition.replicas[number]
        if number not in self.futures:
            self._begun += 1
            path = self._partition.path / f"broker-{number}" / f"logs-{self._begun}"
            self.futures[number] = Replica(path, current.keeps)
        future = self.futures[number]
        log = load(current.write())
        if number == self._partition.leader:
            elect(log)
        future.truncate(begin(load(future.write()), log, is_future=True))
        left = [data for data in current.batches() if end_of(data) > future.end]
        for data in left[:at_most]:
            future.append(data)
        if len(left) > at_most:
            future.write().rename(future.path / FUTURE)
            return
        future.end, future.high_watermark = current.end, current.high_watermark
        future.checkpoint, future.epochs = current.checkpoint, current.epochs
        future.starts_anew, future.cleanings = True, current.cleanings
        self._partition.replicas[number] = future
        del self.futures[number]


def wrong_keys(partition: SimulatedPartition) -> dict[Reader, set[bytes]]:
    """Return for each reader the keys whose value is not that of the log that nobody has cleaned."""
    return {
        reader: {key for key in right.keys() | found.keys() if right.get(key) != found.get(key)}
        for number in range(partition.count)
        for reader in (Reader(number, reads_committed=True), Reader(number, reads_committed=False))
        for right, found in [(_right(partition, reader), _found(partition, reader))]
    }


def _right(partition: SimulatedPartition, reader: Reader) -> dict[bytes, bytes]:
    replica = partition.replicas[reader.replica]
    if not reader.reads_committed:
        return newest_values(line for line in partition.truth if line.offset < replica.end)
    stable = min([replica.end, *(first for _, first in replica.open_transactions)])
    return partition.right_view(stable)


def _found(partition: SimulatedPartition, reader: Reader) -> dict[bytes, bytes]:
    replica = partition.replicas[reader.replica]
    if not reader.reads_committed:
        records = (record for data in replica.batches() for record in records_of(data))
        return newest_values(Line(record.offset, record.key or b"", record.value) for record in records)
    directory = replica.write()
    (directory.parent / REPLICATION_OFFSET_CHECKPOINT).unlink(missing_ok=True)  # A leader's follows its followers.
    view = consumer_view.view(directory.parent, directory)
    assert not view.problem
    return {key: value for key, (_, value) in view.latest.items()}


def worse(found: dict[Reader, set[bytes]], other: dict[Reader, set[bytes]]) -> dict[Reader, set[bytes]]:
    """Return the keys that readers have wrong beside one cleaner, and right beside the other."""
    return {reader: keys - other[reader] for reader, keys in found.items() if keys - other[reader]}
