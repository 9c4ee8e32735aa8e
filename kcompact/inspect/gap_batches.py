"""Which offsets of a segment have a record, and what took the others: the input of the walks of `gap_walk`.

The headers tell it for most batches: one with as many records as offsets has them all. Only the records of the others
are read. A cleaning keeps the first and the last offset of a batch that loses records, so on the disk these differ:

    between batches   no batch has the offset: whole batches were removed
    inside a batch    the record was removed, and a later one of its batch is left
    lost tail         the last records of a batch were removed; only its header tells the last offset
    empty batch       all records were removed; the header is kept for its producer, or for the end of the cleaned range
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.format.batch import Batch, Header, read_records, verify_crc
from kcompact.inspect.gap_walk import Mask, OffsetCounts, Runs
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_runs import tables_and_headers
from kcompact.log.files import LogFile
from kcompact.log.records import record_runs
from kcompact.log.segment_reader import batches, headers

CHUNK_BATCHES = 4096
_HOLE_BYTES = 256 << 10
"""So many bytes between two batches are read with them: that is faster than two reads."""


class Chunk(NamedTuple):
    """Consecutive batches of a segment, and the runs of the records of those that are incomplete.

    `broken` has columns for the row of a batch, and the first and the last offset of a run.
    """

    table: Table
    broken: Table

    @property
    def last_offset(self) -> int:
        """The last offset of the last batch."""
        return int(self.table[-1, c.LAST_OFFSET])

    @property
    def end_position(self) -> int:
        """The position in the file after the last batch."""
        return int(self.table[-1, c.POSITION] + self.table[-1, c.SIZE])


def is_broken(table: Table, log_start_offset: int) -> Mask:
    """Return which batches have records, but not one for each offset, or lie on both sides of the log start."""
    span = table[:, c.LAST_OFFSET] - table[:, c.BASE_OFFSET] + 1
    has_start = (table[:, c.BASE_OFFSET] < log_start_offset) & (table[:, c.LAST_OFFSET] >= log_start_offset)
    found: Mask = (table[:, c.RECORDS_COUNT] > 0) & ((table[:, c.RECORDS_COUNT] != span) | has_start)
    return found


def _is_broken(header: Header, log_start_offset: int) -> bool:
    """Return the same for one batch. The records of a compressed batch of magic 0 or 1 are not known."""
    has_start = header.base_offset < log_start_offset <= header.last_offset
    return header.records_count != 0 and (has_start or header.records_count != header.last_offset_delta + 1)


def chunks(file: LogFile, *, end_position: int, log_start_offset: int, memory_bytes: int) -> Iterator[Chunk]:
    """Yield the batches of a segment. Raises CorruptBatchError, RefusedError, StorageError.

    The kernels read them up to the first batch that they cannot confirm, and the definition reads the rest.
    """
    position = 0
    with suppress(KcompactError):
        for table in tables_and_headers(file, end_position=end_position):
            if isinstance(table, tuple):
                break
            chunk = Chunk(table, _broken_runs(file, table, log_start_offset, memory_bytes))
            yield chunk
            position = chunk.end_position
    yield from _by_definition(file, position, end_position, log_start_offset, memory_bytes)


# By the definition


def _by_definition(
    file: LogFile, start_position: int, end_position: int, log_start_offset: int, memory_bytes: int
) -> Iterator[Chunk]:
    rows: list[list[int]] = []
    broken: list[tuple[int, int, int]] = []
    try:
        for position, header in headers(file, start_position=start_position, end_position=end_position):
            row = _row(header, position)
            if _is_broken(header, log_start_offset):
                offsets = _offsets(file, position, header, memory_bytes)
                if header.magic < 2:
                    row[c.BASE_OFFSET], row[c.RECORDS_COUNT] = offsets[0], len(offsets)
                broken += ((len(rows), first, last) for first, last in runs_of(offsets))
            rows.append(row)
            if len(rows) == CHUNK_BATCHES:
                yield _chunk(rows, broken)
                rows, broken = [], []
    except KcompactError:
        if rows:
            yield _chunk(rows, broken)
        raise
    if rows:
        yield _chunk(rows, broken)


def _chunk(rows: list[list[int]], broken: list[tuple[int, int, int]]) -> Chunk:
    return Chunk(np.array(rows, np.int64).reshape(-1, c.COLUMNS), np.array(broken, np.int64).reshape(-1, 3))


def _row(header: Header, position: int) -> list[int]:
    """Return a batch as a row of a table, without what this module does not use."""
    row = [0] * c.COLUMNS
    row[c.POSITION], row[c.SIZE] = position, header.size_bytes
    row[c.BASE_OFFSET], row[c.LAST_OFFSET] = header.base_offset, header.last_offset
    row[c.ATTRIBUTES], row[c.BASE_TIMESTAMP] = header.attributes if header.magic == 2 else 0, header.base_timestamp
    row[c.PRODUCER_ID], row[c.RECORDS_COUNT] = header.producer_id, header.records_count
    return row


def _offsets(file: LogFile, position: int, header: Header, memory_bytes: int) -> list[int]:
    """Return the offsets of the records of a batch. Raises CorruptBatchError, BatchTooLargeError."""
    batch = read_batch(file, position, header.size_bytes, memory_bytes)
    return [record.offset for record in read_records(batch, file=str(file), memory_bytes=memory_bytes)]


def read_batch(file: LogFile, position: int, size_bytes: int | None, memory_bytes: int) -> Batch:
    """Return the batch at a position of a file, verified; without its size, up to the end of the file.

    Raises CorruptBatchError, BatchTooLargeError, StorageError.
    """
    end = None if size_bytes is None else position + size_bytes
    batch = next(batches(file, start_position=position, end_position=end, memory_bytes=memory_bytes))
    verify_crc(batch, file=str(file))
    return batch


def runs_of(offsets: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of consecutive offsets."""
    first = previous = None
    for offset in offsets:
        if previous is None or first is None or offset != previous + 1:
            if first is not None and previous is not None:
                yield first, previous
            first = offset
        previous = offset
    if first is not None and previous is not None:
        yield first, previous


