"""`format.limits`: what one batch may take of a budget."""

from __future__ import annotations

import pytest

from kcompact.errors import BatchTooLargeError
from kcompact.format.limits import batch_memory_bytes, most_inflated_bytes, require_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("budget", "workers", "expected"),
    [(256 * MIB, 1, 192 * MIB), (256 * MIB, 4, 48 * MIB), (1, 1, 768 << 10), (MIB, 3, 256 << 10)],
)
def test_a_quarter_of_a_budget_is_for_keys(budget: int, workers: int, expected: int) -> None:
    assert batch_memory_bytes(budget, workers) == expected


@pytest.mark.parametrize(
    ("compressed", "memory", "expected"),
    [
        (0, 64 * MIB, 4 * MIB),
        (1000, 64 * MIB, 4 * MIB),
        (10_000, 64 * MIB, 11_000_000),
        (1 * MIB, 64 * MIB, 16 * MIB),
        (10_240, 64 << 30, 256 * MIB),
        (10 * MIB, 64 << 30, 1100 * 10 * MIB),
    ],
)
def test_what_a_section_may_inflate_to(compressed: int, memory: int, expected: int) -> None:
    assert most_inflated_bytes(compressed, memory) == expected


def test_the_memory_that_is_enough_is_enough() -> None:
    with pytest.raises(BatchTooLargeError) as refused:
        require_size(10 * MIB, batch_memory_bytes(8 * MIB), file="f", position=0, offset=0)
    assert refused.value.needed_bytes is not None
    assert "pass `memory_bytes` of 54m or more" in str(refused.value)
    require_size(10 * MIB, batch_memory_bytes(refused.value.needed_bytes), file="f", position=0, offset=0)
