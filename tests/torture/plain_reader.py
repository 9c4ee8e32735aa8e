"""Reads partition directories without kcompact: what a consumer would see. Only batches of magic 2, not compressed."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

_HEADER = struct.Struct(">qiibIhiqqqhii")
_TRANSACTIONAL, _CONTROL = 0x10, 0x20


@dataclass(frozen=True, slots=True)
class View:
    """What a reader of a partition finds. `latest` has offset and value of the latest committed record of each key."""

    start: int
    end: int
    latest: dict[bytes | None, tuple[int, bytes | None]]
    rises: bool


def read_view(directory: Path) -> View:
    """Return what a reader of a partition directory finds. Raises ValueError and struct.error for damaged bytes."""
    logs = sorted(directory.glob("*.log"))
    aborted = [
        struct.unpack_from(">hqqq", path.read_bytes(), at)[1:]
        for path in directory.glob("*.txnindex")
        for at in range(0, path.stat().st_size, 34)
    ]
    latest: dict[bytes | None, tuple[int, bytes | None]] = {}
    end, rises = int(logs[0].stem), True
    for log in logs:
        data, position = log.read_bytes(), 0
        while position < len(data):
            base, length, _, magic, _, attributes, delta, _, _, producer, _, _, count = _HEADER.unpack_from(
                data, position
            )
            if magic != 2 or attributes & 7 or position + 12 + length > len(data):
                raise ValueError(f"{log.name}: no plain batch at {position}")
            rises &= base >= end
            end = base + delta + 1
            is_aborted = attributes & _TRANSACTIONAL and any(
                producer == each and first <= base <= last for each, first, last in aborted
            )
            if not attributes & _CONTROL and not is_aborted:
                for offset, key, value in _records(data[position + _HEADER.size : position + 12 + length], base, count):
                    latest[key] = (offset, value)
            position += 12 + length
    return View(int(logs[0].stem), end, latest, rises)


def _records(data: bytes, base: int, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
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


def contents(directory: Path) -> dict[str, str]:
    """Return the digests of the files below a directory, by their relative names, except `.lock` and ballast."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in (".lock", "ballast")
    }
