"""Damaged copies of small files."""

from __future__ import annotations

from collections.abc import Iterator


def cuts_and_flips(data: bytes) -> Iterator[bytes]:
    """Yield each proper prefix of `data`, then `data` with each of its bits flipped."""
    for length in range(len(data)):
        yield data[:length]
    for position in range(len(data)):
        for bit in range(8):
            yield data[:position] + bytes((data[position] ^ 1 << bit,)) + data[position + 1 :]
