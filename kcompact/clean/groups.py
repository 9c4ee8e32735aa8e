"""Writes the staged segments of whole groups, or counts them in a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from kcompact.clean.accounting import check_parts
from kcompact.clean.executor import Executor
from kcompact.clean.job import CleanerStats, WrittenPart
from kcompact.clean.join import build_indexes, join_parts
from kcompact.clean.prepare import PreparedClean
from kcompact.clean.staged_files import CleanedSegment, StagingDirectory
from kcompact.clean.transactions import map_start
from kcompact.format.batch import HEADER_BYTES
from kcompact.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TXN_ENTRY_BYTES
from kcompact.host.throttle import Pace, Throttle
from kcompact.log.directory import PartitionLog, Segment
from kcompact.log.files import FileIdentity
from kcompact.plan.clean_plan import CleanPlan


class Written(NamedTuple):
    """The staged segments of some groups, their counters, and the seconds spent on syncing and reading back."""

    segments: list[CleanedSegment]
    stats: CleanerStats
    sync_s: float
    verify_s: float

    def plus(self, other: Written) -> Written:
        """Return the sum of both."""
        return Written(
            [*self.segments, *other.segments],
            self.stats + other.stats,
            self.sync_s + other.sync_s,
            self.verify_s + other.verify_s,
        )


def write_groups(
    prepared: PreparedClean, groups: Sequence[int], staging: StagingDirectory, executor: Executor
) -> Written:
    """Write groups into the staging directory: complete segments, synced and read back."""
    job = prepared.job
    parts = _written(prepared, groups, staging, executor)
    sync_s, verify_s = sum(part.sync_s for part in parts), sum(part.verify_s for part in parts)
    pace = Pace(Throttle(job.max_bytes_per_second))
    segments = []
    for number in groups:
        group = prepared.plan.groups[number]
        joined = join_parts(
            staging,
            group[0].base_offset,
            sorted((part for part in parts if part.group == number), key=lambda part: part.part),
            aborted=prepared.kept_index[number],
            index_interval_bytes=prepared.plan.config.index_interval_bytes,
            index_max_bytes=prepared.plan.config.segment_index_bytes,
            compiled=job.compiled,
            pace=pace,
        )
        sync_s, verify_s = sync_s + joined.sync_s, verify_s + joined.verify_s
        snapshots = _snapshots_to_remove(prepared.plan, group)
        replaced = tuple(file for segment in group for file in segment.files)
        segments.append(
            CleanedSegment(base_offset=group[0].base_offset, files=joined.files, replaces=(*replaced, *snapshots))
        )
    return Written(segments, sum((part.stats for part in parts), CleanerStats()), sync_s, verify_s)


def _written(
    prepared: PreparedClean, groups: Iterable[int], staging: StagingDirectory | None, executor: Executor
) -> list[WrittenPart]:
    """Return the parts of some groups, written and accounted for."""
    tasks = prepared.tasks_of(groups)
    parts = executor.write(prepared.job, tasks, staging)
    check_parts(prepared.plan, [task for run in tasks for task in run], parts)
    return parts


def _snapshots_to_remove(plan: CleanPlan, group: Sequence[Segment]) -> list[FileIdentity]:
    """Return the producer snapshots that a group replaces: all above its first base offset and below its end.

    A snapshot at the base offset of a removed segment is removed with it (`LocalLog.replaceSegments`). A snapshot at
    another offset was left by an earlier shutdown; a broker deletes it when it loads the log
    (`ProducerStateManager.removeStraySnapshots`).
    """
    end_offset = plan.log.end_of(group[-1])
    return [
        identity
        for offset, identity in sorted(plan.log.snapshots.items())
        if group[0].base_offset < offset < end_offset
    ]


class GroupSize(NamedTuple):
    """The sizes of a group's staged files, in bytes, and their number.

    The parts of a group are files of their own until they are appended to the first part. `appended_bytes` is the
    largest that is appended: the disk holds it twice for a moment.
    """

    log_bytes: int
    index_bytes: int
    appended_bytes: int
    files: int


class Counted(NamedTuple):
    """The counters of a dry run, the sizes of the groups, and the log as the planner would see it afterwards."""

    stats: CleanerStats
    sizes: list[GroupSize]
    log: PartitionLog


def count_groups(prepared: PreparedClean, executor: Executor) -> Counted:
    """Do all the work of a cleaning but write nothing; return what it would have written. Raises as `write_groups`."""
    plan = prepared.plan
    parts = _written(prepared, range(len(plan.groups)), None, executor)
    cleaned, sizes = [], []
    for number, group in enumerate(plan.groups):
        group_parts = sorted((part for part in parts if part.group == number), key=lambda part: part.part)
        indexes = build_indexes(
            group_parts,
            group[0].base_offset,
            index_interval_bytes=plan.config.index_interval_bytes,
            index_max_bytes=plan.config.segment_index_bytes,
            compiled=prepared.job.compiled,
        )
        sizes.append(_group_size(prepared, number, [part.size_bytes for part in group_parts], sum(map(len, indexes))))
        largest = max(
            (int(part.output_table["max_timestamp"].max()) for part in group_parts if part.outputs), default=-1
        )
        cleaned.append(
            replace(
                group[0],
                size_bytes=sum(part.size_bytes for part in group_parts),
                largest_timestamp_ms=largest if largest >= 0 else group[-1].last_modified_ms,
                last_modified_ms=group[-1].last_modified_ms,
            )
        )
    untouched = plan.log.segments[len(plan.segments) :]
    return Counted(
        sum((part.stats for part in parts), CleanerStats()),
        sizes,
        replace(plan.log, segments=(*cleaned, *untouched)),
    )


def most_sizes(prepared: PreparedClean) -> list[GroupSize]:
    """Return upper bounds of the sizes of the groups, from what the scan has found. `clean.growth` explains them."""
    interval_bytes = prepared.plan.config.index_interval_bytes
    sizes = []
    for number in range(len(prepared.plan.groups)):
        parts_bytes = [task.most_bytes for task in prepared.tasks if task.group == number]
        # Entries are more than `interval_bytes` apart, and a batch has at least a header. One more time ends the index.
        entries = sum(parts_bytes) // max(interval_bytes + 1, HEADER_BYTES)
        index_bytes = entries * (OFFSET_ENTRY_BYTES + TIME_ENTRY_BYTES) + TIME_ENTRY_BYTES
        sizes.append(_group_size(prepared, number, parts_bytes, index_bytes))
    return sizes


def _group_size(prepared: PreparedClean, number: int, parts_bytes: Sequence[int], index_bytes: int) -> GroupSize:
    aborted = prepared.kept_index[number]
    return GroupSize(
        log_bytes=sum(parts_bytes),
        index_bytes=index_bytes + len(aborted) * TXN_ENTRY_BYTES,
        appended_bytes=max(parts_bytes[1:], default=0),
        files=len(parts_bytes) + (3 if aborted else 2),
    )


def map_bytes(plan: CleanPlan) -> int:
    """Return how many bytes Kafka reads for its offset map: the dirty section, from its first batch on."""
    dirty = plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset)
    skipped = map_start(plan.log, dirty[0], plan.first_dirty_offset).position if dirty else 0
    return sum(segment.size_bytes for segment in dirty) - skipped
