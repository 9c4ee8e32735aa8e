"""The three indexes of a segment: `.index`, `.timeindex` and `.txnindex`.

The offset index and the time index store offsets relative to the segment's base offset. Both are sparse:
`IndexBuilder` is the rule for which batches get an entry. Kafka allocates them at full size while the segment is
active, so a file may end in zeros. A relative offset of zero, except in the first entry, marks the end of the entries.

Kafka verifies little of this when it loads a log. The parsers here raise `CorruptIndexError` for every file that
Kafka cannot have written.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from kcompact.errors import CorruptIndexError, CorruptTransactionIndexError, RefusedError
from kcompact.format.names import MAX_OFFSET

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

OFFSET_ENTRY_STRUCT = struct.Struct(">ii")
TIME_ENTRY_STRUCT = struct.Struct(">qi")
ABORTED_TXN_STRUCT = struct.Struct(">hqqqq")

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
TXN_ENTRY_BYTES = 34

NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1
DEFAULT_INTERVAL_BYTES = 4096
ABORTED_TXN_VERSION = 0

LARGE_INDEX_BYTES = 1 << 16
"""Indexes of this size and above are parsed with numpy. For a few smaller ones, importing numpy takes longer."""

_Entry = TypeVar("_Entry")


class OffsetEntry(NamedTuple):
    """An entry of an `.index` as it is stored."""

    relative_offset: int
    position: int


class TimeEntry(NamedTuple):
    """An entry of a `.timeindex` as it is stored."""

    timestamp: int
    relative_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetPosition:
    """The last offset of a batch and the position in the `.log` where the batch starts."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampOffset:
    """A timestamp and the last offset of the first batch that reached it."""

    timestamp: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTxn:
    """An aborted transaction, an entry of the `.txnindex` of the segment that holds the abort marker.

    `first_offset` is the base offset of the transaction's first batch, `last_offset` the offset of the marker, and
    `last_stable_offset` the first offset of the oldest transaction still open then, or the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


# .index and .timeindex


class EntryColumns(Sequence[_Entry]):
    """The entries of a large index as two columns: a sequence that creates an entry only when it is accessed.

    `first` and `second` are the two fields of the entries, int64[n] in file order.
    """

    __slots__ = ("_make", "first", "second")

    def __init__(
        self, first: NDArray[np.int64], second: NDArray[np.int64], make: Callable[[Iterable[int]], _Entry]
    ) -> None:
        self.first, self.second, self._make = first, second, make

    def __len__(self) -> int:
        return len(self.first)

    @overload
    def __getitem__(self, index: int) -> _Entry: ...
    @overload
    def __getitem__(self, index: slice) -> EntryColumns[_Entry]: ...
    def __getitem__(self, index: int | slice) -> _Entry | EntryColumns[_Entry]:
        if isinstance(index, slice):
            return EntryColumns(self.first[index], self.second[index], self._make)
        return self._make((int(self.first[index]), int(self.second[index])))

    def __iter__(self) -> Iterator[_Entry]:
        return map(self._make, zip(self.first.tolist(), self.second.tolist(), strict=True))


def parse_offset_index(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> Sequence[OffsetEntry]:
    """Return the entries of an `.index` without the zeros that may follow them.

    Raises CorruptIndexError with the entry when the length is not a multiple of 8, when offsets or positions do not
    rise strictly, or when entries follow the zeros. With `tolerant` it returns the entries before the first such
    problem instead, for the active segment after a crash. Rule: OffsetIndex.append, OffsetIndex.sanityCheck.
    """
    valid = _valid_offset_index(data, base_offset)
    if valid is not None:
        return valid
    data = _written(data, OFFSET_ENTRY_BYTES, file=file, tolerant=tolerant)
    entries = list(map(OffsetEntry._make, OFFSET_ENTRY_STRUCT.iter_unpack(data)))
    limit = min(MAX_RELATIVE_OFFSET, MAX_OFFSET - base_offset)
    previous = OffsetEntry(-1, -1)
    for number, entry in enumerate(entries):
        if not (previous.relative_offset < entry.relative_offset <= limit and previous.position < entry.position):
            problem = f"entry {number} {tuple(entry)} after {tuple(previous)}: offset or position does not rise"
            return _damaged(entries, number, OFFSET_ENTRY_BYTES, problem, file=file, tolerant=tolerant)
        previous = entry
    return entries


def parse_time_index(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> Sequence[TimeEntry]:
    """Return the entries of a `.timeindex` without the zeros that may follow them.

    Raises CorruptIndexError with the entry when the length is not a multiple of 12, when timestamps do not rise
    strictly, when offsets fall, or when entries follow the zeros. `tolerant` as in `parse_offset_index`.
    Rule: TimeIndex.maybeAppend, TimeIndex.sanityCheck.
    """
    valid = _valid_time_index(data, base_offset)
    if valid is not None:
        return valid
    data = _written(data, TIME_ENTRY_BYTES, file=file, tolerant=tolerant)
    entries = list(map(TimeEntry._make, TIME_ENTRY_STRUCT.iter_unpack(data)))
    limit = min(MAX_RELATIVE_OFFSET, MAX_OFFSET - base_offset)
    previous = TimeEntry(-1, 0)
    for number, entry in enumerate(entries):
        if not (previous.timestamp < entry.timestamp and previous.relative_offset <= entry.relative_offset <= limit):
            problem = f"entry {number} {tuple(entry)} after {tuple(previous)}: timestamp or offset does not rise"
            return _damaged(entries, number, TIME_ENTRY_BYTES, problem, file=file, tolerant=tolerant)
        previous = entry
    return entries


def _valid_offset_index(data: bytes, base_offset: int) -> EntryColumns[OffsetEntry] | None:
    """Return the entries of a large and valid index, else None: `parse_offset_index` then reads each entry."""
    entries = _large_entries(data, [("relative_offset", ">i4"), ("position", ">i4")])
    if entries is None:
        return None
    offsets, positions = entries["relative_offset"].astype("i8"), entries["position"].astype("i8")
    is_sound = (
        offsets[0] >= 0
        and positions[0] >= 0
        and offsets[-1] <= MAX_OFFSET - base_offset
        and (offsets[1:] > offsets[:-1]).all()
        and (positions[1:] > positions[:-1]).all()
    )
    return EntryColumns(offsets, positions, OffsetEntry._make) if is_sound else None


def _valid_time_index(data: bytes, base_offset: int) -> EntryColumns[TimeEntry] | None:
    """As `_valid_offset_index`. Only the first relative offset may be zero."""
    entries = _large_entries(data, [("timestamp", ">i8"), ("relative_offset", ">i4")])
    if entries is None:
        return None
    timestamps, offsets = entries["timestamp"].astype("i8"), entries["relative_offset"].astype("i8")
    is_sound = (
        timestamps[0] >= 0
        and offsets[0] >= 0
        and offsets[1] > 0
        and offsets[-1] <= MAX_OFFSET - base_offset
        and (timestamps[1:] > timestamps[:-1]).all()
        and (offsets[1:] >= offsets[:-1]).all()
    )
    return EntryColumns(timestamps, offsets, TimeEntry._make) if is_sound else None


def _large_entries(data: bytes, fields: list[tuple[str, str]]) -> NDArray[Any] | None:
    """Return the entries of a large index without the zeros at its end; None for a small one or incomplete entries."""
    if len(data) < LARGE_INDEX_BYTES:
        return None
    written_bytes = len(data.rstrip(b"\0"))
    if written_bytes < LARGE_INDEX_BYTES:
        return None
    import numpy as np

    entry = np.dtype(fields)
    if len(data) % entry.itemsize:
        return None
    return np.frombuffer(data, entry, count=-(-written_bytes // entry.itemsize))


def _written(data: bytes, entry_bytes: int, *, file: str, tolerant: bool) -> bytes:
    """Return the bytes of the entries. A relative offset of zero, except in the first entry, ends them.

    Raises CorruptIndexError, unless `tolerant`, for an incomplete entry and for entries behind the zeros.
    """
    rest = len(data) % entry_bytes
    if rest and not tolerant:
        problem = f"{len(data):,} bytes are not a multiple of the {entry_bytes} bytes of an entry"
        raise CorruptIndexError(file=file, position=len(data) - rest, problem=problem)
    data = data[: len(data) - rest]
    # An active index ends in up to a million zero entries, so `rstrip` removes them rather than a loop.
    used = -(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes
    if used == 0:
        # All zeros. A single entry of zeros is valid: the first batch of a segment. More is unused space.
        return data if len(data) == entry_bytes else b""
    for position in range(entry_bytes, used, entry_bytes):
        offset_at = position if entry_bytes == OFFSET_ENTRY_BYTES else position + 8
        if data[offset_at : offset_at + 4] == bytes(4):
            if not tolerant:
                number = position // entry_bytes
                problem = f"entry {number} is empty, but entries follow it"
                raise CorruptIndexError(file=file, position=position, problem=problem)
            return data[:position]
    return data[:used]


def _damaged(
    entries: list[_Entry], number: int, entry_bytes: int, problem: str, *, file: str, tolerant: bool
) -> list[_Entry]:
    """Return the entries before `number` when `tolerant`, else raise CorruptIndexError with the problem."""
    if tolerant:
        return entries[:number]
    raise CorruptIndexError(file=file, position=number * entry_bytes, problem=problem)


def verify_end(entries: Sequence[OffsetEntry], *, size_bytes: int, file: str) -> None:
    """Raise CorruptIndexError when the last entry points beyond a log of `size_bytes`."""
    if entries and entries[-1].position >= size_bytes:
        raise CorruptIndexError(
            file=file,
            position=(len(entries) - 1) * OFFSET_ENTRY_BYTES,
            problem=f"points to position {entries[-1].position}, but the log has {size_bytes} bytes: "
            "the log has lost its end, or the index is wrong",
        )


def build_offset_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes of an `.index` of (relative offset, position) pairs."""
    return b"".join(OFFSET_ENTRY_STRUCT.pack(*entry) for entry in entries)


