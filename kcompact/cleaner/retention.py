"""Retention: deletes the old segments of a partition, oldest first, as a broker does.

The order is that of a broker's cleaner thread. The partition that it cleans first is cleaned, then loses segments, and
may have fewer to lose. All others lose segments, are cleaned if they still are eligible, and may lose more. If the free
space is not enough for the first cleaning, what no cleaning can save is deleted before it: the segments below the log
start and those past `retention.ms`. Segments past `retention.bytes` wait, because the cleaning makes the log smaller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from kcompact import readable
from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.in_use import require_unused
from kcompact.errors import CorruptIndexError
from kcompact.format.names import Suffix
from kcompact.log.directory import PartitionLog, read_again
from kcompact.log.lock import LogDirLock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import (
    ExpiredSegment,
    certainly_expired,
    due_before_cleaning,
    due_now,
    reason_to_roll,
    younger_record_ms,
)
from kcompact.remarks import Note, RemarkCode
from kcompact.swap.deletion import remove_segment, start_leader_epochs_at
from kcompact.swap.open_directory import OpenDirectory


def apply_retention(
    plan: CleanPlan, log: PartitionLog, lock: LogDirLock | None, options: CleanOptions
) -> tuple[ExpiredSegment, ...]:
    """With `apply_retention`, delete the whole segments that a broker would delete now, oldest first; return them.

    `log` is the log as it is by now: after a cleaning, merged segments have their new sizes and timestamps. The base
    offset of the first remaining segment becomes the log start, unless the log start is greater. By a setting that is
    only assumed nothing is deleted, also of what has become due by the cleaning. Raises CorruptIndexError as
    `_require_old_records`, StorageError.
    Rules: `LogCleaner.CleanerThread.cleanFilthiestLog` for compacted logs, `LogManager.cleanupLogs` for all others.
    """
    if not options.apply_retention:
        return ()
    expired = certainly_expired(due_now(replace(plan, log=log)), plan.config)
    if not options.dry_run or log is plan.log:  # A forecast is no log that could be read.
        _require_old_records(plan, log, expired)
    if expired and not options.dry_run:
        _delete(log, expired, lock)
    return expired


def notes_on_active(plan: CleanPlan, log: PartitionLog, options: CleanOptions) -> tuple[Note, ...]:
    """Return a note if a broker would delete the active segment too, which `apply_retention` never does."""
    reason = reason_to_roll(replace(plan, log=log)) if options.apply_retention else None
    if reason is None:
        return ()
    name, offset = log.directory.name, log.active_segment.base_offset
    return (Note.of(RemarkCode.ACTIVE_SEGMENT_EXPIRED, name=name, offset=offset, limit=reason),)


def make_space(plan: CleanPlan, lock: LogDirLock | None, options: CleanOptions) -> tuple[ExpiredSegment, ...]:
    """Delete what is due before a cleaning that lacks free space; return it, and nothing if that is not possible.

    Nothing is deleted if the cleaning has already replaced segments: then another round has to follow anyway.
    """
    expired = certainly_expired(due_before_cleaning(plan), plan.config) if options.apply_retention else ()
    _require_old_records(plan, plan.log, expired)
    if expired and not options.dry_run:
        if read_again(plan.log).segments != plan.log.segments:
            return ()
        _delete(plan.log, expired, lock)
    return expired


def _require_old_records(plan: CleanPlan, log: PartitionLog, expired: Sequence[ExpiredSegment]) -> None:
    """Raise CorruptIndexError for a segment that is past `retention.ms`, but has a record that is not.

    A broker deletes it: it only looks at the end of the time index, or at the modification time of the log. So does
    the plan. But a time index has no checksum, and after the truncation of a follower it may end too low.
    """
    for due in expired:
        timestamp_ms = younger_record_ms(plan, due)
        if timestamp_ms is not None:
            raise CorruptIndexError(
                file=str(log.file(due.segment.log_name).with_suffix(Suffix.TIME_INDEX)),
                problem=f"the segment counts as of {readable.time(due.segment.largest_timestamp_ms)}, past "
                f"retention.ms {plan.config.retention_ms}, but has a record of {readable.time(timestamp_ms)}, which is "
                "not; a broker deletes it",
                hint="Without --apply-retention, or with --config retention.ms=-1, kcompact deletes nothing by time.",
            )


def _delete(log: PartitionLog, expired: Sequence[ExpiredSegment], lock: LogDirLock | None) -> None:
    assert lock is not None, "a partition is only changed under the lock of its log directory"
    require_unused(log.directory)
    with OpenDirectory(log.directory) as directory:
        lock.require_parent_of(directory.path, directory.fd())
        lock_check = partial(lock.check_beside, directory.path, directory.fd())
        for due in expired:
            remove_segment(directory, log.files_of(due.segment), lock_check)
        start_offset = max(log.log_start_offset, log.segments[len(expired)].base_offset)
        start_leader_epochs_at(directory, start_offset)
