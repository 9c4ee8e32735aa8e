"""Walks over the offsets of a log: where a reader finds one that is more than one above the offset before it.

A `Walk` is the result for a range of offsets. `a + b` is the walk over two ranges, `a` before `b`, so the segments of a
log can be walked at the same time. A *run* is a range of offsets, each of which has a record.

    offset    0  1  2  3  4  5  6  7  8  9
    record    x  x  .  .  x  M  x  .  x  .        x: a row, M: a transaction marker

Without the marker, two gaps: at offset 4, the third row, and at 8, the fifth. A walk that passes over the marker finds
nothing missing at 6; one that does not has a third gap there.

`Gaps` is what is found about a whole log: its walks, what took the offsets, and the evidence of a compaction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from enum import StrEnum
from operator import add
from typing import NamedTuple

import numpy as np

from kcompact.errors import KcompactError
from kcompact.kernels import Column, Mask
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """A row: its offset, its number among the rows, the base offset of its segment, the position of its batch."""

    offset: int
    row: int
    segment: int
    position: int

    def after(self, rows: int) -> GapRow:
        """Return the place with so many rows before those of its walk."""
        return replace(self, row=self.row + rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What a reader of a range of offsets sees: rows, and offsets that are missing.

    `missing_before` are those before the first row; all of them if there is no row. `missing_after` follow the last
    row. `gaps` are between two rows and have `missing_between` offsets; `first_gap` and `last_gap` are the rows after.
    """

    rows: int = 0
    first: GapRow | None = None
    last_offset: int | None = None
    gaps: int = 0
    first_gap: GapRow | None = None
    last_gap: GapRow | None = None
    missing_before: int = 0
    missing_between: int = 0
    missing_after: int = 0

    @property
    def missing(self) -> int:
        """The offsets of the range that have no row and were not passed over."""
        return self.missing_before + self.missing_between + self.missing_after

    def __add__(self, later: Walk) -> Walk:
        if later.first is None:
            if self.first is None:
                return replace(self, missing_before=self.missing_before + later.missing_before)
            return replace(self, missing_after=self.missing_after + later.missing_before)
        if self.first is None:
            return replace(later, missing_before=self.missing_before + later.missing_before)
        missing_at_joint = self.missing_after + later.missing_before
        at_joint = later.first.after(self.rows) if missing_at_joint else None
        return Walk(
            rows=self.rows + later.rows,
            first=self.first,
            last_offset=later.last_offset,
            gaps=self.gaps + later.gaps + (missing_at_joint > 0),
            first_gap=self.first_gap or at_joint or (later.first_gap and later.first_gap.after(self.rows)),
            last_gap=(later.last_gap and later.last_gap.after(self.rows)) or at_joint or self.last_gap,
            missing_before=self.missing_before,
            missing_between=self.missing_between + missing_at_joint + later.missing_between,
            missing_after=later.missing_after,
        )


class Runs(NamedTuple):
    """Runs of records in ascending order: first and last offsets, and the position of the batch of each."""

    first: Column
    last: Column
    position: Column

    def chosen(self, mask: Mask) -> Runs:
        """Return the runs that a mask marks."""
        return Runs(*(column[mask] for column in self))

    def between(self, start_offset: int, end_offset: int) -> tuple[Runs, Mask]:
        """Return the parts of the runs in [`start_offset`, `end_offset`), and which runs have one."""
        mask = (self.last >= start_offset) & (self.first < end_offset)
        first, last, position = self.chosen(mask)
        return Runs(np.maximum(first, start_offset), np.minimum(last, end_offset - 1), position), mask


def walk(
    runs: Runs, is_row: Mask, *, start_offset: int, end_offset: int, segment: int, passes_over: Mask | None = None
) -> Walk:
    """Return the walk over the offsets [`start_offset`, `end_offset`) of a segment, in which all runs lie.

    Rows are the records of the runs that `is_row` marks. The records that `passes_over` marks are neither rows nor
    missing.
    """
    lengths = runs.last - runs.first + 1
    passed = np.zeros(len(lengths), np.int64) if passes_over is None else np.cumsum(np.where(passes_over, lengths, 0))
    passed_total = int(passed[-1]) if len(passed) else 0
    if not is_row.any():
        return Walk(missing_before=end_offset - start_offset - passed_total)
    rows = runs.chosen(is_row)
    passed = passed[is_row]
    previous_end = np.concatenate(([start_offset], rows.last[:-1] + 1))
    missing = rows.first - previous_end - np.diff(passed, prepend=0)
    row_numbers = np.cumsum(lengths[is_row]) - lengths[is_row] + 1
    gaps = np.flatnonzero(missing[1:]) + 1

    def place(number: int) -> GapRow:
        return GapRow(
            offset=int(rows.first[number]),
            row=int(row_numbers[number]),
            segment=segment,
            position=int(rows.position[number]),
        )

    return Walk(
        rows=int(lengths[is_row].sum()),
        first=place(0),
        last_offset=int(rows.last[-1]),
        gaps=len(gaps),
        first_gap=place(gaps[0]) if len(gaps) else None,
        last_gap=place(gaps[-1]) if len(gaps) else None,
        missing_before=int(missing[0]),
        missing_between=int(missing[1:].sum()),
        missing_after=end_offset - 1 - int(rows.last[-1]) - (passed_total - int(passed[-1])),
    )


