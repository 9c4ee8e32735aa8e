"""Compresses the batches that `filter_batches` has encoded, and seals all new batches that are not complete yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ACTION,
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    EMPTIED,
    ENCODED,
    GZIP,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    LZ4,
    LZ4_COMPRESS,
    MAX_TIMESTAMP,
    MESSAGES_WRITTEN,
    NEW_ATTRIBUTES,
    NEW_BASE_TIMESTAMP,
    NEW_MAX_TIMESTAMP,
    OUT_END,
    OUT_START,
    SEALED,
    SNAPPY,
    TRANSACTIONAL_BIT,
    ZLIB_DEFLATE,
    ZSTD,
    ZSTD_COMPRESS,
)
from kcompact.kernels.loops.filter import write_header
from kcompact.kernels.loops.inflate import (
    GZIP_END_BYTES,
    GZIP_START,
    GZIP_START_BYTES,
    LZ4_BLOCK_BYTES,
    LZ4_START,
    LZ4_START_BYTES,
    SNAPPY_START,
    SNAPPY_START_BYTES,
    UNUSUAL,
)
from kcompact.kernels.loops.libraries import lz4_compress, zlib_crc, zlib_deflate, zstd_compress
from kcompact.kernels.loops.memory import copy_bytes, loop, store_be32, store_be64, store_le32, store_le64
from kcompact.kernels.loops.snappy import deflate_snappy_block, most_snappy_bytes

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Column, Table

GZIP_UNKNOWN_SYSTEM = 0xFF
SNAPPY_BLOCK_BYTES = 32 * 1024
SNAPPY_VERSIONS = 1 << 32 | 1
"""The version, and the lowest version that can read it."""


@loop
def deflate_lz4(codecs, source, position, source_end, out, start, end):
    """Write a frame with source[position:source_end] to out[start:end]; return its size, UNUSUAL without space.

    Definition: `format.codec.lz4.compress`.
    """
    if codecs[LZ4_COMPRESS] == 0 or end - start < LZ4_START_BYTES + 4:
        return np.int64(UNUSUAL)
    store_le64(out, start, np.int64(LZ4_START))
    filled = start + LZ4_START_BYTES
    while position < source_end:
        length = min(source_end - position, LZ4_BLOCK_BYTES)
        if end - filled < 4 + length + 4:
            return np.int64(UNUSUAL)
        # A block that is not smaller than its content is stored.
        size = lz4_compress(codecs, source, position, length, out, filled + 4, length - 1)
        if size > 0:
            store_le32(out, filled, size)
        else:
            size = length
            store_le32(out, filled, size | 0x80000000)
            copy_bytes(out, filled + 4, source, position, length)
        filled += 4 + size
        position += length
    store_le32(out, filled, 0)
    return filled + 4 - start


@loop
def deflate_zstd(codecs, source, position, source_end, out, start, end):
    """Write a frame without content size and checksum, as `deflate_lz4` does. Definition: `format.codec.zstd`."""
    if codecs[ZSTD_COMPRESS] == 0:
        return np.int64(UNUSUAL)
    size = zstd_compress(codecs, source, position, source_end - position, out, start, end - start)
    return size if size >= 0 else np.int64(UNUSUAL)


@loop
def deflate_gzip(codecs, source, position, source_end, out, start, end):
    """Write a member, as `deflate_lz4` does. Definition: `format.codec.gzip.compress`."""
    length = source_end - position
    space = min(end - start - GZIP_START_BYTES - GZIP_END_BYTES, np.int64(0x7FFFFFFF))
    # The library counts in 32 bits.
    if codecs[ZLIB_DEFLATE] == 0 or space < 0 or length > 0x7FFFFFFF:
        return np.int64(UNUSUAL)
    body = start + GZIP_START_BYTES
    is_complete, size = zlib_deflate(codecs, source, position, length, out, body, space)
    if not is_complete:
        return np.int64(UNUSUAL)
    store_le64(out, start, np.int64(GZIP_START))
    out[start + 8] = 0
    out[start + 9] = GZIP_UNKNOWN_SYSTEM
    store_le32(out, body + size, zlib_crc(codecs, source, position, length))
    store_le32(out, body + size + 4, length)
    return GZIP_START_BYTES + size + GZIP_END_BYTES


@loop
def deflate_snappy(codecs, source, position, source_end, out, start, end):
    """Write xerial blocks of 32 KiB, as `deflate_lz4` does. Definition: `format.codec.snappy.compress`."""
    if end - start < SNAPPY_START_BYTES:
        return np.int64(UNUSUAL)
    store_be64(out, start, SNAPPY_START)
    store_be64(out, start + 8, SNAPPY_VERSIONS)
    filled = start + SNAPPY_START_BYTES
    while position < source_end:
        block_end = min(source_end, position + SNAPPY_BLOCK_BYTES)
        if end - filled < 4 + most_snappy_bytes(block_end - position):
            return np.int64(UNUSUAL)
        written_end = deflate_snappy_block(codecs, source, position, block_end, out, filled + 4)
        store_be32(out, filled, written_end - filled - 4)
        filled, position = written_end, block_end
    return filled - start


@loop
def _deflate(codec, codecs, source, position, source_end, out, start, end):
    """Compress source[position:source_end] to out[start:end]; return its size, UNUSUAL without space or library."""
    if codec == LZ4:
        return deflate_lz4(codecs, source, position, source_end, out, start, end)
    if codec == ZSTD:
        return deflate_zstd(codecs, source, position, source_end, out, start, end)
    if codec == SNAPPY:
        return deflate_snappy(codecs, source, position, source_end, out, start, end)
    if codec == GZIP:
        return deflate_gzip(codecs, source, position, source_end, out, start, end)
    return np.int64(UNUSUAL)


@loop
def seal_batches(
    buffer: Bytes,
    encoded: Bytes,
    table: Table,
    keeps_header: Bytes,
    first: int,
    end: int,
    codecs: Column,
    out: Bytes,
    outcomes: Table,
) -> int:
    """encoded u8[n]: the output of `filter_batches`, keeps_header u8[m], codecs i64[CODEC_WORDS] -> the end of `out`.

    Of the rows [first, end), compresses each ENCODED batch that has a codec, and writes it to `out`. Writes the header
    of each EMPTIED batch that keeps it. Both are SEALED then, with their positions in `out`. A batch is left as it is
    if it does not fit or if its codec's library is missing. Definitions: `format.codec.compress`, `format.batch.empty`.
    """
    position = np.int64(0)
    for number in range(first, end):
        outcome = outcomes[number]
        row = table[number]
        codec = row[ATTRIBUTES] & CODEC_MASK
        start = position + HEADER_BYTES
        if start > out.shape[0]:
            continue
        if outcome[ACTION] == EMPTIED and keeps_header[number]:
            outcome[NEW_ATTRIBUTES] = row[ATTRIBUTES] & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
            outcome[NEW_BASE_TIMESTAMP] = -1
            outcome[NEW_MAX_TIMESTAMP] = row[MAX_TIMESTAMP]
            size = np.int64(0)
        elif outcome[ACTION] == ENCODED and codec:
            size = _deflate(codec, codecs, encoded, outcome[OUT_START], outcome[OUT_END], out, start, out.shape[0])
            if size < 0:
                continue
        else:
            continue
        write_header(
            out, position, start + size, buffer, row, outcome[MESSAGES_WRITTEN],
            outcome[NEW_BASE_TIMESTAMP], outcome[NEW_MAX_TIMESTAMP], outcome[NEW_ATTRIBUTES],
        )  # fmt: skip
        outcome[ACTION] = SEALED
        outcome[OUT_START] = position
        outcome[OUT_END] = start + size
        position = start + size
    return position
