"""Stage 1: reads the splits of the log and collects the keys of their records.

The scan verifies every batch, every record and every entry of the offset index. `read_split` is the readable
definition. It also reads the splits that the kernels reject, and raises the detailed error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kcompact.clean import split_kernels
from kcompact.clean.growth import most_bytes
from kcompact.clean.job import CleanJob, SplitSummary
from kcompact.clean.offset_map import IN_MAP, SPLIT_SHIFT, KeyCollector, Reduced, reduce_bucket
from kcompact.errors import CorruptBatchError
from kcompact.format.batch import Batch, Record, read_records
from kcompact.format.block import Keys
from kcompact.host.throttle import Pace
from kcompact.log.batch_headers import HeaderTable
from kcompact.log.inflate import Buffers
from kcompact.log.markers import with_marker
from kcompact.log.segment_reader import verified_batches
from kcompact.log.transactions import PackedTable, TransactionBatch, of_headers, table_of
from kcompact.stages.collector import key_hash, scan
from kcompact.stages.executor import Stages
from kcompact.stages.job import Split
from kcompact.stages.splits import wrong_index


class Scanned(NamedTuple):
    """A scanned split, its survivor bits (`offset_map.Survivors`) and its summary.

    `superseded` is the number of its records whose bit is clear because the same task has found a newer record.
    """

    split: Split
    survivors: bytes
    summary: SplitSummary
    superseded: int


def scan_splits(
    job: CleanJob, splits: Sequence[Split], pace: Pace
) -> Generator[tuple[int, bytes], None, list[Scanned]]:
    """Yield (bucket, block of keys) for the splits of a task, whose numbers must rise; return the scanned splits.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    collectors: list[KeyCollector] = []

    def new_collector(_: int) -> KeyCollector:
        collectors.append(KeyCollector(job.bucket_count, job.keys_bytes))
        return collectors[-1]

    def by_kernels(split: Split, collector: KeyCollector, buffers: Buffers) -> SplitSummary | None:
        return split_kernels.scan_split(job, split, collector, buffers)

    summaries = yield from scan(
        job,
        splits,
        pace,
        log_of=lambda split: 0,
        new_collector=new_collector,
        by_kernels=by_kernels,
        by_definition=lambda split, collector: read_split(job, split, collector),
    )
    return [
        Scanned(split, survivors.bitmaps[split.number].tobytes(), summary, survivors.cleared[split.number])
        for survivors in [each.survivors for each in collectors[:1]]
        for split, summary in zip(splits, summaries, strict=True)
    ]


CLEANING: Stages[CleanJob, Scanned, Reduced] = Stages(scan_splits, reduce_bucket)
"""The first two stages of a cleaning."""


def read_split(job: CleanJob, split: Split, collector: KeyCollector) -> SplitSummary:
    """Add the keys of a split to the collector and return the summary of the split.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    hash_of = key_hash(job)
    hashes: list[bytes] = []
    record_refs: list[int] = []
    headers = HeaderTable()
    transactional: list[TransactionBatch] = []
    excluded_from_map = set(split.excluded_from_map.tolist())
    row = announced = unkeyed = tombstones = control = most = 0
    for batch, records in batches_with_records(split, job.memory_bytes):
        header = batch.header
        headers.append(batch.position - split.start_position, header)
        transactional += of_headers([with_marker(batch, file=str(split.log))])
        most += most_bytes(batch, records)
        if header.is_control:  # The key of a marker is not a record key (KAFKA-14055).
            control += len(records)
        else:
            is_excluded_from_map = header.base_offset in excluded_from_map
            for number, record in enumerate(records):
                if record.key is None:
                    unkeyed += 1
                else:
                    tombstones += record.value is None
                    in_map = IN_MAP if record.offset >= job.first_dirty_offset and not is_excluded_from_map else 0
                    hashes.append(hash_of(record.key))
                    record_refs.append(split.number << SPLIT_SHIFT | row + number << 1 | in_map)
        row += len(records)
        # The header of a compressed legacy batch has no number of records.
        announced += len(records) if header.records_count < 0 else header.records_count
    table = headers.table()
    if (wrong := wrong_index(split, table)) is not None:
        raise wrong
    halves = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)
    collector.add(split.number, row, Keys(halves[:, 1].copy(), halves[:, 0].copy(), np.array(record_refs, np.int64)))
    counts = (announced, len(record_refs), unkeyed, tombstones, control)
    return SplitSummary.of(counts, table, PackedTable.of(table_of(transactional)), most)


def batches_with_records(split: Split, memory_bytes: int) -> Iterator[tuple[Batch, list[Record]]]:
    """Yield the batches of a split, verified, with their records. Raises as `read_split`."""
    previous_offset = -1
    for batch in verified_batches(
        split.log,
        base_offset=split.base_offset,
        end_offset=split.end_offset,
        start_position=split.start_position,
        end_position=split.end_position,
        identity=split.identity,
        memory_bytes=memory_bytes,
    ):
        records = read_records(batch, file=str(split.log), memory_bytes=memory_bytes)
        # A legacy header stores only the last offset, so `verified_batches` cannot compare the first one.
        if batch.header.magic < 2 and records[0].offset <= previous_offset:
            raise CorruptBatchError(
                file=str(split.log),
                position=batch.position,
                offset=records[0].offset,
                problem=f"begins with offset {records[0].offset} after offset {previous_offset}",
            )
        previous_offset = batch.header.last_offset
        yield batch, records
