"""The wall clock. Only this module reads it: every decision takes its time as an argument."""

from __future__ import annotations

import time


def clock_ms() -> int:
    """Return the clock's time in Unix milliseconds."""
    return time.time_ns() // 1_000_000
