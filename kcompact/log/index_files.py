"""The `.index` and `.timeindex` of a segment: read, compared with the log, or built from its batches.

`PartitionLog.index_file` gives the path of an index, or None where indexes are to be ignored. An index is blamed only
after its log has been read and verified from the start: if the log is damaged, that is the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.errors import CorruptBatchError, CorruptDataError, CorruptIndexError
from kcompact.format import index
from kcompact.format.index import IndexBuilder, OffsetEntry, TimeEntry
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.log.files import MAX_INDEX_BYTES, read_file
from kcompact.log.segment_reader import headers, verified_batches


def read_offset_index(path: Path) -> Sequence[OffsetEntry]:
    """Return the entries of an `.index`. Raises CorruptIndexError, RefusedError, StorageError."""
    return index.parse_offset_index(
        read_file(path, max_bytes=MAX_INDEX_BYTES), base_offset=int(path.stem), file=str(path)
    )


def read_time_index(path: Path) -> Sequence[TimeEntry]:
    """Return the entries of a `.timeindex`. Raises CorruptIndexError, RefusedError, StorageError."""
    return index.parse_time_index(
        read_file(path, max_bytes=MAX_INDEX_BYTES), base_offset=int(path.stem), file=str(path)
    )


def build_indexes(log: Path, *, interval_bytes: int) -> tuple[bytes, bytes]:
    """Return the `.index` and the `.timeindex` of a log file, as a broker builds them when they are missing.

    Raises CorruptBatchError, RefusedError, StorageError. Rule: `LogSegment.recover`.
    """
    builder = IndexBuilder(int(log.stem), interval_bytes)
    for position, header in headers(log):
        builder.append(header.last_offset, position, header.size_bytes, header.max_timestamp)
    return builder.finish()


def is_batch(log: Path, position: int, last_offset: int) -> bool:
    """Return whether a batch with this last offset starts at a position of a log file.

    Raises RefusedError, StorageError.
    """
    try:
        found = next(headers(log, start_position=position), None)
    except CorruptBatchError:
        return False
    return found is not None and found[1].last_offset == last_offset


def wrong_entry(path: Path, number: int, entry: OffsetEntry) -> CorruptIndexError:
    """Return the error for an entry of an `.index` that is not the position and the last offset of a batch."""
    return CorruptIndexError(
        file=path,
        position=number * index.OFFSET_ENTRY_BYTES,
        offset=int(path.stem) + entry.relative_offset,
        problem=f"points to position {entry.position} of the log, where no batch with this last offset starts",
    )


def index_or_log(problem: CorruptIndexError) -> CorruptDataError:
    """Return the problem of an index if its log is sound, else the damage of the log.

    Raises RefusedError, StorageError.
    """
    log = Path(problem.file).with_suffix(Suffix.LOG)
    try:
        for _ in verified_batches(log, base_offset=int(log.stem), end_offset=MAX_OFFSET, holds_large=False):
            pass
    except CorruptBatchError as damage:
        return damage
    return problem


def contradiction(path: Path) -> CorruptDataError | None:
    """Return how an `.index` contradicts its log, or the damage of the log if it is damaged; None if they agree.

    Raises RefusedError, StorageError.
    """
    try:
        problem = _first_wrong_entry(path)
    except CorruptIndexError as malformed:
        problem = malformed
    except CorruptBatchError as damage:
        return damage
    return None if problem is None else index_or_log(problem)


def _first_wrong_entry(path: Path) -> CorruptIndexError | None:
    entries, number = read_offset_index(path), 0
    for position, header in headers(path.with_suffix(Suffix.LOG)):
        if number == len(entries):
            return None
        entry = entries[number]
        if entry.position < position + header.size_bytes:
            if (entry.position, int(path.stem) + entry.relative_offset) != (position, header.last_offset):
                return wrong_entry(path, number, entry)
            number += 1
    return wrong_entry(path, number, entries[number]) if number < len(entries) else None
