"""`clean` and `recover`: the commands that change something on the disk.

    find the partitions -> lock their log directories -> recover -> plan -> show, ask -> clean, dirtiest first -> report

A dry run and a copy (`--output`) lock nothing and change nothing where they read; they refuse where someone else holds
the lock, or where an interrupted swap would have to be settled first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcompact import cleaner
from kcompact.clean.executor import Executor, Progress
from kcompact.cleaner import CleanOptions, CleanResult, Status
from kcompact.cli.entries import Entry, LogDirs, dirtiest_first, exit_code, make_plan, plan_entries
from kcompact.cli.entries import partitions as find_named
from kcompact.cli.failures import complain, unexpected
from kcompact.cli.options import Settings
from kcompact.cli.output import streams
from kcompact.cli.output.explanations import plan_forecast
from kcompact.cli.output.json import clean_entry, document, dumps
from kcompact.cli.output.progress import ProgressBar
from kcompact.cli.signals import StopRequest, stop_request
from kcompact.config.settings import TopicConfig
from kcompact.engine.in_process import InProcess
from kcompact.errors import CleaningAbortedError, KcompactError, LogDirLockedError, RecoveryNeededError, StorageError
from kcompact.log.lock import LogDirLock, is_locked, log_dir_lock
from kcompact.plan.clean_plan import CleanPlan, Reason
from kcompact.plan.partition import refusal
from kcompact.swap.recovery import RecoveryReport, recover

if TYPE_CHECKING:
    from kcompact.engine.spark import SparkStart


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a `clean` command line asks for, besides the configuration."""

    options: CleanOptions
    force: bool = False
    include_internal: bool = False
    assume_yes: bool = False
    as_json: bool = False
    engine: str = "spark"
    master: str = "local[*]"
    spark_conf: dict[str, str] = field(default_factory=dict)

    @property
    def only_reads(self) -> bool:
        """Whether the source stays as it is."""
        return self.options.dry_run or self.options.output is not None


class Locks:
    """The locks of the log directories, each taken once and held to the end.

    A lock that another process holds is the failure of every partition below it.
    """

    def __init__(self, stack: ExitStack, *, only_look: bool) -> None:
        self._stack = stack
        self._only_look = only_look
        self._held: dict[Path, LogDirLock | KcompactError | None] = {}

    def of(self, partition: Path) -> LogDirLock | None:
        """Return the lock that covers a partition, None when nothing is to be changed. Raises LogDirLockedError."""
        log_dir = partition.parent
        if log_dir not in self._held:
            try:
                self._held[log_dir] = self._take(log_dir)
            except KcompactError as problem:
                self._held[log_dir] = problem
        found = self._held[log_dir]
        if isinstance(found, KcompactError):
            raise found
        return found

    def _take(self, log_dir: Path) -> LogDirLock | None:
        if not self._only_look:
            return self._stack.enter_context(log_dir_lock(log_dir))
        if is_locked(log_dir):
            raise LogDirLockedError(lock=log_dir / ".lock")
        return None


def run(paths: Sequence[Path], settings: Settings, request: Request) -> int:
    """Clean what is eligible and return the exit code."""
    with stop_request() as stop, ExitStack() as stack:
        directories, unusable = find_named(paths, settings)
        _warn_root(directories)
        locks = Locks(stack, only_look=request.only_reads)
        recovered: dict[Path, str] = {}
        entries = _planned(directories, settings, request, locks, recovered)
        named = {path.resolve() for path in paths}
        entries = dirtiest_first([*entries, *unusable])
        entries = [_settled(entry, is_named=entry.directory in named) for entry in entries]
        engine = Engine(request, stack, stop)
        if not _asks(entries, request):
            engine.begin(entries)
        nothing = "nothing was cleaned" if recovered else "nothing was changed"
        try:
            _show(entries, request)
        except (BrokenPipeError, StorageError) as problem:
            why = problem if isinstance(problem, StorageError) else f"{streams.OUTPUT} was closed"
            streams.tell(f"{nothing}: {why}")
            streams.forget_output()
            return KcompactError.exit_code
        if _asks(entries, request) and not _is_agreed(entries, request):
            streams.tell(nothing)
            return CleaningAbortedError.exit_code
        progress = ProgressBar(stop, quiet=request.as_json)
        try:
            entries = [
                replace(done, recovered=recovered.get(done.directory))
                for done in _clean_each(entries, request, engine, locks, progress, stop)
            ]
        finally:
            progress.end()
        lost = _report(entries, settings, request)
        return stop.exit_code or exit_code(entries) or lost


