"""Progress on standard error: a bar with rate and time left on a terminal, a line per stage elsewhere."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli import streams, text
from kcompact.cli.signals import StopRequest
from kcompact.stages import Watch

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_VERBS = {"scan": "reading", "write": "writing"}


class ProgressWatch(Watch):
    """The `Watch` of the command line: shows what is going on and passes requests to stop on."""

    def __init__(self, request: StopRequest, *, quiet: bool) -> None:
        self._request = request
        self._is_terminal = sys.stderr.isatty()
        self._quiet = quiet and not self._is_terminal
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self.partition = Path()

    def begin(self, stage: str, total_bytes: int) -> None:
        # That standard error is full or gone must not fail a cleaning.
        with suppress(OSError):
            self._begin(stage, total_bytes)

    def _begin(self, stage: str, total_bytes: int) -> None:
        label = f"{text.safe(self.partition.name)}: {_VERBS.get(stage, stage)}"
        if self._is_terminal:
            self._show(label, total_bytes)
        elif not self._quiet:
            streams.tell(f"{label} {text.size(total_bytes)}")

    def advance(self, done_bytes: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task, done_bytes)

    def check(self) -> None:
        self._request.check(self.partition)

    def end(self) -> None:
        """Take the bar away, for other output or for good."""
        shown, self._progress, self._task = self._progress, None, None
        if shown is not None:
            with suppress(OSError):
                shown.stop()

    def _show(self, label: str, total_bytes: int) -> None:
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        from kcompact.cli.render import console

        self.end()
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console(sys.stderr),
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task(label, total=total_bytes)
