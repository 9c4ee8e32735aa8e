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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcompact.errors import CorruptBatchError, CorruptDataError, KcompactError, RefusedError
from kcompact.format import index
from kcompact.format.batch import Batch, Header, read_header, read_records, verify_crc
from kcompact.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    parse_leader_epochs,
    parse_meta_properties,
    parse_partition_metadata,
)
from kcompact.format.names import FileName, Suffix, Temporary, parse_file_name
from kcompact.log import (
    LogDir,
    PartitionLog,
    Segment,
    batches,
    headers,
    open_regular,
    read_at,
    read_file,
    read_snapshot,
)
from kcompact.producers import read_marker

if TYPE_CHECKING:
    from kcompact.census import Counts, Ends

_TAIL_BYTES = 1 << 20
COMPILED_BATCHES = 1 << 15
"""From so many batches on it pays to load the kernels to count them by their headers ..."""
COMPILED_BYTES = 16 << 20
"""... and from so many bytes on to verify them."""
UNCOMPILED = 32
"""How many times as much it takes where they would have to be compiled first, which takes some ten seconds."""
_BYTES_PER_BATCH = index.DEFAULT_INTERVAL_BYTES
"""How many bytes of a log at least there is one index entry for."""


class Severity(StrEnum):
    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to know about one file. `position` is a byte of it, `offset` a record's."""

    severity: Severity
    file: str
    problem: str
    position: int | None = None
    offset: int | None = None


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
class _Tally:
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
    def of(base_offset: int, counts: Counts) -> _Tally:
        """Return what the kernels have counted."""
        names = (each.name for each in fields(_Tally) if each.name not in ("base_offset", "last_offset_at"))
        tally = _Tally(base_offset=base_offset, **{name: getattr(counts, name) for name in names})
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
    (counts,) = _counted([path], _size_bytes(path) // _BYTES_PER_BATCH)
    return _survey(path, base_offset, counts)


def _counted(paths: list[Path], expected_batches: int) -> Iterable[Counts | None]:
    """Return what the kernels count in each file, as far as they get; None where it would not pay to load them."""
    if not _pays(expected_batches, COMPILED_BATCHES):
        return [None] * len(paths)
    from kcompact import census

    return census.side_by_side(census.headers_of, paths)


def _pays(amount: int, least: int) -> bool:
    """Whether it pays to load the kernels for so much work."""
    if amount < least:
        return False
    from kcompact.kernels import machine

    return machine.is_compiled() or amount >= UNCOMPILED * least


def _survey(path: Path, base_offset: int, counts: Counts | None) -> SegmentSurvey:
    tally = _Tally(base_offset=base_offset) if counts is None else _Tally.of(base_offset, counts)
    try:
        for position, header in headers(path, start_position=tally.walked_bytes):
            tally.add(position, header)
    except (CorruptDataError, RefusedError) as problem:
        return tally.done(records_read=False, damage=problem)
    return tally.done(records_read=False)


# What is wrong with it


def findings(log: PartitionLog, *, index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES) -> tuple[Finding, ...]:
    """Return everything that is wrong or remarkable with a log, worst first."""
    return verify(log, index_interval_bytes=index_interval_bytes).findings


def verify(log: PartitionLog, *, index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES) -> LogSurvey:
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
    found += _small_file_findings(log, surveys)
    found += _name_findings(log)
    # What reading the directory found and the passes above did not meet again.
    known = {(finding.file, finding.position) for finding in found}
    found += [of_error(problem) for problem in log.damage if (Path(problem.file).name, problem.position) not in known]
    return LogSurvey(segments=tuple(surveys), findings=_worst_first(found))


def verify_file(path: Path, base_offset: int) -> LogSurvey:
    """Return what a single log file contains and what is wrong with it; its indexes are looked at too.

    A log with no later one beside it is taken for an active segment, whose time index may lag behind.
    """
    found: list[Finding] = []
    walk = _Walk(path, base_offset, _next_base(path, base_offset))
    (counts,) = _verified([walk], _size_bytes(path))
    tally, _, damage = _walk_records(walk, counts, -1, found)
    if path.suffix == Suffix.LOG:
        names = {path.with_suffix(suffix).name for suffix in Suffix if path.with_suffix(suffix).exists()}
        found += verify_indexes(path.parent, tally, names, is_active=walk.end_offset is None, broken=bool(damage))
    return LogSurvey(segments=(tally.done(records_read=True, damage=damage),), findings=_worst_first(found))


def _next_base(path: Path, base_offset: int) -> int | None:
    """Return the base offset of the segment after this one, if it is there; a file set aside has none."""
    if path.suffix != Suffix.LOG:
        return None
    names = (parse_file_name(other.name) for other in path.parent.glob("*.log"))
    return min((name.base_offset for name in names if name and name.base_offset > base_offset), default=None)


def _size_bytes(path: Path) -> int:
    """Return the size of a file, 0 where it cannot be told: opening it says why."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _worst_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def of_error(problem: CorruptDataError, severity: Severity = Severity.DAMAGE) -> Finding:
    """Return what an error says as a finding."""
    return Finding(
        severity=severity,
        file=Path(problem.file).name,
        position=problem.position,
        offset=problem.offset,
        problem=problem.problem,
    )


class _Walk(NamedTuple):
    """A log file to verify. Its offsets lie in [base_offset, end_offset); None is no end."""

    path: Path
    base_offset: int
    end_offset: int | None


def _end_offset(log: PartitionLog, segment: Segment) -> int | None:
    return None if segment is log.active_segment else log.end_of(segment)


def _verified(walks: list[_Walk], size_bytes: int) -> Iterable[Counts | None]:
    """Return what the kernels count in each file that they find to be right; None for any other, and in small logs."""
    if not _pays(size_bytes, COMPILED_BYTES):
        return [None] * len(walks)
    from kcompact import census

    def verified(walk: _Walk) -> Counts | None:
        return census.records_of(walk.path, base_offset=walk.base_offset, end_offset=walk.end_offset)

    return census.side_by_side(verified, walks)


def _walk_records(
    walk: _Walk, counts: Counts | None, epoch: int, found: list[Finding]
) -> tuple[_Tally, int, KcompactError | None]:
    """Go through the batches of a segment and add what is wrong to `found`, unless the kernels have found it right.

    Returns the counts, the greatest leader epoch so far, and why the walk stopped early, if it did.
    """
    path, base_offset, end_offset = walk
    if counts is not None and not -1 < counts.first_epoch < epoch:
        return _Tally.of(base_offset, counts), max(epoch, counts.last_epoch), None
    tally = _Tally(base_offset=base_offset)
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
    batch: Batch, tally: _Tally, previous: int, end_offset: int | None, epoch: int, path: Path
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


# Indexes


def verify_indexes(
    directory: Path,
    tally: _Tally,
    names: set[str],
    *,
    is_active: bool,
    interval_bytes: int = index.DEFAULT_INTERVAL_BYTES,
    broken: bool = False,
) -> Iterator[Finding]:
    """Yield what is wrong with the indexes of a segment whose batches `tally` has counted.

    `broken`: the walk stopped early, so entries beyond it prove nothing.
    """
    base = tally.base_offset
    checks: tuple[tuple[Suffix, Callable[[], Iterator[Finding]]], ...] = (
        (Suffix.INDEX, lambda: _offset_index(directory, tally, is_active, interval_bytes, broken)),
        (Suffix.TIME_INDEX, lambda: _time_index(directory, tally, is_active, broken)),
        (Suffix.TXN_INDEX, lambda: _txn_index(directory, tally, broken)),
    )
    for suffix, check in checks:
        name = str(FileName(base_offset=base, suffix=suffix))
        if name in names:
            try:
                yield from check()
            except CorruptDataError as problem:
                yield of_error(problem)
        elif suffix is not Suffix.TXN_INDEX:
            yield Finding(
                severity=Severity.WARNING, file=name, problem="missing; a broker makes it anew from the batches"
            )


def _offset_index(
    directory: Path, tally: _Tally, is_active: bool, interval_bytes: int, broken: bool
) -> Iterator[Finding]:
    name = str(FileName(base_offset=tally.base_offset, suffix=Suffix.INDEX))
    data = read_file(directory / name)
    entries = index.parse_offset_index(data, base_offset=tally.base_offset, file=name)
    for number, (relative_offset, position) in enumerate(() if _agree(tally, entries) else entries):
        offset = tally.base_offset + relative_offset
        if broken and position >= tally.walked_bytes:
            break
        there = tally.last_offset_at.get(position)
        if there == offset:
            continue
        problem = f"entry {number} (offset {offset}, position {position}): " + (
            "no batch starts there" if there is None else f"the batch there ends at offset {there}"
        )
        at = number * index.OFFSET_ENTRY_BYTES
        yield Finding(severity=Severity.DAMAGE, file=name, position=at, offset=offset, problem=problem)
    if is_active:
        return
    yield from _padding(name, len(data) - len(entries) * index.OFFSET_ENTRY_BYTES)
    due = _entries_due(tally, interval_bytes)
    if not broken and due != len(entries):
        problem = (
            f"{len(entries)} entries; index.interval.bytes {interval_bytes} asks for {due}. "
            "Other settings and older releases index otherwise: lookups stay right"
        )
        yield Finding(severity=Severity.INFO, file=name, problem=problem)


def _agree(tally: _Tally, entries: Sequence[index.OffsetEntry]) -> bool:
    """Whether a large index is seen at a glance to be right."""
    ends = tally.last_offset_at
    if isinstance(ends, dict) or not isinstance(entries, index.Columns):
        return False
    return ends.agree_with(entries, tally.base_offset)


def _entries_due(tally: _Tally, interval_bytes: int) -> int:
    """Return how many entries the rule of `IndexBuilder` gives for these batches."""
    count, last = 0, 0
    for position in tally.last_offset_at:
        if position - last > interval_bytes:
            count, last = count + 1, position
    return count


def _padding(name: str, padding_bytes: int) -> Iterator[Finding]:
    if padding_bytes > 0:
        problem = (
            f"{padding_bytes:,} zero bytes after the last entry; untrimmed, it counts in full when segments are grouped"
        )
        yield Finding(severity=Severity.INFO, file=name, problem=problem)


def _time_index(directory: Path, tally: _Tally, is_active: bool, broken: bool) -> Iterator[Finding]:
    name = str(FileName(base_offset=tally.base_offset, suffix=Suffix.TIME_INDEX))
    data = read_file(directory / name)
    entries = index.parse_time_index(data, base_offset=tally.base_offset, file=name)
    greatest = tally.largest_timestamp_ms
    if not is_active:
        yield from _padding(name, len(data) - len(entries) * index.TIME_ENTRY_BYTES)
    if broken:
        return
    if not len(entries):
        if not is_active and greatest is not None and greatest >= 0:
            yield Finding(
                severity=Severity.INFO,
                file=name,
                problem="no entries, so the planner takes the time that the log file was last modified",
            )
        return
    last = index.last_time_entry(entries, base_offset=tally.base_offset)
    at = (len(entries) - 1) * index.TIME_ENTRY_BYTES
    if greatest is None or last.timestamp > greatest or (last.timestamp < greatest and not is_active):
        problem = f"ends with timestamp {last.timestamp}, the greatest in the log is {greatest}"
        yield Finding(severity=Severity.DAMAGE, file=name, position=at, offset=last.offset, problem=problem)
    elif tally.last_offset is not None and last.offset > tally.last_offset:
        problem = f"the last entry is for offset {last.offset}, the log ends at {tally.last_offset}"
        yield Finding(severity=Severity.DAMAGE, file=name, position=at, offset=last.offset, problem=problem)


def _txn_index(directory: Path, tally: _Tally, broken: bool) -> Iterator[Finding]:
    name = str(FileName(base_offset=tally.base_offset, suffix=Suffix.TXN_INDEX))
    data = read_file(directory / name)
    for number, aborted in enumerate(index.parse_txn_index(data, base_offset=tally.base_offset, file=name)):
        if not broken and (tally.last_offset is None or aborted.last_offset > tally.last_offset):
            yield Finding(
                severity=Severity.DAMAGE,
                file=name,
                position=number * index.TXN_ENTRY_BYTES,
                offset=aborted.last_offset,
                problem=f"entry {number}: its marker, offset {aborted.last_offset}, lies beyond the segment",
            )
    if rest := len(data) % index.TXN_ENTRY_BYTES:
        yield Finding(
            severity=Severity.WARNING,
            file=name,
            position=len(data) - rest,
            problem=f"{rest} bytes after the last entry are no whole entry; a broker ignores them",
        )


# The small files


def _small_file_findings(log: PartitionLog, surveys: list[SegmentSurvey]) -> Iterator[Finding]:
    for offset, identity in sorted(log.snapshots.items()):
        try:
            read_snapshot(log.directory, identity)
        except CorruptDataError as problem:
            yield of_error(problem)
        if offset > log.log_end_offset:
            text = f"taken at offset {offset}, above the log end {log.log_end_offset}; a broker would delete it"
            yield Finding(severity=Severity.WARNING, file=identity.name, offset=offset, problem=text)
    epochs_file = log.directory / LEADER_EPOCH_CHECKPOINT
    if epochs_file.exists():
        try:
            epochs = parse_leader_epochs(read_file(epochs_file), file=epochs_file.name)
            if epochs and epochs[-1].start_offset > log.log_end_offset:
                last = epochs[-1]
                text = f"epoch {last.epoch} starts at {last.start_offset}, above the log end {log.log_end_offset}"
                yield Finding(severity=Severity.WARNING, file=epochs_file.name, problem=text)
        except CorruptDataError as problem:
            yield of_error(problem)
    metadata_file = log.directory / PARTITION_METADATA
    if metadata_file.exists():
        try:
            parse_partition_metadata(read_file(metadata_file), file=metadata_file.name)
        except CorruptDataError as problem:
            yield of_error(problem)
    yield from _checkpoint_findings(log)


def _checkpoint_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield the entries of the log directory's checkpoints that contradict the log."""
    start, end, partition = log.log_start_offset, log.log_end_offset, log.topic_partition
    checkpoint = log.checkpoint_offset
    if checkpoint is not None and not start <= checkpoint <= end:
        text = f"{partition} is clean up to {checkpoint}, outside [{start}, {end}]; a broker would set it to {start}"
        yield Finding(severity=Severity.WARNING, file="cleaner-offset-checkpoint", offset=checkpoint, problem=text)
    above = {
        "recovery-point-offset-checkpoint": (log.log_dir.recovery_points or {}).get(partition),
        "replication-offset-checkpoint": (log.log_dir.high_watermarks or {}).get(partition),
    }
    for file, offset in above.items():
        if offset is not None and offset > end:
            text = f"{partition} has {offset}, above the log end {end}: records may be missing"
            yield Finding(severity=Severity.WARNING, file=file, offset=offset, problem=text)


def log_dir_findings(log_dir: LogDir) -> tuple[Finding, ...]:
    """Return what is wrong with the files that describe a whole log directory, its checkpoints apart."""
    file = log_dir.path / META_PROPERTIES
    found = []
    if file.exists():
        try:
            parse_meta_properties(read_file(file), file=file.name)
        except CorruptDataError as problem:
            found.append(of_error(problem))
    if log_dir.is_log_dir and not log_dir.is_clean_shutdown:
        text = "missing: the broker was not shut down cleanly, or is running"
        found.append(Finding(severity=Severity.WARNING, file=".kafka_cleanshutdown", problem=text))
    return tuple(found)


# Names

_MEANINGS = {
    Temporary.CLEANED: "an interrupted cleaning was still writing it; a broker deletes it when it starts",
    Temporary.SWAP: "complete and about to take its place; whoever wrote it settles it: a broker, or kcompact recover",
    Temporary.DELETED: "replaced and about to be deleted; a broker deletes it when it starts",
}


def _name_findings(log: PartitionLog) -> Iterator[Finding]:
    """Yield what the names of a partition directory tell: interrupted work, orphans, strangers."""
    for name in (*log.leftovers, *log.deleted):
        parsed = parse_file_name(name)
        meaning = _MEANINGS[parsed.temporary] if parsed else ""
        severity = Severity.INFO if parsed and parsed.temporary is Temporary.DELETED else Severity.WARNING
        yield Finding(severity=severity, file=name, problem=meaning)
    for name in log.staging:
        text = "an interrupted run of kcompact left it; kcompact recover finishes or undoes that run"
        yield Finding(severity=Severity.WARNING, file=name, problem=text)
    for name in log.foreign:
        text = "no file of Kafka's; a broker may refuse to start on it, kcompact leaves it alone"
        yield Finding(severity=Severity.WARNING, file=name, problem=text)
    bases = {segment.base_offset for segment in log.segments}
    for entry in sorted(os.listdir(log.directory)):  # noqa: PTH208 - names are all that is needed
        parsed = parse_file_name(entry)
        if parsed is None or parsed.temporary is not Temporary.NO or parsed.suffix is Suffix.SNAPSHOT:
            continue
        if parsed.base_offset not in bases:
            text = "an index without a log; a broker deletes it when it starts"
            yield Finding(severity=Severity.WARNING, file=entry, problem=text)
