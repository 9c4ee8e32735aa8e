"""A round of cleaning, from a directory to the checkpoint: lock, recover, plan, run, swap, write the checkpoint.

    plan = plan_partition(directory, config, now_ms=...)
    with log_dir_lock(directory.parent) as lock:
        result = clean(plan, executor, lock=lock)

Groups are written in *waves* that fit the free space of the disk, as many at a time as there is room for, and
swapped in one by one in ascending order. The checkpoint comes last: until then an interrupted round only means that
some of the work is done again.
"""

from __future__ import annotations

import contextlib
import enum
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from kcompact.clean.executor import Executor, Progress
from kcompact.clean.groups import Written, count_groups, map_bytes, write_groups
from kcompact.clean.job import CleanerStats
from kcompact.clean.prepare import PreparedClean, Tuning, prepare_clean, uses_kernels
from kcompact.errors import KcompactError, KernelsUnavailableError, NotEnoughSpaceError, RecoveryNeededError
from kcompact.log.directory import PartitionLog, read_log
from kcompact.log.lock import LogDirLock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import Expired, expired_segments
from kcompact.plan.partition import refusal
from kcompact.swap import copy
from kcompact.swap.attributes import carry_over
from kcompact.swap.checkpoint import write_checkpoint
from kcompact.swap.deletion import remove_segment, start_leader_epochs_at
from kcompact.swap.replace import replace_segments, require_unchanged
from kcompact.swap.staging import create_staging, discard, write_manifest

SPACE_MARGIN = 1.05
"""Staged segments may grow a little: an empty batch that stays, a horizon that lengthens timestamps."""


