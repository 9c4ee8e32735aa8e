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
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar, overload

from kcompact.errors import CorruptIndexError, CorruptTransactionIndexError, RefusedError
from kcompact.format.names import MAX_OFFSET
from kcompact.release import NEWEST

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
DEFAULT_INTERVAL_BYTES: int = NEWEST.defaults["index.interval.bytes"]
ABORTED_TXN_VERSION = 0

LARGE_INDEX_BYTES = 1 << 16
"""Indexes of this size and above are parsed with numpy. For a few smaller ones, importing numpy takes longer."""
WINDOW_ENTRIES = 1 << 16
"""So many entries of a large index are compared at a time, which takes a few MB for an index of any size."""

_ZEROS = bytes(1 << 14)

_Entry = TypeVar("_Entry", bound=tuple[int, int])
_Fields: TypeAlias = tuple[Any, Any]


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


# .index and .timeindex


class EntryColumns(Sequence[_Entry]):
    """The entries of a large index as two columns: a sequence that creates an entry only when it is accessed.

    `first` and `second` are the two fields of the entries in file order, as the file stores them: no copy is made.
    """

    __slots__ = ("_make", "first", "second")

    def __init__(
        self, first: NDArray[np.integer], second: NDArray[np.integer], make: Callable[[Iterable[int]], _Entry]
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
        for _, first, second in self.windows():
            yield from map(self._make, zip(first.tolist(), second.tolist(), strict=True))

    def windows(self) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the number of the first entry of each window, and its columns in the byte order of the machine."""
        for start in range(0, len(self), WINDOW_ENTRIES):
            window = slice(start, start + WINDOW_ENTRIES)
            yield start, self.first[window].astype("i8"), self.second[window].astype("i8")


class _Form(NamedTuple, Generic[_Entry]):
    """What tells the two indexes apart.

    `before` stands for the entry before the first. `follows` says of an entry and the one before, given as pairs of
    numbers or of columns, whether they may follow each other, up to a greatest relative offset.
    """

    entry: struct.Struct
    fields: tuple[str, str]
    make: Callable[[Iterable[int]], _Entry]
    offset_field: int
    before: tuple[int, int]
    follows: Callable[[_Fields, _Fields, int], Any]
    rising: str


def _offset_follows(before: _Fields, entry: _Fields, most: int) -> Any:
    return (before[0] < entry[0]) & (entry[0] <= most) & (before[1] < entry[1])


def _time_follows(before: _Fields, entry: _Fields, most: int) -> Any:
    return (before[0] < entry[0]) & (before[1] <= entry[1]) & (entry[1] <= most)


_OFFSET_INDEX = _Form(
    OFFSET_ENTRY_STRUCT, (">i4", ">i4"), OffsetEntry._make, 0, (-1, -1), _offset_follows, "offset or position"
)
_TIME_INDEX = _Form(
    TIME_ENTRY_STRUCT, (">i8", ">i4"), TimeEntry._make, 1, (-1, 0), _time_follows, "timestamp or offset"
)


def parse_offset_index(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> Sequence[OffsetEntry]:
    """Return the entries of an `.index` without the zeros that may follow them.

    Raises CorruptIndexError with the entry when the length is not a multiple of 8, when offsets or positions do not
    rise strictly, or when entries follow the zeros. With `tolerant` it returns the entries before the first such
    problem instead, for the active segment after a crash. Rule: OffsetIndex.append, OffsetIndex.sanityCheck.
    """
    return _parse(data, _OFFSET_INDEX, base_offset=base_offset, file=file, tolerant=tolerant)


def parse_time_index(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> Sequence[TimeEntry]:
    """Return the entries of a `.timeindex` without the zeros that may follow them.

    Raises CorruptIndexError with the entry when the length is not a multiple of 12, when timestamps do not rise
    strictly, when offsets fall, or when entries follow the zeros. `tolerant` as in `parse_offset_index`.
    Rule: TimeIndex.maybeAppend, TimeIndex.sanityCheck.
    """
    return _parse(data, _TIME_INDEX, base_offset=base_offset, file=file, tolerant=tolerant)


def _parse(data: bytes, form: _Form[_Entry], *, base_offset: int, file: str, tolerant: bool) -> Sequence[_Entry]:
    entry_bytes = form.entry.size
    if not tolerant:
        verify_size(len(data), entry_bytes, file=file)
    entries = _entries(data, form)
    # A relative offset of zero, except in the first entry, ends the entries.
    end = _first_wrong(entries[1:], form.before, lambda _, entry: entry[form.offset_field] != 0)
    if end is not None:
        if not tolerant:
            problem = f"entry {end + 1} is empty, but entries follow it"
            raise CorruptIndexError(file=file, position=(end + 1) * entry_bytes, problem=problem)
        entries = entries[: end + 1]
    most = min(MAX_RELATIVE_OFFSET, MAX_OFFSET - base_offset)
    number = _first_wrong(entries, form.before, lambda before, entry: form.follows(before, entry, most))
    if number is None:
        return entries
    if tolerant:
        return entries[:number]
    before = tuple(entries[number - 1]) if number else form.before
    problem = f"entry {number} {tuple(entries[number])} after {before}: {form.rising} does not rise"
    raise CorruptIndexError(file=file, position=number * entry_bytes, problem=problem)


def verify_size(size_bytes: int, entry_bytes: int, *, file: str) -> None:
    """Raise CorruptIndexError if the last entry of an `.index` or a `.timeindex` of `size_bytes` is incomplete."""
    rest = size_bytes % entry_bytes
    if rest:
        problem = f"{size_bytes:,} bytes are not a multiple of the {entry_bytes} bytes of an entry"
        raise CorruptIndexError(file=file, position=size_bytes - rest, problem=problem)


def _entries(data: bytes, form: _Form[_Entry]) -> Sequence[_Entry]:
    """Return the whole entries up to the zeros at the end."""
    entry_bytes = form.entry.size
    whole = memoryview(data)[: len(data) // entry_bytes * entry_bytes]
    # All zeros are unused space, except for a single entry: that of the first batch of a segment.
    count = 1 if len(whole) == entry_bytes else -(-written_bytes(whole) // entry_bytes)
    if count * entry_bytes < LARGE_INDEX_BYTES:
        return list(map(form.make, form.entry.iter_unpack(whole[: count * entry_bytes])))
    import numpy as np

    columns = np.frombuffer(whole, np.dtype([("first", form.fields[0]), ("second", form.fields[1])]), count)
    return EntryColumns(columns["first"], columns["second"], form.make)


def written_bytes(data: bytes | memoryview) -> int:
    """Return the length of `data` without the zeros at its end: an active index ends in up to a million zero entries.

    It goes back piece by piece, because `rstrip` would copy the rest.
    """
    end = len(data)
    while end and bytes(data[max(0, end - len(_ZEROS)) : end]) == _ZEROS[:end]:
        end = max(0, end - len(_ZEROS))
    start = max(0, end - len(_ZEROS))
    return start + len(bytes(data[start:end]).rstrip(b"\0"))


def _first_wrong(
    entries: Sequence[tuple[int, int]], before: tuple[int, int], is_right: Callable[[_Fields, _Fields], Any]
) -> int | None:
    """Return the number of the first entry of which `is_right` is false, given the entry before and the entry.

    `is_right` is given single entries, or the columns of a window of a large index.
    """
    if isinstance(entries, EntryColumns):
        return _first_wrong_in_columns(entries, before, is_right)
    for number, entry in enumerate(entries):
        if not is_right(before, entry):
            return number
        before = entry
    return None


def _first_wrong_in_columns(
    entries: EntryColumns[Any], before: tuple[int, int], is_right: Callable[[_Fields, _Fields], Any]
) -> int | None:
    import numpy as np

    for number, *window in entries.windows():
        first, second = (np.append(value, column) for value, column in zip(before, window, strict=True))
        right = is_right((first[:-1], second[:-1]), (first[1:], second[1:]))
        if not right.all():
            return number + int(right.argmin())
        before = (first[-1], second[-1])
    return None


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


_STORED_TXN = [("version", ">i2"), ("fields", ">i8", 4)]


class AbortedTxnColumns(Sequence[AbortedTxn]):
    """The entries of a large `.txnindex` as a sequence that creates an entry only when it is accessed.

    `table` has the fields of `AbortedTxn` as columns, in their order: int64[n, 4].
    """

    __slots__ = ("table",)

    def __init__(self, table: NDArray[np.int64]) -> None:
        self.table = table

    @classmethod
    def of(cls, *parts: Sequence[AbortedTxn]) -> AbortedTxnColumns:
        """Return all these entries."""
        import numpy as np

        tables = [part.table if isinstance(part, cls) else np.array(list(part), "i8") for part in parts]
        return cls(np.concatenate([np.empty((0, 4), "i8"), *(table.reshape(-1, 4) for table in tables)]))

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> AbortedTxn: ...
    @overload
    def __getitem__(self, index: slice) -> AbortedTxnColumns: ...
    def __getitem__(self, index: int | slice) -> AbortedTxn | AbortedTxnColumns:
        if isinstance(index, slice):
            return AbortedTxnColumns(self.table[index])
        return AbortedTxn._make(self.table[index].tolist())

    def __iter__(self) -> Iterator[AbortedTxn]:
        for start in range(0, len(self), WINDOW_ENTRIES):
            yield from map(AbortedTxn._make, self.table[start : start + WINDOW_ENTRIES].tolist())


def parse_txn_index(data: bytes, *, base_offset: int, file: str) -> Sequence[AbortedTxn]:
    """Return the aborted transactions of a `.txnindex`. An incomplete last entry is ignored.

    Raises CorruptTransactionIndexError for a version other than 0, for last offsets that do not rise strictly or lie
    below the base offset, and for a first offset above the last. Rule: TransactionIndex.iterator,
    TransactionIndex.sanityCheck, TransactionIndex.append.
    """
    whole = memoryview(data)[: len(data) // TXN_ENTRY_BYTES * TXN_ENTRY_BYTES]
    if len(whole) >= LARGE_INDEX_BYTES:
        return _aborted_txn_columns(whole, base_offset=base_offset, file=file)
    found: list[AbortedTxn] = []
    last_offset = base_offset - 1
    for number, (version, *fields) in enumerate(ABORTED_TXN_STRUCT.iter_unpack(whole)):
        entry = AbortedTxn._make(fields)
        _verify_aborted_txn(entry, number, version, last_offset, file=file)
        last_offset = entry.last_offset
        found.append(entry)
    return tuple(found)


def _verify_aborted_txn(entry: AbortedTxn, number: int, version: int, last_offset: int, *, file: str) -> None:
    """Raise CorruptTransactionIndexError for a wrong entry. `last_offset` is that of the entry before."""
    problem = ""
    if version != ABORTED_TXN_VERSION:
        problem = f"version {version} is unknown"
    elif entry.last_offset <= last_offset:
        problem = f"last offset {entry.last_offset} does not rise above {last_offset}"
    elif not 0 <= entry.first_offset <= entry.last_offset:
        problem = f"first offset {entry.first_offset} is not between 0 and the last offset {entry.last_offset}"
    if problem:
        error = CorruptTransactionIndexError(
            file=file, position=number * TXN_ENTRY_BYTES, problem=f"entry {number}: {problem}"
        )
        error.unknown_version = None if version == ABORTED_TXN_VERSION else version
        raise error


def _aborted_txn_columns(whole: memoryview, *, base_offset: int, file: str) -> AbortedTxnColumns:
    """Return the entries of a large index. Columns find the first wrong entry, `_verify_aborted_txn` says why."""
    import numpy as np

    stored = np.frombuffer(whole, np.dtype(_STORED_TXN))
    table = stored["fields"].astype("i8")
    _, first, last, _ = table.T
    before = np.append(base_offset - 1, last[:-1])
    right = (stored["version"] == ABORTED_TXN_VERSION) & (before < last) & (first >= 0) & (first <= last)
    entries = AbortedTxnColumns(table)
    if not right.all():
        number = int(right.argmin())
        _verify_aborted_txn(entries[number], number, int(stored["version"][number]), int(before[number]), file=file)
    return entries


def build_txn_index(transactions: Sequence[AbortedTxn]) -> bytes:
    """Return the bytes of a `.txnindex`. Without transactions Kafka writes no file."""
    if isinstance(transactions, AbortedTxnColumns):
        import numpy as np

        stored = np.zeros(len(transactions), _STORED_TXN)
        stored["version"], stored["fields"] = ABORTED_TXN_VERSION, transactions.table
        return stored.tobytes()
    return b"".join(ABORTED_TXN_STRUCT.pack(ABORTED_TXN_VERSION, *txn) for txn in transactions)
