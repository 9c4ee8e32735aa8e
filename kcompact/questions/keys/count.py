"""Counts the keys of some partitions together: cuts their logs, runs the two stages, and checks that all adds up.

A log that is damaged is counted up to the damage. If the markers that the scan finds say something else about aborted
transactions than was assumed, the scan is repeated with what they say.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kcompact.bucket.scratch import as_path
from kcompact.errors import (
    BatchTooLargeError,
    CorruptDataError,
    KcompactError,
    LogChangedError,
    RefusedError,
    StorageError,
)
from kcompact.kernels import KEY_COLUMNS
from kcompact.log.transactions import PackedTables
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys.counts import CountedKeys, CountOptions
from kcompact.questions.keys.job import CountedLog, CountedSplit, KeysJob
from kcompact.questions.keys.reduce import COUNTING, BucketRows
from kcompact.questions.keys.result import result_of
from kcompact.questions.keys.rows import ROW_BYTES
from kcompact.questions.keys.state import LogState
from kcompact.stages.executor import Executor
from kcompact.stages.job import Split
from kcompact.stages.sizing import SPLIT_BYTES, Sizing, most_records
from kcompact.stages.splits import balanced


def count_keys(
    plans: Sequence[CleanPlan],
    executor: Executor,
    options: CountOptions | None = None,
    *,
    split_bytes: int | None = None,
) -> CountedKeys:
    """Return what the keys of some partitions add up to, each on its own and all together. Reads only.

    The plans name the segments and say up to where a `read_committed` reader sees the log. A damaged log is counted up
    to the damage, which its result names as `problem`. Any number of keys is counted in the memory of the options.
    `split_bytes` is for tests; no value changes the result. Raises ScratchSpaceError, EngineError, and
    LogChangedError or StorageError if a running broker has replaced what is counted.
    """
    options = options or CountOptions()
    states = [LogState.of(plan) for plan in plans]
    failed: list[tuple[Path, KcompactError]] = []
    known: set[Path] = set()
    is_alone = False
    while True:
        try:
            for state in states:
                if state.directory not in known and state.may_have_aborted():
                    state.learn(state.transactional_batches())
                known.add(state.directory)
            counting = _Counting(states, executor, options, split_bytes, is_alone=is_alone)
            scanned, buckets = counting.run()
            news = [state.learn(counting.transactional(number, scanned)) for number, state in enumerate(states)]
            if not any(news):
                return result_of(counting.job, states, counting.splits, scanned, buckets, failed)
        except BatchTooLargeError as problem:
            if not is_alone:
                is_alone = True  # There is more memory for a batch if only one is read at a time.
                continue
            _without(states, failed, problem)
        except KcompactError as problem:
            _without(states, failed, problem)


def _without(states: list[LogState], failed: list[tuple[Path, KcompactError]], problem: KcompactError) -> None:
    """End a log before the problem, or leave it out. Raises the problem if it is not that of one log."""
    file = getattr(problem, "file", None) or getattr(problem, "path", None)
    if not isinstance(problem, CorruptDataError | RefusedError | LogChangedError | StorageError) or file is None:
        raise problem
    path = as_path(file)
    owner = next((state for state in states if state.directory in (path, *path.parents)), None)
    is_change = isinstance(problem, LogChangedError | StorageError)
    if owner is None or (is_change and owner.plan.log.log_dir.is_running):
        raise problem
    if isinstance(problem, CorruptDataError | BatchTooLargeError) and owner.end_before(problem, path):
        return
    states.remove(owner)
    failed.append((owner.directory, problem))


class _Counting:
    """One attempt: the job, the splits and the tasks of the logs as they are known by now."""

    def __init__(
        self,
        states: Sequence[LogState],
        executor: Executor,
        options: CountOptions,
        split_bytes: int | None,
        *,
        is_alone: bool,
    ) -> None:
        self._executor = executor
        files = [file for state in states for file in state.files()]
        sizing = Sizing(executor, options.memory_bytes, files, most_split_bytes=split_bytes or SPLIT_BYTES)
        self.splits: dict[int, Split] = {}
        logs = []
        for state in states:
            start_offset = state.plan.log.log_start_offset
            logs.append(CountedLog(len(self.splits), start_offset, state.stable_offset))
            for split in state.splits(
                sizing.split_bytes, sizing.most_batch_bytes, on_other_machines=executor.is_on_other_machines
            ):
                self.splits[len(self.splits)] = replace(split, number=len(self.splits))
        all_splits = list(self.splits.values())
        sizing.fit(all_splits)
        if is_alone:
            sizing.workers = 1
        columns = KEY_COLUMNS + bool(options.separator)
        self.job = KeysJob(
            **sizing.of_tables(_most_records(states) * ROW_BYTES * columns),
            logs=tuple(logs),
            now_ms=states[0].plan.now_ms if states else 0,
            older_than_ms=options.older_than_ms,
            separator=options.separator,
            top=options.top,
            hash_key=secrets.token_bytes(16),
        )
        count = sizing.task_count(sum(size_bytes for _, size_bytes in files))
        self._tasks = balanced([[split] for split in all_splits], count, lambda split: split.size_bytes)

    def run(self) -> tuple[list[CountedSplit], list[BucketRows]]:
        """Run both stages."""
        if not self.splits:
            return [], []
        scanned, buckets = self._executor.scan_and_reduce(self.job, self._tasks, COUNTING)
        return sorted(scanned, key=lambda split: split.number), list(buckets)

    def transactional(self, log: int, scanned: Sequence[CountedSplit]) -> PackedTables:
        """Return the transactional and control batches that the scan has found in a log."""
        return PackedTables(split.transactional for split in scanned if self.job.log_of(split.number) == log)


def _most_records(states: Sequence[LogState]) -> int:
    offsets = sum(
        state.plan.log.end_of(segment) - segment.base_offset for state in states for segment in state.segments
    )
    return most_records(offsets, sum(size_bytes for state in states for _, size_bytes in state.files()))
