"""What filters of Spark leave out: never a row that fulfils them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcompact.questions.record_filter import RecordFilter
from kcompact.spark_source.pushed_filters import PushedFilters

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = ("LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "EqualTo", "In", "EqualNullSafe", "IsNull")


@dataclass(frozen=True)
class Filter:
    """A filter of PySpark: its class has the name, these are its attributes."""

    attribute: tuple[str, ...]
    value: Any


def a_filter(kind: str, column: str, value: Any) -> Any:
    return type(kind, (Filter,), {})((column,), value)


def fulfils(row: dict[str, Any], one: Any) -> bool:
    """Whether a row fulfils a filter, by SQL."""
    value, limit = row[one.attribute[0]], one.value
    tests: dict[str, Callable[[], bool]] = {
        "LessThan": lambda: value < limit,
        "LessThanOrEqual": lambda: value <= limit,
        "GreaterThan": lambda: value > limit,
        "GreaterThanOrEqual": lambda: value >= limit,
        "EqualTo": lambda: value == limit,
        "In": lambda: value in limit,
    }
    return tests.get(type(one).__name__, lambda: True)()


values = {
    "offset": st.integers(-3, 12),
    "partition": st.integers(-1, 4),
    "topic": st.sampled_from(["a", "b", "c"]),
    "timestamp": st.integers(-3000, 12_000).map(lambda number: EPOCH + timedelta(microseconds=number)),
}


@st.composite
def filters(draw: st.DrawFn) -> Any:
    kind, column = draw(st.sampled_from(KINDS)), draw(st.sampled_from(list(values)))
    value = values[column]
    return a_filter(kind, column, draw(st.lists(value, max_size=3).map(tuple) if kind == "In" else value))


@given(st.lists(filters(), max_size=4))
def test_no_row_is_left_out_that_fulfils_the_filters(pushed: list[Any]) -> None:
    found = PushedFilters.of(pushed)
    directories = [Path(f"/logs/{topic}-{partition}") for topic in "abc" for partition in range(4)]
    kept, bounds = found.narrowed(directories, RecordFilter())
    for directory in directories:
        topic, _, partition = directory.name.rpartition("-")
        for offset in range(10):
            time_ms = offset
            row = {
                "topic": topic,
                "partition": int(partition),
                "offset": offset,
                "timestamp": EPOCH + timedelta(milliseconds=time_ms),
            }
            if all(fulfils(row, one) for one in pushed):
                assert directory in kept
                assert is_within(bounds, offset, time_ms)


def is_within(bounds: RecordFilter, offset: int, time_ms: int) -> bool:
    return (
        (bounds.from_offset or 0) <= offset
        and (bounds.until_offset is None or offset < bounds.until_offset)
        and (bounds.since_ms is None or time_ms >= bounds.since_ms)
        and (bounds.until_ms is None or time_ms < bounds.until_ms)
    )


@pytest.mark.parametrize(
    ("kind", "value", "first", "end"),
    [
        ("LessThan", 5, None, 5),
        ("LessThanOrEqual", 5, None, 6),
        ("GreaterThan", 5, 6, None),
        ("GreaterThanOrEqual", 5, 5, None),
        ("EqualTo", 5, 5, 6),
        ("In", (7, 5), 5, 8),
        ("In", (), None, None),
        ("EqualNullSafe", 5, None, None),
        ("EqualTo", None, None, None),
        ("EqualTo", "5", None, None),
    ],
)
def test_offsets_become_bounds(kind: str, value: Any, first: int | None, end: int | None) -> None:
    _, bounds = PushedFilters.of([a_filter(kind, "offset", value)]).narrowed([], RecordFilter())
    assert (bounds.from_offset, bounds.until_offset) == (first, end)


@pytest.mark.parametrize(("kind", "first", "end"), [("EqualTo", 5, 6), ("LessThan", None, 5), ("GreaterThan", 5, None)])
def test_times_become_bounds_of_at_most_a_millisecond_more(kind: str, first: int | None, end: int | None) -> None:
    time_ms = 1_700_000_000_000
    pushed = PushedFilters.of([a_filter(kind, "timestamp", EPOCH + timedelta(milliseconds=time_ms + 5))])
    _, bounds = pushed.narrowed([], RecordFilter())
    assert bounds.since_ms == (None if first is None else time_ms + first)
    assert bounds.until_ms in ([None] if end is None else [time_ms + end, time_ms + end + 1])


def test_each_filter_leaves_fewer_partitions() -> None:
    directories = [Path(f"/logs/{topic}-{partition}") for topic in "abc" for partition in range(3)]
    pushed = PushedFilters.of(
        [
            a_filter("In", "topic", ("a", "b")),
            a_filter("EqualTo", "topic", "b"),
            a_filter("In", "partition", (0, 1)),
            a_filter("In", "partition", (1, 2)),
        ]
    )
    assert pushed.narrowed(directories, RecordFilter())[0] == [Path("/logs/b-1")]


def test_the_bounds_of_the_options_stay() -> None:
    pushed = PushedFilters.of([a_filter("LessThan", "offset", 50), a_filter("GreaterThan", "offset", 3)])
    _, bounds = pushed.narrowed([], RecordFilter(from_offset=10, until_offset=20, since_ms=5))
    assert bounds == RecordFilter(from_offset=10, until_offset=20, since_ms=5)
