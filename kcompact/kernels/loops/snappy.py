"""Raw blocks of snappy: the inflated length as a varint, then literals and copies.

    literal  ......00  length - 1 in the upper six bits; 60 to 63: in the next one to four bytes
    copy     ......01  4 to 11 bytes from at most 2 KiB before; length - 4 in three bits, eleven bits of distance
    copy     ......10  1 to 64 bytes from at most 64 KiB before; length - 1, two bytes of distance
    copy     ......11  the same with four bytes of distance

No library is called, because the Python package for snappy exports no C functions. Source: snappy's format_description.
"""

from __future__ import annotations

import numpy as np

from kcompact.kernels.columns import SNAPPY_TABLE, SNAPPY_TABLE_BITS
from kcompact.kernels.loops.memory import copy_bytes, load_le16, load_le32, load_le64, loop, store_le16, store_le64

_MOST_LENGTH_BYTES = 5
_LEAST_SLOTS = 256
_MARGIN_BYTES = 15
"""No copy begins in the last bytes of a block, so that whole words can be loaded."""


@loop
def snappy_length(source, position, end):
    """Return (inflated length, position after it) of the block source[position:end]; the position is -1 without one.

    A length in more bytes than necessary, or of more than 32 bits, is none, so that the definition decides about it.
    """
    length = np.int64(0)
    for index in range(min(_MOST_LENGTH_BYTES, end - position)):
        byte = np.int64(source[position + index])
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            is_usual = (byte > 0 or index == 0) and length <= 0xFFFFFFFF
            return length, position + index + 1 if is_usual else np.int64(-1)
    return length, np.int64(-1)


@loop
def _repeat(out, position, distance, length, space_end):
    """Copy `length` bytes within `out` from `distance` before `position`; may write more, but not from `space_end` on.

    A copy may overlap its own output: then it repeats the last `distance` bytes.
    """
    if distance >= 8 and length <= space_end - position - 8:
        for at in range(position, position + length, 8):
            store_le64(out, at, load_le64(out, at - distance))
    else:
        for at in range(position, position + length):
            out[at] = out[at - distance]


@loop
def inflate_snappy_block(source, position, end, out, start, out_end, space_end):
    """Inflate the elements source[position:end] to exactly out[start:out_end]; return whether they are sound.

    May write more, but not from `space_end` on. Definition: the library `snappy`.
    """
    filled = start
    while position < end:
        tag = np.int64(source[position])
        position += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                if end - position < 4:
                    return False
                length = np.int64(1)
                for index in range(extra):
                    length += np.int64(source[position + index]) << (8 * index)
                position += extra
            if length > end - position or length > out_end - filled:
                return False
            if length <= 16 and end - position >= 16 and space_end - filled >= 16:
                store_le64(out, filled, np.int64(load_le64(source, position)))
                store_le64(out, filled + 8, np.int64(load_le64(source, position + 8)))
            else:
                copy_bytes(out, filled, source, position, length)
            position += length
        else:
            distance_bytes = (tag & 3) if tag & 3 < 3 else np.int64(4)
            if distance_bytes > end - position:
                return False
            if distance_bytes == 1:
                length, distance = (tag >> 2 & 7) + 4, tag >> 5 << 8 | np.int64(source[position])
            elif distance_bytes == 2:
                length, distance = (tag >> 2) + 1, load_le16(source, position)
            else:
                length, distance = (tag >> 2) + 1, load_le32(source, position)
            position += distance_bytes
            if distance == 0 or distance > filled - start or length > out_end - filled:
                return False
            _repeat(out, filled, distance, length, space_end)
        filled += length
    return filled == out_end


@loop
def most_snappy_bytes(length):
    """Return the most bytes that a block of `length` bytes becomes."""
    return 32 + length + length // 6


