"""What a reader of committed records sees in a partition directory, by its markers alone.

Reads the bytes of the `.log` files itself and shares no code with kcompact. Batches must be uncompressed, of format 2.
"""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER = struct.Struct(">qiibIhiqqqhii")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


def committed_view(directory: Path) -> dict[bytes, bytes]:
    """Return the newest committed value of each key; keys whose newest record is a tombstone are left out."""
    waiting: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
    newest: dict[bytes, tuple[int, bytes | None]] = {}

    def commit(records: list[tuple[int, bytes, bytes | None]]) -> None:
        for offset, key, value in records:
            if key not in newest or newest[key][0] < offset:
                newest[key] = (offset, value)

    for path in sorted(directory.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            fields = _HEADER.unpack_from(data, at)
            end = at + 12 + fields[1]
            base_offset, attributes, producer_id, count = fields[0], fields[5], fields[9], fields[12]
            records = _records(data[at + _HEADER.size : end], base_offset, count)
            if attributes & _CONTROL:
                ended = waiting.pop(producer_id, []) if records else []
                if records and records[0][1][3] == 1:
                    commit(ended)
            elif attributes & _TRANSACTIONAL:
                waiting.setdefault(producer_id, []).extend(records)
            else:
                commit(records)
            at = end
    return {key: value for key, (_, value) in newest.items() if value is not None}


def _records(data: bytes, base_offset: int, count: int) -> list[tuple[int, bytes, bytes | None]]:
    found = []
    at = 0
    for _ in range(count):
        length, at = _varint(data, at)
        end = at + length
        _, at = _varint(data, at + 1)
        delta, at = _varint(data, at)
        size, at = _varint(data, at)
        key, at = data[at : at + size], at + size
        size, at = _varint(data, at)
        found.append((base_offset + delta, key, data[at : at + size] if size >= 0 else None))
        at = end
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
