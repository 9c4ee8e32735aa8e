"""The end of a cleaning, and the groups in which partitions end together: cleaned ones, and recovered ones.

All checkpoints of a log directory are one file, so `swap.round_end` writes those of a group at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Generic, TypeVar

from kcompact.cleaner.cleaning import Cleaning
from kcompact.cleaner.journal import Journal
from kcompact.cleaner.outcome import CleanResult, Status
from kcompact.errors import CheckpointNotWrittenError, NotEnoughSpaceError, StorageError
from kcompact.failures import as_failure
from kcompact.format.names import Suffix
from kcompact.host.machine import most_at_once
from kcompact.log.files import FileIdentity
from kcompact.plan.clean_plan import CleanPlan
from kcompact.remarks import Note, RemarkCode
from kcompact.swap import round_end
from kcompact.swap.replace import require_unchanged
from kcompact.swap.round_end import Ended, Ending, Present
from kcompact.swap.staging import discard
from kcompact.values import dataclass

MOST_TOGETHER = 64
"""How many partitions end in one group at most. Each holds two descriptors until then."""
MOST_WAIT_S = 1.0
"""How long a partition waits for others, until the next one joins. A killed run leaves them to recovery."""
_DESCRIPTORS_OF_ONE = 8
"""So many descriptors this process may have for each partition of a group."""

Partition = TypeVar("Partition")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedPartition(Ending):
    """A partition whose segments are all replaced. Its checkpoint is not written, and its manifest is still there.

    `staging` is the staging directory in `directory`. `new_files` are those of the new segments.
    `result` is the result of the cleaning if the checkpoint can be written.
    """

    cleaning: Cleaning
    staging: str
    new_files: Sequence[FileIdentity]
    result: CleanResult

    def offset_due(self, present: Present) -> int:
        """Return the checkpoint. Raises LogChangedError if the partition was changed."""
        require_unchanged(self.directory, [*untouched(self.cleaning.plan), *self.new_files])
        return self.cleaning.plan.first_uncleanable_offset

    def discard(self) -> None:
        """Remove the staging directory."""
        discard(self.directory, self.staging, is_complete=True)


def end(partitions: Sequence[SwappedPartition], journal: Journal | None) -> list[CleanResult]:
    """Write the checkpoints of partitions, remove their staging directories, and return the results in their order.

    A partition that has changed meanwhile, or lost its lock, gets no checkpoint. The journal, if there is one, gets
    their last lines before the manifests go. Raises nothing: a result says what was not possible.
    """
    results: list[CleanResult] = []

    def journaled(ended: Sequence[Ended]) -> None:
        clean_results = [_result(each, how) for each, how in zip(partitions, ended, strict=True)]
        results.extend(clean_results if journal is None else journal.end(clean_results))

    ended = round_end.end(partitions, before_discard=journaled)
    return [_with_what_stays(*each) for each in zip(partitions, results, ended, strict=True)]


def _result(partition: SwappedPartition, outcome: Ended) -> CleanResult:
    if outcome.unwritten is None:
        return partition.result
    unwritten = CheckpointNotWrittenError(path=partition.directory.path, problem=as_failure(outcome.unwritten))
    return replace(partition.result, status=Status.CHECKPOINT_NOT_WRITTEN, stopped_by=unwritten)


def _with_what_stays(partition: SwappedPartition, result: CleanResult, outcome: Ended) -> CleanResult:
    if isinstance(outcome.stays, StorageError | NotEnoughSpaceError):
        why = str(outcome.stays).splitlines()[0]
        note = Note.of(RemarkCode.STAGING_STAYS, path=partition.directory.path / partition.staging, why=why)
        return replace(result, notes=(*result.notes, note))
    return result if outcome.stays is None else replace(result, stopped_by=as_failure(outcome.stays))


def untouched(plan: CleanPlan) -> list[FileIdentity]:
    """Return the files that no cleaning changes. The lock keeps other writers out; a change shows one without it.

    An empty `.txnindex` is left out: `--rebuild-indexes` may have replaced it.
    """
    files = [file for segment in plan.log.segments[len(plan.segments) :] for file in segment.files]
    files = [file for file in files if file.size_bytes or not file.name.endswith(Suffix.TXN_INDEX)]
    return [*files, *plan.log.orphans]


def most_together() -> int:
    """Return how many partitions one group has at most: fewer where a process may open few files."""
    return min(MOST_TOGETHER, most_at_once(_DESCRIPTORS_OF_ONE))


class EndingGroups(Generic[Partition]):
    """Ends partitions in groups: as soon as there are enough of them, or the oldest has waited long enough.

    `end` ends a group. The end of a `with` block ends the last one, also after an error. Safe for several threads.
    """

    def __init__(self, end: Callable[[Sequence[Partition]], None]) -> None:
        self._end = end
        self._most_together = most_together()
        self._waiting: list[Partition] = []
        self._waiting_since = 0.0
        self._changing = threading.Lock()

    def __enter__(self) -> EndingGroups[Partition]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def add(self, partition: Partition) -> None:
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
            self._end(group)
