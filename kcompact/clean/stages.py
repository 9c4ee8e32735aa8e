"""The skeleton of scan and reduction, which a cleaning and a count of keys fill in.

    scan     splits, read by the kernels, or by the definition what those reject
               -> a collector: keys in bounded memory, merged when it is full, packed when that is not enough
               -> (bucket, block), dealt by the hash of the key
    reduce   all blocks of a bucket -> the result of the bucket

`clean.scan` and `clean.offset_map` are the stages of a cleaning, `keys.scan`, `keys.rows` and `keys.reduce` those of a
count. They differ in what a key is, in how keys are merged, and in what else is counted.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from kcompact import kernels
from kcompact.clean.job import ScanJob, Split
from kcompact.clean.splits import ahead
from kcompact.errors import LogChangedError
from kcompact.host.throttle import Pace

if TYPE_CHECKING:
    from kcompact.log.inflate import Buffers

Job = TypeVar("Job", bound=ScanJob)
Scan = TypeVar("Scan")
Bucket = TypeVar("Bucket")


class Stages(NamedTuple, Generic[Job, Scan, Bucket]):
    """A scan and a reduction: functions of modules, so that they can be sent to other processes.

    `scan` yields (bucket, block) for the splits of a task and returns a list; `reduce` returns the result of a bucket
    from all its blocks in any order.
    """

    scan: Callable[[Job, Sequence[Split], Pace], Generator[tuple[int, bytes], None, list[Scan]]]
    reduce: Callable[[Job, Iterable[bytes]], Bucket]


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


Memory = TypeVar("Memory", bound=KeyMemory)


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
    read = by_definition
    if job.kernel_hashes:
        from kcompact.log.inflate import Buffers

        buffers = Buffers(job.memory_bytes)

        def read(split: Split, collector: Memory) -> Scan:
            savepoint = collector.savepoint()
            found = by_kernels(split, collector, buffers)
            if found is not None:
                return found
            if not collector.rollback(savepoint):
                # Some keys of the split are already merged or sent. The definition rejects it and raises the error.
                by_definition(split, new_collector(log_of(split)))
                raise LogChangedError(path=str(split.log), problem="has changed while it was read")
            return by_definition(split, collector)

    found = []
    for log, members in groupby(ahead(job, splits), key=log_of):
        collector = new_collector(log)
        for split in members:
            pace.take(split.size_bytes)
            found.append(read(split, collector))
            yield from collector.blocks()
            pace.done(split.size_bytes)
        yield from collector.finish()
    return found


def key_hash(job: ScanJob) -> Callable[[bytes], bytes]:
    """Return the hash function of keys, the same for all splits of a job: 16 bytes, the low half first."""
    if not job.kernel_hashes:
        return lambda key: hashlib.blake2b(key, digest_size=16, key=job.hash_key).digest()
    k0, k1 = np.frombuffer(job.hash_key, "<u8").tolist()
    return lambda key: kernels.siphash128(np.frombuffer(bytearray(key), np.uint8), 0, len(key), k0, k1)
