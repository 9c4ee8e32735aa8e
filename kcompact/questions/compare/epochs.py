"""Leader epochs, and where two replicas fork: below the fork the same offset means the same record.

    replica A   epoch 1: 0 .. 99     epoch 3: 100 .. 149
    replica B   epoch 1: 0 .. 119    epoch 2: 120 .. 129          fork: 100

A leader writes its epoch into every batch, and epochs rise with offsets. So two replicas have forked where one has an
older epoch above the start of a newer one in the other. Both agree on the last epoch that is in both and older than
what contradicts; what follows it in either of them is above the fork.

The epochs are those of the batches that are left. The file `leader-epoch-checkpoint` is no proof: a leader records
epochs without a batch, which no follower has, and a follower that fetched a compacted log has later starts.
Rule: `AbstractFetcherThread.maybeTruncate`, `LeaderEpochFileCache.endOffsetFor`, KIP-101, KIP-279.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import Table
from kcompact.kernels import columns as c

NO_EPOCH = -1
"""The epoch of batches of magic 0 and 1."""


class EpochRun(NamedTuple):
    """Consecutive batches of one leader epoch."""

    epoch: int
    first_offset: int
    last_offset: int


def out_of_order(runs: Sequence[EpochRun]) -> list[EpochRun]:
    """Return the runs without which the epochs rise, with as few offsets as possible: no leader has written these."""
    if all(one.epoch < other.epoch for one, other in pairwise(runs)):
        return []
    most: list[tuple[int, int]] = []  # The most offsets of rising epochs that end with this run; the run before it.
    for number, run in enumerate(runs):
        best, before = max(
            ((most[other][0], other) for other in range(number) if runs[other].epoch <= run.epoch), default=(0, -1)
        )
        most.append((best + run.last_offset - run.first_offset + 1, before))
    rising, number = set[int](), max(range(len(runs)), key=lambda each: most[each][0])
    while number >= 0:
        rising.add(number)
        number = most[number][1]
    return [run for number, run in enumerate(runs) if number not in rising]


def add_epochs(runs: list[EpochRun], table: Table) -> None:
    """Add the batches of a table, i64[n, COLUMNS], to the epochs before them. Those of magic 0 and 1 have none."""
    table = table[table[:, c.EPOCH] != NO_EPOCH]
    if not len(table):
        return
    epochs = table[:, c.EPOCH]
    starts = np.flatnonzero(np.append(True, epochs[1:] != epochs[:-1]))
    lasts = np.append(starts[1:], len(table)) - 1
    first, *others = map(
        EpochRun,
        epochs[starts].tolist(),
        table[starts, c.BASE_OFFSET].tolist(),
        table[lasts, c.LAST_OFFSET].tolist(),
    )
    if runs and runs[-1].epoch == first.epoch:
        runs[-1] = runs[-1]._replace(last_offset=first.last_offset)
    else:
        runs.append(first)
    runs += others


class Line(NamedTuple):
    """Where a replica leaves the line of the newest leader.

    `fork`: it contradicts the line from this offset on. `doubt`: none on the line has what it has from this offset on,
    and a newer leader may have begun below that. Both are None where it is on the line.
    """

    fork: int | None = None
    doubt: int | None = None

    @property
    def end_offset(self) -> int:
        """The offset up to which the replica is compared, if it has as much."""
        ends = [each for each in self if each is not None]
        return min(ends, default=MAX_OFFSET)


def fork_of(one: Sequence[EpochRun], other: Sequence[EpochRun]) -> range | None:
    """Return the offsets at which two replicas can fork, None if nothing contradicts.

    Where an epoch begins is not known when a cleaner has removed its first records: somewhere after the last record of
    the epoch before. Without a contradiction the shorter one is a part of the longer one.
    """
    contradictions = [*_contradicted(one, other), *_contradicted(other, one)]
    if not contradictions:
        return None
    oldest = min(epoch for epoch, _ in contradictions)
    in_both = {run.epoch for run in one} & {run.epoch for run in other}
    common = max((epoch for epoch in in_both if epoch <= oldest), default=NO_EPOCH)
    first = min(run.first_offset for run in (*one, *other) if run.epoch > common)
    ends = {last_offset(runs, common) + 1 for runs in (one, other)}
    return range(min(first, *ends) if len(ends) > 1 else first, min(offset for _, offset in contradictions) + 1)


def last_offset(runs: Sequence[EpochRun], epoch: int) -> int:
    """Return the last offset of an epoch or an older one, -1 without any."""
    return max((run.last_offset for run in runs if run.epoch <= epoch), default=-1)


def lines_of(
    epochs: Sequence[list[EpochRun]], are_damaged: Sequence[bool], high_watermarks: Sequence[int]
) -> list[Line]:
    """Return where each replica leaves the line of the newest leader.

    Below its own high watermark a replica has what was committed, so a fork that can be there is not below it. Replicas
    whose epochs are damaged do not make the line: what is left of their epochs may be wrong too.
    """
    lines = [Line()] * len(epochs)
    line: list[int] = []
    newest = [max((run.epoch for run in runs), default=NO_EPOCH) for runs in epochs]
    for number in sorted(range(len(epochs)), key=lambda each: (are_damaged[each], -newest[each], epochs[each])):
        own, high_watermark = epochs[number], high_watermarks[number]
        forks = [fork for other in line if (fork := fork_of(epochs[other], own)) is not None]
        if forks:
            offset = min(fork.start for fork in forks)
            is_lawful = high_watermark < min(fork.stop for fork in forks)
            lines[number] = Line(fork=max(offset, high_watermark) if is_lawful else offset)
            continue
        newer = [other for other in line if newest[other] > newest[number] and not are_damaged[other]]
        if own and newer:
            # What one on the line has of these epochs is on the line.
            shared = max(
                min(last_offset(epochs[other], newest[number]) + 1, lines[other].end_offset) for other in newer
            )
            doubt = max(high_watermark, shared)
            if doubt <= own[-1].last_offset:
                lines[number] = Line(doubt=doubt)
        line.append(number)
    return lines


def _contradicted(newer: Sequence[EpochRun], older: Sequence[EpochRun]) -> Iterator[tuple[int, int]]:
    """Yield the epochs of `older` that reach above the start of a newer epoch of `newer`, each with that start."""
    for run in older:
        following = bisect_right(newer, run.epoch, key=attrgetter("epoch"))
        if following < len(newer) and newer[following].first_offset <= run.last_offset:
            yield run.epoch, newer[following].first_offset
