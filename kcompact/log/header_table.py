"""The batch headers of a large log file as a table, read by a kernel.

The definition is `segment_reader.headers`. On failure the caller reads the file again with the definition, which raises
the detailed error.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kcompact import kernels
from kcompact.format.batch import Header
from kcompact.kernels import COLUMNS, FULL, Table
from kcompact.log.files import open_regular

TABLE_ROWS = 16_384


def read_header_table(path: Path, *, start_position: int = 0, end_position: int) -> Table | None:
    """Return the batches between two positions of a file as a table i64[n, COLUMNS]; `kernels` names the columns.

    Returns None when the batches do not end exactly at `end_position`, and for a batch of format 0 or 1.
    Raises RefusedError, StorageError.
    """
    table = np.concatenate(list(header_tables(path, start_position=start_position, end_position=end_position)))
    return table if start_position + int(table[:, kernels.SIZE].sum()) == end_position else None


def header_tables(path: Path, *, start_position: int = 0, end_position: int) -> Iterator[Table]:
    """Yield the batches as tables of at most TABLE_ROWS rows.

    Stops without an error at the first malformed batch or batch of format 0 or 1. Raises RefusedError, StorageError.
    """
    scratch = np.empty(64, np.uint8)
    position, code = start_position, FULL
    with open_regular(path) as descriptor:
        while code == FULL:
            table = np.empty((TABLE_ROWS, COLUMNS), np.int64)
            count, position, code = kernels.scan_headers(descriptor, position, end_position, scratch, table)
            yield table[:count]


def header_of_row(row: Table) -> Header:
    """Return the header of a row. The table has no checksum column, so `crc` is 0."""
    values = row.tolist()
    base_offset, last_offset = values[kernels.BASE_OFFSET], values[kernels.LAST_OFFSET]
    return Header(
        base_offset=base_offset,
        length=values[kernels.SIZE] - 12,
        partition_leader_epoch=values[kernels.EPOCH],
        magic=2,
        crc=0,
        attributes=values[kernels.ATTRIBUTES],
        last_offset_delta=last_offset - base_offset,
        base_timestamp=values[kernels.BASE_TIMESTAMP],
        max_timestamp=values[kernels.MAX_TIMESTAMP],
        producer_id=values[kernels.PRODUCER_ID],
        producer_epoch=values[kernels.PRODUCER_EPOCH],
        base_sequence=values[kernels.BASE_SEQUENCE],
        records_count=values[kernels.RECORDS_COUNT],
    )
