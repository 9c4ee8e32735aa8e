"""The bounded memory in which a task collects keys: merged when it is full, packed into blocks when that is not enough.

`clean.offset_map` collects the keys of a cleaning in it, `keys.rows` those of a count. They differ in what a row is and
in how rows are merged.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator


class KeyMemory(ABC):
    """Counts rows that a subclass holds, and says when to merge and when to pack them.

    A caller reserves rows, writes keys into them and commits the number of written keys. When `limit_rows` are in the
    memory, they are merged. If too many remain, all are packed into blocks.
    """

    def __init__(self, limit_rows: int) -> None:
        self._limit_rows = max(1, limit_rows)
        self._rows = 0
        self._is_merged = True
        self._merges = 0
        self._blocks: list[tuple[int, bytes]] = []

    @abstractmethod
    def _merged_rows(self) -> int:
        """Merge the held rows, move what remains to the front, and return its number."""

    @abstractmethod
    def _packed(self) -> Iterator[tuple[int, bytes]]:
        """Yield (bucket, block) for each bucket of the held rows, which are merged."""

    def savepoint(self) -> tuple[int, int]:
        """Return a position for `rollback`."""
        return self._rows, self._merges

    def rollback(self, savepoint: tuple[int, int]) -> bool:
        """Drop the keys that were committed since then. Return False if they are already merged or packed."""
        rows, merges = savepoint
        if merges != self._merges:
            return False
        self._rows = rows
        return True

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield (bucket, block) for the blocks that are packed so far."""
        while self._blocks:
            yield self._blocks.pop(0)

    def finish(self) -> Iterator[tuple[int, bytes]]:
        """Yield (bucket, block) for all remaining keys."""
        self._merge()
        self._flush()
        yield from self.blocks()

    def _needed_size(self, rows: int, size: int) -> int:
        """Make room for `rows` more rows. Return the size that the memory of now `size` rows must have, or `size`."""
        if self._rows + rows > self._limit_rows:
            self._merge()
            if self._rows + rows > self._limit_rows // 2:
                self._flush()
        if self._rows + rows <= size:
            return size
        return max(self._rows + rows, min(2 * size, self._limit_rows))

    def _committed(self, rows: int) -> None:
        self._rows += rows
        self._is_merged = False

    def _merge(self) -> None:
        if not self._is_merged:
            self._merges += 1
            self._rows = self._merged_rows()
            self._is_merged = True

    def _flush(self) -> None:
        self._blocks.extend(self._packed())
        self._merges += 1
        self._rows = 0
