"""Inflates the record sections of compressed batches.

Only the usual form of each codec is inflated here: the form that Kafka's writer and the common clients write. The
definitions in `format.codec` judge all other forms, damaged bytes and sections that are too large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kcompact.kernels.columns import (
    ATTRIBUTES,
    CODEC_MASK,
    DEFLATE_DECOMPRESS,
    DONE,
    FULL,
    GZIP,
    HEADER_BYTES,
    LZ4,
    LZ4_DECOMPRESS,
    POSITION,
    SECTION_END,
    SECTION_START,
    SIZE,
    SNAPPY,
    UNDECIDED,
    ZSTD,
    ZSTD_DECOMPRESS,
)
from kcompact.kernels.loops.libraries import (
    DEFLATE_NO_SPACE,
    deflate_crc,
    deflate_decompress,
    lz4_decompress,
    zstd_content_size,
    zstd_decompress,
    zstd_frame_size,
)
from kcompact.kernels.loops.memory import copy_bytes, load_be32, load_be64, load_le32, load_le64, loop
from kcompact.kernels.loops.snappy import inflate_snappy_block, snappy_length

if TYPE_CHECKING:
    from kcompact.kernels.arrays import Bytes, Column, Table

PADDING_BYTES = 8
"""Bytes at the end of the output that no section gets, because kernels load whole words."""

NO_SPACE, UNUSUAL = -1, -2
"""Instead of a size: the section does not fit the output; the definition must inflate it."""

LZ4_START_BYTES = 7
LZ4_START = np.uint64(0x8240_60_184D2204)
"""The first seven bytes of a frame of independent blocks of 64 KiB without checksums and content size."""
LZ4_BLOCK_BYTES = 1 << 16

ZSTD_MAGIC = 0xFD2FB528
ZSTD_SINGLE_SEGMENT_BIT = 0x20
"""In the byte after the magic number: the window is as large as the content, and no byte declares a window."""
ZSTD_LARGEST_WINDOW, ZSTD_LARGEST_WINDOW_BYTE = 1 << 27, 0x88
"""The largest window that is inflated here, and the byte that declares it. Larger ones have larger bytes."""

GZIP_START = 0x00088B1F
"""The first four bytes of a member without flags."""
GZIP_START_BYTES, GZIP_END_BYTES = 10, 8
GZIP_IGNORED_BYTES = 18
"""A tail behind a member that is no longer than this is ignored."""

SNAPPY_START = np.int64(0x82534E4150505900 - (1 << 64))
SNAPPY_START_BYTES = 16
SNAPPY_MOST_RATIO = 22


@loop
def inflate_lz4(codecs, source, position, source_end, out, start, end):
    """Inflate the frame at source[position:source_end] to out[start:end]; return its inflated size.

    Definition: `format.codec.lz4.decompress`.
    """
    # The word that is loaded has one byte more than the start, so there must be one.
    if codecs[LZ4_DECOMPRESS] == 0 or source_end - position < LZ4_START_BYTES + 4:
        return np.int64(UNUSUAL)
    if load_le64(source, position) & np.uint64(0xFF_FFFF_FFFF_FFFF) != LZ4_START:
        return np.int64(UNUSUAL)
    position += LZ4_START_BYTES
    filled = start
    while source_end - position >= 4:
        word = load_le32(source, position)
        length = word & 0x7FFFFFFF
        position += 4
        if length == 0:
            return filled - start
        if length > LZ4_BLOCK_BYTES or length > source_end - position:
            return np.int64(UNUSUAL)
        space = min(end - filled, LZ4_BLOCK_BYTES)
        if word & 0x80000000:
            if length > space:
                return np.int64(NO_SPACE)
            copy_bytes(out, filled, source, position, length)
            size = length
        else:
            size = lz4_decompress(codecs, source, position, length, out, filled, space)
            if size <= 0:  # Damaged, empty, or larger than the space.
                return np.int64(NO_SPACE if space < LZ4_BLOCK_BYTES else UNUSUAL)
        position += length
        filled += size
    return np.int64(UNUSUAL)


@loop
def inflate_zstd(codecs, source, position, source_end, out, start, end):
    """Inflate the frame source[position:source_end] to out[start:end]; return its inflated size.

    Definition: `format.codec.zstd.decompress`.
    """
    size = source_end - position
    if codecs[ZSTD_DECOMPRESS] == 0 or size < 4 or load_le32(source, position) != ZSTD_MAGIC:
        return np.int64(UNUSUAL)
    if zstd_frame_size(codecs, source, position, size) != size:  # Damaged, or several frames.
        return np.int64(UNUSUAL)
    declared = zstd_content_size(codecs, source, position, size)
    # If the output has space for the declared size, the library does not look at the window.
    is_single_segment = source[position + 4] & ZSTD_SINGLE_SEGMENT_BIT != 0
    is_large = declared > ZSTD_LARGEST_WINDOW if is_single_segment else source[position + 5] > ZSTD_LARGEST_WINDOW_BYTE
    if declared < -1 or is_large:
        return np.int64(UNUSUAL)
    # With less space than a frame declares, the library does not notice that the declared size is wrong.
    if declared > end - start:
        return np.int64(NO_SPACE)
    result, filled = zstd_decompress(codecs, source, position, size, out, start, end - start)
    if result == 0:
        return filled
    return np.int64(NO_SPACE if start + filled >= end else UNUSUAL)


@loop
def inflate_gzip(codecs, source, position, source_end, out, start, end):
    """Inflate the member at source[position:source_end] to out[start:end]; return its inflated size.

    Definition: `format.codec.gzip.decompress`.
    """
    body = position + GZIP_START_BYTES
    if codecs[DEFLATE_DECOMPRESS] == 0:
        return np.int64(UNUSUAL)
    if source_end - body < GZIP_END_BYTES or load_le32(source, position) != GZIP_START:
        return np.int64(UNUSUAL)
    space = min(end - start, np.int64(0x7FFFFFFF))
    result, read, filled = deflate_decompress(codecs, source, body, source_end - body, out, start, space)
    if result != 0:
        return np.int64(NO_SPACE if result == DEFLATE_NO_SPACE else UNUSUAL)
    tail = source_end - body - read
    if tail < GZIP_END_BYTES or tail - GZIP_END_BYTES > GZIP_IGNORED_BYTES:
        return np.int64(UNUSUAL)
    checksum, length = load_le32(source, body + read), load_le32(source, body + read + 4)
    if checksum != deflate_crc(codecs, out, start, filled) or length != filled:
        return np.int64(UNUSUAL)
    return filled


@loop
def inflate_snappy(source, position, source_end, out, start, end):
    """Inflate source[position:source_end], xerial blocks or a raw one, to out[start:end]; return its inflated size.

    Definition: `format.codec.snappy.decompress`.
    """
    is_framed = source_end - position >= SNAPPY_START_BYTES and load_be64(source, position) == SNAPPY_START
    if is_framed:
        position += SNAPPY_START_BYTES
    filled = start
    while not is_framed or source_end - position >= 4:
        length = source_end - position
        if is_framed:
            length = load_be32(source, position)
            position += 4
        if length < 0 or length > source_end - position:  # Less than 0: a repeated header.
            return np.int64(UNUSUAL)
        declared, block = snappy_length(source, position, position + length)
        if block < 0 or declared > SNAPPY_MOST_RATIO * length or (declared == 0 and length > 1):
            return np.int64(UNUSUAL)
        if declared > end - filled:
            return np.int64(NO_SPACE)
        if not inflate_snappy_block(source, block, position + length, out, filled, filled + declared, end):
            return np.int64(UNUSUAL)
        filled += declared
        position += length
        if not is_framed:
            break
    return filled - start


@loop
def inflate_batches(
    buffer: Bytes,
    table: Table,
    is_wanted: Bytes,
    first: int,
    end: int,
    most_bytes: Column,
    run_bytes: int,
    codecs: Column,
    out: Bytes,
    out_position: int,
) -> tuple[int, int, int]:
    """is_wanted u8[m], most_bytes i64[m], codecs i64[CODEC_WORDS] -> (row, new end of `out`, code).

    Inflates the wanted batches of the rows [first, end) to `out`, from `out_position` on, and sets their SECTION_START
    and SECTION_END to positions in `out`. Stops before a wanted batch when `out` has `run_bytes` bytes, and returns its
    row; else returns `end`. `most_bytes` is what each batch may inflate to. Codes: DONE; FULL where the batch at `row`
    does not fit; UNDECIDED where the definition must inflate it. Definition: `format.codec.decompress`.
    """
    for number in range(first, end):
        if not is_wanted[number]:
            continue
        if out_position >= run_bytes:
            return number, out_position, DONE
        row = table[number]
        source_start, source_end = row[POSITION] + HEADER_BYTES, row[POSITION] + row[SIZE]
        space_end = max(out_position, out.shape[0] - PADDING_BYTES)
        is_limited = most_bytes[number] <= space_end - out_position
        if is_limited:
            space_end = out_position + most_bytes[number]
        codec = row[ATTRIBUTES] & CODEC_MASK
        size = np.int64(UNUSUAL)
        if codec == LZ4:
            size = inflate_lz4(codecs, buffer, source_start, source_end, out, out_position, space_end)
        elif codec == ZSTD:
            size = inflate_zstd(codecs, buffer, source_start, source_end, out, out_position, space_end)
        elif codec == SNAPPY:
            size = inflate_snappy(buffer, source_start, source_end, out, out_position, space_end)
        elif codec == GZIP:
            size = inflate_gzip(codecs, buffer, source_start, source_end, out, out_position, space_end)
        if size < 0:
            return number, out_position, FULL if size == NO_SPACE and not is_limited else UNDECIDED
        row[SECTION_START] = out_position
        out_position += size
        row[SECTION_END] = out_position
    return end, out_position, DONE
