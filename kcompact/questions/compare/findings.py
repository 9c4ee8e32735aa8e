"""Findings of a comparison: what differs unlawfully, how sure that is, which replica is right, and what to do.

A replica is said to be right only where files prove it. A majority does not: replicas that share history err together.
`docs/compare.md` explains each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

import numpy as np

from kcompact.questions.compare.comparison import Comparison
from kcompact.questions.compare.judge import HOLDERS, NEWEST, OWN, Case, Wrong, WrongKeys
from kcompact.questions.compare.transactions import Fault, WrongTransaction
from kcompact.values import dataclass

MOST_EXAMPLES = 10


class Certainty(StrEnum):
    """How sure a finding is."""

    PROVEN = "proven"
    """No lawful history leaves these files."""
    LIKELY = "likely"
    UNDECIDED = "undecided"
    """One of the replicas is wrong, and the files do not say which."""


class DifferenceKind(StrEnum):
    """What is wrong, the gravest first."""

    CORRUPT_COPY = "corrupt-copy"
    DIVERGED_EPOCH = "diverged-epoch"
    CONTENT_DIFFERS = "content-differs"
    LOST_KEY = "lost-key"
    WILL_LOSE_KEY = "will-lose-key"
    STALE_VALUE = "stale-value"
    RESURRECTED_KEY = "resurrected-key"
    ABORTED_SERVED = "aborted-served"
    HANGING_TRANSACTION = "hanging-transaction"
    MARKER_MISSED = "marker-missed"
    LOST_END = "lost-end"
    EMPTIED_LOG = "emptied-log"
    PRESENT_IN_ONE = "present-in-one"
    BEHIND_WILL_RESURRECT = "behind-will-resurrect"
    BEHIND_WILL_HANG = "behind-will-hang"
    UNREPLICATED_TAIL = "unreplicated-tail"
    """Lawful: what a leader that crashed had written, and no consumer had got."""


ABOUT_KEYS = (
    *(
        DifferenceKind.LOST_KEY,
        DifferenceKind.WILL_LOSE_KEY,
        DifferenceKind.STALE_VALUE,
        DifferenceKind.RESURRECTED_KEY,
    ),
    *(DifferenceKind.PRESENT_IN_ONE, DifferenceKind.BEHIND_WILL_RESURRECT),
)
ABOUT_ENDS = (DifferenceKind.LOST_END, DifferenceKind.EMPTIED_LOG, DifferenceKind.UNREPLICATED_TAIL)
ABOUT_TRANSACTIONS = (
    DifferenceKind.ABORTED_SERVED,
    DifferenceKind.HANGING_TRANSACTION,
    DifferenceKind.MARKER_MISSED,
    DifferenceKind.BEHIND_WILL_HANG,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Something that differs unlawfully. Replicas are numbers.

    `replicas` are concerned, `right` are those that files prove to be right, None if they do not say. `count` is the
    number of keys, records, batches or transactions, `offsets` those of the first of them: of what is wrong, or of what
    is missing. `holder` is a replica that has a record at these offsets, to name its key; None if they are not about
    keys. `problem` is the first damage.
    """

    kind: DifferenceKind
    replicas: tuple[int, ...]
    certainty: Certainty
    right: tuple[int, ...] | None
    count: int
    offsets: tuple[int, ...]
    holder: int | None = None
    problem: str = ""


def findings_of(comparison: Comparison) -> list[Difference]:
    """Return the findings of a comparison, the gravest first."""
    kinds = list(DifferenceKind)
    every = [
        *_damage(comparison),
        *_contradictions(comparison),
        *_ends(comparison),
        *_keys(comparison),
        *_transactions(comparison),
    ]
    return sorted(every, key=lambda each: (kinds.index(each.kind), each.replicas, each.certainty))


def _damage(comparison: Comparison) -> Iterator[Difference]:
    for number in range(len(comparison.replicas)):
        own = [each for each in comparison.damage if each.replica == number]
        if own:
            yield Difference(
                kind=DifferenceKind.CORRUPT_COPY,
                replicas=(number,),
                certainty=Certainty.PROVEN,
                right=None,
                count=len(own),
                offsets=tuple(dict.fromkeys(each.first_offset for each in own[:MOST_EXAMPLES])),
                problem=str(own[0].problem).splitlines()[0],
            )


