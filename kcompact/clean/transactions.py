"""Decides which transactional batches and markers can be dropped, on the driver, before anything is written.

The decision about a marker depends on every batch before it, in all segments and groups, so a task that writes one part
cannot make it. Only headers and the kinds of markers are needed. A `TransactionTracker` reads them once, in log order.
Each split then receives the base offsets of its own batches.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kcompact.format import index
from kcompact.format.batch import Header
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix
from kcompact.log.batch_headers import ABORT, COMMIT, BatchHeader, read_producer_headers, with_marker
from kcompact.log.directory import PartitionLog, Segment
from kcompact.log.index_files import build_indexes, read_offset_index
from kcompact.log.segment_reader import verified_batches
from kcompact.log.transaction_index import (
    TransactionIndexJudge,
    Transactions,
    aborted_by_markers,
    read_transaction_index,
)
from kcompact.plan.clean_plan import CleanPlan


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

    def see_data(self, header: Header) -> bool:
        """Return whether a transactional data batch belongs to an aborted transaction."""
        self._reach(header.last_offset)
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def see_marker(self, header: Header, kind: int | None) -> tuple[bool, AbortedTxn | None]:
        """Return whether the transaction of a control batch has no batch left, and its index entry if both stay.

        `kind` is None for an empty control batch. Markers other than ABORT and COMMIT always stay.
        """
        self._reach(header.last_offset)
        producer_id = header.producer_id
        if kind is None:
            return True, None
        if kind == ABORT:
            transaction = self._aborted.pop(producer_id, None)
            observed = producer_id in self._observed
            self._observed.discard(producer_id)
            return (False, transaction) if transaction is not None and observed else (True, None)
        if kind == COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data, None
        return False, None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDecisions:
    """The decisions about the transactional and control batches of a log.

    `excluded_from_map` and `discardable` hold base offsets of batches, by base offset of the segment. Records of the
    batches in `excluded_from_map` do not enter the offset map. The batches in `discardable` belong to aborted
    transactions, or are markers whose transactions have no batch left. `kept_index` holds the entries of each output
    `.txnindex`, by number of the group.
    """

    excluded_from_map: Mapping[int, frozenset[int]]
    discardable: Mapping[int, frozenset[int]]
    kept_index: Mapping[int, tuple[AbortedTxn, ...]]


def decide_transactions(
    plan: CleanPlan, headers: Mapping[int, Sequence[BatchHeader]], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> TransactionDecisions:
    """Return the decisions about all transactional and control batches of the plan's segments.

    `headers` and `aborted`, the entries of the transaction indexes, are by base offset of the segment.
    Raises CorruptDataError. Rule: `Cleaner.buildOffsetMap`, `Cleaner.cleanSegments`.
    """
    discardable, kept_index = _discardable_and_kept_index(plan, headers, aborted)
    return TransactionDecisions(
        excluded_from_map=_excluded_from_map(plan, headers, aborted), discardable=discardable, kept_index=kept_index
    )


def read_transaction_headers(plan: CleanPlan, *, compiled: bool) -> dict[int, Sequence[BatchHeader]]:
    """Return the transactional and control batches of each segment, by base offset. Raises CorruptBatchError."""
    return {
        segment.base_offset: read_producer_headers(
            plan.log.directory / segment.log_name,
            end_position=segment.size_bytes,
            compiled=compiled,
            transactions_only=True,
        )
        for segment in plan.segments
    }


def aborted_of_indexes(plan: CleanPlan) -> dict[int, Sequence[AbortedTxn]]:
    """Return the `.txnindex` entries of each segment, by base offset. Raises CorruptDataError.

    Without any entry no batch is excluded from the offset map. Then the headers that the scan returns are enough.
    """
    return {
        segment.base_offset: read_transaction_index(_index_path(plan.log, segment))
        if segment.has(Suffix.TXN_INDEX)
        else ()
        for segment in plan.log.segments
    }


def _index_path(log: PartitionLog, segment: Segment) -> Path:
    """Return the path of a segment's `.txnindex`, which need not exist."""
    return (log.directory / segment.log_name).with_suffix(Suffix.TXN_INDEX)


def aborted_of_markers(
    plan: CleanPlan, headers: Mapping[int, Sequence[BatchHeader]]
) -> dict[int, Sequence[AbortedTxn]]:
    """Return the entries that the markers of the log give, by base offset of the segment. No `.txnindex` is read.

    Raises CorruptDataError.
    """
    transactions = Transactions()
    found: dict[int, Sequence[AbortedTxn]] = {
        segment.base_offset: aborted_by_markers(transactions, headers[segment.base_offset]) for segment in plan.segments
    }
    for segment, batches in _later_batches(plan, transactions):
        found[segment.base_offset] = aborted_by_markers(transactions, batches)
    return found


