"""The headers of a log in tables, before and after damage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from kcompact.errors import CorruptDataError, StorageError
from kcompact.format.batch import Batch, Header
from kcompact.kernels import Table
from kcompact.kernels import columns as c
from kcompact.log.batch_runs import TABLE_ROWS, tables_and_headers
from kcompact.log.files import LogFile
from kcompact.log.past_damage import readable_batches


def header_tables(files: Iterable[tuple[LogFile, int]]) -> Iterator[Table]:
    """Yield tables i64[n, COLUMNS] of the readable batches of log files, each with the size up to which it is read.

    Only offsets, epochs, attributes and producers are filled in for batches that no kernel has read. Raises
    RefusedError, StorageError.
    """
    for file, end_position in files:
        headers: list[Header] = []
        position, last_offset = 0, -1
        try:
            for part in tables_and_headers(file, end_position=end_position):
                if isinstance(part, tuple):
                    start, header = part
                    headers.append(header)
                    position, last_offset = start + header.size_bytes, header.last_offset
                    if len(headers) == TABLE_ROWS:
                        yield _table_of(headers)
                        headers = []
                else:
                    yield part
                    position, last_offset = int(part[-1, c.POSITION] + part[-1, c.SIZE]), int(part[-1, c.LAST_OFFSET])
        except (CorruptDataError, StorageError):
            rest = readable_batches(file, start_position=position, after_offset=last_offset, end_position=end_position)
            headers += [each.header for each in rest if isinstance(each, Batch)]
        if headers:
            yield _table_of(headers)


def _table_of(headers: Iterable[Header]) -> Table:
    rows = [
        (
            *(header.base_offset, header.last_offset, header.partition_leader_epoch),
            *(header.attributes, header.producer_id, header.producer_epoch),
        )
        for header in headers
    ]
    table = np.zeros((len(rows), c.COLUMNS), np.int64)
    columns = [c.BASE_OFFSET, c.LAST_OFFSET, c.EPOCH, c.ATTRIBUTES, c.PRODUCER_ID, c.PRODUCER_EPOCH]
    table[:, columns] = np.array(rows, np.int64)
    return table
