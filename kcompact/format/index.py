"""The three indexes of a segment: `.index`, `.timeindex` and `.txnindex`.

The offset index and the time index store offsets relative to the segment's base offset. Both are sparse:
`IndexBuilder` is the rule for which batches get an entry. Kafka allocates them at full size while the segment is
active, so a file may end in zeros. A relative offset of zero, except in the first entry, marks the end of the entries.

Kafka verifies little of this when it loads a log. The parsers here raise `CorruptIndexError` for every file that
Kafka cannot have written.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from kcompact.errors import CorruptIndexError, CorruptTransactionIndexError, RefusedError
from kcompact.format.names import MAX_OFFSET
from kcompact.release import NEWEST
from kcompact.values import dataclass

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
TXN_ENTRY_BYTES = 34

NO_TIMESTAMP = -1
MAX_RELATIVE_OFFSET = 2**31 - 1
DEFAULT_INTERVAL_BYTES: int = NEWEST.defaults["index.interval.bytes"]
ABORTED_TXN_VERSION = 0

WINDOW_ENTRIES = 1 << 16
"""So many entries are converted at a time, which takes a few MB for an index of any size."""

_ZEROS = bytes(1 << 14)

_Entry = TypeVar("_Entry", bound=tuple[int, ...])
_Fields: TypeAlias = tuple[Any, Any]
"""The two fields of an entry of an `.index` or a `.timeindex`, as numbers or as columns."""


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


class AbortedTxn(NamedTuple):
    """An aborted transaction, an entry of the `.txnindex` of the segment that holds the abort marker.

    `first_offset` is the base offset of the transaction's first batch, `last_offset` the offset of the marker, and
    `last_stable_offset` the first offset of the oldest transaction still open then, or the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class EntryColumns(Sequence[_Entry]):
    """The entries of an index: a sequence that creates an entry only when it is accessed.

    `table` has a row for each entry, with the fields in their order; a subclass declares the types of both.
    """

    __slots__ = ("table",)
    entry: ClassVar[type[Any]]
    row: ClassVar[np.dtype[Any]]

    def __init__(self, table: NDArray[Any] | None = None) -> None:
        self.table = np.empty(0, self.row) if table is None else table

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> _Entry: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> _Entry | Self:
        if isinstance(index, slice):
            return type(self)(self.table[index])
        entry: _Entry = self.entry(*self.table[index].tolist())
        return entry

    def __iter__(self) -> Iterator[_Entry]:
        for _, window in self.windows():
            yield from starmap(self.entry, window.tolist())

    def windows(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Yield the number of the first entry of each window, and the rows of the window."""
        for start in range(0, len(self.table), WINDOW_ENTRIES):
            yield start, self.table[start : start + WINDOW_ENTRIES]


# .index and .timeindex


class OffsetColumns(EntryColumns[OffsetEntry]):
    """The entries of an `.index`. The table has them as the file stores them: no copy is made."""

    __slots__ = ()
    entry = OffsetEntry
    row = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
    before_first = (-1, -1)
    rising = "offset or position"

    @staticmethod
    def follows(before: _Fields, entry: _Fields, most: int) -> Any:
        """Return where an entry may follow the one before, up to a greatest relative offset."""
        return (before[0] < entry[0]) & (entry[0] <= most) & (before[1] < entry[1])


class TimeColumns(EntryColumns[TimeEntry]):
    """The entries of a `.timeindex`, as in `OffsetColumns`."""

    __slots__ = ()
    entry = TimeEntry
    row = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
    before_first = (-1, 0)
    rising = "timestamp or offset"

    @staticmethod
    def follows(before: _Fields, entry: _Fields, most: int) -> Any:
        """As `OffsetColumns.follows`."""
        return (before[0] < entry[0]) & (before[1] <= entry[1]) & (entry[1] <= most)


_Columns = TypeVar("_Columns", OffsetColumns, TimeColumns)


def parse_offset_index(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> OffsetColumns:
    """Return the entries of an `.index` without the zeros that may follow them.

    Raises CorruptIndexError with the entry when the length is not a multiple of 8, when offsets or positions do not
    rise strictly, or when entries follow the zeros. With `tolerant` it returns the entries before the first such
    problem instead, for the active segment after a crash. Rule: OffsetIndex.append, OffsetIndex.sanityCheck.
    """
    return _parse(data, OffsetColumns, base_offset=base_offset, file=file, tolerant=tolerant)


def parse_time_index(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> TimeColumns:
    """Return the entries of a `.timeindex` without the zeros that may follow them.

    Raises CorruptIndexError with the entry when the length is not a multiple of 12, when timestamps do not rise
    strictly, when offsets fall, or when entries follow the zeros. `tolerant` as in `parse_offset_index`.
    Rule: TimeIndex.maybeAppend, TimeIndex.sanityCheck.
    """
    return _parse(data, TimeColumns, base_offset=base_offset, file=file, tolerant=tolerant)


def _parse(data: bytes, columns: type[_Columns], *, base_offset: int, file: str, tolerant: bool) -> _Columns:
    entry_bytes = columns.row.itemsize
    if not tolerant:
        verify_size(len(data), entry_bytes, file=file)
    whole = memoryview(data)[: len(data) // entry_bytes * entry_bytes]
    # All zeros are unused space, except for a single entry: that of the first batch of a segment.
    count = 1 if len(whole) == entry_bytes else -(-written_bytes(whole) // entry_bytes)
    entries = columns(np.frombuffer(whole, columns.row, count))
    # A relative offset of zero, except in the first entry, ends the entries.
    end = _first_wrong(entries.table["relative_offset"][1:] != 0)
    if end is not None:
        if not tolerant:
            problem = f"entry {end + 1} is empty, but entries follow it"
            raise CorruptIndexError(file=file, position=(end + 1) * entry_bytes, problem=problem)
        entries = entries[: end + 1]
    most = min(MAX_RELATIVE_OFFSET, MAX_OFFSET - base_offset)
    first, second = (entries.table[name] for name in columns.row.names or ())
    are_right = np.empty(len(entries), np.bool_)
    are_right[:1] = columns.follows(columns.before_first, (first[:1], second[:1]), most)
    are_right[1:] = columns.follows((first[:-1], second[:-1]), (first[1:], second[1:]), most)
    number = _first_wrong(are_right)
    if number is None:
        return entries
    if tolerant:
        return entries[:number]
    before = tuple(entries[number - 1]) if number else columns.before_first
    problem = f"entry {number} {tuple(entries[number])} after {before}: {columns.rising} does not rise"
    raise CorruptIndexError(file=file, position=number * entry_bytes, problem=problem)


def _first_wrong(are_right: NDArray[np.bool_]) -> int | None:
    """Return the number of the first entry that is not right."""
    return None if are_right.all() else int(are_right.argmin())


def verify_size(size_bytes: int, entry_bytes: int, *, file: str) -> None:
    """Raise CorruptIndexError if the last entry of an `.index` or a `.timeindex` of `size_bytes` is incomplete."""
    rest = size_bytes % entry_bytes
    if rest:
        problem = f"{size_bytes:,} bytes are not a multiple of the {entry_bytes} bytes of an entry"
        raise CorruptIndexError(file=file, position=size_bytes - rest, problem=problem)


def written_bytes(data: bytes | memoryview) -> int:
    """Return the length of `data` without the zeros at its end: an active index ends in up to a million zero entries.

    It goes back piece by piece, because `rstrip` would copy the rest.
    """
    end = len(data)
    while end and bytes(data[max(0, end - len(_ZEROS)) : end]) == _ZEROS[:end]:
        end = max(0, end - len(_ZEROS))
    start = max(0, end - len(_ZEROS))
    return start + len(bytes(data[start:end]).rstrip(b"\0"))


LOST_END_HINT = (
    "Copy the directory first. If the log has lost its end, the index is the only proof: restore the segment. If the "
    "log is whole, kcompact clean --rebuild-indexes reads the batches instead; with --dry-run it changes nothing."
)


def verify_end(entries: Sequence[OffsetEntry], *, size_bytes: int, file: str) -> None:
    """Raise CorruptIndexError when the last entry points beyond a log of `size_bytes`."""
    if entries and entries[-1].position >= size_bytes:
        raise CorruptIndexError(
            file=file,
            position=(len(entries) - 1) * OFFSET_ENTRY_BYTES,
            problem=f"points to position {entries[-1].position}, but the log has {size_bytes} bytes: "
            "the log has lost its end, or the index is wrong",
            hint=LOST_END_HINT,
        )


def build_offset_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes of an `.index` of (relative offset, position) pairs."""
    return np.fromiter(entries, OffsetColumns.row).tobytes()


def build_time_index(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes of a `.timeindex` of (timestamp, relative offset) pairs."""
    return np.fromiter(entries, TimeColumns.row).tobytes()


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
        """Return the bytes of the `.index` and of the `.timeindex`, without zeros.

        The time index gets a last entry. Rule: LogSegment.recover, LogSegment.onBecomeInactiveSegment.
        """
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
                hint="Since 3.9.0 Kafka's cleaner stops here too. Raise segment.index.bytes or index.interval.bytes.",
            )


# .txnindex


_STORED_TXN = np.dtype([("version", ">i2"), ("fields", ">i8", len(AbortedTxn._fields))])


class AbortedTxnColumns(EntryColumns[AbortedTxn]):
    """The entries of a `.txnindex`. `table` has the fields of `AbortedTxn` as columns: int64[n, 4]."""

    __slots__ = ()
    entry = AbortedTxn
    row = np.dtype(("i8", len(AbortedTxn._fields)))

    @classmethod
    def of(cls, *parts: Iterable[AbortedTxn]) -> Self:
        """Return all these entries."""
        tables = [part.table if isinstance(part, cls) else np.fromiter(part, cls.row) for part in parts]
        return cls(np.concatenate([cls().table, *tables]))


def parse_txn_index(data: bytes, *, base_offset: int, file: str) -> AbortedTxnColumns:
    """Return the aborted transactions of a `.txnindex`. An incomplete last entry is ignored.

    Raises CorruptTransactionIndexError for a version other than 0, for last offsets that do not rise strictly or lie
    below the base offset, and for a first offset above the last. Rule: TransactionIndex.iterator,
    TransactionIndex.sanityCheck, TransactionIndex.append.
    """
    stored = np.frombuffer(data, _STORED_TXN, len(data) // TXN_ENTRY_BYTES)
    table = stored["fields"].astype("i8")
    _, first, last, _ = table.T
    before = np.append(base_offset - 1, last[:-1])
    number = _first_wrong((stored["version"] == ABORTED_TXN_VERSION) & (before < last) & (first >= 0) & (first <= last))
    if number is None:
        return AbortedTxnColumns(table)
    version, first_offset, last_offset = int(stored["version"][number]), first[number], last[number]
    if version != ABORTED_TXN_VERSION:
        problem = f"version {version} is unknown"
    elif last_offset <= before[number]:
        problem = f"last offset {last_offset} does not rise above {before[number]}"
    else:
        problem = f"first offset {first_offset} is not between 0 and the last offset {last_offset}"
    error = CorruptTransactionIndexError(
        file=file, position=number * TXN_ENTRY_BYTES, problem=f"entry {number}: {problem}"
    )
    error.unknown_version = None if version == ABORTED_TXN_VERSION else version
    raise error


def build_txn_index(transactions: Iterable[AbortedTxn]) -> bytes:
    """Return the bytes of a `.txnindex`. Without transactions Kafka writes no file."""
    table = AbortedTxnColumns.of(transactions).table
    stored = np.empty(len(table), _STORED_TXN)
    stored["version"], stored["fields"] = ABORTED_TXN_VERSION, table
    return stored.tobytes()
