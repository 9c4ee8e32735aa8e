"""Reads the keys of a few records that a count has chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

from kcompact import kernels
from kcompact.clean.job import Split
from kcompact.errors import LogChangedError
from kcompact.format.batch import Batch, Record, read_records
from kcompact.kernels import KEY_REF_ROW_SHIFT, KEY_REF_SPLIT_SHIFT, RECORDS_COUNT, ROW
from kcompact.keys.job import KeysJob
from kcompact.log.segment_reader import batches


def read_named(job: KeysJob, splits: Mapping[int, Split], refs: Iterable[int]) -> dict[int, tuple[bytes, int]]:
    """Return the key and the offset of the record of each reference.

    Raises CorruptDataError, LogChangedError, StorageError.
    """
    found = {}
    for number, its_refs in groupby(sorted(set(refs)), key=lambda ref: ref >> KEY_REF_SPLIT_SHIFT):
        split = splits[number]
        wanted = {(ref & (1 << KEY_REF_SPLIT_SHIFT) - 1) >> KEY_REF_ROW_SHIFT: ref for ref in its_refs}
        for row, record in _records(job, split, sorted(wanted)):
            if record.key is None:
                raise LogChangedError(path=split.log_name, problem="has changed while it was read")
            found[wanted[row]] = record.key, record.offset
    return found


def _records(job: KeysJob, split: Split, rows: list[int]) -> Iterator[tuple[int, Record]]:
    """Yield the records of some rows of a split, which ascend."""
    left = iter(rows)
    row: int | None = next(left)
    for first, batch in _batches(job, split, rows):
        if row is None:
            return
        header = batch.header
        if 0 <= header.records_count <= row - first:
            continue
        records = read_records(batch, file=split.log_name, memory_bytes=job.memory_bytes)
        while row is not None and row - first < len(records):
            yield row, records[row - first]
            row = next(left, None)


def _batches(job: KeysJob, split: Split, rows: list[int]) -> Iterator[tuple[int, Batch]]:
    """Yield the batches that hold these rows, or more of them, each with the row of its first record."""
    if kernels.in_use():
        from kcompact.clean import split_kernels
        from kcompact.log.inflate import Buffers

        loaded = split_kernels.load(job, split, Buffers(job.memory_bytes))
        if loaded is not None:
            ends = loaded.table[:, ROW] + loaded.table[:, RECORDS_COUNT]
            for number in np.unique(np.searchsorted(ends, rows, side="right")).tolist():
                yield int(loaded.table[number, ROW]), split_kernels.batch_at(split, loaded, number)
            return
    first = 0
    for batch in batches(
        Path(split.log_name),
        start_position=split.start_position,
        end_position=split.end_position,
        memory_bytes=job.memory_bytes,
        identity=split.file,
    ):
        yield first, batch
        count = batch.header.records_count
        first += count if count >= 0 else len(read_records(batch, file=split.log_name, memory_bytes=job.memory_bytes))
