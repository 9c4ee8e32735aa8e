"""Sets of replicas of which it is known which one is wrong: a simulated partition, and one thing done to its files.

    afflicted = afflict(partition, "lost-tail", chance)

What is lawful is done to any of them: other log starts and ends, clean elections, tails that were not replicated.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kcompact.format.batch import Batch, Record, build, parse_batches, read_records, rebuild
from kcompact.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from tests.support.log_writer import DEFAULT_TIME
from tests.support.simulated_replicas import NAME, Replica, SimulatedPartition


@dataclass
class Afflicted:
    """The directories of the replicas, and the number of the wrong one; None if all are right."""

    directories: list[Path]
    victim: int | None
    kind: str
    done: str = ""


def set_checkpoint(log_dir: Path, name: str, offset: int) -> None:
    """Write a checkpoint with one entry."""
    (log_dir / name).write_text(f"0\n1\n{NAME[:-2]} {NAME[-1]} {offset}\n", encoding="utf-8")


def afflict(partition: SimulatedPartition, kind: str, chance: random.Random) -> Afflicted | None:
    """Do one thing to one replica, and lawful things to all; None if the partition has nothing to do it to."""
    victim = chance.randrange(partition.count)
    done = AFFLICTIONS[kind](partition, victim, chance)
    if done is None:
        return None
    directories = partition.directories()
    for number, replica in enumerate(partition.replicas):
        set_checkpoint(replica.path, REPLICATION_OFFSET_CHECKPOINT, high_watermark(partition, number))
    if kind in AFTER:
        AFTER[kind](partition, victim, chance)
    # The victim and another one serve all: what is below each log start is of nobody's interest.
    whole = {victim, chance.choice([each for each in range(partition.count) if each != victim])}
    for number, replica in enumerate(partition.replicas):
        if number not in whole and chance.random() < 0.4 and replica.written_end > 1:
            set_checkpoint(replica.path, LOG_START_OFFSET_CHECKPOINT, chance.randrange(1, replica.written_end))
    return Afflicted(directories, None if kind in LAWFUL else victim, kind, done)


def high_watermark(partition: SimulatedPartition, number: int) -> int:
    """Return what a stopped broker has in its checkpoint: what all had when it was written, or its end."""
    ends = [each.written_end for each in partition.replicas]
    return min(min(ends), ends[number])


def nothing(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    return "nothing"


def unreplicated_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """The leader has written what nobody has fetched, and crashes. Another one leads, and goes on."""
    end = partition.end
    if any(each.end != end for each in partition.replicas):
        return None
    crashed, leader = partition.replicas[victim], partition.replicas[(victim + 1) % partition.count]
    others = [each for each in partition.replicas if each is not crashed]
    for number in range(chance.choice([1, 3])):
        crashed.append(
            build([Record(end + number, DEFAULT_TIME, b"tail", b"x")], partition_leader_epoch=partition.epoch)
        )
    assert leader in others
    crashed.high_watermark = end
    for number in range(chance.choice([1, 2, 9])):
        data = build([Record(end + number, DEFAULT_TIME, b"k", b"y")], partition_leader_epoch=partition.epoch + 1)
        for each in others:
            each.append(data)
    return f"{crashed.end - end} records"


def after_unreplicated_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> None:
    crashed = partition.replicas[victim]
    set_checkpoint(crashed.path, REPLICATION_OFFSET_CHECKPOINT, crashed.high_watermark)


def lost_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """The last batches are gone, and a checkpoint of the own broker says that they were there."""
    replica = partition.replicas[victim]
    others = max(each.written_end for each in partition.replicas if each is not replica)
    segment = replica.segments[-1]
    before = replica.written_end
    lost = min(chance.choice([1, 2, 5]), len(segment))
    if not lost or others < before:
        return None
    del segment[len(segment) - lost :]
    replica.end = replica.written_end
    return f"offsets {replica.end} to {before}"


def after_lost_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> None:
    ends = [each.written_end for each in partition.replicas]
    set_checkpoint(partition.replicas[victim].path, REPLICATION_OFFSET_CHECKPOINT, max(ends))


def emptied_log(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    return "the log start is the end" if partition.replicas[victim].segments[-1] else None


def after_emptied_log(partition: SimulatedPartition, victim: int, chance: random.Random) -> None:
    replica = partition.replicas[victim]
    set_checkpoint(replica.path, LOG_START_OFFSET_CHECKPOINT, replica.written_end)


def lost_key(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """All records of a key are gone, whose newest value the others have.

    None of its records is of a transaction: what that did to the key may be known to nobody.
    """
    replica = partition.replicas[victim]
    end = min(each.end for each in partition.replicas)
    right = partition.right_view(end)
    newest = {line.key: line.offset for line in partition.truth}
    left = {line.key for line in partition.truth if line.producer is not None}
    left |= {key for data in replica.batches() if not is_plain(data) for key in keys_of(data) if key is not None}
    here = {key for data in replica.batches() for key in keys_of(data)}
    # Without its last batch a replica is behind.
    end = min(end, parsed(replica.batches()[-1]).header.base_offset) if replica.batches() else 0
    keys = sorted(key for key in right if key in here and key not in left and newest[key] < end)
    if not keys:
        return None
    key = chance.choice(keys)
    rewrite(replica, lambda data: without(data, key) if is_plain(data) else data)
    return f"{key!r}, whose newest record is at {newest[key]}"


def other_content(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """A record has another value under a right checksum, as a cleaner leaves it of rotten bytes."""
    replica = partition.replicas[victim]
    known = [[data for data in each.batches() if is_plain(data)] for each in partition.replicas]
    offsets = [{record.offset for data in own for record in records(data) if record.value} for own in known]
    shared = sorted(set.intersection(*offsets))
    if not shared:
        return None
    offset = chance.choice(shared)
    rewrite(replica, lambda data: with_value(data, offset, b"rotten") if is_plain(data) else data)
    return f"at offset {offset}"


def damage(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """A byte of the records is wrong, and the checksum with it."""
    replica = partition.replicas[victim]
    places = [(number, row) for number, own in enumerate(replica.segments) for row, _ in enumerate(own)]
    if not places:
        return None
    number, row = chance.choice(places)
    data = bytearray(replica.segments[number][row])
    data[-1] ^= 0x10
    replica.segments[number][row] = bytes(data)
    return f"batch {row} of segment {replica.bases[number]}"


def fetched_anew(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """The directory was moved away, and the replica has fetched all from another one."""
    other = partition.replicas[(victim + 1) % partition.count]
    anew = Replica(partition.replicas[victim].path, bases=[other.bases[0]], end=other.bases[0])
    anew.fetch(other)
    partition.replicas[victim] = anew
    return f"from {(victim + 1) % partition.count}"


def missing_marker(partition: SimulatedPartition, victim: int, chance: random.Random) -> str | None:
    """A marker is gone, and data of its transaction is there. Another replica has the marker."""
    replica = partition.replicas[victim]
    offsets = [{parsed(data).header.base_offset for data in each.batches()} for each in partition.replicas]
    here = {record.offset for data in replica.batches() for record in records(data)}
    markers = {line.ended_at for line in partition.truth if line.ended_at is not None and line.offset in here}
    others = set.union(*(own for number, own in enumerate(offsets) if number != victim))
    known = sorted(marker for marker in markers if marker in offsets[victim] and marker in others)
    # Without its last batch a replica is behind.
    known = [marker for marker in known if marker < parsed(replica.batches()[-1]).header.base_offset]
    if not known:
        return None
    marker = chance.choice(known)
    rewrite(replica, lambda data: None if parsed(data).header.base_offset == marker else data)
    return f"at offset {marker}"


AFFLICTIONS: dict[str, Callable[[SimulatedPartition, int, random.Random], str | None]] = {
    "nothing": nothing,
    "unreplicated-tail": unreplicated_tail,
    "lost-tail": lost_tail,
    "emptied-log": emptied_log,
    "lost-key": lost_key,
    "other-content": other_content,
    "damage": damage,
    "fetched-anew": fetched_anew,
    "missing-marker": missing_marker,
}
AFTER: dict[str, Callable[[SimulatedPartition, int, random.Random], None]] = {
    "unreplicated-tail": after_unreplicated_tail,
    "lost-tail": after_lost_tail,
    "emptied-log": after_emptied_log,
}
LAWFUL = ("nothing", "unreplicated-tail", "fetched-anew")


def rewrite(replica: Replica, change: Callable[[bytes], bytes | None]) -> None:
    """Change the batches of a replica; None removes one."""
    for number, own in enumerate(replica.segments):
        changed = map(change, own)
        replica.segments[number] = [data for data in changed if data is not None]


def parsed(data: bytes) -> Batch:
    (batch,) = parse_batches(data, file="")
    return batch


def is_plain(data: bytes) -> bool:
    """Return whether a batch is of format 2, with records of no transaction."""
    header = parsed(data).header
    return header.magic == 2 and not header.is_control and not header.is_transactional and header.records_count > 0


def records(data: bytes) -> list[Record]:
    batch = parsed(data)
    return [] if batch.header.is_control else read_records(batch, file="")


def keys_of(data: bytes) -> set[bytes | None]:
    return {record.key for record in records(data)}


def rebuilt(data: bytes, kept: list[Record]) -> bytes:
    """Return a batch with other records, its last offset and the rest of its header as before."""
    return rebuild(parsed(data).header, kept, delete_horizon_ms=None)


def without(data: bytes, key: bytes) -> bytes | None:
    kept = [record for record in records(data) if record.key != key]
    if len(kept) == len(records(data)):
        return data
    return rebuilt(data, kept) if kept else None


def with_value(data: bytes, offset: int, value: bytes) -> bytes:
    own = records(data)
    if all(record.offset != offset for record in own):
        return data
    return rebuilt(data, [each._replace(value=value) if each.offset == offset else each for each in own])
