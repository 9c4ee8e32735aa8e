"""Turns a plan into a `PreparedClean`: every survivor is known, and each part can be written on its own.

The log is cut into splits, the splits are assigned to tasks, and the executor scans and reduces them.
`offset_map.latest` decides which record supersedes which. It can be applied to any part of the log, and again to its
own results, so the number of splits, buckets and tasks never changes the result.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby

import numpy as np

from kcompact.clean.accounting import check_reduction, check_scan
from kcompact.clean.job import CleanJob, SplitSummary, WriteTask
from kcompact.clean.offset_map import KEY_BYTES, Reduced, count_bits
from kcompact.clean.scan import CLEANING, Scanned
from kcompact.clean.splits import number_splits
from kcompact.clean.transactions import (
    Batches,
    TransactionDecisions,
    aborted_of_indexes,
    aborted_of_markers,
    decide_transactions,
    read_transaction_batches,
    verify_transaction_indexes,
)
from kcompact.clean.verify_input import (
    damage_behind,
    verify_control_types,
    verify_epochs,
    verify_index_ends,
    verify_replayed,
    verify_time_indexes,
)
from kcompact.errors import BatchTooLargeError, CorruptDataError
from kcompact.format.block import Bytes, clear_rows, head
from kcompact.format.index import AbortedTxn
from kcompact.kernels import Column
from kcompact.log.producer_state import last_records
from kcompact.log.transactions import PackedTable, PackedTables
from kcompact.plan.clean_plan import CleanPlan
from kcompact.stages.executor import Executor
from kcompact.stages.job import Split
from kcompact.stages.sizing import SPLIT_BYTES, TASK_BYTES, Sizing, most_records
from kcompact.stages.splits import balanced
from kcompact.values import dataclass

WRITE_WEIGHT = 4
"""How many times the work of reading a record it is to encode and write it. Compression makes it more."""
LEAST_TASK_BYTES = 4 << 20
"""Two tasks on fewer bytes each gain less time than it takes to start them and to join what they write."""
WRITE_TASKS = 4
"""How many tasks of writing each worker gets if little survives of a log that is slow to compress, or if there are so
many groups. How long such a task takes also depends on how many batches are dropped unread; workers that take the next
task when they are free end at about the same time."""
FEW_SURVIVE = 4
"""Little survives: at most this part of the bytes. Joining a segment copies every part of it but the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How the work is cut into pieces. No value changes the result.

    None means that the value follows from the size of the log. `memory_bytes` is for all workers together.
    """

    split_bytes: int = SPLIT_BYTES
    task_bytes: int = TASK_BYTES
    bucket_count: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClean:
    """A plan whose survivors are known.

    `executor` has found them, and writes them. `tasks` are the parts of all groups. `kept_index` holds the `.txnindex`
    entries of each group, by its number.
    """

    plan: CleanPlan
    executor: Executor
    job: CleanJob
    tasks: tuple[WriteTask, ...]
    kept_index: Mapping[int, Sequence[AbortedTxn]]
    map_keys: int

    def tasks_of(self, groups: Iterable[int]) -> list[list[WriteTask]]:
        """Return the parts of these groups, one list for each task, the last first.

        The scan has just read the end of the log, so more of it is still in the page cache. Most of the latest records
        are there, too: what is begun last should not take longest.
        """
        wanted = set(groups)
        tasks = [task for task in self.tasks if task.group in wanted]
        return [list(run) for _, run in groupby(tasks, key=lambda task: task.run)][::-1]

    def in_whole_groups(self) -> PreparedClean:
        """Return the same cleaning with one part and one task for each group: slower, but no part is appended."""
        parts = [list(tasks) for _, tasks in groupby(self.tasks, key=lambda task: task.group)]
        return replace(self, tasks=tuple(map(_joined, parts)))


def prepare_clean(
    plan: CleanPlan,
    executor: Executor,
    *,
    keep_tombstones: bool = False,
    max_bytes_per_second: int | None = None,
    tuning: Tuning | None = None,
) -> PreparedClean:
    """Return the survivors of a cleaning. Reads only.

    All workers share the memory. A batch that needs more than a worker's part is read by fewer workers, or by one, and
    refused if it needs more than there is: the result does not depend on the number of workers.
    Raises CorruptDataError, UnsupportedError, BatchTooLargeError, StorageError.
    """
    tuning = tuning or Tuning()
    most_split_bytes = tuning.split_bytes
    if max_bytes_per_second is not None:
        most_split_bytes = min(most_split_bytes, max(1, max_bytes_per_second // 8))  # Small steps keep the rate even.
    files = ((plan.log.file(segment.log_name), segment.size_bytes) for segment in plan.segments)
    sizing = Sizing(executor, tuning.memory_bytes, files, most_split_bytes=most_split_bytes)
    verify_index_ends(plan)
    verify_replayed(plan)
    try:
        splits = number_splits(
            plan, sizing.split_bytes, sizing.most_batch_bytes, on_other_machines=executor.is_on_other_machines
        )
    except CorruptDataError as problem:
        raise damage_behind(problem, plan) from None
    sizing.fit(chain.from_iterable(splits.values()))
    size_bytes = sum(segment.size_bytes for segment in plan.segments)
    offsets = sum(plan.log.end_of(segment) - segment.base_offset for segment in plan.segments)
    job = CleanJob(
        **sizing.of_keys(most_records(offsets, size_bytes) * KEY_BYTES),
        directory=str(plan.log.directory),
        first_dirty_offset=plan.first_dirty_offset,
        upper_bound_offset=plan.first_uncleanable_offset,
        high_watermark=plan.high_watermark,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.config.delete_retention_ms,
        keep_tombstones=keep_tombstones,
        last_records=last_records(plan.producers),
        # Each run has a new hash key, so no producer can write records whose key hashes collide.
        hash_key=secrets.token_bytes(16),
        max_bytes_per_second=max_bytes_per_second,
        release=plan.config.release,
        held_back_from_offset=plan.held_back_from_offset,
    )
    if tuning.bucket_count:
        job = replace(job, bucket_count=tuning.bucket_count)
    tasks = sizing.task_count(size_bytes, tuning.task_bytes) if sizing.is_for_all else sizing.workers
    tasks = min(tasks, max(1, size_bytes // min(LEAST_TASK_BYTES, tuning.split_bytes)))
    known = _aborted_and_decisions(plan)
    try:
        return _prepared(plan, executor, job, splits, tasks, *known)
    except BatchTooLargeError:
        if not sizing.has_more_alone():
            raise
        alone = replace(job, memory_bytes=sizing.batch_bytes, workers=1)
        return _prepared(plan, executor, alone, splits, 1, *known)


def _prepared(
    plan: CleanPlan,
    executor: Executor,
    job: CleanJob,
    splits: dict[int, list[Split]],
    task_count: int,
    aborted: Mapping[int, Sequence[AbortedTxn]],
    decisions: TransactionDecisions | None,
) -> PreparedClean:
    """Scan and reduce the splits in at most so many tasks. The last two are those of `_aborted_and_decisions`.

    Raises as `prepare_clean`.
    """
    if decisions is not None:
        splits = _with_decisions(splits, decisions)
    all_splits = list(chain.from_iterable(splits.values()))
    tasks = balanced([[split] for split in all_splits], task_count, lambda split: split.size_bytes)
    try:
        scanned, reduced = executor.scan_and_reduce(job, tasks, CLEANING)
    except CorruptDataError as problem:
        raise damage_behind(problem, plan) from None
    check_scan(plan.log.directory, tasks, scanned)
    verify_epochs(plan, scanned)
    verify_time_indexes(plan, scanned)
    verify_control_types(scanned)
    batches = _transactional_batches(plan, scanned)
    if not plan.log.ignores_indexes:
        verify_transaction_indexes(plan, batches, aborted)
    if decisions is None:
        decisions = decide_transactions(plan, batches, aborted)
        splits = _with_decisions(splits, decisions)
    survivors, map_keys = survivors_of(plan, scanned, list(reduced))
    summaries = {scan.split.number: scan.summary for scan in scanned}
    groups = [[split for segment in group for split in splits[segment.base_offset]] for group in plan.groups]
    # If there are fewer workers than could be, more tasks than workers would be worked on at the same time.
    most_tasks = WRITE_TASKS * job.workers if job.workers == executor.parallelism > 1 and task_count > 1 else 0
    write_tasks = _write_tasks(job, groups, survivors, summaries, task_count, max(task_count, most_tasks))
    task_of = {split.number: number for number, task in enumerate(write_tasks) for split in task}
    return PreparedClean(
        plan=plan,
        executor=executor,
        job=job,
        tasks=tuple(_parts(groups, task_of, survivors, summaries)),
        kept_index=decisions.kept_index,
        map_keys=map_keys,
    )


def _aborted_and_decisions(plan: CleanPlan) -> tuple[Mapping[int, Sequence[AbortedTxn]], TransactionDecisions | None]:
    """Return the aborted transactions by segment, and what follows for all transactions if there is an aborted one.

    Records of aborted transactions must not enter the offset map, so headers are then read before the scan. Without
    any, the headers that the scan returns are enough.
    """
    if plan.log.ignores_indexes:
        batches = read_transaction_batches(plan)
        aborted = aborted_of_markers(plan, batches)
        return aborted, decide_transactions(plan, batches, aborted)
    aborted = aborted_of_indexes(plan)
    if not any(aborted.values()):
        return aborted, None
    batches = read_transaction_batches(plan)
    return aborted, decide_transactions(plan, batches, aborted)


def survivors_of(
    plan: CleanPlan, scanned: Sequence[Scanned], reduced: Sequence[Reduced]
) -> tuple[dict[int, Bytes], int]:
    """Return the survivor bits of each split, by its number, and the number of keys in the offset map."""
    survivors = {scan.split.number: np.frombuffer(bytearray(scan.survivors), np.uint8) for scan in scanned}
    latest_in_tasks = sum(map(count_bits, survivors.values()))
    for bucket in reduced:
        for block in bucket.blocks:
            clear_rows(block, survivors[head(block).number])
    latest = sum(map(count_bits, survivors.values()))
    check_reduction(plan.log.directory, reduced, latest_in_tasks=latest_in_tasks, latest=latest)
    return survivors, sum(bucket.map_keys for bucket in reduced)


def _parts(
    groups: Sequence[Sequence[Split]],
    task_of: Mapping[int, int],
    survivors: Mapping[int, Bytes],
    summaries: Mapping[int, SplitSummary],
) -> Iterator[WriteTask]:
    """Yield the parts of all groups, ascending: one for each task that has splits of the group, at least one."""
    run = 0
    for group, group_splits in enumerate(groups):
        members = [list(part) for _, part in groupby(group_splits, key=lambda split: task_of[split.number])] or [[]]
        for part, part_splits in enumerate(members):
            run = task_of[part_splits[0].number] if part_splits else run
            yield WriteTask(
                group=group,
                part=part,
                run=run,
                splits=tuple(part_splits),
                survivors=tuple(survivors[split.number].tobytes() for split in part_splits),
                unkeyed_or_tombstones=tuple(summaries[split.number].unkeyed_or_tombstones for split in part_splits),
                is_only=len(members) == 1,
                records=sum(summaries[split.number].records for split in part_splits),
                most_bytes=sum(summaries[split.number].most_bytes for split in part_splits),
            )


def _joined(parts: Sequence[WriteTask]) -> WriteTask:
    """Return a group's parts as one part, which is written by a task of its own."""
    return WriteTask(
        group=parts[0].group,
        part=0,
        run=parts[0].group,
        splits=tuple(split for part in parts for split in part.splits),
        survivors=tuple(survivors for part in parts for survivors in part.survivors),
        unkeyed_or_tombstones=tuple(count for part in parts for count in part.unkeyed_or_tombstones),
        is_only=True,
        records=sum(part.records for part in parts),
        most_bytes=sum(part.most_bytes for part in parts),
    )


