"""The transactional and the control batches of a log in columns: all that decides about transactions.

A table i64[n, 4] has a row for each of them, in log order; `kernels` names its columns. `TransactionBatch` is one row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcompact.kernels import DATA, EMPTIED
from kcompact.log.batch_headers import BatchHeader, read_headers

if TYPE_CHECKING:
    from kcompact.kernels import Table

_ROWS = 4096


class TransactionBatch(NamedTuple):
    """A transactional or a control batch.

    `kind` is that of its marker, such as `kernels.ABORT`; or DATA, or EMPTIED for a control batch without its record.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    kind: int


def of_headers(batches: Iterable[BatchHeader]) -> Iterator[TransactionBatch]:
    """Yield the transactional and the control batches among these."""
    for _, header, marker in batches:
        if header.is_control:
            kind = EMPTIED if marker is None else marker.kind
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


def rows_of(table: Table) -> Iterator[TransactionBatch]:
    """Yield the rows of a table."""
    for start in range(0, len(table), _ROWS):
        yield from map(TransactionBatch._make, table[start : start + _ROWS].tolist())


def table_of(batches: Iterable[TransactionBatch]) -> Table:
    """Return these batches as a table."""
    import numpy as np

    from kcompact.kernels import TXN_COLUMNS

    return np.array(list(batches), np.int64).reshape(-1, TXN_COLUMNS)
