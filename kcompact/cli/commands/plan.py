"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.cli.entries import complain_of
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, plan_entry
from kcompact.plan.notes import option_notes, time_notes
from kcompact.plan.options import PlanOptions
from kcompact.plan.partitions import named_partitions, plan_partitions
from kcompact.plan.planned import dirtiest_first, shared_exit_code


def run(paths: Sequence[Path], options: PlanOptions, *, as_json: bool) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""
    directories, unusable = named_partitions(paths, topics=options.topics)
    planned = dirtiest_first(list(plan_partitions(directories, options)))
    notes = [*option_notes(directories, options), *time_notes(planned, options)]
    streams.tell_notes(notes)
    if as_json:
        described = [plan_entry(each) for each in (*planned, *unusable)]
        streams.echo(dumps(document("plan", options.now_ms, notes=notes, partitions=described)))
    else:
        from kcompact.cli.output.plans import show_plans
        from kcompact.cli.output.printer import Printer

        if planned:
            show_plans(planned, Printer())
        complain_of(unusable)
    return shared_exit_code(each.exit_code for each in (*planned, *unusable))
