"""The transactions of a log: its transactional and control batches in columns, and how their transactions ended.

A table i64[n, 4] has a row for each of these batches, in log order; `kernels.columns` names its columns.
`TransactionBatch` is one row. `read_transactions` and `of_headers` are the definitions of the kernels that find them.

A transactional batch belongs to the transaction that the next marker of its producer ends. Without one it is open:

    offset   40  41  42  43  44  45  46     data of producers b and x, COMMIT and ABORT markers of b
    batch    b   C   b   b   x   A   b
             committed       |       open: no marker of b follows
                 aborted: 42, 43     open too: x has no marker

Whoever asks how a transaction ended asks `TransactionEnds`. Only the rules of the cleaner itself follow a log from
batch to batch (`transaction_index`, `clean.transactions`), because they depend on the order of what they drop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import IntEnum
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kcompact import kernels
from kcompact.errors import BatchTooLargeError, CorruptBatchError, CorruptDataError, KcompactError, StorageError
from kcompact.format.batch import Batch
from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import new_table
from kcompact.log.files import LogFile
from kcompact.log.markers import BatchHeader, end_transactions, read_headers, read_marker, with_marker
from kcompact.log.past_damage import readable_batches
from kcompact.log.segment_reader import VerifiedRun

if TYPE_CHECKING:
    from kcompact.kernels import Column, Table

_ROWS = 4096
_SCANNED_ROWS = 16_384
_WINDOW_BYTES = 64 << 10


class TransactionBatch(NamedTuple):
    """A transactional or a control batch.

    `kind` is that of its marker, such as `columns.ABORT`; NO_RECORD for a control batch without its record; else DATA,
    or EMPTY_DATA for a batch without records.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    kind: int


def of_headers(batches: Iterable[BatchHeader]) -> Iterator[TransactionBatch]:
    """Yield the transactional and the control batches among these."""
    for batch in batches:
        header = batch.header
        if header.is_control or header.is_transactional:
            yield TransactionBatch(header.base_offset, header.last_offset, header.producer_id, batch.kind)


def read_transactions(file: LogFile, *, end_position: int) -> Iterator[TransactionBatch]:
    """Yield the transactional and the control batches of a log file.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    return of_headers(read_headers(file, end_position=end_position))


def tables_of(batches: Iterable[TransactionBatch]) -> Iterator[Table]:
    """Yield these batches in tables. What comes before an error is yielded before the error is raised."""
    rows: list[TransactionBatch] = []
    try:
        for batch in batches:
            rows.append(batch)
            if len(rows) == _ROWS:
                yield table_of(rows)
                rows.clear()
    except KcompactError:
        yield table_of(rows)
        raise
    yield table_of(rows)


def table_of(batches: Iterable[TransactionBatch]) -> Table:
    """Return these batches as a table."""
    return np.array(list(batches), np.int64).reshape(-1, c.TXN_COLUMNS)


class PackedTable(NamedTuple):
    """A table in as few bytes as its numbers need, about six for each batch.

    The columns are distances between base offsets, distances of last from base offsets, producer ids and kinds; each is
    reduced by its smallest value.
    """

    lowest: tuple[int, ...]
    columns: tuple[NDArray[np.integer], ...]

    @classmethod
    def of(cls, table: Table) -> PackedTable:
        """Pack a table."""
        if not len(table):
            return cls((), ())
        base_offsets, last_offsets, producer_ids, kinds = table.T
        distances = np.diff(base_offsets, prepend=0)
        lowest, columns = [], []
        for column in (distances[1:], last_offsets - base_offsets, producer_ids, kinds):
            low, high = int(column.min(initial=MAX_OFFSET)), int(column.max(initial=-MAX_OFFSET))
            if high - low > MAX_OFFSET:
                low, high = 0, MAX_OFFSET
            lowest.append(low)
            columns.append((column - low).astype(np.int64 if high == MAX_OFFSET else np.min_scalar_type(high - low)))
        return cls((int(base_offsets[0]), *lowest), tuple(columns))

    @property
    def kinds(self) -> NDArray[np.int64]:
        """The kinds of the batches, of which most tables have few."""
        return self.columns[-1].astype(np.int64) + self.lowest[-1] if self.columns else np.empty(0, np.int64)

    @property
    def table(self) -> Table:
        """The table that was packed."""
        if not self.columns:
            return np.empty((0, c.TXN_COLUMNS), np.int64)
        distances, spans, producer_ids, kinds = (
            column.astype(np.int64) + low for column, low in zip(self.columns, self.lowest[1:], strict=True)
        )
        table = np.empty((len(kinds), c.TXN_COLUMNS), np.int64)
        table[:, c.TXN_BASE_OFFSET] = np.cumsum(np.append(self.lowest[0], distances))
        table[:, c.TXN_LAST_OFFSET] = table[:, c.TXN_BASE_OFFSET] + spans
        table[:, c.TXN_PRODUCER_ID], table[:, c.TXN_KIND] = producer_ids, kinds
        return table


class PackedTables:
    """Some tables, one after another. Each is unpacked when it is reached."""

    def __init__(self, packed: Iterable[PackedTable]) -> None:
        self._packed = list(packed)

    @classmethod
    def joined(cls, parts: Iterable[PackedTables]) -> PackedTables:
        """Return the tables of all parts, in order."""
        return cls(chain.from_iterable(part._packed for part in parts))

    def __iter__(self) -> Iterator[Table]:
        return (each.table for each in self._packed)


def read_transaction_tables(file: LogFile, *, end_position: int) -> PackedTables:
    """Return what `read_transactions` yields, read by a kernel unless that finds damage or an old format.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    return PackedTables(
        _scanned_tables(file, end_position)
        or [PackedTable.of(table_of(read_transactions(file, end_position=end_position)))]
    )