class Status(enum.StrEnum):
    CLEANED = "cleaned"
    DRY_RUN = "dry-run"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """How to clean. `output` is a directory that receives a compacted copy; the source is then only read.

    `max_bytes_per_second` limits reading and writing together, None not at all; `memory_bytes` is what the stages may
    use, None for `machine.default_memory_bytes`.
    """

    dry_run: bool = False
    output: Path | None = None
    keep_tombstones: bool = False
    rebuild_indexes: bool = False
    apply_retention: bool = False
    max_bytes_per_second: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanResult:
    """What became of one partition.

    `end_offset` is the new checkpoint, `map_s` the time until survivors were known, `sync_s` and `verify_s` what all
    workers together spent on syncing and reading back, `expired` what retention deleted
    after the cleaning (or would have, in a dry run).
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
    expired: tuple[Expired, ...] = ()


# Cleaning


def clean_partition(
    plan: CleanPlan,
    executor: Executor,
    *,
    lock: LogDirLock | None,
    options: CleanOptions | None = None,
    progress: Progress | None = None,
) -> CleanResult:
    """Clean one partition by its plan; where that is not eligible, at most put its checkpoint right.

    `lock` is the held lock of the log directory; only a dry run and a copy go without. Raises KcompactError:
    CorruptDataError and RefusedError with nothing changed, RecoveryNeededError when a swap stopped half-way.
    """
    options = options or CleanOptions()
    progress = progress or Progress()
    problem = refusal(plan)
    if problem is not None:
        raise problem
    started = time.monotonic()
    directory = plan.log.directory
    if not plan.eligible:
        if options.output is not None and not options.dry_run:
            copy.copy_partition(plan.log, options.output)
        elif lock is not None and not options.dry_run:
            reset_checkpoint(plan, lock)
        expired = _retention(plan, plan.log, lock, options)
        return CleanResult(directory=directory, status=Status.SKIPPED, plan=plan, expired=expired)

    if not options.dry_run and options.output is None:
        _require_space(plan)
    prepared = _prepared(plan, executor, options, progress)
    map_s = time.monotonic() - started
    map_bytes_read = map_bytes(plan)  # Asks the offset index, which the swap will replace.
    progress.check()
    after = plan.log
    sync_s = verify_s = 0.0
    if options.dry_run:
        stats, after = count_groups(prepared, executor)
    elif options.output is not None:
        _, stats, sync_s, verify_s = _write_copy(prepared, options.output, executor)
    else:
        assert lock is not None, "a partition is only changed under its log directory's lock"
        _, stats, sync_s, verify_s = _swap_in(prepared, executor, lock, progress)
        after = read_log(directory)
    expired = _retention(plan, after, lock, options)
    stats += CleanerStats(map_bytes_read=map_bytes_read, map_keys=prepared.map_keys)
    return CleanResult(
        directory=directory,
        status=Status.DRY_RUN if options.dry_run else Status.CLEANED,
        plan=plan,
        stats=stats,
        end_offset=plan.first_uncleanable_offset,
        engine=executor.name,
        map_s=map_s,
        sync_s=sync_s,
        verify_s=verify_s,
        elapsed_s=time.monotonic() - started,
        expired=expired,
    )


def _prepared(plan: CleanPlan, executor: Executor, options: CleanOptions, progress: Progress) -> PreparedClean:
    """Return the plan with its survivors known, found by the kernels if all workers can use them."""

    def prepared(*, compiled: bool) -> PreparedClean:
        return prepare_clean(
            plan,
            executor,
            keep_tombstones=options.keep_tombstones,
            rebuild_indexes=options.rebuild_indexes,
            max_bytes_per_second=options.max_bytes_per_second,
            tuning=Tuning(memory_bytes=options.memory_bytes, compiled=compiled),
        )

    if not uses_kernels(plan, progress):
        return prepared(compiled=False)
    try:
        return prepared(compiled=True)
    except KernelsUnavailableError as problem:
        # They work here, but not on the machine of some worker.
        progress.without_kernels(problem.problem)
        return prepared(compiled=False)


def reset_checkpoint(plan: CleanPlan, lock: LogDirLock) -> None:
    """Move the checkpoint of a compacted partition to the log start if it lies outside of the log.

    Left alone it would one day lie inside again, when the log has grown, and what is below it would count as clean
    though no cleaning has seen it: tombstones would go before the values that they delete.
    Rule: `LogCleanerManager.grabFilthiestCompactedLog`, which does so before it chooses.
    """
    if plan.checkpoint_reset and plan.config.compacts:
        lock.check()
        write_checkpoint(plan.log.log_dir.path, plan.log.topic_partition, plan.first_dirty_offset)


def _write_copy(prepared: PreparedClean, output: Path, executor: Executor) -> Written:
    """Write the cleaned partition into a new directory of `output`, and return what was written."""
    plan = prepared.plan
    with copy.new_partition(plan.log, output, checkpoint_offset=plan.first_uncleanable_offset) as target:
        written = write_groups(prepared, range(len(plan.groups)), str(target), executor)
        copy.fill(plan.log, target, written.segments)
    return written


def _swap_in(prepared: PreparedClean, executor: Executor, lock: LogDirLock, progress: Progress) -> Written:
    plan = prepared.plan
    directory, partition = plan.log.directory, plan.log.topic_partition
    end_offset = plan.first_uncleanable_offset
    total = Written([], CleanerStats(), 0.0, 0.0)
    # Nobody writes to the rest of the log either while we hold its lock; if someone does, they do not respect it.
    untouched = [file for segment in plan.log.segments[len(plan.segments) :] for file in segment.files]
    staging = create_staging(directory)
    try:
        done = 0
        while done < len(plan.groups):
            wave = _wave(prepared, done)
            written = write_groups(prepared, wave, str(directory / staging), executor)
            cleaned, total = written.segments, total.plus(written)
            for segment in cleaned:
                carry_over(directory, staging, segment)
            done += len(wave)
            is_last = done == len(plan.groups)
            write_manifest(
                directory, staging, cleaned, topic_partition=partition, end_offset=end_offset if is_last else None
            )
            require_unchanged(directory, untouched)
            for segment in cleaned:
                progress.check()
                replace_segments(directory, staging, segment, lock.check)
        lock.check()
        require_unchanged(directory, untouched)
        write_checkpoint(plan.log.log_dir.path, partition, end_offset)
    except RecoveryNeededError:
        raise  # The staging directory holds what recovery needs.
    except BaseException:
        with contextlib.suppress(KcompactError, OSError):
            discard(directory, staging)
        raise
    discard(directory, staging)
    return total


def _retention(
    plan: CleanPlan, log: PartitionLog, lock: LogDirLock | None, options: CleanOptions
) -> tuple[Expired, ...]:
    """Delete the whole segments that a broker would delete now, oldest first, if asked to; return them.

    `log` is as the cleaning left it: merged segments count as they are now. The base of the first segment that is left
    becomes the log start. Rule: `LogCleaner.CleanerThread.cleanFilthiestLog`, which does so on compacted logs only.
    """
    if not options.apply_retention or not plan.config.compacts:
        return ()
    expired = expired_segments(log, plan.config, now_ms=plan.now_ms, high_watermark=plan.high_watermark)
    if options.dry_run:
        return expired
    assert lock is not None, "a partition is only changed under its log directory's lock"
    for one in expired:
        files = one.segment.files
        snapshot = log.snapshots.get(one.segment.base_offset)
        remove_segment(log.directory, files if snapshot is None else (*files, snapshot), lock.check)
    if expired:
        start_leader_epochs_at(log.directory, log.segments[len(expired)].base_offset)
    return expired


def _group_bytes(plan: CleanPlan, number: int) -> int:
    return int(sum(s.size_bytes + s.index_bytes + s.time_index_bytes for s in plan.groups[number]) * SPACE_MARGIN)


def _wave(prepared: PreparedClean, start: int) -> list[int]:
    """Return the numbers of the groups to write next: as many as fit the free space, at least one."""
    plan = prepared.plan
    free = _free_bytes(plan.log.directory)
    wave = [start]
    # A part is on the disk twice while it is joined to those before it.
    joined_bytes = max((task.size_bytes for task in prepared.tasks if not task.is_only), default=0)
    needed = _group_bytes(plan, start) + joined_bytes
    for number in range(start + 1, len(plan.groups)):
        needed += _group_bytes(plan, number)
        if needed > free:
            break
        wave.append(number)
    return wave


def _require_space(plan: CleanPlan) -> None:
    needed = max(_group_bytes(plan, number) for number in range(len(plan.groups)))
    free = _free_bytes(plan.log.directory)
    if needed > free:
        raise NotEnoughSpaceError(path=plan.log.directory, needed_bytes=needed, free_bytes=free)


def _free_bytes(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize
