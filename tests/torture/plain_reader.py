"""Reads partition directories without kcompact: what a consumer would see. Only batches of magic 2, not compressed."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

from tests.support.plain_records import CONTROL, HEADER, TRANSACTIONAL, records_in


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
            base, length, _, magic, _, attributes, delta, _, _, producer, _, _, count = HEADER.unpack_from(
                data, position
            )
            if magic != 2 or attributes & 7 or position + 12 + length > len(data):
                raise ValueError(f"{log.name}: no plain batch at {position}")
            rises &= base >= end
            end = base + delta + 1
            is_aborted = attributes & TRANSACTIONAL and any(
                producer == each and first <= base <= last for each, first, last in aborted
            )
            if not attributes & CONTROL and not is_aborted:
                content = data[position + HEADER.size : position + 12 + length]
                for offset, key, value in records_in(content, base, count):
                    latest[key] = (offset, value)
            position += 12 + length
    return View(int(logs[0].stem), end, latest, rises)


def contents(directory: Path) -> dict[str, str]:
    """Return the digests of the files below a directory, by their relative names, except `.lock` and ballast."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in (".lock", "ballast")
    }