def _scanned_tables(file: LogFile, end_position: int) -> list[PackedTable] | None:
    """Return the same by a kernel, None if it cannot read the file. Raises RefusedError, StorageError."""
    scratch, row = np.empty(_WINDOW_BYTES, np.uint8), new_table(0)
    txn_batches = np.empty((_SCANNED_ROWS, c.TXN_COLUMNS), np.int64)
    packed, position, code = [], 0, c.FULL
    with file.open() as opened:
        while code == c.FULL:
            count, position, code = kernels.scan_transactions(
                opened.descriptor_of(position, end_position), position, end_position, scratch, row, txn_batches
            )
            packed.append(PackedTable.of(txn_batches[:count]))
    return packed if code == c.DONE else None


def find_transactions(run: VerifiedRun, file: LogFile) -> Table:
    """Return the transactional and the control batches of a run.

    The run has all the bytes of its batches. The definition reads the control batches that are unusual. Raises
    CorruptBatchError.
    """
    rows = np.flatnonzero(run.table[:, c.ATTRIBUTES] & (c.CONTROL_BIT | c.TRANSACTIONAL_BIT))
    txn_batches = np.empty((len(rows), c.TXN_COLUMNS), np.int64)
    unread = np.empty(0, np.int64)
    if len(rows):
        _, code = kernels.transactional_batches(run.buffer, run.table, txn_batches)
        unread = np.flatnonzero(txn_batches[:, c.TXN_KIND] == c.UNREAD) if code == c.DONE else np.arange(len(rows))
    for number in unread.tolist():
        (txn_batches[number],) = of_headers([with_marker(run.batch(int(rows[number]), file), file=str(file))])
    return txn_batches


class Outcome(IntEnum):
    """How the transaction of a batch ends; NONE: it belongs to no transaction."""

    NONE = 0
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3


