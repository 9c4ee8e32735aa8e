"""Decides about the transactions of a log with a kernel. The definition is `transaction_tracker.TransactionTracker`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from kcompact import kernels
from kcompact.clean.transaction_tracker import Decided
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import (
    ABORT,
    ABORTED_ENTRY,
    ENTRY_FIRST_OFFSET,
    ENTRY_PRODUCER_ID,
    TXN_KIND,
    TXN_PRODUCER_ID,
    Table,
)
from kcompact.log.transaction_kernels import ProducerNumbers


class CompiledTracker:
    """Decides about the batches of a log, table by table. `expected` are its aborted transactions."""

    def __init__(self, expected: Sequence[AbortedTxn], batches: Iterable[Table]) -> None:
        entries = AbortedTxnColumns.of(expected).table
        self._entries = entries[np.argsort(entries[:, ENTRY_FIRST_OFFSET], kind="stable")]
        in_batches = (table[:, TXN_PRODUCER_ID] for table in batches)
        self._producers = ProducerNumbers(chain(in_batches, [entries[:, ENTRY_PRODUCER_ID]]))
        self._entry_producers = self._producers.of(self._entries[:, ENTRY_PRODUCER_ID])
        self._state = np.zeros((len(self._producers), 3), np.int64)
        self._state[:, ABORTED_ENTRY] = -1
        self._next_entry = 0

    def decide(self, batches: Table) -> Decided:
        """Return the decisions about the next batches."""
        is_discardable = np.empty(len(batches), np.uint8)
        kept = np.empty(np.count_nonzero(batches[:, TXN_KIND] == ABORT), np.int64)
        self._next_entry, count = kernels.decide_transactions(
            batches, self._producers.of(batches[:, TXN_PRODUCER_ID]), self._entries, self._entry_producers,
            self._next_entry, self._state, is_discardable, kept,
        )  # fmt: skip
        return Decided(is_discardable.view(np.bool_), AbortedTxnColumns(self._entries[kept[:count]]))
