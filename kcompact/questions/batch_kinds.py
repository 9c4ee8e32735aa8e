"""The batches of a log by codec, by producer and by delete horizon, counted from their headers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kcompact.errors import CorruptDataError, KcompactError, RefusedError
from kcompact.format.batch import CODEC_MASK
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_tables
from kcompact.log.directory import PartitionLog
from kcompact.values import dataclass

_CODEC, _PRODUCER, _HORIZON, _RECORDS, _SIZE = range(5)
_NO_HORIZON = -1

Rows = NDArray[np.int64]
"""i64[n, 5]: a row for each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How many batches are of a kind, their records and their bytes. Added with `+`.

    The records of compressed batches of magic 0 and 1 are not counted.
    """

    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            batches=self.batches + other.batches,
            records=self.records + other.records,
            size_bytes=self.size_bytes + other.size_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKinds:
    """The batches of a log: by number of the codec, by producer id (-1: none), by delete horizon in Unix milliseconds.

    Batches without a delete horizon are not in `horizons`. `damage` has the error at which the counting of a segment
    ended.
    """

    codecs: dict[int, Amount]
    producers: dict[int, Amount]
    horizons: dict[int, Amount]
    damage: tuple[KcompactError, ...] = ()


def count_kinds(log: PartitionLog) -> BatchKinds:
    """Return the batches of a log by their kinds. Raises StorageError. Damage ends the counting of its segment."""
    counts: tuple[dict[int, Amount], ...] = ({}, {}, {})
    damage = []
    for segment in log.segments:
        try:
            for table in header_tables(log.file(segment.log_name), end_position=segment.size_bytes):
                rows = _of_table(table)
                for column, counted in enumerate(counts):
                    _add(counted, rows, column)
        except (CorruptDataError, RefusedError) as problem:
            damage.append(problem)
    codecs, producers, horizons = counts
    horizons.pop(_NO_HORIZON, None)
    return BatchKinds(codecs=codecs, producers=producers, horizons=horizons, damage=tuple(damage))


def _add(counted: dict[int, Amount], rows: Rows, column: int) -> None:
    """Add rows to the amounts by the value of a column."""
    values, numbers = np.unique(rows[:, column], return_inverse=True)
    batches = np.bincount(numbers, minlength=len(values))
    sums = np.zeros((len(values), 2), np.int64)
    np.add.at(sums, numbers, rows[:, [_RECORDS, _SIZE]])
    for value, count, (records, size_bytes) in zip(values.tolist(), batches.tolist(), sums.tolist(), strict=True):
        amount = Amount(batches=count, records=records, size_bytes=size_bytes)
        counted[value] = counted.get(value, Amount()) + amount


def _of_table(table: NDArray[np.int64]) -> Rows:
    attributes = table[:, c.ATTRIBUTES]
    horizons = np.where(attributes & c.DELETE_HORIZON_BIT, table[:, c.BASE_TIMESTAMP], _NO_HORIZON)
    columns = (
        attributes & CODEC_MASK,
        table[:, c.PRODUCER_ID],
        horizons,
        np.maximum(table[:, c.RECORDS_COUNT], 0),
        table[:, c.SIZE],
    )
    return np.stack(columns, axis=1)
