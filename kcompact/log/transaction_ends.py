"""How the transactions of a log end, for whole tables of batches.

A transactional batch belongs to the transaction that the next marker of its producer ends. Without one it is open.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from kcompact.kernels import (
    ABORT,
    ATTRIBUTES,
    BASE_OFFSET,
    COMMIT,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
    TXN_BASE_OFFSET,
    TXN_KIND,
    TXN_PRODUCER_ID,
    Column,
    Table,
)


class Outcome(IntEnum):
    """How the transaction of a batch ends; NONE: it belongs to no transaction."""

    NONE = 0
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3


class TransactionOutcomes(NamedTuple):
    """The markers of a log, sorted by producer and offset.

    `place` is `producer * (markers + 1) + rank`: the number of the producer among `producers`, and how many markers of
    the log have smaller offsets.
    """

    producers: Column
    offsets: Column
    places: Column
    outcomes: Column

    @classmethod
    def of_tables(cls, tables: Iterable[Table]) -> TransactionOutcomes:
        """Return the outcomes from the transactional and control batches of a log (`log.transaction_batches`)."""
        markers = [table[np.isin(table[:, TXN_KIND], (ABORT, COMMIT))] for table in tables]
        found = np.concatenate(markers) if markers else np.empty((0, 4), np.int64)
        found = found[np.argsort(found[:, TXN_BASE_OFFSET], kind="stable")]
        producers, number = np.unique(found[:, TXN_PRODUCER_ID], return_inverse=True)
        places = number * (len(found) + 1) + np.arange(len(found))
        order = np.argsort(places, kind="stable")
        outcomes = np.where(found[:, TXN_KIND] == COMMIT, Outcome.COMMITTED, Outcome.ABORTED)
        return cls(producers, found[:, TXN_BASE_OFFSET].copy(), places[order], outcomes[order])

    def of(self, table: Table) -> Column:
        """Return the `Outcome` of each batch of a table. A marker has that of its transaction."""
        found = np.full(len(table), Outcome.NONE, np.int64)
        rows = np.flatnonzero(table[:, ATTRIBUTES] & TRANSACTIONAL_BIT)
        found[rows] = self.of_transactional(table[rows, PRODUCER_ID], table[rows, BASE_OFFSET])
        return found

    def of_transactional(self, producer_ids: Column, base_offsets: Column) -> Column:
        """Return the `Outcome` of transactional batches, in any order."""
        found = np.full(len(producer_ids), Outcome.OPEN, np.int64)
        number = np.searchsorted(self.producers, producer_ids)
        is_known = number < len(self.producers)
        is_known[is_known] = self.producers[number[is_known]] == producer_ids[is_known]
        rows, number = np.flatnonzero(is_known), number[is_known]
        of_producer = number * (len(self.offsets) + 1)
        at = np.searchsorted(self.places, of_producer + np.searchsorted(self.offsets, base_offsets[rows]))
        is_ended = at < len(self.places)
        is_ended[is_ended] = self.places[at[is_ended]] < of_producer[is_ended] + len(self.offsets) + 1
        found[rows[is_ended]] = self.outcomes[at[is_ended]]
        return found
