"""Decides which transactional batches and markers can be dropped, on the driver, before anything is written.

The decision about a marker depends on every batch before it, in all segments and groups, so a task that writes one part
cannot make it. Only headers and the kinds of markers are needed, which `log.transactions` holds in columns. A
kernel reads them once, in log order. Each split then receives the base offsets of its own batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.format import index
from kcompact.format.index import AbortedTxn, AbortedTxnColumns, OffsetPosition, build_txn_index
from kcompact.format.names import Suffix, txn_index_name
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_at
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile
from kcompact.log.index_files import build_indexes
from kcompact.log.markers import ENDS, with_marker
from kcompact.log.offset_index import looked_up
from kcompact.log.segment_reader import verified_batches
from kcompact.log.segments import Segment
from kcompact.log.transaction_index import (
    ProducerStates,
    Transactions,
    contradictions,
    read_transaction_index,
)
from kcompact.log.transactions import (
    PackedTables,
    TransactionBatch,
    of_headers,
    read_transaction_tables,
    tables_of,
)
from kcompact.plan.clean_plan import CleanPlan
from kcompact.values import dataclass

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
    transactions, entries = Transactions(), dict[int, Sequence[AbortedTxn]]()
    for segment in plan.segments:
        entries[segment.base_offset] = transactions.entries(batches[segment.base_offset])
    for segment, later in _later_batches(plan, transactions):
        entries[segment.base_offset] = transactions.entries(later)
    return entries


def verify_transaction_indexes(plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]) -> None:
    """Raise CorruptTransactionIndexError where the indexes contradict the markers of the log.

    Raises CorruptBatchError for damage in the segments after the cleanable range.
    """
    log = plan.log
    transactions = Transactions(start_offset=log.log_start_offset)
    for segment in plan.segments:
        base = segment.base_offset
        for problem in contradictions(transactions, _index_file(log, segment), aborted[base], batches[base]):
            raise problem
    # A transaction that begins in the range may end after it. Its entry is in the index of the segment of its marker.
    later = log.segments[len(plan.segments) :]
    entries = AbortedTxnColumns.of(*(aborted[segment.base_offset] for segment in later)).table
    reaching_back = entries[entries[:, c.ENTRY_FIRST_OFFSET] < plan.first_uncleanable_offset]
    # Where a whole index is lost, consumers read what was aborted: a cleaning must not be taken for a log in order.
    lost = [segment for segment in later if not aborted[segment.base_offset] and _needs_transaction_index(log, segment)]
    ends = [int(reaching_back[:, c.ENTRY_LAST_OFFSET].max(initial=-1)) + 1, *map(log.end_of, lost)]
    end_offset = max(ends)
    for segment, read in _later_batches(plan, transactions, end_offset):
        file, of_index = _index_file(log, segment), aborted[segment.base_offset]
        for problem in contradictions(transactions, file, of_index, read, judged_end=end_offset):
            raise problem


def lost_transaction_indexes(log: PartitionLog, later: Sequence[Segment]) -> dict[str, bytes]:
    """Return the `.txnindex` files that segments of a log have lost, by name, as its markers give them.

    An empty one has lost its entries.
    """
    with_entries = {file.name for each in later for file in each.files if file.size_bytes}
    lost = [each for each in later if txn_index_name(each.base_offset) not in with_entries]
    in_need = {each for each in lost if _needs_transaction_index(log, each)}
    if not in_need:
        return {}
    transactions, indexes = Transactions(), dict[str, bytes]()
    for each in log.segments:
        batches = read_transaction_tables(log.file(each.log_name), end_position=each.size_bytes)
        entries = transactions.entries(batches)
        if each in in_need and entries:
            indexes[txn_index_name(each.base_offset)] = build_txn_index(entries)
    return indexes


def _needs_transaction_index(log: PartitionLog, segment: Segment) -> bool:
    """Return whether a segment has an ABORT marker, and is not one whose index a broker builds when it starts."""
    if log.recovers(segment):
        return False
    tables = read_transaction_tables(log.file(segment.log_name), end_position=segment.size_bytes)
    return any((table[:, c.TXN_KIND] == c.ABORT).any() for table in tables)


def _later_batches(
    plan: CleanPlan, transactions: Transactions, end_offset: int = 0
) -> Iterator[tuple[Segment, Iterator[Table]]]:
    """Yield the segments after the cleanable range, each with its transactional and control batches.

    Ends at `end_offset`, and not before all transactions that begin in the range have ended: `transactions` are those
    of the range. No marker behind is read, so it may be malformed.
    """
    open_producers = transactions.open_below(plan.first_uncleanable_offset)

    def is_needed(offset: int) -> bool:
        return offset < end_offset or bool(open_producers)

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
            for txn_batch in of_headers([with_marker(batch, file=str(file))]):
                if txn_batch.kind in ENDS:
                    open_producers.discard(txn_batch.producer_id)
                yield txn_batch

    for segment in plan.log.segments[len(plan.segments) :]:
        if is_needed(segment.base_offset):
            yield segment, tables_of(batches_of(segment))


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
    entries = AbortedTxnColumns.of(*(aborted[base] for base in bases)).table
    is_near = (entries[:, c.ENTRY_LAST_OFFSET] >= log.log_start_offset) & (
        entries[:, c.ENTRY_FIRST_OFFSET] < end_offset
    )
    return AbortedTxnColumns(entries[is_near])


def _excluded_from_map(
    plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]
) -> dict[int, Column]:
    expected = collect(plan.log, aborted, plan.first_dirty_offset, plan.first_uncleanable_offset)
    if not expected:
        return {}
    tracker = TransactionTracker(expected)
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
    header = header_at(log_file, position)
    return OffsetPosition(offset=header.last_offset, position=position)


def _discardable_and_kept_index(
    plan: CleanPlan, batches: Batches, aborted: Mapping[int, Sequence[AbortedTxn]]
) -> tuple[dict[int, Column], dict[int, Sequence[AbortedTxn]]]:
    # Kafka adds the entries segment by segment. An entry matters from its first offset on, whenever it is added.
    expected = collect(plan.log, aborted, plan.log.segments[0].base_offset, plan.first_uncleanable_offset)
    tracker = TransactionTracker(expected)
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


# Decisions batch by batch, in log order


class Decided(NamedTuple):
    """Which batches of a table can be dropped, and the entries of the index that stay because of its markers."""

    is_discardable: npt.NDArray[np.bool_]
    kept: AbortedTxnColumns


class TransactionTracker:
    """Finds the batches of aborted transactions, and the markers whose transactions have no batch left.

    `expected` are the aborted transactions of a log. A marker stays as long as its transaction has a batch, even an
    empty one; a marker other than ABORT and COMMIT always stays. The first cleaning that finds no such batch sets the
    marker's delete horizon. So an aborted transaction disappears in three cleanings: the first drops the data, the
    second sets the horizon, the third drops the marker.
    Rule: `CleanedTransactionMetadata`; KAFKA-8351, KAFKA-13727.
    """

    def __init__(self, expected: AbortedTxnColumns) -> None:
        self._entries = expected.table[np.argsort(expected.table[:, c.ENTRY_FIRST_OFFSET], kind="stable")]
        self._states = ProducerStates(-1, 0, 0)
        self._entry_producers = self._states.numbers_of(self._entries[:, c.ENTRY_PRODUCER_ID])
        self._next_entry = 0

    def decide(self, batches: Table) -> Decided:
        """Return the decisions about the next transactional and control batches, in log order."""
        is_discardable = np.empty(len(batches), np.uint8)
        kept = np.empty(np.count_nonzero(batches[:, c.TXN_KIND] == c.ABORT), np.int64)
        producers = self._states.numbers_of(batches[:, c.TXN_PRODUCER_ID])
        self._next_entry, count = kernels.decide_transactions(
            batches, producers, self._entries, self._entry_producers,
            self._next_entry, self._states.rows, is_discardable, kept,
        )  # fmt: skip
        return Decided(is_discardable.view(np.bool_), AbortedTxnColumns(self._entries[kept[:count]]))
