"""Prints the directories that are left out of log directories: one line about all, or with --verbose a table."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.cli.output.printer import Printer, cell
from kcompact.plan.discovery import LeftOut, LeftOutKind
from kcompact.readable import some_of

_WHY = {
    LeftOutKind.DELETE: "a broker deletes it",
    LeftOutKind.FUTURE: "moving from another log directory",
    LeftOutKind.STRAY: "not assigned to the broker",
    LeftOutKind.REMOTE_INDEX_CACHE: "Kafka's cache for tiered storage",
    LeftOutKind.UNKNOWN: "no name of Kafka's; may keep a broker from starting",
}


def show_left_out(left_out: Sequence[LeftOut], printer: Printer) -> None:
    """Print how many directories are left out, their size, and why."""
    if not left_out:
        return
    printer.line()
    if printer.is_verbose:
        _show_table(left_out, printer)
    else:
        printer.line(cell(_line(left_out)))


def lines_of_left_out(left_out: Sequence[LeftOut], printer: Printer) -> int:
    """Return how many lines `show_left_out` needs on a terminal, if it prints one line about all."""
    return len(_line(left_out)) // printer.width + 3 if left_out else 0


def _line(left_out: Sequence[LeftOut]) -> str:
    kinds = []
    for kind in LeftOutKind:
        names = [each.name for each in left_out if each.kind is kind]
        if names:
            kinds.append(f"{some_of(names)} ({'' if kind in names else f'{kind}: '}{_WHY[kind]})")
    sizes = [each.size_bytes for each in left_out]
    total = readable.size(sum(size_bytes or 0 for size_bytes in sizes))
    at_least = "at least " if None in sizes else ""
    counted = "1 directory" if len(left_out) == 1 else f"{len(left_out):,} directories"
    return f"left out: {counted}, {at_least}{total}: {'; '.join(kinds)}"


def _show_table(left_out: Sequence[LeftOut], printer: Printer) -> None:
    columns = ("left out", "kind", "size", "why")
    rows = []
    for each in left_out:
        size = None if each.size_bytes is None else readable.size(each.size_bytes)
        cells = (cell(each.directory.name), cell(each.kind), cell(size), cell(_WHY[each.kind]))
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(columns, rows, numbers=("size",), sentences=("why",), optional=("why",))
