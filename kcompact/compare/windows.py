"""Reads the same offsets of several replicas side by side, a window at a time.

A window ends where the first of the runs ends that the replicas are in. So no replica holds more than one run, and each
batch is whole in a window: the one that its last offset lies in. A batch keeps its last offset whatever a cleaner makes
of it, also when it turns an old format into a new one.

    replica A   [ run .................. ][ run .....
    replica B   [ run ......... ][ run .........
    windows     |               |        |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.records import RecordRun


class Part(NamedTuple):
    """The batches [`first`, `end`) of a run: what a replica has in a window. Valid until the next window."""

    run: RecordRun
    first: int
    end: int

    @property
    def table(self) -> Table:
        """A row for each batch."""
        return self.run.table[self.first : self.end]

    @property
    def crc(self) -> Column:
        return self.run.crc[self.first : self.end]

    @property
    def magic(self) -> Column:
        return self.run.magic[self.first : self.end]

    @property
    def rows(self) -> range:
        """The rows of its records in the run."""
        first, end = np.searchsorted(self.run.batch, (self.first, self.end)).tolist()
        return range(first, end)


class Window(NamedTuple):
    """What the replicas have in a range of last offsets, by number of the replica. Who has nothing there is missing."""

    first_offset: int
    end_offset: int
    parts: dict[int, Part]


def windows_of(runs_of: Sequence[Iterable[RecordRun]], offsets: range) -> Iterator[Window]:
    """Yield the windows of a range of offsets, without gaps between them, from the runs of each replica."""
    cursors = [_Cursor(number, iter(runs)) for number, runs in enumerate(runs_of)]
    first_offset = offsets.start
    while True:
        lasts = [last for cursor in cursors if (last := cursor.last_offset()) is not None]
        end_offset = min(lasts) + 1 if lasts else offsets.stop
        parts = {cursor.number: part for cursor in cursors if (part := cursor.take(end_offset)) is not None}
        if first_offset < end_offset or parts:
            yield Window(first_offset, end_offset, parts)
        first_offset = max(first_offset, end_offset)
        if not lasts:
            return


class _Cursor:
    """Where the reading of one replica is: in a run, before a batch."""

    def __init__(self, number: int, runs: Iterator[RecordRun]) -> None:
        self.number = number
        self._runs = runs
        self._run: RecordRun | None = None
        self._row = 0

    def last_offset(self) -> int | None:
        """Return the last offset of the run with the next batch, None after the last batch."""
        while self._run is None or self._row == len(self._run.table):
            self._run, self._row = next(self._runs, None), 0
            if self._run is None:
                return None
        return self._run.last_offset

    def take(self, end_offset: int) -> Part | None:
        """Return the next batches whose last offsets are below an offset, None if there is none."""
        if self._run is None:
            return None
        lasts = self._run.table[:, c.LAST_OFFSET]
        end = self._row + int(np.searchsorted(lasts[self._row :], end_offset))
        part = Part(self._run, self._row, end)
        self._row = end
        return part if part.first < end else None
