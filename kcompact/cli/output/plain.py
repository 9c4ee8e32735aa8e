"""Tables and items as plain text, for files and pipes: as wide as their content, nothing is folded.

rich prints the same lines without a terminal. But it measures and pads each cell several times, and that would take
most of the time of a command that prints thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from kcompact.readable import safe
from kcompact.views.parts import Items, Table

GAP = "  "
"""Between two columns."""


def table_lines(table: Table) -> Iterator[str]:
    """Yield the line of titles and a line for each row. Text is escaped, numbers are aligned to the right."""
    rows = [tuple(map(safe, table.columns)), *(tuple(safe(cell.text) for cell in row) for row in table.rows)]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    is_right = [name in table.numbers for name in table.columns]
    for row in rows:
        cells = map(_padded, row, widths, is_right)
        yield GAP.join(cells).rstrip()


def item_lines(items: Items) -> Iterator[str]:
    """Yield a line for each item: its name and its sentence, escaped, below the beginning of what stands above."""
    names = [safe(name.text) for name, _ in items.items]
    width = max(items.width, *map(_width, names), 0)
    for name, (_, sentence) in zip(names, items.items, strict=True):
        yield f"{GAP}{_padded(name, width, False)}{GAP}{safe(sentence)}".rstrip()


def _padded(text: str, width: int, is_right: bool) -> str:
    if is_right:
        text = text.rstrip()
    space = " " * (width - _width(text))
    return space + text if is_right else text + space


def _width(text: str) -> int:
    """Return the columns that a terminal needs for a text, so that a list is aligned there too."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
