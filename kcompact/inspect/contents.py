"""What the segments of a log contain, counted from the headers of their batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kcompact import kernels
from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.host.machine import in_parallel
from kcompact.inspect.findings import Finding, Severity
from kcompact.inspect.segment_contents import BatchCounter, SegmentContents, contents_of_rows
from kcompact.log.batch_runs import header_runs
from kcompact.log.directory import PartitionLog
from kcompact.log.segment_reader import headers


@dataclass(frozen=True, slots=True, kw_only=True)
class LogContents:
    """What a log contains, segment by segment. Only `verify` fills `findings`."""

    segments: tuple[SegmentContents, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def is_damaged(self) -> bool:
        return any(finding.severity is Severity.DAMAGE for finding in self.findings)


# A whole log, or one file


def log_contents(log: PartitionLog) -> LogContents:
    """Return what the segments contain, from the headers of their batches. Raises StorageError.

    A damaged batch ends the counting of its segment and is the segment's `damage`.
    """
    paths = [log.directory / segment.log_name for segment in log.segments]
    bases = [segment.base_offset for segment in log.segments]
    ends: list[int | None] = [None] * len(paths)
    if log.log_dir.is_running:
        # The kernels would count what is appended meanwhile, and a batch that is not whole yet.
        ends[-1] = log.active_segment.size_bytes
        counted = [*_counted_by_kernels(paths[:-1], bases[:-1]), SegmentContents(base_offset=bases[-1])]
    else:
        counted = list(_counted_by_kernels(paths, bases))
    return LogContents(segments=tuple(map(_with_remaining_batches, paths, counted, ends)))


def file_contents(path: Path, base_offset: int) -> SegmentContents:
    """Return what a log file contains, from the headers of its batches. Raises StorageError.

    A damaged batch ends the counting and is the `damage` of the result.
    """
    (counted,) = _counted_by_kernels([path], [base_offset])
    return _with_remaining_batches(path, counted)


def _counted_by_kernels(paths: Sequence[Path], base_offsets: Sequence[int]) -> Iterable[SegmentContents]:
    """Return what the kernels count at the start of each file; empty contents if the kernels are not used."""
    if not kernels.in_use():
        return [SegmentContents(base_offset=base_offset) for base_offset in base_offsets]
    return in_parallel(header_contents, paths, base_offsets)


def header_contents(path: Path, base_offset: int) -> SegmentContents:
    """Return what the kernels count in a log file, up to the first batch that is damaged or of magic 0 or 1.

    `end_position` is where the counting stopped. Raises nothing: the definition reads the rest and reports the problem.
    """
    contents = SegmentContents(base_offset=base_offset)
    with suppress(KcompactError, OSError):
        for rows, count in header_runs(path, end_position=path.stat().st_size):
            contents += contents_of_rows(rows, count, base_offset)
    return contents


def _with_remaining_batches(path: Path, counted: SegmentContents, end_position: int | None = None) -> SegmentContents:
    """Return `counted` plus the batches from its end position on, up to the end of the file or `end_position`."""
    counter = BatchCounter(counted)
    try:
        for position, header in headers(path, start_position=counted.end_position, end_position=end_position):
            counter.add(position, header)
    except (CorruptDataError, RefusedError) as problem:
        return replace(counter.contents(), damage=problem)
    return counter.contents()


def file_size(path: Path) -> int:
    """Return the size of a file in bytes, 0 if it cannot be read: opening the file raises the detailed error."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
