"""The headers of a large log file, read by a compiled loop that hops from one to the next.

The readable definition is `log.headers`; it is also what words the error when this one gives up.
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
    """Return a table of the batches that tile a file between two positions, i64[n, 16], see `kernels`.

    None where they do not, and where one is of magic 0 or 1. Raises RefusedError, StorageError.
    """
    table = np.concatenate(list(header_tables(path, start_position=start_position, end_position=end_position)))
    return table if start_position + int(table[:, kernels.SIZE].sum()) == end_position else None


def header_tables(path: Path, *, start_position: int = 0, end_position: int) -> Iterator[Table]:
    """Yield the same, table by table, up to the first batch that is not as it should be or of magic 0 or 1."""
    scratch = np.empty(64, np.uint8)
    position, code = start_position, FULL
    with open_regular(path) as descriptor:
        while code == FULL:
            table = np.empty((TABLE_ROWS, COLUMNS), np.int64)
            count, position, code = kernels.scan_headers(descriptor, position, end_position, scratch, table)
            yield table[:count]


def header_of_row(row: Table) -> Header:
    """Return the header that a row of the table stands for; its checksum is not known there."""
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
