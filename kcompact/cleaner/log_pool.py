"""The logs of the cleaner service: their states, which one is cleaned next, and which ones cannot be cleaned.

Every method is safe for several threads. `states` has the table of the states; this module adds the lock, the waits,
the plans and the memory of uncleanable partitions. Rule: `LogCleanerManager`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kcompact.cleaner.metrics import greatest_ratio
from kcompact.cleaner.states import ABORTED, NONE, Event, State, after
from kcompact.errors import KcompactError, RecoveryNeededError, RefusedError, StorageError, storage_errors
from kcompact.format.names import TopicPartition, parse_directory
from kcompact.log.directory import read_log_dir
from kcompact.plan.clean_plan import CleanPlan, dirtiest_first
from kcompact.plan.discovery import is_gone, partitions_in
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import refusal
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import PlannedPartition, drop_tracebacks, plan_partitions
from kcompact.values import dataclass

WAIT_S = 0.1
"""The longest wait between two looks at something that may change without a notice, such as a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncleanable:
    """A partition that failed to be cleaned: the cause, and the size of its cleanable section in bytes.

    The cleaner passes it over until it is forgotten. `cleanable_bytes` is of the plan that failed, 0 without one.
    """

    directory: Path
    cause: KcompactError
    cleanable_bytes: int


class Choice(NamedTuple):
    """The dirtiest log, which is now in progress, and all logs that it was chosen from."""

    plan: CleanPlan | None
    candidates: tuple[CleanPlan, ...]


