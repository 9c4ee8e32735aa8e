"""The progress of a command that only reads: a bar for each large partition on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kcompact.cli.output import text

LEAST_BYTES = 64 << 20
"""Less is read before anybody could look at a bar."""


@contextmanager
def bar_of(directory: Path, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show how much of a partition is read; yield the function that takes the bytes of each step."""
    if total_bytes < LEAST_BYTES or not sys.stderr.isatty():
        yield lambda done_bytes: None
        return
    from kcompact.cli.output.progress_bars import Bars

    bars = Bars(partitions=1, total_bytes=total_bytes)
    bars.begin(directory, f"{text.safe(directory.name)} reading", total_bytes)

    def advance(done_bytes: int) -> None:
        with suppress(OSError):
            bars.advance(directory, done_bytes, done_bytes)

    try:
        yield advance
    finally:
        with suppress(OSError):
            bars.end()
