"""The transactions of a log, followed and judged by kernels, from tables of `transactions`.

The definitions are the classes of `transaction_index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from kcompact import kernels
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.transaction_index import Transactions

ENTRY_COLUMNS = (c.MARKER_PRODUCER_ID, c.MARKER_FIRST_BATCH, c.MARKER_OFFSET, c.MARKER_LAST_STABLE_OFFSET)
"""The columns of a table of ABORT markers that make the entries of a `.txnindex`."""


class ProducerNumbers:
    """Numbers the producers of a log from 0 on, so that their state fits an array."""

    def __init__(self, producer_ids: Iterable[Column]) -> None:
        # Without repeats there is little to sort: most batches follow one of the same producer.
        found = [np.unique(each[np.flatnonzero(np.diff(each, prepend=each[:1] - 1))]) for each in producer_ids]
        self._producer_ids = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)

    @classmethod
    def in_tables(cls, tables: Iterable[Table]) -> ProducerNumbers:
        """Return the numbers of the producers of these batches."""
        return cls(table[:, c.TXN_PRODUCER_ID] for table in tables)

    def __len__(self) -> int:
        return len(self._producer_ids)

    def of(self, producer_ids: Column) -> Column:
        """Return the numbers of these producers, which must be among those of the log."""
        numbers: Column = np.searchsorted(self._producer_ids, producer_ids)
        return numbers

    def id_of(self, number: int) -> int:
        """Return the id of the producer with a number."""
        return int(self._producer_ids[number])


class CompiledTransactions:
    """Follows the transactions of a log from table to table: `transaction_index.Transactions`."""

    def __init__(self, producers: ProducerNumbers, *, start_offset: int = 0) -> None:
        self._producers, self._start_offset = producers, start_offset
        self._state = np.full((len(producers) + 1, 4), -1, np.int64)
        self._state[-1, [c.OPEN_NEXT, c.OPEN_PREVIOUS]] = len(producers)

    def abort_markers(self, batches: Table) -> Table:
        """Return the ABORT markers of the next batches, with the fields of `AbortMarker`."""
        markers = np.empty((np.count_nonzero(batches[:, c.TXN_KIND] == c.ABORT), c.MARKER_COLUMNS), np.int64)
        producers = self._producers.of(batches[:, c.TXN_PRODUCER_ID])
        count, _ = kernels.follow_transactions(batches, producers, self._start_offset, self._state, markers)
        return markers[:count]

    def as_definition(self) -> Transactions:
        """Return the definition in the same state."""
        opened, ended = {}, np.flatnonzero(self._state[:-1, c.ENDED_AT] >= 0).tolist()
        number = ring = len(self._producers)
        while (number := int(self._state[number, c.OPEN_NEXT])) != ring:
            opened[self._producers.id_of(number)] = int(self._state[number, c.OPEN_FIRST])
        return Transactions(opened, {self._producers.id_of(each): int(self._state[each, c.ENDED_AT]) for each in ended})


def aborted_by_markers(transactions: CompiledTransactions, batches: Iterable[Table]) -> AbortedTxnColumns:
    """Return the entries that `transaction_index.aborted_by_markers` returns."""
    found = [transactions.abort_markers(table) for table in batches]
    return AbortedTxnColumns.of(
        *(AbortedTxnColumns(markers[markers[:, c.MARKER_FIRST_BATCH] >= 0][:, ENTRY_COLUMNS]) for markers in found)
    )


class CompiledJudge:
    """Compares the `.txnindex` files of a log with its markers: `transaction_index.TransactionIndexJudge`."""

    def __init__(self, producers: ProducerNumbers, *, log_start_offset: int, log_end_offset: int) -> None:
        self.transactions = CompiledTransactions(producers, start_offset=log_start_offset)
        self._log_start_offset, self._log_end_offset = log_start_offset, log_end_offset
        self._stable = np.full((2, 4), -1, np.int64)
        self._files = 0

    def agrees(self, entries: Sequence[AbortedTxn], batches: Iterable[Table]) -> bool:
        """Return whether the entries of the next segment's index agree with its batches and with what came before."""
        markers = np.concatenate(
            [np.empty((0, c.MARKER_COLUMNS), np.int64), *map(self.transactions.abort_markers, batches)]
        )
        code = kernels.judge_entries(
            markers,
            AbortedTxnColumns.of(entries).table,
            self._files,
            self._log_start_offset,
            self._log_end_offset,
            self._stable,
        )
        self._files += 1
        return bool(code == c.DONE)

    def most_stable(self) -> list[tuple[int, int]]:
        """Return the entries with the greatest last stable offsets: the number of the segment, that of the entry."""
        known = self._stable[self._stable[:, c.STABLE_OFFSET] >= 0]
        return [(file, number) for file, number in known[:, [c.STABLE_FILE, c.STABLE_NUMBER]].tolist()]