def _contradictions(comparison: Comparison) -> Iterator[Difference]:
    """Yield where the replicas have other records at the same offsets."""
    for fork in sorted({each for each in comparison.forks if each is not None}):
        replicas = tuple(number for number in comparison.older if comparison.forks[number] == fork)
        unreplicated = tuple(number for number in replicas if comparison.is_unreplicated(number))
        for kind, forked_replicas in (
            (DifferenceKind.DIVERGED_EPOCH, tuple(number for number in replicas if number not in unreplicated)),
            (DifferenceKind.UNREPLICATED_TAIL, unreplicated),
        ):
            if forked_replicas:
                yield Difference(
                    kind=kind,
                    replicas=forked_replicas,
                    certainty=Certainty.PROVEN,
                    right=None,
                    count=1,
                    offsets=(fork,),
                )
    for offsets, kind, certainty in (
        (comparison.headers, DifferenceKind.DIVERGED_EPOCH, Certainty.PROVEN),
        (comparison.overlaps, DifferenceKind.DIVERGED_EPOCH, Certainty.PROVEN),
        # The same bytes with another epoch: a producer has sent them again to a newer leader, or the epoch is rot.
        (comparison.unsealed, DifferenceKind.DIVERGED_EPOCH, Certainty.UNDECIDED),
        (comparison.contents, DifferenceKind.CONTENT_DIFFERS, Certainty.LIKELY),
        (comparison.divided, DifferenceKind.CONTENT_DIFFERS, Certainty.UNDECIDED),
    ):
        if offsets.count:
            replicas = _members(offsets.replicas)
            yield Difference(
                kind=kind,
                replicas=replicas,
                certainty=certainty,
                right=None,
                count=offsets.count,
                offsets=tuple(offsets.first[:MOST_EXAMPLES]),
                holder=replicas[0] if kind is DifferenceKind.CONTENT_DIFFERS else None,
            )


def _ends(comparison: Comparison) -> Iterator[Difference]:
    """Yield replicas that have lost their end, and those whose log start says that nothing in them is to be served."""
    for number, replica in enumerate(comparison.replicas):
        log = replica.log
        others = [each.log for each in comparison.replicas if each is not replica]
        own = Difference(
            kind=DifferenceKind.LOST_END,
            replicas=(number,),
            certainty=Certainty.LIKELY,
            right=None,
            count=0,
            offsets=(log.log_end_offset,),
        )
        committed = min(replica.committed_offset, max((each.log_end_offset for each in others), default=0))
        if committed > log.log_end_offset and comparison.forks[number] is None:
            yield replace(own, count=committed - log.log_end_offset)
        # Retention deletes whole segments, so this start was asked for: by DeleteRecords, or by nobody.
        is_emptied = log.active_segment.base_offset < log.log_start_offset == log.log_end_offset
        if is_emptied and any(each.log_start_offset < log.log_start_offset for each in others):
            lowest = min(each.log_start_offset for each in others)
            yield replace(
                own,
                kind=DifferenceKind.EMPTIED_LOG,
                certainty=Certainty.UNDECIDED,
                count=log.log_start_offset - lowest,
                offsets=(lowest,),
            )


# Keys


_ABOUT_OWN = (DifferenceKind.RESURRECTED_KEY, DifferenceKind.STALE_VALUE)
"""Kinds whose offsets are those of the wrong records; of the other kinds they are those of the missing ones."""


def _keys(comparison: Comparison) -> Iterator[Difference]:
    """Yield what is wrong with keys. Several cases can be about the same keys, so findings alike are joined."""
    joined: dict[tuple[DifferenceKind, tuple[int, ...], Certainty, tuple[int, ...] | None], list[WrongKeys]] = {}
    for case, keys in comparison.wrong.items():
        if case.has_later:
            if case.replica in comparison.older:
                joined.setdefault((DifferenceKind.WILL_LOSE_KEY, (case.replica,), Certainty.PROVEN, None), []).append(
                    keys
                )
            continue  # The winner of the fork has superseded them itself.
        for kind, replicas, certainty, right, part in _classified(comparison, case, keys):
            joined.setdefault((kind, replicas, certainty, right), []).append(part)
    for (kind, replicas, certainty, right), parts in joined.items():
        rows = np.concatenate([part.rows for part in parts])
        is_own = kind in _ABOUT_OWN
        offsets = np.unique(rows[:, OWN if is_own else NEWEST])
        holders = 1 << replicas[0] if is_own else int(rows[0, HOLDERS])
        yield Difference(
            kind=kind,
            replicas=replicas,
            certainty=certainty,
            right=right,
            # Replicas that lack a key of the same holder lack the same key.
            count=max(len(offsets), *(part.keys for part in parts)),
            offsets=tuple(offsets[:MOST_EXAMPLES].tolist()),
            holder=_members(holders)[0],
        )


_Part = tuple[DifferenceKind, tuple[int, ...], Certainty, tuple[int, ...] | None, WrongKeys]


