"""From a plan to staged segments, in three stages of plain functions on packed blocks.

    scan   (splits of the log)        -> per bucket a block: key hash and place of each record that may survive
    reduce (a bucket: all its blocks) -> per split a block: the records that do not
    write  (a part of a group)        -> a staged file

Which record supersedes which is decided by one function, `keymap.latest`, that may be applied to any part of the log
and again to its own results; that is why any number of splits, buckets, parts and tasks, on any executor, gives the
same bytes. An executor is the machinery that calls the stages: `in_process` here, Spark in `spark`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from kcompact.clean.executor import Executor
from kcompact.clean.job import CleanJob, Split, WriteTask
from kcompact.clean.offset_map import KEY_BYTES
from kcompact.clean.scan import Scanned
from kcompact.clean.splits import SPLIT_BYTES, number_splits
from kcompact.clean.transactions import (
    SegmentHeaders,
    TransactionDecisions,
    aborted_of_segments,
    decide_transactions,
    read_transaction_headers,
)
from kcompact.clean.verify_input import verify_epochs, verify_index_ends, verify_time_indexes
from kcompact.format.block import Bytes, clear_rows, head
from kcompact.format.index import AbortedTxn
from kcompact.host.memory import default_memory_bytes
from kcompact.log.producer_state import last_records
from kcompact.plan.clean_plan import CleanPlan

TASK_BYTES = 2 << 30
"""What a task reads in all, at most: so much is done again when it is lost, and only then does progress show."""


COMPILED_BYTES = 2 << 20
"""From which size on the kernels pay for being loaded."""


BUCKET_BYTES = 64 << 20
"""What the keys of a bucket may take at most; larger ones would only be slower."""


MIN_BUCKET_BYTES = 1 << 20


# From a plan to the stages and back


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How large the pieces are that the work is cut into, and who does it. They never change the result.

    None leaves it to the size of the log. `memory_bytes` is for all workers together.
    """

    split_bytes: int = SPLIT_BYTES
    task_bytes: int = TASK_BYTES
    bucket_count: int | None = None
    memory_bytes: int | None = None
    compiled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClean:
    """A plan whose survivors are known: every part of every group is ready to be written."""

    plan: CleanPlan
    job: CleanJob
    tasks: tuple[WriteTask, ...]
    kept_index: Mapping[int, tuple[AbortedTxn, ...]]
    map_keys: int

    def tasks_of(self, groups: Iterable[int]) -> list[list[WriteTask]]:
        """Return the parts of some groups, as they are dealt to tasks."""
        wanted = set(groups)
        own = [task for task in self.tasks if task.group in wanted]
        return [list(run) for _, run in groupby(own, key=lambda task: task.run)]


