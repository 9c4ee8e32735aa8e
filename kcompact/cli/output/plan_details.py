"""The details of one plan: the groups of segments, the new checkpoint, and what a broker would delete."""

from __future__ import annotations

from kcompact import readable
from kcompact.cli.output.explanations import amount_of, limit_text, policy_line
from kcompact.cli.output.log_bar import show_bar
from kcompact.cli.output.printer import Printer, cell
from kcompact.plan.clean_plan import CleanPlan, Reason
from kcompact.plan.deletion import (
    RetentionReason,
    first_due_ms,
    plan_at_turn,
    plan_forecast,
    reason_to_roll,
    retention_applies,
)
from kcompact.plan.passes import kafka_passes_at_most, keys_per_pass
from kcompact.plan.walk import PlannedPartition

FIXED_LINES = 8
"""The lines of details, with the empty line before them, apart from groups and retention."""
MOST_BASES = 12
"""How many segments of a group are named before the middle ones are only counted."""
MOST_EXPIRED = 12
"""How many segments that retention deletes are listed before the others are only counted."""


def has_details(entry: PlannedPartition) -> bool:
    """Return whether there is more to say about a plan than its row in the table."""
    plan = entry.plan
    return plan is not None and bool(plan.groups or plan_forecast(plan) or _is_only_retained(plan))


def lines_of_details(entry: PlannedPartition) -> int:
    """Return about how many lines `show_details` prints, at most."""
    plan = entry.plan
    if plan is None:
        return 0
    retention = min(len(plan_forecast(plan)), MOST_EXPIRED + 1) + _is_only_retained(plan)
    return FIXED_LINES + len(plan.groups) + retention + (reason_to_roll(plan) is not None)


def show_details(entry: PlannedPartition, printer: Printer) -> None:
    """Print the details of one plan under the name of its partition."""
    plan, turn = entry.plan, entry.turn
    assert plan is not None, "a partition without a plan has no details"
    assert turn is not None, "a plan has a turn"
    printer.line(cell(plan.log.directory.name, "bold"))
    if "(" in (policy := policy_line(plan.config)):
        printer.line(f"  policy {policy}")
    if turn.groups:
        _show_groups(turn, printer)
    if plan.log.checkpoint_offset is not None and plan.checkpoint_reset:
        printer.line(f"  note: the checkpoint {plan.log.checkpoint_offset} is outside the log and is ignored")
    _show_retention(plan, printer)


def _is_only_retained(plan: CleanPlan) -> bool:
    """Return whether retention is all that a broker does with a log that it does not compact."""
    return plan.reason is Reason.POLICY_DELETE and retention_applies(plan)


def _show_retention(plan: CleanPlan, printer: Printer) -> None:
    """Print what a broker would delete and why, and of a log that is not compacted also when it deletes next."""
    forecast = plan_forecast(plan)
    for due in forecast[:MOST_EXPIRED]:
        kept = ", but the merge with a younger segment postpones the deletion" if due.is_postponed else ""
        below = f"below the log start {plan.log.log_start_offset}"
        why = below if due.reason is RetentionReason.LOG_START else f"past its {limit_text(plan, due.reason)}"
        printer.line(f"  retention: segment {due.segment.base_offset} is {why}{kept}")
    if len(forecast) > MOST_EXPIRED:
        printer.line(f"  retention: and {len(forecast) - MOST_EXPIRED:,} more segments; --json lists them")
    deleted = [due.segment for due in forecast if not due.is_postponed]
    if plan.config.compacts and (turn := plan_at_turn(plan)) is not plan:
        cause = (
            "comes first, because a broker cleans another log before this one" if plan.comes_later else "comes first"
        )
        printer.line(f"  retention {cause}; then {turn.explanation}")
    if _is_only_retained(plan):
        if deleted:
            start = max(plan.log.log_start_offset, plan.log.end_of(deleted[-1]))
            printer.line(f"  a broker would delete {amount_of(deleted)}; the log would start at {start}")
        else:
            printer.line(f"  retention: {_nothing_due(plan)}")
    if (reason := reason_to_roll(plan)) is not None:
        base, limit = plan.log.active_segment.base_offset, limit_text(plan, reason)
        printer.line(f"  retention: the active segment {base} is past its {limit}; only a broker rolls and deletes it")


def _nothing_due(plan: CleanPlan) -> str:
    """Return that nothing is to be deleted, with the limits, and when the first segment will be too old."""
    limits = f"retention.ms {plan.config.retention_ms}, retention.bytes {plan.config.retention_bytes}"
    due_ms = first_due_ms(plan)
    later = (
        "" if due_ms is None else f"; segment {plan.log.segments[0].base_offset} is due after {readable.time(due_ms)}"
    )
    return f"no closed segment is due ({limits}){later}"


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
