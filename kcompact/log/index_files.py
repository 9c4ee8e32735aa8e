"""The `.index` and `.timeindex` of a segment: read, or built from its batches.

`PartitionLog.index_file` gives the file of an index, or None where indexes are to be ignored.
"""

from __future__ import annotations

from array import array
from typing import TypeVar

import numpy as np

from kcompact import kernels
from kcompact.errors import CorruptBatchError, CorruptIndexError, RefusedError, storage_errors
from kcompact.format import index, legacy
from kcompact.format.index import MAX_RELATIVE_OFFSET, IndexBuilder, OffsetColumns, TimeColumns, TimeEntry
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.kernels import Column
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_tables
from kcompact.log.files import LogFile, OpenFile

MAX_INDEX_BYTES = (1 << 31) - 1
"""The greatest `segment.index.bytes`: a broker allocates the index of an active segment with so many bytes."""
MAX_ENTRIES_BYTES = 64 << 20
"""What is held of an index: ten times what the default `index.interval.bytes` gives for the largest segment."""
LEAST_BATCH_BYTES = legacy.LOG_OVERHEAD_BYTES + legacy.minimum_size(0)

_WINDOW_BYTES = 3 << 17
"""An index up to this size is read at once. The end of a larger one is searched in pieces of whole entries."""

_Columns = TypeVar("_Columns", OffsetColumns, TimeColumns)


def read_offset_index(file: LogFile, *, tolerant: bool = False) -> OffsetColumns:
    """Return the entries of an `.index`; with `tolerant` those before the first wrong one, as of a growing index.

    Raises CorruptIndexError, RefusedError, StorageError.
    """
    data = read_entries(file, index.OFFSET_ENTRY_BYTES)
    return index.parse_offset_index(data, base_offset=file.base_offset, file=str(file), tolerant=tolerant)


def read_time_index(file: LogFile, *, tolerant: bool = False) -> TimeColumns:
    """Return the entries of a `.timeindex`. The rest is as in `read_offset_index`."""
    data = read_entries(file, index.TIME_ENTRY_BYTES)
    return index.parse_time_index(data, base_offset=file.base_offset, file=str(file), tolerant=tolerant)


def last_time_slot(file: LogFile) -> TimeEntry:
    """Return the last slot of a `.timeindex` that has one, which a broker takes unseen. Raises StorageError.

    Rule: TimeIndex.lastEntryFromIndexFile.
    """
    return _last_slot(file, TimeColumns)[0]


def require_end(file: LogFile, size_bytes: int) -> None:
    """Raise CorruptIndexError if the last slot of an `.index` that has one points behind a log of `size_bytes`.

    Raises StorageError. Only this slot is read.
    """
    slot = _last_slot(file, OffsetColumns)
    if slot[0] != (0, 0):
        index.verify_end(slot, size_bytes=size_bytes, file=str(file))


