"""The counters of one segment, and the addition of batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import add

from kcompact import kernels
from kcompact.errors import KcompactError
from kcompact.format.batch import Header
from kcompact.kernels import BASE_OFFSET, LAST_OFFSET, MAX_TIMESTAMP, POSITION, SIZE

RUN_BATCHES = 1024
"""How many batches `BatchCounter` adds up at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContents:
    """What one segment contains. Times are Unix milliseconds; None means that there is no value.

    `end_position` is the end of the last batch that was read. It is less than the size of the file if the batches
    do not fill the file; `damage` says why. `first_timestamp_ms` is the maximum timestamp of the first batch, as in
    Kafka's planner, `largest_timestamp_ms` the greatest of all batches. `tombstones` and `null_keys` are None unless
    the records were read. The header of a compressed batch of magic 0 or 1 does not say how many records it has:
    `counted_records` are those of the other batches, and `uncounted_batches` says how many such batches were not read.

    `a + b` is the contents of two runs of batches of the same segment, `a` before `b`.
    """

    base_offset: int
    end_position: int = 0
    batches: int = 0
    counted_records: int = 0
    uncounted_batches: int = 0
    empty_batches: int = 0
    control_batches: int = 0
    transactional_batches: int = 0
    horizon_batches: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp_ms: int | None = None
    largest_timestamp_ms: int | None = None
    tombstones: int | None = None
    null_keys: int | None = None
    damage: KcompactError | None = None

    @property
    def records(self) -> int | None:
        """The number of records, None if that of a batch is not known."""
        return None if self.uncounted_batches else self.counted_records

    def __add__(self, later: SegmentContents) -> SegmentContents:
        assert self.base_offset == later.base_offset
        first, last = (self if self.batches else later), (later if later.batches else self)
        return SegmentContents(
            base_offset=self.base_offset,
            end_position=last.end_position,
            batches=self.batches + later.batches,
            counted_records=self.counted_records + later.counted_records,
            uncounted_batches=self.uncounted_batches + later.uncounted_batches,
            empty_batches=self.empty_batches + later.empty_batches,
            control_batches=self.control_batches + later.control_batches,
            transactional_batches=self.transactional_batches + later.transactional_batches,
            horizon_batches=self.horizon_batches + later.horizon_batches,
            first_offset=first.first_offset,
            last_offset=last.last_offset,
            first_timestamp_ms=first.first_timestamp_ms,
            largest_timestamp_ms=_combined(max, self.largest_timestamp_ms, later.largest_timestamp_ms),
            tombstones=_combined(add, self.tombstones, later.tombstones),
            null_keys=_combined(add, self.null_keys, later.null_keys),
            damage=self.damage or later.damage,
        )


def _combined(function: Callable[[int, int], int], earlier: int | None, later: int | None) -> int | None:
    if earlier is None or later is None:
        return later if earlier is None else earlier
    return function(earlier, later)


class BatchCounter:
    """Adds batches to the contents of a segment, in file order.

    Batches are added up in runs: a `SegmentContents` for each batch takes longer than reading its header.
    """

    def __init__(self, contents: SegmentContents) -> None:
        self._contents = contents
        self._run: list[tuple[int, Header]] = []

    def add(self, position: int, header: Header) -> None:
        """Add the batch that starts at a position of the file."""
        self._run.append((position, header))
        if len(self._run) >= RUN_BATCHES:
            self.contents()

    def contents(self) -> SegmentContents:
        """Return what the segment contains up to the last batch that was added."""
        if self._run:
            self._contents += _contents_of(self._run, self._contents.base_offset)
            self._run.clear()
        return self._contents


def _contents_of(run: Sequence[tuple[int, Header]], base_offset: int) -> SegmentContents:
    """Return what a run of at least one batch contains, given the position and header of each."""
    last_position, last = run[-1]
    run_headers = [header for _, header in run]
    first = run_headers[0]
    return SegmentContents(
        base_offset=base_offset,
        end_position=last_position + last.size_bytes,
        batches=len(run),
        counted_records=sum(header.records_count for header in run_headers if header.records_count >= 0),
        uncounted_batches=sum(header.records_count < 0 for header in run_headers),
        empty_batches=sum(header.records_count == 0 for header in run_headers),
        control_batches=sum(header.is_control for header in run_headers),
        transactional_batches=sum(header.is_transactional for header in run_headers),
        horizon_batches=sum(header.delete_horizon_ms is not None for header in run_headers),
        first_offset=first.base_offset,
        last_offset=last.last_offset,
        first_timestamp_ms=first.max_timestamp,
        largest_timestamp_ms=max(header.max_timestamp for header in run_headers),
    )


def contents_of_rows(rows: memoryview, count: int, base_offset: int, *, start_position: int = 0) -> SegmentContents:
    """Return what the batches in the first `count` rows of i64[m, COLUMNS] contain, by a kernel.

    Positions in the rows count from `start_position` of the file. Definition: `BatchCounter`.
    """
    if not count:
        return SegmentContents(base_offset=base_offset)
    records, empty, control, transactional, horizon, largest_timestamp_ms = kernels.sum_batches(rows, count)
    last = count - 1
    return SegmentContents(
        base_offset=base_offset,
        end_position=start_position + rows[last, POSITION] + rows[last, SIZE],
        batches=count,
        counted_records=records,
        empty_batches=empty,
        control_batches=control,
        transactional_batches=transactional,
        horizon_batches=horizon,
        first_offset=rows[0, BASE_OFFSET],
        last_offset=rows[last, LAST_OFFSET],
        first_timestamp_ms=rows[0, MAX_TIMESTAMP],
        largest_timestamp_ms=largest_timestamp_ms,
    )
