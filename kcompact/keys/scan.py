"""Stage 1: reads the splits of logs, counts their records by class and collects their keys.

`read_split` is the readable definition, `scan_split` does the same with the kernels. `read_split` also reads the splits
that the kernels reject, and raises the detailed error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kcompact import kernels
from kcompact.clean import stages
from kcompact.clean.job import Split
from kcompact.clean.scan import batches_with_records
from kcompact.errors import CorruptBatchError
from kcompact.format import legacy
from kcompact.format.batch import HEADER_BYTES, Batch, Header, Record, legacy_entries, read_varint
from kcompact.format.codec import Codec, decompress
from kcompact.format.limits import most_inflated_bytes
from kcompact.host.throttle import Pace
from kcompact.kernels import columns as c
from kcompact.keys.job import CountedLog, CountedSplit, KeysJob
from kcompact.keys.rows import RowCollector
from kcompact.log.batch_headers import with_marker
from kcompact.log.transactions import PackedTable, TransactionBatch, find_transactions, of_headers, table_of

if TYPE_CHECKING:
    from kcompact.log.inflate import Buffers


def scan_keys(
    job: KeysJob, splits: Sequence[Split], pace: Pace
) -> Generator[tuple[int, bytes], None, list[CountedSplit]]:
    """Yield (bucket, block of keys) for the splits of a task, whose numbers must rise; return what was counted.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """

    def new_collector(log: int) -> RowCollector:
        return RowCollector(log, columns=job.columns, bucket_bits=job.bucket_bits, limit_bytes=job.table_bytes)

    return stages.scan(
        job,
        splits,
        pace,
        log_of=lambda split: job.log_of(split.number),
        new_collector=new_collector,
        by_kernels=lambda split, collector, buffers: scan_split(job, split, collector, buffers),
        by_definition=lambda split, collector: read_split(job, split, collector),
    )


def read_split(job: KeysJob, split: Split, collector: RowCollector) -> CountedSplit:
    """Add the keys of a split to the collector and return what was counted.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    log = job.logs[job.log_of(split.number)]
    hash_of = hash_function(job)
    aborted = set(split.excluded_from_map.tolist())
    counts = np.zeros((c.RECORD_CLASSES, 2), np.int64)
    rows: list[list[int]] = []
    transactional: list[TransactionBatch] = []
    last_offset = -1
    row = batches = batch_bytes = empty_batches = empty_bytes = announced = 0
    for batch, records in batches_with_records(split, job.memory_bytes):
        header = batch.header
        transactional += of_headers([with_marker(batch, file=str(split.log))])
        last_offset = header.last_offset
        batches += 1
        batch_bytes += header.size_bytes
        empty_batches += not records
        empty_bytes += 0 if records else header.size_bytes
        sizes = _record_sizes(batch, file=str(split.log), memory_bytes=job.memory_bytes)
        is_aborted = header.base_offset in aborted
        for number, (record, size_bytes) in enumerate(zip(records, sizes, strict=True)):
            its_class = class_of(record, header, log, is_aborted=is_aborted)
            counts[its_class] += 1, size_bytes
            if its_class != c.KEYED:
                continue
            assert record.key is not None
            ref = (row + number) << c.KEY_REF_ROW_SHIFT | kind_of(record, header, job.now_ms)
            low, high = hash_of(record.key)
            ref |= split.number << c.KEY_REF_SPLIT_SHIFT
            rows.append([high, low, ref, record.timestamp, size_bytes, 1, size_bytes])
            if job.separator:
                prefix, found, _ = record.key.partition(job.separator)
                rows[-1].append(hash_of(prefix)[0] if found else c.NO_PREFIX)
        row += len(records)
        announced += len(records) if header.records_count < 0 else header.records_count
    collector.add(np.array(rows, np.int64).reshape(-1, job.columns))
    return CountedSplit(
        number=split.number,
        last_offset=last_offset,
        counts=counts,
        announced=announced,
        batches=batches,
        batch_bytes=batch_bytes,
        empty_batches=empty_batches,
        empty_bytes=empty_bytes,
        transactional=PackedTable.of(table_of(transactional)),
    )


