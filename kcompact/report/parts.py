"""A page as a value: its head, its partitions and their sections. The texts are plain; `page` escapes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcompact.views.parts import Section, Table, lines

if TYPE_CHECKING:
    from kcompact.report.drawing import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Illustrated:
    """A section with a figure, which stands beside the table with the caption `beside`."""

    section: Section
    figure: Figure
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFigure:
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
    values: tuple[KeyFigure, ...] = ()
    problems: tuple[str, ...] = ()
    sections: tuple[Section | Illustrated, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """A page. `summary` is about several partitions, `commands` are those to run next."""

    title: str
    now: str
    version: str
    kafka_version: str
    notes: tuple[str, ...] = ()
    summary: tuple[Section | Illustrated, ...] = ()
    values: tuple[KeyFigure, ...] = ()
    partitions: tuple[PartitionView, ...] = ()
    commands: tuple[str, ...] = ()


def page_section(
    *,
    title: str,
    text: tuple[str, ...] = (),
    figure: Figure | None = None,
    beside: Table | None = None,
    tables: tuple[Table, ...] = (),
    remarks: tuple[str, ...] = (),
) -> Section | Illustrated:
    """Return a section that only a page has."""
    above = [lines(*text)] if text else []
    below = [lines(*remarks, is_close=True)] if remarks else []
    section = Section(title=title, parts=(*above, *([beside] if beside else []), *tables, *below))
    if figure is None:
        return section
    return Illustrated(section=section, figure=figure, beside=beside.caption if beside else "")
