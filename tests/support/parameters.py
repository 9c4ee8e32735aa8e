"""Values of which `make test` tries some, and `make slow` all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(number: int, values: Iterable[Any]) -> list[Any]:
    """Return parameters: the first of `number` values in a row is always tried, the others are slow."""
    rows = (value if isinstance(value, tuple) else (value,) for value in values)
    return [pytest.param(*row, marks=pytest.mark.slow if place % number else ()) for place, row in enumerate(rows)]
