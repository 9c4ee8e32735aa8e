"""What is wrong with the indexes of a segment, compared with the batches of its log, and with the log's markers.

Sparse, dense or padded indexes are never damage. Old releases of Kafka wrote entries by other rules, and a broker
allocates the index of an active segment at full size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from kcompact.errors import CorruptDataError, CorruptIndexError, CorruptTransactionIndexError
from kcompact.format import index
from kcompact.format.names import FileName, Suffix
from kcompact.log.directory import PartitionLog
from kcompact.log.files import Files, LogFile
from kcompact.log.index_files import read_offset_index, read_time_index
from kcompact.log.offset_index import OffsetPositions
from kcompact.log.transaction_index import Transactions, contradictions, read_transaction_index
from kcompact.log.transactions import read_transaction_tables
from kcompact.questions.contents import SegmentContents, file_size
from kcompact.questions.verify.findings import MOST_LISTED, FileFinding, FileSeverity, first_of, of_error
from kcompact.questions.verify.segment import VerifiedSegment
from kcompact.values import dataclass


def verify_indexes(
    files: Files,
    segment: VerifiedSegment,
    names: set[str],
    *,
    is_active: bool,
    is_growing: bool = False,
    interval_bytes: int = index.DEFAULT_INTERVAL_BYTES,
) -> Iterator[FileFinding]:
    """Yield what is wrong with the indexes of a segment. `names` are the names of its files.

    If reading the segment ended early, later entries are not checked. A broker may be appending to a segment that
    `is_growing`. Raises RefusedError, StorageError.
    """
    checks = {
        Suffix.INDEX: _offset_index_findings,
        Suffix.TIME_INDEX: _time_index_findings,
        Suffix.TXN_INDEX: _txn_index_findings,
    }
    for suffix, check in checks.items():
        name = str(FileName(base_offset=segment.contents.base_offset, suffix=suffix))
        if name in names:
            try:
                yield from check(_IndexFile(files.file(name), segment, is_active, is_growing, interval_bytes))
            except CorruptDataError as problem:
                yield of_error(problem)
        elif suffix is not Suffix.TXN_INDEX and not is_growing:
            text = "missing; a broker rebuilds it from the batches"
            yield FileFinding(severity=FileSeverity.WARNING, file=name, problem=text)


@dataclass(frozen=True, slots=True)
class _IndexFile:
    """An index file, and the segment that it belongs to."""

    file: LogFile
    segment: VerifiedSegment
    is_active: bool
    is_growing: bool
    interval_bytes: int

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def base_offset(self) -> int:
        return self.segment.contents.base_offset

    @property
    def is_cut_short(self) -> bool:
        """Whether the segment was not read to the end that its index may have, so later entries cannot be checked."""
        return self.is_growing or self.segment.contents.damage is not None

    def padding(self, entry_count: int, entry_bytes: int) -> Iterator[FileFinding]:
        """Yield a finding if zeros follow the entries. The parser rejects an index with other bytes there."""
        padding_bytes = file_size(self.file) - entry_count * entry_bytes
        if padding_bytes > 0:
            problem = (
                f"{padding_bytes:,} zero bytes after the last entry; they count in the size of the index when "
                "segments are grouped"
            )
            yield FileFinding(severity=FileSeverity.INFO, file=self.name, problem=problem)


def _offset_index_findings(file: _IndexFile) -> Iterator[FileFinding]:
    entries = read_offset_index(file.file, tolerant=file.is_growing)
    yield from _wrong_entries(file, entries)
    if file.is_active:
        return
    yield from file.padding(len(entries), index.OFFSET_ENTRY_BYTES)
    expected = _expected_entries(file.segment.offset_positions, file.interval_bytes)
    if not file.is_cut_short and expected != len(entries):
        problem = (
            f"{len(entries)} entries; index.interval.bytes {file.interval_bytes} gives {expected}. "
            "Other settings and older releases give other entries; lookups are still correct"
        )
        yield FileFinding(severity=FileSeverity.INFO, file=file.name, problem=problem)


def _wrong_entries(file: _IndexFile, entries: index.OffsetColumns) -> Iterator[FileFinding]:
    """Yield the entries that are not true, of those whose batches were read."""
    offset_positions, contents = file.segment.offset_positions, file.segment.contents
    if file.is_cut_short:
        read_to = -1 if contents.last_offset is None else contents.last_offset - file.base_offset
        entries = entries[: bisect_left(entries, contents.end_position, key=lambda entry: entry.position)]
        entries = entries[: bisect_right(entries, read_to, key=lambda entry: entry.relative_offset)]

    def finding_of(number: int) -> FileFinding:
        offset, position = file.base_offset + entries[number].relative_offset, entries[number].position
        has_batch = offset_positions.has_batch_at(position)
        problem = "no batch from there to the next entry has the offset" if has_batch else "no batch starts there"
        return of_error(
            CorruptIndexError(
                file=str(file.file),
                position=number * index.OFFSET_ENTRY_BYTES,
                offset=offset,
                problem=f"entry {number} (offset {offset}, position {position}): {problem}",
            )
        )

    yield from first_of(offset_positions.wrong_entries(entries, file.base_offset), finding_of, what="entries")


def _expected_entries(offset_positions: OffsetPositions, interval_bytes: int) -> int:
    """Return how many entries the rule of `IndexBuilder` gives for these batches."""
    count, last_position = 0, 0
    for position in offset_positions:
        if position - last_position > interval_bytes:
            count, last_position = count + 1, position
    return count


def _time_index_findings(file: _IndexFile) -> Iterator[FileFinding]:
    contents = file.segment.contents
    entries = read_time_index(file.file, tolerant=file.is_growing)
    greatest = contents.largest_timestamp_ms
    if not file.is_active:
        yield from file.padding(len(entries), index.TIME_ENTRY_BYTES)
    if file.is_cut_short:
        return
    if not len(entries):
        if not file.is_active and greatest is not None and greatest >= 0:
            problem = "no entries, so the planner uses the time when the log file was last modified"
            yield FileFinding(severity=FileSeverity.INFO, file=file.name, problem=problem)
        return
    last = index.last_time_entry(entries, base_offset=file.base_offset)
    if greatest is not None and last.timestamp < greatest and not file.is_active:
        problem = (
            f"ends with timestamp {last.timestamp}, the greatest in the log is {greatest}: a broker and the planner "
            "take the lower one, so the segment counts as older. A truncated replica can have such an index"
        )
        yield FileFinding(severity=FileSeverity.WARNING, file=file.name, problem=problem)
    if greatest is None or last.timestamp > greatest:
        problem = f"ends with timestamp {last.timestamp}, the greatest in the log is {greatest}"
    elif contents.last_offset is not None and last.offset > contents.last_offset:
        problem = f"the last entry is for offset {last.offset}, the log ends at {contents.last_offset}"
    else:
        return
    last_position = (len(entries) - 1) * index.TIME_ENTRY_BYTES
    yield of_error(CorruptIndexError(file=str(file.file), position=last_position, offset=last.offset, problem=problem))


def _txn_index_findings(file: _IndexFile) -> Iterator[FileFinding]:
    """Yield an incomplete entry. `log_transaction_findings` compares the entries with the markers of a log."""
    size_bytes = file_size(file.file)
    if rest := size_bytes % index.TXN_ENTRY_BYTES:
        yield FileFinding(
            severity=FileSeverity.WARNING,
            file=file.name,
            position=size_bytes - rest,
            problem=f"{rest} bytes after the last entry are an incomplete entry; a broker ignores them",
        )
    read_transaction_index(file.file)


# Transaction indexes and markers


def log_transaction_findings(log: PartitionLog, contents: Sequence[SegmentContents]) -> Iterator[FileFinding]:
    """Yield the contradictions in a log whose batches are not damaged. Raises StorageError, RefusedError."""
    # A broker writes a marker first and its entry afterwards, so the two can differ in the segment that grows.
    segments = log.segments[:-1] if log.log_dir.is_running else log.segments
    has_index = any(segment.has(Suffix.TXN_INDEX) for segment in segments)
    if has_index or any(segment.control_batches for segment in contents):
        yield from transaction_findings(
            [(log.file(segment.log_name), segment.size_bytes) for segment in segments],
            log_start_offset=log.log_start_offset,
        )


def transaction_findings(logs: Iterable[tuple[LogFile, int]], *, log_start_offset: int = 0) -> Iterator[FileFinding]:
    """Yield the contradictions between log files, in log order, and the `.txnindex` files beside them.

    Ends with the first index that has many: every entry of a large file may be wrong.
    Each log file comes with the size up to which it is read: a broker may be appending to it.
    Raises StorageError, RefusedError.
    """
    transactions = Transactions(start_offset=log_start_offset)
    for log, size_bytes in logs:
        file = log.with_suffix(Suffix.TXN_INDEX)
        try:
            batches = read_transaction_tables(log, end_position=size_bytes)
        except CorruptDataError as problem:
            # Without the markers of this segment, the entries of later ones cannot be judged.
            yield of_error(problem)
            return
        try:
            entries = read_transaction_index(file) if file.exists() else index.AbortedTxnColumns()
        except CorruptDataError as problem:
            yield of_error(problem)
            transactions.entries(batches)
            continue
        errors = contradictions(transactions, file, entries, batches)
        yield from map(of_error, islice(errors, MOST_LISTED))
        one_more = next(errors, None)
        if one_more is not None:
            text = f"{one_more.problem}; further contradictions of this log are not listed"
            yield of_error(
                CorruptTransactionIndexError(
                    file=one_more.file, position=one_more.position, offset=one_more.offset, problem=text
                )
            )
            return
