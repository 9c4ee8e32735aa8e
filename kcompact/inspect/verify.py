"""What a log contains, and what is wrong with it. Serves `inspect`; reads only.

`survey` hops from header to header and is quick. `verify` reads every byte: it checks each batch and record, then each
index against the batches, then the small files, and says what the names of interrupted work mean. It never stops at
the first finding: after a wrong checksum the walk goes on, and where the batches no longer tile a segment, it goes on
with the next one. In large logs compiled loops go ahead (`census`); what they do not find to be right is gone through
again here, so that what is found, and how it is worded, is the same.

A finding is *damage* (cleaning would refuse, or a broker would read wrong data), a *warning* (a broker or a cleaning
has something to do first) or *information*. Sparse, dense or padded indexes are never damage: old releases of Kafka
wrote entries by other rules, and the index of an active segment is allocated at full size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcompact.errors import CorruptBatchError, CorruptDataError, KcompactError, RefusedError
from kcompact.format import index
from kcompact.format.batch import Batch, read_header, read_records, verify_crc
from kcompact.format.names import Suffix, parse_file_name
from kcompact.inspect import contents
from kcompact.inspect.contents import LogSurvey, Tally, pays, size_of
from kcompact.inspect.findings import Finding, Severity, of_error, worst_first
from kcompact.inspect.indexes import verify_indexes
from kcompact.inspect.small_files import name_findings, small_file_findings
from kcompact.log.batch_headers import read_marker
from kcompact.log.directory import PartitionLog, Segment
from kcompact.log.files import open_regular, read_at
from kcompact.log.segment_reader import batches

if TYPE_CHECKING:
    from kcompact.inspect.segment_kernels import Counts


_TAIL_BYTES = 1 << 20


# What is wrong with it


def findings(log: PartitionLog, *, index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES) -> tuple[Finding, ...]:
    """Return everything that is wrong or remarkable with a log, worst first."""
    return verify_log(log, index_interval_bytes=index_interval_bytes).findings


def verify_log(log: PartitionLog, *, index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES) -> LogSurvey:
    """Return what the segments contain, records included, and all findings. Reads every byte of the partition."""
    found: list[Finding] = []
    surveys = []
    epoch = -1
    walks = [_Walk(log.directory / s.log_name, s.base_offset, _end_offset(log, s)) for s in log.segments]
    for segment, walk, counts in zip(log.segments, walks, _verified(walks, log.size_bytes), strict=True):
        is_active = segment is log.active_segment
        tally, epoch, damage = _walk_records(walk, counts, epoch, found)
        surveys.append(tally.done(records_read=True, damage=damage))
        names = {file.name for file in segment.files}
        found += verify_indexes(
            log.directory, tally, names, is_active=is_active, interval_bytes=index_interval_bytes, broken=bool(damage)
        )
    found += small_file_findings(log, surveys)
    found += name_findings(log)
    # What reading the directory found and the passes above did not meet again.
    known = {(finding.file, finding.position) for finding in found}
    found += [of_error(problem) for problem in log.damage if (Path(problem.file).name, problem.position) not in known]
    return LogSurvey(segments=tuple(surveys), findings=worst_first(found))


def verify_file(path: Path, base_offset: int) -> LogSurvey:
    """Return what a single log file contains and what is wrong with it; its indexes are looked at too.

    A log with no later one beside it is taken for an active segment, whose time index may lag behind.
    """
    found: list[Finding] = []
    walk = _Walk(path, base_offset, _next_base(path, base_offset))
    (counts,) = _verified([walk], size_of(path))
    tally, _, damage = _walk_records(walk, counts, -1, found)
    if path.suffix == Suffix.LOG:
        names = {path.with_suffix(suffix).name for suffix in Suffix if path.with_suffix(suffix).exists()}
        found += verify_indexes(path.parent, tally, names, is_active=walk.end_offset is None, broken=bool(damage))
    return LogSurvey(segments=(tally.done(records_read=True, damage=damage),), findings=worst_first(found))


def _next_base(path: Path, base_offset: int) -> int | None:
    """Return the base offset of the segment after this one, if it is there; a file set aside has none."""
    if path.suffix != Suffix.LOG:
        return None
    names = (parse_file_name(other.name) for other in path.parent.glob("*.log"))
    return min((name.base_offset for name in names if name and name.base_offset > base_offset), default=None)


class _Walk(NamedTuple):
    """A log file to verify. Its offsets lie in [base_offset, end_offset); None is no end."""

    path: Path
    base_offset: int
    end_offset: int | None


def _end_offset(log: PartitionLog, segment: Segment) -> int | None:
    return None if segment is log.active_segment else log.end_of(segment)


def _verified(walks: list[_Walk], size_bytes: int) -> Iterable[Counts | None]:
    """Return what the kernels count in each file that they find to be right; None for any other, and in small logs."""
    if not pays(size_bytes, contents.COMPILED_BYTES):
        return [None] * len(walks)
    from kcompact.inspect import segment_kernels

    def verified(walk: _Walk) -> Counts | None:
        return segment_kernels.verified_contents(walk.path, base_offset=walk.base_offset, end_offset=walk.end_offset)

    return segment_kernels.side_by_side(verified, walks)


def _walk_records(
    walk: _Walk, counts: Counts | None, epoch: int, found: list[Finding]
) -> tuple[Tally, int, KcompactError | None]:
    """Go through the batches of a segment and add what is wrong to `found`, unless the kernels have found it right.

    Returns the counts, the greatest leader epoch so far, and why the walk stopped early, if it did.
    """
    path, base_offset, end_offset = walk
    if counts is not None and not -1 < counts.first_epoch < epoch:
        return Tally.of(base_offset, counts), max(epoch, counts.last_epoch), None
    tally = Tally(base_offset=base_offset)
    last_offset_at: dict[int, int] = {}
    tally.last_offset_at = last_offset_at
    previous = base_offset - 1
    try:
        for batch in batches(path):
            for problem, severity in _batch_problems(batch, tally, previous, end_offset, epoch, path):
                found.append(
                    Finding(
                        severity=severity,
                        file=path.name,
                        position=batch.position,
                        offset=batch.header.base_offset,
                        problem=problem,
                    )
                )
            tally.add(batch.position, batch.header)
            last_offset_at[batch.position] = batch.header.last_offset
            previous = max(previous, batch.header.last_offset)
            epoch = max(epoch, batch.header.partition_leader_epoch)
    except CorruptBatchError as problem:
        position = problem.position if problem.position is not None else tally.walked_bytes
        found.append(_tail_finding(path, position, problem, is_active=end_offset is None))
        return tally, epoch, problem
    except RefusedError as problem:
        found.append(Finding(severity=Severity.WARNING, file=path.name, problem=problem.problem))
        return tally, epoch, problem
    return tally, epoch, None


def _batch_problems(
    batch: Batch, tally: Tally, previous: int, end_offset: int | None, epoch: int, path: Path
) -> Iterator[tuple[str, Severity]]:
    header = batch.header
    if header.base_offset < tally.base_offset:
        yield f"offset below the segment's base offset {tally.base_offset}", Severity.DAMAGE
    elif header.base_offset <= previous:
        yield f"offsets do not rise: {header.base_offset} after {previous}", Severity.DAMAGE
    if end_offset is not None and header.last_offset >= end_offset:
        yield f"ends at offset {header.last_offset} and overlaps the next segment, from {end_offset}", Severity.DAMAGE
    if -1 < header.partition_leader_epoch < epoch:
        yield f"leader epoch {header.partition_leader_epoch} after epoch {epoch}", Severity.DAMAGE
    try:
        verify_crc(batch, file=str(path))
        records = read_records(batch, file=str(path))
        if header.is_control:
            read_marker(batch, file=str(path))
    except CorruptDataError as problem:
        yield problem.problem, Severity.DAMAGE
        return
    if header.records_count < 0:
        tally.records += len(records)
    if not header.is_control:
        tally.tombstones += sum(record.value is None for record in records)
        tally.null_keys += sum(record.key is None for record in records)
    if records and header.magic == 2 and not header.is_log_append_time:
        greatest = max(record.timestamp for record in records)
        if greatest != header.max_timestamp:
            yield f"max timestamp {header.max_timestamp}, but the records' greatest is {greatest}", Severity.WARNING


def _tail_finding(path: Path, position: int, problem: CorruptBatchError, *, is_active: bool) -> Finding:
    """Return what a walk that stopped at `position` means: zeros, a torn tail, or batches that do not tile."""
    with open_regular(path) as descriptor:
        size = os.fstat(descriptor).st_size
        tail = read_at(descriptor, min(_TAIL_BYTES, size - position), position, path=path)
    left = f"{size - position:,} bytes are left"
    if not tail.strip(b"\0"):
        what = "zeros to the end of the file" if len(tail) == size - position else "a run of zeros"
        text = f"{what}, {left}: space allocated in advance, or data that a crash has lost"
    elif is_active and _is_torn(tail, size - position):
        text = f"torn tail, {left}: {problem.problem}; a broker cuts it off after an unclean shutdown"
    else:
        text = f"{problem.problem}; {left} that are no whole batch"
    return Finding(severity=Severity.DAMAGE, file=path.name, position=position, offset=problem.offset, problem=text)


def _is_torn(tail: bytes, left: int) -> bool:
    """Whether a sound header begins here whose batch is longer than the file."""
    try:
        return read_header(tail, file="", position=0).size_bytes > left
    except KcompactError:
        return left < 61
