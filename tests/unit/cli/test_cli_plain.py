"""Tables and items without a terminal: the lines that rich prints, which is the definition."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as Grid

from kcompact.cli.output.plain import item_lines, table_lines
from kcompact.cli.output.printer import PIPED_WIDTH, _grid, console, styled
from kcompact.views.parts import Cell, Items, Table

TEXTS = st.sampled_from(
    ["", "a", "orders-0", "19.5 KiB", " x", "x ", "漢字", "e\u0301", "\u200b", "🙂", "tab\t", "a b  c"]
)
NAMES = st.lists(TEXTS.filter(bool), min_size=1, max_size=4, unique=True)


def by_rich(renderable: RenderableType) -> list[str]:
    plain = io.StringIO()
    console(plain, width=PIPED_WIDTH).print(renderable)
    return [line.rstrip() for line in plain.getvalue().splitlines()]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(NAMES)
    row = st.tuples(*(TEXTS.map(lambda text: Cell(text=text)) for _ in names))
    numbers = draw(st.sets(st.sampled_from(names)))
    return Table(columns=tuple(names), rows=tuple(draw(st.lists(row, max_size=4))), numbers=numbers)


@given(tables())
def test_a_table_has_the_lines_of_rich(table: Table) -> None:
    assert list(table_lines(table)) == by_rich(_grid(table, is_folded=False))


@given(st.lists(st.tuples(TEXTS.map(lambda text: Cell(text=text)), TEXTS), min_size=1, max_size=4), st.integers(0, 9))
def test_items_have_the_lines_of_rich(items: list[tuple[Cell, str]], width: int) -> None:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(min_width=width, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, sentence in items:
        grid.add_row(styled(name.text), styled(sentence))
    assert list(item_lines(Items(items=tuple(items), width=width))) == by_rich(Padding(grid, (0, 0, 0, 2)))


def test_nothing_is_printed_of_no_items() -> None:
    assert list(item_lines(Items(items=(), width=8))) == []


def test_a_line_can_be_of_any_width() -> None:
    long = Cell(text="x" * 900)
    (title, line) = table_lines(Table(columns=("a", "b"), rows=((long, long),)))
    assert len(line) == 2 * 900 + 2
    assert title.split() == ["a", "b"]
