"""Progress on standard error: bars with rate and time left on a terminal, a line for each stage elsewhere."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.clean.executor import Progress
from kcompact.cleaner.round import RoundProgress
from kcompact.cli.output import streams, text
from kcompact.cli.signals import StopRequest

if TYPE_CHECKING:
    from rich import progress as rich_progress
    from rich.progress import TaskID

_VERBS = {"scan": "reading", "write": "writing"}


class ProgressBar(RoundProgress):
    """The progress of all partitions, and the request to stop them. Safe for several threads.

    A failure to print never fails a cleaning.
    """

    def __init__(self, request: StopRequest, *, quiet: bool) -> None:
        self.request = request
        self._is_terminal = sys.stderr.isatty()
        self._quiet = quiet and not self._is_terminal
        self._progress: rich_progress.Progress | None = None
        self._lock = threading.Lock()
        self._printed: set[str] = set()

    def of(self, directory: Path) -> PartitionProgress:
        """Return the `Progress` of one partition."""
        return PartitionProgress(self, directory)

    def begin(self, label: str, total_bytes: int, earlier: TaskID | None) -> TaskID | None:
        """Show a stage instead of the partition's earlier one. Returns None where there is no bar."""
        with suppress(OSError), self._lock:
            if self._is_terminal:
                bars = self._bars()
                if earlier is not None:
                    bars.remove_task(earlier)
                return bars.add_task(label, total=total_bytes)
            if not self._quiet:
                streams.tell(f"{label} {readable.size(total_bytes)}")
        return None

    def tell(self, message: str) -> None:
        """Print a message on standard error, unless the output is only JSON."""
        with suppress(OSError), self._lock:
            if not self._quiet:
                streams.tell(message)

    def note(self, message: str) -> None:
        """Print a remark on standard error."""
        streams.tell(f"note: {message}")

    def tell_compiling(self) -> None:
        """Print, once in a run, that the kernels are being compiled."""
        if self._is_first("compiling"):
            self.tell("compiling for this processor: this takes about ten seconds and happens once")

    def tell_without_kernels(self, problem: str) -> None:
        """Print, once in a run, why the kernels are not used, even if no progress is shown."""
        if self._is_first("without kernels"):
            with suppress(OSError), self._lock:
                streams.tell(without_kernels(problem))

    def _is_first(self, subject: str) -> bool:
        """Return whether this is the first call about a subject in this run."""
        with self._lock:
            is_first = subject not in self._printed
            self._printed.add(subject)
        return is_first

    def advance(self, task: TaskID | None, done_bytes: int) -> None:
        """Move a bar forward."""
        if self._progress is not None and task is not None:
            self._progress.advance(task, done_bytes)

    def finish(self, task: TaskID | None) -> None:
        """Remove the bar of a partition."""
        with suppress(OSError), self._lock:
            if self._progress is not None and task is not None:
                self._progress.remove_task(task)

    def end(self) -> None:
        """Remove all bars."""
        shown, self._progress = self._progress, None
        if shown is not None:
            with suppress(OSError):
                shown.stop()

    def _bars(self) -> rich_progress.Progress:
        from rich import progress as rich_progress
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from kcompact.cli.output.printer import console

        if self._progress is None:
            self._progress = rich_progress.Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=console(sys.stderr),
                transient=True,
            )
            self._progress.start()
        return self._progress


def without_kernels(problem: str) -> str:
    """Return the message that the run is slow, because the kernels are not used."""
    return f"working without compiled code: the same result, but many times slower: {text.safe(problem)}"


class PartitionProgress(Progress):
    """The `Progress` of one partition."""

    def __init__(self, progress: ProgressBar, directory: Path) -> None:
        self._progress = progress
        self._directory = directory
        self._task: TaskID | None = None

    def begin(self, stage: str, total_bytes: int) -> None:
        label = f"{text.safe(self._directory.name)}: {_VERBS.get(stage, stage)}"
        self._task = self._progress.begin(label, total_bytes, self._task)

    def compiling(self) -> None:
        self._progress.tell_compiling()

    def without_kernels(self, problem: str) -> None:
        self._progress.tell_without_kernels(problem)

    def advance(self, done_bytes: int) -> None:
        self._progress.advance(self._task, done_bytes)

    def check(self) -> None:
        self._progress.request.check(self._directory)

    def end(self) -> None:
        """Remove the bar."""
        self._progress.finish(self._task)
