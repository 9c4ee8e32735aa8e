"""The fate of transactional batches and markers, found out before anything is written.

What becomes of a marker depends on every batch before it, over segments and groups, so it cannot be decided where a
part is written. But it depends on headers and on the kinds of markers alone: this module reads those once, folds
them with `retain.TransactionTracker`, and hands each split the base offsets that concern it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kcompact.format import index
from kcompact.format.batch import Header
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix, index_name
from kcompact.log.batch_headers import ABORT, COMMIT, BatchHeader, read_producer_headers
from kcompact.log.directory import PartitionLog, Segment
from kcompact.log.files import read_file
from kcompact.plan.clean_plan import CleanPlan


class TransactionTracker:
    """Tells which batches are of aborted transactions, and which markers have nothing left to mark.

    Fed with every transactional and every control batch in the order of the log, and beforehand with the entries of
    `.txnindex` that concern what comes next. A marker stays as long as a batch of its transaction is seen, were it an
    empty one; only when a whole cleaning meets none does it get its delete horizon. So an aborted transaction goes
    in three cleanings: its data, then (with a horizon) nothing, then its marker.
    Rule: `CleanedTransactionMetadata`; KAFKA-8351, KAFKA-13727.
    """

    def __init__(self) -> None:
        self._upcoming: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()
        self._committed: set[int] = set()
        self._added = 0

    def expect(self, aborted: Iterable[AbortedTxn]) -> None:
        """Take note of aborted transactions ahead. Some may be known already, which does no harm."""
        for transaction in aborted:
            heapq.heappush(self._upcoming, (transaction.first_offset, self._added, transaction))
            self._added += 1

    def _reach(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0][0] <= offset:
            _, _, transaction = heapq.heappop(self._upcoming)
            self._aborted.setdefault(transaction.producer_id, transaction)

    def see_data(self, header: Header) -> bool:
        """Return whether the transactional batch is of an aborted transaction."""
        self._reach(header.last_offset)
        if header.producer_id in self._aborted:
            self._observed.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def see_marker(self, header: Header, kind: int | None) -> tuple[bool, AbortedTxn | None]:
        """Return whether the control batch has nothing left to mark, and the index entry that must stay with it.

        `kind` is None for a control batch that has been emptied. Markers other than ABORT and COMMIT always stay.
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
    """What the tracker decided, by base offset of a segment or number of a group.

    `left_out` are the batches that do not enter the map of keys, `discardable` those of aborted transactions and the
    markers that have nothing left to mark, `kept_index` the entries of the output's `.txnindex`.
    """

    excluded_from_map: Mapping[int, frozenset[int]]
    discardable: Mapping[int, frozenset[int]]
    kept_index: Mapping[int, tuple[AbortedTxn, ...]]


class SegmentHeaders(NamedTuple):
    """What one walk over a segment's headers tells: its transactional and control batches, and the offset after the
    last batch, which is the base where there is none (`LogSegment.readNextOffset`)."""

    batches: Sequence[BatchHeader]
    next_offset: int