# What is found

_GREATEST = frozenset({"missing_to", "stamped_to", "last_horizon_ms"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCounts:
    """How many offsets of a range have a record, by kind, and what took the others. `a + b`: `a` lies before `b`.

    `batches_without_some` have lost records and have others; some of them have also lost their tail. `missing_to` is
    the greatest missing offset, `stamped_to` the last offset of the last batch with a delete horizon, and
    `last_horizon_ms` the greatest horizon; -1 for none. An offset index can have about `index_slots` entries.
    """

    batches: int = 0
    data_offsets: int = 0
    aborted_offsets: int = 0
    control_offsets: int = 0
    between_batches: int = 0
    inside_batches: int = 0
    in_lost_tails: int = 0
    in_empty_batches: int = 0
    batches_without_some: int = 0
    batches_without_tail: int = 0
    emptied_batches: int = 0
    stamped_batches: int = 0
    missing_to: int = -1
    stamped_to: int = -1
    last_horizon_ms: int = -1
    index_slots: int = 0

    @property
    def present(self) -> int:
        """The offsets that have a record, of data or of a marker."""
        return self.data_offsets + self.control_offsets

    @property
    def missing(self) -> int:
        """The offsets that have none."""
        return self.between_batches + self.inside_batches + self.in_lost_tails + self.in_empty_batches

    def __add__(self, later: OffsetCounts) -> OffsetCounts:
        return OffsetCounts(
            **{
                each.name: (max if each.name in _GREATEST else add)(getattr(self, each.name), getattr(later, each.name))
                for each in fields(OffsetCounts)
            }
        )


class Label(StrEnum):
    """How much a fact says."""

    PROOF = "proof"
    HINT = "hint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One fact: a sentence, and its values by name. `name` is stable, the text is not."""

    label: Label
    name: str
    text: str
    values: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapWalk:
    """What one reader of the log finds: rows, gaps between them, and the first and the last gap.

    Rows and offsets are None without a row, and the gap fields without a gap; then all rows are contiguous. The ratio
    is that of the rows to the offsets of the log, None for a log without offsets.
    """

    rows: int
    gaps: int
    first_gap_offset: int | None
    last_gap_offset: int | None
    last_gap_row: int | None
    last_gap_timestamp_ms: int | None
    last_offset: int | None
    last_row: int | None
    contiguous_rows_since_gap: int | None
    offsets_present_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentGaps:
    """The offsets of one segment. `first_offset` is that of its first record, of data or of a marker.

    `gaps` are those of the log that end at a row of this segment; `first_gap_offset` and `last_gap_offset` are such
    rows.
    """

    base_offset: int
    end_offset: int
    counts: OffsetCounts
    first_offset: int | None
    gaps: int
    first_gap_offset: int | None
    last_gap_offset: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """Where offsets of a log are missing.

    `on_disk` is the walk over the files, in which markers are no gaps. In `read_uncommitted` and `read_committed`, the
    walks of consumers, they are; the former ends at the high watermark, the latter at the last stable offset, and has
    aborted records as gaps. `dirty` are the rows and the missing offsets from the first dirty offset on. What is
    missing before the first row and after the last one is None without a row. The count ended at `counted_to_offset`,
    with `damage` before the log end. Damage to records that were not needed is not found.
    """

    log_start_offset: int
    log_end_offset: int
    counted_to_offset: int
    first_dirty_offset: int
    checkpoint_offset: int | None
    on_disk: GapWalk
    read_uncommitted: GapWalk
    read_committed: GapWalk
    dirty: Walk
    missing_before_first_row: int | None
    missing_after_last_row: int | None
    counts: OffsetCounts
    segments: tuple[SegmentGaps, ...]
    evidence: tuple[Evidence, ...]
    damage: KcompactError | None = None