# By kernels


def _broken_runs(file: LogFile, table: Table, log_start_offset: int, memory_bytes: int) -> Table:
    """Return the runs of the incomplete batches. Raises CorruptBatchError, BatchTooLargeError, StorageError."""
    wanted = is_broken(table, log_start_offset)
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return np.empty((0, 3), np.int64)
    ends = table[:, c.POSITION] + table[:, c.SIZE]
    is_far = table[rows[1:], c.POSITION] - ends[rows[:-1]] > _HOLE_BYTES
    found = []
    for span in np.split(rows, np.flatnonzero(is_far) + 1):
        row, end_position = int(span[0]), int(ends[span[-1]])
        start_position = int(table[row, c.POSITION])
        for run in record_runs(
            file,
            start_position=start_position,
            end_position=end_position,
            memory_bytes=memory_bytes,
        ):
            is_wanted = wanted[row + run.batch]
            found.append(_runs_of_rows(row + run.batch[is_wanted], run.offset[is_wanted]))
            row += len(run.table)
    return np.concatenate(found)


def _runs_of_rows(rows: Column, offsets: Column) -> Table:
    """Return the runs of some records: the row of the batch, the first and the last offset of each."""
    is_first = np.ones(len(rows), bool)
    is_first[1:] = (np.diff(rows) != 0) | (np.diff(offsets) != 1)
    is_last = np.append(is_first[1:], True)[: len(rows)]
    return np.stack((rows[is_first], offsets[is_first], offsets[is_last]), axis=1)


# What took the offsets


class CountedChunk(NamedTuple):
    """The runs of the records of some batches, of which kind each is, and the counts."""

    runs: Runs
    is_control: Mask
    is_aborted: Mask
    counts: OffsetCounts
    end_offset: int


