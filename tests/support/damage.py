"""Damaged copies of small files, and a damaged log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def cuts_and_flips(data: bytes) -> Iterator[bytes]:
    """Yield each proper prefix of `data`, then `data` with each of its bits flipped."""
    for length in range(len(data)):
        yield data[:length]
    for position in range(len(data)):
        for bit in range(8):
            yield data[:position] + bytes((data[position] ^ 1 << bit,)) + data[position + 1 :]


def flip_a_bit(directory: Path, seed: int) -> bool:
    """Flip a bit of the largest log file of a partition. Return False if all are empty."""
    path = max(directory.glob("*.log"), key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    if not content:
        return False
    content[seed * 37 % len(content)] ^= 1 << seed % 8
    path.write_bytes(content)
    return True
