"""What a follower of Kafka 4.3.1 keeps and fetches, in the words of Kafka's source: the truth for `plan.replicas`.

Nothing here uses a rule of kcompact. Each class and function names what it was written from. `load` reads a partition
directory as a broker that starts, `fetch_all` lets a follower truncate its log and fetch until it has all.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

UNDEFINED = -1


class EpochCache:
    """`LeaderEpochFileCache`: the first offset of each leader epoch."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: dict[int, int] = {}
        for epoch, start in entries:
            self.assign(epoch, start)

    def latest(self) -> int | None:
        return max(self.starts, default=None)

    def assign(self, epoch: int, start: int) -> None:
        latest = self.latest()
        if latest is not None and epoch == latest and start >= self.starts[latest]:
            return
        for known in sorted(self.starts, reverse=True):
            if known < epoch and self.starts[known] < start:
                break
            del self.starts[known]
        self.starts[epoch] = start

    def end_offset_for(self, requested: int, log_end: int) -> tuple[int, int]:
        latest = self.latest()
        if latest is not None and latest == requested:
            return requested, log_end
        higher = min((epoch for epoch in self.starts if epoch > requested), default=None)
        if higher is None:
            return UNDEFINED, UNDEFINED
        floor = max((epoch for epoch in self.starts if epoch <= requested), default=None)
        if floor is None:
            return requested, self.starts[higher]
        return floor, self.starts[higher]

    def truncate_from_end(self, end: int) -> None:
        self.starts = {epoch: start for epoch, start in self.starts.items() if start < end}

    def truncate_from_start(self, start: int) -> None:
        removed = [epoch for epoch in sorted(self.starts) if self.starts[epoch] <= start]
        for epoch in removed:
            del self.starts[epoch]
        if removed:
            self.starts[removed[-1]] = start


@dataclass(frozen=True)
class FetchedBatch:
    """The bytes of a batch, and of its header what a broker looks at. `epoch` is -1 for the formats 0 and 1."""

    data: bytes
    base: int
    last: int
    magic: int
    epoch: int


class StuckError(Exception):
    """The follower fails: a batch begins below its log end, or has no leader epoch."""


