"""Replicas of a partition, simulated: a leader that is written to, followers that fetch, each with its own cleaner.

Every replica is a real directory that kcompact itself cleans, so what a follower fetches after an outage is what the
cleaner of the leader has left. `SimulatedPartition.truth` is the log that nobody has cleaned: by it `wrong_keys` tells
which keys a replica has wrong, as a `read_committed` reader sees it. Where a follower begins to fetch when it has been
away, and under a new leader, is Kafka's rule (`simulated_fetches`).
"""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.round import clean_log_dir
from kcompact.format.batch import Record, build, parse_batches, read_records
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, EpochEntry
from kcompact.format.codec import Codec, compress
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix
from kcompact.format.producer_snapshot import ProducerEntry
from kcompact.kernels import ABORT, COMMIT
from kcompact.log.markers import BatchHeader, read_marker
from kcompact.log.producer_state import Producer, first_open_transaction_offset, replay
from kcompact.plan.options import PlanOptions
from tests.support import log_writer
from tests.support.consumer_view import checkpoint as checkpointed
from tests.support.log_writer import DEFAULT_TIME, LogSpec, SegmentSpec
from tests.support.mutants import legacy_entry
from tests.support.simulated_fetches import EpochCache, begin, elect, load

SEGMENT_BYTES = 900
HOUR_MS = 3_600_000
CHECKPOINTS = 0.05
"""After how many of its fetches a follower writes its high watermark."""
NAME = "orders-0"


class Keeps(Enum):
    """What the files of a replica tell beside the log: its leader epochs, or only its high watermark, or nothing."""

    EPOCHS = "epochs"
    HIGH_WATERMARK = "high-watermark"
    NOTHING = "nothing"


Cleaner: TypeAlias = Callable[[Path, dict[str, str], int, tuple[Path, ...]], None]
"""Cleans a partition directory, given the settings of its topic, the time, and other log directories."""


def clean_closed_segments(directory: Path, settings: dict[str, str], now_ms: int, others: tuple[Path, ...]) -> None:
    """Clean with kcompact, whatever is dirty."""
    clean_log_dir(
        directory.parent,
        settings,
        plan_options=PlanOptions(now_ms=now_ms, force=True, use_log_end=True, replicas=others),
        options=CleanOptions(journal=None),
        engine="in-process",
    ).raise_failure()


class Line(NamedTuple):
    """A record of the truth, the producer of its transaction (None without one), and the marker that ended it."""

    offset: int
    key: bytes
    value: bytes | None
    producer: int | None = None
    ended_at: int | None = None
    is_commit: bool = False

    @property
    def is_committed(self) -> bool:
        return self.producer is None or self.is_commit