class TransactionEnds(NamedTuple):
    """The markers of a log, sorted by producer and offset.

    `place` is `producer * (markers + 1) + rank`: the number of the producer among `producers`, and how many markers of
    the log have smaller offsets.
    """

    producers: Column
    offsets: Column
    places: Column
    outcomes: Column

    @classmethod
    def of_tables(cls, tables: Iterable[Table]) -> TransactionEnds:
        """Return the outcomes from the transactional and control batches of a log."""
        markers = [table[end_transactions(table[:, c.TXN_KIND])] for table in tables]
        all_markers = np.concatenate(markers) if markers else np.empty((0, 4), np.int64)
        all_markers = all_markers[np.argsort(all_markers[:, c.TXN_BASE_OFFSET], kind="stable")]
        producers, number = np.unique(all_markers[:, c.TXN_PRODUCER_ID], return_inverse=True)
        places = number * (len(all_markers) + 1) + np.arange(len(all_markers))
        order = np.argsort(places, kind="stable")
        outcomes = np.where(all_markers[:, c.TXN_KIND] == c.COMMIT, Outcome.COMMITTED, Outcome.ABORTED)
        return cls(producers, all_markers[:, c.TXN_BASE_OFFSET].copy(), places[order], outcomes[order])

    def of(self, table: Table) -> Column:
        """Return the `Outcome` of each batch of a table. A marker has that of its transaction."""
        outcomes = np.full(len(table), Outcome.NONE, np.int64)
        rows = np.flatnonzero(table[:, c.ATTRIBUTES] & c.TRANSACTIONAL_BIT)
        outcomes[rows] = self.of_transactional(table[rows, c.PRODUCER_ID], table[rows, c.BASE_OFFSET])
        return outcomes

    def of_transactional(self, producer_ids: Column, base_offsets: Column) -> Column:
        """Return the `Outcome` of transactional batches, in any order."""
        outcomes = np.full(len(producer_ids), Outcome.OPEN, np.int64)
        number = np.searchsorted(self.producers, producer_ids)
        is_known = number < len(self.producers)
        is_known[is_known] = self.producers[number[is_known]] == producer_ids[is_known]
        rows, number = np.flatnonzero(is_known), number[is_known]
        of_producer = number * (len(self.offsets) + 1)
        at = np.searchsorted(self.places, of_producer + np.searchsorted(self.offsets, base_offsets[rows]))
        is_ended = at < len(self.places)
        is_ended[is_ended] = self.places[at[is_ended]] < of_producer[is_ended] + len(self.offsets) + 1
        outcomes[rows[is_ended]] = self.outcomes[at[is_ended]]
        return outcomes


def read_outcomes(files: Sequence[LogFile]) -> tuple[TransactionEnds, KcompactError | None]:
    """Return how the transactions end whose batches are in these logs, the segments of a partition in their order.

    With them comes the first damage: if a marker is in it, the next one of its producer counts, or none. What is
    readable before and after damage counts. Raises RefusedError, StorageError.
    """
    tables: list[Table] = []
    problem: KcompactError | None = None
    for file in files:
        with file.open() as opened:
            end_position = opened.size_bytes
        file_tables, damage = _readable_tables(file, end_position)
        tables += file_tables
        problem = problem or damage
    return TransactionEnds.of_tables(tables), problem


def readable_transactions(files: Iterable[tuple[LogFile, int]]) -> Table:
    """Return the readable transactional and control batches of log files, each with the size up to which it is read.

    Raises RefusedError, StorageError.
    """
    return np.concatenate([table_of(()), *chain.from_iterable(_readable_tables(*file)[0] for file in files)])


def _readable_tables(file: LogFile, end_position: int) -> tuple[list[Table], KcompactError | None]:
    """Return the tables of a log file, and its damage: then what is readable before and after it."""
    try:
        return list(read_transaction_tables(file, end_position=end_position)), None
    except (CorruptDataError, StorageError) as problem:
        return [table_of(of_headers(_readable_headers(file, end_position)))], problem


def _readable_headers(file: LogFile, end_position: int) -> Iterator[BatchHeader]:
    for part in readable_batches(file, end_position=end_position):
        if isinstance(part, Batch):
            with suppress(CorruptBatchError, BatchTooLargeError):
                marker = read_marker(part, file=str(file)) if part.header.is_control else None
                yield BatchHeader(part.position, part.header, marker)
