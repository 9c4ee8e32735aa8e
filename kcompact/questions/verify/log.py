"""What is wrong with a log: every byte is read and checked.

`verify_log` checks each batch and record, then each index against the batches, then the small files and the names
that interrupted work leaves. It does not stop at the first finding: it continues after a wrong checksum, and if the
rest of a segment is not a sequence of batches, it continues with the next segment.

Logs are verified by the kernels first (`verified_segment`). Segments that the kernels do not confirm are
re-read here, so findings do not depend on the kernels.

A finding is *damage* (cleaning would refuse, or a broker would read wrong data), a *warning* (a broker or a cleaning
has something to do first) or *information*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from kcompact.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    CorruptDataError,
    KcompactError,
    KernelsUnavailableError,
    RefusedError,
    UnsupportedError,
)
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES, Batch, Header, Record, read_header, read_records, verify_crc
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.names import Suffix, log_bases
from kcompact.host.machine import in_parallel
from kcompact.log.batch_headers import HeaderTable
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.markers import read_marker
from kcompact.log.offset_index import OffsetPositions
from kcompact.log.segment_reader import batches
from kcompact.questions.contents import LogContents, SegmentContents, contents_of_table
from kcompact.questions.verify.findings import MOST_LISTED, FileFinding, FileSeverity, of_error, the_others, worst_first
from kcompact.questions.verify.indexes import log_transaction_findings, transaction_findings, verify_indexes
from kcompact.questions.verify.segment import SegmentToVerify, VerifiedSegment, verified_by_kernels
from kcompact.questions.verify.small_files import name_findings, small_file_findings

_TAIL_BYTES = 1 << 20
_COUNTED_BATCHES = 1024
"""How many batches are added up at a time."""


# A whole log, or one file


def findings(log: PartitionLog, *, index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES) -> tuple[FileFinding, ...]:
    """Return everything that is wrong or remarkable with a log, damage first. Raises as `verify_log` does."""
    return verify_log(log, index_interval_bytes=index_interval_bytes).findings


def verify_log(
    log: PartitionLog,
    *,
    index_interval_bytes: int = index.DEFAULT_INTERVAL_BYTES,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> LogContents:
    """Return what the segments contain, records included, and all findings, damage first.

    Reads every byte of the partition, and holds at most `memory_bytes` for a batch. A larger batch is not checked; it
    is the `damage` of its segment. Raises StorageError; RefusedError for an index that is a link or far too large.
    """
    is_cut = log.log_dir.is_running or log.recovered_from is not None
    files = [
        SegmentToVerify(
            log=log.file(segment.log_name),
            base_offset=segment.base_offset,
            end_offset=None if segment is log.active_segment else log.end_of(segment),
            memory_bytes=memory_bytes,
            end_position=segment.size_bytes if is_cut and segment is log.active_segment else None,
        )
        for segment in log.segments
    ]
    contents: list[SegmentContents] = []
    file_findings: list[FileFinding] = []
    epoch = -1
    for segment, file, by_kernels in zip(log.segments, files, _confirmed(files), strict=True):
        verified = _verified(file, by_kernels, epoch)
        epoch = max(epoch, verified.largest_leader_epoch)
        contents.append(verified.contents)
        file_findings += verified.findings
        file_findings += verify_indexes(
            log.files,
            verified,
            {identity.name for identity in segment.files},
            is_active=file.is_active,
            is_growing=file.end_position is not None,
            interval_bytes=index_interval_bytes,
        )
    file_findings += small_file_findings(log)
    file_findings += name_findings(log)
    # `read_log` may have found damage that the checks above do not repeat.
    file_findings += _without_known(file_findings, map(of_error, log.damage))
    if not _is_log_damaged(file_findings):
        with suppress(KernelsUnavailableError):  # Of `doctor`, which has told it; it goes on without it.
            file_findings += _without_known(file_findings, log_transaction_findings(log, contents))
    return LogContents(segments=tuple(contents), findings=worst_first(file_findings))


def verify_file(log: LogFile, base_offset: int, *, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> LogContents:
    """Return what a single log file contains and what is wrong with it and its indexes.

    A log file without a later one beside it counts as an active segment: its time index may lack the last entries.
    Raises as `verify_log` does.
    """
    end_offset = _next_base_offset(log, base_offset)
    file = SegmentToVerify(log=log, base_offset=base_offset, end_offset=end_offset, memory_bytes=memory_bytes)
    (by_kernels,) = _confirmed([file])
    verified = _verified(file, by_kernels, -1)
    file_findings = list(verified.findings)
    if log.name.endswith(Suffix.LOG):
        names = {log.with_suffix(suffix).name for suffix in Suffix if log.with_suffix(suffix).exists()}
        file_findings += verify_indexes(log.files, verified, names, is_active=file.is_active)
        if not _is_log_damaged(file_findings):
            file_findings += _without_known(file_findings, transaction_findings([(log, log.identity().size_bytes)]))
    return LogContents(segments=(verified.contents,), findings=worst_first(file_findings))


def _without_known(file_findings: Iterable[FileFinding], others: Iterable[FileFinding]) -> list[FileFinding]:
    """Return the other findings of damage without those at a place where damage was found."""
    known = {(finding.file, finding.position) for finding in file_findings if finding.severity is FileSeverity.DAMAGE}
    return [finding for finding in others if (finding.file, finding.position) not in known]


def _is_log_damaged(file_findings: Iterable[FileFinding]) -> bool:
    """Return whether batches are damaged. Then what the markers say is uncertain, and not compared with indexes."""
    return any(
        finding.severity is FileSeverity.DAMAGE and finding.file.endswith(Suffix.LOG) for finding in file_findings
    )


def _next_base_offset(log: LogFile, base_offset: int) -> int | None:
    """Return the base offset of the segment after this one, None if there is none.

    A file with another suffix, such as `.log.deleted`, has none.
    """
    if not log.name.endswith(Suffix.LOG):
        return None
    with suppress(OSError):  # A file can be verified in a directory that cannot be listed.
        return next((base for base in log_bases(log.files.names()) if base > base_offset), None)
    return None


def _confirmed(files: Sequence[SegmentToVerify]) -> Iterable[VerifiedSegment | None]:
    """Return the files in which the kernels find nothing wrong; None for other files."""
    fixed = [file for file in files if file.end_position is None]
    # Threads that are the first to import the same modules can fail.
    from kcompact.log import inflate  # noqa: F401

    # The segment that grows is the last one.
    return chain(in_parallel(verified_by_kernels, fixed), [None] * (len(files) - len(fixed)))


def _verified(file: SegmentToVerify, by_kernels: VerifiedSegment | None, epoch: int) -> VerifiedSegment:
    """Return what the kernels found if that is conclusive, else read the file. `epoch` is that of earlier segments."""
    if by_kernels is not None and not -1 < by_kernels.first_leader_epoch < epoch:
        return by_kernels
    return verify_segment(file, epoch)


# Batches and records


def verify_segment(file: SegmentToVerify, epoch: int = -1) -> VerifiedSegment:
    """Return what the batches of a log file contain and what is wrong with them.

    `epoch` is the greatest leader epoch of the segments before. Reading ends where the rest of the file is not a
    sequence of batches; the reason is the `damage` of the contents. Raises StorageError.
    """
    checks = _SegmentChecks(file, epoch)
    try:
        for batch in batches(file.log, end_position=file.end_position, memory_bytes=file.memory_bytes):
            checks.add(batch)
    except CorruptBatchError as problem:
        position = checks.contents().end_position if problem.position is None else problem.position
        checks.findings.append(_tail_finding(file, position, problem))
        return checks.segment(damage=problem)
    except RefusedError as problem:
        checks.findings.append(FileFinding(severity=FileSeverity.WARNING, file=file.log.name, problem=problem.problem))
        return checks.segment(damage=problem)
    return checks.segment(damage=checks.unchecked)


class _SegmentChecks:
    """The state of `verify_segment` between two batches."""

    def __init__(self, file: SegmentToVerify, epoch: int) -> None:
        self.file = file
        self._contents = SegmentContents(base_offset=file.base_offset)
        self._headers = HeaderTable()
        """The batches that are not yet in the contents."""
        self.findings: list[FileFinding] = []
        self.unchecked: BatchTooLargeError | UnsupportedError | None = None
        self._counts: Counter[FileSeverity] = Counter()
        self._offset_positions = OffsetPositions()
        self._last_offset = file.base_offset - 1
        self._first_epoch, self._largest_epoch = -1, epoch
        self._legacy_records = self._legacy_batches = self._tombstones = self._null_keys = 0
        self._first_offset: int | None = None
        """That of the first batch, if its header does not have it."""
        self._reads_all = True
        """Whether the records of all batches could be read."""

    def add(self, batch: Batch) -> None:
        """Check and count the next batch."""
        header = batch.header
        for problem in _header_problems(header, self.file, self._last_offset, self._largest_epoch):
            self._add_finding(batch, FileSeverity.DAMAGE, problem)
        try:
            records = _checked_records(batch, self.file)
        except CorruptDataError as error:
            self._reads_all = False
            self._add_finding(batch, FileSeverity.DAMAGE, error.problem)
        except (BatchTooLargeError, UnsupportedError) as error:
            why = f"not checked: {error.size}" if isinstance(error, BatchTooLargeError) else error.problem
            self._add_finding(batch, FileSeverity.WARNING, why)
            self._reads_all = False
            self.unchecked = self.unchecked or error
        else:
            self._count(header, records)
            if warning := _max_timestamp_problem(header, records):
                self._add_finding(batch, FileSeverity.WARNING, warning)
        self._headers.append(batch.position, header)
        if len(self._headers) == _COUNTED_BATCHES:
            self.contents()
        if self.file.end_offset is None or header.last_offset < self.file.end_offset:
            # Not the largest: of one damaged header only the damage is told, not each batch behind it.
            self._last_offset = header.last_offset
        if self._first_epoch < 0:
            self._first_epoch = max(-1, header.partition_leader_epoch)
        self._largest_epoch = max(self._largest_epoch, header.partition_leader_epoch)

    def contents(self) -> SegmentContents:
        """Return what the headers up to the last batch say."""
        if len(self._headers):
            table = self._headers.table()
            self._contents += contents_of_table(table, self.file.base_offset)
            self._offset_positions.extend(table, 0)
            self._headers = HeaderTable()
        return self._contents

    def _count(self, header: Header, records: Sequence[Record]) -> None:
        if header.records_count < 0:
            self._legacy_records += len(records)
            self._legacy_batches += 1
            if self._last_offset < self.file.base_offset and records:
                self._first_offset = records[0].offset
        if not header.is_control:
            self._tombstones += sum(record.value is None and record.key is not None for record in records)
            self._null_keys += sum(record.key is None for record in records)

    def _add_finding(self, batch: Batch, severity: FileSeverity, problem: str) -> None:
        self._counts[severity] += 1
        if self._counts[severity] > MOST_LISTED:
            return
        position, offset = batch.position, batch.header.base_offset
        log = self.file.log
        if severity is FileSeverity.DAMAGE:
            error = CorruptBatchError(file=str(log), position=position, offset=offset, problem=problem)
            self.findings.append(of_error(error))
        else:
            finding = FileFinding(severity=severity, file=log.name, position=position, offset=offset, problem=problem)
            self.findings.append(finding)

    def segment(self, damage: KcompactError | None = None) -> VerifiedSegment:
        """Return what was read; `damage` is why reading ended early."""
        contents = self.contents()
        for severity, count in self._counts.items():
            if count > MOST_LISTED:
                last = next(each for each in reversed(self.findings) if each.severity is severity)
                self.findings.append(the_others(last, f"and {count - MOST_LISTED:,} more findings about batches"))
        return VerifiedSegment(
            contents=replace(
                contents,
                counted_records=contents.counted_records + self._legacy_records,
                uncounted_batches=contents.uncounted_batches - self._legacy_batches,
                first_offset=self._first_offset if contents.first_offset is None else contents.first_offset,
                tombstones=self._tombstones if self._reads_all else None,
                null_keys=self._null_keys if self._reads_all else None,
                damage=damage,
            ),
            offset_positions=self._offset_positions,
            first_leader_epoch=self._first_epoch,
            largest_leader_epoch=self._largest_epoch,
            findings=tuple(self.findings),
        )


def _header_problems(header: Header, file: SegmentToVerify, last_offset: int, epoch: int) -> Iterator[str]:
    """Yield how a header contradicts the batches before it, or the segment's offsets."""
    if header.base_offset < file.base_offset:
        yield f"offset below the segment's base offset {file.base_offset}"
    elif header.base_offset <= last_offset:
        yield f"offsets do not rise: {header.base_offset} after {last_offset}"
    if file.end_offset is not None and header.last_offset >= file.end_offset:
        yield f"ends at offset {header.last_offset} and overlaps the next segment, from {file.end_offset}"
    if -1 < header.partition_leader_epoch < epoch:
        yield f"leader epoch {header.partition_leader_epoch} after epoch {epoch}"


