"""The transactions of several replicas: which markers one of them lacks, and what its consumers see.

    replica A   data of producer 7: 40 .. 44    ABORT: 45     ...
    replica B   data of producer 7: 40 .. 44    -             ...     it ends above 45: it has missed the marker

A marker stays in a log as long as a batch of its transaction does. So a replica that has the data, ends above the
marker and lacks it has missed it: it was away until the leader's cleaner had removed both. What its consumers see
depends on its producer state, and on the next marker of the same producer.
Rules: `CleanedTransactionMetadata.onControlBatchRead`, `ProducerAppendInfo.appendEndTxnMarker`,
`ProducerStateManager.completeTxn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.questions.compare.job import overlap
from kcompact.questions.compare.replica import Replica

LastHole = Callable[[int, int], int | None]


class Fault(StrEnum):
    """What is wrong with a transaction in one replica."""

    HANGING = "hanging"
    """It is open there and nowhere else: the last stable offset never rises."""
    ABORTED_SERVED = "aborted-served"
    """It was aborted, and is served."""
    COMMITTED_HIDDEN = "committed-hidden"
    """It was committed, and is taken for aborted."""
    MARKER_MISSED = "marker-missed"
    """Its marker is missing, and consumers see the same."""
    TWO_EPOCHS = "two-epochs"
    """It has data of two producer epochs under one COMMIT: a marker between them is in no replica."""
    WILL_HANG = "will-hang"
    """It is open there, and its marker is gone from the replicas that have it."""
    UNINDEXED = "unindexed"
    """It was aborted, and the `.txnindex` lacks its entry: it is served."""


class WrongTransaction(NamedTuple):
    """A transaction that one replica has wrong.

    Its producer, the first batch that is left of it, its marker (-1: unknown), and the mask of the replicas that have
    the marker or have removed the transaction.
    """

    replica: int
    fault: Fault
    producer_id: int
    first_offset: int
    marker_offset: int
    holders: int
    is_certain: bool


class _Data(NamedTuple):
    """The data batches of one replica below the fork, with the markers that end their transactions.

    `union` and `own` are rows of `markers`: of those of all replicas, and of its own. -1 is none.
    """

    table: Table
    union: Column
    own: Column


def wrong_transactions(
    replicas: Sequence[Replica],
    end_offsets: Sequence[int],
    tainted: Sequence[Table],
    last_hole: LastHole,
    leader: int | None,
) -> list[WrongTransaction]:
    """Return the transactions that a replica has wrong, by replica and offset.

    `end_offsets` are those up to which the replicas are compared. `tainted` has for each the first and the end offsets
    of what is damaged: a marker that may have been there is not missed. `leader` is the replica from which the others
    fetch, None if that is not known: then it may be any.
    `last_hole(from_offset, end_offset)` is the last offset in the range that no replica has a record at, or None.
    """
    tables = [
        _sound(each.transactions_below(end), ranges)
        for each, end, ranges in zip(replicas, end_offsets, tainted, strict=True)
    ]
    markers = _markers_of(tables)
    data = []
    for table in tables:
        batches = table[table[:, c.TXN_KIND] >= c.EMPTY_DATA]
        ids, offsets = batches[:, c.TXN_PRODUCER_ID], batches[:, c.TXN_BASE_OFFSET]
        # Below the fork the same offset is the same marker.
        its_markers = np.flatnonzero(np.isin(markers[:, c.TXN_BASE_OFFSET], table[:, c.TXN_BASE_OFFSET]))
        following = _following(markers[its_markers], ids, offsets)
        own_rows = np.append(its_markers, -1)[following]
        data.append(_Data(batches, _following(markers, ids, offsets), own_rows))
    faulty_transactions: list[WrongTransaction] = []
    for number, replica in enumerate(replicas):
        own = [
            *_missed(replica, number, data[number], markers, tables, end_offsets[number]),
            *_to_be_missed(replicas, number, data, markers, tables, end_offsets, tainted, leader),
            *_unended(replicas, number, data, end_offsets, tainted, last_hole),
            *_unindexed(replica, number),
            *_of_two_epochs(replica, number, data[number], markers),
        ]
        for each in own:
            end_offset = end_offsets[number] if each.marker_offset < 0 else each.marker_offset + 1
            if not overlap(tainted[number], each.first_offset, end_offset):
                faulty_transactions.append(each)
    return faulty_transactions


def _sound(table: Table, tainted: Table) -> Table:
    """Return the batches that are not damaged. The offsets of the others may be wrong."""
    sound: Table = table[~overlap(tainted, table[:, c.TXN_BASE_OFFSET], table[:, c.TXN_LAST_OFFSET] + 1)]
    return sound


def without_marker(replicas: Sequence[Replica]) -> list[Column]:
    """Return for each replica the base offsets of the data whose marker is missing in all of them."""
    markers = _markers_of([each.transactions for each in replicas])
    return [_without_marker(each, markers) for each in replicas]


def _without_marker(replica: Replica, markers: Table) -> Column:
    """Return the data of older producer epochs that is followed, in all replicas, by the marker of a later epoch."""
    data = replica.transactions[np.isin(replica.transactions[:, c.TXN_BASE_OFFSET], replica.unended)]
    ids, offsets = data[:, c.TXN_PRODUCER_ID], data[:, c.TXN_BASE_OFFSET]
    own_markers = _markers_of([replica.transactions])
    rows, own = _following(markers, ids, offsets), _following(own_markers, ids, offsets)
    marker_at = np.append(markers[:, c.TXN_BASE_OFFSET], -1)[rows]
    offsets_without_marker: Column = offsets[marker_at == np.append(own_markers[:, c.TXN_BASE_OFFSET], -1)[own]]
    return offsets_without_marker


def _of_two_epochs(replica: Replica, number: int, data: _Data, markers: Table) -> Iterator[WrongTransaction]:
    """Yield the transactions that end with a COMMIT and have data of an older epoch, whose marker nobody has."""
    unknown = np.isin(data.table[:, c.TXN_BASE_OFFSET], _without_marker(replica, markers)) & (data.own >= 0)
    for row in np.unique(data.own[unknown]).tolist():
        if markers[row, c.TXN_KIND] == c.COMMIT:
            first = int(np.flatnonzero(unknown & (data.own == row))[0])
            yield WrongTransaction(
                replica=number,
                fault=Fault.TWO_EPOCHS,
                producer_id=int(markers[row, c.TXN_PRODUCER_ID]),
                first_offset=int(data.table[first, c.TXN_BASE_OFFSET]),
                marker_offset=-1,
                holders=0,
                is_certain=False,
            )


def _missed(
    replica: Replica, number: int, data: _Data, markers: Table, tables: Sequence[Table], end_offset: int
) -> Iterator[WrongTransaction]:
    """Yield the transactions whose data a replica has without their marker."""
    table, union, own = data
    is_missed = (union >= 0) & (union != own)
    is_missed[is_missed] = markers[union[is_missed], c.TXN_BASE_OFFSET] < end_offset
    is_missed &= table[:, c.TXN_BASE_OFFSET] >= replica.log.log_start_offset
    for row in np.unique(union[is_missed]).tolist():
        batches = is_missed & (union == row)
        first = int(np.flatnonzero(batches)[0])
        producer_id, marker_offset = int(markers[row, c.TXN_PRODUCER_ID]), int(markers[row, c.TXN_BASE_OFFSET])
        is_abort = markers[row, c.TXN_KIND] == c.ABORT
        if own[first] >= 0:
            own_abort = markers[own[first], c.TXN_KIND] == c.ABORT
            fault = Fault.MARKER_MISSED
            if is_abort != own_abort:
                fault = Fault.ABORTED_SERVED if is_abort else Fault.COMMITTED_HIDDEN
        elif replica.is_open(producer_id):
            fault = Fault.HANGING
        else:
            fault = Fault.ABORTED_SERVED if is_abort else Fault.MARKER_MISSED
        yield WrongTransaction(
            replica=number,
            fault=fault,
            producer_id=producer_id,
            first_offset=int(table[first, c.TXN_BASE_OFFSET]),
            marker_offset=marker_offset,
            holders=sum(
                1 << other for other, its in enumerate(tables) if np.any(its[:, c.TXN_BASE_OFFSET] == marker_offset)
            ),
            is_certain=True,
        )


def _to_be_missed(
    replicas: Sequence[Replica],
    number: int,
    data: Sequence[_Data],
    markers: Table,
    tables: Sequence[Table],
    end_offsets: Sequence[int],
    tainted: Sequence[Table],
    leader: int | None,
) -> Iterator[WrongTransaction]:
    """Yield the transactions that are open in a replica that is behind, and whose end the leader has dropped.

    A leader that begins above its end has it emptied first. What is damaged may have been the marker, and one that has
    data of the transaction without a marker has missed it itself.
    """
    replica, end_offset, own = replicas[number], end_offsets[number], data[number]
    is_open = (own.union >= 0) & (own.own < 0)
    for row in np.unique(own.union[is_open]).tolist():
        producer_id, marker_offset = int(markers[row, c.TXN_PRODUCER_ID]), int(markers[row, c.TXN_BASE_OFFSET])
        if marker_offset < end_offset or not replica.is_open(producer_id):
            continue
        droppers = [
            other
            for other in ([leader] if leader is not None else range(len(tables)))
            if end_offsets[other] > marker_offset
            and replicas[other].log.log_start_offset <= end_offset
            and not _ends_later(tables[other], producer_id, end_offset)
            and not overlap(tainted[other], end_offset, marker_offset + 1)
            and not np.any(data[other].union == row)
        ]
        if droppers:
            first = int(np.flatnonzero(own.union == row)[0])
            yield WrongTransaction(
                replica=number,
                fault=Fault.WILL_HANG,
                producer_id=producer_id,
                first_offset=int(own.table[first, c.TXN_BASE_OFFSET]),
                marker_offset=marker_offset,
                holders=0,
                is_certain=False,
            )


def _ends_later(table: Table, producer_id: int, from_offset: int) -> bool:
    """Return whether a log has a marker of a producer from an offset on."""
    is_its = (table[:, c.TXN_PRODUCER_ID] == producer_id) & (table[:, c.TXN_BASE_OFFSET] >= from_offset)
    return bool(np.any(is_its & np.isin(table[:, c.TXN_KIND], (c.ABORT, c.COMMIT))))


def _unended(
    replicas: Sequence[Replica],
    number: int,
    data: Sequence[_Data],
    end_offsets: Sequence[int],
    tainted: Sequence[Table],
    last_hole: LastHole,
) -> Iterator[WrongTransaction]:
    """Yield the transactions without a marker in any replica that another one has ended and removed.

    No cleaner removes data of an open transaction. So whoever ends above the data and lacks it has had the marker,
    unless its segment is empty: it may be cut off. Where the replica does not have it open, its broker has had the
    marker too, and a cleaner has dropped it before the data: it did not know that the transaction was aborted.
    """
    replica, (table, union, _) = replicas[number], data[number]
    for producer_id in np.unique(table[union < 0, c.TXN_PRODUCER_ID]).tolist():
        is_open = replica.is_open(producer_id)
        batches = table[(union < 0) & (table[:, c.TXN_PRODUCER_ID] == producer_id)]
        if not is_open:
            is_served = batches[:, c.TXN_LAST_OFFSET] >= replica.log.log_start_offset
            batches = batches[is_served & (batches[:, c.TXN_KIND] == c.DATA)]
            if not len(batches):
                continue
        first_offset = int(batches[0, c.TXN_BASE_OFFSET])
        enders = [
            other
            for other, its in enumerate(replicas)
            if other != number
            and end_offsets[other] > first_offset
            and its.log.log_start_offset <= first_offset
            and not _has(data[other].table, batches[0])
            and not overlap(tainted[other], first_offset, first_offset + 1)
            and not its.is_empty_at(first_offset)
        ]
        if not enders:
            continue
        end_offset, most = end_offsets[number], max(end_offsets[other] for other in enders)
        is_above = is_open and most > end_offset and last_hole(end_offset, most) is not None
        fault = Fault.ABORTED_SERVED
        if is_open:
            fault = Fault.WILL_HANG if is_above else Fault.HANGING
        yield WrongTransaction(
            replica=number,
            fault=fault,
            producer_id=producer_id,
            first_offset=first_offset,
            marker_offset=-1,
            holders=sum(1 << other for other in enders),
            is_certain=not is_above,
        )


def _has(table: Table, batch: Column) -> bool:
    """Return whether a log has data where a batch lies. Rot may have moved it: no checksum covers offsets."""
    is_below = table[:, c.TXN_LAST_OFFSET] < batch[c.TXN_BASE_OFFSET]
    is_above = table[:, c.TXN_BASE_OFFSET] > batch[c.TXN_LAST_OFFSET]
    return not np.all(is_below | is_above)


def _unindexed(replica: Replica, number: int) -> Iterator[WrongTransaction]:
    """Yield the aborted transactions whose data and marker a replica has, but no index entry for them.

    Below the log start nothing is served, and a cleaner may have dropped the marker of what is left there.
    """
    table = replica.transactions
    served = table[(table[:, c.TXN_KIND] == c.DATA) & (table[:, c.TXN_LAST_OFFSET] >= replica.log.log_start_offset)]
    for entry in replica.unindexed_aborts():
        offsets = served[served[:, c.TXN_PRODUCER_ID] == entry.producer_id, c.TXN_BASE_OFFSET]
        if np.any((entry.first_offset <= offsets) & (offsets < entry.last_offset)):
            yield WrongTransaction(
                number, Fault.UNINDEXED, entry.producer_id, entry.first_offset, entry.last_offset, 1 << number, True
            )


# Markers


def _markers_of(tables: Sequence[Table]) -> Table:
    """Return the markers of several replicas, each once, by producer and offset."""
    marker_tables = [table[np.isin(table[:, c.TXN_KIND], (c.ABORT, c.COMMIT))] for table in tables]
    rows = np.unique(np.concatenate(marker_tables), axis=0)
    order = np.lexsort((rows[:, c.TXN_BASE_OFFSET], rows[:, c.TXN_PRODUCER_ID]))
    sorted_rows: Table = rows[order]
    return sorted_rows


def _following(markers: Table, producer_ids: Column, offsets: Column) -> Column:
    """Return for each batch the row of the next marker of its producer, -1 without one."""
    producers = np.concatenate((markers[:, c.TXN_PRODUCER_ID], producer_ids))
    order = np.lexsort((np.concatenate((markers[:, c.TXN_BASE_OFFSET], offsets)), producers))
    places = np.where(order < len(markers), np.arange(len(order)), len(order))
    following = np.append(np.minimum.accumulate(places[::-1])[::-1], len(order))[:-1]
    rows = np.append(order, 0)[following]
    has_one = (following < len(order)) & (producers[rows] == producers[order])
    marker_rows = np.full(len(order), -1, np.int64)
    marker_rows[order] = np.where(has_one, rows, -1)
    return marker_rows[len(markers) :]
