"""The header of a batch, and the kernels that fill tables of batches with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
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
    IO_ERROR,
    LAST_OFFSET,
    LEGACY,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORDS_COUNT,
    ROW,
    SECTION_END,
    SECTION_START,
    SIZE,
)
from kcompact.kernels.loops.checksum import crc32c
from kcompact.kernels.loops.memory import load_be16, load_be32, load_be64, loop, read_from_file

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Table


@loop
def read_header(buffer, at, row):
    """Fill a row from the 61 bytes at `at`, which the buffer holds. Returns DONE, LEGACY or DAMAGED."""
    magic = buffer[at + 16]
    if magic < 2:
        return LEGACY
    base_offset = load_be64(buffer, at)
    length = load_be32(buffer, at + 8)
    last_offset_delta = load_be32(buffer, at + 23)
    records_count = load_be32(buffer, at + 57)
    attributes = load_be16(buffer, at + 21)
    if magic > 2 or length < HEADER_BYTES - 12 or base_offset < 0 or last_offset_delta < 0 or records_count < 0:
        return DAMAGED
    if attributes & CODEC_MASK > 4 or base_offset + last_offset_delta < base_offset:
        return DAMAGED
    row[POSITION] = at
    row[SIZE] = length + 12
    row[BASE_OFFSET] = base_offset
    row[LAST_OFFSET] = base_offset + last_offset_delta
    row[EPOCH] = load_be32(buffer, at + 12)
    row[ATTRIBUTES] = attributes
    row[BASE_TIMESTAMP] = load_be64(buffer, at + 27)
    row[MAX_TIMESTAMP] = load_be64(buffer, at + 35)
    row[PRODUCER_ID] = load_be64(buffer, at + 43)
    row[PRODUCER_EPOCH] = load_be16(buffer, at + 51)
    row[BASE_SEQUENCE] = load_be32(buffer, at + 53)
    row[RECORDS_COUNT] = records_count
    row[SECTION_START] = at + HEADER_BYTES
    row[SECTION_END] = at + length + 12
    row[FLAGS] = 0
    return DONE


@loop
def parse_batches(
    buffer: Bytes, size: int, base_offset: int, end_offset: int, epoch: int, table: Table
) -> tuple[int, int, int]:
    """buffer u8[>= size] -> table i64[m, 16], and (batches, bytes that they fill, code).

    Goes from header to header and checks each batch as `log.verified_batches` does: checksum, offsets that rise and
    lie in [base_offset, end_offset), leader epochs that do not fall below `epoch`. FULL: the table ends before the
    batches do. DAMAGED is also a batch that reaches beyond `size`: the caller knows whether there are more bytes.
    """
    at = count = records = 0
    previous = base_offset - 1
    while at < size:
        if count == table.shape[0]:
            return count, at, FULL
        if at + HEADER_BYTES > size:
            return count, at, DAMAGED
        row = table[count]
        code = read_header(buffer, at, row)
        if code != DONE:
            return count, at, code
        end = at + row[SIZE]
        if end > size or row[BASE_OFFSET] <= previous or row[LAST_OFFSET] >= end_offset:
            return count, at, DAMAGED
        if -1 < row[EPOCH] < epoch:
            return count, at, DAMAGED
        if crc32c(buffer, at + 21, end) != np.uint32(load_be32(buffer, at + 17)):
            return count, at, DAMAGED
        row[ROW] = records
        records += row[RECORDS_COUNT]
        previous = row[LAST_OFFSET]
        epoch = max(epoch, row[EPOCH])
        at = end
        count += 1
    return count, at, DONE


@loop
def scan_headers(descriptor: int, start: int, end: int, scratch: Bytes, table: Table) -> tuple[int, int, int]:
    """scratch u8[64] -> table i64[m, 16], and (batches, position after them, code); POSITION is that in the file.

    Reads only the headers of an open file. Definition: `format.batch.read_header`. FULL: the table ends before the
    batches do; call again from the position. DAMAGED is also a batch that reaches beyond `end`.
    """
    at = start
    count = 0
    while at < end:
        if count == table.shape[0]:
            return count, at, FULL
        if at + HEADER_BYTES > end:
            return count, at, DAMAGED
        if read_from_file(descriptor, scratch, HEADER_BYTES, at) != HEADER_BYTES:
            return count, at, IO_ERROR
        row = table[count]
        code = read_header(scratch, 0, row)
        if code != DONE:
            return count, at, code
        if at + row[SIZE] > end:
            return count, at, DAMAGED
        row[POSITION] = at
        row[SECTION_START] += at
        row[SECTION_END] += at
        row[ROW] = 0
        at += row[SIZE]
        count += 1
    return count, at, DONE
