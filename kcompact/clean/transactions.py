"""Decides which transactional batches and markers can be dropped, on the driver, before anything is written.

The decision about a marker depends on every batch before it, in all segments and groups, so a task that writes one part
cannot make it. Only headers and the kinds of markers are needed, which `log.transactions` holds in columns. A
kernel reads them once, in log order; its definition is `TransactionTracker`. Each split then receives the base offsets
of its own batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.format import index
from kcompact.format.index import AbortedTxn, AbortedTxnColumns, OffsetPosition, build_txn_index
from kcompact.format.names import Suffix, txn_index_name
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import with_marker
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.index_files import build_indexes
from kcompact.log.offset_index import looked_up
from kcompact.log.segment_reader import headers, verified_batches
from kcompact.log.segments import Segment
from kcompact.log.transaction_index import (
    ProducerNumbers,
    SegmentTransactions,
    Transactions,
    aborted_by_markers,
    aborted_of_segments,
    contradictions,
    judged,
    read_transaction_index,
)
from kcompact.log.transactions import (
    PackedTables,
    TransactionBatch,
    of_headers,
    read_transaction_tables,
    rows_of,
)
from kcompact.plan.clean_plan import CleanPlan

Batches = Mapping[int, Iterable[Table]]
"""The transactional and the control batches of a log: by base offset of the segment, one or more tables in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDecisions:
    """The decisions about the transactional and control batches of a log.

    `excluded_from_map` and `discardable` hold the base offsets of batches, ascending, by base offset of the segment.
    Records of the batches in `excluded_from_map` do not enter the offset map. The batches in `discardable` belong to
    aborted transactions, or are markers whose transactions have no batch left. `kept_index` holds the entries of each
    output `.txnindex`, by number of the group.
    """

    excluded_from_map: Mapping[int, Column]
    discardable: Mapping[int, Column]
    kept_index: Mapping[int, Sequence[AbortedTxn]]


def decide_transactions(
    plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]
) -> TransactionDecisions:
    """Return the decisions about all transactional and control batches of the plan's segments.

    `aborted` are the entries of the transaction indexes, by base offset of the segment.
    Raises CorruptDataError. Rule: `Cleaner.buildOffsetMap`, `Cleaner.cleanSegments`.
    """
    discardable, kept_index = _discardable_and_kept_index(plan, batches, aborted)
    return TransactionDecisions(
        excluded_from_map=_excluded_from_map(plan, batches, aborted),
        discardable=discardable,
        kept_index=kept_index,
    )


def read_transaction_batches(plan: CleanPlan) -> dict[int, PackedTables]:
    """Return the transactional and control batches of each segment, by base offset. Raises CorruptBatchError."""
    return {
        segment.base_offset: read_transaction_tables(plan.log.file(segment.log_name), end_position=segment.size_bytes)
        for segment in plan.segments
    }


def aborted_of_indexes(plan: CleanPlan) -> dict[int, Sequence[AbortedTxn]]:
    """Return the `.txnindex` entries of each segment, by base offset. Raises CorruptDataError.

    Without any entry no batch is excluded from the offset map. Then the headers that the scan returns are enough.
    """
    return {
        segment.base_offset: read_transaction_index(_index_file(plan.log, segment))
        if segment.has(Suffix.TXN_INDEX)
        else ()
        for segment in plan.log.segments
    }


def _index_file(log: PartitionLog, segment: Segment) -> LogFile:
    """Return a segment's `.txnindex`, which need not exist."""
    return log.file(segment.log_name).with_suffix(Suffix.TXN_INDEX)


def aborted_of_markers(plan: CleanPlan, batches: Batches) -> dict[int, Sequence[AbortedTxn]]:
    """Return the entries that the markers of the log give, by base offset of the segment. No `.txnindex` is read.

    Raises CorruptDataError.
    """
    bases = [segment.base_offset for segment in plan.segments]
    of_segments, transactions = aborted_of_segments([batches[base] for base in bases])
    found = dict(zip(bases, of_segments, strict=True))
    for segment, later in _later_batches(plan, transactions):
        found[segment.base_offset] = aborted_by_markers(transactions, later)
    return found


def _all(batches: Batches) -> Iterator[Table]:
    return chain.from_iterable(batches.values())


