"""Stage 2 of a comparison: judges each replica, key by key, by the newest record that any replica has of the key.

Only records below the replica's own end count, and no aborted or open ones. What it lacks of older records is lawful:
they are superseded. Of the newest one there are these cases; `findings` says what each of them proves:

    the newest is     the replica has
    a tombstone       nothing, or an older tombstone      lawful: a tombstone goes after its delete horizon
    a tombstone       an older value                      RESURRECTED
    a value           an older value                      STALE
    a value           an older tombstone                  DELETED
    a value           nothing                             ABSENT

A replica that is behind has a value that is right below its end, and above it another replica has a tombstone. If the
leader has dropped that tombstone, the replica never gets it: WILL_RESURRECT.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kcompact.format.block import unpack_table
from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import Column, Mask, Table
from kcompact.kernels import columns as c
from kcompact.questions.compare.job import REF_SHIFT, TOMBSTONE, TRANSACTIONAL, CompareJob, overlap
from kcompact.questions.compare.scan import ComparedRange, scan_replicas
from kcompact.questions.keys.rows import Merger
from kcompact.stages.executor import Stages

MOST_ROWS = 4096
"""So many keys of a case are kept with their offsets; all are counted."""
NEWEST, OWN, HOLDERS = range(3)
"""The columns of a table of wrong keys.

