"""Rules that only kernels apply, once more in ordinary Python that can be compared with Kafka's. Tests compare both."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kcompact.clean.offset_map import IN_MAP
from kcompact.errors import CorruptTransactionIndexError
from kcompact.format.block import Keys
from kcompact.format.index import TXN_ENTRY_BYTES, AbortedTxn
from kcompact.kernels import Mask
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.transaction_index import AbortMarker
from kcompact.log.transactions import TransactionBatch

# The offset map


def defined_latest(keys: Keys) -> Mask:
    """Return what `clean.offset_map.latest` does, for rows in any order."""
    if not keys.rows:
        return np.empty(0, np.bool_)
    order = np.lexsort((keys.record_ref, keys.hash_low, keys.hash_high))
    high, low, record_ref = keys.hash_high[order], keys.hash_low[order], keys.record_ref[order]
    is_first = np.ones(keys.rows, np.bool_)
    np.logical_or(high[1:] != high[:-1], low[1:] != low[:-1], out=is_first[1:])
    key_number = np.cumsum(is_first) - 1
    greatest = np.full(int(key_number[-1]) + 1, -1, np.int64)
    in_map = record_ref & IN_MAP == 1
    np.maximum.at(greatest, key_number[in_map], record_ref[in_map])
    is_latest = np.empty(keys.rows, np.bool_)
    is_latest[order] = record_ref >= greatest[key_number]
    return is_latest


# The transactions of a log


class DefinedTransactions:
    """Follows the transactions of a log from batch to batch, in log order, as `log.transaction_index.Transactions`."""

    def __init__(self) -> None:
        # In the order of the first offsets, because each transaction is added at its first batch.
        self._open: OrderedDict[int, int] = OrderedDict()
        self._first_records: dict[int, int] = {}
        self._ended: dict[int, int] = {}

    def open_below(self, offset: int) -> set[int]:
        """Return the producers whose open transactions begin below an offset."""
        return {producer_id for producer_id, first_offset in self._open.items() if first_offset < offset}

    def abort_markers(self, batches: Iterable[TransactionBatch]) -> Iterator[AbortMarker]:
        """Yield the ABORT markers of the next batches."""
        for base_offset, _, producer_id, kind in batches:
            if producer_id < 0:
                continue
            if kind >= c.EMPTY_DATA:
                self._open.setdefault(producer_id, base_offset)
                if kind == c.DATA:
                    self._first_records.setdefault(producer_id, base_offset)
            elif kind in (c.ABORT, c.COMMIT):
                first_batch, first_records = (each.pop(producer_id, -1) for each in (self._open, self._first_records))
                if kind == c.ABORT:
                    yield AbortMarker(
                        producer_id=producer_id,
                        offset=base_offset,
                        first_batch=first_batch,
                        previous_marker=self._ended.get(producer_id, -1),
                        last_stable_offset=next(iter(self._open.values()), base_offset + 1),
                        first_records=first_records,
                    )
                self._ended[producer_id] = base_offset

    def entries(self, batches: Iterable[TransactionBatch]) -> tuple[AbortedTxn, ...]:
        """Return the `.txnindex` entries of a segment with these batches. Rule: `LogSegment.recover`."""
        return tuple(
            AbortedTxn(
                producer_id=marker.producer_id,
                first_offset=marker.first_batch,
                last_offset=marker.offset,
                last_stable_offset=marker.last_stable_offset,
            )
            for marker in self.abort_markers(batches)
            if marker.first_batch >= 0
        )


# Entries that contradict the markers


class IndexEntry(NamedTuple):
    """An entry, the file of its index and its number there."""

    entry: AbortedTxn
    file: LogFile
    number: int

    def contradiction(self, problem: str) -> CorruptTransactionIndexError:
        """Return the error with this problem."""
        return CorruptTransactionIndexError(
            file=str(self.file),
            position=self.number * TXN_ENTRY_BYTES,
            offset=self.entry.last_offset,
            problem=f"entry {self.number}: {problem}",
        )


def defined_contradictions(
    transactions: DefinedTransactions,
    file: LogFile,
    entries: Sequence[AbortedTxn],
    batches: Iterable[TransactionBatch],
    *,
    start_offset: int,
    judged_end: int | None = None,
) -> Iterator[CorruptTransactionIndexError]:
    """Yield what `log.transaction_index.contradictions` yields. Rule: `LocalLog.collectAbortedTransactions`."""
    placed = (IndexEntry(entry, file, number) for number, entry in enumerate(entries))
    waiting = (each for each in placed if each.entry.last_offset >= start_offset)
    current = next(waiting, None)
    visible = (batch for batch in batches if batch.last_offset >= start_offset)
    for marker in transactions.abort_markers(visible):
        while current is not None and current.entry.last_offset < marker.offset:
            yield _without_marker(current)
            current = next(waiting, None)
        if current is not None and current.entry.last_offset == marker.offset:
            yield from _compared(current, marker)
            current = next(waiting, None)
        elif marker.first_records >= 0:
            yield CorruptTransactionIndexError(
                file=str(file),
                offset=marker.offset,
                problem=f"has no entry for the ABORT marker at offset {marker.offset}, which ends a transaction of "
                f"producer {marker.producer_id} with records from offset {marker.first_records} on",
            )
    while current is not None and (judged_end is None or current.entry.last_offset < judged_end):
        yield _without_marker(current)
        current = next(waiting, None)


def _compared(placed: IndexEntry, marker: AbortMarker) -> Iterator[CorruptTransactionIndexError]:
    """Yield how an entry contradicts the marker at its last offset."""
    entry = placed.entry
    if entry.producer_id != marker.producer_id:
        yield placed.contradiction(
            f"is of producer {entry.producer_id}, but the ABORT marker at offset {marker.offset} is of producer "
            f"{marker.producer_id}"
        )
    elif entry.first_offset <= marker.previous_marker:
        yield placed.contradiction(
            f"first offset {entry.first_offset} is not above the marker at offset {marker.previous_marker}, "
            f"which ended the transaction before of producer {entry.producer_id}"
        )
    elif -1 < marker.first_records < entry.first_offset:
        yield placed.contradiction(
            f"first offset {entry.first_offset} is above the transaction's first record, in the batch at "
            f"{marker.first_records}"
        )


def _without_marker(placed: IndexEntry) -> CorruptTransactionIndexError:
    entry = placed.entry
    return placed.contradiction(
        f"there is no ABORT marker of producer {entry.producer_id} at its last offset {entry.last_offset}"
    )


# Which batches of transactions can be dropped


class DefinedTracker:
    """Decides batch by batch, in log order, as `clean.transactions.TransactionTracker` does for tables.

    Rule: `CleanedTransactionMetadata`; KAFKA-8351, KAFKA-13727.
    """

    def __init__(self, expected: Iterable[AbortedTxn] = ()) -> None:
        self._upcoming: list[tuple[int, int, AbortedTxn]] = []
        self._aborted: dict[int, AbortedTxn] = {}
        self._observed: set[int] = set()
        self._committed: set[int] = set()
        for number, transaction in enumerate(expected):
            heapq.heappush(self._upcoming, (transaction.first_offset, number, transaction))

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
        """Return whether the transaction of a control batch has no batch left, and its index entry if both stay."""
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

    def decide(self, batches: Iterable[TransactionBatch]) -> tuple[list[bool], list[AbortedTxn]]:
        """Return what `see_data` and `see_marker` return for the next batches."""
        is_discardable, kept = [], []
        for batch in batches:
            if batch.kind >= c.EMPTY_DATA:
                is_discardable.append(self.see_data(batch))
                continue
            is_gone, entry = self.see_marker(batch)
            is_discardable.append(is_gone)
            kept += [] if entry is None else [entry]
        return is_discardable, kept