def verify_transaction_indexes(plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]) -> None:
    """Raise CorruptTransactionIndexError where the indexes contradict the markers of the log.

    Raises CorruptBatchError for damage in the segments after the cleanable range.
    """
    log = plan.log
    segments = [
        SegmentTransactions(_index_file(log, segment), aborted[segment.base_offset], batches[segment.base_offset])
        for segment in plan.segments
    ]
    transactions = judged(segments, log_start_offset=log.log_start_offset)
    # A transaction that begins in the range may end after it. Its entry is in the index of the segment of its marker.
    later = log.segments[len(plan.segments) :]
    entries = AbortedTxnColumns.of(*(aborted[segment.base_offset] for segment in later)).table
    reaching_back = entries[entries[:, c.ENTRY_FIRST_OFFSET] < plan.first_uncleanable_offset]
    # Where a whole index is lost, consumers read what was aborted: a cleaning must not be taken for a log in order.
    lost = [segment for segment in later if not aborted[segment.base_offset] and _needs_transaction_index(log, segment)]
    ends = [int(reaching_back[:, c.ENTRY_LAST_OFFSET].max(initial=-1)) + 1, *map(log.end_of, lost)]
    end_offset = max(ends)
    for segment, rows in _later_batches(plan, transactions, end_offset):
        for problem in contradictions(
            transactions,
            _index_file(log, segment),
            aborted[segment.base_offset],
            rows,
            log_start_offset=log.log_start_offset,
            judged_end=end_offset,
        ):
            raise problem


def lost_transaction_indexes(log: PartitionLog, later: Sequence[Segment]) -> dict[str, bytes]:
    """Return the `.txnindex` files that segments of a log have lost, by name, as its markers give them.

    An empty one has lost its entries.
    """
    with_entries = {file.name for each in later for file in each.files if file.size_bytes}
    lost = [each for each in later if txn_index_name(each.base_offset) not in with_entries]
    lost = [each for each in lost if _needs_transaction_index(log, each)]
    if not lost:
        return {}
    batches = (read_transaction_tables(log.file(each.log_name), end_position=each.size_bytes) for each in log.segments)
    found = dict(zip(log.segments, aborted_of_segments(list(batches))[0], strict=True))
    return {txn_index_name(each.base_offset): build_txn_index(found[each]) for each in lost if found[each]}


def _needs_transaction_index(log: PartitionLog, segment: Segment) -> bool:
    """Return whether a segment has an ABORT marker, and is not one whose index a broker builds when it starts."""
    if log.recovers(segment):
        return False
    tables = read_transaction_tables(log.file(segment.log_name), end_position=segment.size_bytes)
    return any((table[:, c.TXN_KIND] == c.ABORT).any() for table in tables)


def _later_batches(
    plan: CleanPlan, transactions: Transactions, end_offset: int = 0
) -> Iterator[tuple[Segment, Iterator[TransactionBatch]]]:
    """Yield the segments after the cleanable range, each with its transactional and control batches.

    Ends at `end_offset`, and not before all transactions that begin in the range have ended. The caller passes the
    batches on to `transactions`.
    """

    def is_needed(offset: int) -> bool:
        oldest_open = transactions.oldest_open
        return offset < end_offset or (oldest_open is not None and oldest_open < plan.first_uncleanable_offset)

    def batches_of(segment: Segment) -> Iterator[TransactionBatch]:
        file = plan.log.file(segment.log_name)
        end = plan.log.end_of(segment)
        for batch in verified_batches(
            file,
            base_offset=segment.base_offset,
            end_offset=end,
            end_position=segment.size_bytes,
            holds_large=False,
        ):
            if not is_needed(batch.header.base_offset):
                return
            yield from of_headers([with_marker(batch, file=str(file))])

    for segment in plan.log.segments[len(plan.segments) :]:
        if is_needed(segment.base_offset):
            yield segment, batches_of(segment)


