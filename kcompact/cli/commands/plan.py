"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.cli.entries import complain_of
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, plan_entry
from kcompact.plan.options import PlanOptions
from kcompact.plan.partitions import named_partitions, plan_partitions, unused_overrides
from kcompact.plan.planned import dirtiest_first, shared_exit_code


def run(paths: Sequence[Path], options: PlanOptions, *, as_json: bool) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""
    directories, unusable = named_partitions(paths, topics=options.topics)
    for note in unused_overrides(directories, options):
        streams.tell(f"note: {note}")
    planned = dirtiest_first(list(plan_partitions(directories, options)))
    if as_json:
        described = [plan_entry(each) for each in (*planned, *unusable)]
        streams.echo(dumps(document("plan", options.now_ms, partitions=described)))
    else:
        from kcompact.cli.output.plans import show_plans
        from kcompact.cli.output.printer import Printer

        if planned:
            show_plans(planned, Printer())
        complain_of(unusable)
    return shared_exit_code(each.exit_code for each in (*planned, *unusable))
