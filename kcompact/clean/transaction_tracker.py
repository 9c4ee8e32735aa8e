"""Decides about transactions batch by batch, in log order: the readable definition, and what a kernel returns too."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kcompact.format.index import AbortedTxn
from kcompact.kernels import ABORT, COMMIT, DATA, NO_RECORD, Table
from kcompact.log.transaction_batches import TransactionBatch, rows_of


class Decided(NamedTuple):
    """Which batches of a table can be dropped, and the entries of the index that stay because of its markers."""

    is_discardable: npt.NDArray[np.bool_]
    kept: Sequence[AbortedTxn]


class Tracker(Protocol):
    """Decides about the batches of a log, table by table."""

    def decide(self, batches: Table) -> Decided: ...


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
        if batch.kind == NO_RECORD:
            return True, None
        if batch.kind == ABORT:
            transaction = self._aborted.pop(producer_id, None)
            observed = producer_id in self._observed
            self._observed.discard(producer_id)
            return (False, transaction) if transaction is not None and observed else (True, None)
        if batch.kind == COMMIT:
            had_data = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_data, None
        return False, None

    def decide(self, batches: Table) -> Decided:
        """Return what `see_data` and `see_marker` return for the next batches."""
        is_discardable, kept = np.zeros(len(batches), np.bool_), []
        for row, batch in enumerate(rows_of(batches)):
            if batch.kind == DATA:
                is_discardable[row] = self.see_data(batch)
                continue
            is_discardable[row], entry = self.see_marker(batch)
            if entry is not None:
                kept.append(entry)
        return Decided(is_discardable, kept)
