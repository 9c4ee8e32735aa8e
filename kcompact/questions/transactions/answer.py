"""The transactions of a log: how they ended, how large and long they were, which are open, and what waits for them.

A marker ends the transaction of its producer. What is left of a transaction may be less than was written: compaction
removes superseded records of a committed one and all data of an aborted one, and the marker afterwards:

    its data is left            the marker stays
    no batch of it is left      the next cleaning sets a delete horizon, one after the horizon removes the marker
    last of its producer        an empty batch stays in its place until the producer expires

A transaction *hangs* if it is open and its producer has written nothing for longer than `transaction.max.timeout.ms`:
by then its coordinator should have aborted it. Rules: `CleanedTransactionMetadata`,
`Cleaner.cleanInto`; `TransactionsCommand.FindHangingTransactionsCommand`, which also asks the coordinators.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import replace
from enum import StrEnum

import numpy as np

from kcompact.errors import KcompactError
from kcompact.format.limits import DEFAULT_MEMORY_BYTES
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.markers import ENDS, are_control
from kcompact.log.producer_state import LastRecord, Producer, last_records
from kcompact.log.records import RecordRun
from kcompact.plan.clean_plan import CleanPlan, uncleanable_from
from kcompact.plan.verdict import Reason
from kcompact.questions.transactions.log_order import TombstoneCounts, TransactionEvent, events, tombstones
from kcompact.stages.fold import Fold, fold_files
from kcompact.values import dataclass

MOST_LISTED = 10
"""So many of the largest and of the longest transactions are listed."""


class TransactionEnding(StrEnum):
    """How a transaction ended. `emptied`: its records were removed, batches are left; `gone`: only the marker is left.

    A transaction that wrote nothing to this partition is `gone` too.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"
    EMPTIED = "emptied"
    GONE = "gone"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What a log has of one transaction. Times are Unix milliseconds.

    `is_committed` is None while it is open, as are marker, coordinator epoch and end. Of an open one
    `is_known_to_broker` says whether the producer state has it: else it holds nothing back, and does not hang. It is
    None if the producer state cannot be read. The sizes are None if they lie behind the damage that ended the reading.
    """

    state: TransactionEnding
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_offset: int
    batches: int | None
    records: int | None
    size_bytes: int | None
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    is_committed: bool | None = None
    coordinator_epoch: int | None = None
    marker_offset: int | None = None
    ended_timestamp_ms: int | None = None
    is_known_to_broker: bool | None = None
    is_hanging: bool = False

    @property
    def duration_ms(self) -> int | None:
        """The time from its first record that is left to its marker, None if one of them has no timestamp."""
        if self.ended_timestamp_ms is None or self.first_timestamp_ms is None:
            return None
        return _between(self.first_timestamp_ms, self.ended_timestamp_ms)


@dataclass(slots=True, kw_only=True)
class TransactionTotals:
    """Some transactions together; `committed` of them. `longest_ms` is None if the length of none is known."""

    transactions: int = 0
    committed: int = 0
    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    longest_ms: int | None = None


@dataclass(slots=True, kw_only=True)
class MarkerCounts:
    """The markers of a log by what they wait for.

    `with_data` wait until no batch of their transaction is left. Of the others `unstamped` have no delete horizon and
    can be cleaned next, `uncleanable` not yet; `waiting` ones wait for their horizon, `expired` ones for a cleaning.
    `kept_for_producers` counts those of these four kinds that are the last batch of a producer: a cleaning keeps them,
    empty in the end, until the producer expires, at `kept_until_ms` at the latest. `emptied` ones have no record.
    """

    with_data: int = 0
    unstamped: int = 0
    uncleanable: int = 0
    waiting: int = 0
    expired: int = 0
    emptied: int = 0
    kept_for_producers: int = 0
    kept_until_ms: int | None = None
    first_horizon_ms: int | None = None
    last_horizon_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstableRecords:
    """What the last stable offset holds back because of an open transaction: from it to the log end.

    `segments` are the base offsets of the closed segments that could be cleaned without it.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0
    segments: tuple[int, ...] = ()
    segment_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport:
    """The transactions of a log. Damage ended the reading at `counted_to_offset`, which is the log end otherwise."""

    now_ms: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    counted_to_offset: int
    totals: dict[TransactionEnding, TransactionTotals]
    open: tuple[Transaction, ...]
    largest: tuple[Transaction, ...]
    longest: tuple[Transaction, ...]
    producer_ids: int
    """How many producers have transactional batches or markers."""
    producers: tuple[Producer, ...]
    """Those that a broker has, by id."""
    producer_expiration_ms: int
    held_back: UnstableRecords
    markers: MarkerCounts
    tombstones: TombstoneCounts
    damage: KcompactError | None = None

    @property
    def hanging(self) -> tuple[Transaction, ...]:
        return tuple(each for each in self.open if each.is_hanging)


