"""The aborted transactions of a log: what its markers say, and where a `.txnindex` says something else.

The batches between two markers of a producer belong to the transaction that the second marker ends. An entry of a
`.txnindex` repeats this for an ABORT marker, without a checksum. One wrong bit in an entry makes a cleaning drop
committed records, and a missing entry makes aborted records count as committed. Markers are in the log, under its
checksums, so they decide:

    offset   40  41  42  43  44  45         first batch of the transaction   42
    batch    a   C   b   b   x   A          previous marker of the producer  41
             '--'    '----------'           entry of the ABORT marker at 45: 41 < first offset <= 42, last offset 45

A cleaning drops the data of an aborted transaction first, and its entry and marker later. So a marker without a batch
of its transaction may have an entry. Rules: `ProducerAppendInfo.appendEndTxnMarker`, `LogSegment.updateProducerState`,
`CleanedTransactionMetadata.onControlBatchRead`.

A last stable offset proves nothing and decides nothing: that of a follower's entry may lie behind later transactions
of the same fetch, or behind the end of a log that was truncated since (`UnifiedLog.append`,
`TransactionIndex.truncateTo`).

`Transactions` follows tables of batches by a kernel. Another kernel compares entries and markers; where it finds a
contradiction, `contradictions` finds the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kcompact import kernels
from kcompact.errors import CorruptTransactionIndexError
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.index_files import verify_count

if TYPE_CHECKING:
    from kcompact.kernels import Column, Table

_ENTRY_COLUMNS = (c.MARKER_PRODUCER_ID, c.MARKER_FIRST_BATCH, c.MARKER_OFFSET, c.MARKER_LAST_STABLE_OFFSET)
"""The columns of a table of ABORT markers that make the entries of a `.txnindex`."""


class AbortMarker(NamedTuple):
    """An ABORT marker, and what the log has of its transaction: a row of a table of markers, -1 for none.

    `first_batch` is the base offset of the transaction's first batch, `first_records` that of its first batch with
    records. `previous_marker` is the offset of the producer's marker before. `last_stable_offset` is the first batch of
    the oldest transaction of another producer that is open at the marker, or else the offset after the marker.
    """

    producer_id: int
    offset: int
    first_batch: int
    previous_marker: int
    last_stable_offset: int
    first_records: int


class ProducerStates:
    """A row of numbers for each producer of a log, added when the producer first comes. Row 0 is of no producer."""

    def __init__(self, *initial: int) -> None:
        self._initial = initial
        self._numbers: dict[int, int] = {}
        self.rows: Table = np.full((8, len(initial)), initial, np.int64)

    def numbers_of(self, producer_ids: Column) -> Column:
        """Return the numbers of the rows of these producers."""
        # Without repeats there is little to sort: most batches follow one of the same producer.
        starts = np.flatnonzero(np.diff(producer_ids, prepend=producer_ids[:1] - 1))
        distinct_ids, places = np.unique(producer_ids[starts], return_inverse=True)
        numbers = [self._numbers.setdefault(each, len(self._numbers) + 1) for each in distinct_ids.tolist()]
        if len(self._numbers) >= len(self.rows):
            grown = np.full((2 * len(self._numbers), len(self._initial)), self._initial, np.int64)
            grown[: len(self.rows)] = self.rows
            self.rows = grown
        return np.repeat(np.array(numbers, np.int64)[places], np.diff(starts, append=len(producer_ids)))

    def producer_ids(self, numbers: Column) -> set[int]:
        """Return the producers with these rows."""
        wanted = set(numbers.tolist())
        return {producer_id for producer_id, number in self._numbers.items() if number in wanted}


class Transactions:
    """Follows the transactions of a log from table to table, in log order.

    Batches that end below `start_offset` are passed over. As for a broker, an emptied control batch ends no
    transaction: its data is gone.
    """

    def __init__(self, *, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self._states = ProducerStates(*[-1] * c.OPEN_COLUMNS)
        self._states.rows[0, [c.OPEN_NEXT, c.OPEN_PREVIOUS]] = 0

    def abort_markers(self, batches: Table) -> Table:
        """Return the ABORT markers of the next batches, with the fields of `AbortMarker` as columns."""
        markers = np.empty((np.count_nonzero(batches[:, c.TXN_KIND] == c.ABORT), c.MARKER_COLUMNS), np.int64)
        producers = self._states.numbers_of(batches[:, c.TXN_PRODUCER_ID])
        count, _ = kernels.follow_transactions(batches, producers, self.start_offset, self._states.rows, markers)
        return markers[:count]

    def entries(self, batches: Iterable[Table]) -> AbortedTxnColumns:
        """Return the `.txnindex` entries of the next segment, as a broker builds them from the log.

        Rule: `LogSegment.recover`, with a producer state that begins at the first batch of the log.
        """
        marker_tables = map(self.abort_markers, batches)
        return AbortedTxnColumns.of(
            *(
                AbortedTxnColumns(markers[markers[:, c.MARKER_FIRST_BATCH] >= 0][:, _ENTRY_COLUMNS])
                for markers in marker_tables
            )
        )

    def open_below(self, offset: int) -> set[int]:
        """Return the producers whose open transactions begin below an offset."""
        first_offsets = self._states.rows[:, c.OPEN_FIRST]
        return self._states.producer_ids(np.flatnonzero((first_offsets >= 0) & (first_offsets < offset)))


def read_transaction_index(file: LogFile) -> AbortedTxnColumns:
    """Return the entries of a `.txnindex`. Raises CorruptTransactionIndexError, RefusedError, StorageError."""
    data = file.read()
    verify_count(file, len(data), index.TXN_ENTRY_BYTES, batch_bytes=HEADER_BYTES, error=CorruptTransactionIndexError)
    return index.parse_txn_index(data, base_offset=file.base_offset, file=str(file))


def contradictions(
    transactions: Transactions,
    file: LogFile,
    entries: Sequence[AbortedTxn],
    batches: Iterable[Table],
    *,
    judged_end: int | None = None,
) -> Iterator[CorruptTransactionIndexError]:
    """Yield how the entries of a segment's `.txnindex` contradict its batches, and those of the segments before.

    `transactions` are those of the batches so far. What lies below their start is not judged: nobody reads it. A
    transaction without a record needs no entry: Kafka's cleaner may lose that of one that is left with an empty batch.
    An empty batch may also be of a transaction before, the marker of which is gone.
    `batches` may end before the segment does. Then entries whose markers are at or above `judged_end` are left out.
    Rule: `LocalLog.collectAbortedTransactions`.
    """
    columns = AbortedTxnColumns.of(entries)
    last_offsets, first = columns.table[:, c.ENTRY_LAST_OFFSET], 0

    def judged(markers: Table, end: int) -> Iterator[CorruptTransactionIndexError]:
        if kernels.judge_entries(markers, columns.table[first:end], transactions.start_offset) != c.DONE:
            numbered = enumerate(columns[first:end], first)
            visible = (each for each in numbered if each[1].last_offset >= transactions.start_offset)
            yield from _in_words(file, map(AbortMarker._make, markers.tolist()), visible)

    for table in batches:
        markers = transactions.abort_markers(table)
        # The entries up to the last marker. That of a later one may still come.
        last_marker = markers[:, c.MARKER_OFFSET].max(initial=-1)
        end = max(first, int(last_offsets.searchsorted(last_marker, side="right")))
        yield from judged(markers, end)
        first = end
    end = len(columns) if judged_end is None else int(last_offsets.searchsorted(judged_end))
    yield from judged(np.empty((0, c.MARKER_COLUMNS), np.int64), end)


def _in_words(
    file: LogFile, markers: Iterable[AbortMarker], entries: Iterator[tuple[int, AbortedTxn]]
) -> Iterator[CorruptTransactionIndexError]:
    """Yield how entries, with their numbers in the index, contradict ABORT markers."""

    def of_entry(number: int, entry: AbortedTxn, problem: str) -> CorruptTransactionIndexError:
        return CorruptTransactionIndexError(
            file=str(file),
            position=number * index.TXN_ENTRY_BYTES,
            offset=entry.last_offset,
            problem=f"entry {number}: {problem}",
        )

    def without_marker(number: int, entry: AbortedTxn) -> CorruptTransactionIndexError:
        problem = f"there is no ABORT marker of producer {entry.producer_id} at its last offset {entry.last_offset}"
        return of_entry(number, entry, problem)

    current = next(entries, None)
    for marker in markers:
        while current is not None and current[1].last_offset < marker.offset:
            yield without_marker(*current)
            current = next(entries, None)
        if current is not None and current[1].last_offset == marker.offset:
            if problem := _difference(current[1], marker):
                yield of_entry(*current, problem)
            current = next(entries, None)
        elif marker.first_records >= 0:
            yield CorruptTransactionIndexError(
                file=str(file),
                offset=marker.offset,
                problem=f"has no entry for the ABORT marker at offset {marker.offset}, which ends a transaction of "
                f"producer {marker.producer_id} with records from offset {marker.first_records} on",
            )
    while current is not None:
        yield without_marker(*current)
        current = next(entries, None)


def _difference(entry: AbortedTxn, marker: AbortMarker) -> str:
    """Return how an entry contradicts the marker at its last offset, nothing if it does not."""
    if entry.producer_id != marker.producer_id:
        return (
            f"is of producer {entry.producer_id}, but the ABORT marker at offset {marker.offset} is of producer "
            f"{marker.producer_id}"
        )
    if entry.first_offset <= marker.previous_marker:
        return (
            f"first offset {entry.first_offset} is not above the marker at offset {marker.previous_marker}, "
            f"which ended the transaction before of producer {entry.producer_id}"
        )
    if -1 < marker.first_records < entry.first_offset:
        return (
            f"first offset {entry.first_offset} is above the transaction's first record, in the batch at "
            f"{marker.first_records}"
        )
    return ""
