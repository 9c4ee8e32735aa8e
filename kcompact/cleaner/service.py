"""The cleaner as a service: threads that clean the dirtiest logs of log directories until it is shut down.

    with Cleaner(["/var/lib/kafka"], {"cleanup.policy": "compact"}) as cleaner:
        cleaner.await_cleaned(TopicPartition("orders", 0), 1000, timeout_s=60)

The methods and the metrics have the names and the meaning that they have in Kafka. No broker may run: the log
directories are locked while the service runs. Rule: `LogCleaner`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from kcompact.cleaner.cleaning import Cleaning, CleanOptions
from kcompact.cleaner.in_use import Locks, require_unused
from kcompact.cleaner.journal import Journal, journal_at
from kcompact.cleaner.log_pool import WAIT_S, LogPool, Uncleanable
from kcompact.cleaner.metrics import ThreadStats, cleaner_metrics
from kcompact.cleaner.outcome import CleanResult
from kcompact.cleaner.partition import delete_old_segments, perform, reset_checkpoint
from kcompact.cleaner.recovery import recover_each
from kcompact.cleaner.round import with_overrides
from kcompact.cleaner.states import Event, State
from kcompact.config.broker_config import UNKNOWN_BROKER
from kcompact.config.layers import merged_config
from kcompact.engine.in_process import InProcess
from kcompact.errors import (
    CleanerStateError,
    CleaningAbortedError,
    ConfigError,
    KcompactError,
    LogChangedError,
    RefusedError,
    storage_errors,
)
from kcompact.failures import as_failure
from kcompact.format.names import TopicPartition
from kcompact.host.machine import available_cores, clock_ms, default_memory_bytes
from kcompact.host.throttle import Throttle
from kcompact.log.directory import read_again
from kcompact.log.lock import LogDirLock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.cost import offset_map_slots
from kcompact.plan.discovery import named_path
from kcompact.plan.options import PlanOptions
from kcompact.stages.executor import Progress
from kcompact.swap.checkpoint import write_checkpoints
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.recovery.end import Recovery, RecoveryReport
from kcompact.swap.recovery.interrupted_round import begin_recovery


class Cleaner:
    """Cleans the compacted partitions of some log directories in the background.

    `config` has settings by Kafka's names, as for `clean_log_dir`. Of the broker's settings `log.cleaner.threads`,
    `log.cleaner.backoff.ms` and `log.cleaner.io.max.bytes.per.second` have the effect that they have in a broker.
    `clock` returns the time of each choice in Unix milliseconds. `on_cleaned` is called, by the cleaner's threads,
    with the result of each cleaning, when the partition has no state any more; an exception that it raises ends the
    thread. With `apply_retention`, nothing is deleted by a default of Kafka unless the broker's own settings are known.

    Raises ConfigError for settings that Kafka does not accept and for options that a service does not have.
    """

    def __init__(
        self,
        log_dirs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        config: Mapping[str, str] | None = None,
        *,
        plan_options: PlanOptions | None = None,
        options: CleanOptions | None = None,
        clock: Callable[[], int] = clock_ms,
        on_cleaned: Callable[[CleanResult], None] = lambda result: None,
    ) -> None:
        self._options = options or CleanOptions()
        if self._options.only_reads:
            raise ConfigError(path="options", problem="the cleaner service neither copies nor makes dry runs")
        if self._options.keep_replaced is not None:
            problem = "the cleaner service cleans a log again and again, and keeps no segments"
            raise ConfigError(path="keep_replaced", problem=problem)
        named = [log_dirs] if isinstance(log_dirs, str | os.PathLike) else log_dirs
        self._log_dirs = tuple(named_path(log_dir).resolve() for log_dir in named)
        self._plan_options = with_overrides(plan_options or PlanOptions(now_ms=clock(), by_clock=True), config)
        self._plan_options = replace(self._plan_options, log_dirs=(*self._plan_options.log_dirs, *self._log_dirs))
        if self._options.rebuild_indexes:
            self._plan_options = replace(self._plan_options, rebuild_indexes=True)
        given = self._plan_options.broker_config or UNKNOWN_BROKER
        broker = merged_config("", overrides=self._plan_options.overrides, broker=given)
        self._thread_count = broker.log_cleaner_threads
        self._backoff_s = broker.log_cleaner_backoff_ms / 1000
        self._throttle = Throttle(_bytes_per_second(self._options, broker.log_cleaner_io_max_bytes_per_second))
        self._clock = clock
        self._on_cleaned = on_cleaned
        self._logs = LogPool(
            self._log_dirs,
            self._plan_options,
            clock=clock,
            plan_ms=broker.log_cleaner_backoff_ms,
            reset_checkpoint=lambda plan: reset_checkpoint(plan, self._lock_of(plan.log.directory)),
        )
        self._stack = ExitStack()
        self._locks: dict[Path, LogDirLock] = {}
        self._journal: Journal | None = None
        self._threads: list[CleanerThread] = []
        self._stopped = threading.Event()  # A new one for each run: a thread of an earlier run stays stopped.
        self._stopped.set()
        self._changing = threading.RLock()
        """Held by a caller that changes something itself, so that `shutdown` does not return meanwhile.

        `startup` and `shutdown` hold it too: of several calls at once each sees the service started, or stopped.
        """

    def __enter__(self) -> Self:
        self.startup()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, where: TracebackType | None
    ) -> None:
        self.shutdown()

    # Its life

    def startup(self) -> None:
        """Lock the log directories, recover interrupted swaps and start the threads.

        What failed in an earlier run is tried again. Raises CleanerStateError if the cleaner runs or a shutdown has not
        returned; LogDirLockedError, RefusedError, RecoveryNeededError, StorageError, and then nothing is locked.
        """
        with ExitStack() as on_failure:
            with self._changing:
                if self._is_running or self._locks:
                    hint = "Call shutdown first, and wait until it has returned."
                    raise CleanerStateError(partition="the cleaner", state="running", event="startup", hint=hint)
                self._threads = []
                # Called without `_changing`, because a thread that has started may wait for it in `on_cleaned`.
                on_failure.callback(self._end, self._threads)
                self._start()
            on_failure.pop_all()

    def _start(self) -> None:
        self._logs.forget_failures()
        locks = Locks(self._stack)
        for log_dir in self._log_dirs:
            with storage_errors(log_dir):
                if not log_dir.is_dir():
                    problem = "not a directory" if log_dir.exists() else "no such directory"
                    raise RefusedError(path=log_dir, problem=problem)
                lock = locks.of_log_dir(log_dir)
            assert lock is not None, "a service takes the locks"
            self._locks[log_dir] = lock
        directories = self._logs.directories()
        self._journal = self._stack.enter_context(journal_at(self._options.journal, directories))
        if self._journal is not None:
            self._journal.open()
        for recovered in recover_each(directories, self._begin_recovery, journal=self._journal).values():
            if isinstance(recovered, KcompactError):
                raise recovered
        self._stopped = threading.Event()
        for number in range(self._thread_count):
            thread = CleanerThread(self, number, self._clock(), self._stopped)
            thread.start()
            self._threads.append(thread)

    @property
    def _is_running(self) -> bool:
        return not self._stopped.is_set()

    def shutdown(self) -> None:
        """Stop the threads at their next step and release the locks. A swap that has begun is finished."""
        with self._changing:
            threads = self._threads
        self._end(threads)

    def _end(self, threads: list[CleanerThread]) -> None:
        """Stop the threads of one start and release its locks. Those of a later start stay."""
        this = threading.current_thread()
        if isinstance(this, CleanerThread):  # `on_cleaned` calls this. The thread changes nothing any more.
            this.has_left.set()
        with self._changing:
            if threads is self._threads:
                self._stopped.set()
        for thread in threads:
            while thread is not this and thread.is_alive() and not thread.has_left.is_set():
                thread.join(WAIT_S)
        with self._changing:
            if threads is self._threads:
                self._locks = {}
                self._stack.close()

    def _begin_recovery(self, directory: Path) -> Recovery | RecoveryReport:
        require_unused(directory)
        return begin_recovery(directory, log_dir=directory.parent, lock=self._lock_of(directory))

    def _lock_of(self, directory: Path) -> LogDirLock:
        """Return the lock that `startup` has taken for a partition. Raises CleanerStateError after `shutdown`."""
        lock = self._locks.get(directory.parent)
        if lock is None:
            raise _not_running("a change")
        return lock

    # Aborts and pauses

    def state_of(self, partition: TopicPartition) -> State:
        """Return the state of a partition."""
        return self._logs.state_of(partition)

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Stop the cleaning of a partition, if it is being cleaned, and return when it has stopped.

        Raises CleanerStateError while another caller waits for the same.
        """
        self.abort_and_pause_cleaning(partition)
        self.resume_cleaning([partition])

    def abort_and_pause_cleaning(self, partition: TopicPartition) -> None:
        """Stop the cleaning of a partition and start no other until it is resumed. Pauses add up.

        Returns when the cleaning has stopped. Raises CleanerStateError while another caller waits for the same.
        """
        self._logs.abort_and_pause(partition)

    def resume_cleaning(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each partition. Raises CleanerStateError for one that is not paused."""
        self._logs.resume(partitions)

    @contextmanager
    def truncating(self, partition: TopicPartition, offset: int) -> Iterator[Path]:
        """Let the block truncate a log to `offset`: its cleaning is aborted before, and the checkpoint lowered.

        Yields the directory of the partition. The new checkpoint is at most `offset`, also if the block raises. A low
        one only costs work. A log that is truncated without this call is noticed too: its cleaning stops with nothing
        changed, and it is planned anew. Raises ConfigError for an offset below 0, CleanerStateError if the cleaner does
        not run. Rule: `LogManager.truncateTo`, `LogCleanerManager.maybeTruncateCheckpoint`.
        """
        if offset < 0:
            raise ConfigError(path="offset", problem=f"{offset} is below 0")
        if not self._is_running:
            raise _not_running("truncating")
        directory = self._logs.directory_of(partition)
        self.abort_and_pause_cleaning(partition)
        try:
            with self._changing:
                lock = self._lock_of(directory)
                checkpoint = self.checkpoint_of(partition)
                if checkpoint is not None and checkpoint > offset:
                    lock.check()
                    with OpenDirectory.of_log_dir(directory.parent, lock) as log_dir:
                        write_checkpoints(log_dir, {partition: offset})
            yield directory
        finally:
            self.resume_cleaning([partition])

    # Progress

    def await_cleaned(self, partition: TopicPartition, offset: int, timeout_s: float) -> bool:
        """Wait until the checkpoint of a partition is at or above `offset`. Return whether it was in time.

        Does not wait while the cleaner does not run.
        """
        deadline_s = time.monotonic() + timeout_s
        while not (is_cleaned := self._is_cleaned(partition, offset)) and time.monotonic() < deadline_s:
            if not self._is_running:
                break
            self._logs.wait_for_change(max(0, min(WAIT_S, deadline_s - time.monotonic())))
        return is_cleaned

    def _is_cleaned(self, partition: TopicPartition, offset: int) -> bool:
        checkpoint = self.checkpoint_of(partition)
        return checkpoint is not None and checkpoint >= offset

    def checkpoint_of(self, partition: TopicPartition) -> int | None:
        """Return the offset up to which a partition is clean, None if it was never cleaned.

        The checkpoint of a cleaning counts when the cleaning has ended. Raises RefusedError, CorruptCheckpointError,
        StorageError.
        """
        return self._logs.checkpoint_of(partition)

    @property
    def uncleanable_partitions(self) -> dict[TopicPartition, Uncleanable]:
        """The partitions that failed to be cleaned, with bytes and cause. They are passed over until forgotten."""
        return self._logs.uncleanable

    @property
    def offline_log_dirs(self) -> dict[Path, KcompactError]:
        """The log directories that could not be read or written, with the cause. They are passed over."""
        return self._logs.offline_log_dirs

    def forget_uncleanable(self, partition: TopicPartition | None = None) -> None:
        """Try an uncleanable partition again, or all of them, after the recovery of what its swap has left.

        One that cannot be recovered stays uncleanable. One that is paused is not recovered: if a swap has left files
        there, it is uncleanable again when it is resumed. Nothing is recovered while the cleaner does not run.
        """
        with self._changing:
            grabbed = self._logs.grab_uncleanable(partition) if self._is_running else {}
            try:
                recovered = recover_each(grabbed.values(), self._begin_recovery, journal=self._journal)
                self._logs.forget_uncleanable(partition)
                for directory, each in recovered.items():
                    if isinstance(each, KcompactError):
                        self._logs.fail(directory, each, plan=None)
            finally:
                for name in grabbed:
                    self._logs.done(name, Event.DONE_CLEANING)

    @property
    def thread_failures(self) -> tuple[BaseException, ...]:
        """The errors that ended threads, which `DeadThreadCount` counts."""
        return tuple(thread.failure for thread in self._threads if thread.failure is not None)

    def metrics(self) -> dict[str, int]:
        """Return the metrics by Kafka's names. `metrics.py` has the formula of each."""
        uncleanable: dict[str, list[int]] = {str(log_dir): [] for log_dir in self._log_dirs}
        for each in self._logs.uncleanable.values():
            uncleanable[str(each.directory.parent)].append(each.cleanable_bytes)
        return cleaner_metrics(
            [thread.stats for thread in self._threads],
            dirtiest_ratio=self._logs.dirtiest_ratio,
            last_run_ms=self._logs.last_run_ms,
            now_ms=self._clock(),
            uncleanable=uncleanable,
        )

    # The work of one thread

    def work(self, thread: CleanerThread) -> None:
        """Clean the dirtiest log again and again, and wait for the back-off when there is none."""
        while not thread.stopped.is_set():
            is_cleaned = self._clean_dirtiest(thread)
            if self._options.apply_retention and not thread.stopped.is_set():
                self._delete_old_segments(thread.stopped)
            self._logs.maintain_uncleanable()
            if not is_cleaned:
                thread.stopped.wait(self._backoff_s)

    def _clean_dirtiest(self, thread: CleanerThread) -> bool:
        """Clean the dirtiest log, if there is one, and return whether the next one can follow without a back-off."""
        plan, candidates = self._logs.grab_dirtiest()
        if plan is None:
            return False
        thread.stats = thread.stats.with_candidates(candidates)
        partition, directory = plan.log.topic_partition, plan.log.directory
        started_ms = self._clock()
        try:
            # Old segments are deleted after each choice, as a broker does, and not only with a cleaning.
            result = perform(self._cleaning(plan, apply_retention=False))
            if result.stopped_by is not None:
                raise result.stopped_by
            thread.stats = thread.stats.with_cleaning(
                result.stats, map_slots=offset_map_slots(plan.config), started_ms=started_ms, ended_ms=self._clock()
            )
        except CleaningAbortedError:
            return True  # Nothing is half done. The log is planned anew when it is resumed.
        except LogChangedError:
            self._after_change(directory)
            return False
        except Exception as problem:
            self._logs.fail(directory, as_failure(problem), plan=plan)
            return False
        finally:
            self._logs.done(partition, Event.DONE_CLEANING)
        self._on_cleaned(result)
        return True

    def _after_change(self, directory: Path) -> None:
        """Plan a log anew that was changed meanwhile. Without its lock, leave the log directory alone."""
        try:
            self._lock_of(directory).check()
        except KcompactError as problem:
            self._logs.take_offline(directory.parent, problem)

    def _cleaning(self, plan: CleanPlan, *, apply_retention: bool) -> Cleaning:
        progress = _AbortCheck(self, plan.log.topic_partition)
        memory_bytes = (self._options.memory_bytes or default_memory_bytes()) // self._thread_count
        return Cleaning(
            plan=plan,
            executor=InProcess(
                progress=progress,
                parallelism=max(1, available_cores() // self._thread_count),
                throttle=self._throttle,
            ),
            lock=self._lock_of(plan.log.directory),
            options=replace(
                self._options, apply_retention=apply_retention, max_bytes_per_second=None, memory_bytes=memory_bytes
            ),
            progress=progress,
            journal=self._journal,
        )

    def _delete_old_segments(self, stopped: threading.Event) -> None:
        """Delete the old segments of every compacted log that no thread works on, as a broker does after a cleaning."""
        for each in self._logs.grab_deletable():
            assert each.plan is not None, "only a planned log is deletable"
            is_changed = not stopped.is_set()
            try:
                if is_changed:
                    plan = replace(each.plan, log=read_again(each.plan.log))
                    is_changed = bool(delete_old_segments(self._cleaning(plan, apply_retention=True)).expired)
            except LogChangedError:
                self._after_change(each.directory)
            except Exception as problem:
                self._logs.fail(each.directory, as_failure(problem), plan=each.plan)
            finally:
                self._logs.done(each.plan.log.topic_partition, Event.DONE_DELETING, is_changed=is_changed)

    def check(self, partition: TopicPartition) -> None:
        """Raise CleaningAbortedError if the cleaning of a partition is to stop."""
        if not self._is_running:
            raise CleaningAbortedError(path=str(partition))
        self._logs.apply(partition, Event.CHECK)


class CleanerThread(threading.Thread):
    """One thread of the cleaner, and what it remembers for the metrics."""

    def __init__(self, cleaner: Cleaner, number: int, started_ms: int, stopped: threading.Event) -> None:
        super().__init__(name=f"kcompact-log-cleaner-thread-{number}", daemon=True)
        self._cleaner = cleaner
        self.stopped = stopped
        self.has_left = threading.Event()
        """Set when the thread changes nothing any more, although it still runs."""
        self.stats = ThreadStats(started_ms=started_ms)
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Work until the cleaner is shut down. An error that is not of one log ends the thread."""
        try:
            self._cleaner.work(self)
        except BaseException as problem:
            self.failure = problem
            self.stats = replace(self.stats, is_dead=True)


class _AbortCheck(Progress):
    """Stops a cleaning that was aborted or whose cleaner is shut down."""

    def __init__(self, cleaner: Cleaner, partition: TopicPartition) -> None:
        self._cleaner = cleaner
        self._partition = partition

    def check(self) -> None:
        self._cleaner.check(self._partition)


def _not_running(event: str) -> CleanerStateError:
    hint = "Call startup first: logs are only changed under the locks that it takes."
    return CleanerStateError(partition="the cleaner", state="not running", event=event, hint=hint)


def _bytes_per_second(options: CleanOptions, broker_limit: float) -> int | None:
    """Return the limit of all threads together: the option's, else the broker setting's. None is no limit.

    Raises ConfigError for 0, with which a broker's cleaner starts, and waits for ever.
    """
    if options.max_bytes_per_second is not None:
        return options.max_bytes_per_second
    if broker_limit == 0:
        raise ConfigError(
            path="log.cleaner.io.max.bytes.per.second", problem="with 0 bytes a second nothing is cleaned"
        )
    return max(1, int(broker_limit)) if 0 <= broker_limit < 1 << 63 else None