@dataclass
class FetchedLog:
    """`UnifiedLog`, as far as a follower and its leader need it. `first_base` is the base of the first segment."""

    batches: list[FetchedBatch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    epochs: EpochCache = field(default_factory=EpochCache)
    first_base: int = 0

    def update_high_watermark(self, offset: int) -> None:
        self.high_watermark = self.start if offset < self.start else min(offset, self.end)

    def truncate_to(self, offset: int) -> None:
        if offset >= self.end:
            self.epochs.truncate_from_end(self.end)
            return
        if self.first_base > offset:
            self.truncate_fully_and_start_at(offset)
            return
        kept = next((place for place, batch in enumerate(self.batches) if batch.last >= offset), len(self.batches))
        self.batches = self.batches[:kept]
        self.end = offset
        self.epochs.truncate_from_end(offset)
        self.start = min(offset, self.start)
        if self.high_watermark >= self.end:
            self.update_high_watermark(self.end)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.batches, self.epochs.starts = [], {}
        self.start = self.end = self.first_base = offset
        self.update_high_watermark(offset)

    def append_as_follower(self, batch: FetchedBatch) -> None:
        if batch.base < self.end:
            if self.end != self.start:  # `Partition.appendRecordsToFollowerOrFutureReplica`
                raise StuckError
            self.truncate_fully_and_start_at(batch.base)
        if batch.magic >= 2:
            if batch.epoch < 0:  # `LeaderEpochFileCache.assign`
                raise StuckError
            self.epochs.assign(batch.epoch, batch.base)
        else:
            self.epochs.starts = {}
        self.batches.append(batch)
        self.end = batch.last + 1


def elect(leader: FetchedLog, epoch: int = 2**31 - 1) -> None:
    """`Partition.makeLeader`: record the epoch that begins with the election."""
    leader.epochs.assign(epoch, leader.end)


def fetch_all(follower: FetchedLog, leader: FetchedLog, *, is_future: bool = False) -> None:
    """Let a follower fetch all that its leader has (`begin`). Raises StuckError."""
    fetch_offset = begin(follower, leader, is_future=is_future)
    for batch in leader.batches:
        if batch.last >= fetch_offset:
            follower.append_as_follower(batch)
    follower.update_high_watermark(leader.high_watermark)


def begin(follower: FetchedLog, leader: FetchedLog, *, is_future: bool = False) -> int:
    """Let a follower truncate its log; return the offset of the first fetch that is answered with batches.

    `is_future`: it is a future replica of the leader, which then may be only the current replica (`elect`).
    """
    # `ReplicaManager.initialFetchOffset`; `maybeAddLogDirFetchers` and `alterReplicaLogDirs` for a future replica.
    truncates_on_fetch = not is_future
    latest = follower.epochs.latest()
    fetch_offset = follower.end if latest is not None and truncates_on_fetch else follower.high_watermark
    # `AbstractFetcherThread.partitionFetchState`
    last_fetched_epoch = latest if truncates_on_fetch else None
    is_truncating = latest is None or not truncates_on_fetch
    while True:
        if is_truncating:  # `AbstractFetcherThread.maybeTruncate`
            latest = follower.epochs.latest()
            is_complete = True
            if latest is not None:  # `truncateToEpochEndOffsets`; else `truncateToHighWatermark`
                answer = leader.epochs.end_offset_for(latest, leader.end)
                fetch_offset, is_complete = _truncation_state(follower, answer, fetch_offset)
            is_truncating = not (truncates_on_fetch or is_complete)
            follower.truncate_to(fetch_offset)
            last_fetched_epoch = follower.epochs.latest() if truncates_on_fetch else None
            continue
        if last_fetched_epoch is not None and fetch_offset >= leader.start:  # `Partition.readRecords`
            epoch, end = leader.epochs.end_offset_for(last_fetched_epoch, leader.end)
            assert UNDEFINED not in (epoch, end), "a leader has the epoch of its election"
            if epoch < last_fetched_epoch or end < fetch_offset:  # `truncateOnFetchResponse`
                fetch_offset, _ = _truncation_state(follower, (epoch, end), fetch_offset)
                follower.truncate_to(fetch_offset)
                last_fetched_epoch = follower.epochs.latest()
                continue
        if leader.start <= fetch_offset <= leader.end:
            assert fetch_offset == follower.end, "processPartitionData would fail"
            return fetch_offset
        # `AbstractFetcherThread.fetchOffsetAndTruncate`
        if leader.end < follower.end:
            follower.truncate_to(leader.end)
            fetch_offset = leader.end
        else:
            fetch_offset = max(leader.start, follower.end)
            if leader.start > follower.end:
                follower.truncate_fully_and_start_at(leader.start)
        last_fetched_epoch = follower.epochs.latest() if truncates_on_fetch else None


def _truncation_state(follower: FetchedLog, answer: tuple[int, int], fetch_offset: int) -> tuple[int, bool]:
    """`AbstractFetcherThread.getOffsetTruncationState`: where to truncate to, and whether that is all."""
    leader_epoch, leader_end = answer
    if leader_end == UNDEFINED:
        return fetch_offset, True
    own_epoch, own_end = follower.epochs.end_offset_for(leader_epoch, follower.end)
    if own_end == UNDEFINED:
        return min(leader_end, follower.end), True
    if own_epoch != leader_epoch:
        return min(own_end, follower.end), False
    return min(own_end, leader_end, follower.end), True


# A directory


def batches_of(data: bytes) -> Iterator[FetchedBatch]:
    """Yield the batches of a log file."""
    position = 0
    while position < len(data):
        base, length, epoch, magic = struct.unpack_from(">qiib", data, position)
        whole = data[position : position + 12 + length]
        last = base + struct.unpack_from(">i", whole, 23)[0] if magic == 2 else base
        yield FetchedBatch(whole, base, last, magic, epoch if magic == 2 else -1)
        position += 12 + length


def load(directory: Path) -> FetchedLog:
    """`LogLoader.load` and `Partition.createLog`: the log of a directory whose files are whole.

    After an unclean shutdown, and for a segment without `.index`, the epochs are also those of the batches. A directory
    that no broker has used had none.
    """
    # A future directory has 32 hexadecimal digits between the two. `LocalLog.parseTopicPartitionName`
    topic, _, partition = re.sub(r"\.[0-9a-f]{32}-future$", "", directory.name).rpartition("-")
    log_dir = directory.parent

    def checkpointed(file: str) -> int | None:
        lines = (log_dir / file).read_text().splitlines()[2:] if (log_dir / file).exists() else []
        entries = {tuple(line.split()[:2]): int(line.split()[2]) for line in lines}
        return entries.get((topic, partition))

    file = directory / "leader-epoch-checkpoint"
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    epochs = EpochCache((int(line.split()[0]), int(line.split()[1])) for line in lines)
    bases = sorted(int(log.stem) for log in directory.glob("*.log"))
    log_start = checkpointed("log-start-offset-checkpoint") or 0
    recovery_point = checkpointed("recovery-point-offset-checkpoint") or 0
    is_used = (log_dir / "meta.properties").exists() or any(log_dir.glob("*-checkpoint"))
    is_unclean = is_used and not (log_dir / ".kafka_cleanshutdown").exists()
    first_unflushed = max((base for base in bases if base <= recovery_point), default=bases[0])
    found: list[FetchedBatch] = []
    end = bases[0]
    indexed = {base: (directory / f"{base:020d}.index").exists() for base in bases}
    segments = {base: list(batches_of((directory / f"{base:020d}.log").read_bytes())) for base in bases}
    recovered = [base for base in bases if not indexed[base]]  # `LogLoader.loadSegmentFiles`
    recovered += [base for base in bases if is_unclean and base >= first_unflushed]  # `LogLoader.recoverLog`
    for base in recovered:
        for batch in segments[base]:  # `LogSegment.recover`
            latest = epochs.latest()
            if batch.magic >= 2 and batch.epoch >= 0 and (latest is None or batch.epoch > latest):
                epochs.assign(batch.epoch, batch.base)
    for base in bases:
        found += segments[base]
        end = segments[base][-1].last + 1 if segments[base] else base
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(log_start)
    start = max(log_start, bases[0])
    log = FetchedLog(found, start, end, start, epochs, bases[0])
    log.update_high_watermark(checkpointed("replication-offset-checkpoint") or 0)
    return log
