"""Prints the report of `plan`: a table of verdicts, then the details of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.cli.output import text
from kcompact.cli.output.explanations import plan_forecast, policy_line
from kcompact.cli.output.inspection import show_notes
from kcompact.cli.output.log_bar import show_bar
from kcompact.cli.output.printer import Printer, cell
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.notes import hints
from kcompact.plan.passes import kafka_passes_at_most, keys_per_pass
from kcompact.plan.planned import PlannedPartition


def show_plans(entries: Sequence[PlannedPartition], printer: Printer) -> None:
    """Print the plans as one table, then the groups, notes and retention of each partition that has any.

    Hints come last.
    """
    _show_verdicts(entries, printer)
    for entry in entries:
        plan = entry.plan
        if plan is not None and (plan.groups or plan.log.notes or plan_forecast(plan)):
            printer.line()
            _show_details(entry.name, plan, printer)
    for number, hint in enumerate(hints(entries)):
        if number == 0:
            printer.line()
        printer.line(f"hint: {hint}")


def _show_verdicts(entries: Sequence[PlannedPartition], printer: Printer) -> None:
    columns = ("partition", "size", "clean", "dirty", "ratio", "clean it", "reason", "why")
    rows = []
    for entry in entries:
        plan = entry.plan
        cells = (
            cell(entry.name),
            cell(readable.size(plan.log.size_bytes) if plan else None),
            cell(readable.size(plan.clean_bytes) if plan else None),
            cell(readable.size(plan.cleanable_bytes) if plan else None),
            cell(f"{plan.cleanable_ratio:.4f}" if plan else None),
            cell("yes" if entry.is_eligible else "no", "green" if entry.is_eligible else ""),
            cell(entry.reason, "bold red" if entry.error else ""),
            cell(text.relative_to_here(entry.explanation)),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(
        columns,
        rows,
        numbers=("size", "clean", "dirty", "ratio"),
        whole=("clean it", "reason"),
        optional=("clean", "size", "dirty", "ratio"),
    )


def _show_details(name: str, plan: CleanPlan, printer: Printer) -> None:
    printer.line(cell(name, "bold"))
    if "(" in (policy := policy_line(plan.config)):
        printer.line(f"  policy {policy}")
    if plan.groups:
        _show_groups(plan, printer)
    if plan.log.checkpoint_offset is not None and plan.checkpoint_reset:
        printer.line(f"  note: the checkpoint {plan.log.checkpoint_offset} is outside the log and is ignored")
    for due in plan_forecast(plan):
        kept = ", but the merge with a younger segment postpones the deletion" if due.is_postponed else ""
        printer.line(f"  retention: segment {due.segment.base_offset} is past its {due.reason}{kept}")
    show_notes(plan, printer)


def _show_groups(plan: CleanPlan, printer: Printer) -> None:
    """Print which segments become one, the new checkpoint, and how many passes Kafka's cleaner may need."""
    show_bar(plan, printer)
    printer.line(
        f"  {readable.counted(len(plan.segments), 'segment')} to {readable.counted(len(plan.groups), 'segment')}"
    )
    for group in plan.groups:
        bases = " + ".join(str(segment.base_offset) for segment in group)
        total_bytes = sum(segment.size_bytes for segment in group)
        printer.line(f"    {bases} -> {group[0].base_offset}, at most {readable.size(total_bytes)}")
    checkpoint = "none" if plan.log.checkpoint_offset is None else plan.log.checkpoint_offset
    printer.line(f"  checkpoint {checkpoint} -> {plan.first_uncleanable_offset}")
    passes = kafka_passes_at_most(plan)
    if passes is not None and passes > 1:
        keys = keys_per_pass(plan.config)
        printer.line(f"  one pass; Kafka's own cleaner, with a map of {keys:,} keys, may need up to {passes:,}")
