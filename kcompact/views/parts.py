"""What a view consists of: lines, items and tables, in sections. Values, which a terminal and a page show alike.

Text stands here as it is. Each renderer escapes it: `cli.output.printer` for a terminal or a pipe, `report.page` for a
page. A count is a number, which both show with separators; an offset is text, which one wants to copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.plan.clean_plan import Role

NOTHING = "-"
"""What is shown of a value that is unknown, or that does not apply."""


class Tone(StrEnum):
    """What a text says to a reader in a hurry: a style on a terminal, a colour on a page."""

    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    STRONG = "strong"
    MUTED = "muted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table, or the name of an item.

    `role` gives the cell the colour of a part of the log, on a page with its pattern. `share` is a part of the whole,
    which a page draws as a bar. `anchor` is a place on a page that the text links to. `is_code`: an identifier.
    """

    text: str
    tone: Tone | None = None
    role: Role | None = None
    share: float | None = None
    anchor: str = ""
    is_code: bool = False


def cell(value: object) -> Cell:
    """Return a value as a cell: a text, a count with separators, a dash for None, or a cell as it is."""
    if isinstance(value, Cell):
        return value
    if value is None:
        return Cell(text=NOTHING)
    return Cell(text=f"{value:,}" if isinstance(value, int) else str(value))


def offset(value: int | None) -> str | None:
    """Return an offset or another identifying number for a table, without separators."""
    return None if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """The name of a partition, and its path or another detail. What follows is close to it."""

    name: str
    detail: str = ""
    tone: Tone = Tone.STRONG
    is_close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Sentences, each on a line of its own. `is_indented`: below the name of a partition.

    `is_broken`: a terminal breaks long lines between words.
    """

    lines: tuple[str, ...]
    is_close: bool = False
    is_indented: bool = True
    is_broken: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Names with one sentence each, `width` characters wide. An empty name continues the item above."""

    items: tuple[tuple[Cell, str], ...]
    width: int
    caption: str = ""
    is_close: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. `numbers` are aligned to the right; `sentences` have lines that can be broken.

    A narrow terminal folds names and sentences, never `numbers` and columns that are `whole`. If it is still too
    narrow, it leaves out the `optional` columns in their order. `below` is a column that it then shows below the table.
    The caption stands only on a page, which shows the first and the last rows of more than `most_rows`.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    numbers: Collection[str] = ()
    whole: Collection[str] = ()
    sentences: Collection[str] = ()
    optional: Sequence[str] = ()
    below: str = ""
    most_rows: int = 40
    is_close: bool = False

    def without(self, *names: str) -> Table:
        """Return the table without some of its columns."""
        kept = [number for number, name in enumerate(self.columns) if name not in names]
        rows = tuple(tuple(row[number] for number in kept) for row in self.rows)
        return replace(
            self,
            columns=tuple(self.columns[number] for number in kept),
            rows=rows,
            optional=[name for name in self.optional if name not in names],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogScale:
    """A log to scale: its parts in offset order with their bytes. A terminal draws a bar; a page has a figure."""

    runs: tuple[tuple[Role, int], ...]
    is_close: bool = True


Part = Heading | Lines | Items | Table | LogScale
"""A part is separated by an empty line from the part above it, unless `is_close`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """The parts that answer one question. A page shows the title."""

    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """What a reader sees at once. `lines` is None where all is to be shown; `is_verbose`: nothing is folded away."""

    lines: int | None
    width: int
    is_verbose: bool = False


def lines(*texts: str, is_close: bool = False, is_indented: bool = True) -> Lines:
    """Return sentences, each on a line of its own."""
    return Lines(lines=texts, is_close=is_close, is_indented=is_indented)


def row(*values: object) -> tuple[Cell, ...]:
    """Return the cells of a row."""
    return tuple(map(cell, values))
