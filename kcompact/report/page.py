"""The page as HTML: one file with its style sheet and its figures, without scripts, that loads nothing.

jinja2 escapes every text. Only `drawing` makes markup. The content security policy of the page forbids scripts and
every request, in case that a text got around that.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from kcompact import readable
from kcompact.report.drawing import Figure
from kcompact.report.file import MARK
from kcompact.values import dataclass
from kcompact.views.parts import Cell, Items, Lines, Part, Section, Table, lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Illustrated:
    """A section with a figure, which stands beside the table with the caption `table_caption`."""

    section: Section
    figure: Figure
    table_caption: str = ""


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
    kafka_releases: str
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
    figure_table: Table | None = None,
    tables: tuple[Table, ...] = (),
    remarks: tuple[str, ...] = (),
) -> Section | Illustrated:
    """Return a section that only a page has."""
    above = [lines(*text)] if text else []
    below = [lines(*remarks, is_close=True)] if remarks else []
    section = Section(title=title, parts=(*above, *([figure_table] if figure_table else []), *tables, *below))
    if figure is None:
        return section
    return Illustrated(section=section, figure=figure, table_caption=figure_table.caption if figure_table else "")


# As HTML


def rendered(page: PageView) -> str:
    """Return the page as HTML."""
    environment = Environment(
        autoescape=True,
        loader=FunctionLoader(_resource),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": readable.shown, "rows": _rows, "illustrated": _with_figure}
    environment.tests |= {
        "lines": lambda part: isinstance(part, Lines),
        "items": lambda part: isinstance(part, Items),
        "table": lambda part: isinstance(part, Table),
    }
    template = environment.get_template("page.html")
    return template.render(page=page, mark=Markup(MARK), style=Markup(_resource("page.css")))


def _resource(name: str) -> str:
    return files("kcompact.report").joinpath(name).read_text(encoding="utf-8")


def _rows(table: Table) -> Sequence[tuple[Cell, ...]]:
    """Return the rows that a page shows: of a long table the first, the last, and how many are between them."""
    if len(table.rows) <= table.most_rows:
        return table.rows
    half = table.most_rows // 2
    between = len(table.rows) - 2 * half
    middle = (Cell(text=f"… {between:,} more …"), *(Cell(text="") for _ in table.columns[1:]))
    return (*table.rows[:half], middle, *table.rows[-half:])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """The parts of a section above and below the figure, and its table."""

    section: Section
    above: Sequence[Part]
    figure: Figure | None = None
    table: Table | None = None
    below: Sequence[Part] = ()


def _with_figure(section: Section | Illustrated) -> _Placed:
    """Return a section with its figure in its place: beside its table, or else below the first sentences."""
    if isinstance(section, Section):
        return _Placed(section=section, above=section.parts)
    parts = section.section.parts
    tables = {part.caption: number for number, part in enumerate(parts) if isinstance(part, Table)}
    place = tables.get(section.table_caption, 1)
    figure_table = parts[place] if section.table_caption in tables else None
    assert figure_table is None or isinstance(figure_table, Table)
    return _Placed(
        section=section.section,
        above=parts[:place],
        figure=section.figure,
        table=figure_table,
        below=parts[place + (figure_table is not None) :],
    )
