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
from typing import NamedTuple

import numpy as np

from kcompact.errors import CorruptBatchError, KcompactError
from kcompact.kernels import Column, Mask, Rows, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_tables
from kcompact.log.files import LogFile
from kcompact.log.markers import are_control
from kcompact.log.records import record_runs
from kcompact.questions.gaps.walks import OffsetCounts, Runs

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
    """Return which batches have records, but not one for each offset, or lie on both sides of the log start.

    Of a compressed batch of magic 0 or 1 the header does not tell the number of its records.
    """
    span = table[:, c.LAST_OFFSET] - table[:, c.BASE_OFFSET] + 1
    has_start = (table[:, c.BASE_OFFSET] < log_start_offset) & (table[:, c.LAST_OFFSET] >= log_start_offset)
    is_incomplete: Mask = (table[:, c.RECORDS_COUNT] != 0) & ((table[:, c.RECORDS_COUNT] != span) | has_start)
    return is_incomplete


def chunks(file: LogFile, *, end_position: int, log_start_offset: int, memory_bytes: int) -> Iterator[Chunk]:
    """Yield the batches of a segment. Raises CorruptBatchError, BatchTooLargeError, RefusedError, StorageError."""
    for table in header_tables(file, end_position=end_position):
        rows = np.flatnonzero(is_broken(table, log_start_offset))
        run_tables = [np.empty((0, 3), np.int64)]
        try:
            run_tables.append(_broken_runs(file, table, rows, memory_bytes))
        except KcompactError:
            # What lies between the incomplete batches need not be readable.
            for number in range(len(rows)):
                try:
                    run_tables.append(_broken_runs(file, table, rows[number : number + 1], memory_bytes))
                except KcompactError:
                    if rows[number]:
                        yield _chunk(table[: rows[number]], run_tables)
                    raise
        yield _chunk(table, run_tables)


def _chunk(table: Table, run_tables: list[Table]) -> Chunk:
    """Return batches with their runs. Those of magic 0 and 1 get their first offsets and their numbers of records."""
    broken = np.concatenate(run_tables)
    rows, firsts, lasts = broken.T
    is_legacy = table[rows, c.MAGIC] < 2
    rows, firsts, lasts = rows[is_legacy], firsts[is_legacy], lasts[is_legacy]
    table[rows, c.RECORDS_COUNT] = 0
    np.add.at(table[:, c.RECORDS_COUNT], rows, lasts - firsts + 1)
    table[rows[::-1], c.BASE_OFFSET] = firsts[::-1]  # Of several runs of a batch the first one stays.
    return Chunk(table, broken)


def _broken_runs(file: LogFile, table: Table, rows: Rows, memory_bytes: int) -> Table:
    """Return the runs of the records of some batches, and read what lies between them if that is not much.

    Raises CorruptBatchError, BatchTooLargeError, StorageError.
    """
    ends = table[:, c.POSITION] + table[:, c.SIZE]
    is_wanted = np.zeros(len(table), np.bool_)
    is_wanted[rows] = True
    is_far = table[rows[1:], c.POSITION] - ends[rows[:-1]] > _HOLE_BYTES
    run_tables = [np.empty((0, 3), np.int64)]
    for span in np.split(rows, np.flatnonzero(is_far) + 1) if len(rows) else ():
        row, end_position = int(span[0]), int(ends[span[-1]])
        start_position = int(table[row, c.POSITION])
        for run in record_runs(
            file, start_position=start_position, end_position=end_position, memory_bytes=memory_bytes
        ):
            mask = is_wanted[row + run.batch]
            run_tables.append(_runs_of_rows(row + run.batch[mask], run.offset[mask]))
            row += len(run.table)
    return np.concatenate(run_tables)


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
    is_control = are_control(table)[rows]
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
    gaps = np.flatnonzero(starts > ends_before)
    return int(starts[gaps[-1]]) - 1 if len(gaps) else -1
