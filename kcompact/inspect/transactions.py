"""Where the `.txnindex` files of a log contradict its markers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from kcompact.errors import CorruptDataError
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.inspect.findings import MOST_LISTED, Finding, of_error
from kcompact.inspect.segment_contents import SegmentContents
from kcompact.log.directory import PartitionLog
from kcompact.log.transaction_batches import read_transaction_tables, rows_of_all
from kcompact.log.transaction_index import TransactionIndexJudge, read_transaction_index


def log_transaction_findings(log: PartitionLog, contents: Sequence[SegmentContents]) -> Iterator[Finding]:
    """Yield the contradictions in a log whose batches are not damaged. Raises StorageError, RefusedError."""
    # A broker writes a marker first and its entry afterwards, so the two can differ in the segment that grows.
    segments = log.segments[:-1] if log.log_dir.is_running else log.segments
    has_index = any(segment.has(Suffix.TXN_INDEX) for segment in segments)
    if has_index or any(segment.control_batches for segment in contents):
        yield from transaction_findings(
            [(log.directory / segment.log_name, segment.size_bytes) for segment in segments],
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
        )


def transaction_findings(
    logs: Iterable[tuple[Path, int]],
    *,
    log_start_offset: int = 0,
    log_end_offset: int = MAX_OFFSET,
) -> Iterator[Finding]:
    """Yield the contradictions between log files, in log order, and the `.txnindex` files beside them.

    Ends with the first index that has many: every entry of a large file may be wrong.
    Each log file comes with the size up to which it is read: a broker may be appending to it.
    Raises StorageError, RefusedError.
    """
    judge = TransactionIndexJudge(log_start_offset=log_start_offset, log_end_offset=log_end_offset)
    for log, size_bytes in logs:
        path = log.with_suffix(Suffix.TXN_INDEX)
        try:
            batches = rows_of_all(read_transaction_tables(log, end_position=size_bytes))
        except CorruptDataError as problem:
            # Without the markers of this segment, the entries of later ones cannot be judged.
            yield of_error(problem)
            return
        try:
            entries = read_transaction_index(path) if path.exists() else ()
        except CorruptDataError as problem:
            yield of_error(problem)
            deque(judge.transactions.abort_markers(batches), maxlen=0)
            continue
        found = map(of_error, judge.contradictions(path, entries, batches))
        yield from islice(found, MOST_LISTED)
        one_more = next(found, None)
        if one_more is not None:
            yield replace(one_more, problem=f"{one_more.problem}; further contradictions of this log are not listed")
            return
