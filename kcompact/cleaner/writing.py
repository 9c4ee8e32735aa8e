"""How the groups of a cleaning are written: stage by stage with all workers, or the whole partition in one task.

`InStages` is for this process, and on Spark for a partition that is large beside the others. `InOneTask` is for all
other partitions on Spark: one worker scans, reduces, writes, syncs and reads back, so the partitions are cleaned side
by side without waiting for each other between the stages. Both write into the staging directory that the caller has
made, and both write the same bytes.

A task gets a part of the memory and of the free space. Only the scan can tell whether these are enough. If they are
not, the task writes nothing, and `NeedsStagesError` asks for a cleaning in stages, with all memory and in waves.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from kcompact.clean.groups import CountedGroups, WrittenGroups, count_groups, map_bytes, replaced_files, write_groups
from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.clean.staged_files import StagingDirectory
from kcompact.cleaner.cleaning import Cleaning
from kcompact.cleaner.space import StagingSpace, fitting_at_once, reserved_for_task
from kcompact.errors import BatchTooLargeError, NotEnoughSpaceError
from kcompact.format.names import TopicPartition
from kcompact.host.disk import Disk
from kcompact.plan.clean_plan import CleanPlan
from kcompact.stages.executor import Executor, Whole
from kcompact.values import dataclass


class NeedsStagesError(Exception):
    """A partition does not fit a task's part of the memory or of the space. Nothing was written."""


class Survey(NamedTuple):
    """What the scan and the reduction have found: the keys, the bytes that Kafka reads for them, and the seconds."""

    map_keys: int
    map_bytes: int
    map_s: float


class Writing(Protocol):
    """Writes the groups of one cleaning, or counts them. `survey` is known after that."""

    @property
    def survey(self) -> Survey: ...

    def require_space(self) -> None:
        """Raise NotEnoughSpaceError if the groups do not fit in any order that is found."""

    def waves(self) -> Generator[list[int], None, None]:
        """Yield the numbers of the groups to write next, as `StagingSpace.waves` does."""
        ...

    def reserved_for_copy(self, output: Path) -> AbstractContextManager[None]:
        """Reserve the space for a copy to `output` while the block runs. Raises NotEnoughSpaceError."""
        ...

    def write(self, groups: Sequence[int], staging: StagingDirectory) -> WrittenGroups:
        """Write groups into the staging directory. Raises as `write_groups`."""
        ...

    def count(self) -> CountedGroups:
        """Do all the work but write nothing. Raises as `count_groups`."""
        ...


class InStages:
    """Writes with all workers of the executor. The scan and the reduction run at once."""

    def __init__(self, cleaning: Cleaning) -> None:
        started = time.monotonic()
        prepared = cleaning.prepare()
        # The map's bytes are found in the offset index, which the swap replaces.
        self.survey = Survey(prepared.map_keys, map_bytes(cleaning.plan), time.monotonic() - started)
        cleaning.progress.check()
        self._prepared = prepared
        self._cleaning = cleaning
        self._space: StagingSpace | None = None

    def require_space(self) -> None:
        """Raise NotEnoughSpaceError. The rest is as in `Writing`, here and below."""
        self._staging_space().require()

    def waves(self) -> Generator[list[int], None, None]:
        """Yield waves."""
        return self._staging_space().waves()

    def reserved_for_copy(self, output: Path) -> AbstractContextManager[None]:
        """Reserve space."""
        return self._staging_space().reserved_for_copy(output)

    def write(self, groups: Sequence[int], staging: StagingDirectory) -> WrittenGroups:
        """Write groups."""
        return write_groups(self._staging_space().prepared, groups, staging)

    def count(self) -> CountedGroups:
        """Count."""
        return count_groups(self._prepared)

    def _staging_space(self) -> StagingSpace:
        if self._space is None:
            self._space = StagingSpace(self._cleaning, self._prepared)
        return self._space


