"""A log drawn to scale: a bar with the clean, dirty, uncleanable and active parts, and its legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.output.printer import Printer, cell
from kcompact.plan.clean_plan import CleanPlan, Role

if TYPE_CHECKING:
    from rich.text import Text

MAX_CELLS = 60
_FRAME = "  []"
"""The indentation and the brackets around the cells."""

ROLE_STYLES = {Role.CLEAN: "green", Role.DIRTY: "yellow", Role.UNCLEANABLE: "red", Role.ACTIVE: "blue"}
_CELLS = {Role.CLEAN: "█", Role.DIRTY: "▓", Role.UNCLEANABLE: "▒", Role.ACTIVE: "░"}
_ASCII_CELLS = {Role.CLEAN: "#", Role.DIRTY: "=", Role.UNCLEANABLE: "-", Role.ACTIVE: "."}


def show_bar(plan: CleanPlan, printer: Printer) -> None:
    """Print the bar and its legend. A terminal narrower than the bar gets a shorter bar."""
    cells = min(MAX_CELLS, printer.width - len(_FRAME))
    printer.line(cell("  ").append_text(_bar(plan, printer, cells=cells)))
    printer.line(cell("  ").append_text(_legend(plan, printer)))


def _bar(plan: CleanPlan, printer: Printer, *, cells: int) -> Text:
    """Return the bar: each role as long as its share of the bytes, at least one cell if it has any."""
    from rich.text import Text

    glyphs = _CELLS if printer.has_unicode else _ASCII_CELLS
    drawn = Text("[")
    for role, length in _scaled(_extents(plan), cells):
        drawn.append(glyphs[role] * length, style=ROLE_STYLES[role])
    return drawn.append("]")


def _legend(plan: CleanPlan, printer: Printer) -> Text:
    """Return the meaning of the bar's cells, with the size of each role."""
    from rich.text import Text

    glyphs = _CELLS if printer.has_unicode else _ASCII_CELLS
    sizes: dict[Role, int] = {}
    for role, size_bytes in _extents(plan):
        sizes[role] = sizes.get(role, 0) + size_bytes
    legend = Text()
    for role in Role:
        if role in sizes:
            legend.append("  " if legend else "")
            legend.append(glyphs[role], style=ROLE_STYLES[role])
            legend.append(f" {role} {readable.size(sizes[role])}")
    return legend


def _extents(plan: CleanPlan) -> list[tuple[Role, int]]:
    """Return the runs of equal roles along the log with their bytes, in offset order."""
    runs: list[tuple[Role, int]] = []
    for segment in plan.log.segments:
        role = plan.role_of(segment)
        if runs and runs[-1][0] is role:
            runs[-1] = (role, runs[-1][1] + segment.size_bytes)
        else:
            runs.append((role, segment.size_bytes))
    return runs


def _scaled(runs: Sequence[tuple[Role, int]], cells: int) -> list[tuple[Role, int]]:
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
