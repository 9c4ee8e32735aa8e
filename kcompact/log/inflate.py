"""The input of the record kernels: reusable memory, and the inflated record sections of compressed batches.

The table of batches has the position of each batch's record section: in the buffer that the batch was read into, or,
for a compressed batch, in the array of inflated sections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.format.codec import Codec, decompress
from kcompact.format.limits import (
    DEFAULT_MEMORY_BYTES,
    MAX_RATIO,
    MEMORY_FACTOR,
    inflation_limits,
    most_inflated_bytes,
    require_memory,
)
from kcompact.kernels import Bytes, Codecs, Table
from kcompact.kernels import columns as c

INFLATED_BYTES = 32 << 20
"""A run of batches ends when this many bytes are inflated, or a 16th of the memory."""
RUN_RECORDS = 1 << 20
"""A run has at most this many records, or one batch; fewer with little memory."""
_RUN_PART = 16
_SPACE_PART = 4
_LEAST_SPACE_BYTES = 1 << 16
"""The array of a run has space for another quarter of these bytes, or this: for the batch that ends the run."""
RECORD_BYTES = 72
"""What the kernels hold for a record besides its bytes: its hash and its reference, three times in a merge."""
PADDING_BYTES = 8
"""Space after the last byte, because the kernels load whole words."""


class Buffers:
    """Named arrays, and contexts of codecs, that one worker reuses from split to split.

    An array is valid until the next call with the same name. `memory_bytes` is what the worker may hold for a batch.
    """

    def __init__(self, memory_bytes: int = DEFAULT_MEMORY_BYTES) -> None:
        self.memory_bytes = memory_bytes
        self._arrays: dict[str, Bytes] = {}
        self._codecs: Codecs | None = None

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

    def codecs(self, used: Iterable[int]) -> memoryview:
        """Return the functions and contexts of the codecs, with which kernels inflate and deflate batches."""
        if self._codecs is None:
            self._codecs = Codecs()
        for codec in used:
            self._codecs.open(codec)
        return self._codecs.words


def inflated_runs(
    buffer: Bytes,
    table: Table,
    buffers: Buffers,
    *,
    file: str,
    start_position: int,
    wanted: npt.NDArray[np.bool_] | None = None,
) -> Iterator[tuple[int, int, Bytes]]:
    """Yield the batches in runs: (first row, end row, inflated sections), in the order of the table.

    For the compressed batches of a run, the columns SECTION_START and SECTION_END are set to positions in the inflated
    sections. The array of inflated sections is valid until the next run. `buffer` starts at `start_position` of the
    file. With `wanted`, only the batches that it marks are inflated. Raises CorruptBatchError, BatchTooLargeError.
    """
    row, count = table[:, c.ROW], table[:, c.RECORDS_COUNT]
    compressed = (table[:, c.ATTRIBUTES] & c.CODEC_MASK != 0) & (count > 0)
    if wanted is not None:
        compressed &= wanted
    inflation = _Inflation(buffer, table, compressed, buffers, file, start_position)
    run_records = min(RUN_RECORDS, buffers.memory_bytes // _RUN_PART // RECORD_BYTES)
    first = 0
    while first < len(table):
        end = max(first + 1, int(np.searchsorted(row, row[first] + run_records)))
        end, inflated = inflation.run(first, end)
        if end == first + 1:
            _require_records(table[first], buffers.memory_bytes, file=file, start_position=start_position)
        yield first, end, inflated
        first = end


def _require_records(batch: npt.NDArray[np.int64], memory_bytes: int, *, file: str, start_position: int) -> None:
    """Raise BatchTooLargeError for a batch with too many records. Believes no number that its bytes contradict."""
    section_bytes = int(batch[c.SECTION_END] - batch[c.SECTION_START])
    count = min(int(batch[c.RECORDS_COUNT]), section_bytes // c.MIN_RECORD_BYTES)
    require_memory(
        MEMORY_FACTOR * section_bytes + RECORD_BYTES * count,
        memory_bytes,
        problem=f"a batch of {int(batch[c.SIZE]):,} bytes with {count:,} records in {section_bytes:,} bytes",
        file=file,
        position=start_position + int(batch[c.POSITION]),
        offset=int(batch[c.BASE_OFFSET]),
    )


class _Inflation:
    """Inflates the batches of a table that `compressed` marks: with a kernel, or else by the definition."""

    def __init__(
        self,
        buffer: Bytes,
        table: Table,
        compressed: npt.NDArray[np.bool_],
        buffers: Buffers,
        file: str,
        start_position: int,
    ) -> None:
        self._buffer, self._table, self._buffers = buffer, table, buffers
        self._file, self._start_position = file, start_position
        self._is_wanted = compressed.view(np.uint8)
        self._run_bytes = min(INFLATED_BYTES, buffers.memory_bytes // _RUN_PART) if compressed.any() else 0
        least_bytes, most_bytes = inflation_limits(buffers.memory_bytes)
        self._most_bytes = np.clip(MAX_RATIO * (table[:, c.SIZE] - c.HEADER_BYTES), least_bytes, most_bytes)
        self._codecs = buffers.codecs(np.unique(table[compressed, c.ATTRIBUTES] & c.CODEC_MASK).tolist())

    def run(self, first: int, end: int) -> tuple[int, Bytes]:
        """Return the end of the run that begins at the row `first`, at most `end`, and its inflated sections."""
        space_bytes = self._run_bytes + max(self._run_bytes // _SPACE_PART, _LEAST_SPACE_BYTES)
        inflated, position, row = self._buffers.bytes_of("inflated", space_bytes), 0, first
        while True:
            row, position, code = kernels.inflate_batches(
                self._buffer, self._table, self._is_wanted, row, end,
                self._most_bytes, self._run_bytes, self._codecs, inflated, position,
            )  # fmt: skip
            if code == c.DONE or (code == c.FULL and position):
                return row, inflated
            section = self._section(row)
            if position + len(section) + PADDING_BYTES > len(inflated):
                if position:
                    return row, inflated
                inflated = self._buffers.bytes_of("inflated", len(section) + PADDING_BYTES)
            inflated.data[position : position + len(section)] = section
            self._table[row, c.SECTION_START], position = position, position + len(section)
            self._table[row, c.SECTION_END], row = position, row + 1

    def _section(self, number: int) -> bytes:
        """Return the inflated section of a batch by the definition. Raises CorruptBatchError, BatchTooLargeError."""
        start, size, attributes = self._table[number, (c.POSITION, c.SIZE, c.ATTRIBUTES)].tolist()
        return decompress(
            Codec(attributes & c.CODEC_MASK),
            self._buffer.data[start + c.HEADER_BYTES : start + size],
            file=self._file,
            position=self._start_position + start,
            max_bytes=most_inflated_bytes(size - c.HEADER_BYTES, self._buffers.memory_bytes),
        )
