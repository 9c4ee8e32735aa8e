"""The transactional and the control batches of a log in columns: all that decides about transactions.

A table i64[n, 4] has a row for each of them, in log order; `kernels` names its columns. `TransactionBatch` is one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcompact.format.names import MAX_OFFSET
from kcompact.kernels import DATA, NO_RECORD
from kcompact.log.batch_headers import BatchHeader, read_headers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from kcompact.kernels import Table

_ROWS = 4096


class TransactionBatch(NamedTuple):
    """A transactional or a control batch.

    `kind` is that of its marker, such as `kernels.ABORT`; or DATA, or NO_RECORD for a control batch without its record.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    kind: int


def of_headers(batches: Iterable[BatchHeader]) -> Iterator[TransactionBatch]:
    """Yield the transactional and the control batches among these."""
    for _, header, marker in batches:
        if header.is_control:
            kind = NO_RECORD if marker is None else marker.kind
        elif header.is_transactional:
            kind = DATA
        else:
            continue
        yield TransactionBatch(header.base_offset, header.last_offset, header.producer_id, kind)


def read_transactions(path: Path, *, end_position: int) -> Iterator[TransactionBatch]:
    """Yield the transactional and the control batches of a log file.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    return of_headers(read_headers(path, end_position=end_position))


def rows_of_all(tables: Iterable[Table]) -> Iterator[TransactionBatch]:
    """Yield the rows of several tables."""
    return chain.from_iterable(map(rows_of, tables))


def rows_of(table: Table) -> Iterator[TransactionBatch]:
    """Yield the rows of a table."""
    for start in range(0, len(table), _ROWS):
        yield from map(TransactionBatch._make, table[start : start + _ROWS].tolist())


def table_of(batches: Iterable[TransactionBatch]) -> Table:
    """Return these batches as a table."""
    import numpy as np

    from kcompact.kernels import TXN_COLUMNS

    return np.array(list(batches), np.int64).reshape(-1, TXN_COLUMNS)


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
        import numpy as np

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
    def table(self) -> Table:
        """The table that was packed."""
        import numpy as np

        from kcompact.kernels import TXN_BASE_OFFSET, TXN_COLUMNS, TXN_KIND, TXN_LAST_OFFSET, TXN_PRODUCER_ID

        if not self.columns:
            return np.empty((0, TXN_COLUMNS), np.int64)
        distances, spans, producer_ids, kinds = (
            column.astype(np.int64) + low for column, low in zip(self.columns, self.lowest[1:], strict=True)
        )
        table = np.empty((len(kinds), TXN_COLUMNS), np.int64)
        table[:, TXN_BASE_OFFSET] = np.cumsum(np.append(self.lowest[0], distances))
        table[:, TXN_LAST_OFFSET] = table[:, TXN_BASE_OFFSET] + spans
        table[:, TXN_PRODUCER_ID], table[:, TXN_KIND] = producer_ids, kinds
        return table


class PackedTables:
    """Some tables, one after another. Each is unpacked when it is reached."""

    def __init__(self, packed: Iterable[PackedTable]) -> None:
        self._packed = list(packed)

    def __iter__(self) -> Iterator[Table]:
        return (each.table for each in self._packed)
