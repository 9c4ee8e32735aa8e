"""Whether the entries of an `.index` are true, and where they say that reading may begin.

An entry is true if a batch begins at its position, and if its offset is not below the first offset of that batch and
not above the last offset before the next entry's position. So no batch before its position ends at or above its offset,
and a look-up finds its batch.

Since 3.9.0 Kafka writes entries for batches: the position and the last offset of one. Before, it wrote them for
appends: the position of the first batch, and the last offset that was appended. A follower appends a fetch. A cleaner
appends what a read buffer gave, and takes the offset of the last record, which can be below the last offset of its
batch.

An index is blamed only after its log has been read and verified from the start: if the log is damaged, that is the
error. Rule: `OffsetIndex.append`, `LogSegment.append`, `MemoryRecords.filterTo`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kcompact.errors import CorruptBatchError, CorruptDataError, CorruptIndexError, KcompactError
from kcompact.format import index
from kcompact.format.batch import Header
from kcompact.format.index import OffsetColumns, OffsetEntry
from kcompact.format.names import MAX_OFFSET, Suffix
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import headers
from kcompact.log.files import LogFile
from kcompact.log.index_files import read_offset_index
from kcompact.log.segment_reader import verified_batches

if TYPE_CHECKING:
    from kcompact.kernels import Table


class OffsetPositions:
    """The position, the base offset and the last offset of each batch of a log file, or of a part of it.

    24 bytes for each batch.
    """

    __slots__ = ("_base_offsets", "_last_offsets", "_positions")

    def __init__(self) -> None:
        self._positions, self._base_offsets, self._last_offsets = array("q"), array("q"), array("q")

    def __iter__(self) -> Iterator[int]:
        """Yield the positions in ascending order."""
        return iter(self._positions)

    @property
    def last_position(self) -> int:
        """The position of the last batch, -1 without one."""
        return self._positions[-1] if self._positions else -1

    def append(self, position: int, header: Header) -> None:
        """Add a batch. Positions must rise."""
        self._positions.append(position)
        self._base_offsets.append(header.base_offset)
        self._last_offsets.append(header.last_offset)

    def leave_open(self) -> None:
        """Let an entry be true if a batch that was not read may make it so: the last batch counts up to any offset."""
        self._last_offsets[-1:] = array("q", [MAX_OFFSET])

    def extend(self, table: Table, start_position: int) -> None:
        """Add the batches of a table, whose positions count from `start_position` on."""
        self._positions.frombytes((table[:, c.POSITION] + start_position).tobytes())
        self._base_offsets.frombytes(table[:, c.BASE_OFFSET].tobytes())
        self._last_offsets.frombytes(table[:, c.LAST_OFFSET].tobytes())

    def has_batch_at(self, position: int) -> bool:
        """Return whether a batch begins at a position."""
        row = bisect_left(self._positions, position)
        return row < len(self._positions) and self._positions[row] == position

    def wrong_entries(self, entries: OffsetColumns, base_offset: int) -> Iterator[int]:
        """Yield the numbers of the entries that are not true. Their positions must rise.

        A batch of magic 0 or 1 has only its last offset, and an entry for it has no other.
        """
        if not self._positions:
            yield from range(len(entries))
            return
        positions, *columns = map(np.asarray, (self._positions, self._base_offsets, self._last_offsets))
        base_offsets, last_offsets = columns
        for number, window in entries.windows():
            after = number + len(window)
            next_position = entries[after].position if after < len(entries) else MAX_OFFSET
            starts = window["position"].astype(np.int64)
            rows = positions.searchsorted(starts).clip(max=len(positions) - 1)
            last_rows = positions.searchsorted(np.append(starts[1:], next_position)) - 1
            offsets = window["relative_offset"].astype(np.int64) + base_offset
            are_true = (
                (positions[rows] == starts) & (base_offsets[rows] <= offsets) & (offsets <= last_offsets[last_rows])
            )
            yield from (number + np.flatnonzero(~are_true)).tolist()


def wrong_entry(file: LogFile, number: int, entry: OffsetEntry) -> CorruptIndexError:
    """Return the error for an entry that is not true."""
    return CorruptIndexError(
        file=str(file),
        position=number * index.OFFSET_ENTRY_BYTES,
        offset=file.base_offset + entry.relative_offset,
        problem=f"points to position {entry.position} of the log, where no batch starts, or no batch from there to the "
        "next entry has the offset",
    )


# Single entries


def is_true(log: LogFile, entries: OffsetColumns, number: int) -> bool:
    """Return whether one entry of the `.index` of a log file is true. Raises RefusedError, StorageError."""
    entry = entries[number : number + 1]
    end_position = entries[number + 1].position if number + 1 < len(entries) else None
    batch_positions, damage = _read_for(log, entry, start_position=entry[0].position, end_position=end_position)
    return damage is None and not any(True for _ in batch_positions.wrong_entries(entry, log.base_offset))


def _read_for(
    log: LogFile, entries: OffsetColumns, *, start_position: int = 0, end_position: int | None = None
) -> tuple[OffsetPositions, CorruptBatchError | None]:
    """Return the batches up to the one that has the offset of the last entry.

    If a header is damaged before that, its error comes with the batches in front of it. Raises RefusedError,
    StorageError.
    """
    batch_positions, last = OffsetPositions(), entries[-1]
    last_offset = log.base_offset + last.relative_offset
    try:
        for position, header in headers(log, start_position=start_position, end_position=end_position):
            batch_positions.append(position, header)
            if position >= last.position and header.last_offset >= last_offset:
                break
    except CorruptBatchError as damage:
        return batch_positions, damage
    return batch_positions, None


def last_indexed_position(file: LogFile, size_bytes: int) -> int:
    """Return the position in the last entry of an `.index`, 0 without entries. The log has `size_bytes`.

    Raises CorruptIndexError if the entry is not true, RefusedError, StorageError.
    """
    entries = read_offset_index(file)
    if not entries:
        return 0
    index.verify_end(entries, size_bytes=size_bytes, file=str(file))
    return _true_position(file, entries, len(entries) - 1)


def looked_up(file: LogFile, offset: int, *, tolerant: bool = False) -> int:
    """Return where to begin to read a log for the records from an offset on, by its `.index`.

    No batch before the position ends at or above the offset. Raises CorruptIndexError if the entry is not true, and as
    `read_offset_index`. Rule: `OffsetIndex.lookup`.
    """
    entries = read_offset_index(file, tolerant=tolerant)
    number = bisect_right(entries, offset - file.base_offset, key=lambda entry: entry.relative_offset) - 1
    # No batch is before position 0.
    return _true_position(file, entries, number) if number >= 0 and entries[number].position else 0


def _true_position(file: LogFile, entries: OffsetColumns, number: int) -> int:
    if not is_true(file.with_suffix(Suffix.LOG), entries, number):
        raise wrong_entry(file, number, entries[number])
    return entries[number].position


def position_near(log: LogFile, offset: int) -> int:
    """Return what `looked_up` returns for the index of a log file, or 0 if that is not sound."""
    try:
        return looked_up(log.with_suffix(Suffix.INDEX), offset, tolerant=True)
    except KcompactError:
        return 0


# What is wrong: the index or its log


def index_or_log(problem: CorruptIndexError, log: LogFile) -> CorruptDataError:
    """Return the problem of an index if its log is sound, else the damage of the log.

    Raises RefusedError, StorageError.
    """
    try:
        for _ in verified_batches(log, base_offset=log.base_offset, end_offset=MAX_OFFSET, holds_large=False):
            pass
    except CorruptBatchError as damage:
        return damage
    return problem


def contradiction(file: LogFile) -> CorruptDataError | None:
    """Return how an `.index` contradicts its log, or the damage of the log if it is damaged; None if they agree.

    Raises RefusedError, StorageError.
    """
    log = file.with_suffix(Suffix.LOG)
    try:
        entries = read_offset_index(file)
    except CorruptIndexError as malformed:
        return index_or_log(malformed, log)
    if not entries:
        return None
    batch_positions, damage = _read_for(log, entries)
    if damage is not None:
        entries = entries[: bisect_right(entries, batch_positions.last_position, key=lambda entry: entry.position)]
        batch_positions.leave_open()
    number = next(batch_positions.wrong_entries(entries, file.base_offset), None)
    return damage if number is None else index_or_log(wrong_entry(file, number, entries[number]), log)