def collect(
    log: PartitionLog, aborted: Mapping[int, Sequence[AbortedTxn]], start_offset: int, end_offset: int
) -> AbortedTxnColumns:
    """Return the aborted transactions that may overlap [start_offset, end_offset).

    The search begins with the segment of `start_offset`. As in Kafka, entries are compared with the log start, not with
    `start_offset`. Kafka ends the search after the first entry whose last stable offset is at or above `end_offset`:
    in a leader's log no later entry matters. Here all entries are read, so that no last stable offset can hide one.
    Rule: `LocalLog.collectAbortedTransactions`.
    """
    first = max((base for base in aborted if base <= start_offset), default=None)
    bases = [] if first is None else sorted(base for base in aborted if base >= first)
    found = AbortedTxnColumns.of(*(aborted[base] for base in bases)).table
    is_near = (found[:, c.ENTRY_LAST_OFFSET] >= log.log_start_offset) & (found[:, c.ENTRY_FIRST_OFFSET] < end_offset)
    return AbortedTxnColumns(found[is_near])


def _excluded_from_map(
    plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]
) -> dict[int, Column]:
    expected = collect(plan.log, aborted, plan.first_dirty_offset, plan.first_uncleanable_offset)
    if not expected:
        return {}
    tracker = _tracker(expected, _all(batches))
    excluded_from_map = {}
    for segment in plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset):
        start_offset = map_start(plan.log, segment, plan.first_dirty_offset).offset
        skipped = []
        for table in batches[segment.base_offset]:
            read = table[table[:, c.TXN_LAST_OFFSET] >= start_offset]
            is_data = read[:, c.TXN_KIND] >= c.EMPTY_DATA
            skipped.append(read[tracker.decide(read).is_discardable & is_data, c.TXN_BASE_OFFSET])
        excluded_from_map[segment.base_offset] = _joined(skipped)
    return excluded_from_map


def _joined(columns: Sequence[Column]) -> Column:
    return np.concatenate([np.empty(0, np.int64), *columns])


def map_start(log: PartitionLog, segment: Segment, first_dirty_offset: int) -> OffsetPosition:
    """Return the batch at which Kafka begins to read a segment for its offset map: its last offset and its position.

    The offset of the first batch may be any one up to that. Raises CorruptDataError.
    Rule: `Cleaner.buildOffsetMapForSegment`.
    """
    if first_dirty_offset <= segment.base_offset:
        return OffsetPosition(offset=segment.base_offset, position=0)
    log_file, path = log.file(segment.log_name), log.index_file(segment, Suffix.INDEX)
    if path is None:
        # Where the reading begins can decide about a batch of a transaction that was aborted before, so as for a broker
        # an index that is missing is built, not done without.
        data, _ = build_indexes(log_file, interval_bytes=log.index_interval_bytes)
        entries = index.parse_offset_index(data, base_offset=segment.base_offset, file=str(log_file))
        return index.lookup(entries, first_dirty_offset, base_offset=segment.base_offset)
    position = looked_up(path, first_dirty_offset)
    if not position:
        return OffsetPosition(offset=segment.base_offset, position=0)
    _, header = next(headers(log_file, start_position=position))
    return OffsetPosition(offset=header.last_offset, position=position)


def _discardable_and_kept_index(
    plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]
) -> tuple[dict[int, Column], dict[int, Sequence[AbortedTxn]]]:
    # Kafka adds the entries segment by segment. An entry matters from its first offset on, whenever it is added.
    expected = collect(plan.log, aborted, plan.log.segments[0].base_offset, plan.first_uncleanable_offset)
    tracker = _tracker(expected, _all(batches))
    discardable: dict[int, Column] = {}
    kept_index: dict[int, Sequence[AbortedTxn]] = {}
    for number, group in enumerate(plan.groups):
        kept = []
        for segment in group:
            marked = []
            for table in batches[segment.base_offset]:
                decided = tracker.decide(table)
                marked.append(table[decided.is_discardable, c.TXN_BASE_OFFSET])
                kept.append(decided.kept)
            discardable[segment.base_offset] = _joined(marked)
        kept_index[number] = AbortedTxnColumns.of(*kept)
    return discardable, kept_index


# Decisions batch by batch, in log order: the readable definition, and the kernel that repeats it


class Decided(NamedTuple):
    """Which batches of a table can be dropped, and the entries of the index that stay because of its markers."""

    is_discardable: npt.NDArray[np.bool_]
    kept: Sequence[AbortedTxn]


