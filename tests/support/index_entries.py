"""The definitions of the index readers: entry by entry, and batch by batch."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from kcompact.errors import CorruptIndexError, CorruptTransactionIndexError
from kcompact.format.batch import Header
from kcompact.format.index import AbortedTxn, OffsetEntry, TimeEntry
from kcompact.format.names import MAX_OFFSET

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
ABORTED_TXN = struct.Struct(">hqqqq")


def offset_entries(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> list[OffsetEntry]:
    """The definition of `parse_offset_index`."""
    most = min(2**31 - 1, MAX_OFFSET - base_offset)
    found: list[OffsetEntry] = []
    try:
        entries = _written(data, OFFSET_ENTRY, 0, file=file, tolerant=tolerant)
        before = OffsetEntry(-1, -1)
        for number, entry in enumerate(map(OffsetEntry._make, entries)):
            if not before.relative_offset < entry.relative_offset <= most or not before.position < entry.position:
                _refuse(number, OFFSET_ENTRY, entry, before, "offset or position", file=file)
            before = entry
            found.append(entry)
    except CorruptIndexError:
        if not tolerant:
            raise
    return found


def time_entries(data: bytes, *, base_offset: int, file: str, tolerant: bool = False) -> list[TimeEntry]:
    """The definition of `parse_time_index`."""
    most = min(2**31 - 1, MAX_OFFSET - base_offset)
    found: list[TimeEntry] = []
    try:
        entries = _written(data, TIME_ENTRY, 1, file=file, tolerant=tolerant)
        before = TimeEntry(-1, 0)
        for number, entry in enumerate(map(TimeEntry._make, entries)):
            if not before.relative_offset <= entry.relative_offset <= most or not before.timestamp < entry.timestamp:
                _refuse(number, TIME_ENTRY, entry, before, "timestamp or offset", file=file)
            before = entry
            found.append(entry)
    except CorruptIndexError:
        if not tolerant:
            raise
    return found


def _refuse(
    number: int, layout: struct.Struct, entry: Iterable[int], before: Iterable[int], rising: str, *, file: str
) -> None:
    problem = f"entry {number} {tuple(entry)} after {tuple(before)}: {rising} does not rise"
    raise CorruptIndexError(file=file, position=number * layout.size, problem=problem)


def _written(
    data: bytes, layout: struct.Struct, offset_field: int, *, file: str, tolerant: bool
) -> list[tuple[int, ...]]:
    """Return the entries without the zeros behind them."""
    rest = len(data) % layout.size
    if rest and not tolerant:
        problem = f"{len(data):,} bytes are not a multiple of the {layout.size} bytes of an entry"
        raise CorruptIndexError(file=file, position=len(data) - rest, problem=problem)
    entries = list(layout.iter_unpack(data[: len(data) - rest]))
    while entries and not any(entries[-1]) and len(data) - rest > layout.size:
        entries.pop()
    for number, entry in enumerate(entries):
        if number and entry[offset_field] == 0:
            if not tolerant:
                problem = f"entry {number} is empty, but entries follow it"
                raise CorruptIndexError(file=file, position=number * layout.size, problem=problem)
            return entries[:number]
    return entries


def aborted_txns(data: bytes, *, base_offset: int, file: str) -> list[AbortedTxn]:
    """The definition of `parse_txn_index`."""
    found: list[AbortedTxn] = []
    last_offset = base_offset - 1
    for number, (version, *fields) in enumerate(ABORTED_TXN.iter_unpack(data[: len(data) // 34 * 34])):
        entry, problem = AbortedTxn._make(fields), ""
        if version != 0:
            problem = f"version {version} is unknown"
        elif entry.last_offset <= last_offset:
            problem = f"last offset {entry.last_offset} does not rise above {last_offset}"
        elif not 0 <= entry.first_offset <= entry.last_offset:
            problem = f"first offset {entry.first_offset} is not between 0 and the last offset {entry.last_offset}"
        if problem:
            raise CorruptTransactionIndexError(file=file, position=number * 34, problem=f"entry {number}: {problem}")
        last_offset = entry.last_offset
        found.append(entry)
    return found


def wrong_entries(
    entries: Sequence[OffsetEntry], batches: Iterable[tuple[int, Header]], *, base_offset: int
) -> Iterator[int]:
    """Yield the numbers of the entries that are not true: the definition of `OffsetPositions.wrong_entries`.

    `batches` are positions and headers, in order, from a batch at or before the first entry on. No more are taken than
    are needed.
    """
    following = chain(batches, repeat(None))
    batch = next(following)
    for number, (relative_offset, position) in enumerate(entries):
        offset = base_offset + relative_offset
        end_position = entries[number + 1].position if number + 1 < len(entries) else MAX_OFFSET
        while batch is not None and batch[0] < position:
            batch = next(following)
        if batch is None or batch[0] > position or batch[1].base_offset > offset:
            yield number
            continue
        while batch is not None and batch[0] < end_position and batch[1].last_offset < offset:
            batch = next(following)
        if batch is None or batch[0] >= end_position:
            yield number
