"""Decides about transactions batch by batch, in log order: the readable definition, and the kernel that repeats it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import Table
from kcompact.kernels import columns as c
from kcompact.log.transaction_index import ProducerNumbers
from kcompact.log.transactions import TransactionBatch, rows_of


class Decided(NamedTuple):
    """Which batches of a table can be dropped, and the entries of the index that stay because of its markers."""

    is_discardable: npt.NDArray[np.bool_]
    kept: Sequence[AbortedTxn]


class Tracker(Protocol):
    """Decides about the batches of a log, table by table."""

    def decide(self, batches: Table) -> Decided: ...


def tracker(expected: Sequence[AbortedTxn], batches: Iterable[Table]) -> Tracker:
    """Return a tracker for the batches of a log that expects these aborted transactions."""
    if kernels.in_use():
        return CompiledTracker(expected, batches)
    by_definition = TransactionTracker()
    by_definition.expect(expected)
    return by_definition


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
            if batch.kind == c.DATA:
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
