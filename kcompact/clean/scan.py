"""The first stage: a split of the log to the keys of its records.

Verifies every batch, every record and every entry of the offset index on the way. `read_split` is the readable
definition; where the kernels do the work, it is for what they do not know, and words the errors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kcompact.clean.job import CleanJob, Split, SplitSummary
from kcompact.clean.offset_map import IN_MAP, SPLIT_SHIFT, Collector
from kcompact.errors import CorruptBatchError, CorruptIndexError, LogChangedError
from kcompact.format import index
from kcompact.format.batch import read_records
from kcompact.format.block import Keys
from kcompact.format.names import Suffix
from kcompact.host.throttle import Pace
from kcompact.log.batch_headers import BatchHeader, read_marker
from kcompact.log.files import read_file
from kcompact.log.segment_reader import verified_batches


class Scanned(NamedTuple):
    """A split that has been scanned: the bits of its records (see `keymap.Survivors`), and what else was seen of it."""

    split: Split
    survivors: bytes
    summary: SplitSummary


def scan_splits(
    job: CleanJob, splits: Iterable[Split], pace: Pace
) -> Generator[tuple[int, bytes], None, list[Scanned]]:
    """Yield (bucket, block of keys) for the splits of a task, which come in the order of their numbers.

    Returns what it saw of each split. Raises CorruptDataError, UnsupportedError, StorageError.
    """
    collector = Collector(job.bucket_count, job.keys_bytes, compiled=job.compiled)
    read = _reader(job)
    seen = []
    for split in splits:
        pace.take(split.size_bytes)
        seen.append((split, read(split, collector)))
        yield from collector.blocks()
        pace.done(split.size_bytes)
    yield from collector.finish()
    bitmaps = collector.survivors.bitmaps
    return [Scanned(split, bitmaps[split.number].tobytes(), own) for split, own in seen]


def _reader(job: CleanJob) -> Callable[[Split, Collector], SplitSummary]:
    if not job.compiled:
        return lambda split, collector: read_split(job, split, collector)
    from kcompact.clean import split_kernels
    from kcompact.log import inflate

    buffers = inflate.Buffers()

    def read(split: Split, collector: Collector) -> SplitSummary:
        begin = collector.savepoint()
        found = split_kernels.scan_split(job, split, collector, buffers)
        if found is not None:
            return found
        if not collector.rollback(begin):
            # Too late to read it anew; but what the kernels refuse, the definition refuses too, and says why.
            read_split(job, split, Collector(1, split.size_bytes, compiled=True))
            raise LogChangedError(path=split.log_name, problem="has changed while it was read")
        return read_split(job, split, collector)

    return read


def read_split(job: CleanJob, split: Split, collector: Collector) -> SplitSummary:
    """Hand the keys of a split to the collector. Raises CorruptDataError, UnsupportedError, StorageError."""
    path = Path(job.directory) / split.log_name
    hash_of = _hash_function(job)
    hashes: list[bytes] = []
    record_refs: list[int] = []
    ends: dict[int, int] = {}
    records_before = unkeyed_or_tombstones = 0
    next_offset = split.base_offset
    transactional: list[BatchHeader] = []
    max_timestamp, previous_offset = -1, -1
    epochs: list[int] = []
    for batch in verified_batches(
        path,
        base_offset=split.base_offset,
        end_offset=split.end_offset,
        start_position=split.start_position,
        end_position=split.end_position,
    ):
        header = batch.header
        ends[batch.position] = header.last_offset
        max_timestamp = max(max_timestamp, header.max_timestamp)
        if header.partition_leader_epoch >= 0:
            epochs = [*epochs[:1], header.partition_leader_epoch]
        records = read_records(batch, file=str(path))
        next_offset = header.next_offset
        if header.is_control or header.is_transactional:
            marker = read_marker(batch, file=str(path)) if header.is_control else None
            transactional.append(BatchHeader(batch.position, header, marker))
        if header.magic < 2 and records[0].offset <= previous_offset:
            # Its header tells only where it ends; `verified_batches` could not see this.
            raise CorruptBatchError(
                file=path,
                position=batch.position,
                offset=records[0].offset,
                problem=f"begins with offset {records[0].offset} after offset {previous_offset}",
            )
        previous_offset = header.last_offset
        rows = range(records_before, records_before + len(records))
        records_before += len(records)
        if header.is_control:
            continue  # The keys of markers look like keys and are none (KAFKA-14055).
        is_excluded_from_map = header.base_offset in split.excluded_from_map
        for row, record in zip(rows, records, strict=True):
            unkeyed_or_tombstones += record.key is None or record.value is None
            if record.key is not None:
                in_map = IN_MAP if record.offset >= job.first_dirty_offset and not is_excluded_from_map else 0
                hashes.append(hash_of(record.key))
                record_refs.append(split.number << SPLIT_SHIFT | row << 1 | in_map)
    _verify_offset_index(path, split, ends)
    halves = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)
    keys = Keys(halves[:, 1].copy(), halves[:, 0].copy(), np.array(record_refs, np.int64))
    first_epoch, last_epoch = (epochs[0], epochs[-1]) if epochs else (-1, -1)
    collector.add(split.number, records_before, keys)
    return SplitSummary(
        records=records_before,
        unkeyed_or_tombstones=unkeyed_or_tombstones,
        max_timestamp=max_timestamp,
        first_epoch=first_epoch,
        last_epoch=last_epoch,
        next_offset=next_offset,
        transactional=tuple(transactional),
    )


def _hash_function(job: CleanJob) -> Callable[[bytes], bytes]:
    """Return the hash of keys, the same for all splits of a job."""
    if not job.compiled:
        return lambda key: hashlib.blake2b(key, digest_size=16, key=job.hash_key).digest()
    from kcompact.clean import split_kernels

    return lambda key: split_kernels.hash_of(key, job.hash_key)


def _verify_offset_index(path: Path, split: Split, ends: dict[int, int]) -> None:
    """Raise CorruptIndexError for an index entry of this split that is not a batch's start and last offset."""
    index_path = path.with_suffix(Suffix.INDEX)
    if not split.check_index or not index_path.exists():
        return
    base_offset = int(path.stem)
    entries = index.parse_offset_index(read_file(index_path), base_offset=base_offset, file=str(index_path))
    for number, (relative_offset, position) in enumerate(entries):
        offset = base_offset + relative_offset
        if split.start_position <= position < split.end_position and ends.get(position) != offset:
            raise CorruptIndexError(
                file=index_path,
                position=number * index.OFFSET_ENTRY_BYTES,
                offset=offset,
                problem=f"points to position {position} of the log, where no batch with this last offset starts",
                hint="The log itself may be sound: --rebuild-indexes makes the indexes anew from the batches.",
            )
