"""What a result says about its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.cleaner.partition import CleanResult, Status


@pytest.mark.parametrize(
    ("status", "text"),
    [(Status.CLEANED, "clean up to offset 4"), (Status.CHECKPOINT_NOT_WRITTEN, "the checkpoint should be 4")],
)
def test_the_end_of_a_cleaning(status: Status, text: str) -> None:
    result = CleanResult(directory=Path("orders-0"), status=status, end_offset=4)
    assert str(result) == f"orders-0: {status}, 0 B -> 0 B, 0 -> 0 records, {text}"
