"""The batches of a damaged log, before and after the damage.

A batch says how long it is, and so where the next one begins. Where the bytes of a batch are wrong, its length may be
too. The next batch is then looked for:

1. where the damaged batch ends, if its header can be read and a header follows there, or the end of the file;
2. else at each later position. What is there must have the header of a batch, fit into the file, have offsets after
   those before the damage, and a right checksum.

       [ batch 0..4 ][ batch 5, its length is wrong ......][ batch 6..9 ][ batch 10..
                     ^ position                           ^ end_position

The checksum does not cover the offset of a batch. A batch whose offsets contradict its neighbours is damage too.
Bytes that the disk does not give back (EIO) are damage too: they are taken for zeros, a page at a time.

Only whole batches with a right checksum count. The value of a record can contain such a batch, if somebody has stored
one there, so after damage to the header of the record's own batch its contents could be taken for batches of the log
if their offsets fit as well.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcompact.errors import BatchTooLargeError, CorruptBatchError, StorageError
from kcompact.format import legacy
from kcompact.format.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    Batch,
    Header,
    computed_crc_of,
    read_header,
    require_inside,
    verify_crc,
)
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.format.names import MAX_OFFSET
from kcompact.log.files import LogFile, OpenFile
from kcompact.log.segment_reader import WINDOW_BYTES, require_readable
from kcompact.readable import counted

_SEARCHED_BYTES = 1 << 20
"""So many positions are searched at once."""
_MOST_CHECKED = 4
"""Checksums that turn out wrong are computed of so many times the bytes of the file, then the rest is given up.

