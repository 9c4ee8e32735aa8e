"""The input of the record kernels: reusable memory, and the inflated record sections of compressed batches.

The table of batches has the position of each batch's record section: in the buffer that the batch was read into, or,
for a compressed batch, in the array of inflated sections.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcompact.format.codec import Codec, decompress
from kcompact.format.limits import DEFAULT_MEMORY_BYTES, MEMORY_FACTOR, most_inflated_bytes, require_memory
from kcompact.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    CODEC_MASK,
    HEADER_BYTES,
    MIN_RECORD_BYTES,
    POSITION,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    SIZE,
    Bytes,
    Table,
)

INFLATED_BYTES = 32 << 20
"""A run of batches ends when this many bytes are inflated, or a 16th of the memory."""
RUN_RECORDS = 1 << 20
"""A run has at most this many records, or one batch; fewer with little memory."""
_RUN_PART = 16
RECORD_BYTES = 72
"""What the kernels hold for a record besides its bytes: its hash and its reference, three times in a merge."""
PADDING_BYTES = 8
"""Space after the last byte, because the kernels load whole words."""


class Buffers:
    """Named arrays that one worker reuses from split to split.

    An array is valid until the next call with the same name. `memory_bytes` is what the worker may hold for a batch.
    """

    def __init__(self, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self.memory_bytes = memory_bytes
        self._arrays: dict[str, Bytes] = {}

    def bytes_of(self, name: str, size: int) -> Bytes:
        """Return an uninitialised array of at least `size` bytes."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            self._arrays.pop(name, None)  # Its memory may be needed for the new one.
            # An eighth more avoids a new array for a slightly larger split; unused pages take no memory.
            self._arrays[name] = array = np.empty(size + size // 8 + PADDING_BYTES, np.uint8)
        return array

    def table(self, name: str, rows: int, columns: int) -> Table:
        """Return an uninitialised table of exactly `rows` rows."""
        return self.bytes_of(name, rows * columns * 8)[: rows * columns * 8].view(np.int64).reshape(rows, columns)


def inflated_runs(
    buffer: Bytes,
    table: Table,
    buffers: Buffers,
    *,
    file: Path,
    start_position: int,
    wanted: npt.NDArray[np.bool_] | None = None,
) -> Iterator[tuple[int, int, Bytes]]:
    """Yield the batches in runs: (first row, end row, inflated sections), in the order of the table.

    For the compressed batches of a run, the columns SECTION_START and SECTION_END are set to positions in the inflated
    sections. The array of inflated sections is valid until the next run. `buffer` starts at `start_position` of the
    file. With `wanted`, only the batches that it marks are inflated. Raises CorruptBatchError, BatchTooLargeError.
    """
    row, count = table[:, ROW], table[:, RECORDS_COUNT]
    compressed = (table[:, ATTRIBUTES] & CODEC_MASK != 0) & (count > 0)
    if wanted is not None:
        compressed &= wanted
    run_records = min(RUN_RECORDS, buffers.memory_bytes // _RUN_PART // RECORD_BYTES)
    first = 0
    while first < len(table):
        end = max(first + 1, int(np.searchsorted(row, row[first] + run_records)))
        numbers = first + np.flatnonzero(compressed[first:end])
        sections = _inflated_sections(
            buffer, table[numbers], buffers.memory_bytes, file=file, start_position=start_position
        )
        inflated = buffers.bytes_of("inflated", sum(map(len, sections)) + PADDING_BYTES)
        if sections:
            done = numbers[: len(sections)]
            end = int(done[-1]) + 1 if len(sections) < len(numbers) else end
            ends = np.cumsum([len(section) for section in sections])
            table[done, SECTION_END] = ends
            table[done[0], SECTION_START] = 0
            table[done[1:], SECTION_START] = ends[:-1]
            inflated_view, position = inflated.data, 0
            for section in sections:
                inflated_view[position : position + len(section)] = section
                position += len(section)
        sections.clear()
        if end == first + 1:
            _require_records(table[first], buffers.memory_bytes, file=file, start_position=start_position)
        yield first, end, inflated
        first = end


def _require_records(batch: npt.NDArray[np.int64], memory_bytes: int, *, file: Path, start_position: int) -> None:
    """Raise BatchTooLargeError for a batch with too many records. Believes no number that its bytes contradict."""
    section_bytes = int(batch[SECTION_END] - batch[SECTION_START])
    count = min(int(batch[RECORDS_COUNT]), section_bytes // MIN_RECORD_BYTES)
    require_memory(
        MEMORY_FACTOR * section_bytes + RECORD_BYTES * count,
        memory_bytes,
        problem=f"a batch of {int(batch[SIZE]):,} bytes with {count:,} records in {section_bytes:,} bytes",
        file=str(file),
        position=start_position + int(batch[POSITION]),
        offset=int(batch[BASE_OFFSET]),
    )


def _inflated_sections(
    buffer: Bytes, table: Table, memory_bytes: int, *, file: Path, start_position: int
) -> list[bytes]:
    """Return the inflated record sections of the batches in `table`, in order, until they make a run."""
    view = buffer.data
    sections: list[bytes] = []
    inflated_bytes, run_bytes = 0, min(INFLATED_BYTES, memory_bytes // _RUN_PART)
    for start, size, attributes in table[:, (POSITION, SIZE, ATTRIBUTES)].tolist():
        section = decompress(
            Codec(attributes & CODEC_MASK),
            view[start + HEADER_BYTES : start + size],
            file=str(file),
            position=start_position + start,
            max_bytes=most_inflated_bytes(size - HEADER_BYTES, memory_bytes),
        )
        sections.append(section)
        inflated_bytes += len(section)
        if inflated_bytes >= run_bytes:
            break
    return sections
