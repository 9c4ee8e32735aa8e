"""The end of a cleaning: the checkpoint, then the removal of the staging directory. Many cleanings end together.

The checkpoints of all partitions of a log directory are one file. To write it for each of thousands of partitions takes
longer than to clean them, so the partitions that are cleaned side by side end in groups: one read and one write.

A checkpoint may lag, it may never lead. A partition joins a group when all its segments are replaced and synced. Its
staging directory, with the manifest that has the new offset, stays until the checkpoint of the group is synced. So
after a stop at any instant recovery finds the offset and writes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType

from kcompact.cleaner.cleaning import Cleaning
from kcompact.cleaner.outcome import CleanResult, Status
from kcompact.errors import CheckpointNotWrittenError, NotEnoughSpaceError, StorageError, as_failure
from kcompact.format.names import TopicPartition
from kcompact.host.machine import most_at_once
from kcompact.log.files import FileIdentity
from kcompact.notes import Note, NoteCode
from kcompact.plan.clean_plan import CleanPlan
from kcompact.swap.checkpoint import write_checkpoints
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.replace import require_unchanged
from kcompact.swap.staging import discard

MOST_TOGETHER = 64
"""How many partitions end in one group at most. Each holds two descriptors until then."""
MOST_WAIT_S = 1.0
"""How long a partition waits for others, until the next one joins. A killed run leaves them to recovery."""
_DESCRIPTORS_OF_ONE = 8
"""So many descriptors this process may have for each partition of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedPartition:
    """A partition whose segments are all replaced. Its checkpoint is not written, and its manifest is still there.

    `directory` is held open, with `staging` in it, until `end` closes it. `result` is the result of the cleaning if
    the checkpoint can be written.
    """

    cleaning: Cleaning
    directory: OpenDirectory
    staging: str
    result: CleanResult


def end(partitions: Sequence[SwappedPartition]) -> list[CleanResult]:
    """Write the checkpoints of partitions, remove their staging directories, and return the results in their order.

    One write for each log directory. A partition that has changed meanwhile, or lost its lock, gets no checkpoint, and
    does not keep the others from theirs. Raises nothing: a result says what was not possible.
    """
    problems: dict[int, Exception] = {}
    by_log_dir: dict[int, list[int]] = {}
    for number, each in enumerate(partitions):
        by_log_dir.setdefault(id(each.cleaning.held_lock), []).append(number)
    for numbers in by_log_dir.values():
        problems |= _write_checkpoints(partitions, numbers)
    return [_ended(each, problems.get(number)) for number, each in enumerate(partitions)]


def _write_checkpoints(partitions: Sequence[SwappedPartition], numbers: Sequence[int]) -> dict[int, Exception]:
    """Write the checkpoints of the partitions of one log directory. Return why some were not written."""
    problems: dict[int, Exception] = {}
    offsets: dict[TopicPartition, int] = {}
    lock = partitions[numbers[0]].cleaning.held_lock
    try:
        lock.check()
        for number in numbers:
            plan = partitions[number].cleaning.plan
            try:
                require_unchanged(partitions[number].directory, untouched(plan))
            except Exception as problem:
                problems[number] = problem
            else:
                offsets[plan.log.topic_partition] = plan.first_uncleanable_offset
        if offsets:
            log_dir = partitions[numbers[0]].cleaning.plan.log.log_dir.path
            with OpenDirectory.of_log_dir(log_dir, lock) as opened_log_dir:
                write_checkpoints(opened_log_dir, offsets)
    except Exception as problem:
        return {number: problems.get(number, problem) for number in numbers}
    return problems


def _ended(partition: SwappedPartition, problem: Exception | None) -> CleanResult:
    """Remove the staging directory, unless recovery needs its manifest to write the checkpoint. Return the result."""
    result, path = partition.result, partition.cleaning.plan.log.directory
    with partition.directory as directory:
        if problem is not None:
            unwritten = CheckpointNotWrittenError(path=path, problem=as_failure(problem))
            return replace(result, status=Status.CHECKPOINT_NOT_WRITTEN, stopped_by=unwritten)
        try:
            discard(directory, partition.staging, is_complete=True)
        except (StorageError, NotEnoughSpaceError) as stays:
            why = str(stays).splitlines()[0]
            note = Note.of(NoteCode.STAGING_STAYS, path=directory.path / partition.staging, why=why)
            return replace(result, notes=(*result.notes, note))
        except Exception as failed:
            return replace(result, stopped_by=as_failure(failed))
    return result


def untouched(plan: CleanPlan) -> list[FileIdentity]:
    """Return the files that no cleaning changes. The lock keeps other writers out; a change shows one without it."""
    files = [file for segment in plan.log.segments[len(plan.segments) :] for file in segment.files]
    return [*files, *plan.log.orphans]


def most_together() -> int:
    """Return how many partitions one group has at most: fewer where a process may open few files."""
    return min(MOST_TOGETHER, most_at_once(_DESCRIPTORS_OF_ONE))


class EndingGroups:
    """Ends partitions in groups: as soon as there are enough of them, or the oldest has waited long enough.

    `ended` receives the results of a group. The end of a `with` block ends the last group, also after an error. Safe
    for several threads.
    """

    def __init__(self, ended: Callable[[Sequence[CleanResult]], None]) -> None:
        self._ended = ended
        self._most_together = most_together()
        self._waiting: list[SwappedPartition] = []
        self._waiting_since = 0.0
        self._changing = threading.Lock()

    def __enter__(self) -> EndingGroups:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def add(self, partition: SwappedPartition) -> None:
        """End the partition with the next group, at once if that is due."""
        with self._changing:
            if not self._waiting:
                self._waiting_since = time.monotonic()
            self._waiting.append(partition)
            is_full = len(self._waiting) >= self._most_together
            is_due = is_full or time.monotonic() - self._waiting_since >= MOST_WAIT_S
        if is_due:
            self.end()

    def end(self) -> None:
        """End the partitions that wait."""
        with self._changing:
            group, self._waiting = self._waiting, []
        if group:
            self._ended(end(group))
