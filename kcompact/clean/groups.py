"""Writes the staged segments of whole groups, or counts them in a dry run."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import NamedTuple

from kcompact.clean.accounting import check_parts
from kcompact.clean.job import CleanerStats, RecordCounts, WrittenPart
from kcompact.clean.join import build_indexes, join_parts
from kcompact.clean.prepare import PreparedClean
from kcompact.clean.staged_files import CleanedSegment, StagingDirectory
from kcompact.clean.transactions import map_start
from kcompact.clean.write import write_part
from kcompact.format.batch import HEADER_BYTES
from kcompact.format.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, TXN_ENTRY_BYTES
from kcompact.host.throttle import Pace, Throttle
from kcompact.log.directory import PartitionLog
from kcompact.log.files import FileIdentity
from kcompact.plan.clean_plan import CleanPlan
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenGroups:
    """The staged segments of some groups, and the seconds spent on syncing and reading back; added with `+`."""

    segments: tuple[CleanedSegment, ...] = ()
    stats: CleanerStats = field(default_factory=CleanerStats)
    counts: RecordCounts = field(default_factory=RecordCounts)
    sync_s: float = 0.0
    verify_s: float = 0.0

    def __add__(self, other: WrittenGroups) -> WrittenGroups:
        return WrittenGroups(
            segments=(*self.segments, *other.segments),
            stats=self.stats + other.stats,
            counts=self.counts + other.counts,
            sync_s=self.sync_s + other.sync_s,
            verify_s=self.verify_s + other.verify_s,
        )


def write_groups(prepared: PreparedClean, groups: Sequence[int], staging: StagingDirectory) -> WrittenGroups:
    """Write groups into the staging directory: complete segments, synced and read back."""
    job = prepared.job
    parts = _written(prepared, groups, staging)
    parts_of = _by_group(parts)
    sync_s, verify_s = sum(part.sync_s for part in parts), sum(part.verify_s for part in parts)
    pace = Pace(Throttle(job.max_bytes_per_second))
    segments = []
    for number in groups:
        group = prepared.plan.groups[number]
        joined = join_parts(
            staging,
            group[0].base_offset,
            parts_of[number],
            config=prepared.plan.config,
            aborted=prepared.kept_index[number],
            pace=pace,
        )
        sync_s, verify_s = sync_s + joined.sync_s, verify_s + joined.verify_s
        replaces = replaced_files(prepared.plan, number)
        segments.append(CleanedSegment(base_offset=group[0].base_offset, files=joined.files, replaces=replaces))
    return WrittenGroups(
        segments=tuple(segments),
        stats=sum((part.stats for part in parts), CleanerStats()),
        counts=sum((part.counts for part in parts), RecordCounts()),
        sync_s=sync_s,
        verify_s=verify_s,
    )


def _written(prepared: PreparedClean, groups: Iterable[int], staging: StagingDirectory | None) -> list[WrittenPart]:
    """Return the parts of some groups, written and accounted for."""
    tasks = prepared.tasks_of(groups)
    if staging is not None and prepared.executor.is_on_other_machines:
        staging = replace(staging, device=None)
    stage = "count" if staging is None else "write"
    parts = prepared.executor.run(stage, prepared.job, tasks, partial(write_part, staging))
    check_parts(prepared.plan, [task for run in tasks for task in run], parts)
    return parts


def _by_group(parts: Iterable[WrittenPart]) -> dict[int, list[WrittenPart]]:
    """Return the parts of each group, in order, by its number."""
    parts_by_group: dict[int, list[WrittenPart]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: (part.group, part.part)):
        parts_by_group[part.group].append(part)
    return parts_by_group


def replaced_files(plan: CleanPlan, number: int) -> tuple[FileIdentity, ...]:
    """Return the old files that a group replaces: its logs, its indexes, and all snapshots inside of it.

    A snapshot at the base offset of a removed segment is removed with it (`LocalLog.replaceSegments`). A snapshot at
    another offset was left by an earlier shutdown; a broker deletes it when it loads the log
    (`ProducerStateManager.removeStraySnapshots`).
    """
    group, snapshots = plan.groups[number], plan.log.snapshots
    offsets = list(snapshots)
    inside = offsets[bisect_right(offsets, group[0].base_offset) : bisect_left(offsets, plan.log.end_of(group[-1]))]
    return (*(file for segment in group for file in segment.files), *(snapshots[offset] for offset in inside))


class GroupSize(NamedTuple):
    """The sizes of a group's staged files, in bytes: of each part of the log, and of each index.

    The parts are files of their own until they are appended to the first one. `keeps_order`: the groups before this one
    must be swapped first, because its result sets or applies delete horizons.
    """

    parts: tuple[int, ...]
    indexes: tuple[int, ...]
    keeps_order: bool = True

    @property
    def log_bytes(self) -> int:
        """The size of the joined log."""
        return sum(self.parts)

    @property
    def appended_bytes(self) -> int:
        """The size of the largest part that is appended: the disk holds it twice for a moment."""
        return max(self.parts[1:], default=0)

    @property
    def joined(self) -> GroupSize:
        """The same group, written in one part."""
        return self._replace(parts=(self.log_bytes,))


class CountedGroups(NamedTuple):
    """The counters of a dry run, the sizes of the groups, and the log as the planner would see it afterwards."""

    stats: CleanerStats
    counts: RecordCounts
    sizes: list[GroupSize]
    log: PartitionLog


def count_groups(prepared: PreparedClean) -> CountedGroups:
    """Do all the work of a cleaning but write nothing; return what it would have written. Raises as `write_groups`."""
    plan = prepared.plan
    counted = _counted(prepared, range(len(plan.groups)))
    cleaned = []
    for group, (parts, _) in zip(plan.groups, counted, strict=True):
        largest = max((int(part.output_table["max_timestamp"].max()) for part in parts if part.outputs), default=-1)
        cleaned.append(
            replace(
                group[0],
                size_bytes=sum(part.size_bytes for part in parts),
                largest_timestamp_ms=largest if largest >= 0 else group[-1].last_modified_ms,
                last_modified_ms=group[-1].last_modified_ms,
            )
        )
    untouched = plan.log.segments[len(plan.segments) :]
    return CountedGroups(
        sum((part.stats for parts, _ in counted for part in parts), CleanerStats()),
        sum((part.counts for parts, _ in counted for part in parts), RecordCounts()),
        [size for _, size in counted],
        replace(plan.log, segments=(*cleaned, *untouched)),
    )


def count_sizes(prepared: PreparedClean, groups: Sequence[int]) -> list[GroupSize]:
    """Return the exact sizes of some groups, as `count_groups` does of all. Raises as `write_groups`."""
    return [size for _, size in _counted(prepared, groups)]


def _counted(prepared: PreparedClean, groups: Sequence[int]) -> list[tuple[list[WrittenPart], GroupSize]]:
    """Return the parts that would be written of each group, with its sizes."""
    plan, parts_of = prepared.plan, _by_group(_written(prepared, groups, None))
    counted = []
    for number in groups:
        parts = parts_of[number]
        base_offset = plan.groups[number][0].base_offset
        indexes = build_indexes(parts, base_offset, plan.config)
        size = _group_size(prepared, number, [part.size_bytes for part in parts], [len(index) for index in indexes])
        keeps_order = any(part.counts.expired or part.counts.new_horizons for part in parts)
        counted.append((parts, size._replace(keeps_order=keeps_order)))
    return counted


def most_sizes(prepared: PreparedClean) -> list[GroupSize]:
    """Return upper bounds of the sizes of the groups, from what the scan has found. `clean.growth` explains them."""
    interval_bytes = prepared.plan.config.index_interval_bytes
    bytes_of: dict[int, list[int]] = defaultdict(list)
    for task in prepared.tasks:
        bytes_of[task.group].append(task.most_bytes)
    sizes = []
    for number in range(len(prepared.plan.groups)):
        parts_bytes = bytes_of[number]
        # Entries are more than `interval_bytes` apart, and a batch has at least a header. One more time ends the index.
        entries = sum(parts_bytes) // max(interval_bytes + 1, HEADER_BYTES)
        index_bytes = (entries * OFFSET_ENTRY_BYTES, (entries + 1) * TIME_ENTRY_BYTES)
        sizes.append(_group_size(prepared, number, parts_bytes, index_bytes))
    return sizes


def _group_size(
    prepared: PreparedClean, number: int, parts_bytes: Sequence[int], index_bytes: Sequence[int]
) -> GroupSize:
    aborted = prepared.kept_index[number]
    return GroupSize(
        parts=tuple(parts_bytes), indexes=(*index_bytes, *([len(aborted) * TXN_ENTRY_BYTES] if aborted else []))
    )


def map_bytes(plan: CleanPlan) -> int:
    """Return how many bytes Kafka reads for its offset map: the dirty section, from its first batch on."""
    dirty = plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset)
    skipped = map_start(plan.log, dirty[0], plan.first_dirty_offset).position if dirty else 0
    return sum(segment.size_bytes for segment in dirty) - skipped