def _transactional_batches(plan: CleanPlan, scanned: Iterable[Scanned]) -> Batches:
    """Return the transactional and control batches that the scan found in each segment, by base offset."""
    base_of = {segment.log_name: segment.base_offset for segment in plan.segments}
    packed_tables: dict[int, list[PackedTable]] = {base_offset: [] for base_offset in base_of.values()}
    for scan in sorted(scanned, key=lambda scan: scan.split.number):
        packed_tables[base_of[scan.split.log.name]].append(scan.summary.transactional)
    return {base_offset: PackedTables(packed) for base_offset, packed in packed_tables.items()}


def _with_decisions(splits: Mapping[int, Sequence[Split]], decisions: TransactionDecisions) -> dict[int, list[Split]]:
    """Return the splits with the decisions about their batches."""
    none: Column = np.empty(0, np.int64)
    return {
        base_offset: [
            replace(
                split,
                excluded_from_map=_within(decisions.excluded_from_map.get(base_offset, none), split),
                discardable=_within(decisions.discardable[base_offset], split),
            )
            for split in segment_splits
        ]
        for base_offset, segment_splits in splits.items()
    }


def _within(offsets: Column, split: Split) -> Column:
    first, end = np.searchsorted(offsets, (split.base_offset, split.end_offset)).tolist()
    return offsets[first:end].copy()  # A part of an array would be pickled with all of it.


