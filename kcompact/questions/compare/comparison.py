"""Compares the replicas of one partition: finds the fork, reads all of them side by side, and judges each.

A damaged replica is read before and after its damage. The damage is found by the first reading; then all is read again
with the damaged offsets known, so that nothing there is accused.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from kcompact.errors import CorruptBatchError, CorruptDataError
from kcompact.format.names import Suffix, parse_file_name
from kcompact.kernels import KEY_COLUMNS, Column, Mask, Table
from kcompact.kernels import columns as c
from kcompact.log.directory import PartitionLog
from kcompact.log.transactions import Outcome, TransactionEnds
from kcompact.questions.compare.epochs import Line, lines_of
from kcompact.questions.compare.job import ComparedLog, CompareJob, overlap
from kcompact.questions.compare.judge import COMPARING, Case, JudgedKeys, WrongKeys
from kcompact.questions.compare.replica import Replica, files_of
from kcompact.questions.compare.scan import ComparedRange, Damaged
from kcompact.questions.compare.splits import aligned_splits, position_of
from kcompact.questions.compare.transactions import WrongTransaction, without_marker, wrong_transactions
from kcompact.questions.keys.rows import ROW_BYTES
from kcompact.stages.executor import Executor
from kcompact.stages.job import Split
from kcompact.stages.sizing import SPLIT_BYTES, Sizing, most_records
from kcompact.stages.splits import balanced
from kcompact.values import dataclass


@dataclass(slots=True, kw_only=True)
class Comparison(ComparedRange):
    """What the replicas of a partition have shown. `bands` are those of the job, `ranges` their sums.

    `lines` say from which offset on a replica is not compared, because it leaves the line of the newest leader.
    `tainted` has for each replica the ranges of offsets that damage may hide. `keys` is the number of different keys
    that were judged.
    """

    replicas: tuple[Replica, ...]
    lines: tuple[Line, ...]
    tainted: tuple[Table, ...]
    bands: tuple[int, ...]
    keys: int = 0
    wrong: dict[Case, WrongKeys] = field(default_factory=dict)
    transactions: list[WrongTransaction] = field(default_factory=list)

    @property
    def forks(self) -> tuple[int | None, ...]:
        """Where each replica forks, None for those on the line of the newest leader."""
        return tuple(line.fork for line in self.lines)

    @property
    def fork_offset(self) -> int | None:
        """The first offset at which a replica forks, None without a fork."""
        return min((fork for fork in self.forks if fork is not None), default=None)

    @property
    def older(self) -> tuple[int, ...]:
        """The replicas that are truncated to their fork when they follow the newest leader."""
        return tuple(number for number, fork in enumerate(self.forks) if fork is not None)

    def end_of(self, replica: int) -> int:
        """Return the offset up to which a replica is compared: its log end, or where it leaves the line."""
        return min(self.replicas[replica].log.log_end_offset, self.lines[replica].end_offset)

    def could_have(self, replica: int, offsets: Column) -> Mask:
        """Return which offsets a replica is compared at, and serves: not those that damage may hide."""
        log = self.replicas[replica].log
        is_compared: Mask = (log.log_start_offset <= offsets) & (offsets < self.end_of(replica))
        return is_compared & ~overlap(self.tainted[replica], offsets, offsets + 1)

    def is_unreplicated(self, replica: int) -> bool:
        """Return whether what a replica has from its fork on was above each high watermark of its line: not committed.

        A high watermark on a disk is old, so it is a lower bound.
        """
        fork = self.forks[replica]
        line = [each for each, other in zip(self.replicas, self.forks, strict=True) if other is not None]
        return fork is not None and all(0 < each.high_watermark <= fork for each in line)

    def last_hole(self, from_offset: int, end_offset: int) -> int | None:
        """Return the last offset in a range of bands at which no replica has a record, None if there is none."""
        starts = (0, *self.bands)
        holes = [
            int(hole)
            for hole, start, end in zip(self.holes, starts, self.bands, strict=False)
            if start < end_offset and from_offset < end and from_offset <= hole < end_offset
        ]
        return max(holes, default=None)


def compare_replicas(
    logs: Sequence[PartitionLog],
    executor: Executor,
    *,
    memory_bytes: int | None = None,
    split_bytes: int | None = None,
    problems: Sequence[CorruptDataError | None] = (),
    leader: int | None = None,
) -> Comparison:
    """Compare the replicas of a partition. Reads only; any number of keys is compared in the same memory.

    `problems` has for each replica what is damaged in its log directory, None if nothing is. `leader` is the number of
    the replica from which the others fetch, None if that is not known. `split_bytes` is for tests; no value changes the
    result. Raises RefusedError, StorageError, ScratchSpaceError, EngineError.
    """
    replicas = tuple(map(Replica.read, logs))
    lines = lines_of(
        [each.epochs for each in replicas],
        [bool(each.wrong_epochs or each.wrong_offsets) for each in replicas],
        [each.high_watermark for each in replicas],
    )
    known = [
        Damaged(number, problem.file, 0, logs[number].log_end_offset, logs[number].log_end_offset, problem)
        for number, problem in enumerate(problems)
        if problem is not None
    ]
    known += [wrong for number, each in enumerate(replicas) for wrong in _known_damage(number, each)]
    reading = _Reading(replicas, lines, executor, memory_bytes, split_bytes, leader)
    damage = known
    while True:
        comparison = reading.run(damage)
        comparison.damage = known + comparison.damage
        if len(comparison.damage) == len(damage):
            return comparison
        damage = comparison.damage


class _Reading:
    """What each reading of all replicas needs: the splits and the job, without the damage."""

    def __init__(
        self,
        replicas: tuple[Replica, ...],
        lines: Sequence[Line],
        executor: Executor,
        memory_bytes: int | None,
        split_bytes: int | None,
        leader: int | None,
    ) -> None:
        logs = [each.log for each in replicas]
        self._replicas, self._lines, self._executor = replicas, tuple(lines), executor
        files = [file for log in logs for file in files_of(log)]
        sizing = self._sizing = Sizing(
            executor, memory_bytes, files, logs=len(logs), most_split_bytes=split_bytes or SPLIT_BYTES
        )
        end_offset = max(log.log_end_offset for log in logs)
        fork_offsets = [line.end_offset for line in lines]
        bounds = {offset for log in logs for offset in (log.log_start_offset, log.log_end_offset)}
        bounds |= {each.known_offset for each in replicas}
        self._bands = tuple(sorted(each for each in {*bounds, *fork_offsets, end_offset} if 0 < each <= end_offset))
        self._aligned = aligned_splits(
            logs, *_not_committed(replicas, fork_offsets), sizing.split_bytes, sizing.batch_bytes, cuts=fork_offsets
        )
        self._job = CompareJob(
            **sizing.of_tables(sum(map(_most_rows, logs)) * ROW_BYTES * KEY_COLUMNS),
            hash_key=secrets.token_bytes(16),
            replicas=tuple(
                ComparedLog(
                    log.log_start_offset,
                    fork_offsets[number],
                    self._band_at(min(log.log_end_offset, fork_offsets[number])),
                    self._band_at(min(replicas[number].known_offset, fork_offsets[number])),
                    _tainted((), number),
                )
                for number, log in enumerate(logs)
            ),
            first_offset=min(log.segments[0].base_offset for log in logs),
            bands=self._bands,
            leader=leader,
            visible=tuple(
                sum(1 << number for number, log in enumerate(logs) if log.log_start_offset < end) for end in self._bands
            ),
        )

    def _band_at(self, offset: int) -> int:
        """Return the number of bands below an offset."""
        return bisect_right(self._bands, offset)

    def run(self, damage: Sequence[Damaged]) -> Comparison:
        """Run both stages with the damage that is known by now, and put the parts together."""
        tainted = [_tainted(damage, number) for number in range(len(self._replicas))]
        logs = (log._replace(tainted=ranges) for log, ranges in zip(self._job.replicas, tainted, strict=True))
        job = replace(self._job, replicas=tuple(logs))
        groups, ranges = self._aligned
        size_bytes = sum(split.size_bytes for group in groups for split in group)
        count = self._sizing.task_count(size_bytes)
        tasks = balanced([list[Split](group) for group in groups if group], count, lambda split: split.size_bytes)
        scanned: list[tuple[int, ComparedRange]] = []
        judged: Iterable[JudgedKeys] = ()
        if size_bytes:
            scanned, judged = self._executor.scan_and_reduce(job, tasks, COMPARING)
        by_number = dict(scanned)
        comparison = Comparison(
            replicas=self._replicas,
            lines=self._lines,
            tainted=tuple(tainted),
            bands=self._bands,
            batches=np.zeros((len(self._replicas), 2), np.int64),
            records=np.zeros(len(self._replicas), np.int64),
            alone=np.zeros(len(self._replicas), np.int64),
            holes=np.full(len(self._bands), -1, np.int64),
        )
        for number, offsets in enumerate(ranges):
            _add_range(comparison, by_number.get(number), offsets)
        for bucket in judged:
            comparison.keys += bucket.keys
            for case, keys in bucket.wrong.items():
                comparison.wrong[case] = comparison.wrong[case].join(keys) if case in comparison.wrong else keys
        ends = [comparison.end_of(number) for number in range(len(self._replicas))]
        comparison.transactions = wrong_transactions(self._replicas, ends, tainted, comparison.last_hole, job.leader)
        return comparison


def _add_range(total: Comparison, compared_range: ComparedRange | None, offsets: range) -> None:
    """Add what a group has shown. Of a group without bytes every offset is a hole."""
    if compared_range is None:
        for band, (start, end) in enumerate(zip((0, *total.bands), total.bands, strict=False)):
            if offsets.start < end and start < offsets.stop:
                total.holes[band] = max(total.holes[band], min(offsets.stop, end) - 1)
        return
    total.join(compared_range)


def _not_committed(replicas: Sequence[Replica], fork_offsets: Sequence[int]) -> tuple[list[Column], list[Column]]:
    """Return for each replica the base offsets of the aborted and open batches, and of those that may be aborted.

    The markers of all replicas count, below their forks: one may have a marker that another has missed, or has not yet.
    Of what a replica has above its fork only its own markers say how it ended.
    """
    without = np.unique(np.concatenate(without_marker(replicas)))
    below = [each.transactions_below(fork) for each, fork in zip(replicas, fork_offsets, strict=True)]
    on_line = TransactionEnds.of_tables(below)
    excluded, unknown = [], []
    for replica, fork_offset in zip(replicas, fork_offsets, strict=True):
        data = replica.transactions[replica.transactions[:, c.TXN_KIND] >= c.EMPTY_DATA]
        ids, offsets = data[:, c.TXN_PRODUCER_ID], data[:, c.TXN_BASE_OFFSET]
        is_committed = on_line.of_transactional(ids, offsets) == Outcome.COMMITTED
        is_above = offsets >= fork_offset
        if is_above.any():
            own = TransactionEnds.of_tables([replica.transactions])
            is_committed[is_above] = own.of_transactional(ids[is_above], offsets[is_above]) == Outcome.COMMITTED
        is_unknown = np.isin(offsets, without)
        excluded.append(np.sort(offsets[~is_committed & ~is_unknown]))
        unknown.append(np.sort(offsets[is_unknown]))
    return excluded, unknown


def _known_damage(number: int, replica: Replica) -> Iterator[Damaged]:
    """Yield lost segments, and batches whose leader epoch or offsets are wrong: the checksum does not cover them."""
    log = replica.log
    for problem in log.damage:
        parsed = parse_file_name(Path(problem.file).name)
        if parsed is not None and parsed.suffix is Suffix.LOG and problem.position is None:
            after = [each.base_offset for each in log.segments if each.base_offset > parsed.base_offset]
            end_offset = min(after, default=log.log_end_offset)
            yield Damaged(number, problem.file, 0, parsed.base_offset, end_offset, problem)
    for run in replica.wrong_epochs:
        offsets = range(run.first_offset, run.last_offset + 1)
        yield _damaged_at(number, replica, offsets, f"leader epoch {run.epoch} between others that contradict it")
    for offsets in replica.wrong_offsets:
        yield _damaged_at(number, replica, offsets, "a batch whose offsets contradict its neighbours or its segment")


def _damaged_at(number: int, replica: Replica, offsets: range, problem: str) -> Damaged:
    """Return the damage of the batch at or above an offset."""
    log = replica.log
    segment = log.segment_at(offsets.start) or log.segments[0]
    file = log.file(segment.log_name)
    position = position_of(file, offsets.start, 0, segment.size_bytes)
    error = CorruptBatchError(file=str(file), position=position, offset=offsets.start, problem=problem)
    return Damaged(number, str(file), position, offsets.start, offsets.stop, error)


def _tainted(damage: Sequence[Damaged], replica: int) -> Table:
    ranges = [(each.first_offset, each.end_offset) for each in damage if each.replica == replica]
    return np.array(ranges, np.int64).reshape(-1, 2)


def _most_rows(log: PartitionLog) -> int:
    return most_records(log.log_end_offset - log.segments[0].base_offset, log.size_bytes)