The offset of the newest record; that of the replica's own, -1 for none; the mask of the replicas that have the newest
record, or that lawfully have nothing where it is a tombstone.
"""


class Wrong(IntEnum):
    """What a replica has of a key whose newest record it lacks."""

    RESURRECTED = 0
    STALE = 1
    DELETED = 2
    ABSENT = 3
    WILL_RESURRECT = 4


class Case(NamedTuple):
    """A kind of wrong keys of one replica.

    With `is_transactional` the newest record, or the replica's own, belongs to a transaction, so an ABORT marker may
    explain it. With `has_later` the replica has a record of the key above its fork.
    """

    replica: int
    wrong: Wrong
    is_transactional: bool
    has_later: bool


class WrongKeys(NamedTuple):
    """Some wrong keys: their number, and a row for each of the first of them by offset of the newest record."""

    keys: int
    rows: Table

    def join(self, other: WrongKeys) -> WrongKeys:
        """Return both together. What was left out of one has greater offsets than all its rows."""
        rows = np.concatenate((self.rows, other.rows))
        rows = rows[np.argsort(rows[:, NEWEST], kind="stable")]
        ends = [int(each.rows[-1, NEWEST]) for each in (self, other) if each.keys > len(each.rows)]
        if ends:
            rows = rows[rows[:, NEWEST] <= min(ends)]
        return WrongKeys(self.keys + other.keys, rows[:MOST_ROWS])


class JudgedKeys(NamedTuple):
    """What the keys of a bucket have shown: how many there are, and the wrong ones by case."""

    keys: int
    wrong: dict[Case, WrongKeys]


class _Rows(NamedTuple):
    """The newest records of keys in one band, in the replicas of a mask: numbers of keys, and record references.

    Records of transactions whose end is unknown have no replica.
    """

    replicas: list[int]
    band: int
    keys: Column
    refs: Column


def judge_keys(job: CompareJob, blocks: Iterable[bytes]) -> JudgedKeys:
    """Return what the keys of one bucket show, from all its blocks in any order."""
    keys, band_rows = _numbered(job, blocks)
    wrong: dict[Case, WrongKeys] = {}
    newest = np.full((keys, len(job.replicas)), -1, np.int64)
    later = np.full_like(newest, -1)
    doubtful = np.full(keys, -1, np.int64)
    for rows in (each for each in band_rows if not each.replicas):
        doubtful[rows.keys] = np.maximum(doubtful[rows.keys], rows.refs)
    for band in range(len(job.bands)):
        for rows in (each for each in band_rows if each.band == band):
            for replica in (each for each in rows.replicas if band < job.replicas[each].end_band):
                newest[rows.keys, replica] = np.maximum(newest[rows.keys, replica], rows.refs)
        for replica, log in enumerate(job.replicas):
            if log.end_band == band + 1:
                later[:] = -1
                for rows in (each for each in band_rows if each.band > band and replica in each.replicas):
                    later[rows.keys, replica] = rows.refs
                superseded = newest.max(axis=1) < doubtful
                for rows in (each for each in band_rows if band < each.band):
                    # The line that it follows has the key again, where it is truncated.
                    is_fetched = any(job.replicas[each].fork_offset > log.fork_offset for each in rows.replicas)
                    if rows.band < log.known_band or is_fetched:
                        superseded[rows.keys] = True
                wrong |= dict(_judged(job, replica, newest, later[:, replica] >= 0, superseded))
    for replica, log in enumerate(job.replicas):
        if log.end_band < max(each.end_band for each in job.replicas):
            wrong |= dict(_judged_to_come(job, replica, newest, doubtful))
    return JudgedKeys(keys, wrong)


COMPARING: Stages[CompareJob, tuple[int, ComparedRange], JudgedKeys] = Stages(scan_replicas, judge_keys)
"""The two stages of a comparison."""


def _judged_to_come(job: CompareJob, replica: int, newest: Table, doubtful: Column) -> Iterable[tuple[Case, WrongKeys]]:
    """Yield the keys that come back when a replica that is behind fetches what follows its end.

    `newest` has the record references of the newest records, by replica. Without a known leader it may be any replica.
    """
    own, top = newest[:, replica], newest.max(axis=1)
    end_ref = _end_of(job, replica) - job.first_offset << REF_SHIFT
    offsets = (top >> REF_SHIFT) + job.first_offset
    own_offsets = (own >> REF_SHIFT) + job.first_offset
    is_deleted = (own >= 0) & (own & TOMBSTONE == 0) & (top & TOMBSTONE != 0) & (top >= end_ref) & (own > doubtful)
    droppers = np.zeros(len(newest), np.int64)
    for other in [job.leader] if job.leader is not None else range(len(job.replicas)):
        has_dropped = (newest[:, other] < end_ref) & (offsets < _end_of(job, other))
        # A follower takes over the log start of its leader.
        has_dropped &= job.replicas[other].start_offset <= own_offsets
        has_dropped &= ~overlap(job.replicas[other].tainted, offsets, offsets + 1)
        droppers |= has_dropped.astype(np.int64) << other
    rows = np.flatnonzero(is_deleted & (droppers != 0))
    if len(rows):
        its_offsets = own_offsets[rows]
        table = np.column_stack((its_offsets, its_offsets, np.full(len(rows), 1 << replica)))
        first_rows = table[np.argsort(its_offsets, kind="stable")][:MOST_ROWS]
        case = Case(replica, Wrong.WILL_RESURRECT, is_transactional=False, has_later=False)
        yield case, WrongKeys(len(rows), first_rows)


def _end_of(job: CompareJob, replica: int) -> int:
    """Return the offset up to which a replica is compared."""
    end_band = job.replicas[replica].end_band
    return job.bands[end_band - 1] if end_band else 0


def _numbered(job: CompareJob, blocks: Iterable[bytes]) -> tuple[int, list[_Rows]]:
    """Return the number of different keys, and their rows by mask and band."""
    parts: dict[int, list[Table]] = {}
    for number, table in map(unpack_table, blocks):
        parts.setdefault(number, []).append(table)
    merger = Merger()
    tables = []
    for number in sorted(parts):
        table = np.concatenate(parts.pop(number))
        tables.append((number, table[: merger.merge(table, order_bits=0, used_bits=job.bucket_bits)]))
    if not tables:
        return 0, []
    highs = np.concatenate([table[:, c.KEY_HIGH] for _, table in tables])
    lows = np.concatenate([table[:, c.KEY_LOW] for _, table in tables])
    order = np.argsort(highs)
    is_new = highs[order[1:]] != highs[order[:-1]]
    if np.any(~is_new & (lows[order[1:]] != lows[order[:-1]])):  # Halves of different keys are equal: hardly ever.
        order = np.lexsort((highs, lows))
        is_new = (highs[order[1:]] != highs[order[:-1]]) | (lows[order[1:]] != lows[order[:-1]])
    numbers = np.empty(len(highs), np.int64)
    numbers[order] = np.concatenate(([0], np.cumsum(is_new)))
    band_rows, start = [], 0
    for number, table in tables:
        mask, band = divmod(number, len(job.bands))
        replicas = [replica for replica in range(len(job.replicas)) if mask >> replica & 1]
        band_rows.append(_Rows(replicas, band, numbers[start : start + len(table)], table[:, c.KEY_REF]))
        start += len(table)
    return int(numbers.max()) + 1, band_rows


def _judged(
    job: CompareJob, replica: int, newest: Table, has_later: Mask, superseded: Mask
) -> Iterable[tuple[Case, WrongKeys]]:
    """Yield the wrong keys of one replica by case. `newest` has the record references below its end, by replica.

    A record that is in no file, or may have been aborted, may have superseded those of the keys that are `superseded`,
    so nothing is said of them.
    """
    log, own, top = job.replicas[replica], newest[:, replica], newest.max(axis=1)
    offsets = (top >> REF_SHIFT) + job.first_offset
    is_wrong = (own >> REF_SHIFT < top >> REF_SHIFT) & (offsets >= log.start_offset) & ~superseded
    is_wrong &= (top & TOMBSTONE == 0) | ((own >= 0) & (own & TOMBSTONE == 0))
    is_wrong &= ~overlap(log.tainted, offsets, offsets + 1)
    rows = np.flatnonzero(is_wrong)
    if not len(rows):
        return
    own, top, offsets, has_later = own[rows], top[rows], offsets[rows], has_later[rows]
    kinds = np.select(
        [top & TOMBSTONE != 0, own < 0, own & TOMBSTONE != 0],
        [Wrong.RESURRECTED, Wrong.ABSENT, Wrong.DELETED],
        Wrong.STALE,
    )
    is_transactional = (top & TRANSACTIONAL != 0) | ((own >= 0) & (own & TRANSACTIONAL != 0))
    others = newest[rows]
    agrees = others >> REF_SHIFT == top[:, None] >> REF_SHIFT
    # What damage may hide is not nothing.
    ends = [
        min(_end_of(job, other), *each.tainted[:, 0].tolist(), MAX_OFFSET) for other, each in enumerate(job.replicas)
    ]
    has_nothing = (others < 0) | (others & TOMBSTONE != 0)
    agrees |= (top[:, None] & TOMBSTONE != 0) & has_nothing & (offsets[:, None] < np.array(ends))
    holders = (agrees << np.arange(newest.shape[1])).sum(axis=1)
    own_offsets = np.where(own < 0, -1, (own >> REF_SHIFT) + job.first_offset)
    table = np.column_stack((offsets, own_offsets, holders)).astype(np.int64)
    cases = kinds * 4 + is_transactional * 2 + has_later
    for number in np.unique(cases).tolist():
        chosen = table[cases == number]
        first = chosen[np.argsort(chosen[:, NEWEST], kind="stable")][:MOST_ROWS]
        yield Case(replica, Wrong(number // 4), bool(number & 2), bool(number & 1)), WrongKeys(len(chosen), first)