class TransactionTracker:
    """Finds the batches of aborted transactions, and the markers whose transactions have no batch left.

    `expect` receives `.txnindex` entries before their data; `see_data` and `see_marker` receive every transactional and
    every control batch in log order. A marker stays as long as its transaction has a batch, even an empty one. The
    first cleaning that finds no such batch sets the marker's delete horizon. So an aborted transaction disappears in
    three cleanings: the first drops the data, the second sets the horizon, the third drops the marker.
    Rule: `CleanedTransactionMetadata`; KAFKA-8351, KAFKA-13727.
    """

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()
        self._committed: set[int] = set()
        self._added = 0

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        """Add aborted transactions that begin at or after the next batch. Repeated ones change nothing."""
        for transaction in aborted:
            heapq.heappush(self._upcoming, (transaction.first_offset, self._added, transaction))
            self._added += 1

    def _reach(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, _, transaction = heapq.heappop(self._upcoming)
            self._aborted.setdefault(transaction.producer_id, transaction)

    def see_data(self, batch: TransactionBatch) -> bool:
        """Return whether a transactional data batch belongs to an aborted transaction."""
        self._reach(batch.last_offset)
        if batch.producer_id in self._aborted:
            self._observed.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def see_marker(self, batch: TransactionBatch) -> tuple[bool, AbortedTxn | None]:
        """Return whether the transaction of a control batch has no batch left, and its index entry if both stay.

        Markers other than ABORT and COMMIT always stay.
        """
        self._reach(batch.last_offset)
        producer_id = batch.producer_id
        if batch.kind == c.NO_RECORD:
            return True, None
        if batch.kind == c.ABORT:
            transaction = self._aborted.pop(producer_id, None)
            observed = producer_id in self._observed
            self._observed.discard(producer_id)
            return (False, transaction) if transaction is not None and observed else (True, None)
        if batch.kind == c.COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data, None
        return False, None

    def decide(self, batches: Table) -> Decided:
        """Return what `see_data` and `see_marker` return for the next batches."""
        is_discardable, kept = np.zeros(len(batches), np.bool_), []
        for row, batch in enumerate(rows_of(batches)):
            if batch.kind >= c.EMPTY_DATA:
                is_discardable[row] = self.see_data(batch)
                continue
            is_discardable[row], entry = self.see_marker(batch)
            if entry is not None:
                kept.append(entry)
        return Decided(is_discardable, kept)


class CompiledTracker:
    """Decides by a kernel, as `TransactionTracker`. `expected` are the aborted transactions of the log of `batches`."""

    def __init__(self, expected: Sequence[AbortedTxn], batches: Iterable[Table]) -> None:
        entries = AbortedTxnColumns.of(expected).table
        self._entries = entries[np.argsort(entries[:, c.ENTRY_FIRST_OFFSET], kind="stable")]
        in_batches = (table[:, c.TXN_PRODUCER_ID] for table in batches)
        self._producers = ProducerNumbers(chain(in_batches, [entries[:, c.ENTRY_PRODUCER_ID]]))
        self._entry_producers = self._producers.of(self._entries[:, c.ENTRY_PRODUCER_ID])
        self._state = np.zeros((len(self._producers), 3), np.int64)
        self._state[:, c.ABORTED_ENTRY] = -1
        self._next_entry = 0

    def decide(self, batches: Table) -> Decided:
        """Return the decisions about the next batches."""
        is_discardable = np.empty(len(batches), np.uint8)
        kept = np.empty(np.count_nonzero(batches[:, c.TXN_KIND] == c.ABORT), np.int64)
        self._next_entry, count = kernels.decide_transactions(
            batches, self._producers.of(batches[:, c.TXN_PRODUCER_ID]), self._entries, self._entry_producers,
            self._next_entry, self._state, is_discardable, kept,
        )  # fmt: skip
        return Decided(is_discardable.view(np.bool_), AbortedTxnColumns(self._entries[kept[:count]]))


def _tracker(expected: Sequence[AbortedTxn], batches: Iterable[Table]) -> TransactionTracker | CompiledTracker:
    """Return a tracker for the batches of a log that expects these aborted transactions."""
    if kernels.in_use():
        return CompiledTracker(expected, batches)
    by_definition = TransactionTracker()
    by_definition.expect(expected)
    return by_definition