class TransactionFold(Fold["TransactionCounter", TransactionReport]):
    """The transactions of a log, in the order of the log."""

    def __init__(self, plan: CleanPlan) -> None:
        self._plan = plan

    def zero(self) -> TransactionCounter:
        return TransactionCounter(self._plan)

    def add(self, state: TransactionCounter, run: RecordRun, file: LogFile) -> TransactionCounter:
        state.add_run(run, file)
        return state

    def finish(self, state: TransactionCounter, damage: KcompactError | None) -> TransactionReport:
        return state.report(damage)


def log_transaction_report(
    plan: CleanPlan, *, memory_bytes: int = DEFAULT_MEMORY_BYTES, advance: Callable[[int], None] | None = None
) -> TransactionReport:
    """Return the transactions of a log. Reads every record, up to the first damage. Raises StorageError."""
    files = [(plan.log.file(segment.log_name), segment.size_bytes) for segment in plan.log.segments]
    return fold_files(TransactionFold(plan), files, memory_bytes=memory_bytes, advance=advance)


class TransactionCounter:
    """Follows the transactions of a log, event by event in log order."""

    def __init__(self, plan: CleanPlan) -> None:
        self._plan = plan
        self._open: dict[int, TransactionEvent] = {}
        """What the log has of the open transactions, by producer id."""
        self._below_start: set[int] = set()
        """The producers whose open transactions have data below the log start. A cleaner reads it, no consumer does."""
        self._ids: set[int] = set()
        self._totals = {state: TransactionTotals() for state in TransactionEnding}
        self._largest, self._longest = _Greatest(), _Greatest()
        self._markers = MarkerCounts()
        self._tombstones = TombstoneCounts()
        self._held = UnstableRecords()
        self._last_records: dict[int, LastRecord] = last_records(plan.producers)
        self._read_to = plan.log.log_start_offset

    def add_run(self, run: RecordRun, file: LogFile) -> None:
        """Add the next batches. Raises CorruptBatchError for a marker that is too short."""
        plan = self._plan
        if not len(run.table):
            return
        log_start = plan.log.log_start_offset
        self.add(events(run, log_start_offset=log_start, file=file))
        self._tombstones += tombstones(
            run, log_start_offset=log_start, uncleanable_from=plan.first_uncleanable_offset, now_ms=plan.now_ms
        )
        self._read_to = max(self._read_to, int(run.table[-1, c.LAST_OFFSET]) + 1)
        if plan.last_stable_offset < plan.high_watermark:
            self._hold_back(run)

    def _hold_back(self, run: RecordRun) -> None:
        """Count what of a run lies at or above the last stable offset."""
        stable, held = self._plan.last_stable_offset, self._held
        is_data = ~are_control(run.table)
        is_held = (run.table[:, c.LAST_OFFSET] >= stable) & is_data
        self._held = replace(
            held,
            batches=held.batches + int(np.count_nonzero(is_held)),
            records=held.records + int(np.count_nonzero((run.offset >= stable) & is_held[run.batch])),
            size_bytes=held.size_bytes + int(run.table[is_held, c.SIZE].sum()),
        )

    def add(self, next_events: Iterable[TransactionEvent]) -> None:
        """Add the next events."""
        opened, start = self._open, self._plan.log.log_start_offset
        for event in next_events:
            producer_id = event.producer_id
            if event.last_offset < start:
                if event.kind == c.DATA:
                    self._below_start.add(producer_id)
                elif event.kind in ENDS:
                    self._below_start.discard(producer_id)
                continue
            self._ids.add(producer_id)
            if event.kind == c.DATA:
                before = opened.get(producer_id)
                opened[producer_id] = event if before is None else _joined(before, event)
            elif event.kind in ENDS:
                self._end(opened.pop(producer_id, None), event)
            elif event.kind == c.NO_RECORD:
                self._markers.emptied += 1

    def _end(self, data: TransactionEvent | None, marker: TransactionEvent) -> None:
        """End a transaction, with what the log has of it."""
        is_committed = marker.kind == c.COMMIT
        if data is None and marker.producer_id not in self._below_start:
            self._count_waiting(marker)
        else:
            self._markers.with_data += 1
        self._below_start.discard(marker.producer_id)
        if data is None:
            totals = self._totals[TransactionEnding.GONE]
        else:
            state = (
                TransactionEnding.EMPTIED
                if not data.records
                else TransactionEnding.COMMITTED
                if is_committed
                else TransactionEnding.ABORTED
            )
            totals = self._totals[state]
            totals.batches += data.batches
            totals.records += data.records
            totals.size_bytes += data.size_bytes
            self._largest.offer(data.size_bytes, state, data, marker)
            duration_ms = _between(data.first_timestamp_ms, marker.last_timestamp_ms)
            if duration_ms is not None:
                totals.longest_ms = duration_ms if totals.longest_ms is None else max(totals.longest_ms, duration_ms)
                self._longest.offer(duration_ms, state, data, marker)
        totals.transactions += 1
        totals.committed += is_committed

    def _count_waiting(self, marker: TransactionEvent) -> None:
        """Count a marker whose transaction has no batch left."""
        counts, now_ms = self._markers, self._plan.now_ms
        if marker.horizon_ms < 0:
            if marker.last_offset < self._plan.first_uncleanable_offset:
                counts.unstamped += 1
            else:
                counts.uncleanable += 1
        elif marker.horizon_ms > now_ms:
            counts.waiting += 1
            counts.first_horizon_ms = min(counts.first_horizon_ms or marker.horizon_ms, marker.horizon_ms)
            counts.last_horizon_ms = max(counts.last_horizon_ms or marker.horizon_ms, marker.horizon_ms)
        else:
            counts.expired += 1
        last = self._last_records.get(marker.producer_id)
        if last is not None and last.data_offset is None and last.producer_epoch == marker.producer_epoch:
            known = self._plan.producers[marker.producer_id]
            until = known.last_timestamp + self._plan.config.producer_id_expiration_ms
            counts.kept_for_producers += 1
            counts.kept_until_ms = max(counts.kept_until_ms or until, until)

    # The report

    def report(self, damage: KcompactError | None) -> TransactionReport:
        """Return the report, after the last event."""
        plan = self._plan
        opened = tuple(self._opened(is_damaged=damage is not None))
        self._totals[TransactionEnding.OPEN] = TransactionTotals(
            transactions=len(opened),
            batches=sum(each.batches or 0 for each in opened),
            records=sum(each.records or 0 for each in opened),
            size_bytes=sum(each.size_bytes or 0 for each in opened),
        )
        segments = _held_segments(plan)
        sizes = {segment.base_offset: segment.size_bytes for segment in plan.log.segments}
        return TransactionReport(
            now_ms=plan.now_ms,
            log_end_offset=plan.log.log_end_offset,
            high_watermark=plan.high_watermark,
            last_stable_offset=plan.last_stable_offset,
            counted_to_offset=self._read_to if damage is not None else plan.log.log_end_offset,
            totals=self._totals,
            open=opened,
            largest=self._largest.transactions(),
            longest=self._longest.transactions(),
            producer_ids=len(self._ids),
            producers=tuple(plan.producers[each] for each in sorted(plan.producers)),
            producer_expiration_ms=plan.config.producer_id_expiration_ms,
            held_back=replace(self._held, segments=segments, segment_bytes=sum(map(sizes.__getitem__, segments))),
            markers=self._markers,
            tombstones=self._tombstones,
            damage=damage,
        )

    def _opened(self, *, is_damaged: bool) -> Iterable[Transaction]:
        """Yield the open transactions by first offset: of the log, and those that only the producer state knows.

        After damage the log does not tell which of its transactions are open.
        """
        plan = self._plan
        known = {
            each.producer_id: each for each in plan.producers.values() if each.transaction_first_offset is not None
        }
        in_log = {} if is_damaged else self._open
        open_transactions = []
        for producer_id in {*in_log, *known}:
            state, data = known.get(producer_id), self._open.get(producer_id)
            offset = state.transaction_first_offset if state is not None else None
            transaction = _transaction(TransactionEnding.OPEN, producer_id, data, -1 if offset is None else offset)
            if data is None and is_damaged:
                transaction = replace(transaction, batches=None, records=None, size_bytes=None)
            is_known = None if plan.log.damage else state is not None
            last_ms = state.last_timestamp if state is not None else transaction.last_timestamp_ms or 0
            open_transactions.append(
                replace(
                    transaction,
                    first_offset=transaction.first_offset if offset is None else offset,
                    producer_epoch=state.epoch if state is not None else transaction.producer_epoch,
                    coordinator_epoch=state.coordinator_epoch if state is not None else None,
                    last_timestamp_ms=last_ms,
                    is_known_to_broker=is_known,
                    is_hanging=is_known is not False and plan.now_ms - last_ms > plan.config.transaction_max_timeout_ms,
                )
            )
        return sorted(open_transactions, key=lambda each: each.first_offset)


