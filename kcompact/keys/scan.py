"""Stage 1: reads the splits of logs, counts their records by class and collects their keys.

`read_split` is the readable definition. It also reads the splits that the kernels reject, and raises the detailed
error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import numpy as np

from kcompact.clean.job import Split
from kcompact.clean.scan import batches_with_records
from kcompact.clean.splits import ahead
from kcompact.errors import LogChangedError
from kcompact.format.batch import Header, Record
from kcompact.format.encoded_sizes import record_sizes
from kcompact.host.throttle import Pace
from kcompact.kernels import (
    ABORTED,
    BELOW_START,
    CONTROL,
    DUE,
    KEY_REF_ROW_SHIFT,
    KEY_REF_SPLIT_SHIFT,
    KEYED,
    NO_PREFIX,
    RECORD_CLASSES,
    UNKEYED,
    UNSTABLE,
    UNSTAMPED,
    VALUE,
    WAITING,
)
from kcompact.keys.job import CountedLog, CountedSplit, KeysJob, Source
from kcompact.keys.rows import Collector
from kcompact.log.batch_headers import with_marker
from kcompact.log.transactions import PackedTable, TransactionBatch, of_headers, table_of

Reader = Callable[[Source, Split], CountedSplit]


def scan_keys(
    job: KeysJob, splits: Sequence[Split], pace: Pace
) -> Generator[tuple[int, bytes], None, list[CountedSplit]]:
    """Yield (bucket, block of keys) for the splits of a task, whose numbers must rise; return what was counted.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    read = _reader(job)
    counted = []
    source: Source | None = None
    for split in ahead(job, splits):
        number = job.log_of(split.number)
        if source is None or source.log is not job.logs[number]:
            if source is not None:
                yield from source.collector.finish()
            source = Source(job, job.logs[number], _collector(job, number))
        pace.take(split.size_bytes)
        counted.append(read(source, split))
        yield from source.collector.blocks()
        pace.done(split.size_bytes)
    if source is not None:
        yield from source.collector.finish()
    return counted


def _collector(job: KeysJob, log: int) -> Collector:
    return Collector(log, columns=job.columns, bucket_bits=job.bucket_bits, limit_bytes=job.table_bytes)


def _reader(job: KeysJob) -> Reader:
    if not job.kernel_hashes:
        return read_split
    from kcompact.keys import scan_kernels
    from kcompact.log import inflate

    buffers = inflate.Buffers(job.memory_bytes)

    def read(source: Source, split: Split) -> CountedSplit:
        savepoint = source.collector.savepoint()
        counted = scan_kernels.scan_split(source, split, buffers)
        if counted is not None:
            return counted
        if not source.collector.rollback(savepoint):
            # Some keys of the split are already merged or sent. The definition rejects the split and raises the error.
            read_split(source._replace(collector=_collector(job, 0)), split)
            raise LogChangedError(path=split.log_name, problem="has changed while it was read")
        return read_split(source, split)

    return read


def read_split(source: Source, split: Split) -> CountedSplit:
    """Add the keys of a split to the collector and return what was counted.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    job, log, collector = source
    path = Path(split.log_name)
    hash_of = hash_function(job)
    aborted = set(split.excluded_from_map.tolist())
    counts = np.zeros((RECORD_CLASSES, 2), np.int64)
    rows: list[list[int]] = []
    transactional: list[TransactionBatch] = []
    last_offset = -1
    row = batches = batch_bytes = empty_batches = empty_bytes = announced = 0
    for batch, records in batches_with_records(path, split, job.memory_bytes):
        header = batch.header
        transactional += of_headers([with_marker(batch, file=str(path))])
        last_offset = header.last_offset
        batches += 1
        batch_bytes += header.size_bytes
        empty_batches += not records
        empty_bytes += 0 if records else header.size_bytes
        sizes = record_sizes(batch, file=str(path), memory_bytes=job.memory_bytes)
        is_aborted = header.base_offset in aborted
        for number, (record, size_bytes) in enumerate(zip(records, sizes, strict=True)):
            its_class = class_of(record, header, log, is_aborted=is_aborted)
            counts[its_class] += 1, size_bytes
            if its_class != KEYED:
                continue
            assert record.key is not None
            ref = (row + number) << KEY_REF_ROW_SHIFT | kind_of(record, header, job.now_ms)
            low, high = hash_of(record.key)
            ref |= split.number << KEY_REF_SPLIT_SHIFT
            rows.append([high, low, ref, record.timestamp, size_bytes, 1, size_bytes])
            if job.separator:
                prefix, found, _ = record.key.partition(job.separator)
                rows[-1].append(hash_of(prefix)[0] if found else NO_PREFIX)
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


def class_of(record: Record, header: Header, log: CountedLog, *, is_aborted: bool) -> int:
    """Return the class of a record: what a `read_committed` reader sees of it, and why not."""
    if record.offset >= log.stable_offset:
        return UNSTABLE
    if record.offset < log.start_offset:
        return BELOW_START
    if header.is_control:  # The key of a marker is not a record key (KAFKA-14055).
        return CONTROL
    if is_aborted:
        return ABORTED
    return UNKEYED if record.key is None else KEYED


def kind_of(record: Record, header: Header, now_ms: int) -> int:
    """Return whether a record has a value, and of a tombstone whether its delete horizon has passed."""
    if record.value is not None:
        return VALUE
    if header.delete_horizon_ms is None:
        return UNSTAMPED
    return WAITING if header.delete_horizon_ms > now_ms else DUE


def hash_function(job: KeysJob) -> Callable[[bytes], tuple[int, int]]:
    """Return the hash function of keys, as two signed halves, the low one first. It is the same for a whole job."""
    if job.kernel_hashes:
        from kcompact.clean import split_kernels

        def digest(key: bytes) -> bytes:
            return split_kernels.hash_of(key, job.hash_key)

    else:

        def digest(key: bytes) -> bytes:
            return hashlib.blake2b(key, digest_size=16, key=job.hash_key).digest()

    def halves(key: bytes) -> tuple[int, int]:
        data = digest(key)
        return int.from_bytes(data[:8], "little", signed=True), int.from_bytes(data[8:], "little", signed=True)

    return halves
