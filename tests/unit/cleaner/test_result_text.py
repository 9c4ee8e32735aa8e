"""What a result says about its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.cleaner.outcome import CleanResult, Status
from tests.support import log_dsl
from tests.support.stages import plan_of

LOG = "log now=10:00 name=orders-0\n0: a=1\n1: b=2"


@pytest.mark.parametrize(
    ("status", "text"),
    [(Status.CLEANED, "clean up to offset 4"), (Status.CHECKPOINT_NOT_WRITTEN, "the checkpoint should be 4")],
)
def test_the_end_of_a_cleaning(status: Status, text: str, tmp_path: Path) -> None:
    plan = plan_of(log_dsl.parse(LOG), tmp_path)
    result = CleanResult(plan=plan, status=status, end_offset=4)
    assert str(result) == f"orders-0: {status}, 0 B -> 0 B, 0 -> 0 records, {text}"
