"""`clean`: replaces the dirty segments of the eligible partitions with compacted ones.

    find the partitions -> lock their log directories -> recover -> plan -> show, ask -> clean, dirtiest first -> report

A dry run and a copy (`--output`) take no lock and do not change the source. They refuse a log directory that another
process has locked, and a partition whose interrupted swap needs recovery.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from kcompact.cleaner.partition import CleanResult, Status
from kcompact.cli.commands import consent
from kcompact.cli.commands.engines import Engine
from kcompact.cli.commands.recover import action_of
from kcompact.cli.commands.request import Request
from kcompact.cli.commands.side_by_side import clean_each
from kcompact.cli.entries import Entry, complain_of, dirtiest_first, shared_exit_code
from kcompact.cli.failures import delivered
from kcompact.cli.locks import Locks
from kcompact.cli.options import Settings
from kcompact.cli.output import streams
from kcompact.cli.output.json import clean_entry, document, dumps
from kcompact.cli.output.progress import ProgressBar
from kcompact.cli.planning import LogDirs, make_plan, named_partitions, plan_entries
from kcompact.cli.signals import stop_request
from kcompact.config.settings import TopicConfig
from kcompact.errors import CleaningAbortedError, KcompactError, RecoveryNeededError, StorageError
from kcompact.plan.clean_plan import CleanPlan, Reason
from kcompact.plan.partition import refusal
from kcompact.swap.recovery import recover


def run(paths: Sequence[Path], settings: Settings, request: Request) -> int:
    """Clean the eligible partitions and return the exit code."""
    with stop_request() as stop, ExitStack() as stack:
        directories, unusable = named_partitions(paths, settings)
        _warn_root(directories)
        locks = Locks(stack, only_check=request.only_reads)
        recovered: dict[Path, str] = {}
        entries = dirtiest_first([*_planned(directories, settings, request, locks, recovered), *unusable])
        named = {path.resolve() for path in paths}
        entries = [_refused(entry, is_named=entry.directory in named) for entry in entries]

        engine = Engine(request, stack, stop)
        asks = consent.is_needed(entries, request)
        if not asks:
            engine.begin(entries)
        unchanged = "nothing was cleaned" if recovered else "nothing was changed"
        try:
            consent.show(entries, request)
        except (BrokenPipeError, StorageError) as problem:
            why = problem if isinstance(problem, StorageError) else f"{streams.OUTPUT} was closed"
            streams.tell(f"{unchanged}: {why}")
            streams.forget_output()
            return KcompactError.exit_code
        if asks and not consent.is_given(entries, request):
            streams.tell(unchanged)
            return CleaningAbortedError.exit_code

        progress = ProgressBar(stop, quiet=request.as_json)
        try:
            cleaned = list(clean_each(entries, request, engine, locks, progress, stop))
        finally:
            progress.end()
        entries = [replace(entry, recovered=recovered.get(entry.directory)) for entry in cleaned]
        lost = _report(entries, settings, request)
        return stop.exit_code or shared_exit_code(entry.exit_code for entry in entries) or lost


def _warn_root(directories: Sequence[Path]) -> None:
    with suppress(OSError):
        if os.geteuid() == 0 and any(directory.stat().st_uid != 0 for directory in directories):
            streams.tell("note: running as root; the broker's own user is safer. Files keep their owners.")


def _planned(
    directories: Sequence[Path], settings: Settings, request: Request, locks: Locks, recovered: dict[Path, str]
) -> list[Entry]:
    """Lock, recover and plan each partition. Add the actions of recovery to `recovered`."""

    def planner(directory: Path, config: TopicConfig, log_dirs: LogDirs) -> CleanPlan:
        if locks.of(directory) is not None:
            report = recover(directory, log_dir=directory.parent)
            if report.changed:
                recovered[directory] = action_of(report)
                # Recovery may have written the checkpoint, so the log directory is read again.
                log_dirs = LogDirs()
        plan = make_plan(
            directory,
            config,
            settings,
            log_dir=log_dirs.of(directory),
            force=request.force,
            include_internal=request.include_internal,
            rebuild_indexes=request.options.rebuild_indexes,
        )
        return plan if plan.log.log_dir.is_log_dir else _noted_as_copy(plan)

    return list(plan_entries(directories, settings, planner))


def _noted_as_copy(plan: CleanPlan) -> CleanPlan:
    note = "the parent directory has no checkpoint and no meta.properties: the partition counts as a complete copy"
    return replace(plan, log=replace(plan.log, notes=(*plan.log.notes, note)))


def _refused(entry: Entry, *, is_named: bool) -> Entry:
    """Return the entry with the error or the result that prevents its cleaning, if there is one.

    Kafka's internal topics are skipped if the argument is a log directory, and refused if it is their own directory.
    """
    plan = entry.plan
    if plan is None or entry.error is not None:
        return entry
    if plan.reason is Reason.LEFTOVERS:
        names = (*plan.log.leftovers, *plan.log.staging)
        problem = RecoveryNeededError(
            path=entry.directory, problem=plan.explanation, files=names, hint="Run `kcompact recover` first."
        )
        return replace(entry, error=problem)
    if plan.reason is Reason.INTERNAL and not is_named:
        return replace(entry, result=CleanResult(directory=entry.directory, status=Status.SKIPPED, plan=plan))
    return replace(entry, error=refusal(plan))


def _report(entries: Sequence[Entry], settings: Settings, request: Request) -> int:
    """Print what was done, and return 1 if it could not be printed."""

    def show() -> None:
        if request.as_json:
            described = [clean_entry(entry) for entry in entries]
            streams.echo(dumps(document("clean", settings.now_ms, partitions=described)))
        else:
            from kcompact.cli.output.outcome import show_outcome
            from kcompact.cli.output.printer import Printer

            show_outcome(entries, Printer())

    lost = delivered(show)
    complain_of(entries)
    return lost