def count(chunk: Chunk, is_aborted: Mask, *, start_offset: int, index_interval_bytes: int) -> CountedChunk:
    """Return the runs and the counts of the batches that have offsets from `start_offset` on.

    `is_aborted` marks the batches of aborted transactions. `start_offset` is the log start, or the offset after the
    batches before. The offsets rise, see `rising`.
    """
    table = chunk.table
    end_offset = int(table[-1, c.LAST_OFFSET]) + 1
    base_offsets = np.maximum(table[:, c.BASE_OFFSET], start_offset)
    ends_before = np.concatenate(([start_offset], np.maximum(table[:-1, c.LAST_OFFSET] + 1, start_offset)))
    is_visible = table[:, c.LAST_OFFSET] >= start_offset
    is_empty = is_visible & (table[:, c.RECORDS_COUNT] == 0)
    is_whole = is_visible & ~is_empty
    is_whole[chunk.broken[:, 0]] = False

    runs, rows = _all_runs(chunk, np.flatnonzero(is_whole), start_offset)
    is_control = table[rows, c.ATTRIBUTES] & c.CONTROL_BIT != 0
    lengths = runs.last - runs.first + 1
    present = np.bincount(rows, weights=lengths, minlength=len(table)).astype(np.int64)
    last_present = base_offsets - 1
    last_present[rows] = runs.last  # Of several runs of a batch the last one stays.

    span = np.where(is_visible, table[:, c.LAST_OFFSET] - base_offsets + 1, 0)
    missing = span - present
    tails = np.where(is_visible & ~is_empty, table[:, c.LAST_OFFSET] - last_present, 0)
    between = np.where(is_visible, base_offsets - ends_before, 0)
    is_stamped = is_visible & (table[:, c.ATTRIBUTES] & c.DELETE_HORIZON_BIT != 0)
    slot_bytes = index_interval_bytes + 1
    is_indexed = table[:, c.POSITION] // slot_bytes != (table[:, c.POSITION] + table[:, c.SIZE]) // slot_bytes
    counts = OffsetCounts(
        index_slots=int(np.count_nonzero(is_indexed)),
        batches=int(np.count_nonzero(is_visible)),
        data_offsets=int(lengths[~is_control].sum()),
        aborted_offsets=int(lengths[is_aborted[rows] & ~is_control].sum()),
        control_offsets=int(lengths[is_control].sum()),
        between_batches=int(between.sum()),
        inside_batches=int((missing - tails)[~is_empty].sum()),
        in_lost_tails=int(tails.sum()),
        in_empty_batches=int(missing[is_empty].sum()),
        batches_without_some=int(np.count_nonzero(missing[~is_empty])),
        batches_without_tail=int(np.count_nonzero(tails)),
        emptied_batches=int(np.count_nonzero(is_empty)),
        stamped_batches=int(np.count_nonzero(is_stamped)),
        missing_to=_last_missing(runs, start_offset, end_offset),
        stamped_to=int(table[is_stamped, c.LAST_OFFSET].max(initial=-1)),
        last_horizon_ms=int(table[is_stamped, c.BASE_TIMESTAMP].max(initial=-1)),
    )
    return CountedChunk(runs, is_control, is_aborted[rows], counts, max(end_offset, start_offset))


def rising(
    chunk: Chunk, *, after_offset: int, end_offset: int, file: LogFile
) -> tuple[Chunk, CorruptBatchError | None]:
    """Return the batches up to the first one that does not lie above the one before and below `end_offset`.

    With that one comes its error. `after_offset` is the last offset before the batches.
    """
    table = chunk.table
    before = np.concatenate(([after_offset], table[:-1, c.LAST_OFFSET]))
    wrong = np.flatnonzero((table[:, c.BASE_OFFSET] <= before) | (table[:, c.LAST_OFFSET] >= end_offset))
    if not len(wrong):
        return chunk, None
    row = int(wrong[0])
    offset = int(table[row, c.BASE_OFFSET])
    problem = f"base offset {offset} after offset {before[row]}"
    if offset > before[row]:
        problem = f"last offset {table[row, c.LAST_OFFSET]}, but the next segment starts at {end_offset}"
    error = CorruptBatchError(file=str(file), position=int(table[row, c.POSITION]), offset=offset, problem=problem)
    return Chunk(table[:row], chunk.broken[chunk.broken[:, 0] < row]), error


def _all_runs(chunk: Chunk, whole: Column, start_offset: int) -> tuple[Runs, Column]:
    """Return the runs from `start_offset` on in ascending order, and the row of the batch of each."""
    table, broken = chunk.table, chunk.broken
    rows = np.concatenate((whole, broken[:, 0]))
    runs = Runs(
        np.concatenate((table[whole, c.BASE_OFFSET], broken[:, 1])),
        np.concatenate((table[whole, c.LAST_OFFSET], broken[:, 2])),
        table[rows, c.POSITION],
    )
    order = np.argsort(runs.first, kind="stable")
    runs, mask = Runs(*(column[order] for column in runs)).between(start_offset, c.MAX_OFFSET)
    return runs, rows[order][mask]


def _last_missing(runs: Runs, start_offset: int, end_offset: int) -> int:
    """Return the greatest offset in the range that is in no run, -1 if there is none."""
    ends_before = np.concatenate(([start_offset], runs.last + 1))
    starts = np.append(runs.first, max(end_offset, start_offset))
    found = np.flatnonzero(starts > ends_before)
    return int(starts[found[-1]]) - 1 if len(found) else -1
