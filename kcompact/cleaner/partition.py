"""The cleaning of one partition in place: from its plan to the checkpoint. Read this module first.

    plan = plan_partition(directory, config, now_ms=...)
    with log_dir_lock(directory.parent) as lock:
        result = clean_partition(plan, executor, lock=lock)

The stages find the survivors (`prepare_clean`). Then the groups are written in *waves*, as many groups as the free
space holds, and swapped in one by one: in ascending order, unless only another order fits (`order`). The checkpoint is
written last (`round_end`), in a round for many partitions at once: `swap_in` does all before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from kcompact.bucket.scratch import as_path
from kcompact.clean.groups import GroupSize, WrittenGroups
from kcompact.clean.held_back import HeldBack
from kcompact.clean.job import CleanerStats
from kcompact.clean.staged_files import CleanedSegment, StagingDirectory
from kcompact.clean.transactions import lost_transaction_indexes
from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.copies import copy_partition, is_left_as_it_is
from kcompact.cleaner.in_use import require_unused
from kcompact.cleaner.journal import Journal, journal_at
from kcompact.cleaner.outcome import CleaningTimes, CleanResult, Status, SwappedGroups
from kcompact.cleaner.preflight import obstacle, require_known_versions
from kcompact.cleaner.retention import apply_retention, make_space, notes_on_active
from kcompact.cleaner.round_end import SwappedPartition, end, untouched
from kcompact.cleaner.space import freed_by_deleting, shortage, shortage_of_copy
from kcompact.cleaner.writing import InOneTask, InStages, NeedsStagesError, Writing
from kcompact.errors import KcompactError, NotEnoughSpaceError, RecoveryNeededError
from kcompact.failures import as_failure
from kcompact.format.names import Suffix
from kcompact.host.disk import Disk
from kcompact.log.directory import PartitionLog, read_again
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LogDirLock
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import ExpiredSegment, plan_without, retention_comes_first
from kcompact.plan.partition import refusal, retention_refusal
from kcompact.stages.executor import Executor, Progress
from kcompact.swap.attributes import StagedStatuses, carry_over
from kcompact.swap.checkpoint import write_checkpoints
from kcompact.swap.identity import PartitionIdentity, identity_under_lock
from kcompact.swap.kept.links import KeptDirectory, KeptLinks
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.replace import NamesInPartition, replace_segments, require_unchanged
from kcompact.swap.small_files import write_small_file
from kcompact.swap.staging import create_staging, discard, hand_over, take_back, write_manifest
from kcompact.swap.steps import Remove, Rename, SyncDir


def clean_partition(
    plan: CleanPlan,
    executor: Executor,
    *,
    lock: LogDirLock | None,
    options: CleanOptions | None = None,
    progress: Progress | None = None,
) -> CleanResult:
    """Clean one partition by its plan. If it is not eligible, only copy it to the output, or reset its checkpoint.

    With `options.apply_retention` old segments are deleted: after the cleaning, or before it if a broker cleans another
    log first (`plan.comes_later`).
    `lock` is the held lock of the log directory. Only a dry run and a copy need no lock.
    Raises KcompactError: CorruptDataError and RefusedError with nothing changed, RecoveryNeededError if a swap stopped
    half-way. If only the checkpoint could not be written, the result says so and has the error as `stopped_by`.
    """
    options, progress = options or CleanOptions(), progress or Progress()
    with journal_at(options.written_journal, [plan.log.directory]) as journal:
        return perform(
            Cleaning(plan=plan, executor=executor, lock=lock, options=options, progress=progress, journal=journal)
        )


def perform(cleaning: Cleaning) -> CleanResult:
    """Clean a partition as `clean_partition`, in a round or on its own. Raises the same."""
    done = swap_in(cleaning)
    return end([done], cleaning.journal)[0] if isinstance(done, SwappedPartition) else done


def swap_in(cleaning: Cleaning) -> SwappedPartition | CleanResult:
    """Clean a partition up to the checkpoint, which the caller writes with `end`; return the result if none is due.

    With retention the checkpoint is written here, because segments are deleted after it. Raises as `clean_partition`.
    """
    with _failure_in_journal(cleaning, to_replace=cleaning.options.turn(cleaning.plan).segments) as journal:
        done = _swapped_in(cleaning)
    return done if journal is None or isinstance(done, SwappedPartition) else journal.end([done])[0]


def delete_old_segments(cleaning: Cleaning) -> CleanResult:
    """Delete what retention deletes now, and clean nothing. Raises as `clean_partition`."""
    with _failure_in_journal(cleaning, to_replace=()) as journal:
        done = _skip(cleaning)
    return done if journal is None else journal.end([done])[0]


@contextmanager
def _failure_in_journal(cleaning: Cleaning, *, to_replace: Sequence[Segment]) -> Iterator[Journal | None]:
    """Write the first line of the journal, without which nothing is changed, and of a block that fails the last one.

    Yields the journal, None without one and if nothing is to be changed. Raises as `Journal.begin`.
    """
    journal, plan, options = cleaning.journal, cleaning.plan, cleaning.options
    to_delete = options.to_delete(plan)
    if journal is None or not (to_replace or to_delete):
        yield None
        return
    fields = {name: value for name, value in asdict(options).items() if name != "journal"}
    journal.begin(plan, fields, to_replace=to_replace, to_delete=to_delete)
    try:
        yield journal
    except Exception as problem:
        journal.fail(plan.log.directory, as_failure(problem))
        raise


def _swapped_in(cleaning: Cleaning) -> SwappedPartition | CleanResult:
    options = cleaning.options
    if options.rebuild_indexes:
        plan = cleaning.plan
        cleaning = replace(cleaning, plan=replace(plan, log=replace(plan.log, ignores_indexes=True)))
    plan = cleaning.plan
    _require_allowed(cleaning)
    if options.output is not None and not options.dry_run:
        return copy_partition(cleaning)
    on_other_machines = cleaning.executor.is_on_other_machines
    stopped_by = obstacle(plan, options, lock=cleaning.lock, on_other_machines=on_other_machines)
    if stopped_by is not None and not options.dry_run:
        raise stopped_by
    if retention_comes_first(plan) and (expired := apply_retention(plan, plan.log, cleaning.lock, options)):
        return _cleaned_after_retention(cleaning, expired, stopped_by)
    if not plan.eligible:
        return replace(_skip(cleaning), stopped_by=stopped_by)
    try:
        result = _cleaned(cleaning, stopped_by)
    except NotEnoughSpaceError:
        if not (expired := make_space(plan, cleaning.lock, options)):
            raise
    else:
        if isinstance(result, SwappedPartition):
            return result
        # What retention lacks (`obstacle`) stops the run before it can make space.
        is_short = options.dry_run and stopped_by is None and isinstance(result.stopped_by, NotEnoughSpaceError)
        if not is_short or not (expired := make_space(plan, cleaning.lock, options)):
            return result
    return _cleaned_after_retention(cleaning, expired, None)


def _require_allowed(cleaning: Cleaning) -> None:
    """Raise the error that forbids to clean the partition, or to copy it to the output."""
    problem = refusal(cleaning.plan)
    if problem is not None and not (cleaning.output is not None and is_left_as_it_is(cleaning.plan)):
        raise problem
    if cleaning.plan.eligible or cleaning.options.apply_retention:
        require_known_versions(cleaning.plan.log)
    if cleaning.options.apply_retention and (problem := retention_refusal(cleaning.plan)) is not None:
        raise problem


def _cleaned_after_retention(
    cleaning: Cleaning, expired: tuple[ExpiredSegment, ...], stopped_by: KcompactError | None
) -> CleanResult:
    """Clean a partition whose expired segments were deleted, or count what that would give.

    Of a dry run, `stopped_by` is what it has found. An error is part of the result, because segments were deleted.
    """
    log = cleaning.plan.log
    files = [file for due in expired for file in log.files_of(due.segment)] if cleaning.options.dry_run else []
    remaining = replace(cleaning, plan=plan_without(cleaning.plan, expired))
    try:
        if remaining.plan.eligible:
            freed_bytes = freed_by_deleting(log.directory, files, Disk.of(log.directory))
            cleaned = _cleaned(remaining, stopped_by, freed_bytes=freed_bytes)
            assert isinstance(cleaned, CleanResult), "with retention the checkpoint is written at once"
            result = cleaned
        else:
            result = replace(_skip(remaining, has_deleted=True), stopped_by=stopped_by)
    except Exception as problem:
        result = CleanResult(plan=remaining.plan, status=Status.FAILED, stopped_by=as_failure(problem))
    return replace(result, plan=remaining.plan, expired=(*expired, *result.expired))


def _skip(cleaning: Cleaning, *, has_deleted: bool = False) -> CleanResult:
    """Do what a round does with a partition that is not cleaned. `has_deleted`: it has lost old segments already."""
    plan, lock, options = cleaning.plan, cleaning.lock, cleaning.options
    if lock is not None and not options.dry_run:
        reset_checkpoint(plan, lock)
    expired = apply_retention(plan, plan.log, lock, options)
    status = Status.SKIPPED if options.output is None else Status.COPIED  # With an output, this is a dry run.
    if expired or has_deleted:
        status = Status.DRY_RUN if options.dry_run else Status.DELETED
    return CleanResult(plan=plan, status=status, expired=expired, notes=notes_on_active(plan, plan.log, options))


def reset_checkpoint(plan: CleanPlan, lock: LogDirLock) -> None:
    """Move the checkpoint of a compacted partition to the log start if it lies outside the log.

    Otherwise the growing log could reach the checkpoint later. Everything below it would then count as clean although
    no cleaning has read it, and tombstones would be dropped before the values that they delete.
    Rule: `LogCleanerManager.grabFilthiestCompactedLog`, which resets checkpoints before it chooses a log.
    """
    if plan.checkpoint_reset and plan.config.compacts:
        lock.check()
        with OpenDirectory.of_log_dir(plan.log.log_dir.path, lock) as log_dir:
            write_checkpoints(log_dir, {plan.log.topic_partition: plan.first_dirty_offset})


# --- An eligible partition ------------------------------------------------------------------------------


def _cleaned(
    cleaning: Cleaning, stopped_by: KcompactError | None, *, freed_bytes: int = 0
) -> SwappedPartition | CleanResult:
    """Clean an eligible partition in place, or count what that would give.

    Of a dry run, `stopped_by` is what it has found, and `freed_bytes` is the space that the run would have by then.
    """
    if InOneTask.suits(cleaning):
        with suppress(NeedsStagesError):
            return _cleaned_by(InOneTask, cleaning, stopped_by, freed_bytes)
    return _cleaned_by(InStages, cleaning, stopped_by, freed_bytes)


def _cleaned_by(
    way: Callable[[Cleaning], Writing], cleaning: Cleaning, stopped_by: KcompactError | None, freed_bytes: int
) -> SwappedPartition | CleanResult:
    plan, options = cleaning.plan, cleaning.options
    started = time.monotonic()
    writing = way(cleaning)

    def completed(result: CleanResult, after: PartitionLog, expired: tuple[ExpiredSegment, ...] = ()) -> CleanResult:
        map_keys, map_bytes, map_s = writing.survey
        return replace(
            result,
            stats=result.stats + CleanerStats(map_bytes_read=map_bytes, map_keys=map_keys),
            end_offset=plan.first_uncleanable_offset,
            engine=cleaning.executor.name,
            times=replace(result.times, elapsed_s=time.monotonic() - started, map_s=map_s),
            expired=expired,
            notes=(*result.notes, *result.held_back_notes, *notes_on_active(plan, after, options)),
        )

    if options.dry_run:
        stats, counts, sizes, after = writing.count()
        stopped_by = stopped_by or _shortage(cleaning, sizes, freed_bytes)
        held_back = HeldBack.of(counts)
        result = CleanResult(plan=plan, status=Status.DRY_RUN, stats=stats, held_back=held_back, stopped_by=stopped_by)
        return completed(result, after, apply_retention(plan, after, cleaning.lock, options))
    with _kept_segments(cleaning) as kept:
        swapped = _written_and_swapped(cleaning, writing, kept)
    if not options.apply_retention:
        return replace(swapped, result=completed(swapped.result, plan.log))
    (result,) = end([swapped], None)  # The last line of the journal also has what is deleted.
    if result.stopped_by is not None:
        return completed(result, plan.log)
    after = read_again(plan.log)
    return completed(result, after, apply_retention(plan, after, cleaning.lock, options))


def _shortage(cleaning: Cleaning, sizes: Sequence[GroupSize], freed_bytes: int) -> NotEnoughSpaceError | None:
    plan, options = cleaning.plan, cleaning.options
    if options.output is not None:
        return shortage_of_copy(plan, sizes, as_path(options.output))
    disk = Disk.of(plan.log.directory).without(-freed_bytes)
    return shortage(plan, sizes, disk, keeps=options.keep_replaced is not None)


@contextmanager
def _kept_segments(cleaning: Cleaning) -> Iterator[KeptLinks | None]:
    """Yield where the replaced segments are kept, if the options say so: in the directory of a round, or in its own."""
    options, plan, lock = cleaning.options, cleaning.plan, cleaning.held_lock
    if options.keep_replaced is None:
        yield None
        return
    with ExitStack() as stack:
        keep = cleaning.keep or stack.enter_context(KeptDirectory(Path(options.keep_replaced), [plan.log.directory]))
        yield stack.enter_context(keep.partition(plan, lock))


def _written_and_swapped(cleaning: Cleaning, writing: Writing, kept: KeptLinks | None) -> SwappedPartition:
    """Write the groups wave by wave and swap them in.

    The partition directory, the staging directory and the log directory are held open from here on, and everything is
    reached through these descriptors: their owner may put links in their places meanwhile.
    """
    plan = cleaning.plan
    writing.require_space()
    with ExitStack() as stack:
        directory = stack.enter_context(OpenDirectory(plan.log.directory))
        cleaning.held_lock.require_parent_of(directory.path, directory.fd())
        staging = create_staging(directory)
        try:
            if plan.log.ignores_indexes:
                _add_lost_indexes(cleaning, directory, staging)
            written, new_files = _swap_in_waves(cleaning, writing, directory, staging, kept)
        except RecoveryNeededError:
            raise  # Recovery needs the staging directory.
        except BaseException:
            with suppress(KcompactError, OSError):
                discard(directory, staging)
            raise
        result = CleanResult(
            plan=plan,
            status=Status.CLEANED,
            stats=written.stats,
            held_back=HeldBack.of(written.counts),
            times=CleaningTimes(sync_s=written.sync_s, verify_s=written.verify_s),
            swapped=SwappedGroups(replaced=tuple(written.segments), kept=() if kept is None else kept.groups),
        )
        stack.pop_all()  # `end` closes the directory.
        return SwappedPartition(
            cleaning=cleaning,
            directory=directory,
            log_dir=plan.log.log_dir.path,
            lock=cleaning.held_lock,
            staging=staging,
            new_files=new_files,
            result=result,
        )


def _add_lost_indexes(cleaning: Cleaning, directory: OpenDirectory, staging: str) -> None:
    """Add the `.txnindex` files that are lost behind the cleaned range. Each is true with or without the swaps."""
    log, lock = cleaning.plan.log, cleaning.held_lock
    for name, content in lost_transaction_indexes(log, log.segments[len(cleaning.plan.segments) :]).items():
        model = str(Path(name).with_suffix(Suffix.LOG))
        write_small_file(directory, f"{staging}/{name}", content, mode=0o600, model=model)
        require_unchanged(directory, untouched(cleaning.plan))
        lock.check_beside(directory.path, directory.fd())
        empty = (Remove(name),) if log.file(name).exists() else ()
        apply_steps(directory, (*empty, Rename(f"{staging}/{name}", name), SyncDir()))


def _swap_in_waves(
    cleaning: Cleaning, writing: Writing, directory: OpenDirectory, staging: str, kept: KeptLinks | None
) -> tuple[WrittenGroups, list[FileIdentity]]:
    """Write and swap in the groups, as many at a time as the space holds. Return what was written, and new files."""
    plan, lock = cleaning.plan, cleaning.held_lock
    identity = identity_under_lock(directory, lock)
    where = StagingDirectory.of(directory.path / staging, directory.fd(staging))
    names = NamesInPartition(directory, plan.log.orphans)
    total, new_files = WrittenGroups(), list[FileIdentity]()
    # Closed in any case, because each wave has reserved its space.
    with closing(writing.waves()) as waves:
        for wave in waves:
            if total.segments:
                take_back(directory, staging)
            written = writing.write(wave, where)
            total += written
            # Recovery compares the checkpoint with the segment that follows these groups.
            is_end = len(total.segments) == len(plan.groups) and wave[-1] == len(plan.groups) - 1
            end_offset = plan.first_uncleanable_offset if is_end else None
            new_files += _swap_wave(
                cleaning, written.segments, directory, staging, kept, names, identity=identity, end_offset=end_offset
            )
    return total, new_files


def _swap_wave(
    cleaning: Cleaning,
    segments: Sequence[CleanedSegment],
    directory: OpenDirectory,
    staging: str,
    kept: KeptLinks | None,
    names: NamesInPartition,
    *,
    identity: PartitionIdentity,
    end_offset: int | None,
) -> list[FileIdentity]:
    """Replace groups with their segments, which are complete in the staging directory. Return the new files."""
    plan, lock, check = cleaning.plan, cleaning.held_lock, cleaning.progress.check
    complete: StagedStatuses = {}
    for segment in segments:
        complete |= carry_over(directory, staging, segment)
    if kept is not None:
        kept.keep(directory, segments, check)
    write_manifest(directory, staging, segments, identity=identity, end_offset=end_offset)
    others = untouched(plan)  # With the active segment, which a broker has open as well.
    require_unchanged(directory, others)
    require_unused(directory.path, [*others, *(file for segment in segments for file in segment.replaces)])
    hand_over(directory, staging)
    lock_check = partial(lock.check_beside, directory.path, directory.fd())
    for segment in segments:
        check()  # A swap that has begun is always finished.
        if kept is not None:
            kept.has_swapped = True
        replace_segments(directory, staging, segment, lock_check, complete=complete, names=names)
    return [FileIdentity.of(file.name, complete[file.staged_as]) for segment in segments for file in segment.files]
