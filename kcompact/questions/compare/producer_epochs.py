"""Transactions with data of two producer epochs: between the two a marker is missing, by the files of one replica.

    offset   40     41     42     43
    batch    b, 5   -      b, 6   COMMIT of b, 7      a marker between 40 and 42 has been missed

A producer takes a new epoch only after its transaction has ended, and the marker stays as long as its data does. Which
marker it was is in no file of this replica. Rule: `TransactionManager.bumpEpoch`, KIP-890.
"""

from __future__ import annotations

import numpy as np

from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.markers import are_control

_PRODUCER, _OFFSET, _EPOCH, _IS_CONTROL = range(4)


class UnendedBatches:
    """Finds the data batches that the next marker of their producer does not end."""

    def __init__(self) -> None:
        self._opened: Table = np.empty((0, 4), np.int64)
        self._found: list[Column] = []

    def add(self, table: Table) -> None:
        """Add the batches of a table, i64[n, COLUMNS], that follow those before."""
        rows = table[table[:, c.ATTRIBUTES] & (c.CONTROL_BIT | c.TRANSACTIONAL_BIT) != 0]
        if len(rows):
            is_control = are_control(rows)
            columns = (rows[:, c.PRODUCER_ID], rows[:, c.BASE_OFFSET], rows[:, c.PRODUCER_EPOCH], is_control)
            unended, self._opened = _divided(np.concatenate((self._opened, np.column_stack(columns).astype(np.int64))))
            self._found.append(unended)

    @property
    def offsets(self) -> Column:
        """Their base offsets, ascending."""
        base_offsets: Column = np.sort(np.concatenate([*self._found, _older(self._opened, self._opened[:, _PRODUCER])]))
        return base_offsets


def _divided(rows: Table) -> tuple[Column, Table]:
    """Return the batches that are not ended by the marker after them, and the data after the last markers."""
    rows = rows[np.argsort(rows[:, _PRODUCER], kind="stable")]
    number = np.cumsum(rows[:, _IS_CONTROL]) - rows[:, _IS_CONTROL]
    producers = np.unique(rows[:, _PRODUCER], return_inverse=True)[1]
    transactions = producers * (len(rows) + 1) + number
    is_data = rows[:, _IS_CONTROL] == 0
    is_ended = np.isin(transactions, transactions[~is_data])
    ended = rows[is_data & is_ended]
    return _older(ended, transactions[is_data & is_ended]), rows[is_data & ~is_ended]


def _older(data: Table, transactions: Column) -> Column:
    """Return the base offsets of the data whose epoch is not that of the last data of its transaction."""
    if not len(data):
        return np.empty(0, np.int64)
    order = np.argsort(transactions, kind="stable")
    data, transactions = data[order], transactions[order]
    lasts = np.flatnonzero(np.append(transactions[1:] != transactions[:-1], True))
    last_epochs = data[lasts, _EPOCH][np.searchsorted(transactions[lasts], transactions)]
    base_offsets: Column = data[data[:, _EPOCH] != last_epochs, _OFFSET]
    return base_offsets