def _checked_records(batch: Batch, file: SegmentToVerify) -> Sequence[Record]:
    """Return the records.

    Raises CorruptDataError for a wrong checksum, bad records, or a malformed marker; BatchTooLargeError.
    """
    path = str(file.log)
    verify_crc(batch, file=path)
    records = read_records(batch, file=path, memory_bytes=file.memory_bytes)
    if batch.header.is_control:
        read_marker(batch, file=path)
    return records


def _max_timestamp_problem(header: Header, records: Sequence[Record]) -> str | None:
    if not records or header.magic != 2 or header.is_log_append_time:
        return None
    greatest = max(record.timestamp for record in records)
    if greatest == header.max_timestamp:
        return None
    return f"max timestamp {header.max_timestamp}, but the records' greatest is {greatest}"


def _tail_finding(file: SegmentToVerify, position: int, problem: CorruptBatchError) -> FileFinding:
    """Return a finding about the bytes after the last complete batch: zeros, a torn batch, or other bytes."""
    with file.log.open() as opened:
        size = opened.size_bytes
        tail = opened.read(min(_TAIL_BYTES, size - position), position)
    left = f"{size - position:,} bytes are left"
    if not tail.strip(b"\0"):
        zeros = "zeros to the end of the file" if len(tail) == size - position else "a run of zeros"
        text = f"{zeros}, {left}: space allocated in advance, or data lost in a crash"
    elif file.is_active and _is_torn(tail, size - position):
        text = f"torn tail, {left}: {problem.problem}; a broker cuts it off after an unclean shutdown"
    else:
        text = f"{problem.problem}; {left}, not a complete batch"
    return of_error(CorruptBatchError(file=str(file.log), position=position, offset=problem.offset, problem=text))


def _is_torn(tail: bytes, left_bytes: int) -> bool:
    """Return whether `tail` starts with a valid header of a batch that is longer than the rest of the file."""
    try:
        return read_header(tail, file="", position=0).size_bytes > left_bytes
    except KcompactError:
        return left_bytes < HEADER_BYTES