class LogPool:
    """The states, plans and uncleanable partitions of the logs in some log directories.

    `options` says how logs are planned; its time is replaced by `clock`, in Unix milliseconds. A plan is used again for
    at most `plan_ms`, unless the partition was cleaned or resumed since. `reset_checkpoint` gets each new plan.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        options: PlanOptions,
        *,
        clock: Callable[[], int],
        plan_ms: int,
        reset_checkpoint: Callable[[CleanPlan], None],
    ) -> None:
        self._log_dirs = tuple(log_dirs)
        self._options = options
        self._clock = clock
        self._plan_ms = plan_ms
        self._reset_checkpoint = reset_checkpoint
        self._changed = threading.Condition()
        self._choosing = threading.Lock()
        self._states: dict[TopicPartition, State] = {}
        self._ages: dict[TopicPartition, int] = {}
        self._plans: dict[TopicPartition, tuple[int, PlannedPartition]] = {}
        self._in_progress: dict[TopicPartition, CleanPlan] = {}
        self._uncleanable: dict[TopicPartition, Uncleanable] = {}
        self._offline: dict[Path, KcompactError] = {}
        self.dirtiest_ratio = 0.0
        self.last_run_ms = clock()

    # States

    def state_of(self, partition: TopicPartition) -> State:
        """Return the state of a partition."""
        with self._changed:
            return self._states.get(partition, NONE)

    def apply(self, partition: TopicPartition, event: Event) -> State:
        """Change the state of a partition and return it. Raises as `states.after` does."""
        with self._changed:
            before = self._states.get(partition, NONE)
            state = after(before, event, partition=partition)
            if state == NONE:
                self._states.pop(partition, None)
            else:
                self._states[partition] = state
            if state != before:
                self._changed.notify_all()
            return state

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Pause a partition, after its cleaning has stopped if there is one. Pauses add up.

        Raises CleanerStateError while another caller waits for the same abort.
        """
        with self._changed:
            if self.apply(partition, Event.ABORT_AND_PAUSE) == ABORTED:
                self._changed.wait_for(lambda: self._states.get(partition, NONE) != ABORTED)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each partition, which is planned anew. Raises CleanerStateError for one not paused."""
        with self._changed:
            for partition in partitions:
                self.apply(partition, Event.RESUME)
                self._ages[partition] = self._ages.get(partition, 0) + 1

    def done(self, partition: TopicPartition, event: Event, *, is_changed: bool = True) -> None:
        """End a cleaning or a deletion. A log that it may have changed is planned anew before it is chosen again."""
        with self._changed:
            self._in_progress.pop(partition, None)
            if is_changed:
                self._ages[partition] = self._ages.get(partition, 0) + 1
            self.apply(partition, event)

    def wait_for_change(self, timeout_s: float) -> None:
        """Wait until a state changes, for at most `timeout_s`."""
        with self._changed:
            self._changed.wait(timeout_s)

    # The choice

    def grab_dirtiest(self) -> Choice:
        """Return the dirtiest of the logs that are to be cleaned, now in progress.

        All logs are looked up each time, so logs may be added and removed. A log that cannot be planned becomes
        uncleanable. Raises ConfigError. Rule: `LogCleanerManager.grabFilthiestCompactedLog`.
        """
        with self._choosing:
            now_ms = self._clock()
            self.last_run_ms = now_ms
            candidates = self._candidates()
            planned = self._planned(candidates, now_ms)
            plans = tuple(each.plan for each in planned if each.plan is not None and _is_candidate(each.plan))
            self.dirtiest_ratio = greatest_ratio(plans)
            for plan in dirtiest_first([plan for plan in plans if plan.eligible]):
                with self._changed:
                    if self._is_idle(plan.log.directory, candidates[plan.log.directory]):
                        self.apply(plan.log.topic_partition, Event.START_CLEANING)
                        self._in_progress[plan.log.topic_partition] = plan
                        return Choice(plan, plans)
            return Choice(None, plans)

    def grab_deletable(self) -> list[PlannedPartition]:
        """Return the compacted logs that no thread works on, now in progress, so that old segments can be deleted.

        Rule: `LogCleanerManager.deletableLogs`.
        """
        with self._choosing:
            grabbed = []
            candidates = self._candidates()
            for each in self._planned(candidates, self._clock()):
                if each.plan is None or not _is_candidate(each.plan):
                    continue
                with self._changed:
                    if self._is_idle(each.directory, candidates[each.directory]):
                        self.apply(each.plan.log.topic_partition, Event.START_DELETING)
                        grabbed.append(each)
            return grabbed

    def directories(self) -> list[Path]:
        """Return the partition directories that there are now. A log directory that cannot be read goes offline."""
        partition_directories: list[Path] = []
        for log_dir in self._log_dirs:
            try:
                with storage_errors(log_dir):
                    partition_directories += filter(self._options.selection.has, partitions_in(log_dir))
            except StorageError as problem:
                self.take_offline(log_dir, problem)
        return partition_directories

    def directory_of(self, partition: TopicPartition) -> Path:
        """Return the directory of a partition. Raises RefusedError if no log directory has it, StorageError."""
        for log_dir in self._log_dirs:
            directory = log_dir / str(partition)
            with storage_errors(directory):
                if directory.is_dir():
                    return directory
        raise RefusedError(path=str(partition), problem="no log directory of the cleaner has this partition")

    def checkpoint_of(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which a partition is clean, None if it was never cleaned.

        The checkpoint of a cleaning counts when the cleaning has ended. Raises RefusedError, CorruptCheckpointError,
        StorageError. Rule: `LogCleanerManager.doneCleaning`, `allCleanerCheckpoints`.
        """
        log_dir = self.directory_of(partition).parent
        while True:
            with self._changed:
                if (plan := self._in_progress.get(partition)) is not None:
                    return plan.log.checkpoint_offset
                age = self._ages.get(partition, 0)
            with storage_errors(log_dir):
                offset = (read_log_dir(log_dir).cleaner_offsets or {}).get(partition)
            with self._changed:
                # A cleaning that has begun meanwhile may have written what was read.
                if partition not in self._in_progress and self._ages.get(partition, 0) == age:
                    return offset

    def _candidates(self) -> dict[Path, int]:
        """Return the directories of the partitions that are idle and neither uncleanable nor offline, with their ages.

        The age of a partition rises whenever its log or its checkpoint may have changed.
        """
        directories = self.directories()
        with self._changed:
            return {
                directory: self._ages.get(partition, 0)
                for directory in directories
                if (partition := _partition(directory)) not in self._states
                and partition not in self._uncleanable
                and directory.parent not in self._offline
            }

    def _planned(self, candidates: Mapping[Path, int], now_ms: int) -> list[PlannedPartition]:
        """Return the plan of each candidate: a recent one, or a new one.

        Candidates that were paused, resumed or cleaned meanwhile are left out, because their plans may be wrong.
        """
        with self._changed:
            recent = {
                each.directory: each
                for directory, age in candidates.items()
                if (known := self._plans.get(_partition(directory))) is not None
                and (each := known[1]).directory == directory
                and known[0] == age
                and _is_recent(each, now_ms, self._plan_ms)
            }
        missing = [directory for directory in candidates if directory not in recent]
        for each in plan_partitions(missing, replace(self._options, now_ms=now_ms)):
            with self._changed:  # Held during the reset, so that the partition cannot be paused meanwhile.
                if not self._is_idle(each.directory, candidates[each.directory]):
                    continue
                error = each.error or _refusal(each.plan)
                if error is None and each.plan is not None:
                    try:
                        self._reset_checkpoint(each.plan)
                    except KcompactError as problem:
                        error = problem
                if error is not None:
                    self.fail(each.directory, error, plan=each.plan)
                    continue
                self._plans[_partition(each.directory)] = candidates[each.directory], each
            recent[each.directory] = each
        return [recent[directory] for directory in candidates if directory in recent]

    def _is_idle(self, directory: Path, age: int) -> bool:
        """Return whether a partition has no state, and is still as it was at this age."""
        partition = _partition(directory)
        return partition not in self._states and self._ages.get(partition, 0) == age

    # Failures

    def forget_failures(self) -> None:
        """Try all log directories and partitions again, as a broker does that is started anew."""
        with self._changed:
            self._offline.clear()
            self._uncleanable.clear()

    @property
    def uncleanable(self) -> dict[TopicPartition, Uncleanable]:
        """The partitions that failed to be cleaned."""
        with self._changed:
            return dict(self._uncleanable)

    @property
    def offline_log_dirs(self) -> dict[Path, KcompactError]:
        """The log directories that could not be read or written. Nothing in them is cleaned any more."""
        with self._changed:
            return dict(self._offline)

    def fail(self, directory: Path, cause: KcompactError, *, plan: CleanPlan | None) -> None:
        """Remember a failure. A failed read or write takes the log directory offline, as in a broker.

        A file that is not found is no failure: the partition is being removed, or is planned anew.
        Rule: `LogCleaner.CleanerThread.cleanLog`, `LogCleanerManager.markPartitionUncleanable`.
        """
        with self._changed:
            if isinstance(cause, StorageError) and isinstance(cause.problem, FileNotFoundError):
                return
            if isinstance(cause, StorageError) and _is_in(directory.parent, Path(cause.path)):
                self.take_offline(directory.parent, cause)
                return
            drop_tracebacks(cause)
            cleanable_bytes = plan.cleanable_bytes if plan is not None else 0
            self._uncleanable[_partition(directory)] = Uncleanable(
                directory=directory, cause=cause, cleanable_bytes=cleanable_bytes
            )
            self._changed.notify_all()

    def take_offline(self, log_dir: Path, cause: KcompactError) -> None:
        """Clean nothing in a log directory any more. Rule: `LogCleanerManager.handleLogDirFailure`."""
        with self._changed:
            self._offline[log_dir] = cause

    def grab_uncleanable(self, partition: TopicPartition | None = None) -> dict[TopicPartition, Path]:
        """Return the directory of an uncleanable partition, or of all, now in progress, so that it can be recovered.

        One that has a state is left out: it is paused, and its caller may change it.
        """
        with self._changed:
            grabbed = {
                name: each.directory
                for name, each in self._uncleanable.items()
                if partition in (None, name) and name not in self._states
            }
            for name in grabbed:
                self.apply(name, Event.START_CLEANING)
            return grabbed

    def forget_uncleanable(self, partition: TopicPartition | None = None) -> None:
        """Forget that a partition, or any, is uncleanable, so that the cleaner tries it again."""
        with self._changed:
            for each in [partition] if partition is not None else list(self._uncleanable):
                self._uncleanable.pop(each, None)
            self._changed.notify_all()

    def maintain_uncleanable(self) -> None:
        """Forget uncleanable partitions whose directories are gone.

        Rule: `LogCleanerManager.maintainUncleanablePartitions`.
        """
        with self._changed:
            gone = [partition for partition, each in self._uncleanable.items() if is_gone(each.directory)]
            for partition in gone:
                del self._uncleanable[partition]


