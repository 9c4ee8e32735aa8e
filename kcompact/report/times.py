"""Times in tables and on the axes of figures: UTC, on the axes only timestamps that are dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

from kcompact import readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_MS = 86_400_000
_FIRST_MS = 1
_LAST_MS = 4_102_444_800_000
"""The first millisecond of the year 2100. A later timestamp is an error of its producer."""


def second(timestamp_ms: int | None) -> str:
    """Return a timestamp as text, without its milliseconds."""
    return readable.time(None if timestamp_ms is None else timestamp_ms // 1000 * 1000)


def minute(timestamp_ms: int | None) -> str:
    """Return a timestamp as short text: `2024-01-01 10:00`, UTC."""
    text = second(timestamp_ms)
    return f"{text[:10]} {text[11:16]}" if text.endswith("Z") else text


def are_dates(timestamps_ms: Sequence[int]) -> bool:
    """Return whether all timestamps are dates that an axis can show, and not all the same."""
    return all(_FIRST_MS <= each < _LAST_MS for each in timestamps_ms) and len(set(timestamps_ms)) > 1


def day(timestamp_ms: float) -> float:
    """Return a timestamp as the number that matplotlib has for it."""
    return timestamp_ms / _DAY_MS


def date_axis(axes: Axes, *, is_narrow: bool) -> None:
    """Label the x axis with dates and times in UTC."""
    locator = AutoDateLocator(maxticks=4 if is_narrow else 8)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
