"""Lines and tables for people: styled by rich on a terminal, plain and complete text anywhere else.

Text from names, records and errors is escaped with `text.safe` before it is printed. rich receives `Text` objects,
never strings with markup. Without a terminal a table is as wide as its content, so nothing is cut.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TextIO

from kcompact.cli.output import streams, text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

PIPED_WIDTH = 100_000
"""Wider than any table, so that rich folds nothing."""
NARROWEST_FOLD = 14
"""A column of names is folded at this width before an optional column is left out."""
NARROWEST_SENTENCE = 24
"""The same for a column of sentences, which would otherwise get very high."""

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

    def line(self, content: str | Text = "") -> None:
        """Print one line. A string is escaped, a `Text` is escaped already."""
        if isinstance(content, str):
            streams.echo(text.safe(content), self.stream)
        else:
            self.show(content)

    def lines(self, message: str) -> None:
        """Print the lines of a message, whose names are escaped already."""
        for line in message.split("\n"):
            self.line(line)

    def show(self, renderable: RenderableType, *, min_width: int = 0) -> None:
        """Print an object of rich, at least `min_width` wide. The terminal breaks lines that are too long."""
        if self.is_terminal:
            with streams.errors(self.stream):
                console(self.stream, width=max(self.width, min_width)).print(renderable)
            return
        plain = io.StringIO()
        console(plain, width=PIPED_WIDTH).print(renderable)
        lines = plain.getvalue().splitlines()
        streams.echo("\n".join(line.rstrip() for line in lines), self.stream)

    def items(self, rows: Iterable[tuple[Text, Text]], *, width: int) -> None:
        """Print a line for each name and sentence. On a terminal a long sentence goes on below its beginning."""
        from rich.padding import Padding
        from rich.table import Table

        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(min_width=width, no_wrap=True)
        table.add_column(overflow="fold")
        for name, sentence in rows:
            table.add_row(name, sentence)
        if table.rows:
            self.show(Padding(table, (0, 0, 0, 2)))

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Text]],
        *,
        numbers: Iterable[str] = (),
        whole: Iterable[str] = (),
        sentences: Iterable[str] = (),
        optional: Iterable[str] = (),
    ) -> list[str]:
        """Print a table, and return the columns that it has.

        `numbers` are aligned to the right. Neither `numbers` nor `whole` columns are ever cut or folded; the other
        columns are folded, `sentences` not as narrowly as names. If the terminal is still too narrow, the `optional`
        columns are left out in their order.
        """
        right = frozenset(numbers)
        narrowest: dict[str, int | None] = dict.fromkeys(columns, NARROWEST_FOLD)
        narrowest |= dict.fromkeys(sentences, NARROWEST_SENTENCE) | dict.fromkeys((*numbers, *whole))
        shown, removable = list(columns), [name for name in optional if name in columns]

        def filled(*, folded: bool) -> Table:
            table = _table(shown, right=right, narrowest=narrowest, folded=folded)
            for row in rows:
                table.add_row(*(row[name] for name in shown))
            return table

        unlimited = console(self.stream, width=PIPED_WIDTH)
        min_width = unlimited.measure(filled(folded=True)).maximum
        while min_width > self.width and removable:
            shown.remove(removable.pop(0))
            min_width = unlimited.measure(filled(folded=True)).maximum
        self.show(filled(folded=False), min_width=min_width)
        return shown


def console(stream: Any, *, width: int | None = None) -> Console:
    """Return a console that prints text unchanged: no markup, no emoji, no highlighting."""
    from rich.console import Console

    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False, soft_wrap=False)


def _table(names: Iterable[str], *, right: frozenset[str], narrowest: Mapping[str, int | None], folded: bool) -> Table:
    """Return an empty table. `narrowest` is the width at which a column is folded if `folded`; None: it never is."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in names:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        table.add_column(
            Text(name),
            justify=justify,
            header_style="bold",
            overflow="fold",
            no_wrap=narrowest[name] is None,
            max_width=narrowest[name] if folded else None,
        )
    return table


def cell(value: object, style: str = "") -> Text:
    """Return a value for a table, escaped; None is shown as a dash."""
    from rich.text import Text

    return Text("-" if value is None else text.safe(str(value)), style=style)
