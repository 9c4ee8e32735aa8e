"""Progress on standard error: bars with rate and time left on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.clean.executor import Progress
from kcompact.cleaner.outcome import PartitionOutcome
from kcompact.cleaner.round import RoundProgress
from kcompact.cli.output import streams
from kcompact.cli.signals import StopRequest
from kcompact.notes import Note

if TYPE_CHECKING:
    from kcompact.cli.output.progress_bars import Bars

LINE_EVERY_S = 10.0
"""The time between two lines where there are no bars."""

_VERBS = {"scan": "reading", "count": "counting", "write": "rewriting"}


class ProgressBar(RoundProgress):
    """The progress of all partitions, and the request to stop them. Safe for several threads.

    A partition is read once to find the newest records and once more to rewrite it; both count. With `only_bars`
    nothing is printed off a terminal. A failure to print never fails a cleaning.
    """

    def __init__(
        self, request: StopRequest, outcomes: Sequence[PartitionOutcome], *, is_quiet: bool, only_bars: bool
    ) -> None:
        self.request = request
        self._expected_bytes = {each.directory: _work_of(each) for each in outcomes if each.is_eligible}
        self._total_bytes = sum(self._expected_bytes.values())
        self._done_bytes = 0
        self._done_partitions = 0
        self._has_bars = sys.stderr.isatty() and not is_quiet
        self._has_lines = not (self._has_bars or is_quiet or only_bars)
        self._bars: Bars | None = None
        self._lock = threading.Lock()
        self._printed: set[str] = set()
        self._started = self._last_line = time.monotonic()

    def of(self, directory: Path) -> PartitionProgress:
        """Return the `Progress` of one partition."""
        return PartitionProgress(self, directory, self._expected_bytes.get(directory, 0))

    def begin(self, directory: Path, stage: str, total_bytes: int) -> None:
        """Show the bar of a stage instead of the partition's earlier one."""
        if not self._has_bars:
            return
        with suppress(OSError), self._lock:
            if self._bars is None:
                from kcompact.cli.output.progress_bars import Bars

                self._bars = Bars(partitions=len(self._expected_bytes), total_bytes=self._total_bytes)
            self._bars.begin(directory, f"{readable.safe(directory.name)} {_VERBS.get(stage, stage)}", total_bytes)

    def advance(self, directory: Path, stage_bytes: int, round_bytes: int) -> None:
        """Move the bar of a partition forward, and the bar of the round."""
        with suppress(OSError), self._lock:
            self._done_bytes += round_bytes
            if self._bars is not None:
                self._bars.advance(directory, stage_bytes, round_bytes)
            self._print_line_now_and_then()

    def finish(self, directory: Path, rest_bytes: int) -> None:
        """Remove the bar of a partition. `rest_bytes` of its work were not necessary."""
        with suppress(OSError), self._lock:
            self._done_bytes += rest_bytes
            self._done_partitions += directory in self._expected_bytes
            if self._bars is not None:
                self._bars.finish(directory, rest_bytes, done_partitions=self._done_partitions)
            self._print_line_now_and_then()

    def _print_line_now_and_then(self) -> None:
        now = time.monotonic()
        if self._has_lines and now - self._last_line >= LINE_EVERY_S:
            self._last_line = now
            streams.tell(self._line(now - self._started))

    def _line(self, elapsed_s: float) -> str:
        """Return the progress of the round with rate and time left."""
        rate = self._done_bytes / elapsed_s
        left = f", about {(self._total_bytes - self._done_bytes) / rate:,.0f} seconds left" if rate else ""
        return (
            f"{self._done_partitions:,} of {readable.counted(len(self._expected_bytes), 'partition')}, "
            f"{readable.size(self._done_bytes)} of {readable.size(self._total_bytes)} read, "
            f"{readable.size(round(rate))}/s{left}"
        )

    def tell(self, message: str) -> None:
        """Print a message on standard error, where progress is shown."""
        with suppress(OSError), self._lock:
            if self._has_bars or self._has_lines:
                streams.tell(message)

    def note(self, note: Note) -> None:
        """Print a remark on standard error."""
        streams.tell(f"note: {note}")

    def end(self) -> None:
        """Remove all bars."""
        bars, self._bars = self._bars, None
        if bars is not None:
            with suppress(OSError):
                bars.end()


def _work_of(outcome: PartitionOutcome) -> int:
    """Return how many bytes a cleaning reads: the dirty section for the keys, then all segments to be rewritten."""
    plan = outcome.plan
    return plan.cleanable_bytes + sum(segment.size_bytes for segment in plan.segments) if plan else 0


class PartitionProgress(Progress):
    """The `Progress` of one partition, which is expected to process `expected_bytes`."""

    def __init__(self, progress: ProgressBar, directory: Path, expected_bytes: int) -> None:
        self._progress = progress
        self._directory = directory
        self._left_bytes = expected_bytes

    def begin(self, stage: str, total_bytes: int) -> None:
        self._progress.begin(self._directory, stage, total_bytes)

    def advance(self, done_bytes: int) -> None:
        # A stage that is repeated, and a section that is read twice, must not count as more than all of the work.
        counted_bytes = min(done_bytes, self._left_bytes)
        self._left_bytes -= counted_bytes
        self._progress.advance(self._directory, done_bytes, counted_bytes)

    def check(self) -> None:
        self._progress.request.check(self._directory)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.finish(self._directory, self._left_bytes)