def _warn_root(directories: Sequence[Path]) -> None:
    with suppress(OSError):
        if os.geteuid() == 0 and any(directory.stat().st_uid != 0 for directory in directories):
            streams.tell("running as root: the broker's own user is enough and safer; owners are carried over")


# Before: recovery, plans, consent


def _planned(
    directories: Sequence[Path], settings: Settings, request: Request, locks: Locks, recovered: dict[Path, str]
) -> list[Entry]:
    def planner(directory: Path, config: TopicConfig, log_dirs: LogDirs) -> CleanPlan:
        lock = locks.of(directory)
        if lock is not None:
            settled = recover(directory, log_dir=directory.parent)
            if settled.changed:
                recovered[directory] = recovery_action(settled)
                # Nobody else writes here, but recovery may have written the checkpoint.
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
        if not plan.log.log_dir.is_log_dir:
            note = "the directory above holds no checkpoint and no meta.properties: taken as a lone, complete copy"
            plan = replace(plan, log=replace(plan.log, notes=(*plan.log.notes, note)))
        return plan

    return list(plan_entries(directories, settings, planner))


def _settled(entry: Entry, *, is_named: bool) -> Entry:
    """Return the entry with the reason why it must not be cleaned, if there is one.

    Kafka's own topics are passed over in silence where a whole log directory is cleaned, and refused by name.
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


def _show(entries: Sequence[Entry], request: Request) -> None:
    """Show the plans. Raises BrokenPipeError and StorageError: who cannot read them has not agreed to them."""
    if request.as_json:
        if streams.was_closed():
            raise BrokenPipeError
        return
    from kcompact.cli.output.tables import Printer, show_plans

    show_plans(entries, Printer())


def _asks(entries: Sequence[Entry], request: Request) -> bool:
    """Return whether there is something to ask about and someone to ask."""
    if request.assume_yes or request.only_reads or request.as_json:
        return False
    return any(_changes(entry, request) for entry in entries) and sys.stdin.isatty() and sys.stdout.isatty()


def _is_agreed(entries: Sequence[Entry], request: Request) -> bool:
    count = sum(_changes(entry, request) for entry in entries)
    streams.echo()
    return click.confirm(f"Clean {count} partition{'' if count == 1 else 's'}?", err=True)


def _changes(entry: Entry, request: Request) -> bool:
    return is_due(entry) or _loses_segments(entry, request)


# Cleaning

SMALL_BYTES = 64 << 20
"""A log below this is one task, so that most of its time is waiting: for Spark, and for the disk."""


SIDE_BY_SIDE = 4


class Engine:
    """What runs the stages: this process, or a Spark, which is started before it is needed."""

    def __init__(self, request: Request, stack: ExitStack, stop: StopRequest) -> None:
        self._request = request
        self._stack = stack
        self._stop = stop
        self._start: SparkStart | KcompactError | None = None

    def begin(self, entries: Sequence[Entry]) -> None:
        """Begin to start Spark, if there is something to clean and it is to be cleaned with it. Raises nothing yet."""
        if self._request.engine != "spark" or self._start is not None or not any(map(is_due, entries)):
            return
        with self._stop.deferred():  # Starting Spark may not be torn in two.
            try:
                self._start = self._stack.enter_context(_spark(self._request))
            except KcompactError as problem:
                self._start = problem

    @contextmanager
    def executors(self, entries: Sequence[Entry]) -> Iterator[Callable[[Progress], Executor]]:
        """Return what makes an executor for a watch. Raises KcompactError where Spark does not start."""
        self.begin(entries)
        if self._start is None:
            yield lambda progress: InProcess(progress=progress)
            return
        if isinstance(self._start, KcompactError):
            raise self._start
        from kcompact.engine.spark import OnSpark

        if self._start.is_first:
            streams.tell("preparing Spark's start for later runs: once, in the background, when this one is done")
        with self._start.context() as context:
            yield lambda progress: OnSpark(sc=context, progress=progress)


def _spark(request: Request) -> AbstractContextManager[SparkStart]:
    from kcompact.engine.spark import spark_start

    return spark_start(request.master, request.spark_conf)


def _clean_each(
    entries: Sequence[Entry], request: Request, engine: Engine, locks: Locks, progress: ProgressBar, stop: StopRequest
) -> Iterator[Entry]:
    """Clean the partitions in order, small ones side by side on Spark, and return them in order.

    A failure is that partition's own; a request to stop ends the round.
    """
    stop.is_deferred = True
    command = click.get_current_context(silent=True)
    with ExitStack() as stack:
        try:
            executor = stack.enter_context(engine.executors(entries))
        except KcompactError as problem:
            yield from (replace(entry, error=problem) if is_due(entry) else entry for entry in entries)
            return

        def cleaned(entry: Entry) -> Entry:
            own = progress.of(entry.directory)
            try:
                # Each thread has its own idea of the current command.
                with nullcontext() if command is None else command.scope(cleanup=False):
                    return _cleaned(entry, executor(own), own, request, locks)
            finally:
                own.end()

        for run in _runs(entries, request):
            if len(run) == 1:
                yield cleaned(run[0])
                continue
            # The threads take the dirtiest first, and Spark (FIFO) the tasks of the job that was there first.
            with ThreadPoolExecutor(min(len(run), SIDE_BY_SIDE), "kcompact-partition") as pool:
                yield from pool.map(cleaned, run)


def _runs(entries: Sequence[Entry], request: Request) -> Iterator[list[Entry]]:
    """Cut the entries into runs, in order: small ones that may be cleaned side by side, and each large one alone."""
    run: list[Entry] = []
    for entry in entries:
        if run and not (_is_small(entry, request) and _is_small(run[-1], request)):
            yield run
            run = []
        run.append(entry)
    if run:
        yield run


def _is_small(entry: Entry, request: Request) -> bool:
    if request.engine != "spark" or request.options.max_bytes_per_second is not None:
        return False  # The limit holds for the one that is being cleaned.
    return entry.plan is None or sum(segment.size_bytes for segment in entry.plan.segments) < SMALL_BYTES


def _cleaned(entry: Entry, executor: Executor, progress: Progress, request: Request, locks: Locks) -> Entry:
    if entry.plan is None or entry.error is not None or entry.result is not None:
        return entry
    try:
        progress.check()
        lock = locks.of(entry.directory)
        result = cleaner.clean_partition(entry.plan, executor, lock=lock, options=request.options, progress=progress)
        return replace(entry, result=result)
    except KcompactError as problem:
        return replace(entry, error=problem)
    except Exception as fault:
        return replace(entry, error=unexpected(fault))


def is_due(entry: Entry) -> bool:
    """Whether the partition is going to be cleaned."""
    return entry.error is None and entry.plan is not None and entry.plan.eligible


def _loses_segments(entry: Entry, request: Request) -> bool:
    """Whether retention is to take segments from the partition, cleaned or not."""
    if not request.options.apply_retention or entry.error is not None or entry.plan is None:
        return False
    return any(not due.is_postponed for due in plan_forecast(entry.plan))


# After


def _report(entries: Sequence[Entry], settings: Settings, request: Request) -> int:
    """Say what was done and return 1 if that could not be said."""

    def show() -> None:
        if request.as_json:
            described = [clean_entry(entry) for entry in entries]
            streams.echo(dumps(document("clean", settings.now_ms, partitions=described)))
        else:
            from kcompact.cli.output.tables import Printer, show_outcome

            show_outcome(entries, Printer())

    lost = delivered(show)
    for entry in entries:
        if entry.error is not None:
            complain(entry.error)
    return lost


def delivered(show: Callable[[], None]) -> int:
    """Print what was done and return 1 if it could not be printed. A reader who has left does not count: it is done."""
    try:
        show()
    except BrokenPipeError:
        streams.forget_output()
    except StorageError as problem:
        complain(problem)
        streams.forget_output()
        return problem.exit_code
    return 0


def recovery_action(settled: RecoveryReport) -> str:
    """Return in a word what recovery did."""
    if settled.finished is not None:
        return "finished"
    if settled.undone is not None:
        return "undone"
    return "tidied" if settled.changed else "nothing-to-do"
