"""Records of batches of format 2, decoded without kcompact, for the readers that judge it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import lz4.frame
import snappy
import zstandard

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def inflated(data: bytes, attributes: int) -> bytes:
    """Return what follows the header of a batch, inflated by the codec its attributes name; ignores what trails it."""
    match attributes & 0x07:
        case 0:
            return data
        case 1:
            return zlib.decompressobj(wbits=31).decompress(data)
        case 2:
            return b"".join(_snappy_blocks(data))
        case 3:
            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data))
        case _:
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def _snappy_blocks(data: bytes) -> Iterator[bytes]:
    """Yield the inflated blocks behind a xerial header of 16 bytes, each behind its length."""
    at = 16
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        yield snappy.uncompress(data[at + 4 : end])
        at = end


def records_in(data: bytes, base: int, count: int) -> list[Record]:
    """Return offset, key and value of the first `count` records in what follows the header of a batch, inflated."""
    found, at = [], 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)

    def content() -> bytes | None:
        nonlocal at
        size = number()
        if size < 0:
            return None
        at += size
        return data[at - size : at]

    for _ in range(count):
        end = number()
        end += at
        at += 1
        number()
        offset = base + number()
        found.append((offset, content(), content()))
        at = end
    return found