Otherwise the time could grow with the square of the size: bytes can be made to look like the headers of large batches.
"""
_LEAST_CHECKED_BYTES = 64 << 20

_PAGE_BYTES = 1 << 12
"""If the disk fails, so much is given up at once: what the system reads at once."""

_LENGTH, _MAGIC, _ATTRIBUTES, _LAST_OFFSET_DELTA, _RECORDS_COUNT = 8, 16, 21, 23, 57
"""Positions in a header of magic 2; length and magic have the same in older ones."""
_SIGN = 0x80
"""The first byte of a negative integer is not below this."""


class Unreadable(NamedTuple):
    """Bytes of a log between two positions that are no batch, and what is wrong with them.

    `after_offset` is the last offset before them, -1 if there is none. `header` is that of the batch there if it can be
    read and the batch ends at `end_position`. With `is_given_up` batches may follow, but nothing more is read.
    """

    position: int
    end_position: int
    after_offset: int
    problem: CorruptBatchError | BatchTooLargeError
    header: Header | None = None
    has_right_checksum: bool = False
    is_at_end: bool = False
    is_given_up: bool = False

    @property
    def size_bytes(self) -> int:
        """The number of bytes."""
        return self.end_position - self.position


def readable_batches(
    file: LogFile,
    *,
    base_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    start_position: int = 0,
    after_offset: int = -1,
    end_position: int | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> Iterator[Batch | Unreadable]:
    """Yield the batches of a log file with right checksums, and what lies between them, in the order of the file.

    Offsets are from `base_offset` to below `end_offset`, and rise from `after_offset` on. Epochs are not checked.
    Raises RefusedError, StorageError.
    """
    with file.open() as opened:
        end = opened.size_bytes if end_position is None else end_position
        log = _Log(opened, file, end, range(base_offset, end_offset), memory_bytes)
        position, last_offset = start_position, after_offset
        while position < end:
            try:
                batch = log.batch_at(position, last_offset)
            except (CorruptBatchError, BatchTooLargeError) as problem:
                part = log.unreadable_at(position, last_offset, problem)
                yield part
                position = part.end_position
                continue
            yield batch
            position, last_offset = position + batch.header.size_bytes, batch.header.last_offset


def unreadable_records(batch: Batch, problem: CorruptBatchError | BatchTooLargeError) -> Unreadable:
    """Return a batch with a right checksum, whose records cannot be read, as such a part."""
    header = batch.header
    end_position = batch.position + header.size_bytes
    return Unreadable(batch.position, end_position, header.base_offset - 1, problem, header, has_right_checksum=True)


class LeftOutParts:
    """Counts the unreadable parts that a list of batches or records leaves out, and remembers the first."""

    def __init__(self) -> None:
        self._first: Unreadable | None = None
        self._count = self._size_bytes = 0
        self._is_given_up = False

    def add(self, part: Unreadable) -> None:
        """Count one part."""
        is_worse = isinstance(part.problem, CorruptBatchError)
        if self._first is None or (is_worse and isinstance(self._first.problem, BatchTooLargeError)):
            self._first = part
        self._count += 1
        self._size_bytes += part.size_bytes
        self._is_given_up |= part.is_given_up

    def error(self) -> CorruptBatchError | BatchTooLargeError | None:
        """Return the error for the log, None if all of it was read."""
        if self._first is None:
            return None
        first = self._first.problem
        if isinstance(first, BatchTooLargeError):
            return first
        what = (
            f"{self._size_bytes:,} bytes up to position {self._first.end_position} are not listed"
            if self._count == 1
            else f"{counted(self._count, 'part')} with {self._size_bytes:,} bytes in all are not listed"
        )
        if self._is_given_up:
            what += ", because too much of it looks like batches and is none"
        return CorruptBatchError(
            file=first.file, position=first.position, offset=first.offset, problem=f"{first.problem}; {what}"
        )


class _WrongOffsetsError(CorruptBatchError):
    """The offsets of a batch with a right checksum contradict its neighbours, or its segment."""


class _Log:
    """An open log file, read through a window that only moves forward."""

    def __init__(self, opened: OpenFile, file: LogFile, end: int, offsets: range, memory_bytes: int) -> None:
        self._opened, self._file, self._end = opened, file, end
        self._offsets, self._memory_bytes = offsets, memory_bytes
        self._window, self._window_start = memoryview(b""), 0
        self._lost_pages: dict[int, StorageError] = {}
        """The pages that the disk does not give back, by their numbers."""
        self._checkable_bytes = max(_LEAST_CHECKED_BYTES, _MOST_CHECKED * end)
        self._is_modern = False

    @property
    def is_given_up(self) -> bool:
        """Return whether no more batches are looked for, because too many bytes look like batches and are none."""
        return self._checkable_bytes <= 0

    def batch_at(self, position: int, last_offset: int) -> Batch:
        """Return a whole batch with a right checksum and offsets that fit.

        Raises CorruptBatchError, BatchTooLargeError, StorageError.
        """
        header = self._header(position)
        require_readable(self._opened, header, position, file=self._file, memory_bytes=self._memory_bytes)
        batch = Batch(position, header, self._moved_to(position, header.size_bytes))
        verify_crc(batch, file=str(self._file))
        problem = self._wrong_offsets(header, last_offset) or self._contradiction(batch, last_offset)
        if problem:
            offset = header.base_offset
            raise _WrongOffsetsError(file=str(self._file), position=position, offset=offset, problem=problem)
        self._is_modern = header.magic == 2
        return batch

    def header_at(self, position: int) -> Header | None:
        """Return the header of the batch at a position, None if it cannot be read or the batch does not fit."""
        try:
            return self._header(position) if position < self._end else None
        except CorruptBatchError:
            return None

    def unreadable_at(
        self, position: int, last_offset: int, problem: CorruptBatchError | BatchTooLargeError
    ) -> Unreadable:
        """Return the part that begins at a position where `batch_at` has raised an error. Raises StorageError."""
        end_position = self._next_position(position, last_offset)
        lost = self._lost_in(position, end_position)
        if lost is not None:
            where = f"position {lost.position}: {lost.word}"
            problem = CorruptBatchError(file=str(self._file), position=position, offset=problem.offset, problem=where)
        header = self.header_at(position)
        if header is not None and position + header.size_bytes != end_position:
            header = None
        return Unreadable(
            position,
            end_position,
            last_offset,
            problem,
            header,
            has_right_checksum=isinstance(problem, _WrongOffsetsError),
            is_at_end=end_position == self._end,
            is_given_up=self.is_given_up,
        )

    def _next_position(self, position: int, last_offset: int) -> int:
        """Return where the next batch starts after damage at a position; the end of the file if there is none."""
        header = self.header_at(position)
        if header is not None:
            end = position + header.size_bytes
            if end == self._end or self.header_at(end) is not None:
                return end
            self._checkable_bytes -= header.size_bytes  # Its checksum was computed in vain.
        return self._search(position + 1, last_offset)

    def _header(self, position: int) -> Header:
        data = self._bytes_at(position, min(HEADER_BYTES, self._end - position))
        header = read_header(data, file=str(self._file), position=position)
        require_inside(header, self._end - position, file=str(self._file), position=position)
        return header

    def _wrong_offsets(self, header: Header, last_offset: int) -> str:
        if header.base_offset <= last_offset:
            return f"base offset {header.base_offset} after offset {last_offset}"
        if header.base_offset < self._offsets.start:
            return f"base offset {header.base_offset}, but the segment starts at {self._offsets.start}"
        if header.last_offset >= self._offsets.stop:
            return f"last offset {header.last_offset}, but the next segment starts at {self._offsets.stop}"
        return ""

    def _contradiction(self, batch: Batch, last_offset: int) -> str:
        """Return what is wrong with the offsets of a batch if the batch after it has smaller ones, else "".

        One of the two is wrong: the second if the first continues the batch before it without a gap.
        """
        header = batch.header
        following = self.header_at(batch.position + header.size_bytes)
        if following is None or header.base_offset == last_offset + 1:
            return ""
        if not last_offset < following.base_offset <= header.last_offset:
            return ""
        return f"last offset {header.last_offset}, but the next batch starts at {following.base_offset}"

    def _search(self, start: int, last_offset: int) -> int:
        """Return the first position from `start` on where a batch with a right checksum starts, else the end."""
        offsets = range(max(last_offset + 1, self._offsets.start), self._offsets.stop)
        while start < self._end:
            data = self._moved_to(start, min(_SEARCHED_BYTES + HEADER_BYTES, self._end - start))
            searched = min(_SEARCHED_BYTES, len(data))
            for position in _candidates(data, searched, self._end - start, offsets, modern_only=self._is_modern):
                if self.is_given_up:
                    return self._end
                if self._is_batch(start + position, last_offset):
                    return start + position
            start += searched
        return self._end

    def _is_batch(self, position: int, last_offset: int) -> bool:
        header = self.header_at(position)
        if header is None or self._wrong_offsets(header, last_offset):
            return False
        pieces = self._pieces(position, position + header.size_bytes)
        if computed_crc_of(pieces, magic=header.magic) == header.crc:
            return True
        self._checkable_bytes -= header.size_bytes
        return False

    def _moved_to(self, position: int, size_bytes: int) -> memoryview:
        """Return bytes, all of which are in the file; if the window has not all, it moves there."""
        start = position - self._window_start
        if start + size_bytes > len(self._window):
            wanted = min(max(size_bytes, WINDOW_BYTES), self._end - position)
            self._window = memoryview(self._read(position, wanted))
            self._window_start, start = position, 0
        return self._window[start : start + size_bytes]

    def _bytes_at(self, position: int, size_bytes: int) -> bytes | memoryview:
        """Return bytes, from the window if it has them. It stays where it is."""
        start = position - self._window_start
        if start >= 0 and start + size_bytes <= len(self._window):
            return self._window[start : start + size_bytes]
        return self._read(position, size_bytes)

    def _read(self, position: int, size_bytes: int) -> bytes:
        """Return bytes of the file, zeros for the pages that the disk does not give back. Raises StorageError.

        A batch with such zeros has a wrong checksum, if zeros are not what was there.
        """
        try:
            return self._opened.read(size_bytes, position)
        except StorageError as problem:
            if problem.problem.errno != errno.EIO:
                raise
        end, pieces = position + size_bytes, []
        while position < end:
            page, in_page = divmod(position, _PAGE_BYTES)
            piece_bytes = min(_PAGE_BYTES - in_page, end - position)
            try:
                pieces.append(self._opened.read(piece_bytes, position))
            except StorageError as problem:
                if problem.problem.errno != errno.EIO:
                    raise
                self._lost_pages[page] = problem
                pieces.append(bytes(piece_bytes))
            position += piece_bytes
        return b"".join(pieces)

    def _lost_in(self, position: int, end: int) -> StorageError | None:
        """Return the error of the first page between two positions that the disk does not give back."""
        pages = range(position // _PAGE_BYTES, -(-end // _PAGE_BYTES))
        lost = [page for page in self._lost_pages if page in pages]
        return self._lost_pages[min(lost)] if lost else None

    def _pieces(self, position: int, end: int) -> Iterator[bytes | memoryview]:
        while position < end and (piece := self._bytes_at(position, min(WINDOW_BYTES, end - position))):
            yield piece
            position += len(piece)


def _candidates(data: memoryview, searched: int, left_bytes: int, offsets: range, *, modern_only: bool) -> list[int]:
    """Return the positions below `searched` at which the header of a batch may start.

    Such a header has a possible length, and the first bytes of its fields are possible. `left_bytes` are left in the
    file from the start of `data` on.
    """
    array = np.frombuffer(bytes(data) + bytes(HEADER_BYTES), dtype=np.uint8)

    def byte(position: int) -> NDArray[np.uint8]:
        return array[position : position + searched]

    is_possible = (byte(_MAGIC) == 2) & (byte(_ATTRIBUTES) == 0)
    for position in (_LENGTH, _ATTRIBUTES + 1, _LAST_OFFSET_DELTA, _RECORDS_COUNT):
        is_possible &= byte(position) < _SIGN
    if not modern_only:
        has_length = (byte(_LENGTH) | byte(_LENGTH + 1) | byte(_LENGTH + 2) | byte(_LENGTH + 3)) != 0
        is_possible |= (byte(_MAGIC) < 2) & has_length & (byte(_LENGTH) < _SIGN)
    header_starts = np.flatnonzero(is_possible)

    def integers(position: int, size_bytes: int) -> NDArray[np.int64]:
        value = np.zeros(len(header_starts), dtype=np.int64)
        for at in range(position, position + size_bytes):
            value = value << 8 | array[header_starts + at]
        return value

    is_modern = array[header_starts + _MAGIC] == 2
    least = np.where(is_modern, HEADER_BYTES - LOG_OVERHEAD_BYTES, legacy.minimum_size(0))
    length, base_offset = integers(_LENGTH, 4), integers(0, 8)
    is_possible = (length >= least) & (length <= left_bytes - LOG_OVERHEAD_BYTES - header_starts)
    is_possible &= (base_offset >= offsets.start) & (base_offset < offsets.stop)
    candidates: list[int] = header_starts[is_possible].tolist()
    return candidates
