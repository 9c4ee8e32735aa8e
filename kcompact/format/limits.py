"""What one batch may take: its size, what it inflates to, and its records. `docs/formats.md` has the table.

A worker may hold `memory_bytes` for the batch that it works on. A batch that needs more is refused before it is read,
or while it is inflated.
"""

from __future__ import annotations

from kcompact.errors import BatchTooLargeError

MEMORY_FACTOR = 4
"""A cleaning holds a batch up to four times: as read, inflated, encoded again, and as a copy on the way."""
RECORD_BYTES = 320
"""What the readable definitions hold for a record, besides its bytes."""
DEFAULT_MEMORY_BYTES = 1 << 30
"""For callers without a budget, which read single batches."""
MAX_RATIO = 1100
"""How many times its size a batch may inflate to. gzip reaches 1032, lz4 255, snappy 22, and zstd 32,768."""
ANY_RATIO_PART = 4
ANY_RATIO_BYTES = 256 << 20
"""At any ratio a batch may inflate to so many bytes, or to this part of the most: zstd stores zeros in almost none."""
MAX_LEGACY_RECORDS = 1_000_000
"""The most records of a compressed message of magic 0 or 1, which no kernel reads."""

_LEAST_BUDGET_BYTES = 1 << 20
"""A smaller budget counts as this."""
_BATCH_SHARE = (3, 4)
"""The part of the budget that is for batches. The rest is for keys, bits and indexes."""


def batch_memory_bytes(budget_bytes: int, workers: int = 1) -> int:
    """Return what each of some workers may hold for the batch that it works on."""
    part, whole = _BATCH_SHARE
    return max(budget_bytes, _LEAST_BUDGET_BYTES) * part // whole // workers


def most_batch_bytes(memory_bytes: int) -> int:
    """Return the most bytes that a batch may have, and may inflate to."""
    return memory_bytes // MEMORY_FACTOR


def most_inflated_bytes(compressed_bytes: int, memory_bytes: int) -> int:
    """Return the most bytes that a section of `compressed_bytes` may inflate to."""
    any_ratio_bytes, most_bytes = inflation_limits(memory_bytes)
    return min(most_bytes, max(MAX_RATIO * compressed_bytes, any_ratio_bytes))


def inflation_limits(memory_bytes: int) -> tuple[int, int]:
    """Return the bytes that a section may inflate to at any ratio, and the most that it may inflate to at MAX_RATIO."""
    most_bytes = most_batch_bytes(memory_bytes)
    return min(ANY_RATIO_BYTES, most_bytes // ANY_RATIO_PART), most_bytes


def require_memory(
    needed_bytes: int, memory_bytes: int, *, problem: str, file: str, position: int, offset: int
) -> None:
    """Raise BatchTooLargeError if a batch needs more than `memory_bytes`. `problem` says how large it is."""
    if needed_bytes > memory_bytes:
        part, whole = _BATCH_SHARE
        raise BatchTooLargeError(
            file=file,
            position=position,
            offset=offset,
            problem=f"{problem}: too large for the memory that may be used",
            needed_bytes=-(-needed_bytes * whole // part),
        )


def require_size(size_bytes: int, memory_bytes: int, *, file: str, position: int, offset: int) -> None:
    """Raise BatchTooLargeError for a batch that may not be read whole."""
    require_memory(
        MEMORY_FACTOR * size_bytes,
        memory_bytes,
        problem=f"a batch of {size_bytes:,} bytes",
        file=file,
        position=position,
        offset=offset,
    )