def _between(first_ms: int, last_ms: int) -> int | None:
    """Return the time between two timestamps, None if one of them is that of a record without one."""
    return last_ms - first_ms if first_ms >= 0 and last_ms >= 0 else None


def _joined(before: TransactionEvent, later: TransactionEvent) -> TransactionEvent:
    return later._replace(
        first_offset=before.first_offset,
        batches=before.batches + later.batches,
        records=before.records + later.records,
        size_bytes=before.size_bytes + later.size_bytes,
        first_timestamp_ms=(before if before.records else later).first_timestamp_ms,
        last_timestamp_ms=max(before.last_timestamp_ms, later.last_timestamp_ms),
    )


def _transaction(state: TransactionEnding, producer_id: int, data: TransactionEvent | None, offset: int) -> Transaction:
    """Return a transaction with this data; without any it lies at `offset`."""
    if data is None:
        return Transaction(
            state=state,
            producer_id=producer_id,
            producer_epoch=-1,
            first_offset=offset,
            last_offset=offset,
            batches=0,
            records=0,
            size_bytes=0,
            first_timestamp_ms=None,
            last_timestamp_ms=None,
        )
    return Transaction(
        state=state,
        producer_id=producer_id,
        producer_epoch=data.producer_epoch,
        first_offset=data.first_offset,
        last_offset=data.last_offset,
        batches=data.batches,
        records=data.records,
        size_bytes=data.size_bytes,
        first_timestamp_ms=data.first_timestamp_ms,
        last_timestamp_ms=data.last_timestamp_ms,
    )


