"""Reads the header of a batch; kernels that fill tables of batches, from memory or from a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CRC,
    DAMAGED,
    DONE,
    EPOCH,
    FLAGS,
    FULL,
    HEADER_BYTES,
    IO_ERROR,
    KNOWN_BITS,
    LAST_OFFSET,
    LEGACY,
    MAGIC,
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
    SMALL_BATCH_BYTES,
)
from kcompact.kernels.loops.checksum import crc32c
from kcompact.kernels.loops.memory import load_be16, load_be32, load_be64, loop, read_from_file

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Table

_WINDOW_BYTES = 512 << 10
"""How much is read at a time: it fits the cache of one core."""
_MORE = -1
"""A code that no kernel returns: more bytes have to be read."""


@loop
def read_header(buffer, position, row):
    """Fill a row from the 61 bytes at `position` of the buffer. Returns DONE, LEGACY or DAMAGED."""
    magic = buffer[position + 16]
    if magic < 2:
        return LEGACY
    base_offset = load_be64(buffer, position)
    length = load_be32(buffer, position + 8)
    last_offset_delta = load_be32(buffer, position + 23)
    records_count = load_be32(buffer, position + 57)
    attributes = load_be16(buffer, position + 21)
    if magic > 2 or length < HEADER_BYTES - 12 or base_offset < 0 or last_offset_delta < 0 or records_count < 0:
        return DAMAGED
    # A sum that overflows cannot be recognised afterwards: the compiler assumes that none does.
    if attributes & CODEC_MASK > 4 or base_offset >= MAX_OFFSET - last_offset_delta:
        return DAMAGED
    row[POSITION] = position
    row[SIZE] = length + 12
    row[BASE_OFFSET] = base_offset
    row[LAST_OFFSET] = base_offset + last_offset_delta
    row[EPOCH] = load_be32(buffer, position + 12)
    row[ATTRIBUTES] = attributes
    row[BASE_TIMESTAMP] = load_be64(buffer, position + 27)
    row[MAX_TIMESTAMP] = load_be64(buffer, position + 35)
    row[PRODUCER_ID] = load_be64(buffer, position + 43)
    row[PRODUCER_EPOCH] = load_be16(buffer, position + 51)
    row[BASE_SEQUENCE] = load_be32(buffer, position + 53)
    row[RECORDS_COUNT] = records_count
    row[SECTION_START] = position + HEADER_BYTES
    row[SECTION_END] = position + length + 12
    row[FLAGS] = 0
    row[MAGIC] = 2
    row[CRC] = np.uint32(load_be32(buffer, position + 17))
    return DONE


@loop
def _parse_loaded(buffer, loaded, size, end_offset, table, count, position, records, previous, epoch):
    """Parse the batches from `position` on of which the first `loaded` of all `size` bytes are in the buffer.

    Returns the last five parameters as they are afterwards, and a code: _MORE if the next batch is not loaded.
    """
    code = DONE
    while position < size:
        if count == table.shape[0]:
            code = FULL
            break
        if position + HEADER_BYTES > loaded:
            code = _MORE if loaded < size else DAMAGED
            break
        row = table[count]
        code = read_header(buffer, position, row)
        if code != DONE:
            break
        end = position + row[SIZE]
        if end > size or row[BASE_OFFSET] <= previous or row[LAST_OFFSET] >= end_offset:
            code = DAMAGED
            break
        if end > loaded:
            code = _MORE
            break
        if -1 < row[EPOCH] < epoch:
            code = DAMAGED
            break
        if crc32c(buffer, position + 21, end) != row[CRC]:
            code = DAMAGED
            break
        if row[ATTRIBUTES] & ~KNOWN_BITS:
            code = DAMAGED
            break
        row[ROW] = records
        records += row[RECORDS_COUNT]
        previous = row[LAST_OFFSET]
        epoch = max(epoch, row[EPOCH])
        position = end
        count += 1
    return count, position, records, previous, epoch, code


@loop
def parse_batches(
    buffer: Bytes, size: int, base_offset: int, end_offset: int, epoch: int, table: Table
) -> tuple[int, int, int, int]:
    """buffer u8[>= size] -> table i64[m, 18], and (batches, bytes that they fill, greatest epoch, code).

    Checks each batch: the checksum; all bits of the attributes are known; offsets rise and are in [base_offset,
    end_offset); leader epochs do not fall below `epoch`. Returns FULL if the table ends before the batches. Returns
    DAMAGED also for a batch that ends after `size`: the caller decides whether it has more bytes to read.
    Definition: `log.segment_reader.verified_batches`.
    """
    count, position, _, _, epoch, code = _parse_loaded(
        buffer, size, size, end_offset, table, 0, 0, 0, base_offset - 1, epoch
    )
    return count, position, epoch, code


@loop
def read_batches(
    descriptor: int,
    start: int,
    size: int,
    base_offset: int,
    end_offset: int,
    epoch: int,
    buffer: Bytes,
    table: Table,
) -> tuple[int, int, int]:
    """Read `size` bytes from `start` of an open file; then as `parse_batches`. buffer u8[>= size].

    Each window is parsed before the next one is read, while its bytes are in the processor's cache. Returns IO_ERROR
    if the file ends too early. Definition: `log.segment_reader.verified_batches`.
    """
    count, position, records, previous, loaded = 0, 0, 0, base_offset - 1, 0
    while True:
        count, position, records, previous, epoch, code = _parse_loaded(
            buffer, loaded, size, end_offset, table, count, position, records, previous, epoch
        )
        if code != _MORE:
            return count, position, code
        read = read_from_file(descriptor, buffer, loaded, min(_WINDOW_BYTES, size - loaded), start + loaded)
        if read <= 0:
            return count, position, IO_ERROR
        loaded += read


@loop
def scan_headers(
    descriptor: int, start: int, until: int, end: int, scratch: Bytes, table: Table
) -> tuple[int, int, int]:
    """scratch u8[>= 61] -> table i64[m, 18], and (batches, position after them, code).

    Reads only the headers of an open file; small batches are read together, as many as fit `scratch`. The column
    POSITION holds positions in the file. Returns FULL at the first batch from position `until` on, and if the table
    ends before the batches: the caller calls again from the returned position. Bytes behind the first header from
    `until` on are not looked at. Returns DAMAGED also for a batch that ends after `end`. Definition:
    `log.batch_headers.header_tables`.
    """
    position, count = start, 0
    window = held = size = 0
    while position < end:
        if count == table.shape[0] or position >= until:
            return count, position, FULL
        if position + HEADER_BYTES > end:
            return count, position, DAMAGED
        window, held = hold_header(descriptor, scratch, position, end, window, held, size)
        if position + HEADER_BYTES > window + held:
            return count, position, IO_ERROR
        row = table[count]
        code = read_header(scratch, position - window, row)
        if code != DONE:
            return count, position, code
        size = row[SIZE]
        if position + size > end:
            return count, position, DAMAGED
        row[POSITION] = position
        row[SECTION_START] += window
        row[SECTION_END] += window
        row[ROW] = 0
        position += size
        count += 1
    return count, position, DONE


@loop
def hold_header(descriptor, scratch, position, end, window, held, size):
    """Return the window of a file that has the header at a position, and how many bytes `scratch` holds of it.

    It is read anew if `scratch` lacks the header: whole if the batch before is small, else the header alone.
    """
    if position + HEADER_BYTES <= window + held:
        return window, held
    wanted = scratch.shape[0] if size < SMALL_BATCH_BYTES else HEADER_BYTES
    return position, read_from_file(descriptor, scratch, 0, min(wanted, end - position), position)
