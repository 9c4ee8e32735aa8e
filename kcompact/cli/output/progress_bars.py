"""Bars on a terminal: one for the round, and one below it for each partition that is being cleaned."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from kcompact import readable
from kcompact.cli.output.printer import console
from kcompact.host.process_end import undone_at_abrupt_end

if TYPE_CHECKING:
    from rich.progress import TaskID

WIDTH_WITH_BAR = 70
WIDTH_WITH_RATE = 50
"""A narrower terminal has no space for the bar, or for the rate."""


class Bars:
    """The bars of a round. Not safe for several threads: the caller holds a lock."""

    def __init__(self, *, partitions: int, total_bytes: int) -> None:
        self._partitions = partitions
        shown = console(sys.stderr)
        self._progress = Progress(*_columns(shown), console=shown, transient=True, expand=True)
        self._round = self._progress.add_task(self._label(0), total=total_bytes)
        self._tasks: dict[Path, TaskID] = {}
        # The bar of the round, and a free line: the terminal scrolls if the last line is used.
        self._at_most = max(1, shown.height - 2)
        self._stack = ExitStack()
        if shown.is_terminal:
            self._stack.enter_context(undone_at_abrupt_end(_show_cursor))
        self._progress.start()

    def begin(self, directory: Path, label: str, total_bytes: int) -> None:
        """Show a stage of a partition instead of its earlier one, if there is a line for it."""
        earlier = self._tasks.pop(directory, None)
        if earlier is not None:
            self._progress.remove_task(earlier)
        if len(self._tasks) < self._at_most:
            self._tasks[directory] = self._progress.add_task(label, total=total_bytes)

    def advance(self, directory: Path, stage_bytes: int, round_bytes: int) -> None:
        """Move the bar of a partition forward, and the bar of the round."""
        if directory in self._tasks:
            self._progress.advance(self._tasks[directory], stage_bytes)
        self._progress.advance(self._round, round_bytes)

    def finish(self, directory: Path, rest_bytes: int, *, done_partitions: int) -> None:
        """Remove the bar of a partition."""
        if directory in self._tasks:
            self._progress.remove_task(self._tasks.pop(directory))
        self._progress.update(self._round, advance=rest_bytes, description=self._label(done_partitions))

    def end(self) -> None:
        """Remove all bars."""
        self._progress.stop()
        self._stack.close()

    def _label(self, done: int) -> str:
        return f"{done:,} of {readable.counted(self._partitions, 'partition')}"


def _show_cursor() -> None:
    """Show the cursor, which bars hide, below the bars. Ctrl-C can end the process without `Bars.end`."""
    with suppress(OSError):
        os.write(2, b"\x1b[?25h")


def _columns(shown: Console) -> list[ProgressColumn]:
    """Return the columns that a terminal of this width has space for. Only the label is ever cut."""
    label = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False, table_column=label)]
    if shown.width >= WIDTH_WITH_BAR:
        columns.append(BarColumn(bar_width=shown.width // 4))
    columns.append(_SizeColumn(table_column=Column(no_wrap=True, justify="right")))
    if shown.width >= WIDTH_WITH_RATE:
        columns.append(_RateColumn(table_column=Column(no_wrap=True, justify="right")))
    return [*columns, TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True))]


class _SizeColumn(ProgressColumn):
    """The bytes that are done, and all bytes."""

    def render(self, task: Task) -> Text:
        return Text(f"{readable.size(int(task.completed))} of {readable.size(int(task.total or 0))}")


class _RateColumn(ProgressColumn):
    """Bytes per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{readable.size(int(task.speed))}/s" if task.speed else "")
