"""The model of the dirty ratio, on logs as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kcompact.report.replay import rolled_ratios
from tests.support.log_values import CONFIG, log_of, segment

FIVE = tuple(segment(number * 100, first=number * 10 + 1, largest=number * 10 + 9) for number in range(5))
"""Four closed segments of 100 bytes and an active one. A segment is rolled every 10 ms."""


@pytest.mark.parametrize(
    ("checkpoint", "remaining", "config", "ratios", "model", "cleans"),
    [
        # Nothing was ever cleaned: all of the log is dirty. The model cleans at 0.5 and leaves everything.
        (None, 1.0, {}, [1, 1, 1, 1], [1, 0.5, 2 / 3, 0.25], "y-y-"),
        # Each cleaning leaves nothing.
        (None, 0.0, {}, [1, 1, 1, 1], [1, 1, 1, 1], "yyyy"),
        # Two segments were cleaned: what they were before is unknown, and the model takes them as they are.
        (200, 0.0, {}, [None, None, 1 / 3, 1 / 2], [1, 0.5, 2 / 3, 1 / 3], "y-y-"),
        # A checkpoint inside a segment: that segment is counted in both sections.
        (250, 1.0, {}, [None, None, 1 / 4, 2 / 5], [1, 0.5, 2 / 3, 0.25], "y-y-"),
        # Young segments cannot be cleaned yet, so each comes one roll later.
        (None, 0.0, {"min_compaction_lag_ms": 10}, [1, 1, 1, 1], [0, 1, 1, 1], "-yyy"),
        # The ratio is too low for ever, but the lag is over after 25 ms.
        (
            *(None, 1.0, {"min_cleanable_dirty_ratio": 1.0, "max_compaction_lag_ms": 25}),
            *([1, 1, 1, 1], [1, 1, 1, 0.25], "--y-"),
        ),
    ],
)
def test_ratios(
    checkpoint: int | None,
    remaining: float,
    config: dict[str, Any],
    ratios: list[float | None],
    model: list[float],
    cleans: str,
) -> None:
    log = log_of(*FIVE, end=500, checkpoint=checkpoint)
    rolled = rolled_ratios(log, replace(CONFIG, **config), first_dirty_offset=checkpoint or 0, remaining=remaining)
    assert [each.ratio for each in rolled] == pytest.approx(ratios)
    assert [each.model_ratio for each in rolled] == pytest.approx(model)
    assert "".join("y" if each.model_cleans else "-" for each in rolled) == cleans
    assert [each.time_ms for each in rolled] == [11, 21, 31, 41]


def test_times_never_fall() -> None:
    early = (segment(0, largest=50), segment(100, first=40, largest=60), segment(200, first=20, largest=30))
    rolled = rolled_ratios(log_of(*early, end=300), CONFIG, first_dirty_offset=0)
    assert [each.time_ms for each in rolled] == [40, 40]