@loop
def _write_literal(source, position, length, out, filled):
    """Write a literal of at most 64 KiB; return the position after it."""
    if length == 0:
        return filled
    if length <= 60:
        out[filled] = (length - 1) << 2
        filled += 1
    elif length <= 256:
        out[filled] = 60 << 2
        out[filled + 1] = length - 1
        filled += 2
    else:
        out[filled] = 61 << 2
        store_le16(out, filled + 1, length - 1)
        filled += 3
    copy_bytes(out, filled, source, position, length)
    return filled + length


@loop
def _write_copy(out, filled, distance, length):
    """Write copies of a distance below 64 KiB and a length of 4 or more; return the position after them."""
    while length > 0:
        # The rest must not be shorter than a copy can be.
        step = min(length, np.int64(64)) if length <= 64 or length >= 68 else np.int64(60)
        if step < 12 and distance < 2048 and step >= 4:
            out[filled] = 1 | (step - 4) << 2 | distance >> 8 << 5
            out[filled + 1] = distance & 0xFF
            filled += 2
        else:
            out[filled] = 2 | (step - 1) << 2
            store_le16(out, filled + 1, distance)
            filled += 3
        length -= step
    return filled


@loop
def _match_length(source, earlier, later, end):
    """Return how many bytes from `later` on equal those from `earlier` on, up to `end`."""
    start = later
    while end - later >= 8 and load_le64(source, earlier) == load_le64(source, later):
        earlier += 8
        later += 8
    while later < end and source[earlier] == source[later]:
        earlier += 1
        later += 1
    return later - start


@loop
def _slot(word, slots):
    """Return where the words of the codecs have the last position of these four bytes, in bytes from their start."""
    return 8 * SNAPPY_TABLE + 2 * ((word * 0x1E35A7BD & 0xFFFFFFFF) >> (32 - SNAPPY_TABLE_BITS) & (slots - 1))


@loop
def deflate_snappy_block(codecs, source, start, end, out, filled):
    """Write the block source[start:end], at most 64 KiB, to `out`; return the position after it.

    `out` must have `most_snappy_bytes` from `filled` on. The words from SNAPPY_TABLE on are a table: the last position
    of four bytes, by their hash. Definition: `format.codec.snappy.compress`.
    """
    length = end - start
    while length >= 0x80:
        out[filled] = length & 0x7F | 0x80
        length >>= 7
        filled += 1
    out[filled] = length
    filled += 1
    slots = np.int64(_LEAST_SLOTS)
    while slots < min(end - start, 1 << SNAPPY_TABLE_BITS):
        slots *= 2
    codecs[SNAPPY_TABLE : SNAPPY_TABLE + slots // 4] = 0
    literal, position, last = start, start + 1, end - _MARGIN_BYTES
    while position <= last:
        skip = np.int64(32)
        earlier = np.int64(-1)
        while position <= last:
            word = load_le32(source, position)
            slot = _slot(word, slots)
            earlier = start + load_le16(codecs, slot)
            step = skip >> 5  # The longer nothing repeats, the fewer positions are tried.
            if position + step > last:
                return _write_literal(source, literal, end - literal, out, filled)
            store_le16(codecs, slot, position - start)
            if load_le32(source, earlier) == word:
                break
            position += step
            skip += step
        filled = _write_literal(source, literal, position - literal, out, filled)
        is_repeated = True
        while is_repeated:
            size = 4 + _match_length(source, earlier + 4, position + 4, end)
            filled = _write_copy(out, filled, position - earlier, size)
            position += size
            literal = position
            if position >= last:
                return _write_literal(source, literal, end - literal, out, filled)
            store_le16(codecs, _slot(load_le32(source, position - 1), slots), position - 1 - start)
            word = load_le32(source, position)
            slot = _slot(word, slots)
            earlier = start + load_le16(codecs, slot)
            store_le16(codecs, slot, position - start)
            is_repeated = load_le32(source, earlier) == word
        position += 1
    return _write_literal(source, literal, end - literal, out, filled)
