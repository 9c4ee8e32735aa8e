"""`plan`: shows what Kafka's cleaner would decide about each partition, and why."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kcompact.cli.entries import complain_of, dirtiest_first, shared_exit_code
from kcompact.cli.options import Settings
from kcompact.cli.output import streams
from kcompact.cli.output.json import document, dumps, plan_entry
from kcompact.cli.planning import LogDirs, make_plan, named_partitions, plan_entries
from kcompact.config.settings import TopicConfig
from kcompact.plan.clean_plan import CleanPlan


def run(paths: Sequence[Path], settings: Settings, *, as_json: bool) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""

    def planner(directory: Path, config: TopicConfig, log_dirs: LogDirs) -> CleanPlan:
        return make_plan(directory, config, settings, log_dir=log_dirs.of(directory))

    directories, unusable = named_partitions(paths, settings)
    entries = dirtiest_first(list(plan_entries(directories, settings, planner)))
    if as_json:
        described = [plan_entry(entry) for entry in (*entries, *unusable)]
        streams.echo(dumps(document("plan", settings.now_ms, partitions=described)))
    else:
        from kcompact.cli.output.plans import show_plans
        from kcompact.cli.output.printer import Printer

        if entries:
            show_plans(entries, Printer())
        complain_of(unusable)
    return shared_exit_code(entry.exit_code for entry in (*entries, *unusable))