def _surviving_bytes(split: Split, survivors: Bytes, summary: SplitSummary) -> int:
    """Return about how many bytes of a split survive, as if all its records were of the same size."""
    return split.size_bytes * count_bits(survivors) // max(1, summary.records)


def _write_tasks(
    job: CleanJob,
    groups: Sequence[Sequence[Split]],
    survivors: Mapping[int, Bytes],
    summaries: Mapping[int, SplitSummary],
    count: int,
    most: int,
) -> list[list[Split]]:
    """Return the splits of each task of writing: `count` tasks, or up to `most` if that saves time."""
    splits = list(chain.from_iterable(groups))
    left_bytes = {
        split.number: _surviving_bytes(split, survivors[split.number], summaries[split.number]) for split in splits
    }

    def work_of(split: Split) -> int:
        # What is left is not spread evenly: most of the latest records are in the last part of a log.
        return split.size_bytes + WRITE_WEIGHT * left_bytes[split.number]

    if len(groups) >= WRITE_TASKS * job.workers:  # No group is in two tasks, so none has to be joined.
        return balanced(groups, most, work_of)
    total_bytes = sum(split.size_bytes for split in splits)
    slow_bytes = sum(summaries[split.number].slow_bytes for split in splits)
    is_slow = 2 * slow_bytes > total_bytes >= FEW_SURVIVE * sum(left_bytes.values())
    return balanced([[split] for split in splits], most if is_slow else count, work_of)
