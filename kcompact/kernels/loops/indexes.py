"""The entries of the offset index and the time index of a segment, from its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    DAMAGED,
    DONE,
)
from kcompact.kernels.loops.memory import loop

if TYPE_CHECKING:
    import numpy.typing as npt

    from kcompact.kernels.arrays import Table


@loop
def index_entries(
    last_offsets: npt.NDArray[np.int64],
    max_timestamps: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    base_offset: int,
    interval_bytes: int,
    max_offset_entries: int,
    max_time_entries: int,
    offsets: Table,
    times: Table,
) -> tuple[int, int, int]:
    """last_offsets, max_timestamps, sizes i64[n] of the batches of a segment; offsets, times i64[n + 1, 2] ->
    (entries of the offset index, entries of the time index, code).

    Returns DAMAGED if an index is full or an offset is too far from the base; the definition then raises the error.
    Definition: `format.index.IndexBuilder`.
    """
    offset_count = time_count = 0
    position = since_entry = 0
    largest, largest_offset, written = np.int64(-1), base_offset, np.int64(-1)
    for i in range(last_offsets.shape[0]):
        relative = last_offsets[i] - base_offset
        if relative < 0 or relative > 0x7FFFFFFF:
            return offset_count, time_count, DAMAGED
        if max_timestamps[i] > largest:
            largest, largest_offset = max_timestamps[i], last_offsets[i]
        if since_entry > interval_bytes:
            if offset_count >= max_offset_entries or time_count >= max_time_entries:
                return offset_count, time_count, DAMAGED
            offsets[offset_count, 0] = relative
            offsets[offset_count, 1] = position
            offset_count += 1
            if largest > written:
                times[time_count, 0] = written = largest
                times[time_count, 1] = largest_offset - base_offset
                time_count += 1
            since_entry = 0
        since_entry += sizes[i]
        position += sizes[i]
    if largest > written:
        times[time_count, 0] = largest
        times[time_count, 1] = largest_offset - base_offset
        time_count += 1
    return offset_count, time_count, DONE
