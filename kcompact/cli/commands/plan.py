"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli.entries import complain_of
from kcompact.cli.options import typed_arguments
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, left_out_fields, plan_entry
from kcompact.cli.output.next_command import command_after
from kcompact.plan.discovery import LeftOut, left_out
from kcompact.plan.notes import option_notes, time_notes
from kcompact.plan.options import PlanOptions
from kcompact.plan.partitions import named_partitions, plan_partitions
from kcompact.plan.planned import PlannedPartition, dirtiest_first, shared_exit_code

if TYPE_CHECKING:
    from kcompact.cli.output.printer import Printer


def run(paths: Sequence[Path], options: PlanOptions, *, is_verbose: bool, is_quiet: bool, as_json: bool) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""
    directories, unusable = named_partitions(paths, topics=options.topics)
    planned = dirtiest_first(list(plan_partitions(directories, options)))
    notes = [*option_notes(directories, options), *time_notes(planned, options)]
    streams.tell_notes(notes)
    beside = left_out(paths, topics=options.topics)
    if as_json:
        described = [plan_entry(each) for each in (*planned, *unusable)]
        content = {"notes": notes, "partitions": described, "left_out": [left_out_fields(each) for each in beside]}
        streams.echo(dumps(document("plan", options.now_ms, **content)))
    else:
        from kcompact.cli.output.printer import Printer

        _show(planned, beside, Printer(verbose=is_verbose), is_quiet=is_quiet)
        complain_of((*planned, *unusable))
    return shared_exit_code(each.exit_code for each in (*planned, *unusable))


def _show(planned: Sequence[PlannedPartition], beside: Sequence[LeftOut], printer: Printer, *, is_quiet: bool) -> None:
    from kcompact.cli.output.plans import show_next, show_plans, show_totals

    if not planned:
        return
    if is_quiet:
        show_totals(planned, printer)
        return
    show_plans(planned, printer, left_out=beside)
    if any(each.is_eligible for each in planned):
        show_next(command_after(typed_arguments(), "clean"), printer)