def build_time_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes of a `.timeindex` of (timestamp, relative offset) pairs."""
    return b"".join(TIME_ENTRY_STRUCT.pack(*entry) for entry in entries)


def lookup(entries: Sequence[OffsetEntry], offset: int, *, base_offset: int) -> OffsetPosition:
    """Return the entry with the greatest offset at or below `offset`, else the start of the segment.

    Rule: OffsetIndex.lookup.
    """
    slot = bisect.bisect_right(entries, offset - base_offset, key=lambda entry: entry.relative_offset) - 1
    if slot < 0:
        return OffsetPosition(offset=base_offset, position=0)
    return OffsetPosition(offset=base_offset + entries[slot].relative_offset, position=entries[slot].position)


def last_time_entry(entries: Sequence[TimeEntry], *, base_offset: int) -> TimestampOffset:
    """Return the largest timestamp of a segment according to its index, (-1, base offset) when that is empty.

    Kafka always takes the last 12 bytes, so it reads (0, base offset) from a file that ends in zeros. A roll and a
    clean shutdown remove the zeros. Rule: TimeIndex.lastEntryFromIndexFile.
    """
    if not entries:
        return TimestampOffset(timestamp=NO_TIMESTAMP, offset=base_offset)
    entry = entries[-1]
    return TimestampOffset(timestamp=entry.timestamp, offset=base_offset + entry.relative_offset)


class IndexBuilder:
    """The `.index` and `.timeindex` of one segment, from its batches in file order.

    A batch gets an entry when the batches before it, from the last one with an entry on, have more than
    `interval_bytes` together; the first batch never gets one. The time index gets an entry at the same batches and one
    at the end: the largest timestamp so far, with the last offset of the batch that first reached it. A timestamp that
    is already the last entry is not repeated. Rule: LogSegment.append, LogSegment.onBecomeInactiveSegment.

    With `max_index_bytes` (`segment.index.bytes`) a full index raises RefusedError; Kafka's cleaner stops there too.
    """

    def __init__(
        self,
        base_offset: int,
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        *,
        max_index_bytes: int | None = None,
        file: str = "",
    ) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._max_index_bytes = max_index_bytes
        self._file = file
        self._bytes_since_entry = 0
        self._largest = TimestampOffset(timestamp=NO_TIMESTAMP, offset=base_offset)
        self._offsets: list[tuple[int, int]] = []
        self._times: list[tuple[int, int]] = []

    def append(self, last_offset: int, position: int, size_bytes: int, max_timestamp: int) -> None:
        """Add the batch at `position`. Raises RefusedError for an offset too far from the base, or a full index."""
        self._relative(last_offset)
        if max_timestamp > self._largest.timestamp:
            self._largest = TimestampOffset(timestamp=max_timestamp, offset=last_offset)
        if self._bytes_since_entry > self._interval_bytes:
            self._require_free_entry(len(self._offsets), OFFSET_ENTRY_BYTES, reserved=0)
            self._offsets.append((self._relative(last_offset), position))
            # As Kafka does, the free entry is required even when no time entry is to be added.
            self._require_free_entry(len(self._times), TIME_ENTRY_BYTES, reserved=1)
            self._append_time()
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def finish(self) -> tuple[bytes, bytes]:
        """Return the bytes of the `.index` and of the `.timeindex`, with the final time entry and without zeros."""
        self._append_time()
        return build_offset_index(self._offsets), build_time_index(self._times)

    def _append_time(self) -> None:
        last = self._times[-1][0] if self._times else NO_TIMESTAMP
        if self._largest.timestamp > last:
            self._times.append((self._largest.timestamp, self._relative(self._largest.offset)))

    def _relative(self, offset: int) -> int:
        relative = offset - self._base_offset
        if not 0 <= relative <= MAX_RELATIVE_OFFSET:
            problem = f"offset {offset} is too far from the segment's base offset {self._base_offset} for an index"
            raise RefusedError(path=self._file, problem=problem)
        return relative

    def _require_free_entry(self, count: int, entry_bytes: int, *, reserved: int) -> None:
        if self._max_index_bytes is not None and count >= self._max_index_bytes // entry_bytes - reserved:
            kind = "offset" if entry_bytes == OFFSET_ENTRY_BYTES else "time"
            raise RefusedError(
                path=self._file,
                problem=f"the {kind} index is full: segment.index.bytes is {self._max_index_bytes:,}",
                hint="Kafka's cleaner stops here too. Raise segment.index.bytes or index.interval.bytes.",
            )


# .txnindex


def parse_txn_index(data: bytes, *, base_offset: int, file: str) -> tuple[AbortedTxn, ...]:
    """Return the aborted transactions of a `.txnindex`. An incomplete last entry is ignored.

    Raises CorruptTransactionIndexError for a version other than 0, for last offsets that do not rise strictly or lie
    below the base offset, and for a first offset above the last. Rule: TransactionIndex.iterator,
    TransactionIndex.sanityCheck, TransactionIndex.append.
    """
    found: list[AbortedTxn] = []
    whole = len(data) // TXN_ENTRY_BYTES * TXN_ENTRY_BYTES
    last_offset = base_offset - 1
    for number, fields in enumerate(ABORTED_TXN_STRUCT.iter_unpack(memoryview(data)[:whole])):
        version, producer_id, first_offset, txn_last_offset, last_stable_offset = fields
        problem = ""
        if version != ABORTED_TXN_VERSION:
            problem = f"version {version} is unknown"
        elif txn_last_offset <= last_offset:
            problem = f"last offset {txn_last_offset} does not rise above {last_offset}"
        elif not 0 <= first_offset <= txn_last_offset:
            problem = f"first offset {first_offset} is not between 0 and the last offset {txn_last_offset}"
        if problem:
            raise CorruptTransactionIndexError(
                file=file, position=number * TXN_ENTRY_BYTES, problem=f"entry {number}: {problem}"
            )
        last_offset = txn_last_offset
        found.append(
            AbortedTxn(
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=txn_last_offset,
                last_stable_offset=last_stable_offset,
            )
        )
    return tuple(found)


def build_txn_index(transactions: Sequence[AbortedTxn]) -> bytes:
    """Return the bytes of a `.txnindex`. Without transactions Kafka writes no file."""
    return b"".join(
        ABORTED_TXN_STRUCT.pack(
            ABORTED_TXN_VERSION, txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset
        )
        for txn in transactions
    )
