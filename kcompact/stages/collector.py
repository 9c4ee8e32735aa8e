"""The skeleton of scan and reduction, which a cleaning and a count of keys fill in.

    scan     splits, read by the kernels, or by the definition what those reject
               -> a collector: keys in bounded memory, merged when it is full, packed when that is not enough
               -> (bucket, block), dealt by the hash of the key
    reduce   all blocks of a bucket -> the result of the bucket

`clean.scan` and `clean.offset_map` are the stages of a cleaning; `scan`, `rows` and `reduce` of `questions.keys` those
of a count. They differ in what a key is, in how keys are merged, and in what else is counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.errors import LogChangedError
from kcompact.host.throttle import Pace
from kcompact.log.inflate import Buffers
from kcompact.stages.job import ScanJob, Split
from kcompact.stages.splits import ahead

Job = TypeVar("Job", bound=ScanJob)
Scan = TypeVar("Scan")
Bucket = TypeVar("Bucket")
Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Collector(ABC):
    """Holds the keys of a task's splits as rows of some columns. A subclass merges rows and packs them into blocks.

    A caller reserves rows, writes keys into them and commits the number of written keys. When `limit_rows` are in the
    memory, they are merged. If too many remain, all are packed into blocks.
    """

    def __init__(self, limit_rows: int, *empty_columns: npt.NDArray[Any]) -> None:
        self._limit_rows = max(1, limit_rows)
        self._empty = self._columns = empty_columns
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

    def _raise_limit(self, held: int, rows: int) -> bool:
        """Hold more rows before they are packed: `held` were merged, `rows` more will come. Return whether they fit."""
        return False

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
        """Yield (bucket, block) for all remaining keys, and free the memory."""
        self._merge()
        self._flush()
        self._columns = self._empty
        yield from self.blocks()

    def reserve(self, rows: int) -> tuple[npt.NDArray[Any], ...]:
        """Return memory for `rows` more keys, a part of each column."""
        if self._rows + rows > self._limit_rows:
            held = self._rows
            self._merge()
            if self._rows + rows > self._limit_rows // 2 and not self._raise_limit(held, rows):
                self._flush()
        size = len(self._columns[0])
        if self._rows + rows > size:
            size = max(self._rows + rows, min(2 * size, self._limit_rows))
            self._columns = tuple(_grown(column, size, self._rows) for column in self._columns)
        return tuple(column[self._rows : self._rows + rows] for column in self._columns)

    def _copy(self, columns: Sequence[npt.NDArray[Any]]) -> None:
        """Copy keys into reserved memory."""
        for column, source in zip(self.reserve(len(columns[0])), columns, strict=True):
            column[:] = source

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


def _grown(column: npt.NDArray[Any], size: int, used: int) -> npt.NDArray[Any]:
    """Return a column of `size` rows that begins with the used rows of another one."""
    grown = np.empty((size, *column.shape[1:]), column.dtype)
    grown[:used] = column[:used]
    return grown


Memory = TypeVar("Memory", bound=Collector)


def scan(
    job: ScanJob,
    splits: Sequence[Split],
    pace: Pace,
    *,
    log_of: Callable[[Split], int],
    new_collector: Callable[[int], Memory],
    by_kernels: Callable[[Split, Memory, Buffers], Scan | None],
    by_definition: Callable[[Split, Memory], Scan],
) -> Generator[tuple[int, bytes], None, list[Scan]]:
    """Yield (bucket, block) for the splits of a task, whose numbers must rise; return what was found in each split.

    Each log, by its number, has a collector of its own. `by_kernels` returns None for a split that the kernels reject,
    and may have collected some of its keys. Raises CorruptDataError, UnsupportedError, StorageError.
    """
    buffers = Buffers(job.memory_bytes)

    def read(split: Split, collector: Memory) -> Scan:
        savepoint = collector.savepoint()
        scanned = by_kernels(split, collector, buffers)
        if scanned is not None:
            return scanned
        if not collector.rollback(savepoint):
            # Some keys of the split are already merged or sent. The definition rejects it and raises the error.
            by_definition(split, new_collector(log_of(split)))
            raise LogChangedError(path=str(split.log), problem="has changed while it was read")
        return by_definition(split, collector)

    scanned = []
    for log, members in groupby(ahead(job, splits), key=log_of):
        collector = new_collector(log)
        for split in members:
            pace.take(split.size_bytes)
            scanned.append(read(split, collector))
            yield from collector.blocks()
            pace.done(split.size_bytes)
        yield from collector.finish()
    return scanned


def key_hash(job: ScanJob) -> Callable[[bytes], bytes]:
    """Return the hash function of keys, the same for all splits of a job: 16 bytes, the low half first."""
    k0, k1 = np.frombuffer(job.hash_key, "<u8").tolist()
    return lambda key: kernels.siphash128(np.frombuffer(bytearray(key), np.uint8), 0, len(key), k0, k1)
