"""What the kernels run over: memory that is used again, and the records of compressed batches, inflated.

A table of batches says where the records of each are: in the buffer that the batch was read into, or, if it is
compressed, in the arena.
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
"""How much is inflated before the kernels run over it."""
CHUNK_RECORDS = 1 << 20
PADDING_BYTES = 8
"""Room behind the bytes, so that a word can be loaded where the last one begins."""


class Buffers:
    """Memory that one worker uses again from split to split. What it hands out is valid until it is asked anew."""

    def __init__(self) -> None:
        self._arrays: dict[str, Bytes] = {}

    def bytes_of(self, name: str, size: int) -> Bytes:
        """Return an array of at least `size` bytes."""
        array = self._arrays.get(name)
        if array is None or len(array) < size:
            # Untouched memory costs nothing, so a little more does no harm.
            self._arrays[name] = array = np.empty(size + size // 8 + PADDING_BYTES, np.uint8)
        return array

    def table(self, name: str, rows: int, columns: int) -> Table:
        """Return a table of exactly so many rows."""
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
    """Yield runs of batches [first, end) that are ready for the kernels, and the arena with what was compressed.

    `buffer` begins at `start_position` of the file. `wanted` are the batches whose records matter; what is compressed
    in others is not inflated. Raises CorruptBatchError.
    """
    row, count = table[:, ROW], table[:, RECORDS_COUNT]
    compressed = (table[:, ATTRIBUTES] & CODEC_MASK != 0) & (count > 0)
    if wanted is not None:
        compressed &= wanted
    view = buffer.data
    first = 0
    while first < len(table):
        end = max(first + 1, int(np.searchsorted(row, row[first] + CHUNK_RECORDS)))
        numbers = first + np.flatnonzero(compressed[first:end])
        pieces: list[bytes] = []
        inflated_bytes = 0
        for start, size, attributes in table[numbers][:, (POSITION, SIZE, ATTRIBUTES)].tolist():
            piece = decompress(
                Codec(attributes & CODEC_MASK),
                view[start + HEADER_BYTES : start + size],
                file=str(file),
                position=start_position + start,
            )
            pieces.append(piece)
            inflated_bytes += len(piece)
            if inflated_bytes >= INFLATED_BYTES:
                break
        inflated = buffers.bytes_of("arena", inflated_bytes + PADDING_BYTES)
        if pieces:
            done = numbers[: len(pieces)]
            end = int(done[-1]) + 1 if len(pieces) < len(numbers) else end
            ends = np.cumsum([len(piece) for piece in pieces])
            table[done, SECTION_END] = ends
            table[done[0], SECTION_START] = 0
            table[done[1:], SECTION_START] = ends[:-1]
            into, at = inflated.data, 0
            for piece in pieces:
                into[at : at + len(piece)] = piece
                at += len(piece)
        yield first, end, inflated
        first = end
