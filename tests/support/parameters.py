"""Values and examples of which `make test` tries some. `make slow` tries all values, `make properties` new examples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings


def one_in(number: int, values: Iterable[Any]) -> list[Any]:
    """Return parameters: the first of `number` values in a row is always tried, the others are slow."""
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=pytest.mark.slow if place % number else ()) for place, row in enumerate(rows)]


def few_examples() -> settings:
    """Return settings for a property that takes long: three examples, or as many as others where new ones are tried."""
    return settings(max_examples=3) if settings().derandomize else settings()