def decide_transactions(
    plan: CleanPlan, seen: Mapping[int, SegmentHeaders], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> TransactionDecisions:
    """Return the fate of every transactional and control batch that the plan rewrites.

    `seen` and `aborted` are by base offset: what the headers tell, and `aborted_of_segments`.

    Raises CorruptDataError. Rules: `Cleaner.buildOffsetMap`, `Cleaner.cleanSegments`.
    """
    discardable, kept_index = _clean_fold(plan, seen, aborted)
    return TransactionDecisions(
        excluded_from_map=_map_fold(plan, seen, aborted), discardable=discardable, kept_index=kept_index
    )


def read_transaction_headers(plan: CleanPlan, *, compiled: bool) -> dict[int, SegmentHeaders]:
    """Return what the headers of each segment tell, by its base offset. Raises CorruptBatchError."""
    found = {}
    for segment in plan.segments:
        path = plan.log.directory / segment.log_name
        own = read_producer_headers(path, end_position=segment.size_bytes, compiled=compiled, transactions_only=True)
        next_offset = segment.base_offset if own.next_offset is None else own.next_offset
        found[segment.base_offset] = SegmentHeaders(own.batches, next_offset)
    return found


def aborted_of_segments(plan: CleanPlan) -> dict[int, tuple[AbortedTxn, ...]]:
    """Return what the `.txnindex` of each segment names, by its base offset. Raises CorruptDataError.

    Only where one names something can a batch be left out of the map of keys, and headers must be read before the scan.
    Otherwise the scan itself tells what it sees, for nothing else in it depends on the fates.
    """
    return {segment.base_offset: _aborted_of(plan.log, segment) for segment in plan.log.segments}


def _aborted_of(log: PartitionLog, segment: Segment) -> tuple[AbortedTxn, ...]:
    for file in segment.files:
        if file.name.endswith(Suffix.TXN_INDEX):
            path = log.directory / file.name
            return index.parse_txn_index(read_file(path), base_offset=segment.base_offset, file=str(path))
    return ()


def collect(
    log: PartitionLog, aborted: Mapping[int, Sequence[AbortedTxn]], start_offset: int, end_offset: int
) -> list[AbortedTxn]:
    """Return the aborted transactions that may reach into [start_offset, end_offset).

    Looks from the segment of `start_offset` on, and stops behind the first entry whose last stable offset reaches
    the end. Compared is with the log start, not with `start_offset`. Rule: `LocalLog.collectAbortedTransactions`.
    """
    found: list[AbortedTxn] = []
    first = max((base for base in aborted if base <= start_offset), default=None)
    if first is None:
        return found
    for base in sorted(base for base in aborted if base >= first):
        for transaction in aborted[base]:
            if transaction.last_offset >= log.log_start_offset and transaction.first_offset < end_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= end_offset:
                return found
    return found


def _map_fold(
    plan: CleanPlan, seen: Mapping[int, SegmentHeaders], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> dict[int, frozenset[int]]:
    tracker = TransactionTracker()
    tracker.expect(collect(plan.log, aborted, plan.first_dirty_offset, plan.first_uncleanable_offset))
    excluded_from_map = {}
    for segment in plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset):
        start_position = map_start_position(plan.log, segment, plan.first_dirty_offset)
        skipped = set()
        for batch in seen[segment.base_offset].batches:
            if batch.position < start_position:
                continue
            if batch.header.is_control:
                tracker.see_marker(batch.header, _kind(batch))
            elif tracker.see_data(batch.header):
                skipped.add(batch.header.base_offset)
        excluded_from_map[segment.base_offset] = frozenset(skipped)
    return excluded_from_map


def map_start_position(log: PartitionLog, segment: Segment, first_dirty_offset: int) -> int:
    """Return where Kafka starts to read a segment for its map of keys. Rule: `Cleaner.buildOffsetMapForSegment`."""
    path = log.directory / index_name(segment.base_offset)
    if first_dirty_offset <= segment.base_offset or not path.exists():
        return 0
    entries = index.parse_offset_index(read_file(path), base_offset=segment.base_offset, file=str(path))
    return index.lookup(entries, first_dirty_offset, base_offset=segment.base_offset).position


def _clean_fold(
    plan: CleanPlan, seen: Mapping[int, SegmentHeaders], aborted: Mapping[int, Sequence[AbortedTxn]]
) -> tuple[dict[int, frozenset[int]], dict[int, tuple[AbortedTxn, ...]]]:
    tracker = TransactionTracker()
    discardable, kept_index = {}, {}
    for number, group in enumerate(plan.groups):
        kept: list[AbortedTxn] = []
        for place, segment in enumerate(group):
            following = group[place + 1 : place + 2]
            end_offset = following[0].base_offset if following else seen[segment.base_offset].next_offset
            tracker.expect(collect(plan.log, aborted, segment.base_offset, end_offset))
            marked = set()
            for batch in seen[segment.base_offset].batches:
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
