"""Progress on standard error: bars with rate and time left on a terminal, now and then a line elsewhere.

One `Counter` counts the bytes of a command, and shows them. What reports to it differs: stages of a cleaning
(`stage_progress`), a list of records, a walk over one partition.
"""

from __future__ import annotations

import os
import stat
import sys
import termios
import threading
import time
from collections import Counter as Sums
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.output import streams
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.cli.output.progress_bars import Bars

LINE_EVERY_S = 10.0
"""The time between two lines where there are no bars."""
LEAST_BYTES = 64 << 20
"""Less is read before anybody could look at a bar."""


class Shown(Enum):
    """How progress is shown."""

    BARS = auto()
    LINES = auto()
    NOTHING = auto()


@dataclass(slots=True, kw_only=True)
class _Stage:
    """What is being done with a partition, and how much of it is done."""

    label: str
    total_bytes: int
    done_bytes: int = 0


class Counter:
    """Counts the bytes of partitions that are processed, and shows them. Safe for several threads.

    `expected_bytes` is the work of each partition. A failure to print never fails a command. Before each line
    `may_print` is asked.
    """

    def __init__(
        self, expected_bytes: Mapping[Path, int], shown: Shown, *, may_print: Callable[[], bool] = lambda: True
    ) -> None:
        self.expected_bytes = expected_bytes
        self._shown, self._may_print = shown, may_print
        self._total_bytes = sum(expected_bytes.values())
        self._done_bytes = self._done_partitions = 0
        self._stages: dict[Path, _Stage] = {}
        self._bars: Bars | None = None
        self._lock = threading.Lock()
        self._started = self._last_line = time.monotonic()

    def begin(self, directory: Path, what: str, total_bytes: int) -> None:
        """A partition begins a stage, which replaces its earlier one."""
        with suppress(OSError), self._lock:
            stage = _Stage(label=f"{readable.safe(directory.name)} {what}", total_bytes=total_bytes)
            self._stages[directory] = stage
            if self._bars is not None:
                self._bars.begin(directory, stage.label, total_bytes)
            else:
                self._show_bars()

    def advance(self, directory: Path, stage_bytes: int, counted_bytes: int) -> None:
        """A stage has processed `stage_bytes` more, of which `counted_bytes` count as work of the command."""
        with suppress(OSError), self._lock:
            self._show_bars()
            self._done_bytes += counted_bytes
            if directory in self._stages:
                self._stages[directory].done_bytes += stage_bytes
            if self._bars is not None:
                self._bars.advance(directory, stage_bytes, counted_bytes)
            self._print_line_now_and_then()

    def finish(self, directory: Path, rest_bytes: int = 0) -> None:
        """A partition is done. `rest_bytes` of its work were not necessary."""
        with suppress(OSError), self._lock:
            self._stages.pop(directory, None)
            self._done_bytes += rest_bytes
            self._done_partitions += directory in self.expected_bytes
            if self._bars is not None:
                self._bars.finish(directory, rest_bytes, done_partitions=self._done_partitions)
            self._print_line_now_and_then()

    def pause(self) -> None:
        """Remove all bars until more is processed."""
        bars, self._bars = self._bars, None
        if bars is not None:
            with suppress(OSError):
                bars.end()

    def end(self) -> None:
        """Remove all bars for good."""
        self._stages.clear()
        self.pause()

    def _show_bars(self) -> None:
        """Show the bars of all stages, if there are none yet, or none any more."""
        if self._shown is not Shown.BARS or self._bars is not None or not self._stages:
            return
        from kcompact.cli.output.progress_bars import Bars

        self._bars = Bars(partitions=len(self.expected_bytes), total_bytes=self._total_bytes)
        self._bars.finish(Path(), self._done_bytes, done_partitions=self._done_partitions)
        for directory, stage in self._stages.items():
            self._bars.begin(directory, stage.label, stage.total_bytes)
            self._bars.advance(directory, stage.done_bytes, 0)

    def _print_line_now_and_then(self) -> None:
        now = time.monotonic()
        if self._shown is Shown.LINES and now - self._last_line >= LINE_EVERY_S and self._may_print():
            self._last_line = now
            streams.tell(self._line(now - self._started))

    def _line(self, elapsed_s: float) -> str:
        """Return what is done, with rate and time left."""
        rate = self._done_bytes / elapsed_s if elapsed_s else 0
        left = f", about {(self._total_bytes - self._done_bytes) / rate:,.0f} seconds left" if rate else ""
        return (
            f"{self._done_partitions:,} of {readable.counted(len(self.expected_bytes), 'partition')}, "
            f"{readable.size(self._done_bytes)} of {readable.size(self._total_bytes)} read, "
            f"{readable.size(round(rate))}/s{left}"
        )


# Commands that only read


def bars_if_long(total_bytes: int) -> Shown:
    """Return bars for what takes long, on a terminal; nothing elsewhere."""
    return Shown.BARS if total_bytes >= LEAST_BYTES and sys.stderr.isatty() else Shown.NOTHING


@contextmanager
def bar_of(directory: Path, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show how much of a partition is read; yield the function that takes the bytes of each step."""
    counter = Counter({directory: total_bytes}, bars_if_long(total_bytes))
    counter.begin(directory, "reading", total_bytes)
    try:
        yield lambda done_bytes: counter.advance(directory, done_bytes, done_bytes)
    finally:
        counter.end()


class ListProgress:
    """The progress of a list of records: how much of the logs is read. `sizes` are the logs in order, with their bytes.

    Bars move the cursor, so they are shown only if nothing else is printed on the terminal meanwhile: the list goes
    into a file. A pipe may end at the same terminal, in a `grep`, so there is a line now and then; not while a pager
    has the terminal. If the list is printed on a terminal, it is the progress.
    """

    def __init__(self, sizes: Sequence[tuple[Path, int]], *, into_file: bool) -> None:
        self._before_bytes: dict[Path, int] = {}
        of_directory = Sums[Path]()
        total_bytes = 0
        for log, size_bytes in sizes:
            self._before_bytes[log] = total_bytes
            of_directory[log.parent] += size_bytes
            total_bytes += size_bytes
        shown = bars_if_long(total_bytes)
        if shown is Shown.BARS and not (into_file or _is_file()):
            shown = Shown.NOTHING if sys.stdout.isatty() else Shown.LINES
        self._counter = Counter(of_directory, shown, may_print=_is_line_by_line)
        self._done_bytes = 0
        self._directory: Path | None = None

    def reached(self, log: Path, position: int) -> None:
        """Show that a log is read up to a position."""
        step_bytes = self._before_bytes[log] + position - self._done_bytes
        self._done_bytes += step_bytes
        if log.parent != self._directory:
            if self._directory is not None:
                self._counter.finish(self._directory)
            self._directory = log.parent
            self._counter.begin(self._directory, "reading", self._counter.expected_bytes[self._directory])
        self._counter.advance(log.parent, step_bytes, step_bytes)

    def pause(self) -> None:
        """Remove the bars until more is read."""
        self._counter.pause()


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
