"""The cleaning of one partition: from its plan to the checkpoint. Read this module first.

    plan = plan_partition(directory, config, now_ms=...)
    with log_dir_lock(directory.parent) as lock:
        result = clean_partition(plan, executor, lock=lock)

The stages find the survivors (`prepare_clean`). Then the groups are written in *waves*, as many groups as the free
space holds, and swapped in one by one: in ascending order, unless only another order fits (`order`). The checkpoint is
written last. If a round is interrupted before that, only time is lost: the next round repeats the work.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from kcompact import readable
from kcompact.clean.executor import Executor, Progress
from kcompact.clean.groups import GroupSize, Written, count_groups, map_bytes, write_groups
from kcompact.clean.job import CleanerStats
from kcompact.clean.prepare import PreparedClean, Tuning, prepare_clean
from kcompact.clean.staged_files import CleanedSegment, StagingDirectory
from kcompact.cleaner.in_use import require_unused
from kcompact.cleaner.options import CleanOptions
from kcompact.cleaner.preflight import obstacle
from kcompact.cleaner.retention import apply_retention, make_space, notes_on_active
from kcompact.cleaner.space import (
    StagingSpace,
    freed_by_deleting,
    reserved_for_exact_copy,
    shortage,
    shortage_of_copy,
)
from kcompact.errors import (
    CheckpointNotWrittenError,
    CorruptCheckpointError,
    KcompactError,
    LogChangedError,
    NotEnoughSpaceError,
    RecoveryNeededError,
    StorageError,
    as_failure,
)
from kcompact.host.disk import Disk
from kcompact.log.directory import read_again
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LogDirLock
from kcompact.notes import Note, NoteCode
from kcompact.plan.clean_plan import CleanPlan, Reason
from kcompact.plan.deletion import ExpiredSegment, plan_without, retention_comes_first
from kcompact.plan.partition import refusal, retention_refusal
from kcompact.swap.attributes import carry_over
from kcompact.swap.checkpoint import write_checkpoint
from kcompact.swap.copy import Output
from kcompact.swap.copy.journal import MARKER
from kcompact.swap.identity import identity_of
from kcompact.swap.keep import Keep
from kcompact.swap.kept import KeptGroup, KeptSegments
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.replace import replace_segments, require_unchanged
from kcompact.swap.staging import create_staging, discard, hand_over, take_back, write_manifest


class Status(enum.StrEnum):
    """What a round did with a partition. Errors are raised as exceptions.

    A dry run says `copied` of what the run copies as it is. `checkpoint-not-written`: all segments are cleaned and in
    place, and the next recovery or cleaning writes the checkpoint. `deleted`: retention deleted segments, and nothing
    was cleaned. `failed` only of a cleaning that failed after retention had deleted segments.
    """

    CLEANED = "cleaned"
    CHECKPOINT_NOT_WRITTEN = "checkpoint-not-written"
    COPIED = "copied"
    DELETED = "deleted"
    DRY_RUN = "dry-run"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanResult:
    """The result of a round on one partition.

    `end_offset` is the new checkpoint, or what it should be if it was not written. `map_s` is the time until the
    survivors were known; `sync_s` and `verify_s` are the seconds that all workers together spent on syncing and reading
    back. `expired` are the segments that retention deleted, or would have deleted in a dry run, before the cleaning or
    after it. `resumed`: an earlier run, which was interrupted, has made this copy. `stopped_by` is the error that the
    cleaning itself would end with, of a dry run; why it failed after retention had deleted segments; why the checkpoint
    was not written; or who replaced the staging directory. `notes` are remarks for the user. `replaced` are the groups
    that were replaced, `kept` those of them that were kept, with the digests of the old files.
    """

    directory: Path
    status: Status
    plan: CleanPlan | None = None
    stats: CleanerStats = field(default_factory=CleanerStats)
    end_offset: int | None = None
    engine: str | None = None
    map_s: float = 0.0
    sync_s: float = 0.0
    verify_s: float = 0.0
    elapsed_s: float = 0.0
    expired: tuple[ExpiredSegment, ...] = ()
    resumed: bool = False
    stopped_by: KcompactError | None = None
    notes: tuple[Note, ...] = ()
    replaced: tuple[CleanedSegment, ...] = ()
    kept: tuple[KeptGroup, ...] = ()

    def __str__(self) -> str:
        if self.end_offset is None:
            return f"{self.directory.name}: {self.status}"
        sizes = f"{readable.size(self.stats.bytes_read)} -> {readable.size(self.stats.bytes_written)}"
        records = f"{self.stats.messages_read:,} -> {self.stats.messages_written:,} records"
        end = f"clean up to offset {self.end_offset}"
        if self.status is Status.CHECKPOINT_NOT_WRITTEN:
            end = f"the checkpoint should be {self.end_offset}"
        return f"{self.directory.name}: {self.status}, {sizes}, {records}, {end}"

    def __repr__(self) -> str:
        return f"<CleanResult {self}>"


def clean_partition(
    plan: CleanPlan,
    executor: Executor,
    *,
    lock: LogDirLock | None,
    options: CleanOptions | None = None,
    progress: Progress | None = None,
    output: Output | None = None,
    keep: Keep | None = None,
) -> CleanResult:
    """Clean one partition by its plan. If it is not eligible, only copy it to the output, or reset its checkpoint.

    With `options.apply_retention` old segments are deleted: after the cleaning, or before it if a broker cleans another
    log first (`plan.comes_later`).
    `lock` is the held lock of the log directory. Only a dry run and a copy need no lock. `output` is the output of a
    round with `options.output`, entered except in a dry run; without it the partition is copied on its own; `keep` is
    the same for `options.keep_replaced`. Raises KcompactError: CorruptDataError and RefusedError with nothing changed,
    RecoveryNeededError if a swap stopped half-way. If only the checkpoint could not be written, the result says so and
    has the error as `stopped_by`.
    """
    options, progress = options or CleanOptions(), progress or Progress()
    if options.rebuild_indexes:
        plan = replace(plan, log=replace(plan.log, ignores_indexes=True))
    _require_allowed(plan, options, output)
    if options.output is not None and not options.dry_run:
        return _copied(plan, executor, options, progress, output)
    stopped_by = obstacle(plan, options, on_other_machines=executor.is_on_other_machines)
    if stopped_by is not None and not options.dry_run:
        raise stopped_by
    if retention_comes_first(plan) and (expired := apply_retention(plan, plan.log, lock, options)):
        return _cleaned_after_retention(plan, expired, executor, lock, options, progress, keep, stopped_by)
    if not plan.eligible:
        return replace(_skip(plan, lock, options), stopped_by=stopped_by)
    try:
        result = _cleaned(plan, executor, lock, options, progress, keep, stopped_by)
    except NotEnoughSpaceError:
        if not (expired := make_space(plan, lock, options)):
            raise
    else:
        is_short = options.dry_run and isinstance(result.stopped_by, NotEnoughSpaceError)
        if not is_short or not (expired := make_space(plan, lock, options)):
            return result
    return _cleaned_after_retention(plan, expired, executor, lock, options, progress, keep, None)


def _cleaned_after_retention(
    plan: CleanPlan,
    expired: tuple[ExpiredSegment, ...],
    executor: Executor,
    lock: LogDirLock | None,
    options: CleanOptions,
    progress: Progress,
    keep: Keep | None,
    stopped_by: KcompactError | None,
) -> CleanResult:
    """Clean a partition whose expired segments were deleted, or count what that would give.

    Of a dry run, `stopped_by` is what it has found. An error is part of the result, because segments were deleted.
    """
    directory = plan.log.directory
    files = [file for due in expired for file in plan.log.files_of(due.segment)] if options.dry_run else []
    remaining = plan_without(plan, expired)
    try:
        if remaining.eligible:
            freed_bytes = freed_by_deleting(directory, files, Disk.of(directory).block_bytes)
            result = _cleaned(remaining, executor, lock, options, progress, keep, stopped_by, freed_bytes=freed_bytes)
        else:
            result = replace(_skip(remaining, lock, options, has_deleted=True), stopped_by=stopped_by)
    except Exception as problem:
        result = CleanResult(directory=directory, status=Status.FAILED, stopped_by=as_failure(problem))
    return replace(result, plan=remaining, expired=(*expired, *result.expired))


def _cleaned(
    plan: CleanPlan,
    executor: Executor,
    lock: LogDirLock | None,
    options: CleanOptions,
    progress: Progress,
    keep: Keep | None,
    stopped_by: KcompactError | None,
    *,
    freed_bytes: int = 0,
) -> CleanResult:
    """Clean an eligible partition in place, or count what that would give.

    Of a dry run, `stopped_by` is what it has found, and `freed_bytes` is the space that the run would have by then.
    """
    started = time.monotonic()
    prepared = _prepare(plan, executor, options)
    map_s = time.monotonic() - started
    map_bytes_read = map_bytes(plan)  # Reads the offset index, which the swap replaces.
    progress.check()
    written, after, status = Written([], CleanerStats(), 0.0, 0.0), plan.log, Status.DRY_RUN
    done = Done(written)
    if options.dry_run:
        stats, sizes, after = count_groups(prepared, executor)
        written = written._replace(stats=stats)
        stopped_by = stopped_by or _shortage(plan, sizes, options, freed_bytes)
    else:
        done = _kept_and_cleaned(prepared, executor, _held(lock), progress, options, keep)
        written, stopped_by = done.written, done.stopped_by
        is_unwritten = isinstance(stopped_by, CheckpointNotWrittenError)
        status = Status.CHECKPOINT_NOT_WRITTEN if is_unwritten else Status.CLEANED
        after = read_again(plan.log) if options.apply_retention and stopped_by is None else plan.log
    return CleanResult(
        directory=plan.log.directory,
        status=status,
        plan=plan,
        stats=written.stats + CleanerStats(map_bytes_read=map_bytes_read, map_keys=prepared.map_keys),
        end_offset=plan.first_uncleanable_offset,
        engine=executor.name,
        map_s=map_s,
        sync_s=written.sync_s,
        verify_s=written.verify_s,
        expired=apply_retention(plan, after, lock, options) if stopped_by is None or options.dry_run else (),
        elapsed_s=time.monotonic() - started,
        stopped_by=stopped_by,
        notes=(*done.notes, *notes_on_active(plan, after, options)),
        replaced=tuple(done.written.segments),
        kept=done.kept,
    )


class Done(NamedTuple):
    """What a cleaning has done: the groups, the error if the log is cleaned and only the rest has failed, and notes."""

    written: Written
    stopped_by: KcompactError | None = None
    notes: tuple[Note, ...] = ()
    kept: tuple[KeptGroup, ...] = ()


def _kept_and_cleaned(
    prepared: PreparedClean,
    executor: Executor,
    lock: LogDirLock,
    progress: Progress,
    options: CleanOptions,
    keep: Keep | None,
) -> Done:
    """Clean the partition, and keep what is replaced if the options say so: in that of a round, or on its own."""
    plan = prepared.plan
    if options.keep_replaced is None:
        return _write_and_swap(prepared, executor, lock, progress, None)
    if keep is None:
        with Keep(Path(options.keep_replaced), [plan.log.directory]) as alone:
            return _kept_and_cleaned(prepared, executor, lock, progress, options, alone)
    with keep.partition(plan, lock) as kept:
        return _write_and_swap(prepared, executor, lock, progress, kept)._replace(kept=kept.groups)


def _require_allowed(plan: CleanPlan, options: CleanOptions, output: Output | None) -> None:
    """Raise the error that forbids to clean the partition, or to copy it to the output."""
    problem = refusal(plan)
    if problem is not None and not (output is not None and is_left_as_it_is(plan)):
        raise problem
    if options.apply_retention and (problem := retention_refusal(plan)) is not None:
        raise problem


def _skip(plan: CleanPlan, lock: LogDirLock | None, options: CleanOptions, *, has_deleted: bool = False) -> CleanResult:
    """Do what a round does with a partition that is not cleaned. `has_deleted`: it has lost old segments already."""
    if lock is not None and not options.dry_run:
        reset_checkpoint(plan, lock)
    expired = apply_retention(plan, plan.log, lock, options)
    status = Status.SKIPPED if options.output is None else Status.COPIED  # With an output, this is a dry run.
    if expired or has_deleted:
        status = Status.DRY_RUN if options.dry_run else Status.DELETED
    notes = notes_on_active(plan, plan.log, options)
    return CleanResult(directory=plan.log.directory, status=status, plan=plan, expired=expired, notes=notes)


def reset_checkpoint(plan: CleanPlan, lock: LogDirLock) -> None:
    """Move the checkpoint of a compacted partition to the log start if it lies outside the log.

    Otherwise the growing log could reach the checkpoint later. Everything below it would then count as clean although
    no cleaning has read it, and tombstones would be dropped before the values that they delete.
    Rule: `LogCleanerManager.grabFilthiestCompactedLog`, which resets checkpoints before it chooses a log.
    """
    if _resets_checkpoint(plan):
        lock.check()
        with _log_dir(plan, lock) as log_dir:
            write_checkpoint(log_dir, plan.log.topic_partition, plan.first_dirty_offset)


def _resets_checkpoint(plan: CleanPlan) -> bool:
    return plan.checkpoint_reset and plan.config.compacts


def _checkpoint_of_copy(plan: CleanPlan) -> int | None:
    """Return the checkpoint that a cleaning in place would leave, None without an entry."""
    if plan.eligible:
        return plan.first_uncleanable_offset
    return plan.first_dirty_offset if _resets_checkpoint(plan) else plan.log.checkpoint_offset


def _log_dir(plan: CleanPlan, lock: LogDirLock) -> OpenDirectory:
    """Return the log directory that is locked, whatever its path leads to by now."""
    return OpenDirectory(plan.log.log_dir.path, fd=lock.directory_fd)


def _prepare(plan: CleanPlan, executor: Executor, options: CleanOptions) -> PreparedClean:
    """Return the survivors."""
    return prepare_clean(
        plan,
        executor,
        keep_tombstones=options.keep_tombstones,
        max_bytes_per_second=options.max_bytes_per_second,
        tuning=Tuning(memory_bytes=options.memory_bytes),
    )


def _shortage(
    plan: CleanPlan, sizes: Sequence[GroupSize], options: CleanOptions, freed_bytes: int
) -> NotEnoughSpaceError | None:
    keeps = options.keep_replaced is not None
    return (
        shortage(plan, sizes, Disk.of(plan.log.directory).without(-freed_bytes), keeps=keeps)
        if options.output is None
        else shortage_of_copy(plan, sizes, Path(options.output))
    )


def is_left_as_it_is(plan: CleanPlan) -> bool:
    """Return whether a round of a log directory skips the partition, or copies it as it is, although it is refused.

    These are Kafka's internal topics, and topics of unknown policy that the cluster does not have. Not a topic with
    tiered storage: the brokers of both copies would delete the same remote segments.
    """
    is_stray = any(note.code is NoteCode.STRAY_REPLICA for note in plan.log.notes)
    return plan.reason is Reason.INTERNAL or (is_stray and plan.reason is Reason.POLICY_UNKNOWN)


def _copied(
    plan: CleanPlan, executor: Executor, options: CleanOptions, progress: Progress, output: Output | None
) -> CleanResult:
    """Copy the partition to the output of a round, or on its own."""
    if output is not None:
        return _copy(plan, executor, options, progress, output)
    assert options.output is not None
    with Output(Path(options.output), [plan.log.directory], resumable=False) as alone:
        return _copy(plan, executor, options, progress, alone)


def _copy(
    plan: CleanPlan, executor: Executor, options: CleanOptions, progress: Progress, output: Output
) -> CleanResult:
    """Write a copy of the partition, compacted if it is eligible, unless an interrupted run has made the same copy."""
    recipe = _recipe(plan, options)
    checkpoint_offset = _checkpoint_of_copy(plan)
    finished = output.finished(plan.log, recipe, checkpoint_offset=checkpoint_offset)
    if finished is not None:
        return _resumed(plan, finished, output)
    started = time.monotonic()
    if not plan.eligible:
        with (
            reserved_for_exact_copy(plan, output.path, progress),
            output.partition(plan.log, checkpoint_offset=checkpoint_offset, recipe=recipe) as unfinished,
        ):
            unfinished.fill(check=progress.check)
            unfinished.outcome = {"status": Status.COPIED}
        return CleanResult(directory=plan.log.directory, status=Status.COPIED, plan=plan)
    prepared = _prepare(plan, executor, options)
    map_s = time.monotonic() - started
    progress.check()
    space = StagingSpace(prepared, executor, progress)
    with (
        space.reserved_for_copy(output.path),
        output.partition(plan.log, checkpoint_offset=checkpoint_offset, recipe=recipe) as unfinished,
    ):
        written = write_groups(space.prepared, range(len(plan.groups)), unfinished.staging, executor)
        unfinished.fill(written.segments, progress.check)
        result = CleanResult(
            directory=plan.log.directory,
            status=Status.CLEANED,
            plan=plan,
            stats=written.stats + CleanerStats(map_bytes_read=map_bytes(plan), map_keys=prepared.map_keys),
            end_offset=plan.first_uncleanable_offset,
            engine=executor.name,
            map_s=map_s,
            sync_s=written.sync_s,
            verify_s=written.verify_s,
            elapsed_s=time.monotonic() - started,
        )
        unfinished.outcome = {name: getattr(result, name) for name in _OUTCOME} | {"stats": asdict(result.stats)}
    return result


_SECONDS = ("map_s", "sync_s", "verify_s", "elapsed_s")
_OUTCOME = ("status", "end_offset", "engine", *_SECONDS)


def _recipe(plan: CleanPlan, options: CleanOptions) -> dict[str, Any]:
    """Return everything but the source and the time that the copy of a partition depends on, for its record.

    The source is its files and its entries in the checkpoints.
    """
    if not plan.eligible:
        return {"end_offset": None, "rebuild_indexes": plan.log.ignores_indexes}
    settings = {field.name: getattr(plan.config, field.name) for field in fields(plan.config) if field.compare}
    return {
        "first_dirty_offset": plan.first_dirty_offset,
        "end_offset": plan.first_uncleanable_offset,
        "keep_tombstones": options.keep_tombstones,
        "rebuild_indexes": plan.log.ignores_indexes,
        "config": settings | {"cleanup_policy": plan.config.policy_text},
    }


def _resumed(plan: CleanPlan, outcome: dict[str, Any], output: Output) -> CleanResult:
    """Return the result that an interrupted run has recorded. Raises CorruptCheckpointError for a damaged record."""
    try:
        stats = CleanerStats(**outcome.get("stats", {}))
        known = {**outcome, "status": Status(outcome["status"]), "stats": stats}
        result = CleanResult(directory=plan.log.directory, plan=plan, resumed=True, **known)
        numbers = [*asdict(stats).values(), *(getattr(result, name) for name in _SECONDS), result.end_offset or 0]
        if any(type(number) not in (int, float) for number in numbers) or type(result.engine) not in (str, type(None)):
            raise TypeError("not a number")
    except (AttributeError, KeyError, TypeError, ValueError):
        problem = f"the record of {plan.log.directory.name} is damaged"
        hint = f"Pass another --output directory, or remove {readable.shell_word(output.path)} to begin anew."
        raise CorruptCheckpointError(file=output.path / MARKER, problem=problem, hint=hint) from None
    return result


def _write_and_swap(
    prepared: PreparedClean, executor: Executor, lock: LogDirLock, progress: Progress, kept: KeptSegments | None
) -> Done:
    """Write the groups wave by wave, swap them in, write the checkpoint, and remove the staging directory.

    The partition directory, the staging directory and the log directory are held open from here on, and everything is
    reached through these descriptors: their owner may put links in their places meanwhile.
    """
    plan = prepared.plan
    space = StagingSpace(prepared, executor, progress, keeps=kept is not None)
    space.require()
    with OpenDirectory(plan.log.directory) as directory:
        lock.require_parent_of(directory.path, directory.fd())
        require_unchanged(directory, (file for segment in plan.log.segments for file in segment.files))
        staging = create_staging(directory)
        try:
            total = _swap_in_waves(prepared, executor, lock, progress, space, directory, staging, kept)
        except RecoveryNeededError:
            raise  # Recovery needs the staging directory.
        except BaseException:
            with contextlib.suppress(KcompactError, OSError):
                discard(directory, staging)
            raise
        unwritten = _write_end(plan, lock, directory)
        if unwritten is not None:
            return Done(total, unwritten)  # Recovery writes the checkpoint, from the manifest.
        try:
            discard(directory, staging)
        except LogChangedError as problem:
            return Done(total, problem)
        except (StorageError, NotEnoughSpaceError) as problem:
            return Done(total, notes=(_still_there(problem, directory.path / staging),))
        return Done(total)


def _still_there(problem: KcompactError, staging: Path) -> Note:
    return Note.of(NoteCode.STAGING_STAYS, path=staging, why=str(problem).splitlines()[0])


def _write_end(plan: CleanPlan, lock: LogDirLock, directory: OpenDirectory) -> CheckpointNotWrittenError | None:
    """Write the checkpoint after the last swap. Return the error if that fails: the segments are cleaned anyway."""
    try:
        lock.check()
        require_unchanged(directory, _untouched(plan))
        with _log_dir(plan, lock) as log_dir:
            write_checkpoint(log_dir, plan.log.topic_partition, plan.first_uncleanable_offset)
    except Exception as problem:
        return CheckpointNotWrittenError(path=plan.log.directory, problem=as_failure(problem))
    return None


def _untouched(plan: CleanPlan) -> list[FileIdentity]:
    """Return the files that no cleaning changes. The lock keeps other writers out; a change shows one without it."""
    untouched = [file for segment in plan.log.segments[len(plan.segments) :] for file in segment.files]
    return [*untouched, *plan.log.orphans]


def _swap_in_waves(
    prepared: PreparedClean,
    executor: Executor,
    lock: LogDirLock,
    progress: Progress,
    space: StagingSpace,
    directory: OpenDirectory,
    staging: str,
    kept: KeptSegments | None,
) -> Written:
    plan = prepared.plan
    with _log_dir(plan, lock) as log_dir:
        identity = identity_of(directory, log_dir)
    where = StagingDirectory.of(directory.path / staging, directory.fd(staging))
    total = Written([], CleanerStats(), 0.0, 0.0)
    # Closed in any case, because each wave has reserved its space.
    with contextlib.closing(space.waves()) as waves:
        for wave in waves:
            take_back(directory, staging)
            written = write_groups(space.prepared, wave, where, executor)
            total = total.plus(written)
            for segment in written.segments:
                carry_over(directory, staging, segment)
            if kept is not None:
                kept.keep(directory, written.segments, progress.check)
            # Recovery compares the checkpoint with the segment that follows these groups.
            is_end = len(total.segments) == len(plan.groups) and wave[-1] == len(plan.groups) - 1
            write_manifest(
                directory,
                staging,
                written.segments,
                identity=identity,
                end_offset=plan.first_uncleanable_offset if is_end else None,
            )
            require_unchanged(directory, _untouched(plan))
            require_unused(directory.path)
            seals = hand_over(directory, staging, written.segments)
            for segment in written.segments:
                progress.check()  # A swap that has begun is always finished.
                if kept is not None:
                    kept.has_swapped = True
                replace_segments(directory, staging, segment, lock.check, orphans=plan.log.orphans, seals=seals)
    return total


def _held(lock: LogDirLock | None) -> LogDirLock:
    assert lock is not None, "a partition is only changed under the lock of its log directory"
    return lock
