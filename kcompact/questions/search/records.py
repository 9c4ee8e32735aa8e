"""Searches a run of batches: which field of which record a key lies in, or in which of the other bytes.

Every byte counts, stored or inflated. What lies in no field (a header, a length, the end of one field and the begin of
the next) is `in-bytes`. What a compressed batch shows as it is stored, and inflated as well, is said once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Bytes, Column, Mask
from kcompact.kernels import columns as c
from kcompact.log.records import RecordRun
from kcompact.questions.search.finder import Finder
from kcompact.questions.search.findings import Findings, Place

Counts = Counter[tuple[int, int]]
"""How often a key begins in a batch, by the row of the batch and the number of the key."""


def counted_hits(rows: Column, numbers: Column) -> Counts:
    """Return how often each key was found in each batch."""
    pairs, counts = np.unique(np.stack((rows, numbers)), axis=1, return_counts=True)
    return Counter({(row, number): count for row, number, count in zip(*pairs.tolist(), counts.tolist(), strict=True)})


class RunSearch:
    """The search of a run. `inflate` returns the inflated section of a batch of a run whose data has no sections."""

    def __init__(
        self, run: RecordRun, inflate: Callable[[int], Bytes], finder: Finder, findings: Findings, file: Path
    ) -> None:
        self._run, self._inflate, self._finder, self._findings, self._file = run, inflate, finder, findings, file
        self._fields = _Fields(run)
        self.compressed = np.flatnonzero(
            (run.table[:, c.ATTRIBUTES] & c.CODEC_MASK != 0) & (run.table[:, c.RECORDS_COUNT] != 0)
        )
        self.inflated_bytes = 0
        self._in_bytes, self._in_fields = Counts(), Counts()

    def search(self, stored: Counts) -> None:
        """Search the records and what is inflated; `stored` is what was found in the bytes as they are stored."""
        run, is_compressed = self._run, np.zeros(len(self._run.table), np.bool_)
        is_compressed[self.compressed] = True
        if run.inflated_at is not None:
            self._search_sections(run.inflated_at)
            if any(not is_compressed[row] for row, _ in stored):
                self._search_fields(self._fields.span(~is_compressed[run.batch]))
        elif stored or len(self.compressed):
            self._search_fields(self._fields.span(np.ones(len(run), np.bool_)))
            for row in self.compressed.tolist():
                data = self._inflate(row)
                self.inflated_bytes += len(data)
                for _, numbers in self._finder.find(data):
                    self._in_bytes += counted_hits(np.full(len(numbers), row), numbers)
        inflated = self._in_bytes
        self._in_bytes = inflated + Counts({each: n for each, n in stored.items() if each not in inflated})
        for (row, number), count in (self._in_bytes - self._in_fields).items():
            position = run.start_position + int(run.table[row, c.POSITION])
            numbers = np.full(count, number)
            self._findings.add(self._file, Place.IN_BYTES, numbers, np.full(count, position))

    def _search_sections(self, inflated_at: int) -> None:
        """Search the inflated sections, which follow each other."""
        rows = self.compressed
        if not len(rows):
            return
        starts = self._run.table[rows, c.SECTION_START] + inflated_at
        ends = self._run.table[rows, c.SECTION_END] + inflated_at
        self.inflated_bytes += int(ends[-1] - starts[0])
        for relative_positions, numbers in self._finder.find(self._run.data[starts[0] : ends[-1]]):
            positions = relative_positions + starts[0]
            at = starts.searchsorted(positions, side="right") - 1
            is_inside = positions + self._finder.sizes[numbers] <= ends[at]
            positions, numbers, at = positions[is_inside], numbers[is_inside], at[is_inside]
            self._in_bytes += counted_hits(rows[at], numbers)
            self._add_fields(positions, numbers)

    def _search_fields(self, span: range) -> None:
        for positions, numbers in self._finder.find(self._run.data[span.start : span.stop]):
            self._add_fields(positions + span.start, numbers)

    def _add_fields(self, positions: Column, numbers: Column) -> None:
        """Add those of the hits that lie in a field of a record."""
        run = self._run
        for place, hits, records in self._fields.places(positions, self._finder.sizes[numbers]):
            rows = run.batch[records]
            at = run.start_position + run.table[rows, c.POSITION]
            self._findings.add(self._file, place, numbers[hits], at, run.offset[records])
            self._in_fields += counted_hits(rows, numbers[hits])


class _Sorted(NamedTuple):
    """One of the fields of all records that have it, in the order of the data: starts, ends, and rows of records."""

    starts: Column
    ends: Column
    rows: Column

    @staticmethod
    def of(starts: Column, sizes: Column, rows: Column) -> _Sorted:
        order = np.argsort(starts, kind="stable")
        return _Sorted(starts[order], (starts + sizes)[order], rows[order])

    def around(self, positions: Column, ends: Column) -> tuple[Mask, Column]:
        """Return whether each range of bytes lies in one field, and the place in these arrays of this field."""
        at = np.maximum(self.starts.searchsorted(positions, side="right") - 1, 0)
        if not len(self.starts):
            return np.zeros(len(positions), np.bool_), at
        return (self.starts[at] <= positions) & (ends <= self.ends[at]), at


class _Fields:
    """Where the fields of the records of a run lie in its data."""

    def __init__(self, run: RecordRun) -> None:
        self._run = run

    def span(self, rows: Mask) -> range:
        """Return where the fields of some records lie: from the first to the last of them."""
        run = self._run
        start, end = len(run.data), 0
        for starts, sizes in ((run.key_start, run.key_size), (run.value_start, run.value_size)):
            there = rows & (sizes > 0)
            if there.any():
                start = min(start, int(starts[there].min()))
                end = max(end, int((starts[there] + sizes[there]).max()))
        with_headers = np.flatnonzero(rows & (run.headers_count > 0))
        if len(with_headers):
            starts = run.columns[c.HEADERS_START, with_headers]
            start = min(start, int(starts.min()))
            end = max(end, *(at + size for at, size in run.header_fields(int(with_headers[starts.argmax()]))))
        return range(min(start, end), end)

    @cached_property
    def _keys(self) -> _Sorted:
        rows = np.flatnonzero(self._run.key_size > 0)
        return _Sorted.of(self._run.key_start[rows], self._run.key_size[rows], rows)

    @cached_property
    def _values(self) -> _Sorted:
        rows = np.flatnonzero(self._run.value_size > 0)
        return _Sorted.of(self._run.value_start[rows], self._run.value_size[rows], rows)

    @cached_property
    def _headers(self) -> _Sorted:
        """All names and values of headers, read one by one: only for runs with keys outside of keys and values."""
        header_fields = [
            (start, size, row)
            for row in np.flatnonzero(self._run.headers_count > 0).tolist()
            for start, size in self._run.header_fields(row)
            if size > 0
        ]
        return _Sorted.of(*np.array(header_fields, np.int64).reshape(-1, 3).T)

    def places(self, positions: Column, sizes: Column) -> Iterator[tuple[Place, Column, Column]]:
        """Yield the places of hits: the numbers of the hits that are there, and the rows of their records."""
        ends = positions + sizes
        in_key, at = self._keys.around(positions, ends)
        if in_key.any():
            hits, at = np.flatnonzero(in_key), at[in_key]
            rows = self._keys.rows[at]
            is_whole = (self._keys.starts[at] == positions[hits]) & (self._keys.ends[at] == ends[hits])
            is_tombstone = self._run.value_size[rows] < 0
            for place, is_there in (
                (Place.KEY, is_whole & ~is_tombstone),
                (Place.TOMBSTONE, is_whole & is_tombstone),
                (Place.IN_KEY, ~is_whole),
            ):
                if is_there.any():
                    yield place, hits[is_there], rows[is_there]
        left = np.flatnonzero(~in_key)
        for place, fields in ((Place.IN_VALUE, "_values"), (Place.IN_HEADERS, "_headers")):
            if len(left):
                own: _Sorted = getattr(self, fields)
                inside, at = own.around(positions[left], ends[left])
                if inside.any():
                    yield place, left[inside], own.rows[at[inside]]
                left = left[~inside]
