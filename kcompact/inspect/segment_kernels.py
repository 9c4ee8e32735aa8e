"""The contents of a segment, counted and verified by compiled kernels.

`header_contents` reads headers, `verified_segment` every byte. The readable definitions are in `contents` and `verify`.
At a batch that the kernels cannot confirm, `header_contents` stops and `verified_segment` returns None. The definitions
then read that batch and describe the problem.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from kcompact import kernels
from kcompact.errors import KcompactError
from kcompact.inspect.segment_contents import SegmentContents
from kcompact.inspect.verified_segment import LogFile, OffsetPositions, VerifiedSegment
from kcompact.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    DONE,
    EPOCH,
    LAST_OFFSET,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    RECORDS_COUNT,
    SIZE,
    TRANSACTIONAL_BIT,
    Table,
)
from kcompact.log.batch_headers import read_marker
from kcompact.log.batch_runs import UnconfirmedError, VerifiedRun, verified_runs
from kcompact.log.header_table import header_tables
from kcompact.log.inflate import Buffers, inflated_runs

Result = TypeVar("Result")


def in_parallel(work: Callable[..., Result], *arguments: Iterable[object]) -> Iterator[Result]:
    """Yield the results of `work` in order, as `map` does, with one thread for each usable processor.

    Kernels release the interpreter's lock, so threads run at the same time. Work that has not begun is cancelled when
    the caller stops iterating.
    """
    pool = ThreadPoolExecutor(threads())
    try:
        yield from pool.map(work, *arguments)
    finally:
        pool.shutdown(cancel_futures=True)


def threads() -> int:
    """Return the number of usable processors."""
    return len(os.sched_getaffinity(0))


# Headers


def header_contents(path: Path, base_offset: int) -> SegmentContents:
    """Return what a log file contains up to the first batch that is damaged or of magic 0 or 1.

    `end_position` is where the counting stopped; `contents.file_contents` reads the rest and reports the damage.
    """
    contents = SegmentContents(base_offset=base_offset)
    try:
        for table in header_tables(path, end_position=path.stat().st_size):
            contents += _contents_of(table, base_offset)
    except (KcompactError, OSError):
        pass
    return contents


def _contents_of(table: Table, base_offset: int, *, start_position: int = 0) -> SegmentContents:
    """Return what a run of batches contains. Positions in the table count from `start_position` of the file."""
    if not len(table):
        return SegmentContents(base_offset=base_offset)
    attributes, records = table[:, ATTRIBUTES], table[:, RECORDS_COUNT]
    return SegmentContents(
        base_offset=base_offset,
        end_position=start_position + int(table[-1, POSITION] + table[-1, SIZE]),
        batches=len(table),
        counted_records=int(records.sum()),
        empty_batches=int(np.count_nonzero(records == 0)),
        control_batches=int(np.count_nonzero(attributes & CONTROL_BIT)),
        transactional_batches=int(np.count_nonzero(attributes & TRANSACTIONAL_BIT)),
        horizon_batches=int(np.count_nonzero(attributes & DELETE_HORIZON_BIT)),
        first_offset=int(table[0, BASE_OFFSET]),
        last_offset=int(table[-1, LAST_OFFSET]),
        first_timestamp_ms=int(table[0, MAX_TIMESTAMP]),
        largest_timestamp_ms=int(table[:, MAX_TIMESTAMP].max()),
    )


# Every byte


class _Run(NamedTuple):
    """Consecutive batches that were verified. Positions in `table` count from `start_position` of the file."""

    table: Table
    start_position: int
    tombstones: int
    null_keys: int


def verified_segment(file: LogFile) -> VerifiedSegment | None:
    """Return what a segment contains if nothing is wrong with it, else None. Batches of magic 0 and 1 give None too.

    Reads every byte and checks what `verify.verify_segment` checks, except the leader epochs against other segments.
    """
    contents = SegmentContents(base_offset=file.base_offset, tombstones=0, null_keys=0)
    offset_positions = OffsetPositions()
    first_epoch = last_epoch = -1
    try:
        for table, start_position, tombstones, null_keys in _verified_runs(file):
            run = _contents_of(table, file.base_offset, start_position=start_position)
            contents += replace(run, tombstones=tombstones, null_keys=null_keys)
            positions, last_offsets = table[:, POSITION] + start_position, table[:, LAST_OFFSET]
            offset_positions.extend(positions.tobytes(), last_offsets.tobytes())
            epochs = table[table[:, EPOCH] >= 0, EPOCH]
            if len(epochs):
                first_epoch = int(epochs[0]) if first_epoch < 0 else first_epoch
                last_epoch = int(epochs[-1])
    except (KcompactError, UnconfirmedError):
        return None
    return VerifiedSegment(
        contents=contents,
        offset_positions=offset_positions,
        first_leader_epoch=first_epoch,
        largest_leader_epoch=last_epoch,  # The kernels confirm that epochs do not fall.
    )


def _verified_runs(file: LogFile) -> Iterator[_Run]:
    """Yield the batches of a file. A run is valid until the next one. Raises UnconfirmedError, KcompactError."""
    memory_bytes = file.memory_bytes // threads()
    buffers = Buffers(memory_bytes)
    end_offset = MAX_OFFSET if file.end_offset is None else file.end_offset
    for run in verified_runs(file.path, base_offset=file.base_offset, end_offset=end_offset, memory_bytes=memory_bytes):
        yield _Run(run.table, run.start_position, *_checked_records(run, buffers, file.path))


def _checked_records(run: VerifiedRun, buffers: Buffers, path: Path) -> tuple[int, int]:
    """Return the tombstones and the records without a key in some batches. Control records are not counted.

    Raises UnconfirmedError if a record cannot be read, or if the max timestamp of a batch is not that of its records;
    CorruptDataError for a marker or compressed data.
    """
    buffer, table, position = run.buffer, run.table, run.start_position
    is_control = table[:, ATTRIBUTES] & CONTROL_BIT != 0
    for number in np.flatnonzero(is_control).tolist():
        read_marker(run.batch(table[number], path), file=str(path))
    found = np.empty((len(table), 3), np.int64)
    for first, end, inflated in inflated_runs(buffer, table, buffers, file=path, start_position=position):
        _, _, code = kernels.verify_records(buffer, inflated, table, first, end, found)
        if code != DONE:
            raise UnconfirmedError
    if not (found[:, 2] == table[:, MAX_TIMESTAMP]).all():
        raise UnconfirmedError
    return int(found[~is_control, 0].sum()), int(found[~is_control, 1].sum())
