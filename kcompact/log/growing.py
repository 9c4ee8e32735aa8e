"""The active segment of a running broker: its files grow, and its indexes are allocated in advance.

A broker appends a batch to the `.log` first, and its entries to the indexes afterwards. So the indexes are read first:
the log that is read after them has every batch that an entry points to. What a broker is just writing is at the end of
a file, and is left out: an entry of an index that is half written, and a batch that is not whole.
Rules: `LogSegment.append`, `UnifiedLog.append`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kcompact.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, CorruptTransactionIndexError
from kcompact.format import index
from kcompact.format.batch import LOG_OVERHEAD_BYTES
from kcompact.format.index import OffsetColumns, TimeColumns
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.log.files import FileIdentity, LogFile
from kcompact.log.index_files import read_offset_index, read_time_index
from kcompact.log.offset_index import index_or_log, is_true, wrong_entry
from kcompact.log.segment_reader import verified_runs
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

_TAIL_BYTES = 1 << 20
"""So many zeros after the last batch are space that the broker has allocated (`log.preallocate`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingSegment:
    """What is valid of an active segment. `files` have the sizes of their valid parts.

    `notes` say what follows the last whole batch. The batches are verified from the last offset index entry on.
    """

    files: dict[Suffix, FileIdentity]
    end_offset: int
    last_timestamp: int
    damage: tuple[CorruptDataError, ...] = ()
    notes: tuple[Note, ...] = ()


def read_growing(
    log: LogFile, base_offset: int, files: Mapping[Suffix, FileIdentity], *, ignores_indexes: bool = False
) -> GrowingSegment:
    """Return the valid part of an active segment. Raises LogChangedError, RefusedError, StorageError."""
    entries, times = OffsetColumns(), TimeColumns()
    damage: CorruptDataError | None = None
    try:
        if Suffix.INDEX in files and not ignores_indexes:
            entries = read_offset_index(log.with_suffix(Suffix.INDEX), tolerant=True)
        if Suffix.TIME_INDEX in files and not ignores_indexes:
            times = read_time_index(log.with_suffix(Suffix.TIME_INDEX), tolerant=True)
    except CorruptIndexError as malformed:
        damage = index_or_log(malformed, log)
    aborted = log.with_suffix(Suffix.TXN_INDEX).read() if Suffix.TXN_INDEX in files else b""

    current = log.identity()
    entries, is_wrong = _without_torn_entry(log, entries, current.size_bytes)
    if is_wrong:
        damage = index_or_log(wrong_entry(log.with_suffix(Suffix.INDEX), len(entries) - 1, entries[-1]), log)
        entries = OffsetColumns()
    start = entries[-1].position if entries else 0
    position, end_offset, problem = last_whole_batch(log, base_offset, start, current.size_bytes)
    notes: tuple[Note, ...] = ()
    if problem is not None and not _are_zeros(log, position, current.size_bytes):
        if _is_torn(log, position, current.size_bytes):
            torn_bytes = current.size_bytes - position
            notes = (Note.of(RemarkCode.INCOMPLETE_BATCH, log=log.name, size_bytes=torn_bytes),)
        else:
            damage = damage or problem
    times = _below(times, end_offset - base_offset)
    sizes = {
        Suffix.LOG: position,
        Suffix.INDEX: len(entries) * index.OFFSET_ENTRY_BYTES,
        Suffix.TIME_INDEX: len(times) * index.TIME_ENTRY_BYTES,
        Suffix.TXN_INDEX: _aborted_below(aborted, end_offset, log) * index.TXN_ENTRY_BYTES,
    }
    now = {**files, Suffix.LOG: current}
    return GrowingSegment(
        files={suffix: replace(file, size_bytes=sizes[suffix]) for suffix, file in now.items()},
        end_offset=end_offset,
        last_timestamp=times[-1].timestamp if times else index.NO_TIMESTAMP,
        damage=() if damage is None else (damage,),
        notes=notes,
    )


def _without_torn_entry(log: LogFile, entries: OffsetColumns, size_bytes: int) -> tuple[OffsetColumns, bool]:
    """Return the entries without a last one that is half written, and whether the one before is wrong too."""
    for _ in range(2):
        if not entries:
            return entries, False
        if entries[-1].position < size_bytes and is_true(log, entries, len(entries) - 1):
            return entries, False
        before, entries = entries, entries[:-1]
    return before, True


def last_whole_batch(
    log: LogFile, base_offset: int, start_position: int, end_position: int
) -> tuple[int, int, CorruptBatchError | None]:
    """Return the end of the last whole batch, the offset after it, and what is wrong with the bytes behind it."""
    limit = min(MAX_OFFSET, base_offset + index.MAX_RELATIVE_OFFSET + 1)
    position, end_offset = start_position, base_offset
    if start_position == end_position:
        return position, end_offset, None
    try:
        for run in verified_runs(
            log, base_offset=0, end_offset=limit, start_position=start_position, end_position=end_position
        ):
            position, end_offset = run.end_position, run.next_offset
    except CorruptBatchError as problem:
        return position, end_offset, problem
    return position, end_offset, None


def _is_torn(log: LogFile, position: int, size_bytes: int) -> bool:
    """Return whether a batch begins at a position of the log that is longer than the rest."""
    left_bytes = size_bytes - position
    with log.open() as opened:
        prefix = opened.read(LOG_OVERHEAD_BYTES, position)
    if len(prefix) < LOG_OVERHEAD_BYTES:
        return True
    return int.from_bytes(prefix[8:], "big", signed=True) > left_bytes - LOG_OVERHEAD_BYTES


def _are_zeros(log: LogFile, position: int, size_bytes: int) -> bool:
    with log.open() as opened:
        tail = opened.read(min(_TAIL_BYTES, size_bytes - position), position)
    return not tail.strip(b"\0")


def _below(times: TimeColumns, end: int) -> TimeColumns:
    """Return the entries with relative offsets below `end`. The batches of later ones were not read."""
    count = len(times)
    while count and times[count - 1].relative_offset >= end:
        count -= 1
    return times[:count]


def _aborted_below(data: bytes, end_offset: int, log: LogFile) -> int:
    """Return how many entries of a `.txnindex` are of transactions that end below an offset."""
    file = log.with_suffix(Suffix.TXN_INDEX)
    try:
        entries = index.parse_txn_index(data, base_offset=log.base_offset, file=str(file))
    except CorruptTransactionIndexError as problem:
        return (problem.position or 0) // index.TXN_ENTRY_BYTES
    return sum(entry.last_offset < end_offset for entry in entries)
