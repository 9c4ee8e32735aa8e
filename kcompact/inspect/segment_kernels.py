"""What a segment contains, counted by the kernels: the fast twin of the walks in `survey`.

`headers_of` hops from header to header, as far as it goes; `verified_contents` looks at every byte, and gives up at the
first thing that is not as it should be. What they leave is for the readable walks, which word what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from kcompact import kernels
from kcompact.errors import KcompactError
from kcompact.format.batch import Batch, read_header
from kcompact.format.index import EntryColumns, OffsetEntry
from kcompact.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    COLUMNS,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    DONE,
    EPOCH,
    FULL,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    RECORDS_COUNT,
    SIZE,
    TRANSACTIONAL_BIT,
    Bytes,
    Column,
    Table,
)
from kcompact.log.batch_headers import read_marker
from kcompact.log.files import open_regular, read_into
from kcompact.log.header_table import header_tables
from kcompact.log.inflate import Buffers, inflated_runs

TABLE_ROWS = 16_384
WINDOW_BYTES = 8 << 20
MAX_OFFSET = (1 << 63) - 1

Work = TypeVar("Work")
Done = TypeVar("Done")


class Ends:
    """Where batches start and the last offset of each: like a dict of positions, and quick to compare with an index."""

    def __init__(self, positions: Column, last_offsets: Column) -> None:
        self._positions, self._last_offsets = positions, last_offsets

    def __iter__(self) -> Iterator[int]:
        return iter(self._positions.tolist())

    def get(self, position: int) -> int | None:
        """Return the last offset of the batch that starts at `position`, None where none does."""
        at = int(self._positions.searchsorted(position))
        is_there = at < len(self._positions) and self._positions[at] == position
        return int(self._last_offsets[at]) if is_there else None

    def agree_with(self, entries: EntryColumns[OffsetEntry], base_offset: int) -> bool:
        """Whether each entry of an offset index is the start of a batch, and its last offset."""
        at = self._positions.searchsorted(entries.second)
        if len(at) and at[-1] >= len(self._positions):
            return False
        is_start = self._positions[at] == entries.second
        return bool((is_start & (self._last_offsets[at] == entries.first + base_offset)).all())


@dataclass(slots=True, kw_only=True)
class Counts:
    """The counts of the batches seen so far. `first_epoch` is that of the first batch that has one, -1 without any."""

    batches: int = 0
    records: int = 0
    empty_batches: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    horizon_batches: int = 0
    walked_bytes: int = 0
    first_offset: int | None = None
    first_timestamp_ms: int | None = None
    last_offset: int | None = None
    largest_timestamp_ms: int | None = None
    tombstones: int = 0
    null_keys: int = 0
    first_epoch: int = -1
    last_epoch: int = -1
    starts: list[Column] = field(default_factory=list)
    ends: list[Column] = field(default_factory=list)

    def add(self, table: Table) -> None:
        """Count a run of batches."""
        if not len(table):
            return
        attributes, records = table[:, ATTRIBUTES], table[:, RECORDS_COUNT]
        self.batches += len(table)
        self.records += int(records.sum())
        self.empty_batches += int(np.count_nonzero(records == 0))
        self.control_batches += int(np.count_nonzero(attributes & CONTROL_BIT))
        self.transactional_batches += int(np.count_nonzero(attributes & TRANSACTIONAL_BIT))
        self.horizon_batches += int(np.count_nonzero(attributes & DELETE_HORIZON_BIT))
        self.walked_bytes += int(table[:, SIZE].sum())
        largest = int(table[:, MAX_TIMESTAMP].max())
        if self.first_offset is None or self.largest_timestamp_ms is None:
            self.first_offset = int(table[0, BASE_OFFSET])
            self.first_timestamp_ms = int(table[0, MAX_TIMESTAMP])
            self.largest_timestamp_ms = largest
        self.largest_timestamp_ms = max(self.largest_timestamp_ms, largest)
        self.last_offset = int(table[-1, LAST_OFFSET])

    def remember(self, table: Table, position: int) -> None:
        """Keep where these batches lie, behind `position` of the file, and their leader epochs."""
        self.starts.append(table[:, POSITION] + position)
        self.ends.append(table[:, LAST_OFFSET].copy())
        epochs = table[table[:, EPOCH] >= 0, EPOCH]
        if len(epochs):
            self.first_epoch = int(epochs[0]) if self.first_epoch < 0 else self.first_epoch
            self.last_epoch = int(epochs[-1])

    def positions(self) -> Ends:
        """Return where the remembered batches start and end."""
        none = [np.empty(0, np.int64)]
        return Ends(np.concatenate(self.starts or none), np.concatenate(self.ends or none))


def side_by_side(work: Callable[[Work], Done], pieces: Iterable[Work]) -> Iterator[Done]:
    """Yield what `work` makes of each, in order; as many at a time as there are processors for this process.

    The kernels run without the interpreter's lock, so threads do.
    """
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    try:
        yield from pool.map(work, pieces)
    finally:
        pool.shutdown(cancel_futures=True)  # Whoever stops listening does not wait for what has not begun.


def headers_of(path: Path) -> Counts:
    """Return the counts of the batches up to the first one that the kernel does not know, or that is damaged.

    Where `walked_bytes` is less than the file has, something is left for `log.headers`.
    """
    counts = Counts()
    try:
        for table in header_tables(path, end_position=path.stat().st_size):
            counts.add(table)
    except (KcompactError, OSError):
        pass
    return counts


def verified_contents(path: Path, *, base_offset: int, end_offset: int | None) -> Counts | None:
    """Return the counts of a segment in which nothing is wrong; None where something is, or is of magic 0 or 1.

    Every byte is read and what `survey.verify` checks of a segment's batches is checked, but for the leader epochs of
    other segments. `end_offset` is the base of the next segment, None for the last.
    """
    counts = Counts()
    end_offset = MAX_OFFSET if end_offset is None else end_offset
    table, window = np.empty((TABLE_ROWS, COLUMNS), np.int64), np.empty(WINDOW_BYTES, np.uint8)
    buffers = Buffers()
    try:
        with open_regular(path) as descriptor:
            size_bytes = os.fstat(descriptor).st_size
            while counts.walked_bytes < size_bytes:
                position = counts.walked_bytes
                data = window[: min(len(window), size_bytes - position)]
                if read_into(descriptor, data.data, position, path=path) < len(data):
                    return None
                if not _count_window(data, counts, table, buffers, path, base_offset, end_offset):
                    return None
                if counts.walked_bytes == position:  # One batch is larger than the window, or this is no batch.
                    batch_bytes = int.from_bytes(data[8:12].tobytes(), "big", signed=True) + 12
                    if not len(data) < batch_bytes <= size_bytes - position:
                        return None
                    window = np.empty(batch_bytes, np.uint8)
    except KcompactError:
        return None
    return counts


def _count_window(
    data: Bytes, counts: Counts, table: Table, buffers: Buffers, path: Path, base_offset: int, end_offset: int
) -> bool:
    """Count the whole batches at the start of `data`; return whether all that was looked at is as it should be."""
    start = counts.walked_bytes
    code = FULL
    while code == FULL:
        position = counts.walked_bytes
        rest = data[position - start :]
        above = base_offset if counts.last_offset is None else counts.last_offset + 1
        count, _, code = kernels.walk(rest, len(rest), above, end_offset, counts.last_epoch, table)
        if not _count_records(rest, counts, table[:count], buffers, path, position):
            return False
        counts.remember(table[:count], position)
        counts.add(table[:count])
    return True  # If the kernel stopped at damage, the next window starts there and counts nothing.


def _count_records(buffer: Bytes, counts: Counts, table: Table, buffers: Buffers, path: Path, position: int) -> bool:
    """Look at the records of some batches and count tombstones; return whether they are as they should be."""
    is_control = table[:, ATTRIBUTES] & CONTROL_BIT != 0
    for number in np.flatnonzero(is_control).tolist():
        read_marker(_batch(buffer, table[number], path, position), file=str(path))
    found = np.empty((len(table), 3), np.int64)
    for first, end, inflated in inflated_runs(buffer, table, buffers, file=path, start_position=position):
        _, _, code = kernels.verify_records(buffer, inflated, table, first, end, found)
        if code != DONE:
            return False
    counts.tombstones += int(found[~is_control, 0].sum())
    counts.null_keys += int(found[~is_control, 1].sum())
    return bool((found[:, 2] == table[:, MAX_TIMESTAMP]).all())


def _batch(buffer: Bytes, row: Column, path: Path, position: int) -> Batch:
    start = int(row[POSITION])
    data = buffer.data[start : start + int(row[SIZE])]
    return Batch(position + start, read_header(data, file=str(path), position=position + start), data)
