"""The parts of a page as values: sections with figures and tables. Their texts are plain; `page` escapes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcompact import readable

if TYPE_CHECKING:
    from kcompact.report.drawing import Figure

NOTHING = "-"
MOST_ROWS = 40
"""Longer tables show their first and their last rows, and how many are between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell of a table. `swatch` is the name of a role, whose colour and pattern stand before the text.

    `mark` colours the text: `yes`, `some` or `no`. `share` draws a bar of this part of the cell's width. `anchor` is a
    place on the page that the text links to.
    """

    text: str
    swatch: str = ""
    mark: str = ""
    share: float | None = None
    anchor: str = ""
    is_code: bool = False


Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table. `numbers` are the columns that are aligned to the right, `words` those whose lines may be broken."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    numbers: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section: what it shows in words, a figure, tables beside or below it, and remarks."""

    title: str
    text: tuple[str, ...] = ()
    figure: Figure | None = None
    beside: Table | None = None
    tables: tuple[Table, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A number at the head of a partition: what it is, the number, and a remark."""

    name: str
    value: str
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition on the page. `tone` is `yes`, `no` or `bad`."""

    anchor: str
    name: str
    directory: str
    tone: str
    verdict: str
    reason: str
    explanation: str
    values: tuple[Value, ...] = ()
    problems: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """A page. `summary` is about several partitions, `commands` are those to run next."""

    title: str
    now: str
    version: str
    kafka_version: str
    notes: tuple[str, ...] = ()
    summary: tuple[Section, ...] = ()
    values: tuple[Value, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    commands: tuple[str, ...] = ()


def cells(*texts: object) -> Row:
    """Return a row of cells; a text, a number with separators, or a cell as it is. None is a dash."""
    return tuple(each if isinstance(each, Cell) else Cell(text=_text(each)) for each in texts)


def _text(value: object) -> str:
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) else readable.shown(value)


def shortened(rows: Sequence[Row], *, most: int = MOST_ROWS) -> tuple[Row, ...]:
    """Return the rows of a table, the middle ones of more than `most` only counted."""
    if len(rows) <= most:
        return tuple(rows)
    half = most // 2
    between = len(rows) - 2 * half
    middle = (Cell(text=f"… {between:,} more …"), *(Cell(text="") for _ in rows[0][1:]))
    return (*rows[:half], middle, *rows[-half:])


def percent(part: float, whole: float) -> str:
    """Return a share: `12.5 %`, a dash of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else NOTHING
