"""`plan`, and the part of `inspect` and `clean` that makes a plan for each partition a user named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from kcompact.cli import report
from kcompact.cli.options import Settings
from kcompact.cli.report import Entry
from kcompact.config import TopicConfig
from kcompact.errors import ConfigError, KcompactError, RefusedError
from kcompact.log import LogDir, read_log_dir
from kcompact.partitions import find_partitions, plan_partition
from kcompact.plan import CleanPlan


def partitions(paths: Sequence[Path], settings: Settings) -> list[Path]:
    """Return the partition directories that the arguments name. Raises RefusedError when none is left."""
    found = find_partitions(paths, topic=settings.topic)
    if not found:
        raise RefusedError(path=paths[0], problem=f"no partition of a topic that matches '{settings.topic}'")
    return found


class LogDirs:
    """Reads the checkpoints of each log directory once; a damaged one is that of all its partitions."""

    def __init__(self) -> None:
        self._read: dict[Path, LogDir | KcompactError] = {}

    def of(self, partition: Path) -> LogDir:
        """Return the log directory of a partition. Raises CorruptCheckpointError, StorageError."""
        parent = partition.parent
        if parent not in self._read:
            try:
                self._read[parent] = read_log_dir(parent)
            except KcompactError as problem:
                self._read[parent] = problem
        found = self._read[parent]
        if isinstance(found, KcompactError):
            raise found
        return found


def make_plan(
    directory: Path,
    config: TopicConfig,
    settings: Settings,
    *,
    log_dir: LogDir,
    force: bool = False,
    include_internal: bool = False,
    rebuild_indexes: bool = False,
) -> CleanPlan:
    """Return the plan of one partition."""
    return plan_partition(
        directory,
        config,
        now_ms=settings.now_ms,
        log_dir=log_dir,
        high_watermark=settings.high_watermark,
        use_log_end=settings.use_log_end,
        force=force,
        include_internal=include_internal,
        rebuild_indexes=rebuild_indexes,
    )


def noted(plan: CleanPlan, notes: Sequence[str]) -> CleanPlan:
    """Return the plan with these notes before its own."""
    return replace(plan, log=replace(plan.log, notes=(*notes, *plan.log.notes))) if notes else plan


def plan_entries(
    directories: Sequence[Path],
    settings: Settings,
    planner: Callable[[Path, TopicConfig, LogDirs], CleanPlan],
) -> Iterator[Entry]:
    """Yield an entry for each partition; one that cannot be planned says why and the others go on.

    A setting that Kafka would refuse is a mistake in the command, so it is raised before anything else.
    """
    configs = settings.configs_of(directories)
    log_dirs = LogDirs()
    for directory in directories:
        configured = configs[directory]
        if configured.problem is not None:
            yield Entry(directory=directory, error=configured.problem)
            continue
        try:
            plan = noted(planner(directory, configured.config, log_dirs), configured.notes)
        except ConfigError:
            raise
        except KcompactError as problem:
            yield Entry(directory=directory, error=problem)
        else:
            damage = plan.log.damage[0] if plan.log.damage else None
            yield Entry(directory=directory, plan=plan, error=damage)


def dirtiest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries in cleaning order, those without a plan last."""
    from kcompact.plan import dirtiest_first as order

    of_plan = {id(entry.plan): entry for entry in entries if entry.plan is not None}
    planned = order([entry.plan for entry in entries if entry.plan is not None])
    return [of_plan[id(plan)] for plan in planned] + [entry for entry in entries if entry.plan is None]


def plan(paths: Sequence[Path], settings: Settings, *, as_json: bool) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""

    def planner(directory: Path, config: TopicConfig, log_dirs: LogDirs) -> CleanPlan:
        return make_plan(directory, config, settings, log_dir=log_dirs.of(directory))

    entries = dirtiest_first(list(plan_entries(partitions(paths, settings), settings, planner)))
    if as_json:
        described = [report.plan_entry(entry) for entry in entries]
        click.echo(report.dumps(report.document("plan", settings.now_ms, partitions=described)))
    else:
        from kcompact.cli.render import Printer, show_plans

        show_plans(entries, Printer())
    return report.exit_code(entries)
