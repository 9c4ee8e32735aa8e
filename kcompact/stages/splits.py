"""Cuts segments into splits, the pieces of work of a scan, and divides them among tasks.

A split is a run of whole batches of one segment. Its boundaries come from the offset index, which the scan verifies, or
from the batch headers where there is no index. No size changes a result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kcompact.errors import CorruptDataError, CorruptIndexError
from kcompact.format.batch import legacy_base_offset
from kcompact.format.names import Suffix
from kcompact.kernels import Table
from kcompact.log.batch_headers import header_at, headers
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.index_files import read_offset_index
from kcompact.log.offset_index import OffsetPositions, contradiction, is_true, wrong_entry
from kcompact.log.segment_reader import batches, require_readable
from kcompact.log.segments import Segment
from kcompact.stages.job import ScanJob, Split

_AHEAD_BYTES = 1 << 20
"""A smaller split is read in less time than it takes to ask for it."""

Work = TypeVar("Work")


def ahead(job: ScanJob, splits: Sequence[Split]) -> Iterator[Split]:
    """Yield the splits of a task. While the caller works on one, the kernel already reads the next from the disk.

    Not with a limit on bytes per second, which counts a split when it is its turn.
    """
    for split, following in zip_longest(splits, splits[1:]):
        if following is not None and following.size_bytes >= _AHEAD_BYTES and job.max_bytes_per_second is None:
            following.log.read_ahead(following.start_position, following.size_bytes, identity=following.identity)
        yield split


def cut(log: PartitionLog, segment: Segment, split_bytes: int, memory_bytes: int, *, end_offset: int) -> list[Split]:
    """Return a segment cut at batch boundaries, about every `split_bytes`. An empty segment has no splits.

    All its offsets are below `end_offset`. Raises as `number_splits`.
    """
    if segment.size_bytes == 0:
        return []
    file = log.file(segment.log_name)
    starts = _starts(log, segment, split_bytes) if segment.size_bytes > split_bytes else [0]
    bases = [segment.base_offset, *(base_offset_at(file, position) for position in starts[1:])]
    splits = [
        Split(
            log=file,
            start_position=start,
            end_position=end,
            base_offset=base_offset,
            end_offset=next_offset,
            check_index=log.index_file(segment, Suffix.INDEX) is not None,
        )
        for start, end, base_offset, next_offset in zip(
            starts, [*starts[1:], segment.size_bytes], bases, [*bases[1:], end_offset], strict=True
        )
    ]
    for split in splits:
        if split.size_bytes > 2 * split_bytes:
            _require_readable(split, memory_bytes)
    return splits


def cut_despite_damage(log: PartitionLog, split_bytes: int, memory_bytes: int) -> list[Split]:
    """Return a log cut into splits. A segment whose index or headers are damaged is one split. Raises StorageError."""
    splits = []
    for segment in log.segments:
        try:
            splits += cut(log, segment, split_bytes, memory_bytes, end_offset=log.end_of(segment))
        except CorruptDataError:
            splits.append(whole(log, segment))
    return splits


def whole(log: PartitionLog, segment: Segment) -> Split:
    """Return a segment as one split."""
    return Split(
        log=log.file(segment.log_name),
        start_position=0,
        end_position=segment.size_bytes,
        base_offset=segment.base_offset,
        end_offset=log.end_of(segment),
    )


def _require_readable(split: Split, memory_bytes: int) -> None:
    """Raise CorruptDataError, BatchTooLargeError if a batch of a split may not be read whole."""
    with split.log.open() as opened:
        for position, header in headers(
            split.log, start_position=split.start_position, end_position=split.end_position
        ):
            require_readable(opened, header, position, file=split.log, memory_bytes=memory_bytes)


def _starts(log: PartitionLog, segment: Segment, split_bytes: int) -> list[int]:
    """Return the positions at which the splits of a segment begin. Raises CorruptDataError."""
    file, index_file = log.file(segment.log_name), log.index_file(segment, Suffix.INDEX)
    if index_file is None:
        positions = np.fromiter((position for position, _ in headers(file)), np.int64)
        return [0, *(int(positions[number]) for number in _every(split_bytes, positions))]
    entries = read_offset_index(index_file)
    positions = entries.table["position"].astype(np.int64)
    chosen = list(_every(split_bytes, positions))
    for number in chosen:
        if not is_true(file, entries, number) and (problem := contradiction(index_file)) is not None:
            raise problem
    starts = [0, *(int(positions[number]) for number in chosen)]
    return [start for pair in pairwise([*starts, segment.size_bytes]) for start in _finer(file, *pair, split_bytes)]


def _finer(file: LogFile, start: int, end: int, split_bytes: int) -> list[int]:
    """Return the positions at which splits between two positions begin, by headers if the index has too few entries."""
    if end - start <= 2 * split_bytes:
        return [start]
    positions = np.fromiter((at for at, _ in headers(file, start_position=start, end_position=end)), np.int64)
    return [start, *(int(positions[number]) for number in _every(split_bytes, positions, start))]


def _every(split_bytes: int, positions: npt.NDArray[np.int64], position: int = 0) -> Iterator[int]:
    """Yield the numbers of some ascending positions: each is the first that is `split_bytes` after the one before."""
    while (number := int(np.searchsorted(positions, position + split_bytes))) < len(positions):
        yield number
        position = int(positions[number])


def wrong_index(split: Split, table: Table) -> CorruptIndexError | None:
    """Return what is wrong with the index of a split, None if each entry that points into the split is true.

    `table` has the batches of the split, with positions that count from its start. Raises RefusedError, StorageError.
    """
    if not split.check_index:
        return None
    file = split.log.with_suffix(Suffix.INDEX)
    try:
        entries = read_offset_index(file)
    except CorruptIndexError as malformed:
        return malformed
    first, end = (
        bisect_left(entries, position, key=lambda entry: entry.position)
        for position in (split.start_position, split.end_position)
    )
    offset_positions = OffsetPositions()
    offset_positions.extend(table, split.start_position)
    for wrong in offset_positions.wrong_entries(entries[first:end], split.log.base_offset):
        number = first + wrong
        # The offset of the last entry may be that of a batch behind the split.
        may_be_true = number == end - 1 and offset_positions.has_batch_at(entries[number].position)
        if not (may_be_true and is_true(split.log, entries, number)):
            return wrong_entry(file, number, entries[number])
    return None


def base_offset_at(file: LogFile, position: int) -> int:
    """Return the first offset of the batch at a position. Raises CorruptBatchError, RefusedError, StorageError."""
    header = header_at(file, position)
    if header.magic == 2:
        return header.base_offset
    # A legacy batch stores its first offset only inside its compressed section.
    (batch,) = batches(file, start_position=position, end_position=position + header.size_bytes)
    return legacy_base_offset(batch, file=str(file))


# Sizes


def balanced(units: Sequence[Sequence[Work]], count: int, work_of: Callable[[Work], int]) -> list[list[Work]]:
    """Return splits, or other work, in order, divided into at most `count` tasks of about the same work.

    No unit is divided.
    """
    works = [sum(map(work_of, unit)) for unit in units]
    total = sum(works)
    tasks: list[list[Work]] = [[]]
    done = 0
    for unit, work in zip(units, works, strict=True):
        if tasks[-1] and work and done + work / 2 >= total * len(tasks) / count:
            tasks.append([])
        tasks[-1] += unit
        done += work
    return tasks
