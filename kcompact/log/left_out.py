"""The parts of a log that a list of batches or records leaves out because they cannot be read."""

from __future__ import annotations

from kcompact.errors import BatchTooLargeError, CorruptBatchError
from kcompact.log.past_damage import Unreadable
from kcompact.readable import counted


class LeftOutParts:
    """Counts the unreadable parts of one log, and remembers the first."""

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