@dataclass
class Replica:
    """One replica: its segments in memory, written to a directory for each cleaning.

    `high_watermark` is the end; if the replica depends on it, that of the last checkpoint, which is seldom written.
    `starts_anew`: it was away, or there is a new leader.
    """

    path: Path
    keeps: Keeps = Keeps.EPOCHS
    segments: list[list[bytes]] = field(default_factory=lambda: [[]])
    bases: list[int] = field(default_factory=lambda: [0])
    aborted: dict[int, list[AbortedTxn]] = field(default_factory=dict)
    checkpoint: int | None = None
    is_online: bool = True
    end: int = 0
    cleanings: int = 0
    forks_seen: int = 0
    high_watermark: int = 0
    starts_anew: bool = False
    epochs: EpochCache = field(default_factory=EpochCache)
    _producers: dict[int, Producer] = field(default_factory=dict)

    def append(self, data: bytes) -> None:
        """Append a batch, as a leader writes it or a follower fetches it."""
        (batch,) = parse_batches(data, file="")
        if sum(map(len, self.segments[-1])) > SEGMENT_BYTES:
            self.segments.append([])
            self.bases.append(self.end)
        self.segments[-1].append(data)
        header = batch.header
        if header.magic < 2:
            self.epochs = EpochCache()
        elif header.partition_leader_epoch >= 0:  # A cleaner that converts old batches gives them none.
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
        marker = read_marker(batch, file="") if header.is_control else None
        known = self._producers.get(header.producer_id)
        self._producers = replay(self._producers, [BatchHeader(batch.position, header, marker)])
        first = known.transaction_first_offset if known is not None else None
        if marker is not None and marker.kind == ABORT and first is not None:
            opened = first_open_transaction_offset(self._producers)
            entry = AbortedTxn(
                producer_id=header.producer_id,
                first_offset=first,
                last_offset=header.last_offset,
                last_stable_offset=header.next_offset if opened is None else opened,
            )
            self.aborted.setdefault(self.bases[-1], []).append(entry)
        self.end = header.next_offset

    def fetch(self, leader: Replica) -> None:
        """Append what the leader has above the end."""
        for data in leader.batches():
            if end_of(data) > self.end:
                self.append(data)
        self.end = max(self.end, leader.end)
        if self.keeps is Keeps.EPOCHS or random.Random(self.end).random() < CHECKPOINTS:
            self.high_watermark = self.end

    def begin_to_fetch(self, leader: Replica) -> None:
        """Truncate the log as a broker does that has loaded it, and becomes a follower."""
        log = load(leader.write())
        elect(log)
        self.truncate(begin(load(self.write()), log))
        self.high_watermark = min(self.high_watermark, self.end) if self.keeps is not Keeps.NOTHING else self.bases[0]

    def truncate(self, offset: int) -> None:
        """Remove what lies from an offset on, as a follower does that has other records there than its leader."""
        kept = [data for data in self.batches() if end_of(data) <= offset]
        checkpoint, epochs = self.checkpoint, self.epochs
        self.segments, self.bases, self.aborted, self._producers = [[]], [self.bases[0]], {}, {}
        self.end = self.bases[0]
        for data in kept:
            self.append(data)
        self.end = min(offset, max(self.end, offset))
        self.epochs = epochs
        self.epochs.truncate_from_end(self.end)
        self.checkpoint = None if checkpoint is None else min(checkpoint, self.end)

    @property
    def open_transactions(self) -> set[tuple[int, int]]:
        """The producers whose transactions are open here, each with the first offset of its transaction."""
        return {
            (each.producer_id, each.transaction_first_offset)
            for each in self._producers.values()
            if each.transaction_first_offset is not None
        }

    @property
    def written_end(self) -> int:
        """The log end that a broker finds when it starts: a truncated log can end above its last batch."""
        return end_of(self.segments[-1][-1]) if self.segments[-1] else self.bases[-1]

    def batches(self) -> list[bytes]:
        """Return the batches of all segments."""
        return [data for segment in self.segments for data in segment]

    def spec(self) -> LogSpec:
        """Return the log as the writer of logs takes it."""
        return LogSpec(
            name=NAME,
            segments=tuple(
                SegmentSpec(base_offset=base, batches=tuple(own))
                for base, own in zip(self.bases, self.segments, strict=True)
            ),
            checkpoint=self.checkpoint,
            snapshots={self.end: tuple(map(_entry, self._producers.values()))},
            aborted={base: tuple(entries) for base, entries in self.aborted.items()},
            leader_epochs=tuple(
                EpochEntry(epoch=epoch, start_offset=start)
                for epoch, start in sorted(self.epochs.starts.items())
                if self.keeps is Keeps.EPOCHS
            ),
            high_watermark=None if self.keeps is Keeps.NOTHING else min(self.high_watermark, self.written_end),
        )

    def write(self) -> Path:
        """Write the log directory anew; return the directory of the partition."""
        shutil.rmtree(self.path, ignore_errors=True)
        return log_writer.write(self.spec(), self.path)

    def clean(self, cleaner: Cleaner, now_ms: int, retention_ms: int, others: tuple[Path, ...] = ()) -> None:
        """Let a cleaner clean the log; `others` are the log directories that it is told of."""
        directory = self.write()
        settings = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": str(retention_ms),
            "segment.bytes": str(4 * SEGMENT_BYTES),
        }
        cleaner(directory, settings, now_ms, others)
        self.cleanings += 1
        logs = sorted(directory.glob("*.log"))
        self.bases = [int(log.stem) for log in logs]
        self.segments = [
            [bytes(batch.data) for batch in parse_batches(log.read_bytes(), file=str(log))] for log in logs
        ]
        self.aborted = {}
        for log in logs:
            file = log.with_suffix(Suffix.TXN_INDEX)
            if file.exists():
                self.aborted[int(log.stem)] = list(_entries(file.read_bytes()))
        self.checkpoint = checkpointed(self.path / CLEANER_OFFSET_CHECKPOINT, NAME)