class _Greatest:
    """The transactions with the greatest values of some kind, of equal ones the earliest."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Transaction]] = []

    def offer(self, value: int, state: TransactionEnding, data: TransactionEvent, marker: TransactionEvent) -> None:
        """Keep a transaction if its value is among the greatest."""
        heap = self._heap
        if len(heap) == MOST_LISTED and value <= heap[0][0]:
            return
        ended = replace(
            _transaction(state, data.producer_id, data, data.first_offset),
            producer_epoch=marker.producer_epoch,
            is_committed=marker.kind == c.COMMIT,
            coordinator_epoch=marker.coordinator_epoch,
            marker_offset=marker.last_offset,
            ended_timestamp_ms=marker.last_timestamp_ms,
        )
        item = (value, -marker.last_offset, ended)
        if len(heap) < MOST_LISTED:
            heapq.heappush(heap, item)
        else:
            heapq.heapreplace(heap, item)

    def transactions(self) -> tuple[Transaction, ...]:
        """Return them, the greatest first."""
        return tuple(each for _, _, each in sorted(self._heap, key=lambda item: item[:2], reverse=True))


def _held_segments(plan: CleanPlan) -> tuple[int, ...]:
    """Return the base offsets of the segments that could be cleaned if no transaction were open."""
    others = [bound.offset for bound in plan.bounds if bound.reason is not Reason.OPEN_TRANSACTION]
    free_end = uncleanable_from(plan.log, plan.first_dirty_offset, others[0])
    return tuple(
        segment.base_offset
        for segment in plan.log.segments
        if plan.first_uncleanable_offset <= segment.base_offset < free_end
    )