def _classified(comparison: Comparison, case: Case, keys: WrongKeys) -> Iterator[_Part]:
    """Yield what the keys of a case prove, for each set of replicas that hold the newest record, and that lack it."""
    replica, holders = case.replica, keys.rows[:, HOLDERS]
    lackers = np.zeros(len(holders), np.int64)
    for number in range(len(comparison.replicas)):
        lacks = comparison.could_have(number, keys.rows[:, NEWEST]) & (holders >> number & 1 == 0)
        lackers |= lacks.astype(np.int64) << number
    sides = np.column_stack((holders, lackers))
    for side in np.unique(sides, axis=0):
        rows = keys.rows[(sides == side).all(axis=1)]
        # The replicas of the keys that are counted only are not known. They count as those of the first key.
        left_out = keys.keys - len(keys.rows) if np.array_equal(side, sides[0]) else 0
        part = WrongKeys(len(rows) + left_out, rows)
        members = _members(int(side[0]))
        more_lack = int(side[1]).bit_count() - len(members)
        certainty = Certainty.PROVEN
        if case.is_transactional:  # An ABORT that is gone may have ended the newest record: only the number can tell.
            certainty = Certainty.LIKELY if more_lack < 0 else Certainty.UNDECIDED
        match case.wrong:
            case Wrong.RESURRECTED:
                right = members if certainty is Certainty.PROVEN else None
                yield DifferenceKind.RESURRECTED_KEY, (replica,), certainty, right, part
            case Wrong.STALE:
                hole = comparison.last_hole(0, comparison.end_of(replica))
                # With a hole above the newest one that may be wrong too.
                for is_above, its in _split_at(part, -1 if hole is None else hole):
                    right = members if is_above and certainty is Certainty.PROVEN else None
                    yield DifferenceKind.STALE_VALUE, (replica,), certainty, right, its
            case Wrong.ABSENT | Wrong.DELETED:
                yield from _absent(comparison, case, members, part, more_lack=more_lack)
            case Wrong.WILL_RESURRECT:
                yield DifferenceKind.BEHIND_WILL_RESURRECT, (replica,), Certainty.LIKELY, None, part


def _absent(
    comparison: Comparison, case: Case, members: tuple[int, ...], keys: WrongKeys, *, more_lack: int
) -> Iterator[_Part]:
    """Yield keys of which a replica has nothing, or an older tombstone, and `members` have the newest record.

    A tombstone above them may have come and gone, where a hole is. Whether it has, or the others have lost the key,
    only their number tells: so many more replicas lack it than have it.
    """
    replica, end_offset = case.replica, comparison.end_of(case.replica)
    holders_end = max(comparison.end_of(number) for number in members)
    by_number = Certainty.LIKELY if more_lack > 0 else Certainty.UNDECIDED
    if holders_end < end_offset and comparison.last_hole(holders_end, end_offset) is not None:
        yield DifferenceKind.BEHIND_WILL_RESURRECT, members, by_number, None, keys
        return
    hole = comparison.last_hole(0, end_offset)
    for is_above, part in _split_at(keys, -1 if hole is None else hole):
        if is_above and not case.is_transactional:
            yield DifferenceKind.LOST_KEY, (replica,), Certainty.PROVEN, members, part
        else:
            yield DifferenceKind.PRESENT_IN_ONE, members, by_number, None, part


def _split_at(keys: WrongKeys, hole: int) -> Iterator[tuple[bool, WrongKeys]]:
    """Yield the keys whose newest record is above the last hole, with True, and the others.

    The keys that are counted only are above all others. So they are above the hole if one of these is.
    """
    is_above = keys.rows[:, NEWEST] > hole
    left_out = keys.keys - len(keys.rows)
    above, below = keys.rows[is_above], keys.rows[~is_above]
    if len(above):
        yield True, WrongKeys(len(above) + left_out, above)
    if len(below):
        yield False, WrongKeys(len(below) + (0 if len(above) else left_out), below)


# Transactions

_KINDS = {
    Fault.HANGING: DifferenceKind.HANGING_TRANSACTION,
    Fault.ABORTED_SERVED: DifferenceKind.ABORTED_SERVED,
    Fault.UNINDEXED: DifferenceKind.ABORTED_SERVED,
    Fault.TWO_EPOCHS: DifferenceKind.ABORTED_SERVED,
    Fault.COMMITTED_HIDDEN: DifferenceKind.MARKER_MISSED,
    Fault.MARKER_MISSED: DifferenceKind.MARKER_MISSED,
    Fault.WILL_HANG: DifferenceKind.BEHIND_WILL_HANG,
}


def _transactions(comparison: Comparison) -> Iterator[Difference]:
    joined: dict[tuple[DifferenceKind, int, bool], list[WrongTransaction]] = {}
    for each in comparison.transactions:
        joined.setdefault((_KINDS[each.fault], each.replica, each.is_certain), []).append(each)
    for (kind, replica, is_certain), members in joined.items():
        yield Difference(
            kind=kind,
            replicas=(replica,),
            certainty=Certainty.PROVEN if is_certain else Certainty.LIKELY,
            right=_members(members[0].holders) if is_certain and kind is not DifferenceKind.ABORTED_SERVED else None,
            count=len(members),
            offsets=tuple(each.first_offset for each in members[:MOST_EXAMPLES]),
        )


def _members(mask: int) -> tuple[int, ...]:
    """Return the numbers of the replicas in a mask."""
    return tuple(number for number in range(mask.bit_length()) if mask >> number & 1)
