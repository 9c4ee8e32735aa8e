"""Views as text: styled by rich on a terminal, plain and complete anywhere else.

Text from names, records and errors is escaped here. rich receives `Text` objects, never strings with markup. Without a
terminal a table is as wide as its content, so nothing is cut (`plain`).
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from kcompact import readable
from kcompact.cli.output import streams
from kcompact.cli.output.plain import item_lines, table_lines
from kcompact.plan.clean_plan import Role
from kcompact.views.parts import Cell, Heading, Items, Lines, LogScale, Part, Space, Table, Tone

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table as Grid
    from rich.text import Text

PIPED_WIDTH = 100_000
"""Wider than any table, so that rich folds nothing."""
NARROWEST_FOLD = 14
"""A column of names is folded at this width before an optional column is left out."""
NARROWEST_SENTENCE = 24
"""The same for a column of sentences, which would otherwise get very high."""

MAX_CELLS = 60
"""The cells of the bar of a log."""
ROLE_STYLES = {Role.CLEAN: "green", Role.DIRTY: "yellow", Role.UNCLEANABLE: "red", Role.ACTIVE: "blue"}
_CELLS = {Role.CLEAN: "█", Role.DIRTY: "▓", Role.UNCLEANABLE: "▒", Role.ACTIVE: "░"}
_ASCII_CELLS = {Role.CLEAN: "#", Role.DIRTY: "=", Role.UNCLEANABLE: "-", Role.ACTIVE: "."}
_STYLES = {
    Tone.GOOD: "green",
    Tone.CAUTION: "yellow",
    Tone.BAD: "bold red",
    Tone.STRONG: "bold",
    Tone.MUTED: "dim",
}

PROMPT_LINES = 2
"""The command line above a report and the prompt below."""


class Printer:
    """Prints to a stream: styled if the stream is a terminal, otherwise plain text of any width.

    `is_verbose`: nothing is folded away, however much it is.
    """

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False) -> None:
        self.stream = stream or sys.stdout
        self.is_verbose = verbose
        self.is_terminal = self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.has_unicode = "utf" in (getattr(self.stream, "encoding", None) or "").lower()

    @property
    def width(self) -> int:
        """Return the number of columns of the terminal, or `PIPED_WIDTH` without one."""
        return console(self.stream).width if self.is_terminal else PIPED_WIDTH

    @property
    def lines_to_fill(self) -> int | None:
        """Return how many lines of a report a person sees at once; None where all lines are to be printed."""
        if not self.is_terminal or self.is_verbose:
            return None
        return console(self.stream).height - PROMPT_LINES

    @property
    def space(self) -> Space:
        """Return what a person sees of a report at once."""
        return Space(lines=self.lines_to_fill, width=self.width, is_verbose=self.is_verbose)

    def line(self, content: str | Text = "") -> None:
        """Print one line. A string is escaped, a `Text` is escaped already."""
        if isinstance(content, str):
            streams.echo(readable.safe(content), self.stream)
        elif self.is_terminal:
            self._show(content)
        else:
            streams.echo(content.plain.rstrip(), self.stream)

    def lines(self, message: str) -> None:
        """Print the lines of a message, whose names are escaped already."""
        for line in message.split("\n"):
            self.line(line)

    def _show(self, renderable: RenderableType, *, min_width: int = 0) -> None:
        """Print an object of rich on a terminal, at least `min_width` wide. It breaks lines that are too long."""
        with streams.errors(self.stream):
            console(self.stream, width=max(self.width, min_width)).print(renderable)

    def parts(self, parts: Iterable[Part]) -> None:
        """Print the parts of a view, each apart from the one above it by an empty line unless it is close to it."""
        above: Part | None = None
        for part in parts:
            if above is not None and not (part.is_close or isinstance(above, Heading)):
                self.line()
            above = part
            match part:
                case Heading():
                    name = styled(part.name, _STYLES[part.tone])
                    self.line(name.append_text(styled(f"  {part.detail}", "dim")) if part.detail else name)
                case Lines():
                    for sentence in part.lines:
                        self._sentence(" " * (2 * part.is_indented) + sentence, is_broken=part.is_broken)
                case Items():
                    self._items(part)
                case Table():
                    self._table(part)
                case LogScale():
                    self._log_scale(part.runs)

    def _sentence(self, sentence: str, *, is_broken: bool) -> None:
        """Print a sentence. On a terminal a long one goes on below its beginning, with its words whole."""
        if not self.is_terminal or not is_broken or len(sentence) <= self.width:
            self.line(sentence)
            return
        from rich.padding import Padding

        words = sentence.lstrip()
        self._show(Padding(styled(words), (0, 0, 0, len(sentence) - len(words))))

    def _items(self, part: Items) -> None:
        if not self.is_terminal:
            self._plain(item_lines(part))
            return
        from rich.padding import Padding
        from rich.table import Table as Grid

        grid = Grid.grid(padding=(0, 2, 0, 0))
        grid.add_column(min_width=part.width, no_wrap=True)
        grid.add_column(overflow="fold")
        for name, sentence in part.items:
            grid.add_row(_cell(name), styled(sentence))
        if grid.rows:
            self._show(Padding(grid, (0, 0, 0, 2)))

    def _table(self, table: Table) -> None:
        """Print a table, without the optional columns that a narrow terminal has no space for."""
        if not self.is_terminal:
            self._plain(table_lines(table))
            return
        unlimited = console(self.stream, width=PIPED_WIDTH)
        removable = [name for name in table.optional if name in table.columns]
        shown = table
        min_width = unlimited.measure(_grid(shown, is_folded=True)).maximum
        while min_width > self.width and removable:
            shown = shown.without(removable.pop(0))
            min_width = unlimited.measure(_grid(shown, is_folded=True)).maximum
        self._show(_grid(shown, is_folded=False), min_width=min_width)
        if table.below and table.below not in shown.columns:
            self.line()
            place = table.columns.index(table.below)
            for cells in table.rows:
                if cells[place].text:
                    self.line(_cell(cells[0]).append(": ").append_text(_cell(cells[place])))

    def _plain(self, lines: Iterable[str]) -> None:
        text = "\n".join(lines)
        if text:
            streams.echo(text, self.stream)

    def _log_scale(self, runs: Sequence[tuple[Role, int]]) -> None:
        """Print the bar of a log, and what its cells mean. A terminal narrower than the bar gets a shorter bar."""
        from rich.text import Text

        glyphs = _CELLS if self.has_unicode else _ASCII_CELLS
        bar, legend, sizes = Text("  ["), Text(), Counter[str]()
        for role, length in scaled(runs, min(MAX_CELLS, self.width - len("  []"))):
            bar.append(glyphs[role] * length, style=ROLE_STYLES[role])
        for role, size_bytes in runs:
            sizes[role] += size_bytes
        for role in (role for role in glyphs if role in sizes):
            legend.append("  ").append(glyphs[role], style=ROLE_STYLES[role])
            legend.append(f" {role} {readable.size(sizes[role])}")
        self.line(bar.append("]"))
        self.line(legend)


def console(stream: Any, *, width: int | None = None) -> Console:
    """Return a console that prints text unchanged: no markup, no emoji, no highlighting."""
    from rich.console import Console

    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def _grid(table: Table, *, is_folded: bool) -> Grid:
    """Return a table as rich has it. If `is_folded`, its names and sentences are as narrow as they can be."""
    from rich.table import Table as Grid

    grid = Grid(box=None, pad_edge=False, padding=(0, 1))
    for name in table.columns:
        is_whole = name in table.numbers or name in table.whole
        narrowest = NARROWEST_SENTENCE if name in table.sentences else NARROWEST_FOLD
        grid.add_column(
            styled(name),
            justify="right" if name in table.numbers else "left",
            header_style="bold",
            overflow="fold",
            no_wrap=is_whole,
            max_width=narrowest if is_folded and not is_whole else None,
        )
    for cells in table.rows:
        grid.add_row(*map(_cell, cells))
    return grid


def scaled(runs: Sequence[tuple[Role, int]], cells: int) -> list[tuple[Role, int]]:
    """Return the runs in cells that add up to `cells`. A run of one byte or more has at least one cell."""
    runs = [run for run in runs if run[1]]
    total_bytes = sum(size_bytes for _, size_bytes in runs)
    if not total_bytes:
        return []
    lengths = [max(1, round(size_bytes * cells / total_bytes)) for _, size_bytes in runs]
    while sum(lengths) != cells and len(runs) <= cells:
        widest = max(range(len(lengths)), key=lambda number: lengths[number])
        lengths[widest] += 1 if sum(lengths) < cells else -1
    return [(role, length) for (role, _), length in zip(runs, lengths, strict=True)]


def styled(text: str, style: str = "") -> Text:
    """Return a text as rich has it, escaped."""
    from rich.text import Text

    return Text(readable.safe(text), style=style)


def _cell(cell: Cell) -> Text:
    return styled(cell.text, ROLE_STYLES[cell.role] if cell.role else _STYLES[cell.tone] if cell.tone else "")
