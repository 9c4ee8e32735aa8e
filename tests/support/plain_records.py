"""Records of uncompressed batches of format 2, decoded without kcompact, for the readers that judge it."""

from __future__ import annotations

import struct

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20

Record = tuple[int, bytes | None, bytes | None]
"""Offset, key, value."""


def records_in(data: bytes, base: int, count: int) -> list[Record]:
    """Return offset, key and value of the records after the header of a batch."""
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
