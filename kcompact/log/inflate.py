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
from kcompact.kernels import (
    ATTRIBUTES,
    CODEC_MASK,
    HEADER_BYTES,
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
"""A run of batches ends when this many bytes are inflated."""
RUN_RECORDS = 1 << 20
"""A run has at most this many records, or one batch."""
PADDING_BYTES = 8
"""Space after the last byte, because the kernels load whole words."""


class Buffers:
    """Named arrays that one worker reuses from split to split.

    An array is valid until the next call with the same name.
    """

    def __init__(self) -> None:
        self._arrays: dict[str, Bytes] = {}

    def bytes_of(self, name: str, size: int) -> Bytes:
        """Return an uninitialised array of at least `size` bytes."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
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
    file. With `wanted`, only the batches that it marks are inflated. Raises CorruptBatchError.
    """
    row, count = table[:, ROW], table[:, RECORDS_COUNT]
    compressed = (table[:, ATTRIBUTES] & CODEC_MASK != 0) & (count > 0)
    if wanted is not None:
        compressed &= wanted
    first = 0
    while first < len(table):
        end = max(first + 1, int(np.searchsorted(row, row[first] + RUN_RECORDS)))
        numbers = first + np.flatnonzero(compressed[first:end])
        sections = _inflated_sections(buffer, table[numbers], file=file, start_position=start_position)
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
        yield first, end, inflated
        first = end


def _inflated_sections(buffer: Bytes, table: Table, *, file: Path, start_position: int) -> list[bytes]:
    """Return the inflated record sections of the batches in `table`, in order, until they reach INFLATED_BYTES."""
    view = buffer.data
    sections: list[bytes] = []
    inflated_bytes = 0
    for start, size, attributes in table[:, (POSITION, SIZE, ATTRIBUTES)].tolist():
        section = decompress(
            Codec(attributes & CODEC_MASK),
            view[start + HEADER_BYTES : start + size],
            file=str(file),
            position=start_position + start,
        )
        sections.append(section)
        inflated_bytes += len(section)
        if inflated_bytes >= INFLATED_BYTES:
            break
    return sections