def _last_slot(file: LogFile, columns: type[_Columns]) -> _Columns:
    entry_bytes = columns.row.itemsize
    with file.open() as opened:
        data = opened.read(entry_bytes, (opened.size_bytes // entry_bytes - 1) * entry_bytes)
    return columns(np.frombuffer(data, columns.row))


def read_entries(file: LogFile, entry_bytes: int) -> bytes:
    """Return the bytes of an `.index` or a `.timeindex`; of a large one without the zeros at its end.

    So an index costs little more than its entries, however large its file is. Raises CorruptIndexError for an
    incomplete entry and as `verify_count`, RefusedError for more entries than are held, StorageError.
    """
    with file.open() as opened:
        size_bytes = opened.size_bytes
        if size_bytes > MAX_INDEX_BYTES:
            raise RefusedError(path=str(file), problem=f"larger than {MAX_INDEX_BYTES:,} bytes, the limit for an index")
        index.verify_size(size_bytes, entry_bytes, file=str(file))
        used_bytes = size_bytes
        if size_bytes > _WINDOW_BYTES:
            used_bytes = -(-_written_bytes(opened) // entry_bytes) * entry_bytes
        verify_count(file, used_bytes, entry_bytes)
        if used_bytes > MAX_ENTRIES_BYTES:
            raise RefusedError(
                path=str(file),
                problem=f"has {used_bytes:,} bytes of entries, more than the {MAX_ENTRIES_BYTES:,} that kcompact holds",
                hint="--rebuild-indexes reads the batches instead.",
            )
        return opened.read(used_bytes, 0)


def _written_bytes(opened: OpenFile) -> int:
    """Return the size of an index without the zeros at its end. Raises StorageError."""
    for end in range(opened.size_bytes, 0, -_WINDOW_BYTES):
        start = max(0, end - _WINDOW_BYTES)
        if written := index.written_bytes(opened.read(end - start, start)):
            return start + written
    return 0


def verify_count(
    file: LogFile,
    used_bytes: int,
    entry_bytes: int,
    *,
    batch_bytes: int = LEAST_BATCH_BYTES,
    error: type[CorruptIndexError] = CorruptIndexError,
) -> None:
    """Raise `error` if an index has more entries than its log can have batches of at least `batch_bytes`.

    Each entry is of another batch; a time index may have one more. A small index is not compared, and none without a
    log. Raises StorageError.
    """
    log = file.with_suffix(Suffix.LOG)
    if used_bytes <= _WINDOW_BYTES or not log.exists():
        return
    with storage_errors(log.path):
        log_bytes = log.identity().size_bytes
    most = log_bytes // batch_bytes + 1
    if used_bytes > most * entry_bytes:
        raise error(
            file=str(file),
            position=most * entry_bytes,
            problem=f"has {used_bytes // entry_bytes:,} entries, but a log of {log_bytes:,} bytes has at most "
            f"{most - 1:,} batches: the log has lost its end, or the index is wrong",
        )


def build_indexes(log: LogFile, *, interval_bytes: int) -> tuple[bytes, bytes]:
    """Return the `.index` and the `.timeindex` of a log file, as a broker builds them when they are missing.

    Raises CorruptBatchError, also for an offset that no index can have, RefusedError, StorageError.
    Rule: `LogSegment.recover`, `LogSegment.canConvertToRelativeOffset`.
    """
    columns = array("q"), array("q"), array("q")  # Of up to 15 million batches: as little as holds them.
    for table in header_tables(log):
        relative_offsets = table[:, c.LAST_OFFSET] - log.base_offset
        wrong = np.flatnonzero((relative_offsets < 0) | (relative_offsets > MAX_RELATIVE_OFFSET))
        if len(wrong):
            row = table[wrong[0]].tolist()
            problem = f"last offset {row[c.LAST_OFFSET]} is too far from the segment's base offset {log.base_offset}"
            raise CorruptBatchError(file=str(log), position=row[c.POSITION], offset=row[c.BASE_OFFSET], problem=problem)
        for column, number in zip(columns, (c.LAST_OFFSET, c.MAX_TIMESTAMP, c.SIZE), strict=True):
            column.frombytes(table[:, number].tobytes())
    last_offsets, max_timestamps, sizes = map(np.asarray, columns)
    return indexes_of(
        last_offsets,
        max_timestamps,
        sizes,
        base_offset=log.base_offset,
        interval_bytes=interval_bytes,
        file=str(log),
    )


def indexes_of(
    last_offsets: Column,
    max_timestamps: Column,
    sizes: Column,
    *,
    base_offset: int,
    interval_bytes: int,
    max_index_bytes: int = MAX_OFFSET,
    file: str,
) -> tuple[bytes, bytes]:
    """Return the `.index` and the `.timeindex` of the batches of a segment. Raises RefusedError for a full index."""
    offsets, times = np.empty((len(sizes) + 1, 2), np.int64), np.empty((len(sizes) + 1, 2), np.int64)
    offset_count, time_count, code = kernels.index_entries(
        last_offsets, max_timestamps, sizes, base_offset, interval_bytes,
        max_index_bytes // index.OFFSET_ENTRY_BYTES, max_index_bytes // index.TIME_ENTRY_BYTES - 1, offsets, times,
    )  # fmt: skip
    if code == c.DONE:
        time_entries = np.empty(time_count, TimeColumns.row)
        time_entries["timestamp"], time_entries["relative_offset"] = times[:time_count].T
        return offsets[:offset_count].astype(">i4").tobytes(), time_entries.tobytes()
    # Raises the error.
    builder, position = IndexBuilder(base_offset, interval_bytes, max_index_bytes=max_index_bytes, file=file), 0
    for last_offset, max_timestamp, size_bytes in zip(
        last_offsets.tolist(), max_timestamps.tolist(), sizes.tolist(), strict=True
    ):
        builder.append(last_offset, position, size_bytes, max_timestamp)
        position += size_bytes
    return builder.finish()
