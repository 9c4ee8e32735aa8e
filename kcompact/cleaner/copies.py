"""Copies with `output`: the output of a round, what it is a copy of, and the copy of one partition."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from kcompact.bucket.scratch import as_path
from kcompact.clean.held_back import HeldBack
from kcompact.clean.job import CleanerStats
from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.outcome import CleaningTimes, CleanResult, Copied, PartitionOutcome, Status
from kcompact.cleaner.small_partitions import SideBySide
from kcompact.cleaner.space import reserved_for_exact_copy
from kcompact.cleaner.writing import InOneTask, InStages, NeedsStagesError, Writing, for_a_worker
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.errors import (
    CleaningAbortedError,
    CorruptCheckpointError,
    KcompactError,
    RefusedError,
    UnfinishedCopyError,
)
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.discovery import canonical
from kcompact.plan.options import PlanOptions
from kcompact.plan.verdict import Reason
from kcompact.readable import shell_word
from kcompact.remarks import RemarkCode
from kcompact.stages.executor import Executor, Whole
from kcompact.swap.copy import BucketOutput, Output, OutputPart, output_at
from kcompact.swap.copy.marker import MARKER, FinishedDirectory

# --- The output of a round ------------------------------------------------------------------------------


def output_of(
    paths: Sequence[Path], directories: Sequence[Path], plan_options: PlanOptions, options: CleanOptions
) -> Output | None:
    """Return the checked output of a round, None without one. Nothing is written yet.

    A single log directory is copied completely. Partition directories, and chosen partitions, are copied
    without the files that make a log directory. Raises RefusedError, LogDirLockedError, StorageError.
    """
    if options.output is None or not directories:
        return None
    output = as_path(options.output)
    parents = {directory.parent for directory in directories}
    named = [canonical(path) for path in paths]
    log_dirs = [directory for directory in named if directory in parents and directory not in directories]
    if log_dirs and plan_options.selection.selects_all:
        if len(paths) > 1:
            raise RefusedError(
                path=output,
                problem=f"cannot become a copy of {len(paths)} paths: a log directory is copied alone",
                hint="Run the command once for each log directory, each with its own --output. Partitions may be on "
                "their way from one to the other: add --broker-config FILE, whose log.dirs names all of them.",
            )
        return output_at(output, log_dir=log_dirs[0], max_bytes_per_second=options.max_bytes_per_second)
    copied = [directory for directory in directories if directory.name != METADATA_DIRECTORY]
    return output_at(output, copied, max_bytes_per_second=options.max_bytes_per_second)


def require_space_for_copies(output: Output, outcomes: Sequence[PartitionOutcome], how: SideBySide) -> None:
    """Raise NotEnoughSpaceError if the copies of all partitions may not fit the file system of the output."""
    planned = {outcome.directory: outcome for outcome in outcomes if outcome.plan is not None and outcome.error is None}

    def together(directory: Path) -> bool:
        return directory in planned and how.takes(planned[directory])

    output.require_space([directory for directory in planned if output.takes(directory)], together, how.threads)


def finish(output: Output, partitions: Sequence[PartitionOutcome], check: Callable[[], None]) -> Copied:
    """Complete the output, and return what was copied with the error if it is unfinished."""
    error: KcompactError | None = None
    try:
        report = output.finish(check)
    except KcompactError as problem:
        report, error = output.report(), problem
    is_stopped = error is None or isinstance(error, CleaningAbortedError)
    if is_stopped and report.finished and not report.is_finished:
        failures = [outcome.error for outcome in partitions if outcome.error is not None]
        is_interrupted = all(isinstance(failure, CleaningAbortedError) for failure in failures)
        error = UnfinishedCopyError(path=output.path, missing=report.missing, is_interrupted=is_interrupted)
    return Copied(report=report, error=error)


# --- The copy of one partition --------------------------------------------------------------------------


def is_left_as_it_is(plan: CleanPlan) -> bool:
    """Return whether a round of a log directory skips the partition, or copies it as it is, although it is refused.

    These are Kafka's internal topics, topics of unknown policy that the cluster does not have, and partitions that are
    being moved. Not a topic with tiered storage: the brokers of both copies would delete the same remote segments.
    """
    is_stray = any(note.code is RemarkCode.STRAY_REPLICA for note in plan.log.notes)
    is_set_apart = plan.reason in (Reason.INTERNAL, Reason.PAUSED_BY_MOVE)
    return is_set_apart or (is_stray and plan.reason is Reason.POLICY_UNKNOWN)


def copy_partition(cleaning: Cleaning) -> CleanResult:
    """Copy a partition to the output of a round, or on its own. Raises KcompactError, with the source unchanged."""
    if cleaning.output is not None:
        return _copied(cleaning, cleaning.output)
    assert cleaning.options.output is not None
    path, limit = as_path(cleaning.options.output), cleaning.options.max_bytes_per_second
    directories = [cleaning.plan.log.directory]
    with output_at(path, directories, max_bytes_per_second=limit) as alone:
        result = _copied(cleaning, alone)
        alone.finish(cleaning.progress.check)
        return result


def _copied(cleaning: Cleaning, output: Output) -> CleanResult:
    """Write a copy of the partition, compacted if it is eligible, unless an interrupted run has made the same copy."""
    plan = cleaning.plan
    recipe, checkpoint_offset = _recipe(cleaning), _checkpoint_of_copy(plan)
    finished = output.finished(plan.log, recipe, checkpoint_offset=checkpoint_offset)
    if finished is not None:
        return _resumed(plan, finished, output)
    if isinstance(output, BucketOutput) and cleaning.executor.whole_bytes >= 0:
        return _copied_by_task(cleaning, output)
    with plan.log.files.on_disk(output.pace(cleaning.progress.check).take):
        return _written(cleaning, output, recipe, checkpoint_offset)


class _CopyTask(NamedTuple):
    """What a worker needs to copy a partition to its part of an output."""

    plan: CleanPlan
    part: OutputPart
    options: CleanOptions


def _copied_by_task(cleaning: Cleaning, output: BucketOutput) -> CleanResult:
    """Have one worker fetch, clean and upload the partition: no bytes of its log come to this process."""
    plan, options = cleaning.plan, cleaning.options
    task = _CopyTask(for_a_worker(plan), output.part(plan.log.directory), options)
    size_bytes = sum(segment.size_bytes for segment in plan.segments or plan.log.segments)
    whole = Whole(("scan", "write") if plan.eligible else (), size_bytes, options.memory_bytes)
    record = cleaning.executor.run_whole(copy_in_task, task, whole)
    output.add(record)
    # The record may be that of an earlier attempt of the task.
    return replace(_resumed(plan, record.outcome, output), resumed=False)


def copy_in_task(executor: Executor, memory_bytes: int | None, task: _CopyTask) -> FinishedDirectory:
    """Copy a partition to its part of an output, and return the record. Raises KcompactError, as `copy_partition`.

    Every attempt uploads under keys of its own, and one creates the manifest. Another one that made the same copy, at
    the same time or later, returns its record as well.
    """
    options = replace(task.options, memory_bytes=memory_bytes)
    directory = task.part.source
    with task.part.open() as output:
        output.require_space([directory], lambda path: False, 1)
        _copied(Cleaning(plan=task.plan, executor=executor, lock=None, options=options, output=output), output)
        return output.record(directory.name)


def _written(cleaning: Cleaning, output: Output, recipe: dict[str, Any], checkpoint_offset: int | None) -> CleanResult:
    """Write a copy of the partition, compacted if it is eligible. Its files are on the local disk."""
    plan, progress = cleaning.plan, cleaning.progress
    if not plan.eligible:
        with (
            reserved_for_exact_copy(plan, output.path, progress),
            output.partition(
                plan.log, checkpoint_offset=checkpoint_offset, recipe=recipe, check=progress.check
            ) as unfinished,
        ):
            unfinished.fill(check=progress.check)
            unfinished.outcome = {"status": Status.COPIED}
        return CleanResult(plan=plan, status=Status.COPIED)
    if InOneTask.suits(cleaning):
        with suppress(NeedsStagesError):
            return _compacted(InOneTask, cleaning, output, recipe)
    return _compacted(InStages, cleaning, output, recipe)


def _compacted(
    way: Callable[[Cleaning], Writing], cleaning: Cleaning, output: Output, recipe: dict[str, Any]
) -> CleanResult:
    """Write a compacted copy of an eligible partition. Raises NeedsStagesError with nothing written."""
    plan, started = cleaning.plan, time.monotonic()
    writing = way(cleaning)
    with (
        writing.reserved_for_copy(output.path),
        output.partition(
            plan.log,
            checkpoint_offset=_checkpoint_of_copy(plan),
            recipe=recipe,
            check=cleaning.progress.check,
        ) as unfinished,
    ):
        written = writing.write(range(len(plan.groups)), unfinished.make_staging())
        unfinished.fill(written.segments, cleaning.progress.check)
        map_keys, map_bytes, map_s = writing.survey
        result = CleanResult(
            plan=plan,
            status=Status.CLEANED,
            stats=written.stats + CleanerStats(map_bytes_read=map_bytes, map_keys=map_keys),
            held_back=HeldBack.of(written.counts),
            end_offset=plan.first_uncleanable_offset,
            engine=cleaning.executor.name,
            times=CleaningTimes(
                map_s=map_s,
                sync_s=written.sync_s,
                verify_s=written.verify_s,
                elapsed_s=time.monotonic() - started,
            ),
        )
        unfinished.outcome = _outcome(result)
    return replace(result, notes=result.held_back_notes)


def _checkpoint_of_copy(plan: CleanPlan) -> int | None:
    """Return the checkpoint that a cleaning in place would leave, None without an entry."""
    if plan.eligible:
        return plan.first_uncleanable_offset
    is_reset = plan.checkpoint_reset and plan.config.compacts
    return plan.first_dirty_offset if is_reset else plan.log.checkpoint_offset


def _recipe(cleaning: Cleaning) -> dict[str, Any]:
    """Return everything but the source and the time that the copy of a partition depends on, for its record.

    The source is its files and its entries in the checkpoints.
    """
    plan = cleaning.plan
    if not plan.eligible:
        return {"end_offset": None, "rebuild_indexes": plan.log.ignores_indexes}
    settings = {field.name: getattr(plan.config, field.name) for field in fields(plan.config) if field.compare}
    return {
        "first_dirty_offset": plan.first_dirty_offset,
        "end_offset": plan.first_uncleanable_offset,
        "keep_tombstones": cleaning.options.keep_tombstones,
        "expires_without_horizon": plan.config.expires_without_horizon,
        "held_back_from_offset": plan.held_back_from_offset,
        "rebuild_indexes": plan.log.ignores_indexes,
        "config": settings | {"cleanup_policy": plan.config.policy_text, "release": plan.config.release.version},
    }


def _outcome(result: CleanResult) -> dict[str, Any]:
    """Return the result of a compacted copy, for its record."""
    times = result.times
    return {
        "status": result.status,
        "end_offset": result.end_offset,
        "engine": result.engine,
        "map_s": times.map_s,
        "sync_s": times.sync_s,
        "verify_s": times.verify_s,
        "elapsed_s": times.elapsed_s,
        "stats": asdict(result.stats),
        "held_back": None if result.held_back is None else asdict(result.held_back),
    }


def _resumed(plan: CleanPlan, outcome: dict[str, Any], output: Output) -> CleanResult:
    """Return the result that an interrupted run has recorded. Raises CorruptCheckpointError for a damaged record."""
    try:
        known = {**outcome}
        times = CleaningTimes(**{each.name: known.pop(each.name, 0.0) for each in fields(CleaningTimes)})
        stats = CleanerStats(**known.pop("stats", {}))
        counted = known.pop("held_back", None)
        held_back = None if counted is None else HeldBack(**counted)
        status = Status(known.pop("status"))
        result = CleanResult(
            plan=plan, status=status, stats=stats, held_back=held_back, times=times, resumed=True, **known
        )
        numbers = [*asdict(stats).values(), *asdict(times).values(), result.end_offset or 0]
        numbers += [] if held_back is None else asdict(held_back).values()
        if any(type(number) not in (int, float) for number in numbers) or type(result.engine) not in (str, type(None)):
            raise TypeError("not a number")
    except (AttributeError, KeyError, TypeError, ValueError):
        problem = f"the record of {plan.log.directory.name} is damaged"
        hint = f"Pass another --output directory, or remove {shell_word(output.path)} to begin anew."
        raise CorruptCheckpointError(file=output.path / MARKER, problem=problem, hint=hint) from None
    return replace(result, notes=result.held_back_notes)