def _record_sizes(batch: Batch, *, file: str, memory_bytes: int) -> list[int]:
    """Return the bytes that each record of a batch takes in its uncompressed section.

    They begin with the length of the record, or in a batch of magic 0 or 1 with the offset of the message.
    """
    header = batch.header
    if header.magic < 2:
        return legacy.sizes_of(legacy_entries(batch, file=file, memory_bytes=memory_bytes))
    section = bytes(batch.data[HEADER_BYTES:])
    if header.codec_id and header.records_count:
        max_bytes = most_inflated_bytes(len(section), memory_bytes)
        section = decompress(Codec(header.codec_id), section, max_bytes=max_bytes, file=file, position=batch.position)
    sizes, position = [], 0
    for _ in range(header.records_count):
        length, start = read_varint(section, position)
        sizes.append(start + length - position)
        position = start + length
    return sizes


def class_of(record: Record, header: Header, log: CountedLog, *, is_aborted: bool) -> int:
    """Return the class of a record: what a `read_committed` reader sees of it, and why not."""
    if record.offset >= log.stable_offset:
        return c.UNSTABLE
    if record.offset < log.start_offset:
        return c.BELOW_START
    if header.is_control:  # The key of a marker is not a record key (KAFKA-14055).
        return c.CONTROL
    if is_aborted:
        return c.ABORTED
    return c.UNKEYED if record.key is None else c.KEYED


def kind_of(record: Record, header: Header, now_ms: int) -> int:
    """Return whether a record has a value, and of a tombstone whether its delete horizon has passed."""
    if record.value is not None:
        return c.VALUE
    if header.delete_horizon_ms is None:
        return c.UNSTAMPED
    return c.WAITING if header.delete_horizon_ms > now_ms else c.DUE


def hash_function(job: KeysJob) -> Callable[[bytes], tuple[int, int]]:
    """Return the hash function of keys, as two signed halves, the low one first."""
    digest = stages.key_hash(job)

    def halves(key: bytes) -> tuple[int, int]:
        data = digest(key)
        return int.from_bytes(data[:8], "little", signed=True), int.from_bytes(data[8:], "little", signed=True)

    return halves


def scan_split(job: KeysJob, split: Split, collector: RowCollector, buffers: Buffers) -> CountedSplit | None:
    """Return what `read_split` returns, counted by the kernels, or None if the kernel rejects the split.

    In that case the collector may already have some of the split's keys.
    """
    from kcompact.clean.split_kernels import batch_at, is_possible, load
    from kcompact.log.inflate import inflated_runs

    log = job.logs[job.log_of(split.number)]
    loaded = load(split, buffers)
    if loaded is None:
        return None
    table = loaded.table
    k0, k1 = np.frombuffer(job.hash_key, "<u8")
    separator = np.frombuffer(job.separator, np.uint8)
    counts = np.zeros((c.RECORD_CLASSES, 2), np.int64)
    try:
        for first, end, inflated in inflated_runs(
            loaded.buffer, table, buffers, file=str(split.log), start_position=split.start_position
        ):
            code, entries = c.DAMAGED, 0
            if is_possible(table, first, end):
                records = int(table[end - 1, c.ROW] + table[end - 1, c.RECORDS_COUNT] - table[first, c.ROW])
                entries, code = kernels.scan_keys(
                    loaded.buffer, inflated, table, first, end, log.start_offset, log.stable_offset, job.now_ms,
                    split.number << c.KEY_REF_SPLIT_SHIFT, k0, k1, separator, *collector.reserve(records), counts,
                )  # fmt: skip
            if code != c.DONE:
                return None
            collector.commit(entries)
        transactional = find_transactions(
            loaded.buffer, table, lambda number: with_marker(batch_at(split, loaded, number), file=str(split.log))
        )
    except CorruptBatchError:
        return None
    is_empty = table[:, c.RECORDS_COUNT] == 0
    return CountedSplit(
        number=split.number,
        last_offset=int(table[-1, c.LAST_OFFSET]) if len(table) else -1,
        counts=counts,
        announced=loaded.records,
        batches=len(table),
        batch_bytes=int(table[:, c.SIZE].sum()),
        empty_batches=int(np.count_nonzero(is_empty)),
        empty_bytes=int(table[is_empty, c.SIZE].sum()),
        transactional=PackedTable.of(transactional),
    )
