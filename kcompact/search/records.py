"""Searches the records of a run of batches: which field of which record a key lies in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column
from kcompact.kernels import columns as c
from kcompact.log.records import Mask, RecordRun
from kcompact.search.finder import Finder
from kcompact.search.findings import Findings, Place


def search_run(run: RecordRun, finder: Finder, findings: Findings, file: Path) -> int:
    """Search the keys, values and headers of the records of a run. Return how many bytes of them were inflated.

    A key that goes over from one field to the next is in neither.
    """
    fields = _Fields(run)
    is_inflated = run.batch_column(c.ATTRIBUTES) & c.CODEC_MASK != 0
    inflated, plain = fields.span(is_inflated), fields.span(~is_inflated)
    # They are apart where the kernels have decoded the records. The definition has put them one after the other.
    are_apart = inflated.stop <= plain.start or plain.stop <= inflated.start
    whole = range(min(inflated.start, plain.start), max(inflated.stop, plain.stop))
    for span in (inflated, plain) if are_apart else (whole,):
        for positions, numbers in finder.find(run.data[span.start : span.stop]):
            for place, hits, records in fields.places(positions + span.start, finder.sizes[numbers]):
                batches = run.start_position + run.table[run.batch[records], c.POSITION]
                findings.add(file, place, numbers[hits], batches, run.offset[records])
    return len(inflated) if are_apart else fields.bytes_of(is_inflated)


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

    def bytes_of(self, rows: Mask) -> int:
        """Return the bytes of the keys and values of some records."""
        return int(sum(sizes[rows & (sizes > 0)].sum() for sizes in (self._run.key_size, self._run.value_size)))

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
        found = [
            (start, size, row)
            for row in np.flatnonzero(self._run.headers_count > 0).tolist()
            for start, size in self._run.header_fields(row)
            if size > 0
        ]
        return _Sorted.of(*np.array(found, np.int64).reshape(-1, 3).T)

    def places(self, positions: Column, sizes: Column) -> Iterator[tuple[Place, Column, Column]]:
        """Yield the places of hits: the numbers of the hits that are there, and the rows of their records."""
        ends = positions + sizes
        in_key, at = self._keys.around(positions, ends)
        if in_key.any():
            hits, at = np.flatnonzero(in_key), at[in_key]
            rows = self._keys.rows[at]
            is_whole = (self._keys.starts[at] == positions[hits]) & (self._keys.ends[at] == ends[hits])
            is_tombstone = self._run.value_size[rows] < 0
            for place, those in (
                (Place.KEY, is_whole & ~is_tombstone),
                (Place.TOMBSTONE, is_whole & is_tombstone),
                (Place.IN_KEY, ~is_whole),
            ):
                if those.any():
                    yield place, hits[those], rows[those]
        left = np.flatnonzero(~in_key)
        for place, fields in ((Place.IN_VALUE, "_values"), (Place.IN_HEADERS, "_headers")):
            if len(left):
                own: _Sorted = getattr(self, fields)
                inside, at = own.around(positions[left], ends[left])
                if inside.any():
                    yield place, left[inside], own.rows[at[inside]]
                left = left[~inside]
