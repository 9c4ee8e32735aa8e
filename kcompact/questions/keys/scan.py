"""Stage 1: reads the splits of logs, counts their records by class and collects their keys.

`scan_split` does it with the kernels. `read_split` is the readable definition: it reads the splits that the kernels
reject, with batches of magic 0 or 1 or damage, and raises the detailed error.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from functools import partial

import numpy as np

from kcompact import kernels
from kcompact.clean.scan import batches_with_records
from kcompact.clean.split_kernels import is_possible, load
from kcompact.errors import CorruptBatchError
from kcompact.format import legacy
from kcompact.format.batch import HEADER_BYTES, Batch, Header, Record, legacy_entries, read_varint
from kcompact.format.codec import Codec, decompress
from kcompact.format.limits import most_inflated_bytes
from kcompact.host.throttle import Pace
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import HeaderTable
from kcompact.log.inflate import Buffers, inflated_runs
from kcompact.log.markers import with_marker
from kcompact.log.transactions import TransactionBatch, find_transactions, of_headers, table_of
from kcompact.questions.keys.job import CountedLog, CountedSplit, KeysJob
from kcompact.questions.keys.rows import RowCollector
from kcompact.stages.collector import key_hash, scan
from kcompact.stages.job import Split


def scan_keys(
    job: KeysJob, splits: Sequence[Split], pace: Pace
) -> Generator[tuple[int, bytes], None, list[CountedSplit]]:
    """Yield (bucket, block of keys) for the splits of a task, whose numbers must rise; return what was counted.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """

    def new_collector(log: int) -> RowCollector:
        return RowCollector(
            log,
            columns=job.columns,
            bucket_bits=job.bucket_bits,
            limit_bytes=job.table_bytes,
            most_bytes=job.keys_bytes,
        )

    return scan(
        job,
        splits,
        pace,
        log_of=lambda split: job.log_of(split.number),
        new_collector=new_collector,
        by_kernels=partial(scan_split, job),
        by_definition=partial(read_split, job),
    )


def read_split(job: KeysJob, split: Split, collector: RowCollector) -> CountedSplit:
    """Add the keys of a split to the collector and return what was counted.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    log = job.logs[job.log_of(split.number)]
    hash_of = key_hash(job)
    aborted = set(split.excluded_from_map.tolist())
    counts = np.zeros((c.RECORD_CLASSES, 2), np.int64)
    rows: list[list[int]] = []
    transactional: list[TransactionBatch] = []
    headers = HeaderTable()
    row = 0
    for batch, records in batches_with_records(split, job.memory_bytes):
        header = batch.header
        transactional += of_headers([with_marker(batch, file=str(split.log))])
        # The header of a compressed legacy batch has no number of records.
        counted = header if header.records_count >= 0 else header._replace(records_count=len(records))
        headers.append(batch.position, counted)
        sizes = _record_sizes(batch, file=str(split.log), memory_bytes=job.memory_bytes)
        is_aborted = header.base_offset in aborted
        for number, (record, size_bytes) in enumerate(zip(records, sizes, strict=True)):
            its_class = class_of(record, header, log, is_aborted=is_aborted)
            counts[its_class] += 1, size_bytes
            if its_class != c.KEYED:
                continue
            assert record.key is not None
            ref = (row + number) << c.KEY_REF_ROW_SHIFT | kind_of(record, header, job.now_ms)
            low, high = struct.unpack("<qq", hash_of(record.key))
            ref |= split.number << c.KEY_REF_SPLIT_SHIFT
            rows.append([high, low, ref, record.timestamp, size_bytes, 1, size_bytes])
            if job.separator:
                prefix, separator, _ = record.key.partition(job.separator)
                rows[-1].append(struct.unpack_from("<q", hash_of(prefix))[0] if separator else c.NO_PREFIX)
        row += len(records)
    collector.add(np.array(rows, np.int64).reshape(-1, job.columns))
    return CountedSplit.of(split.number, headers.table(), counts, table_of(transactional))


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


def scan_split(job: KeysJob, split: Split, collector: RowCollector, buffers: Buffers) -> CountedSplit | None:
    """Return what `read_split` returns, counted by the kernels, or None if the kernel rejects the split.

    In that case the collector may already have some of the split's keys.
    """
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
        transactional = find_transactions(loaded, split.log)
    except CorruptBatchError:
        return None
    return CountedSplit.of(split.number, table, counts, transactional)
