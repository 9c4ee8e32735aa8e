"""The latest record of each key, as a `read_committed` reader sees the log: what a compaction would keep, and no more.

It is decided by the first two stages of a cleaning, as if the whole log up to the last stable offset were dirty. The
result is a bit for each record. Records without a key, markers and aborted records are never the latest.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kcompact.clean.accounting import check_scan
from kcompact.clean.job import CleanJob
from kcompact.clean.offset_map import KEY_BYTES
from kcompact.clean.prepare import survivors_of
from kcompact.clean.scan import CLEANING
from kcompact.errors import BatchTooLargeError, CorruptIndexError
from kcompact.kernels import BASE_OFFSET, Bytes, Column, Mask
from kcompact.log.batch_headers import headers
from kcompact.log.files import LogFile
from kcompact.log.records import RecordRun
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys.state import LogState
from kcompact.stages.executor import Executor
from kcompact.stages.job import Split
from kcompact.stages.sizing import SPLIT_BYTES, Sizing, most_records
from kcompact.stages.splits import balanced


class LatestSplit(NamedTuple):
    """A part of a log file between two positions, with a bit for each of its records."""

    log: LogFile
    start_position: int
    end_position: int
    base_offset: int
    end_offset: int
    bits: Bytes


class LatestRecords(NamedTuple):
    """The latest records of a log: the parts that a `read_committed` reader sees, and which of their batches he skips.

    `aborted` are the base offsets of the batches of aborted transactions, ascending. Records below `start_offset` were
    deleted.
    """

    splits: tuple[LatestSplit, ...]
    aborted: Column
    start_offset: int

    def of(self, log: LogFile) -> Iterator[LatestSplit]:
        """Yield the parts of one log file, in order."""
        return (split for split in self.splits if split.log == log)

    def mask(self, split: LatestSplit, run: RecordRun, first_row: int) -> Mask:
        """Return which records of a run are the latest of their keys. Its first record is `first_row` of the split."""
        first_byte, skipped = divmod(first_row, 8)
        bits = np.unpackbits(split.bits[first_byte : (first_row + len(run) + 7) // 8], bitorder="little")
        is_latest = bits[skipped : skipped + len(run)].view(np.bool_)
        is_read = ~np.isin(run.table[:, BASE_OFFSET], self.aborted)
        mask: Mask = is_latest & is_read[run.batch] & (run.offset >= self.start_offset)
        return mask


def latest_records(
    plan: CleanPlan,
    executor: Executor,
    *,
    memory_bytes: int | None = None,
    split_bytes: int | None = None,
) -> LatestRecords:
    """Return the latest record of each key. Reads only; any number of keys takes no more memory than that.

    A bit is held for each record. `split_bytes` is for tests; no value changes the result.
    Raises CorruptDataError, BatchTooLargeError, LogChangedError, StorageError.
    """
    state = LogState.of(plan)
    state.learn(state.transactional_batches())
    sizing = Sizing(executor, memory_bytes, state.files(), most_split_bytes=split_bytes or SPLIT_BYTES)
    while True:
        try:
            return _latest(state, executor, sizing)
        except CorruptIndexError:
            if state.ignores_indexes:
                raise
            state.ignores_indexes = True  # The log is read without it.
        except BatchTooLargeError:
            if not sizing.has_more_alone():
                raise


def _latest(state: LogState, executor: Executor, sizing: Sizing) -> LatestRecords:
    plan = state.plan
    cut = state.splits(sizing.split_bytes, sizing.most_batch_bytes, on_other_machines=False)
    splits = list(stable_splits(cut, state.stable_offset))
    sizing.fit(splits)
    size_bytes = sum(split.size_bytes for split in splits)
    records = most_records(plan.log.log_end_offset - plan.log.segments[0].base_offset, size_bytes)
    job = CleanJob(
        **sizing.of_keys(records * KEY_BYTES),
        directory=str(plan.log.directory),
        first_dirty_offset=0,
        upper_bound_offset=state.stable_offset,
        high_watermark=plan.high_watermark,
        now_ms=plan.now_ms,
        delete_retention_ms=0,
        keep_tombstones=True,
        last_records={},
        hash_key=secrets.token_bytes(16),
        release=plan.config.release,
    )
    tasks = balanced([[split] for split in splits], sizing.workers, lambda split: split.size_bytes)
    scanned, reduced = executor.scan_and_reduce(job, tasks, CLEANING)
    check_scan(plan.log.directory, tasks, scanned)
    bits, _ = survivors_of(plan, scanned, list(reduced))
    latest_splits = (
        LatestSplit(
            split.log,
            *(split.start_position, split.end_position, split.base_offset, split.end_offset),
            bits[split.number],
        )
        for split in splits
    )
    return LatestRecords(tuple(latest_splits), state.aborted, plan.log.log_start_offset)


def stable_splits(splits: Iterable[Split], stable_offset: int) -> Iterator[Split]:
    """Yield the splits up to the last stable offset, numbered. The last one may lose batches."""
    for number, split in enumerate(splits):
        if split.base_offset >= stable_offset:
            return
        if split.end_offset > stable_offset:
            split = replace(split, end_position=_position_of(split, stable_offset))
        if split.size_bytes:
            yield replace(split, number=number)


def _position_of(split: Split, stable_offset: int) -> int:
    """Return where the first batch of a split begins that ends at or above an offset; its end if there is none."""
    for position, header in headers(split.log, start_position=split.start_position, end_position=split.end_position):
        if header.last_offset >= stable_offset:
            return position
    return split.end_position
