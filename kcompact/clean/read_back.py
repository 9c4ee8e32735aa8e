"""A staged log, read back from the disk and compared with what was written.

After the swap the staged file is the only copy, so each batch is checked again: position, checksum, offsets, records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcompact.clean.job import WrittenPart, as_columns
from kcompact.clean.staged_files import OTHER_BYTES
from kcompact.errors import CorruptDataError
from kcompact.format.batch import computed_crc, parse_batches
from kcompact.host.throttle import Pace
from kcompact.log.files import open_regular, read_into

VERIFY_BYTES = 32 << 20


def verify_staged_log(path: Path, parts: Sequence[WrittenPart], pace: Pace, *, compiled: bool) -> tuple[int, float]:
    """Read a staged log back from the disk; return its checksum, and the seconds that took.

    Raises CorruptDataError when it is not what was written: a disk may lie, and after this it is the only copy. Each
    batch is checked anew, not only the sum of all: its place, its checksum and how many records there are.
    """
    import crc32c

    started = time.monotonic()
    rows = np.concatenate([part.output_table for part in parts])
    last_offsets, max_timestamps, sizes = as_columns(rows)
    ends = np.cumsum(sizes)
    read_batches = _batch_reader(path, compiled=compiled)
    buffer = bytearray(max(VERIFY_BYTES, int(sizes.max(initial=0))))
    whole, records, previous_offset, position, row = 0, 0, -1, 0, 0
    with open_regular(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Ask for the disk's bytes, not the cache's.
        size, expected = os.fstat(descriptor).st_size, sum(part.size_bytes for part in parts)
        if size != expected or size != (int(ends[-1]) if len(ends) else 0):
            raise CorruptDataError(file=path, problem=f"{expected} bytes were written, {size} are there")
        for part in parts:
            crc, part_end = 0, row + len(part.output_table)
            while row < part_end:
                # Whole batches, about so many bytes.
                end = max(row + 1, int(np.searchsorted(ends[:part_end], position + VERIFY_BYTES, side="right")))
                window = slice(row, end)
                data = memoryview(buffer)[: int(ends[end - 1]) - position]
                pace.take(len(data))
                read_into(descriptor, data, position, path=path)
                crc, whole = crc32c.crc32c(data, crc), crc32c.crc32c(data, whole)
                found = read_batches(
                    data, position, previous_offset, (last_offsets[window], max_timestamps[window], sizes[window])
                )
                records += found
                position, previous_offset, row = int(ends[end - 1]), int(last_offsets[end - 1]), end
            if crc != part.crc32c:
                raise CorruptDataError(file=path, position=position - part.size_bytes, problem=OTHER_BYTES)
    if records != sum(part.stats.messages_written for part in parts):
        raise CorruptDataError(file=path, problem="the staged segment has another number of records than were kept")
    return whole, time.monotonic() - started


Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _batch_reader(path: Path, *, compiled: bool) -> Callable[[memoryview, int, int, Columns], int]:
    """Return what counts the records of staged batches and raises where they are not those that were written."""

    def read(data: memoryview, position: int, previous_offset: int, expected: Columns) -> int:
        records = 0
        try:
            found = list(parse_batches(data, file=str(path), position=position))
        except CorruptDataError as problem:
            raise CorruptDataError(file=path, position=problem.position, problem=OTHER_BYTES) from None
        for source, last_offset, size_bytes in zip(found, expected[0].tolist(), expected[2].tolist(), strict=True):
            header = source.header
            if header.base_offset <= previous_offset or header.last_offset != last_offset:
                raise CorruptDataError(
                    file=path, position=source.position, problem="a staged batch is out of its order"
                )
            if header.size_bytes != size_bytes or computed_crc(source.data) != header.crc:
                raise CorruptDataError(file=path, position=source.position, problem=OTHER_BYTES)
            previous_offset = header.last_offset
            records += header.records_count
        return records

    if not compiled:
        return read
    from kcompact.clean import split_kernels as kernels

    def read_compiled(data: memoryview, position: int, previous_offset: int, expected: Columns) -> int:
        records = kernels.verify_batches(data, previous_offset, expected)
        return read(data, position, previous_offset, expected) if records is None else records

    return read_compiled
