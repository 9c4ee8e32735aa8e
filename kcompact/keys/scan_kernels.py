"""Counts whole splits with the kernels. Definition: `keys.scan.read_split`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kcompact import kernels
from kcompact.clean.job import Split
from kcompact.clean.split_kernels import batch_at, is_possible, load
from kcompact.errors import CorruptBatchError
from kcompact.kernels import DAMAGED, DONE, KEY_REF_SPLIT_SHIFT, LAST_OFFSET, RECORD_CLASSES, RECORDS_COUNT, ROW, SIZE
from kcompact.keys.job import CountedSplit, Source
from kcompact.log.batch_headers import with_marker
from kcompact.log.inflate import Buffers, inflated_runs
from kcompact.log.transactions import PackedTable, find_transactions


def scan_split(source: Source, split: Split, buffers: Buffers) -> CountedSplit | None:
    """Return what `scan.read_split` returns, or None if the kernel rejects the split.

    In that case the collector may already have some of the split's keys.
    """
    job, log, collector = source
    loaded = load(job, split, buffers)
    if loaded is None:
        return None
    table = loaded.table
    k0, k1 = np.frombuffer(job.hash_key, "<u8")
    separator = np.frombuffer(job.separator, np.uint8)
    counts = np.zeros((RECORD_CLASSES, 2), np.int64)
    path = Path(split.log_name)
    try:
        for first, end, inflated in inflated_runs(
            loaded.buffer, table, buffers, file=path, start_position=split.start_position
        ):
            code, entries = DAMAGED, 0
            if is_possible(table, first, end):
                records = int(table[end - 1, ROW] + table[end - 1, RECORDS_COUNT] - table[first, ROW])
                entries, code = kernels.scan_keys(
                    loaded.buffer, inflated, table, first, end, log.start_offset, log.stable_offset, job.now_ms,
                    split.number << KEY_REF_SPLIT_SHIFT, k0, k1, separator, collector.reserve(records), counts,
                )  # fmt: skip
            if code != DONE:
                return None
            collector.commit(entries)
        transactional = find_transactions(
            loaded.buffer, table, lambda number: with_marker(batch_at(split, loaded, number), file=split.log_name)
        )
    except CorruptBatchError:
        return None
    is_empty = table[:, RECORDS_COUNT] == 0
    return CountedSplit(
        number=split.number,
        last_offset=int(table[-1, LAST_OFFSET]) if len(table) else -1,
        counts=counts,
        announced=loaded.records,
        batches=len(table),
        batch_bytes=int(table[:, SIZE].sum()),
        empty_batches=int(np.count_nonzero(is_empty)),
        empty_bytes=int(table[is_empty, SIZE].sum()),
        transactional=PackedTable.of(transactional),
    )
