"""Reads the same offsets of several replicas side by side, a window at a time.

A window ends where the first of the runs ends that the replicas are in. Each batch is whole in a window: the one that
its last offset lies in. A batch of format 2 keeps its last offset whatever a cleaner makes of it. A cleaner turns an
older one into a batch of the records that it keeps, with another last offset on each replica; so a window ends behind
such a batch, and only then what is left of a run is copied and joined with the next run.

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
from kcompact.questions.compare.epochs import NO_EPOCH


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
        return self.run.table[self.first : self.end, c.CRC]

    @property
    def magic(self) -> Column:
        return self.run.table[self.first : self.end, c.MAGIC]

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
        while (behind := max((cursor.behind_old_batch(end_offset) for cursor in cursors), default=0)) > end_offset:
            end_offset = behind
            for cursor in cursors:
                cursor.hold(end_offset)
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
        self._is_last = False

    def last_offset(self) -> int | None:
        """Return the last offset of the run with the next batch, None after the last batch."""
        while self._run is None or self._row == len(self._run.table):
            self._run, self._row = next(self._runs, None), 0
            if self._run is None:
                return None
        return self._run.last_offset

    def behind_old_batch(self, end_offset: int) -> int:
        """Return the offset behind the batch of an older format that begins below an offset and ends there or later.

        The offset itself if there is none.
        """
        if self._run is None:
            return end_offset
        number = self._row_of(end_offset)
        if number == len(self._run.table):
            return end_offset
        row = self._run.table[number]
        if row[c.MAGIC] == 2 and row[c.EPOCH] != NO_EPOCH:
            return end_offset
        # The header of a compressed batch of an older format has no first offset.
        record = int(np.searchsorted(self._run.batch, number))
        first = int(row[c.BASE_OFFSET])
        if record < len(self._run) and self._run.batch[record] == number:
            first = min(first, int(self._run.offset[record]))
        return int(row[c.LAST_OFFSET]) + 1 if first < end_offset else end_offset

    def hold(self, end_offset: int) -> None:
        """Hold all next batches whose last offsets are below an offset in one run."""
        while self._run is not None and self._run.last_offset + 1 < end_offset and not self._is_last:
            rest, following = _copy_from(self._run, self._row), next(self._runs, None)
            self._is_last = following is None
            self._run, self._row = rest if following is None else _joined(rest, following), 0

    def _row_of(self, end_offset: int) -> int:
        """Return the row of the next batch whose last offset is at or above an offset."""
        assert self._run is not None
        return self._row + int(np.searchsorted(self._run.table[self._row :, c.LAST_OFFSET], end_offset))

    def take(self, end_offset: int) -> Part | None:
        """Return the next batches whose last offsets are below an offset, None if there is none."""
        if self._run is None:
            return None
        end = self._row_of(end_offset)
        part = Part(self._run, self._row, end)
        self._row = end
        return part if part.first < end else None


_FIELDS = ((c.KEY_START, c.KEY_SIZE), (c.VALUE_START, c.VALUE_SIZE))
_STARTS = [c.KEY_START, c.VALUE_START, c.HEADERS_START]


def _copy_from(run: RecordRun, row: int) -> RecordRun:
    """Return a copy of the batches of a run from a row on, which stays valid after the next run.

    It has the data from the first byte on that they use: earlier records of the same array are not kept.
    """
    columns = run.columns[:, np.searchsorted(run.batch, row) :].copy()
    columns[c.RECORD_BATCH] -= row
    starts = [columns[c.HEADERS_START], *(columns[start, columns[size] >= 0] for start, size in _FIELDS)]
    first_byte = min((int(each.min()) for each in starts if len(each)), default=len(run.data))
    columns[_STARTS] -= first_byte
    for start, size in _FIELDS:
        columns[start, columns[size] < 0] = 0
    return RecordRun(
        table=run.table[row:].copy(),
        columns=columns,
        data=run.data[first_byte:].copy(),
        start_position=run.start_position,
        end_position=run.end_position,
    )


def _joined(first: RecordRun, second: RecordRun) -> RecordRun:
    """Return two consecutive runs as one."""
    table, columns = second.table.copy(), second.columns.copy()
    table[:, c.POSITION] += second.start_position - first.start_position
    columns[c.RECORD_BATCH] += len(first.table)
    columns[_STARTS] += len(first.data)
    return RecordRun(
        table=np.concatenate((first.table, table)),
        columns=np.concatenate((first.columns, columns), axis=1),
        data=np.concatenate((first.data, second.data)),
        start_position=first.start_position,
        end_position=second.end_position,
    )
