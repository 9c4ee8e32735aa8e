"""The log that is left when a broker's swap has been finished or undone: judged before any file is changed.

A broker does not sync its renames one by one, so a power cut can leave states that its own steps never make: a new
segment has its name, and an old one inside its range has it still. Kafka's loader loads both, and their offsets are
in the log twice.

A file here has two names, the one that it will have and the one that it has now: so each new log is compared with its
own indexes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from kcompact.errors import CorruptBatchError, CorruptDataError
from kcompact.format import index
from kcompact.format.names import MAX_OFFSET, Suffix, file_name, log_bases, log_name
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.markers import BatchHeader, read_headers
from kcompact.log.offset_index import OffsetPositions
from kcompact.log.segment_reader import verified_runs
from kcompact.log.transaction_index import Transactions, contradictions
from kcompact.log.transactions import of_headers, tables_of
from kcompact.swap.open_directory import OpenDirectory

Files = Mapping[str, str]
"""The names that the files of a log will have, each with the name that the file has now."""


class Overlap(NamedTuple):
    """A segment that begins before the end of the one before it."""

    base_offset: int
    before: int
    end_of_before: int


def overlaps(directory: OpenDirectory, files: Files) -> list[Overlap]:
    """Return the segments of a log that begin before the end of one before them, ascending.

    Only headers are read. Of a damaged segment those before the damage count.
    Raises RefusedError, StorageError.
    """
    overlapping_segments, before, end_of_before = [], -1, -1
    for base, following in pairwise(log_bases(files)):
        end = max((each.header.next_offset for each in _headers(directory, files, base)), default=base)
        if end > end_of_before:
            before, end_of_before = base, end
        if following < end_of_before:
            overlapping_segments.append(Overlap(following, before, end_of_before))
    return overlapping_segments


def index_problem(directory: OpenDirectory, files: Files, bases: Collection[int]) -> tuple[int, str] | None:
    """Return the first of these segments whose `.timeindex` or `.txnindex` is missing or wrong, and the problem.

    Without its `.index` a broker makes all indexes of a segment anew; then nothing is wrong. The active segment is not
    judged. Raises CorruptDataError if a segment is damaged or contradicts its `.index`, RefusedError, StorageError.
    """
    logs = log_bases(files)
    transactions = Transactions()
    for base in logs[:-1]:
        is_judged = base in bases and file_name(base, Suffix.INDEX) in files
        problems = contradictions(
            transactions,
            LogFile.at(directory.path / file_name(base, Suffix.TXN_INDEX)),
            _aborted(directory, files, base) if is_judged else index.AbortedTxnColumns(),
            tables_of(of_headers(_headers(directory, files, base))),
        )
        wrong = list(problems)  # All of them, so that the transactions are followed to the end of the segment.
        if not is_judged:
            continue
        verified_end(directory, files, base)
        if file_name(base, Suffix.TIME_INDEX) not in files:
            return base, f"segment {base} has no .timeindex"
        if wrong:
            return base, str(wrong[0]).partition("\n")[0]
    return None


def verified_end(directory: OpenDirectory, files: Files, base_offset: int) -> int:
    """Return the end offset of a segment after reading all of it, its `.index` and its `.timeindex`.

    Without an `.index` the other one does not count. Raises CorruptDataError, RefusedError, StorageError.
    """
    log = LogFile.at(directory.path / files[log_name(base_offset)])
    index_file, time_file = (file_name(base_offset, suffix) for suffix in (Suffix.INDEX, Suffix.TIME_INDEX))
    entries = index.parse_offset_index(_content(directory, files, index_file), base_offset=base_offset, file=index_file)
    time_data = _content(directory, files, time_file) if index_file in files else b""
    times = index.parse_time_index(time_data, base_offset=base_offset, file=time_file)
    end_offset, largest, offset_positions = base_offset, index.NO_TIMESTAMP, OffsetPositions()
    size_bytes = log.identity().size_bytes
    for run in verified_runs(log, base_offset=base_offset, end_offset=MAX_OFFSET, end_position=size_bytes):
        end_offset, largest = run.next_offset, max(largest, int(run.table[:, c.MAX_TIMESTAMP].max()))
        offset_positions.extend(run.table, run.start_position)
    wrong = next(offset_positions.wrong_entries(entries, base_offset), None)
    if wrong is not None or (times and times[-1].timestamp > largest):
        raise CorruptDataError(
            file=str(log), problem="an index of the segment contradicts it, or the segment lost its end"
        )
    return end_offset


def _headers(directory: OpenDirectory, files: Files, base_offset: int) -> Iterator[BatchHeader]:
    """Yield the headers of a segment up to its end, or up to the first damage."""
    name = files[log_name(base_offset)]
    with suppress(CorruptBatchError):
        yield from read_headers(LogFile.at(directory.path / name), end_position=directory.size(name) or 0)


def _aborted(directory: OpenDirectory, files: Files, base_offset: int) -> index.AbortedTxnColumns:
    name = file_name(base_offset, Suffix.TXN_INDEX)
    return index.parse_txn_index(_content(directory, files, name), base_offset=base_offset, file=name)


def _content(directory: OpenDirectory, files: Files, name: str) -> bytes:
    return directory.read_from_disk(files[name]) if name in files else b""
