"""What is known of a log while it is counted: how far it can be read, and how its transactions end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from itertools import chain
from pathlib import Path

import numpy as np

from kcompact.errors import BatchTooLargeError, CorruptDataError, KcompactError
from kcompact.format.names import Suffix
from kcompact.kernels import Column
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.segments import Segment
from kcompact.log.transactions import Outcome, PackedTables, TransactionEnds, read_transaction_tables, table_of
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.transactions import end_of_view
from kcompact.stages.job import Split
from kcompact.stages.splits import cut
from kcompact.values import dataclass


@dataclass(slots=True, eq=False)
class LogState:
    """What is known of one log by now.

    Of a damaged log `segments` are the whole ones before the damage and the sound part of the damaged one.
    """

    plan: CleanPlan
    segments: tuple[Segment, ...]
    stable_offset: int
    aborted: Column = field(default_factory=lambda: np.empty(0, np.int64))
    ignores_indexes: bool = False
    problem: KcompactError | None = None

    @classmethod
    def of(cls, plan: CleanPlan) -> LogState:
        """Return the state before anything was read."""
        return cls(plan, plan.log.segments, end_of_view(plan), ignores_indexes=plan.log.ignores_indexes)

    @property
    def directory(self) -> Path:
        """The directory of the partition."""
        return self.plan.log.directory

    def files(self) -> list[tuple[LogFile, int]]:
        """Return the log files, each with the size up to which it is counted."""
        return [(self.plan.log.file(segment.log_name), segment.size_bytes) for segment in self.segments]

    def may_have_aborted(self) -> bool:
        """Return whether a transaction index has an entry: then it is worth reading the headers before the scan."""
        files = chain.from_iterable(segment.files for segment in self.segments)
        return any(file.name.endswith(Suffix.TXN_INDEX) and file.size_bytes for file in files)

    def transactional_batches(self) -> PackedTables:
        """Return the transactional and control batches of the log. Raises CorruptBatchError."""
        return PackedTables.joined(read_transaction_tables(file, end_position=size) for file, size in self.files())

    def learn(self, batches: PackedTables) -> bool:
        """Take over how transactions end by the markers of the log; return whether that is news."""
        tables = np.concatenate([table_of(()), *batches])
        data = tables[tables[:, c.TXN_KIND] >= c.EMPTY_DATA]
        outcomes = TransactionEnds.of_tables([tables]).of_transactional(
            data[:, c.TXN_PRODUCER_ID], data[:, c.TXN_BASE_OFFSET]
        )
        aborted = np.sort(data[outcomes == Outcome.ABORTED, c.TXN_BASE_OFFSET])
        open_offsets = data[outcomes == Outcome.OPEN, c.TXN_BASE_OFFSET]
        # Of a damaged log the producer state is not known, so the transactions that have no end are open. Where the
        # count ends before the damage, the marker that tells how one ended may lie behind it.
        stable_offset = self.stable_offset
        if (self.plan.log.damage or self.problem is not None) and len(open_offsets):
            stable_offset = min(stable_offset, max(int(open_offsets.min()), self.plan.log.log_start_offset))
        is_news = stable_offset != self.stable_offset or not np.array_equal(aborted, self.aborted)
        self.stable_offset, self.aborted = stable_offset, aborted
        return is_news

    def end_before(self, problem: CorruptDataError | BatchTooLargeError, file: Path) -> bool:
        """End the log before a damaged or too large batch; return False if the problem does not say where that is.

        The first problem can be one of an index that named a wrong position, so then the headers are read instead.
        """
        if not self.ignores_indexes:
            self.ignores_indexes = True
            return True
        names = [segment.log_name for segment in self.segments]
        if problem.position is None or file.name not in names:
            return False
        number = names.index(file.name)
        damaged = self.segments[number]
        if problem.position >= damaged.size_bytes:
            return False
        self.problem = problem
        self.segments = (*self.segments[:number], replace(damaged, size_bytes=problem.position))
        return True

    def splits(self, split_bytes: int, memory_bytes: int, *, on_other_machines: bool) -> Iterator[Split]:
        """Yield the splits of the log, not numbered yet. Raises CorruptDataError, BatchTooLargeError."""
        log = replace(self.plan.log, ignores_indexes=self.ignores_indexes)
        for segment in self.segments:
            identity = segment.files[0].elsewhere() if on_other_machines else segment.files[0]
            is_growing = log.log_dir.is_running and segment.base_offset == log.active_segment.base_offset
            for split in cut(log, segment, split_bytes, memory_bytes, end_offset=log.end_of(segment)):
                first, end = np.searchsorted(self.aborted, (split.base_offset, split.end_offset)).tolist()
                yield replace(
                    split,
                    excluded_from_map=self.aborted[first:end].copy(),
                    identity=None if is_growing else identity,
                )
