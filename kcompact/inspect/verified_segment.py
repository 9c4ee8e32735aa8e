"""The batches of a segment whose records were checked: the input of the index checks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kcompact.format.index import EntryColumns, OffsetEntry
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.inspect.contents import SegmentContents
from kcompact.inspect.findings import Finding
from kcompact.log.files import LogFile


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentToVerify:
    """A log file to verify. Its offsets lie in [base_offset, end_offset).

    `end_offset` is None in the active segment: no segment follows. `memory_bytes` is what may be held for a batch.
    With `end_position` a running broker appends to the file, and only so many bytes are read.
    """

    log: LogFile
    base_offset: int
    end_offset: int | None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    end_position: int | None = None

    @property
    def is_active(self) -> bool:
        return self.end_offset is None


class OffsetPositions:
    """The position and the last offset of each batch of a log file: the pairs that an offset index may hold.

    16 bytes for each batch. Rule: OffsetPosition, OffsetIndex.append.
    """

    __slots__ = ("_last_offsets", "_positions")

    def __init__(self) -> None:
        self._positions, self._last_offsets = array("q"), array("q")

    def __iter__(self) -> Iterator[int]:
        """Yield the positions in ascending order."""
        return iter(self._positions)

    def append(self, position: int, last_offset: int) -> None:
        """Add a batch. Positions must rise."""
        self._positions.append(position)
        self._last_offsets.append(last_offset)

    def extend(self, positions: bytes, last_offsets: bytes) -> None:
        """Add batches, given as 64-bit integers in the byte order of the machine."""
        self._positions.frombytes(positions)
        self._last_offsets.frombytes(last_offsets)

    def last_offset_at(self, position: int) -> int | None:
        """Return the last offset of the batch that starts at `position`, None if no batch does."""
        row = bisect_left(self._positions, position)
        is_start = row < len(self._positions) and self._positions[row] == position
        return self._last_offsets[row] if is_start else None

    def wrong_entries(self, entries: Sequence[OffsetEntry], base_offset: int) -> Iterator[int]:
        """Yield the numbers of the entries of an offset index that are not the start and the last offset of a batch."""
        if isinstance(entries, EntryColumns):
            yield from self._wrong_in_columns(entries, base_offset)
            return
        for number, (relative_offset, position) in enumerate(entries):
            if self.last_offset_at(position) != base_offset + relative_offset:
                yield number

    def _wrong_in_columns(self, entries: EntryColumns[OffsetEntry], base_offset: int) -> Iterator[int]:
        import numpy as np

        if not self._positions:
            yield from range(len(entries))
            return
        positions, last_offsets = np.asarray(self._positions), np.asarray(self._last_offsets)
        for number, relative_offsets, starts in entries.windows():
            rows = positions.searchsorted(starts).clip(max=len(positions) - 1)
            is_right = (positions[rows] == starts) & (last_offsets[rows] == relative_offsets + base_offset)
            yield from (number + np.flatnonzero(~is_right)).tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSegment:
    """What the batches of a segment contain, and what is wrong with them.

    `first_leader_epoch` is that of the first batch with a leader epoch; -1 if no batch has one.
    """

    contents: SegmentContents
    offset_positions: OffsetPositions
    first_leader_epoch: int = -1
    largest_leader_epoch: int = -1
    findings: tuple[Finding, ...] = ()
