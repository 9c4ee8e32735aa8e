"""Sets of replicas of which it is known which one is wrong: a simulated partition, and one thing done to its files.

    afflicted = afflict(partition, ["lost-tail"], chance)

What is lawful is done to any of them: other log starts and ends, clean elections, tails that were not replicated.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcompact.format.batch import Batch, Record, build, parse_batches, read_records, rebuild
from kcompact.format.checkpoint import LOG_START_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from tests.support.log_writer import DEFAULT_TIME
from tests.support.simulated_replicas import HOUR_MS, NAME, Replica, SimulatedPartition, write_some


@dataclass
class Done:
    """What was done to a replica, and how files can show it.

    A log start up to `least_hidden` does not hide it; with None it gets no log start. One of the `witnesses` is right
    and serves all it has; without any each other replica can be the one. Without `has_to_show` files need not show it.
    """

    what: str
    least_hidden: int | None = None
    witnesses: Sequence[int] = ()
    has_to_show: bool = True


@dataclass
class Afflicted:
    """The directories of the replicas, what was done to the wrong ones, by number, and which of them have to be found.

    Without a wrong one nothing may be found.
    """

    directories: list[Path]
    wrong: dict[int, str]
    shown: set[int]


def set_checkpoint(log_dir: Path, name: str, offset: int) -> None:
    """Write a checkpoint with one entry."""
    (log_dir / name).write_text(f"0\n1\n{NAME[:-2]} {NAME[-1]} {offset}\n", encoding="utf-8")


def afflict(partition: SimulatedPartition, kinds: Sequence[str], chance: random.Random) -> Afflicted | None:
    """Do things of some kinds, each to another replica, and lawful things to all; None if a kind finds nothing to do.

    Only the first kind may change the others too.
    """
    victims = chance.sample(range(partition.count), len(kinds))
    done: dict[int, Done] = {}
    for kind, victim in zip(kinds, victims, strict=True):
        found = AFFLICTIONS[kind](partition, victim, chance)
        if found is None:
            return None
        done[victim] = found
    others = [each for each in range(partition.count) if each not in victims]
    witnesses = [[each for each in found.witnesses or others if each in others] for found in done.values()]
    if not all(witnesses):
        return None
    directories = partition.directories()
    for number, replica in enumerate(partition.replicas):
        set_checkpoint(replica.path, REPLICATION_OFFSET_CHECKPOINT, high_watermark(partition, number))
    for kind, victim in zip(kinds, victims, strict=True):
        if kind in AFTER:
            AFTER[kind](partition, victim, chance)
    # What is below each log start is of nobody's interest.
    whole = {chance.choice(each) for each in witnesses}
    for number, replica in enumerate(partition.replicas):
        least = replica.written_end - 1 if number in others else done[number].least_hidden
        if number not in whole and least is not None and least >= 1 and chance.random() < 0.4:
            set_checkpoint(replica.path, LOG_START_OFFSET_CHECKPOINT, chance.randint(1, least))
    wrong = {
        each: f"{kind}: {done[each].what}" for kind, each in zip(kinds, victims, strict=True) if kind not in LAWFUL
    }
    return Afflicted(directories, wrong, shown={each for each in wrong if done[each].has_to_show})


def high_watermark(partition: SimulatedPartition, number: int) -> int:
    """Return what a stopped broker has in its checkpoint: what all had when it was written, or its end."""
    ends = [each.written_end for each in partition.replicas]
    return min(min(ends), ends[number])


def nothing(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    return Done("nothing", partition.replicas[victim].written_end - 1)


def unreplicated_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
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
    return Done(f"{crashed.end - end} records")


def cleaned_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """As `unreplicated_tail`, with keys of others in the tail, and cleaners that remove where the new epoch began."""
    for each in partition.replicas:
        each.is_online = True
    partition.replicate()
    partition.lead(victim)
    crashed, committed = partition.replicas[victim], partition.end
    keys = sorted({line.key for line in partition.truth})
    if not keys:
        return None
    crashed.is_online = False
    for _ in range(chance.choice([1, 2, 5])):
        record = Record(crashed.end, partition.now_ms, chance.choice(keys), chance.choice([None, b"tail", b"x" * 99]))
        crashed.append(build([record], partition_leader_epoch=partition.epoch))
    crashed.high_watermark = committed
    partition.lead_unclean((victim + 1) % partition.count)
    write_some(partition, chance.choice([5, 15, 30]))
    for _ in range(chance.choice([1, 2, 3])):  # Nothing has expired: the crashed one is not away for long.
        for number in range(partition.count):
            if number != victim and chance.random() < 0.8:
                partition.clean(number)
    return Done(f"{crashed.end - committed} records")


def unclean_election(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """What the leader had written was committed. It crashes, and one leads that has not fetched it."""
    done = unreplicated_tail(partition, victim, chance)
    crashed = partition.replicas[victim]
    crashed.high_watermark = crashed.end
    return done


def after_crash(partition: SimulatedPartition, victim: int, chance: random.Random) -> None:
    crashed = partition.replicas[victim]
    set_checkpoint(crashed.path, REPLICATION_OFFSET_CHECKPOINT, crashed.high_watermark)


def lost_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
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
    return Done(f"offsets {replica.end} to {before}", replica.end - 1)


def after_lost_tail(partition: SimulatedPartition, victim: int, chance: random.Random) -> None:
    ends = [each.written_end for each in partition.replicas]
    set_checkpoint(partition.replicas[victim].path, REPLICATION_OFFSET_CHECKPOINT, max(ends))


def emptied_log(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    return Done("the log start is the end") if partition.replicas[victim].segments[-1] else None


def after_emptied_log(partition: SimulatedPartition, victim: int, chance: random.Random) -> None:
    replica = partition.replicas[victim]
    set_checkpoint(replica.path, LOG_START_OFFSET_CHECKPOINT, replica.written_end)


def lost_key(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
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
    return Done(f"{key!r}, whose newest record is at {newest[key]}", newest[key])


def stale_value(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """The newest record of a key is gone, and an older one is there."""
    replica = partition.replicas[victim]
    end = min(each.end for each in partition.replicas)
    right = partition.right_view(end)
    newest = {line.key: line.offset for line in partition.truth}
    transactional = {line.key for line in partition.truth if line.producer is not None}
    plain = [data for data in replica.batches()[:-1] if is_plain(data)]
    here = [(record.key or b"", record.offset) for data in plain for record in records(data)]
    keys = sorted(
        key
        for key in right
        if newest[key] < end
        and key not in transactional
        and (key, newest[key]) in here
        and sum(key == each for each, _ in here) > 1
    )
    if not keys:
        return None
    offset = newest[chance.choice(keys)]
    rewrite(replica, lambda data: without_record(data, offset) if is_plain(data) else data)
    return Done(f"without offset {offset}", offset)


def lost_abort_index(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """The transaction index has no entry of an aborted transaction whose records are there."""
    replica = partition.replicas[victim]
    here = {record.offset for data in replica.batches() for record in records(data)}
    aborted = [
        line for line in partition.truth if line.ended_at is not None and not line.is_commit and line.offset in here
    ]
    served = {(line.producer, line.ended_at) for line in aborted}
    known = [
        entry for own in replica.aborted.values() for entry in own if (entry.producer_id, entry.last_offset) in served
    ]
    if not known:
        return None
    lost = chance.choice(known)
    for base, own in replica.aborted.items():
        replica.aborted[base] = [entry for entry in own if entry != lost]
    offsets = [
        line.offset for line in aborted if (line.producer, line.ended_at) == (lost.producer_id, lost.last_offset)
    ]
    return Done(f"without producer {lost.producer_id} at {offsets}", max(offsets))


def restored(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """The directory comes from a backup, and the others have gone on since. Its broker may know where it was."""
    leader = (victim + 1) % partition.count
    for each in partition.replicas:
        each.is_online = True
    partition.replicate()
    partition.lead(leader)
    partition.replicas[victim].is_online = False
    replica = partition.replicas[victim]
    for _ in range(chance.choice([1, 2, 4])):
        write_some(partition, chance.choice([1, 5, 20]))
        partition.now_ms += chance.choice([1000, 2 * HOUR_MS, 20 * HOUR_MS])
        for number in range(partition.count):
            if number != victim and chance.random() < 0.7:
                partition.clean(number)
    replica.high_watermark = partition.end if chance.random() < 0.5 else replica.end
    caught_up = SimulatedPartition(partition.path, partition.count, chance, truth=partition.truth)
    caught_up.replicas[victim] = copy.deepcopy(replica)
    caught_up.replicas[victim].fetch(partition.replicas[leader])
    wrong = caught_up.wrong_keys(victim)
    has_to_show = bool(wrong) or replica.high_watermark > replica.end
    what = f"of offset {replica.end}, {len(wrong)} keys wrong after it"
    # It shows by what this leader lacks: another one may still serve the tombstones.
    return Done(what, witnesses=[leader], has_to_show=has_to_show)


def other_content(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """A record has another value under a right checksum, as a cleaner leaves it of rotten bytes."""
    replica = partition.replicas[victim]
    known = [[data for data in each.batches() if is_plain(data)] for each in partition.replicas]
    offsets = [{record.offset for data in own for record in records(data) if record.value} for own in known]
    others = [number for number in range(partition.count) if number != victim]
    shared = sorted(offset for offset in offsets[victim] if any(offset in offsets[each] for each in others))
    if not shared:
        return None
    offset = chance.choice(shared)
    rewrite(replica, lambda data: with_value(data, offset, b"rotten") if is_plain(data) else data)
    return Done(f"at offset {offset}", offset, [each for each in others if offset in offsets[each]])


def damage(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """A byte of the records is wrong, and the checksum with it."""
    replica = partition.replicas[victim]
    places = [(number, row) for number, own in enumerate(replica.segments) for row, _ in enumerate(own)]
    if not places:
        return None
    number, row = chance.choice(places)
    data = bytearray(replica.segments[number][row])
    data[-1] ^= 0x10
    replica.segments[number][row] = bytes(data)
    return Done(f"batch {row} of segment {replica.bases[number]}")


def fetched_anew(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
    """The directory was moved away, and the replica has fetched all from another one."""
    other = partition.replicas[(victim + 1) % partition.count]
    anew = Replica(partition.replicas[victim].path, bases=[other.bases[0]], end=other.bases[0])
    anew.fetch(other)
    partition.replicas[victim] = anew
    return Done(f"from {(victim + 1) % partition.count}")


def missing_marker(partition: SimulatedPartition, victim: int, chance: random.Random) -> Done | None:
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
    return Done(f"at offset {marker}")


AFFLICTIONS: dict[str, Callable[[SimulatedPartition, int, random.Random], Done | None]] = {
    "nothing": nothing,
    "unreplicated-tail": unreplicated_tail,
    "cleaned-tail": cleaned_tail,
    "unclean-election": unclean_election,
    "lost-tail": lost_tail,
    "emptied-log": emptied_log,
    "restored": restored,
    "lost-key": lost_key,
    "stale-value": stale_value,
    "other-content": other_content,
    "damage": damage,
    "fetched-anew": fetched_anew,
    "missing-marker": missing_marker,
    "lost-abort-index": lost_abort_index,
}
AFTER: dict[str, Callable[[SimulatedPartition, int, random.Random], None]] = {
    "unreplicated-tail": after_crash,
    "cleaned-tail": after_crash,
    "unclean-election": after_crash,
    "restored": after_crash,
    "lost-tail": after_lost_tail,
    "emptied-log": after_emptied_log,
}
LAWFUL = ("nothing", "unreplicated-tail", "cleaned-tail", "fetched-anew")


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


def without_record(data: bytes, offset: int) -> bytes | None:
    kept = [record for record in records(data) if record.offset != offset]
    if len(kept) == len(records(data)):
        return data
    return rebuilt(data, kept) if kept else None


def with_value(data: bytes, offset: int, value: bytes) -> bytes:
    own = records(data)
    if all(record.offset != offset for record in own):
        return data
    return rebuilt(data, [each._replace(value=value) if each.offset == offset else each for each in own])
