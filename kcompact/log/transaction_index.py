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

`Transactions` and `contradictions` are the definitions. The kernels follow and judge tables of batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from kcompact import kernels
from kcompact.errors import CorruptTransactionIndexError
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES
from kcompact.format.index import AbortedTxn, AbortedTxnColumns
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile
from kcompact.log.index_files import verify_count
from kcompact.log.transactions import TransactionBatch, rows_of_all

if TYPE_CHECKING:
    from kcompact.kernels import Column, Table

NO_MARKER = -1


class AbortMarker(NamedTuple):
    """An ABORT marker, and what the log has of its transaction.

    `first_batch` is the base offset of the transaction's first batch, None if the log has none. `previous_marker` is
    the offset of the producer's marker before, NO_MARKER if there is none. `last_stable_offset` is the first batch of
    the oldest transaction of another producer that is open at the marker, or else the offset after the marker.
    `first_records` is the base offset of its first batch with records, None if no batch has any.
    """

    producer_id: int
    offset: int
    first_batch: int | None
    previous_marker: int
    last_stable_offset: int
    first_records: int | None


class Transactions:
    """Follows the transactions of a log from batch to batch, in log order.

    `opened` has the first offsets of the transactions that are open before the first batch, by producer and in their
    order, `first_records` those of their first batches with records; `ended` has the offsets of the last markers.
    """

    def __init__(
        self,
        opened: Mapping[int, int] | None = None,
        first_records: Mapping[int, int] | None = None,
        ended: Mapping[int, int] | None = None,
    ) -> None:
        # In the order of the first offsets, because each transaction is added at its first batch.
        self._open: OrderedDict[int, int] = OrderedDict(opened or {})
        self._first_records: dict[int, int] = dict(first_records or {})
        self._ended: dict[int, int] = dict(ended or {})

    @property
    def oldest_open(self) -> int | None:
        """The offset of the first batch of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def abort_markers(self, batches: Iterable[TransactionBatch]) -> Iterator[AbortMarker]:
        """Yield the ABORT markers of the next batches.

        As for a broker, an emptied control batch ends no transaction: its data is gone.
        """
        for base_offset, _, producer_id, kind in batches:
            if producer_id < 0:
                continue
            if kind >= c.EMPTY_DATA:
                self._open.setdefault(producer_id, base_offset)
                if kind == c.DATA:
                    self._first_records.setdefault(producer_id, base_offset)
            elif kind in (c.ABORT, c.COMMIT):
                first_batch, first_records = (each.pop(producer_id, None) for each in (self._open, self._first_records))
                if kind == c.ABORT:
                    yield AbortMarker(
                        producer_id=producer_id,
                        offset=base_offset,
                        first_batch=first_batch,
                        previous_marker=self._ended.get(producer_id, NO_MARKER),
                        last_stable_offset=next(iter(self._open.values()), base_offset + 1),
                        first_records=first_records,
                    )
                self._ended[producer_id] = base_offset


def aborted_by_markers(transactions: Transactions, batches: Iterable[TransactionBatch]) -> tuple[AbortedTxn, ...]:
    """Return the `.txnindex` entries of a segment with these batches, as a broker builds them from the log.

    Rule: `LogSegment.recover`, with a producer state that begins at the first batch of the log.
    """
    return tuple(
        AbortedTxn(
            producer_id=marker.producer_id,
            first_offset=marker.first_batch,
            last_offset=marker.offset,
            last_stable_offset=marker.last_stable_offset,
        )
        for marker in transactions.abort_markers(batches)
        if marker.first_batch is not None
    )


def read_transaction_index(file: LogFile) -> Sequence[AbortedTxn]:
    """Return the entries of a `.txnindex`. Raises CorruptTransactionIndexError, RefusedError, StorageError."""
    data = file.read()
    verify_count(file, len(data), index.TXN_ENTRY_BYTES, batch_bytes=HEADER_BYTES, error=CorruptTransactionIndexError)
    return index.parse_txn_index(data, base_offset=file.base_offset, file=str(file))


class IndexEntry(NamedTuple):
    """An entry, the file of its index and its number there."""

    entry: AbortedTxn
    file: LogFile
    number: int

    def contradiction(self, problem: str) -> CorruptTransactionIndexError:
        return CorruptTransactionIndexError(
            file=str(self.file),
            position=self.number * index.TXN_ENTRY_BYTES,
            offset=self.entry.last_offset,
            problem=f"entry {self.number}: {problem}",
        )


def contradictions(
    transactions: Transactions,
    file: LogFile,
    entries: Sequence[AbortedTxn],
    batches: Iterable[TransactionBatch],
    *,
    log_start_offset: int,
    judged_end: int | None = None,
) -> Iterator[CorruptTransactionIndexError]:
    """Yield how the entries of a segment's `.txnindex` contradict its batches, and those of the segments before.

    `transactions` are those of the batches so far. What lies below the log start is not judged: nobody reads it. A
    transaction without a record needs no entry: Kafka's cleaner may lose that of one that is left with an empty batch.
    An empty batch may also be of a transaction before, the marker of which is gone.
    `batches` may end before the segment does. Then entries whose markers are at or above `judged_end` are left out.
    Rule: `LocalLog.collectAbortedTransactions`.
    """
    placed = (IndexEntry(entry, file, number) for number, entry in enumerate(entries))
    waiting = (each for each in placed if each.entry.last_offset >= log_start_offset)
    current = next(waiting, None)
    visible = (batch for batch in batches if batch.last_offset >= log_start_offset)
    for marker in transactions.abort_markers(visible):
        while current is not None and current.entry.last_offset < marker.offset:
            yield _without_marker(current)
            current = next(waiting, None)
        if current is not None and current.entry.last_offset == marker.offset:
            yield from _compared(current, marker)
            current = next(waiting, None)
        elif marker.first_records is not None:
            yield _without_entry(file, marker)
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
    elif marker.first_records is not None and entry.first_offset > marker.first_records:
        yield placed.contradiction(
            f"first offset {entry.first_offset} is above the transaction's first record, in the batch at "
            f"{marker.first_records}"
        )


def _without_marker(placed: IndexEntry) -> CorruptTransactionIndexError:
    entry = placed.entry
    return placed.contradiction(
        f"there is no ABORT marker of producer {entry.producer_id} at its last offset {entry.last_offset}"
    )


def _without_entry(file: LogFile, marker: AbortMarker) -> CorruptTransactionIndexError:
    return CorruptTransactionIndexError(
        file=str(file),
        offset=marker.offset,
        problem=f"has no entry for the ABORT marker at offset {marker.offset}, which ends a transaction of producer "
        f"{marker.producer_id} with records from offset {marker.first_records} on",
    )


# By the kernels

_ENTRY_COLUMNS = (c.MARKER_PRODUCER_ID, c.MARKER_FIRST_BATCH, c.MARKER_OFFSET, c.MARKER_LAST_STABLE_OFFSET)
"""The columns of a table of ABORT markers that make the entries of a `.txnindex`."""


class ProducerNumbers:
    """Numbers the producers of a log from 0 on, so that their state fits an array."""

    def __init__(self, producer_ids: Iterable[Column]) -> None:
        import numpy as np

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
        import numpy as np

        numbers: Column = np.searchsorted(self._producer_ids, producer_ids)
        return numbers

    def id_of(self, number: int) -> int:
        """Return the id of the producer with a number."""
        return int(self._producer_ids[number])


class CompiledTransactions:
    """Follows the transactions of a log from table to table: the kernel of `Transactions`."""

    def __init__(self, producers: ProducerNumbers, *, start_offset: int = 0) -> None:
        import numpy as np

        self._producers, self._start_offset = producers, start_offset
        self._state = np.full((len(producers) + 1, c.OPEN_COLUMNS), -1, np.int64)
        self._state[-1, [c.OPEN_NEXT, c.OPEN_PREVIOUS]] = len(producers)

    def abort_markers(self, batches: Table) -> Table:
        """Return the ABORT markers of the next batches, with the fields of `AbortMarker`."""
        import numpy as np

        markers = np.empty((np.count_nonzero(batches[:, c.TXN_KIND] == c.ABORT), c.MARKER_COLUMNS), np.int64)
        producers = self._producers.of(batches[:, c.TXN_PRODUCER_ID])
        count, _ = kernels.follow_transactions(batches, producers, self._start_offset, self._state, markers)
        return markers[:count]

    def entries(self, batches: Iterable[Table]) -> AbortedTxnColumns:
        """Return the entries that `aborted_by_markers` returns for the next batches."""
        found = [self.abort_markers(table) for table in batches]
        return AbortedTxnColumns.of(
            *(AbortedTxnColumns(markers[markers[:, c.MARKER_FIRST_BATCH] >= 0][:, _ENTRY_COLUMNS]) for markers in found)
        )

    def as_definition(self) -> Transactions:
        """Return the definition in the same state."""
        import numpy as np

        opened, first_records, ended = {}, {}, np.flatnonzero(self._state[:-1, c.ENDED_AT] >= 0).tolist()
        number = ring = len(self._producers)
        while (number := int(self._state[number, c.OPEN_NEXT])) != ring:
            opened[self._producers.id_of(number)] = int(self._state[number, c.OPEN_FIRST])
            if self._state[number, c.OPEN_FIRST_RECORDS] >= 0:
                first_records[self._producers.id_of(number)] = int(self._state[number, c.OPEN_FIRST_RECORDS])
        return Transactions(
            opened,
            first_records,
            {self._producers.id_of(each): int(self._state[each, c.ENDED_AT]) for each in ended},
        )

    def agree(self, entries: Sequence[AbortedTxn], batches: Iterable[Table]) -> bool:
        """Return whether the entries of the next segment's index agree with its batches.

        The kernel of `contradictions`.
        """
        import numpy as np

        found = [np.empty((0, c.MARKER_COLUMNS), np.int64), *map(self.abort_markers, batches)]
        code = kernels.judge_entries(np.concatenate(found), AbortedTxnColumns.of(entries).table, self._start_offset)
        return bool(code == c.DONE)


# The segments of a log, by the kernels or by the definitions


class SegmentTransactions(NamedTuple):
    """A segment: its `.txnindex`, which may be missing, the entries, and the transactional and control batches."""

    file: LogFile
    entries: Sequence[AbortedTxn]
    batches: Iterable[Table]


def aborted_of_segments(segments: Sequence[Iterable[Table]]) -> tuple[list[Sequence[AbortedTxn]], Transactions]:
    """Return the `.txnindex` entries of consecutive segments by their batches, and the transactions after the last."""
    if kernels.in_use():
        followed = CompiledTransactions(ProducerNumbers.in_tables(chain.from_iterable(segments)))
        return [followed.entries(batches) for batches in segments], followed.as_definition()
    transactions = Transactions()
    return [aborted_by_markers(transactions, rows_of_all(batches)) for batches in segments], transactions


def judged(segments: Sequence[SegmentTransactions], *, log_start_offset: int) -> Transactions:
    """Return the transactions after these segments. Raises CorruptTransactionIndexError for the first contradiction."""
    if kernels.in_use():
        producers = ProducerNumbers.in_tables(chain.from_iterable(each.batches for each in segments))
        compiled = CompiledTransactions(producers, start_offset=log_start_offset)
        if all(compiled.agree(each.entries, each.batches) for each in segments):
            return compiled.as_definition()
    transactions = Transactions()
    for file, entries, batches in segments:
        rows = rows_of_all(batches)
        for problem in contradictions(transactions, file, entries, rows, log_start_offset=log_start_offset):
            raise problem
    return transactions