def _is_in(log_dir: Path, path: Path) -> bool:
    """Return whether a path lies in a log directory. The journal does not, for example."""
    return path.is_relative_to(log_dir) or not path.is_absolute()


def _partition(directory: Path) -> TopicPartition:
    parsed = parse_directory(directory.name)
    assert parsed is not None, f"find_partitions returned {directory}"
    return parsed.topic_partition


def _is_candidate(plan: CleanPlan) -> bool:
    return plan.config.compacts and plan.reason not in (Reason.INTERNAL, Reason.PAUSED_BY_MOVE)


def _refusal(plan: CleanPlan | None) -> KcompactError | None:
    """Return why a compacted log is never cleaned, None for one that may be. Internal topics are just left out."""
    if plan is None or not _is_candidate(plan):
        return None
    if plan.reason is Reason.LEFTOVERS:
        return RecoveryNeededError(
            path=plan.log.directory,
            problem="an earlier swap is unfinished",
            files=plan.log.leftovers,
            hint="Call forget_uncleanable, or shut the cleaner down and start it again: both recover it.",
        )
    return refusal(plan)


def _is_recent(planned: PlannedPartition, now_ms: int, plan_ms: int) -> bool:
    return planned.plan is not None and now_ms - planned.plan.now_ms <= plan_ms