def prepare_clean(
    plan: CleanPlan,
    executor: Executor,
    *,
    keep_tombstones: bool = False,
    rebuild_indexes: bool = False,
    max_bytes_per_second: int | None = None,
    tuning: Tuning | None = None,
) -> PreparedClean:
    """Scan the log and find out which records survive. Reads only.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    tuning = tuning or Tuning()
    total_bytes = sum(segment.size_bytes for segment in plan.segments)
    compiled = is_for_kernels(plan) if tuning.compiled is None else tuning.compiled
    keys_bytes, bucket_count = _key_memory(plan, tuning, executor.parallelism)
    job = CleanJob(
        directory=str(plan.log.directory),
        first_dirty_offset=plan.first_dirty_offset,
        upper_bound_offset=plan.first_uncleanable_offset,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.config.delete_retention_ms,
        keep_tombstones=keep_tombstones,
        last_records=last_records(plan.producers),
        # Keyed anew for each run, so that nobody can write records whose keys collide.
        hash_key=secrets.token_bytes(16),
        bucket_count=bucket_count,
        keys_bytes=keys_bytes,
        compiled=compiled,
        max_bytes_per_second=max_bytes_per_second,
    )
    if not rebuild_indexes:
        verify_index_ends(plan)
    split_bytes = tuning.split_bytes
    if max_bytes_per_second is not None:
        split_bytes = min(split_bytes, max(1, max_bytes_per_second // 8))  # So that it goes steadily.
    splits = number_splits(plan, split_bytes, trust_index=not rebuild_indexes)
    decisions = None
    aborted = aborted_of_segments(plan)
    if any(aborted.values()):
        decisions = decide_transactions(plan, read_transaction_headers(plan, compiled=compiled), aborted)
        splits = _with_decisions(splits, decisions)
    task_count = max(executor.parallelism, -(-total_bytes // tuning.task_bytes))
    runs = _balanced([split for own in splits.values() for split in own], task_count)
    scanned, reduced = executor.scan_and_reduce(job, runs)
    verify_epochs(plan, scanned)
    if not rebuild_indexes:
        verify_time_indexes(plan, scanned)
    if decisions is None:
        decisions = decide_transactions(plan, _seen_by(plan, scanned), aborted)
        splits = _with_decisions(splits, decisions)
    survivors = {one.split.number: np.frombuffer(bytearray(one.survivors), np.uint8) for one in scanned}
    map_keys = 0
    for bucket in reduced:
        map_keys += bucket.map_keys
        for block in bucket.blocks:
            clear_rows(block, survivors[head(block).number])
    run_of = {split.number: number for number, run in enumerate(runs) for split in run}
    return PreparedClean(
        plan=plan,
        job=job,
        tasks=tuple(
            _parts(
                plan,
                splits,
                run_of,
                survivors,
                {one.split.number: one.summary.unkeyed_or_tombstones for one in scanned},
            )
        ),
        kept_index=decisions.kept_index,
        map_keys=map_keys,
    )


def is_for_kernels(plan: CleanPlan) -> bool:
    """Whether the log is large enough for the kernels to pay."""
    return sum(segment.size_bytes for segment in plan.segments) >= COMPILED_BYTES


def _key_memory(plan: CleanPlan, tuning: Tuning, parallelism: int) -> tuple[int, int]:
    """Return how many bytes of keys a task may hold, and the number of buckets that keeps each of them below that."""
    memory_bytes = tuning.memory_bytes or default_memory_bytes()
    # Keys take about three times their size where they are merged.
    keys_bytes = min(BUCKET_BYTES, max(MIN_BUCKET_BYTES, memory_bytes // (8 * parallelism)))
    # An offset is a record, or was one; and a record takes some bytes, even compressed.
    offsets = sum(plan.log.end_of(segment) - segment.base_offset for segment in plan.segments)
    records = min(offsets, sum(segment.size_bytes for segment in plan.segments) // 8)
    bucket_count = max(1, -(-records * KEY_BYTES // keys_bytes))
    # Each worker reduces something, unless there is next to nothing to reduce.
    if records * KEY_BYTES >= MIN_BUCKET_BYTES:
        bucket_count = max(bucket_count, parallelism)
    return keys_bytes, tuning.bucket_count or bucket_count


def _parts(
    plan: CleanPlan,
    splits: Mapping[int, Sequence[Split]],
    run_of: Mapping[int, int],
    survivors: Mapping[int, Bytes],
    unkeyed_or_tombstones: Mapping[int, int],
) -> Iterator[WriteTask]:
    """Yield the parts of all groups, ascending: what each task has of it. A group has at least one, even if empty."""
    run = 0
    for group, segments in enumerate(plan.groups):
        own = [split for segment in segments for split in splits[segment.base_offset]]
        members = [list(part) for _, part in groupby(own, key=lambda split: run_of[split.number])] or [[]]
        for part, part_splits in enumerate(members):
            run = run_of[part_splits[0].number] if part_splits else run
            yield WriteTask(
                group=group,
                part=part,
                run=run,
                splits=tuple(part_splits),
                survivors=tuple(survivors[split.number].tobytes() for split in part_splits),
                unkeyed_or_tombstones=tuple(unkeyed_or_tombstones[split.number] for split in part_splits),
                is_only=len(members) == 1,
            )


def _seen_by(plan: CleanPlan, scanned: Iterable[Scanned]) -> dict[int, SegmentHeaders]:
    """Return what the scan saw of each segment's headers, by its base offset."""
    base_of = {segment.log_name: segment.base_offset for segment in plan.segments}
    found = {base_offset: SegmentHeaders((), base_offset) for base_offset in base_of.values()}
    for one in sorted(scanned, key=lambda one: one.split.number):
        base_offset, summary = base_of[one.split.log_name], one.summary
        found[base_offset] = SegmentHeaders(
            (*found[base_offset].batches, *summary.transactional),
            max(found[base_offset].next_offset, summary.next_offset),
        )
    return found


def _with_decisions(splits: Mapping[int, Sequence[Split]], decisions: TransactionDecisions) -> dict[int, list[Split]]:
    """Return the splits with the batches that concern each."""
    found = {}
    for base_offset, own in splits.items():
        excluded_from_map = decisions.excluded_from_map.get(base_offset, frozenset())
        discardable = decisions.discardable[base_offset]
        if excluded_from_map or discardable:
            own = [
                replace(
                    split, excluded_from_map=_within(excluded_from_map, split), discardable=_within(discardable, split)
                )
                for split in own
            ]
        found[base_offset] = list(own)
    return found


def _within(offsets: frozenset[int], split: Split) -> frozenset[int]:
    return frozenset(offset for offset in offsets if split.base_offset <= offset < split.end_offset)


def _balanced(splits: Sequence[Split], count: int) -> list[list[Split]]:
    """Deal the splits into at most `count` runs of about the same size, in order."""
    total = sum(split.size_bytes for split in splits)
    tasks: list[list[Split]] = [[]]
    done = 0
    for split in splits:
        if tasks[-1] and done >= total * len(tasks) / count:
            tasks.append([])
        tasks[-1].append(split)
        done += split.size_bytes
    return tasks
