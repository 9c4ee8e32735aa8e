"""Numbers as Java prints them, for Kafka's own summary."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from math import isinf, isnan


def java_number(value: float, digits: int = 1) -> str:
    """Return a number as Java's `%,.1f` prints it: grouped, half rounded up, `NaN` and `Infinity` by name."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


def ratio(part: float, whole: float) -> float:
    """Return a quotient as Java computes it: NaN for 0/0, infinity for any other number over 0."""
    if whole == 0:
        return float("nan") if part == 0 else float("inf")
    return part / whole
