"""The details of one plan: the groups of segments, the new checkpoint, and what a broker would delete afterwards."""

from __future__ import annotations

from kcompact import readable
from kcompact.cli.output.explanations import policy_line
from kcompact.cli.output.log_bar import show_bar
from kcompact.cli.output.printer import Printer, cell
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import plan_forecast
from kcompact.plan.passes import kafka_passes_at_most, keys_per_pass

FIXED_LINES = 8
"""The lines of details, with the empty line before them, apart from groups and retention."""
MOST_BASES = 12
"""How many segments of a group are named before the middle ones are only counted."""


def has_details(plan: CleanPlan) -> bool:
    """Return whether there is more to say about a plan than its row in the table."""
    return bool(plan.groups or plan_forecast(plan))


def lines_of_details(plan: CleanPlan) -> int:
    """Return about how many lines `show_details` prints, at most."""
    return FIXED_LINES + len(plan.groups) + len(plan_forecast(plan))


def show_details(plan: CleanPlan, printer: Printer) -> None:
    """Print the details of one plan under the name of its partition."""
    printer.line(cell(plan.log.directory.name, "bold"))
    if "(" in (policy := policy_line(plan.config)):
        printer.line(f"  policy {policy}")
    if plan.groups:
        _show_groups(plan, printer)
    if plan.log.checkpoint_offset is not None and plan.checkpoint_reset:
        printer.line(f"  note: the checkpoint {plan.log.checkpoint_offset} is outside the log and is ignored")
    for due in plan_forecast(plan):
        kept = ", but the merge with a younger segment postpones the deletion" if due.is_postponed else ""
        printer.line(f"  retention: segment {due.segment.base_offset} is past its {due.reason}{kept}")


def _show_groups(plan: CleanPlan, printer: Printer) -> None:
    """Print which segments become one, the new checkpoint, and how many passes Kafka's cleaner may need."""
    show_bar(plan, printer)
    printer.line(
        f"  {readable.counted(len(plan.segments), 'segment')} to {readable.counted(len(plan.groups), 'segment')}"
    )
    for group in plan.groups:
        bases = [str(segment.base_offset) for segment in group]
        if len(bases) > MOST_BASES:
            bases = [*bases[:3], f"… {len(bases) - 4:,} more …", bases[-1]]
        total_bytes = sum(segment.size_bytes for segment in group)
        printer.line(f"    {' + '.join(bases)} -> {group[0].base_offset}, from {readable.size(total_bytes)}")
    checkpoint = "none" if plan.log.checkpoint_offset is None else plan.log.checkpoint_offset
    printer.line(f"  checkpoint {checkpoint} -> {plan.first_uncleanable_offset}")
    passes = kafka_passes_at_most(plan)
    if passes is not None and passes > 1:
        keys = keys_per_pass(plan.config)
        printer.line(f"  one pass; Kafka's own cleaner, with a map of {keys:,} keys, may need up to {passes:,}")
