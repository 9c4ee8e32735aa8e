"""What the segments of a log contain, counted from their headers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.format import index
from kcompact.format.batch import Header
from kcompact.inspect.findings import Finding, Severity
from kcompact.log.directory import PartitionLog
from kcompact.log.segment_reader import headers

if TYPE_CHECKING:
    from kcompact.inspect.segment_kernels import Counts, Ends


COMPILED_BATCHES = 1 << 15
"""From so many batches on it pays to load the kernels to count them by their headers ..."""


COMPILED_BYTES = 16 << 20
"""... and from so many bytes on to verify them."""


UNCOMPILED = 32
"""How many times as much it takes where they would have to be compiled first, which takes some ten seconds."""


_BYTES_PER_BATCH = index.DEFAULT_INTERVAL_BYTES
"""How many bytes of a log at least there is one index entry for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSurvey:
    """What one segment contains. Times are Unix milliseconds; None where there is nothing to say.

    `first_timestamp_ms` is that of the first batch (its greatest, as Kafka's planner takes it), `largest_timestamp_ms`
    the greatest of all batches. `tombstones` and `null_keys`
    need the records to be read, and so do the `records` of compressed batches of magic 0 and 1.
    `walked_bytes` falls short of the size where the batches stopped tiling the file, for the reason in `damage`.
    """

    base_offset: int
    walked_bytes: int = 0
    batches: int = 0
    records: int = 0
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSurvey:
    """What a log contains, a survey per segment, and what `verify` found; `findings` is empty after `survey`."""

    segments: tuple[SegmentSurvey, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def is_damaged(self) -> bool:
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)


@dataclass(slots=True)
class Tally:
    """The counters of one segment while its batches go by."""

    base_offset: int
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
    last_offset_at: dict[int, int] | Ends = field(default_factory=dict)

    @staticmethod
    def of(base_offset: int, counts: Counts) -> Tally:
        """Return what the kernels have counted."""
        names = (each.name for each in fields(Tally) if each.name not in ("base_offset", "last_offset_at"))
        tally = Tally(base_offset=base_offset, **{name: getattr(counts, name) for name in names})
        tally.last_offset_at = counts.positions()
        return tally

    def add(self, position: int, header: Header) -> None:
        if not self.batches:
            self.first_offset, self.first_timestamp_ms = header.base_offset, header.max_timestamp
        self.batches += 1
        self.records += max(0, header.records_count)  # -1: compressed, of magic 0 or 1.
        self.empty_batches += header.records_count == 0
        self.control_batches += header.is_control
        self.transactional_batches += header.is_transactional
        self.horizon_batches += header.delete_horizon_ms is not None
        self.walked_bytes = position + header.size_bytes
        self.last_offset = header.last_offset
        if self.largest_timestamp_ms is None or header.max_timestamp > self.largest_timestamp_ms:
            self.largest_timestamp_ms = header.max_timestamp

    def done(self, *, records_read: bool, damage: KcompactError | None = None) -> SegmentSurvey:
        return SegmentSurvey(
            base_offset=self.base_offset,
            walked_bytes=self.walked_bytes,
            batches=self.batches,
            records=self.records,
            empty_batches=self.empty_batches,
            control_batches=self.control_batches,
            transactional_batches=self.transactional_batches,
            horizon_batches=self.horizon_batches,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            first_timestamp_ms=self.first_timestamp_ms,
            largest_timestamp_ms=self.largest_timestamp_ms,
            tombstones=self.tombstones if records_read else None,
            null_keys=self.null_keys if records_read else None,
            damage=damage,
        )


# What a log contains


def survey_log(log: PartitionLog) -> LogSurvey:
    """Return what the segments contain, from their headers alone."""
    paths = [log.directory / segment.log_name for segment in log.segments]
    expected = sum(
        min(s.index_bytes // index.OFFSET_ENTRY_BYTES, s.size_bytes // _BYTES_PER_BATCH) for s in log.segments
    )
    counted = _counted(paths, expected)
    return LogSurvey(
        segments=tuple(
            _survey(path, segment.base_offset, counts)
            for path, segment, counts in zip(paths, log.segments, counted, strict=True)
        )
    )


def survey_file(path: Path, base_offset: int) -> SegmentSurvey:
    """Return what a log file contains, from its headers alone; damage ends the survey and is part of it."""
    (counts,) = _counted([path], size_of(path) // _BYTES_PER_BATCH)
    return _survey(path, base_offset, counts)


def _counted(paths: list[Path], expected_batches: int) -> Iterable[Counts | None]:
    """Return what the kernels count in each file, as far as they get; None where it would not pay to load them."""
    if not pays(expected_batches, COMPILED_BATCHES):
        return [None] * len(paths)
    from kcompact.inspect import segment_kernels

    return segment_kernels.side_by_side(segment_kernels.headers_of, paths)


def pays(amount: int, least: int) -> bool:
    """Whether it pays to load the kernels for so much work."""
    if amount < least:
        return False
    from kcompact.kernels import machine

    return machine.is_compiled() or amount >= UNCOMPILED * least


def _survey(path: Path, base_offset: int, counts: Counts | None) -> SegmentSurvey:
    tally = Tally(base_offset=base_offset) if counts is None else Tally.of(base_offset, counts)
    try:
        for position, header in headers(path, start_position=tally.walked_bytes):
            tally.add(position, header)
    except (CorruptDataError, RefusedError) as problem:
        return tally.done(records_read=False, damage=problem)
    return tally.done(records_read=False)


def size_of(path: Path) -> int:
    """Return the size of a file, 0 where it cannot be told: opening it says why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
