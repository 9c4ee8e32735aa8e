"""The progress of a command that only reads: bars for what is large, on a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import stat
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.output import streams

if TYPE_CHECKING:
    from kcompact.cli.output.progress_bars import Bars

LEAST_BYTES = 64 << 20
"""Less is read before anybody could look at a bar."""
LINE_EVERY_S = 10.0
"""The time between two lines where bars would be in the way."""


@contextmanager
def bar_of(directory: Path, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show how much of a partition is read; yield the function that takes the bytes of each step."""
    if total_bytes < LEAST_BYTES or not sys.stderr.isatty():
        yield lambda done_bytes: None
        return
    from kcompact.cli.output.progress_bars import Bars

    bars = Bars(partitions=1, total_bytes=total_bytes)
    bars.begin(directory, f"{readable.safe(directory.name)} reading", total_bytes)

    def advance(done_bytes: int) -> None:
        with suppress(OSError):
            bars.advance(directory, done_bytes, done_bytes)

    try:
        yield advance
    finally:
        with suppress(OSError):
            bars.end()


class ListProgress:
    """The progress of a list of records: how much of the logs is read. `sizes` are the logs in order, with their bytes.

    Bars move the cursor, so they are shown only if nothing else is printed on the terminal meanwhile: the list goes
    into a file. A pipe may end at the same terminal, in a `grep`, so there is a line now and then; not while a pager
    has the terminal. If the list is printed on a terminal, it is the progress.
    """

    def __init__(self, sizes: Sequence[tuple[Path, int]], *, into_file: bool) -> None:
        self._before_bytes: dict[Path, int] = {}
        self._of_directory: Counter[Path] = Counter()
        self._total_bytes = 0
        for log, size_bytes in sizes:
            self._before_bytes[log] = self._total_bytes
            self._of_directory[log.parent] += size_bytes
            self._total_bytes += size_bytes
        is_shown = self._total_bytes >= LEAST_BYTES and sys.stderr.isatty()
        self._has_bars = is_shown and (into_file or _is_file())
        self._has_lines = is_shown and not self._has_bars and not sys.stdout.isatty()
        self._done_bytes = 0
        self._directory: Path | None = None
        self._bars: Bars | None = None
        self._started = self._last_line = time.monotonic()

    def reached(self, log: Path, position: int) -> None:
        """Show that a log is read up to a position."""
        if not (self._has_bars or self._has_lines):
            return
        step_bytes = self._before_bytes[log] + position - self._done_bytes
        self._done_bytes += step_bytes
        with suppress(OSError):
            if self._has_bars:
                self._advance_bars(log.parent, step_bytes)
            elif time.monotonic() - self._last_line >= LINE_EVERY_S and _is_line_by_line():
                self._last_line = time.monotonic()
                streams.tell(self._line(self._last_line - self._started))

    def pause(self) -> None:
        """Remove the bars until more is read."""
        bars, self._bars = self._bars, None
        if bars is not None:
            with suppress(OSError):
                bars.end()

    def _advance_bars(self, directory: Path, step_bytes: int) -> None:
        earlier, is_new = self._directory or directory, self._bars is None
        if self._bars is None:
            from kcompact.cli.output.progress_bars import Bars

            self._bars = Bars(partitions=len(self._of_directory), total_bytes=self._total_bytes)
        if is_new or directory != earlier:
            rest_bytes = self._done_bytes - step_bytes if is_new else 0
            self._bars.finish(earlier, rest_bytes, done_partitions=list(self._of_directory).index(directory))
            self._bars.begin(directory, f"{readable.safe(directory.name)} reading", self._of_directory[directory])
        self._directory = directory
        self._bars.advance(directory, step_bytes, step_bytes)

    def _line(self, elapsed_s: float) -> str:
        rate = self._done_bytes / elapsed_s if elapsed_s else 0
        left = f", about {(self._total_bytes - self._done_bytes) / rate:,.0f} seconds left" if rate else ""
        return f"{readable.size(self._done_bytes)} of {readable.size(self._total_bytes)} read{left}"


def _is_file() -> bool:
    """Return whether standard output is a file or a device other than a terminal, such as `/dev/null`."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not sys.stdout.isatty())


def _is_line_by_line() -> bool:
    """Return whether the terminal is in the mode of a shell, which a pager or an editor changes."""
    try:
        local_modes: int = termios.tcgetattr(sys.stderr.fileno())[3]
    except (OSError, ValueError, termios.error):
        return False
    return bool(local_modes & termios.ICANON)
