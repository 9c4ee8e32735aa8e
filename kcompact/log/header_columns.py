"""The batches of a buffer as a table, by numpy: what `kernels.parse_batches` does, where no kernel is compiled.

A loop follows the lengths from batch to batch; everything else works on columns. For a hundred thousand small batches
that takes a tenth of a second, without a start that is longer than that.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from kcompact.format.batch import LOG_OVERHEAD_BYTES, computed_crcs
from kcompact.kernels import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    DAMAGED,
    DONE,
    EPOCH,
    FLAGS,
    FULL,
    HEADER_BYTES,
    LAST_OFFSET,
    LEGACY,
    MAX_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    SIZE,
    Bytes,
    Column,
    Table,
)

Headers = npt.NDArray[np.void]
Mask = npt.NDArray[np.bool_]

EQUAL_BATCHES = 16
"""After so many batches of one size, the next ones are looked for at the same distance, all at once."""
_SMALL_BYTES = 1024
"""Copying larger batches costs more than cutting them out one by one."""
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _CRC_START = 8, 21
_HEADER = np.dtype(
    [
        *(("base_offset", ">i8"), ("length", ">i4"), ("epoch", ">i4"), ("magic", "i1"), ("crc", ">u4")),
        *(("attributes", ">i2"), ("last_offset_delta", ">i4"), ("base_timestamp", ">i8"), ("max_timestamp", ">i8")),
        *(("producer_id", ">i8"), ("producer_epoch", ">i2"), ("base_sequence", ">i4"), ("records_count", ">i4")),
    ]
)


def parse_batches(
    buffer: Bytes,
    size: int,
    base_offset: int,
    end_offset: int,
    epoch: int,
    table: Table,
    *,
    checks_crc: bool = True,
) -> tuple[int, int, int]:
    """Fill the table with the batches of the buffer; return (batches, bytes that they fill, code).

    Each batch is checked: the checksum, if it is to be; offsets rise and are in [base_offset, end_offset); leader
    epochs do not fall below `epoch`. Definition: `log.segment_reader.verified_batches`.
    """
    starts, end, code = _starts(buffer, size, len(table))
    if not len(starts):
        return 0, 0, code
    headers = np.lib.stride_tricks.sliding_window_view(buffer, HEADER_BYTES)[starts].view(_HEADER)[:, 0]
    _fill(table[: len(starts)], headers, starts)
    is_wrong = _is_wrong(headers, table[: len(starts)], base_offset, end_offset, epoch)
    if checks_crc:
        is_wrong |= _crcs(buffer, table[: len(starts)]) != headers["crc"]
    problems = np.flatnonzero(is_wrong)
    if not len(problems):
        return len(starts), end, code
    count = int(problems[0])
    return count, int(starts[count]), LEGACY if headers["magic"][count] < 2 else DAMAGED


def _starts(buffer: Bytes, size: int, rows: int) -> tuple[Column, int, int]:
    """Return where the batches begin, as their lengths say; the end of the last one, and why there are no more."""
    starts: list[int] = []
    append, length_at = starts.append, _LENGTH.unpack_from
    data, position, last, previous, equal = buffer.data, 0, size - HEADER_BYTES, 0, 0
    while position <= last and len(starts) < rows:
        (length,) = length_at(data, position + _LENGTH_AT)
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES:
            return np.array(starts, np.int64), position, DAMAGED
        batch_bytes = length + LOG_OVERHEAD_BYTES
        append(position)
        position += batch_bytes
        equal = equal + 1 if batch_bytes == previous else 0
        previous = batch_bytes
        if equal == EQUAL_BATCHES:
            more = _equal_batches(
                buffer, position, min(size - position, batch_bytes * (rows - len(starts))), batch_bytes
            )
            starts += range(position, position + more * batch_bytes, batch_bytes)
            position += more * batch_bytes
            equal = 0
    if position > size:
        position = starts.pop()
    code = DONE if position == size else FULL if len(starts) == rows else DAMAGED
    return np.array(starts, np.int64), position, code


def _equal_batches(buffer: Bytes, position: int, size: int, batch_bytes: int) -> int:
    """Return how many batches of one size, at least, follow one another in `size` bytes from a position on."""
    count = size // batch_bytes
    if count < EQUAL_BATCHES:
        return 0
    expected = np.frombuffer(_LENGTH.pack(batch_bytes - LOG_OVERHEAD_BYTES), np.uint8)
    found, step = 0, EQUAL_BATCHES  # A few first: in most logs the size changes soon.
    while found < count:
        step = min(4 * step, count - found)
        start = position + found * batch_bytes
        rows = buffer[start : start + step * batch_bytes].reshape(step, batch_bytes)
        differs = np.flatnonzero((rows[:, _LENGTH_AT : _LENGTH_AT + 4] != expected).any(axis=1))
        if len(differs):
            return found + int(differs[0])
        found += step
    return found


def _fill(table: Table, headers: Headers, starts: Column) -> None:
    for column, name in (
        *((BASE_OFFSET, "base_offset"), (EPOCH, "epoch"), (ATTRIBUTES, "attributes")),
        *((BASE_TIMESTAMP, "base_timestamp"), (MAX_TIMESTAMP, "max_timestamp"), (PRODUCER_ID, "producer_id")),
        *((PRODUCER_EPOCH, "producer_epoch"), (BASE_SEQUENCE, "base_sequence"), (RECORDS_COUNT, "records_count")),
    ):
        table[:, column] = headers[name]
    sizes = headers["length"].astype(np.int64) + LOG_OVERHEAD_BYTES
    table[:, POSITION], table[:, SIZE] = starts, sizes
    table[:, LAST_OFFSET] = table[:, BASE_OFFSET] + headers["last_offset_delta"]
    table[:, ROW] = np.cumsum(table[:, RECORDS_COUNT]) - table[:, RECORDS_COUNT]
    table[:, SECTION_START], table[:, SECTION_END] = starts + HEADER_BYTES, starts + sizes
    table[:, FLAGS] = 0


def _is_wrong(headers: Headers, table: Table, base_offset: int, end_offset: int, epoch: int) -> Mask:
    """Whether a header is wrong. After the first one the result means nothing."""
    delta = headers["last_offset_delta"].astype(np.int64)
    is_wrong = headers["magic"] != 2
    is_wrong |= (table[:, BASE_OFFSET] < 0) | (delta < 0) | (table[:, RECORDS_COUNT] < 0)
    is_wrong |= (table[:, ATTRIBUTES] & CODEC_MASK > 4) | (table[:, BASE_OFFSET] >= MAX_OFFSET - delta)
    previous = np.concatenate(([base_offset - 1], table[:-1, LAST_OFFSET]))
    is_wrong |= (table[:, BASE_OFFSET] <= previous) | (table[:, LAST_OFFSET] >= end_offset)
    greatest = np.maximum.accumulate(np.concatenate(([epoch], table[:-1, EPOCH])))
    wrong: Mask = is_wrong | (table[:, EPOCH] > -1) & (table[:, EPOCH] < greatest)
    return wrong


def _crcs(buffer: Bytes, table: Table) -> npt.NDArray[np.uint32]:
    """Return the checksum of each batch. Those of one size are cut out at once, where they are many and small."""
    found = np.empty(len(table), np.uint32)
    is_left = np.ones(len(table), bool)
    sizes, counts = np.unique(table[:, SIZE], return_counts=True)
    for size in sizes[(counts >= EQUAL_BATCHES) & (sizes <= _SMALL_BYTES)].tolist():
        rows = np.flatnonzero(table[:, SIZE] == size)
        is_left[rows] = False
        bodies = np.lib.stride_tricks.sliding_window_view(buffer, size - _CRC_START)[table[rows, POSITION] + _CRC_START]
        found[rows] = computed_crcs(bodies.view(f"V{size - _CRC_START}")[:, 0].tolist())
    starts, ends = table[is_left, POSITION] + _CRC_START, table[is_left, SECTION_END]
    found[is_left] = computed_crcs(map(buffer.data.__getitem__, map(slice, starts.tolist(), ends.tolist())))
    return found