def verify_transaction_indexes(
    plan: CleanPlan, headers: Mapping[int, Sequence[BatchHeader]], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> None:
    """Raise CorruptTransactionIndexError where the indexes contradict the markers of the log.

    Raises CorruptBatchError for damage in the segments after the cleanable range.
    """
    log = plan.log
    judge = TransactionIndexJudge(log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset)
    for segment in plan.segments:
        path, entries = _index_path(log, segment), aborted[segment.base_offset]
        for problem in judge.contradictions(path, entries, headers[segment.base_offset]):
            raise problem
    # A transaction that begins in the range may end after it. Its entry is in the index of the segment of its marker.
    later = [entry for segment in log.segments[len(plan.segments) :] for entry in aborted[segment.base_offset]]
    reaching_back = [entry for entry in later if entry.first_offset < plan.first_uncleanable_offset]
    end_offset = max((entry.last_offset + 1 for entry in reaching_back), default=0)
    for segment, batches in _later_batches(plan, judge.transactions, end_offset):
        path, entries = _index_path(log, segment), aborted[segment.base_offset]
        for problem in judge.contradictions(path, entries, batches, judged_end=end_offset):
            raise problem


def _later_batches(
    plan: CleanPlan, transactions: Transactions, end_offset: int = 0
) -> Iterator[tuple[Segment, Iterator[BatchHeader]]]:
    """Yield the segments after the cleanable range, each with its transactional and control batches.

    Ends at `end_offset`, and not before all transactions that begin in the range have ended. The caller passes the
    batches on to `transactions`.
    """

    def is_needed(offset: int) -> bool:
        oldest_open = transactions.oldest_open
        return offset < end_offset or (oldest_open is not None and oldest_open < plan.first_uncleanable_offset)

    def batches_of(segment: Segment) -> Iterator[BatchHeader]:
        path = plan.log.directory / segment.log_name
        end = plan.log.end_of(segment)
        for batch in verified_batches(
            path,
            base_offset=segment.base_offset,
            end_offset=end,
            end_position=segment.size_bytes,
            holds_large=False,
        ):
            if not is_needed(batch.header.base_offset):
                return
            if batch.header.is_control or batch.header.is_transactional:
                yield with_marker(batch, file=str(path))

    for segment in plan.log.segments[len(plan.segments) :]:
        if is_needed(segment.base_offset):
            yield segment, batches_of(segment)


def collect(
    log: PartitionLog, aborted: Mapping[int, Sequence[AbortedTxn]], start_offset: int, end_offset: int
) -> list[AbortedTxn]:
    """Return the aborted transactions that may overlap [start_offset, end_offset).

    The search begins with the segment of `start_offset`. As in Kafka, entries are compared with the log start, not with
    `start_offset`. Kafka ends the search after the first entry whose last stable offset is at or above `end_offset`:
    in a sound log no later entry matters. Here all entries are read, so that no last stable offset can hide one.
    Rule: `LocalLog.collectAbortedTransactions`.
    """
    first = max((base for base in aborted if base <= start_offset), default=None)
    if first is None:
        return []
    return [
        transaction
        for base in sorted(base for base in aborted if base >= first)
        for transaction in aborted[base]
        if transaction.last_offset >= log.log_start_offset and transaction.first_offset < end_offset
    ]


def _excluded_from_map(
    plan: CleanPlan, headers: Mapping[int, Sequence[BatchHeader]], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> dict[int, frozenset[int]]:
    tracker = TransactionTracker()
    tracker.expect(collect(plan.log, aborted, plan.first_dirty_offset, plan.first_uncleanable_offset))
    excluded_from_map = {}
    for segment in plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset):
        start_position = map_start_position(plan.log, segment, plan.first_dirty_offset)
        skipped = set()
        for batch in headers[segment.base_offset]:
            if batch.position < start_position:
                continue
            if batch.header.is_control:
                tracker.see_marker(batch.header, _kind(batch))
            elif tracker.see_data(batch.header):
                skipped.add(batch.header.base_offset)
        excluded_from_map[segment.base_offset] = frozenset(skipped)
    return excluded_from_map


def map_start_position(log: PartitionLog, segment: Segment, first_dirty_offset: int) -> int:
    """Return the position at which Kafka begins to read a segment for its offset map. Raises CorruptDataError.

    Rule: `Cleaner.buildOffsetMapForSegment`.
    """
    if first_dirty_offset <= segment.base_offset:
        return 0
    path = log.index_file(segment, Suffix.INDEX)
    if path is not None:
        entries = read_offset_index(path)
    else:
        # Where the reading begins can decide about a batch of a transaction that was aborted before, so as for a broker
        # an index that is missing is built, not done without.
        log_path = log.directory / segment.log_name
        data, _ = build_indexes(log_path, interval_bytes=log.index_interval_bytes)
        entries = index.parse_offset_index(data, base_offset=segment.base_offset, file=str(log_path))
    return index.lookup(entries, first_dirty_offset, base_offset=segment.base_offset).position


def _discardable_and_kept_index(
    plan: CleanPlan, headers: Mapping[int, Sequence[BatchHeader]], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> tuple[dict[int, frozenset[int]], dict[int, tuple[AbortedTxn, ...]]]:
    tracker = TransactionTracker()
    # Kafka adds the entries segment by segment. An entry matters from its first offset on, whenever it is added.
    tracker.expect(collect(plan.log, aborted, plan.log.segments[0].base_offset, plan.first_uncleanable_offset))
    discardable, kept_index = {}, {}
    for number, group in enumerate(plan.groups):
        kept: list[AbortedTxn] = []
        for segment in group:
            marked = set()
            for batch in headers[segment.base_offset]:
                entry = None
                if batch.header.is_control:
                    is_discardable, entry = tracker.see_marker(batch.header, _kind(batch))
                else:
                    is_discardable = tracker.see_data(batch.header)
                if is_discardable:
                    marked.add(batch.header.base_offset)
                if entry is not None:
                    kept.append(entry)
            discardable[segment.base_offset] = frozenset(marked)
        kept_index[number] = tuple(kept)
    return discardable, kept_index


def _kind(batch: BatchHeader) -> int | None:
    return None if batch.marker is None else batch.marker.kind
