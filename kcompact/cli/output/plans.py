"""Prints the report of `plan`: a table of verdicts, the details of few partitions, the totals and the next command.

On a terminal the report fits on one screen: of many partitions those that are to be cleaned are listed, as far as
there is space, and the others are counted by reason. With --verbose, and without a terminal, every partition has a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.cli.output.explanations import amount_of
from kcompact.cli.output.left_out import lines_of_left_out, show_left_out
from kcompact.cli.output.lists import topics_of, unlocked
from kcompact.cli.output.plan_details import has_details, lines_of_details, show_details
from kcompact.cli.output.printer import Printer, cell
from kcompact.notes import Note, NoteCode
from kcompact.plan.discovery import LeftOut
from kcompact.plan.notes import hints
from kcompact.plan.totals import PlanTotals, deleted_by_retention, not_to_clean, totals_of
from kcompact.plan.walk import PlannedPartition
from kcompact.readable import some_of

FEW = 3
"""So many partitions are always shown with their details."""
FEWEST_ROWS = 5
"""The rows for partitions to be cleaned, however low the terminal is."""
MOST_NOTES = 5
"""The notes that are printed on a terminal without --verbose."""
LINES_OF_TOTALS = 7
"""The lines of the totals and of the next command, with the empty lines before them."""
LINES_OF_HINT = 2
VERDICT_COLUMNS = ("partition", "size", "clean", "dirty", "ratio", "clean it", "reason", "why")


def show_plans(
    entries: Sequence[PlannedPartition],
    printer: Printer,
    *,
    left_out: Sequence[LeftOut] = (),
    applies_retention: bool = False,
) -> None:
    """Print the plans, what is left out beside them, and the totals. `applies_retention`: old segments are deleted.

    The details of a single partition already say what retention deletes. Nothing is printed of a locked log directory
    but its number of partitions among the totals.
    """
    listed = unlocked(entries)
    if entries and not listed:
        return
    notes, advice = _notes(listed), hints(listed)
    lines_below = min(len(notes), MOST_NOTES + 1) + bool(notes) + lines_of_left_out(left_out, printer)
    lines_below += LINES_OF_HINT * len(advice) + LINES_OF_TOTALS
    is_folded = _show_within(listed, printer, lines_below=lines_below)
    _show_notes(notes, len(listed), printer)
    show_left_out(left_out, printer)
    _show_hints(advice, printer)
    if len(entries) > 1:
        printer.line()
        show_totals(entries, printer, with_reasons=not is_folded, applies_retention=applies_retention)


def _show_within(entries: Sequence[PlannedPartition], printer: Printer, *, lines_below: int) -> bool:
    """Print the table and the details that fit, and return whether partitions were folded away."""
    details = [entry for entry in entries if has_details(entry)]
    fill = printer.lines_to_fill
    if not printer.is_verbose and len(entries) > FEW:
        eligible = [entry for entry in entries if entry.is_eligible]
        rows = len(entries) + 1 + lines_below
        if fill is not None and rows > fill:
            _show_folded(entries, eligible, printer, lines=fill - lines_below)
            return True
        details = eligible
        if len(details) > FEW or (fill is not None and rows + sum(map(lines_of_details, details)) > fill):
            details = []
    _show_verdicts(entries, printer)
    for entry in details:
        printer.line()
        show_details(entry, printer)
    return False


# Tables


def _show_folded(
    entries: Sequence[PlannedPartition], eligible: Sequence[PlannedPartition], printer: Printer, *, lines: int
) -> None:
    """Print the first eligible partitions, and the number of the others by reason."""
    others = not_to_clean(entries)
    rows = max(FEWEST_ROWS, lines - (len(others) + 2 if others else 0) - 2)
    if eligible:
        _show_verdicts(eligible[:rows], printer, [name for name in VERDICT_COLUMNS if name != "clean it"])
        if len(eligible) > rows:
            printer.line(f"and {len(eligible) - rows:,} more to clean; -v lists them")
        printer.line()
    columns = ("not to clean", "partitions", "size", "which")
    table = []
    for reason, those in others.items():
        cells = (
            cell(reason, "bold red" if any(each.error for each in those) else ""),
            cell(f"{len(those):,}"),
            cell(_known_size(totals_of(those))),
            cell(topics_of(those)),
        )
        table.append(dict(zip(columns, cells, strict=True)))
    if table:
        printer.table(columns, table, numbers=("partitions", "size"), whole=("not to clean",))


def _show_verdicts(
    entries: Sequence[PlannedPartition], printer: Printer, columns: Sequence[str] = VERDICT_COLUMNS
) -> None:
    """Print a row for each partition."""
    rows = []
    for entry in entries:
        plan = entry.turn
        cells = (
            cell(entry.name),
            cell(readable.size(entry.plan.log.size_bytes) if entry.plan else None),
            cell(readable.size(plan.clean_bytes) if plan else None),
            cell(readable.size(plan.cleanable_bytes) if plan else None),
            cell(f"{plan.cleanable_ratio:.4f}" if plan else None),
            cell("yes" if entry.is_eligible else "no", "green" if entry.is_eligible else ""),
            cell(_reason(entry), "bold red" if entry.error else ""),
            cell("" if _is_only_named(entry) else readable.within(entry.directory, entry.explanation)),
        )
        rows.append(dict(zip(VERDICT_COLUMNS, cells, strict=True)))
    shown = printer.table(
        columns,
        rows,
        numbers=("size", "clean", "dirty", "ratio"),
        whole=("clean it", "reason"),
        sentences=("why",),
        optional=("why", "clean", "ratio", "size", "clean it"),
    )
    if "why" not in shown and len(entries) <= FEW:
        printer.line()
        for row in rows:
            if row["why"]:
                printer.line(row["partition"].append(": ").append_text(row["why"]))


def _reason(entry: PlannedPartition) -> str | None:
    """Return the verdict, or without one the word of the error."""
    return (entry.error.word if entry.reason is None and entry.error is not None else entry.reason) or None


def _is_only_named(entry: PlannedPartition) -> bool:
    """Return whether the row only names the error, whose message is printed once for all partitions."""
    return entry.plan is None and entry.reason is None and entry.error is not None and bool(entry.error.word)


# Notes and totals


def _notes(entries: Sequence[PlannedPartition]) -> dict[Note, list[str]]:
    """Return each note once, with the names of the partitions that have it."""
    found: dict[Note, list[str]] = {}
    for entry in entries:
        for note in dict.fromkeys(entry.plan.log.notes) if entry.plan is not None else ():
            if note.code is NoteCode.NO_QUORUM_HIGH_WATERMARK:
                continue  # No plan depends on it.
            found.setdefault(note, []).append(entry.name)
    return found


def _show_notes(notes: dict[Note, list[str]], partitions: int, printer: Printer) -> None:
    """Print each note once; its partitions only if not all of them have it."""
    shown = list(notes.items())
    if printer.lines_to_fill is not None:
        shown = shown[:MOST_NOTES]
    if shown:
        printer.line()
    for note, names in shown:
        printer.line(cell(f"note: {note}" + ("" if len(names) == partitions else f" ({some_of(names)})")))
    if len(shown) < len(notes):
        printer.line(f"and {len(notes) - len(shown):,} more notes; -v lists them")


def show_notes_and_hints(entries: Sequence[PlannedPartition], printer: Printer) -> None:
    """Print what a person has to know of the partitions, each note once, and what may be passed for them."""
    _show_notes(_notes(entries), len(entries), printer)
    _show_hints(hints(entries), printer)


def _show_hints(advice: Sequence[str], printer: Printer) -> None:
    for number, hint in enumerate(advice):
        if number == 0:
            printer.line()
        printer.line(cell(f"hint: {hint}"))


def _known_size(totals: PlanTotals) -> str | None:
    """Return the size of the partitions that have a plan; None if none has one."""
    return None if totals.unplanned == totals.partitions else readable.size(totals.size_bytes)


def show_totals(
    entries: Sequence[PlannedPartition],
    printer: Printer,
    *,
    with_reasons: bool = True,
    applies_retention: bool = False,
) -> None:
    """Print the sums of the plans, with the number of partitions for each reason or for all together.

    `applies_retention`: the command deletes what retention would.
    """
    totals = totals_of(entries)
    others = {reason: len(those) for reason, those in not_to_clean(entries).items()}
    if not with_reasons and others:
        others = {"not": sum(others.values())}
    counts = [f"{totals.to_clean:,} to clean", *(f"{count:,} {reason}" for reason, count in others.items())]
    size = _known_size(totals) or "size unknown"
    if 0 < totals.unplanned < totals.partitions:
        size += f" (size of {totals.unplanned:,} unknown)"
    printer.line(cell(f"{readable.counted(totals.partitions, 'partition')}, {size}: {', '.join(counts)}"))
    if totals.to_clean:
        printer.line(
            f"rewrites {readable.size(totals.input_bytes)}: "
            f"{readable.size(totals.dirty_bytes)} dirty, {readable.size(totals.clean_bytes)} clean"
        )
    if deleted := deleted_by_retention(entries):
        who = "retention deletes" if applies_retention else "retention: a broker would delete"
        printer.line(f"{who} {amount_of(deleted)}")


def show_next(command: str, printer: Printer) -> None:
    """Print the command that a person may want to type next."""
    printer.line()
    printer.line(f"next: {command}")
