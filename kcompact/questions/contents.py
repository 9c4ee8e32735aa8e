"""What the segments of a log contain, counted from the headers of their batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import add

import numpy as np

from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.host.machine import in_parallel
from kcompact.kernels import Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_tables
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.questions.verify.findings import FileFinding, FileSeverity
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContents:
    """What one segment contains. Times are Unix milliseconds; None means that there is no value.

    `end_position` is the end of the last batch that was read. It is less than the size of the file if the batches
    do not fill the file; `damage` says why. `first_timestamp_ms` is the maximum timestamp of the first batch, as in
    Kafka's planner, `largest_timestamp_ms` the greatest of all batches. `tombstones` and `null_keys` are None unless
    the records were read. The header of a compressed batch of magic 0 or 1 has neither the number of its records nor
    its first offset: `counted_records` are those of the other batches, `uncounted_batches` says how many such batches
    were not read, and `first_offset` is None if the first batch is one.

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


def contents_of_table(table: Table, base_offset: int, *, start_position: int = 0) -> SegmentContents:
    """Return what the batches of a table i64[n, COLUMNS] contain. Its positions count from `start_position`."""
    if not len(table):
        return SegmentContents(base_offset=base_offset)
    first, last, counts, attributes = table[0], table[-1], table[:, c.RECORDS_COUNT], table[:, c.ATTRIBUTES]
    return SegmentContents(
        base_offset=base_offset,
        end_position=start_position + int(last[c.POSITION] + last[c.SIZE]),
        batches=len(table),
        counted_records=int(counts[counts > 0].sum()),
        uncounted_batches=int(np.count_nonzero(counts < 0)),
        empty_batches=int(np.count_nonzero(counts == 0)),
        control_batches=int(np.count_nonzero(attributes & c.CONTROL_BIT)),
        transactional_batches=int(np.count_nonzero(attributes & c.TRANSACTIONAL_BIT)),
        horizon_batches=int(np.count_nonzero(attributes & c.DELETE_HORIZON_BIT)),
        first_offset=None if first[c.RECORDS_COUNT] < 0 else int(first[c.BASE_OFFSET]),
        last_offset=int(last[c.LAST_OFFSET]),
        first_timestamp_ms=int(first[c.MAX_TIMESTAMP]),
        largest_timestamp_ms=int(table[:, c.MAX_TIMESTAMP].max()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """What a log contains, segment by segment. Only `verify` fills `findings`."""

    segments: tuple[SegmentContents, ...]
    findings: tuple[FileFinding, ...] = ()

    @property
    def is_damaged(self) -> bool:
        return any(finding.severity is FileSeverity.DAMAGE for finding in self.findings)


# A whole log, or one file


def log_contents(log: PartitionLog) -> LogContents:
    """Return what the segments contain, from the headers of their batches. Raises StorageError.

    A damaged batch ends the counting of its segment and is the segment's `damage`.
    """
    files = [log.file(segment.log_name) for segment in log.segments]
    ends: list[int | None] = [None] * len(files)
    if log.log_dir.is_running:
        ends[-1] = log.active_segment.size_bytes  # What is appended meanwhile is not counted.
    bases = [segment.base_offset for segment in log.segments]
    return LogContents(segments=tuple(in_parallel(file_contents, files, bases, ends)))


def file_contents(file: LogFile, base_offset: int, end_position: int | None = None) -> SegmentContents:
    """Return what a log file contains up to a position, from the headers of its batches. Raises StorageError.

    A damaged batch ends the counting and is the `damage` of the result.
    """
    contents = SegmentContents(base_offset=base_offset)
    try:
        for table in header_tables(file, end_position=end_position):
            contents += contents_of_table(table, base_offset)
    except (CorruptDataError, RefusedError) as problem:
        return replace(contents, damage=problem)
    return contents


def file_size(file: LogFile) -> int:
    """Return the size of a file in bytes, 0 if it cannot be read: opening the file raises the detailed error."""
    try:
        return file.identity().size_bytes
    except (KcompactError, OSError):
        return 0