class InOneTask:
    """Writes all groups in one task of the executor. Every method may raise NeedsStagesError."""

    @staticmethod
    def suits(cleaning: Cleaning) -> bool:
        """Return whether the partition is small enough for the executor."""
        return sum(segment.size_bytes for segment in cleaning.plan.segments) <= cleaning.executor.whole_bytes

    def __init__(self, cleaning: Cleaning) -> None:
        self.survey = Survey(0, 0, 0.0)
        self._cleaning = cleaning
        self._space = _TaskSpace()

    def require_space(self) -> None:
        """Do nothing: `waves` finds out. The rest is as in `Writing`, here and below."""

    def waves(self) -> Generator[list[int], None, None]:
        """Yield one wave of all groups."""
        with self._reserved(self._cleaning.plan.log.directory, is_copy=False):
            yield list(range(len(self._cleaning.plan.groups)))

    def reserved_for_copy(self, output: Path) -> AbstractContextManager[None]:
        """Reserve space."""
        return self._reserved(output, is_copy=True)

    def write(self, groups: Sequence[int], staging: StagingDirectory) -> WrittenGroups:
        """Write all groups; `groups` are all."""
        plan = self._cleaning.plan
        if self._cleaning.executor.is_on_other_machines:
            staging = replace(staging, device=None)
        done = self._ran(("scan", "write"), staging)
        assert done.written is not None
        # What is replaced is decided here: a worker has no say in it.
        segments = [
            replace(segment, replaces=replaced_files(plan, number))
            for number, segment in zip(groups, done.written.segments, strict=True)
        ]
        return replace(done.written, segments=tuple(segments))

    def count(self) -> CountedGroups:
        """Count."""
        done = self._ran(("scan", "count"), None)
        assert done.counted is not None
        log = self._cleaning.plan.log
        return done.counted._replace(log=replace(log, segments=done.counted.log.segments))

    @contextmanager
    def _reserved(self, place: Path, *, is_copy: bool) -> Iterator[None]:
        cleaning = self._cleaning
        keeps = cleaning.options.keep_replaced is not None
        try:
            disk, release = reserved_for_task(cleaning.plan, place, cleaning.progress, is_copy=is_copy)
        except NotEnoughSpaceError:
            raise NeedsStagesError from None
        self._space = _TaskSpace(disk=disk, is_copy=is_copy, keeps=keeps)
        try:
            yield
        finally:
            release()

    def _ran(self, stages: tuple[str, ...], staging: StagingDirectory | None) -> _Done:
        cleaning, plan = self._cleaning, self._cleaning.plan
        task = _PartitionTask(
            plan=for_a_worker(plan),
            keep_tombstones=cleaning.options.keep_tombstones,
            max_bytes_per_second=cleaning.options.max_bytes_per_second,
            staging=staging,
            space=self._space,
        )
        size_bytes = sum(segment.size_bytes for segment in plan.segments)
        whole = Whole(stages, size_bytes, cleaning.options.memory_bytes)
        done = cleaning.executor.run_whole(clean_in_task, task, whole)
        if done is None:
            raise NeedsStagesError
        self.survey = done.survey
        return done


# --- In the task ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _TaskSpace:
    """The space that a task may fill: `disk` is its part of it. As in `fitting_at_once`."""

    disk: Disk = field(default_factory=lambda: Disk(0, 1))
    is_copy: bool = False
    keeps: bool = False


class _PartitionTask(NamedTuple):
    """What a worker needs to clean a partition up to the swap. Without `staging` it only counts."""

    plan: CleanPlan
    keep_tombstones: bool
    max_bytes_per_second: int | None
    staging: StagingDirectory | None
    space: _TaskSpace


class _Done(NamedTuple):
    """The result of a task. The segments of `written` say nothing about what they replace."""

    survey: Survey
    written: WrittenGroups | None = None
    counted: CountedGroups | None = None


def clean_in_task(executor: Executor, memory_bytes: int | None, task: _PartitionTask) -> _Done | None:
    """Clean a partition up to the swap, or count. Return None, with nothing written, if it needs stages.

    All files are new ones, whose names have a token of this attempt, in a directory that must be the caller's staging
    directory: no other attempt, and nothing that the caller has swapped meanwhile, is touched. Raises as
    `prepare_clean`, `write_groups` and `count_groups`.
    """
    started = time.monotonic()
    try:
        prepared = prepare_clean(
            task.plan,
            executor,
            keep_tombstones=task.keep_tombstones,
            max_bytes_per_second=task.max_bytes_per_second,
            tuning=Tuning(memory_bytes=memory_bytes),
        )
        survey = Survey(prepared.map_keys, map_bytes(task.plan), time.monotonic() - started)
        if task.staging is None:
            return _Done(survey, counted=count_groups(prepared))
        space = task.space
        fitting = fitting_at_once(prepared, space.disk, is_copy=space.is_copy, keeps=space.keeps)
        if fitting is None:
            return None
        written = write_groups(fitting, range(len(task.plan.groups)), task.staging)
    except BatchTooLargeError:  # More memory than a task's part may be enough.
        return None
    return _Done(survey, replace(written, segments=tuple(replace(each, replaces=()) for each in written.segments)))


def for_a_worker(plan: CleanPlan) -> CleanPlan:
    """Return the plan without the checkpoints of the other partitions: each task would carry those of thousands.

    Its files are those of any machine that sees them.
    """
    log_dir, own = plan.log.log_dir, plan.log.topic_partition
    segments = {
        each.base_offset: replace(each, files=tuple(file.elsewhere() for file in each.files))
        for each in plan.log.segments
    }

    def of_this(offsets: dict[TopicPartition, int] | None) -> dict[TopicPartition, int] | None:
        return None if offsets is None else {own: offsets[own]} if own in offsets else {}

    trimmed = replace(
        log_dir,
        cleaner_offsets=of_this(log_dir.cleaner_offsets),
        log_start_offsets=of_this(log_dir.log_start_offsets),
        recovery_points=of_this(log_dir.recovery_points),
        high_watermarks=of_this(log_dir.high_watermarks),
    )
    return replace(
        plan,
        log=replace(plan.log, log_dir=trimmed, segments=tuple(segments.values())),
        groups=tuple(tuple(segments[each.base_offset] for each in group) for group in plan.groups),
    )
