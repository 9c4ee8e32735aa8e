"""A round: the partitions of some paths are locked, recovered and planned, then cleaned, dirtiest first.

    with begin_round(paths, plan_options, clean_options, engine_options) as round_:
        round_.outcomes              # the plans
        result = round_.clean()      # the results

With `apply_retention`, partitions that only lose old segments come before those that are cleaned. Of these the dirtiest
is cleaned before it loses segments, all others afterwards, as by a broker that has only these partitions.

A dry run and a copy (`output`) take no lock and do not change the source. They refuse a partition whose interrupted
swap needs recovery. A copy also refuses a log directory that another kcompact has locked; a dry run only notes it.
Both work beside a running broker: what it changes meanwhile is planned and read again (`log.unchanged_reading`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.copies import finish, is_left_as_it_is, output_of, require_space_for_copies
from kcompact.cleaner.engines import Engine, EngineChoice, EngineOptions, engine_options
from kcompact.cleaner.in_use import Locks, UseCheck
from kcompact.cleaner.journal import Journal, journal_at
from kcompact.cleaner.outcome import CleanResult, PartitionOutcome, RoundResult, Status, SwappedGroups
from kcompact.cleaner.partition import swap_in
from kcompact.cleaner.preflight import storage_notes
from kcompact.cleaner.recovery import recover_each
from kcompact.cleaner.round_end import EndingGroups, SwappedPartition, end
from kcompact.cleaner.small_partitions import SideBySide, small_side_by_side
from kcompact.config.settings import parse_override
from kcompact.errors import (
    CleaningAbortedError,
    ConfigError,
    KcompactError,
    NotEnoughSpaceError,
    PartitionInUseError,
    RecoveryNeededError,
    storage_errors,
)
from kcompact.failures import as_failure
from kcompact.host.disk import Disk
from kcompact.log.directory import LogDir, read_again
from kcompact.log.files import FileIdentity
from kcompact.log.lock import require_local
from kcompact.log.unchanged_reading import damage_only_if_unchanged, read_unchanged
from kcompact.plan.deletion import due_now
from kcompact.plan.discovery import canonical, find_partitions, source_path
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import make_plan, refusal, retention_refusal
from kcompact.plan.run_notes import (
    option_notes,
    require_plausible_clock,
    running_notes,
    time_notes,
)
from kcompact.plan.setting_notes import broker_file_notes, setting_doubts
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import Planner, in_turns, named_partitions, walk_partitions
from kcompact.readable import shown
from kcompact.remarks import Note, RemarkCode
from kcompact.stages.executor import Executor, Progress, RoundProgress
from kcompact.swap.copy import Output
from kcompact.swap.kept.links import KeptDirectory
from kcompact.swap.recovery.end import Recovery, RecoveryReport
from kcompact.swap.recovery.interrupted_round import begin_recovery
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.engine.spark import OnSpark


def clean_log_dir(
    path: str | os.PathLike[str],
    config: Mapping[str, str] | None = None,
    *,
    plan_options: PlanOptions | None = None,
    options: CleanOptions | None = None,
    engine: EngineOptions | OnSpark | str | None = None,
    progress: RoundProgress | None = None,
) -> RoundResult:
    """Clean the eligible partitions of a log directory, dirtiest first, and return what was done with each.

    Does in one call what the command `clean` does without a question: locks the log directory, recovers interrupted
    swaps, plans, cleans and writes the checkpoints. `path` may also be one partition directory. `config` has settings
    under the names of `--config`: `{"orders:cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}`; one
    without a topic is for topics that have no value of their own. The default of `plan_options` is the clock's time.
    Other log directories of the broker belong into `PlanOptions.log_dirs`. `engine` may be a name, or `OnSpark(spark)`
    for a Spark session that runs; the default is that of `EngineOptions`: Spark with its options or for much work, else
    this process.

    The failure of one partition does not stop the others: see `RoundResult.exit_code` and `raise_failure`.
    Raises ConfigError for a wrong setting or option, RefusedError for a path without partitions, and when no partition
    matches `topics`.
    """
    with storage_errors(source_path(path)):
        find_partitions([path])
    plan_options = with_overrides(plan_options or PlanOptions(), config)
    with begin_round([source_path(path)], plan_options, options or CleanOptions(), engine_options(engine)) as round_:
        return round_.clean(progress)


def with_overrides(options: PlanOptions, config: Mapping[str, str] | None) -> PlanOptions:
    """Return the options with more settings of `--config`. Raises ConfigError for an unknown name."""
    if config is not None and not isinstance(config, Mapping):
        raise ConfigError(path="config", problem=f"{config!r} is no mapping of names to values")
    overrides = tuple(parse_override(f"{name}={value}") for name, value in (config or {}).items())
    return replace(options, overrides=(*options.overrides, *overrides))


@dataclass(kw_only=True)
class Round:
    """A round whose partitions are locked, recovered and planned. `outcomes` are in the order of the cleaning.

    `doubts` are the notes that say why the decisions may be wrong: the time probably is, or settings are only assumed.
    """

    outcomes: tuple[PartitionOutcome, ...]
    options: CleanOptions
    plan_options: PlanOptions
    notes: tuple[Note, ...]
    doubts: tuple[Note, ...]
    locks: Locks
    engines: Engine
    output: Output | None
    keep: KeptDirectory | None
    journal: Journal | None
    _full: NotEnoughSpaceError | None = field(default=None, init=False)
    """Of a round of copying: the first lack of space. What is not begun by then would fill the disk again."""

    @property
    def engine(self) -> EngineChoice | None:
        """Return the engine and why it was chosen, None if it has nothing to do."""
        is_used = any(each.is_eligible or self._is_for_a_task(each) for each in self.outcomes)
        return self.engines.choice if is_used else None

    def _is_for_a_task(self, outcome: PartitionOutcome) -> bool:
        """Return whether a task copies the partition, as it is if it is not eligible."""
        is_planned = outcome.plan is not None and outcome.error is None and outcome.result is None
        return is_planned and self.engines.copies_in_tasks

    def check_engine(self) -> None:
        """Raise KcompactError if something is to be cleaned and the engine cannot start, as far as is known at once."""
        if self.engine is not None:
            self.engines.check()

    def begin_engine(self) -> None:
        """Begin to start Spark in the background, if it is the engine and something is to be cleaned."""
        if self.engine is not None:
            self.engines.begin()

    def clean(self, progress: RoundProgress | None = None) -> RoundResult:
        """Clean the eligible partitions and return every partition with its result or its error, in order."""
        progress = progress or RoundProgress()
        started, copied = time.monotonic(), None
        if self.output is None or self.options.dry_run:
            with nullcontext() if self.keep is None or self.options.dry_run else self.keep:
                partitions = tuple(self._cleaned(progress))
        else:
            with self.output as output:
                partitions = tuple(self._cleaned(progress))
                copied = finish(output, partitions, progress.of(output.path).check)
        elapsed_s = time.monotonic() - started
        return RoundResult(partitions=partitions, notes=self.notes, copied=copied, elapsed_s=elapsed_s)

    def _cleaned(self, progress: RoundProgress) -> Iterator[PartitionOutcome]:
        self.begin_engine()
        with ExitStack() as stack:
            try:
                executor_for = stack.enter_context(self.engines.executors(progress.note))
            except KcompactError as problem:
                yield from (self._not_reached(each, problem) for each in self.outcomes)
                return

            def clean(outcome: PartitionOutcome) -> PartitionOutcome:
                own_progress = progress.of(outcome.directory)
                try:
                    return self._clean_one(outcome, executor_for(own_progress), own_progress, groups)
                finally:
                    own_progress.end()

            def clean_run(outcomes: Sequence[PartitionOutcome]) -> list[PartitionOutcome]:
                return list(small_side_by_side(outcomes, clean, how))

            def end_group(group: Sequence[SwappedPartition]) -> None:
                results.update((each.directory, each) for each in end(group, self.journal))

            def with_result(outcome: PartitionOutcome) -> PartitionOutcome:
                result = results.pop(outcome.directory, None)
                return outcome if result is None else _with_result(outcome, result)

            results: dict[Path, CleanResult] = {}
            groups = EndingGroups(end_group)
            how = _side_by_side(self.engines, self.options)
            # Those that only lose old segments come first, so that the others have more space.
            only_deleted = sum(_only_loses_segments(each, self.options) for each in self.outcomes)
            with groups:
                cleaned = clean_run(self.outcomes[:only_deleted]) + clean_run(self.outcomes[only_deleted:])
            cleaned = [with_result(each) for each in cleaned]
            if not self.options.only_reads and self.keep is None:

                def clean_now(outcome: PartitionOutcome) -> PartitionOutcome:
                    with groups:
                        outcome = clean(outcome)
                    return with_result(outcome)

                _clean_what_fits_now(cleaned, clean_now)
            yield from cleaned

    def _clean_one(
        self, outcome: PartitionOutcome, executor: Executor, progress: Progress, groups: EndingGroups[SwappedPartition]
    ) -> PartitionOutcome:
        """Clean one partition and return it with the result or the error; as it is, if it waits for its checkpoint."""
        if outcome.plan is None or outcome.error is not None or outcome.result is not None:
            return outcome
        try:
            progress.check()
        except CleaningAbortedError as problem:
            return self._not_reached(outcome, problem)
        if self._full is not None:
            return self._not_reached(outcome, self._full)
        is_small = self.engines.side_by_side.takes(outcome)
        if not is_small:
            groups.end()  # Others would wait for long.
        try:
            with storage_errors(outcome.directory):
                cleaning = Cleaning(
                    plan=outcome.plan,
                    executor=executor,
                    lock=self.locks.of(outcome.directory),
                    options=self.options,
                    progress=progress,
                    output=self.output,
                    keep=self.keep,
                    journal=self.journal,
                )
                done = self._clean_unchanged(cleaning)
        except Exception as problem:
            failure = as_failure(problem)
            keeps = self.output is not None and not self.output.is_uploaded and not self.options.dry_run
            if keeps and isinstance(failure, NotEnoughSpaceError):
                self._full = failure
            return replace(outcome, error=failure)
        if not isinstance(done, SwappedPartition):
            return _with_result(outcome, done)
        groups.add(done)
        if not is_small:
            groups.end()
        return outcome

    def _clean_unchanged(self, cleaning: Cleaning) -> SwappedPartition | CleanResult:
        """Clean by a plan; beside a running broker, by a new plan if the planned segments were changed meanwhile."""
        planned = cleaning.plan

        def clean_current(log_dir: LogDir) -> SwappedPartition | CleanResult:
            current = planned
            if log_dir is not planned.log.log_dir:
                current = make_plan(
                    planned.log.directory,
                    planned.config,
                    self.plan_options,
                    log_dir=log_dir,
                    moves=planned.log.moves,
                )
                current = replace(current, comes_later=planned.comes_later, replicas=planned.replicas)
            with damage_only_if_unchanged(current.log):
                return swap_in(replace(cleaning, plan=current))

        return read_unchanged(planned.log.files, planned.log.log_dir, clean_current, watches=False)

    def _not_reached(self, outcome: PartitionOutcome, problem: KcompactError) -> PartitionOutcome:
        """Return a partition that is not cleaned because of a problem of the round; skipped if it needs no cleaning."""
        if outcome.plan is None or outcome.error is not None or outcome.result is not None:
            return outcome
        if self.options.would_change(outcome.plan):
            return replace(outcome, error=problem)
        return replace(outcome, result=_skipped(outcome))


def _with_result(outcome: PartitionOutcome, result: CleanResult) -> PartitionOutcome:
    """Return a partition with its result, without the replaced files: the journal has them."""
    result = replace(result, swapped=SwappedGroups())
    return replace(outcome, plan=result.plan, result=result, error=result.stopped_by)


def _engine_of(
    outcomes: Sequence[PartitionOutcome],
    options: CleanOptions,
    engine_options: EngineOptions,
    output: Output | None,
    stack: ExitStack,
) -> Engine:
    is_uploaded = output is not None and output.is_uploaded
    return Engine(
        engine_options,
        stack,
        bytes_to_read=_bytes_to_read(outcomes),
        paths=[outcome.directory for outcome in outcomes] + ([] if output is None else [output.path]),
        uploads=is_uploaded and not options.dry_run,
        fetches=output is not None and not is_uploaded and not options.dry_run,
    )


def _side_by_side(engine: Engine, options: CleanOptions) -> SideBySide:
    # The limit on bytes per second holds for one cleaning.
    return engine.side_by_side._replace(threads=1) if options.max_bytes_per_second is not None else engine.side_by_side


def _skipped(outcome: PartitionOutcome) -> CleanResult:
    assert outcome.plan is not None, "what could not be planned has an error"
    return CleanResult(plan=outcome.plan, status=Status.SKIPPED)


@contextmanager
def begin_round(
    paths: Sequence[Path],
    plan_options: PlanOptions,
    options: CleanOptions,
    engine_options: EngineOptions,
    *,
    uninterrupted: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Round]:
    """Lock, recover and plan the partitions of some paths. The locks are held until the end of the block.

    Each recovery is a block of its own `uninterrupted()`, which keeps signals from ending the process in it.

    Raises ConfigError for a setting that Kafka does not accept, RefusedError when no partition matches the topics, and
    the errors of an output that cannot be written.
    """
    with ExitStack() as stack:
        with storage_errors(next(iter(paths), Path())):
            begun = _begun(stack, paths, plan_options, options, engine_options, uninterrupted)
        yield begun


def _begun(
    stack: ExitStack,
    paths: Sequence[Path],
    plan_options: PlanOptions,
    options: CleanOptions,
    engine_options: EngineOptions,
    uninterrupted: Callable[[], AbstractContextManager[None]],
) -> Round:
    if options.rebuild_indexes:
        plan_options = replace(plan_options, rebuild_indexes=True)
    directories, answers = named_partitions(paths, plan_options.selection)
    unusable = [PartitionOutcome.failed(each.directory, each.error) for each in answers if each.error is not None]
    if not options.only_reads:
        require_local(directory.parent for directory in directories)
    output = output_of(paths, directories, plan_options, options)
    keep = None if options.keep_replaced is None else KeptDirectory(Path(options.keep_replaced), directories)
    locks = Locks(stack, only_check=options.only_reads, notes_held=options.dry_run)
    in_use = UseCheck(only_notes=options.dry_run, changes=not options.only_reads)
    journal = stack.enter_context(journal_at(options.written_journal, directories))
    planned = [*_planned(directories, plan_options, locks, in_use, journal, uninterrupted), *unusable]
    planned = [replace(each, applies_retention=options.apply_retention) for each in planned]
    outcomes = _in_order(planned, {canonical(path) for path in paths}, options, output)
    engine = _engine_of(outcomes, options, engine_options, output, stack)
    if output is not None and not engine.copies_in_tasks:  # A task looks itself.
        require_space_for_copies(output, outcomes, _side_by_side(engine, options))
    if not options.only_reads:
        require_plausible_clock(outcomes, plan_options)
    changed = [] if options.only_reads else _log_dirs_to_change(outcomes, options)
    if journal is not None and changed:
        journal.open()
    doubts = (*time_notes(outcomes, plan_options), *setting_doubts(outcomes, plan_options.overrides))
    return Round(
        outcomes=tuple(outcomes),
        options=options,
        plan_options=plan_options,
        notes=(
            *option_notes(directories, plan_options),
            *broker_file_notes(outcomes),
            *running_notes(outcomes),
            *locks.notes,
            *map(_removed_note, locks.removed),
            *in_use.notes,
            *(() if keep is None or options.dry_run else [_keep_note(keep, outcomes)]),
            *storage_notes(changed),
            *doubts,
        ),
        doubts=doubts,
        locks=locks,
        engines=engine,
        output=output,
        keep=keep,
        journal=journal,
    )


def _in_order(
    planned: Sequence[PartitionOutcome], named: Collection[Path], options: CleanOptions, output: Output | None
) -> list[PartitionOutcome]:
    """Return the partitions in the order of the cleaning, each with what prevents it. `named` are the paths."""
    outcomes = in_turns([_refused(each, options, is_named=each.directory in named, output=output) for each in planned])
    outcomes.sort(key=lambda each: not _only_loses_segments(each, options))
    return outcomes


def _bytes_to_read(outcomes: Sequence[PartitionOutcome]) -> int:
    """Return the bytes of the segments that will be rewritten."""
    plans = [outcome.turn for outcome in outcomes if outcome.is_eligible]
    return sum(plan.clean_bytes + plan.cleanable_bytes for plan in plans if plan is not None)


def _only_loses_segments(outcome: PartitionOutcome, options: CleanOptions) -> bool:
    """Return whether retention deletes segments of a partition that is not to be cleaned."""
    if not options.apply_retention or outcome.plan is None or outcome.error is not None or outcome.is_eligible:
        return False
    return bool(due_now(outcome.plan))


def _clean_what_fits_now(
    outcomes: list[PartitionOutcome], clean: Callable[[PartitionOutcome], PartitionOutcome]
) -> None:
    """Clean again what was refused for its space and fits now, because other partitions have freed space."""
    has_freed = True
    while has_freed:
        has_freed = False
        for number, outcome in enumerate(outcomes):
            if _fits_now(outcome):
                outcomes[number] = clean(replace(outcome, error=None))
                has_freed |= outcomes[number].is_cleaned


def _fits_now(outcome: PartitionOutcome) -> bool:
    """Return whether a partition was refused for its space, unchanged, and so much space is free now."""
    error = outcome.error
    if not isinstance(error, NotEnoughSpaceError) or error.why or outcome.plan is None or outcome.result is not None:
        return False
    with suppress(KcompactError, OSError):
        fits = Disk.of(outcome.directory).free_bytes >= error.needed_bytes
        return fits and read_again(outcome.plan.log).segments == outcome.plan.log.segments
    return False


def _log_dirs_to_change(outcomes: Sequence[PartitionOutcome], options: CleanOptions) -> list[Path]:
    changed = [each for each in outcomes if each.is_eligible or _only_loses_segments(each, options)]
    return sorted({outcome.directory.parent for outcome in changed})


def _keep_note(keep: KeptDirectory, outcomes: Sequence[PartitionOutcome]) -> Note:
    if any(each.is_eligible for each in outcomes):
        return keep.note
    return Note.of(RemarkCode.KEEPS_NOTHING, path=shown(keep.path))


def _removed_note(path: Path) -> Note:
    return Note.of(RemarkCode.LEFT_FILES_REMOVED, path=shown(path))


def _planned(
    directories: Sequence[Path],
    options: PlanOptions,
    locks: Locks,
    in_use: UseCheck,
    journal: Journal | None,
    uninterrupted: Callable[[], AbstractContextManager[None]],
) -> list[PartitionOutcome]:
    """Lock, recover and plan each partition that no broker uses."""
    planner = Planner(directories, options)

    @contextmanager
    def looking(directory: Path) -> Iterator[Callable[[Collection[FileIdentity]], None]]:
        """Yield what looks whether a broker uses a partition. After an error in the block that says more."""
        looks = locks.of(directory) is not None or not planner.log_dirs.of(directory).is_running

        def look(known: Collection[FileIdentity]) -> None:
            if looks:
                in_use.look_at(directory, known)

        try:
            yield look
        except PartitionInUseError:
            raise
        except KcompactError:
            look(())
            raise

    def begin(directory: Path) -> Recovery | RecoveryReport | None:
        planner.require_settings(directory)
        planner.require_replicas(directory)
        lock = locks.of(directory)
        if lock is None:
            return None
        with looking(directory) as look, uninterrupted():
            return begin_recovery(directory, log_dir=directory.parent, lock=lock, before=partial(look, ()))

    # Before the first plan, because recovery writes checkpoints.
    recovered = recover_each(directories, begin, journal=journal, uninterrupted=uninterrupted)

    def visit(directory: Path) -> PartitionOutcome:
        report = recovered.get(directory)
        if isinstance(report, KcompactError):
            raise report
        with looking(directory) as look:
            plan = planner.plan(directory)
        look([file for segment in plan.log.segments for file in segment.files])
        notes = [*plan.log.notes, *(() if report is None else report.notes)]
        notes += [] if plan.log.log_dir.is_log_dir else [Note.of(RemarkCode.COMPLETE_COPY)]
        return PartitionOutcome.of(replace(plan, log=replace(plan.log, notes=tuple(notes))))

    outcomes = walk_partitions(directories, visit, PartitionOutcome.failed)
    return [replace(each, recovered=_recovered(recovered.get(each.directory))) for each in outcomes]


def _recovered(report: RecoveryReport | KcompactError | None) -> str | None:
    """Return what recovery did in a word, None for nothing."""
    return report.status if isinstance(report, RecoveryReport) and report.changed else None


def _refused(
    outcome: PartitionOutcome, options: CleanOptions, *, is_named: bool, output: Output | None
) -> PartitionOutcome:
    """Return the outcome with the error or the result that prevents a cleaning, if there is one.

    Kafka's internal topics, and topics that the cluster does not have, are skipped if the path is a log directory, and
    refused if it is their own directory. A copy of a log directory or of topics takes them as they are.
    """
    plan = outcome.plan
    if plan is None or outcome.error is not None:
        return outcome
    if plan.reason is Reason.LEFTOVERS:
        names = (*plan.log.leftovers, *plan.log.staging)
        problem = RecoveryNeededError(path=outcome.directory, problem=plan.explanation, files=names)
        return replace(outcome, error=problem)
    if is_left_as_it_is(plan) and not is_named:
        is_copied = output is not None and output.takes(outcome.directory)
        return outcome if is_copied else replace(outcome, result=_skipped(outcome))
    return replace(outcome, error=refusal(plan) or (retention_refusal(plan) if options.apply_retention else None))