def _entry(producer: Producer) -> ProducerEntry:
    first = producer.transaction_first_offset
    return ProducerEntry(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_offset=-1 if producer.last_data_offset is None else producer.last_data_offset,
        offset_delta=0,
        timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=-1 if first is None else first,
    )


def _entries(data: bytes) -> Iterator[AbortedTxn]:
    for _, producer_id, first, last, stable in struct.iter_unpack(">hqqqq", data):
        yield AbortedTxn(producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable)


def _marker_key(kind: int) -> bytes:
    return bytes([0, 0, 0, kind])


@dataclass
class SimulatedPartition:
    """A partition with its replicas. The first one leads at the beginning.

    `bumps_epochs`: each transaction has a producer epoch of its own, as with `transaction.version` 2. `holds_back`:
    every cleaning holds back what the other replicas have not fetched. `keeps`: what the followers begin to fetch by.
    """

    path: Path
    count: int
    chance: random.Random
    retention_ms: int = HOUR_MS
    now_ms: int = DEFAULT_TIME
    epoch: int = 0
    leader: int = 0
    truth: list[Line] = field(default_factory=list)
    replicas: list[Replica] = field(default_factory=list)
    forks: list[int] = field(default_factory=list)
    bumps_epochs: bool = False
    holds_back: bool = False
    keeps: Keeps = Keeps.EPOCHS
    cleaner: Cleaner = clean_closed_segments
    magic: int = 2
    producer_epochs: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.replicas = [Replica(self.path / f"broker-{number}" / "logs", self.keeps) for number in range(self.count)]

    @property
    def end(self) -> int:
        return self.replicas[self.leader].end

    def produce(self, pairs: list[tuple[bytes, bytes | None]], *, producer: int | None = None) -> None:
        """Write a batch to the leader: of a transaction, if there is a producer. The online followers fetch it."""
        base = self.end
        records = [Record(base + number, self.now_ms, key, value) for number, (key, value) in enumerate(pairs)]
        is_transactional = producer is not None
        if self.magic < 2 and not is_transactional:
            self.truth += [Line(each.offset, each.key or b"", each.value) for each in records]
            self._write(self._old_batch(records))
            return
        data = build(
            records,
            codec=self.chance.choice(list(Codec)),
            partition_leader_epoch=self.epoch,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else self.producer_epochs.get(producer, 0),
            base_sequence=base if is_transactional else -1,
            transactional=is_transactional,
        )
        self.truth += [Line(each.offset, each.key or b"", each.value, producer) for each in records]
        self._write(data)

    def _old_batch(self, records: list[Record]) -> bytes:
        """Return records as a message of an old format: one as it is, several compressed into one."""
        time_ms = self.now_ms if self.magic else None
        base = records[0].offset
        codec = self.chance.choice([Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
        inner = [
            legacy_entry(
                each.offset - (base if self.magic else 0),
                each.key,
                each.value,
                magic=self.magic,
                timestamp=time_ms or 0,
            )
            for each in records
        ]
        value = compress(codec, b"".join(inner), magic=self.magic)
        return legacy_entry(records[-1].offset, None, value, magic=self.magic, attributes=codec, timestamp=time_ms or 0)

    def end_transaction(self, producer: int, *, commit: bool) -> None:
        """Write a marker."""
        for row, line in enumerate(self.truth):
            if line.producer == producer and line.ended_at is None:
                self.truth[row] = line._replace(ended_at=self.end, is_commit=commit)
        if self.bumps_epochs:
            self.producer_epochs[producer] = self.producer_epochs.get(producer, 0) + 1
        marker = Record(self.end, self.now_ms, _marker_key(COMMIT if commit else ABORT), bytes(6))
        self._write(
            build(
                [marker],
                partition_leader_epoch=self.epoch,
                producer_id=producer,
                producer_epoch=self.producer_epochs.get(producer, 0),
                transactional=True,
                control=True,
            )
        )

    @property
    def open_producers(self) -> list[int]:
        return sorted({line.producer for line in self.truth if line.producer is not None and line.ended_at is None})

    def _write(self, data: bytes) -> None:
        self.replicas[self.leader].append(data)
        self.replicate()

    def replicate(self) -> None:
        """Let all online followers fetch."""
        leader = self.replicas[self.leader]
        for number, replica in enumerate(self.replicas):
            if number == self.leader or not replica.is_online:
                replica.starts_anew = not replica.is_online
                continue
            if replica.starts_anew:
                replica.begin_to_fetch(leader)
                replica.starts_anew = False
            replica.forks_seen = len(self.forks)
            replica.fetch(leader)

    def clean(self, number: int) -> None:
        """Let the cleaner of an online broker run once."""
        others = [each for other, each in enumerate(self.replicas) if self.holds_back and other != number]
        for other in others:
            other.write()
        paths = tuple(each.path for each in others)
        self.replicas[number].clean(self.cleaner, self.now_ms, self.retention_ms, paths)

    def lead(self, number: int) -> None:
        """Make an in-sync replica the leader."""
        assert self.replicas[number].end == self.end
        self._elect(number)

    def lead_unclean(self, number: int) -> None:
        """Make any replica the leader: what it lacks is lost. The online ones truncate when they fetch next."""
        end = self.replicas[number].end
        self._elect(number)
        self.forks.append(end)
        self.truth = [
            line._replace(ended_at=None, is_commit=False)
            if line.ended_at is not None and line.ended_at >= end
            else line
            for line in self.truth
            if line.offset < end
        ]
        self.replicas[number].forks_seen = len(self.forks)
        self.replicate()

    def _elect(self, number: int) -> None:
        self.epoch += 1
        self.leader = number
        self.replicas[number].epochs.assign(self.epoch, self.end)
        for replica in self.replicas:
            replica.starts_anew = True

    def directories(self) -> list[Path]:
        """Write all replicas; return the directories of the partition."""
        return [replica.write() for replica in self.replicas]

    # The truth

    def right_view(self, end: int) -> dict[bytes, bytes]:
        """Return the committed values below an offset, as if nobody had cleaned."""
        return newest_values(line for line in self.truth if line.offset < end and line.is_committed)

    def view_of(self, number: int) -> dict[bytes, bytes]:
        """Return the committed values in a replica. Which transactions were committed is the truth's."""
        replica = self.replicas[number]
        lines = {line.offset: line for line in self.truth}
        records = (record.offset for data in replica.batches() for record in records_of(data))
        return newest_values(lines[offset] for offset in records if offset in lines and lines[offset].is_committed)

    def wrong_keys(self, number: int) -> set[bytes]:
        """Return the keys whose value in a replica is not the right one below its end."""
        right, found = self.right_view(self.replicas[number].end), self.view_of(number)
        return {key for key in right.keys() | found.keys() if right.get(key) != found.get(key)}


def newest_values(lines: Iterator[Line]) -> dict[bytes, bytes]:
    newest: dict[bytes, bytes | None] = {}
    for line in lines:
        newest[line.key] = line.value
    return {key: value for key, value in newest.items() if value is not None}


@lru_cache(maxsize=4096)  # A follower asks for each batch of its leader whenever it fetches.
def end_of(data: bytes) -> int:
    """Return the offset after a batch."""
    (batch,) = parse_batches(data, file="")
    return batch.header.next_offset


def records_of(data: bytes) -> list[Record]:
    (batch,) = parse_batches(data, file="")
    return [] if batch.header.is_control else read_records(batch, file="")


def random_partition(
    path: Path,
    seed: int,
    *,
    outages: bool,
    transactions: bool = True,
    forks: bool = False,
    steps: int = 120,
    holds_back: bool = False,
    count: int | None = None,
) -> SimulatedPartition:
    """Return a partition after random writes, cleanings, elections and outages, with `count` replicas if it is given.

    With `outages` followers can be away for longer than `delete.retention.ms`; else only for so long that nothing of
    what they miss has expired.
    """
    chance = random.Random(seed)
    partition = SimulatedPartition(
        path,
        chance.choice([2, 2, 3]) if count is None else count,
        chance,
        retention_ms=chance.choice([0, HOUR_MS, 10 * HOUR_MS]),
        holds_back=holds_back,
    )
    if not outages:
        partition.retention_ms = max(HOUR_MS, partition.retention_ms)
    keys = [b"k%d" % number for number in range(chance.choice([3, 12, 40]))]
    partition.bumps_epochs = chance.random() < 0.5
    old_steps, old_magic = (steps // 2 if chance.random() < 0.25 else 0), chance.choice([0, 1])
    away_since: dict[int, int] = {}
    for step in range(steps):
        partition.magic = old_magic if step < old_steps else 2
        partition.now_ms += chance.choice([1, 1000, 60_000])
        pairs = [
            (chance.choice(keys), None if chance.random() < 0.3 else b"v%d-%d" % (step, number) * chance.choice([1, 9]))
            for number in range(chance.choice([1, 1, 2, 5]))
        ]
        action = chance.random()
        followers = [number for number in range(partition.count) if number != partition.leader]
        if action < 0.55:
            is_transactional = transactions and partition.magic == 2 and chance.random() < 0.3
            partition.produce(pairs, producer=chance.choice([7, 8]) if is_transactional else None)
        elif action < 0.67:
            if partition.open_producers:
                partition.end_transaction(chance.choice(partition.open_producers), commit=chance.random() < 0.5)
        elif action < 0.85:
            online = [number for number, each in enumerate(partition.replicas) if each.is_online]
            partition.clean(chance.choice(online))
        elif action < 0.90:
            number = chance.choice(followers)
            replica = partition.replicas[number]
            if replica.is_online:
                replica.is_online, away_since[number] = False, partition.now_ms
            elif outages or partition.now_ms - away_since[number] < partition.retention_ms:
                replica.is_online = True
                partition.replicate()
        elif action < 0.95 and outages:
            partition.now_ms += chance.choice([HOUR_MS, 20 * HOUR_MS])
        elif action < 0.97:
            number = chance.choice(followers)
            replica = partition.replicas[number]
            if replica.is_online:
                partition.lead(number)
            elif forks and replica.forks_seen == len(partition.forks):
                replica.is_online = True
                partition.lead_unclean(number)
        if not outages:  # Nobody stays away for too long.
            for number, since in list(away_since.items()):
                if partition.now_ms - since > partition.retention_ms // 2 and not partition.replicas[number].is_online:
                    partition.replicas[number].is_online = True
                    partition.replicate()
    if chance.random() < 0.7:
        for replica in partition.replicas:
            replica.is_online = True
        partition.replicate()
    return partition


def after_outages(path: Path, seed: int, *, holds_back: bool, keeps: Keeps = Keeps.EPOCHS) -> SimulatedPartition:
    """Return a partition after outages longer than `delete.retention.ms`, with all replicas in sync again."""
    chance = random.Random(seed)
    bumps_epochs = seed % 2 == 0
    partition = SimulatedPartition(
        path, 2 + seed % 2, chance, bumps_epochs=bumps_epochs, holds_back=holds_back, keeps=keeps
    )
    for _ in range(3):
        write_some(partition, 25)
        away = chance.choice([number for number in range(partition.count) if number != partition.leader])
        partition.replicas[away].is_online = False
        for _ in range(4):  # Data go, horizons are set, and at last tombstones and markers go.
            write_some(partition, 12)
            partition.now_ms += 2 * HOUR_MS
            partition.clean(partition.leader)
        partition.replicas[away].is_online = True
        partition.replicate()
        partition.lead(chance.randrange(partition.count))
    return partition


def write_some(partition: SimulatedPartition, batches: int) -> None:
    """Write values, tombstones and transactions, and end each transaction."""
    chance = partition.chance
    for _ in range(batches):
        partition.now_ms += 1000
        pairs = [(b"k%d" % chance.randrange(30), None if chance.random() < 0.4 else b"v" * chance.randint(1, 60))]
        # One that writes a single transaction: no later marker of its own ends it.
        producer = chance.choice([None, None, 7, 8, partition.now_ms // HOUR_MS])
        partition.produce(pairs, producer=producer)
        if producer is not None and chance.random() < 0.5:
            partition.end_transaction(producer, commit=chance.random() < 0.5)
    if chance.random() < 0.7:
        for producer in partition.open_producers:
            partition.end_transaction(producer, commit=chance.random() < 0.5)
