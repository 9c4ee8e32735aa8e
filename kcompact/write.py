"""Surviving records to staged segment files.

A *part* is a run of source bytes of one group, cut at batch boundaries. Each part is written by itself, anywhere,
into a file of its own name; `join` puts the parts of a group end to end and makes the indexes, which depend on every
batch before them. Parts are decided batch by batch, so that where they are cut has no influence on the bytes.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcompact import retain
from kcompact.errors import CorruptDataError, NotEnoughSpaceError, RefusedError, StorageError
from kcompact.format import batch as batch_format
from kcompact.format.batch import Batch, Header, Record, read_header, read_records
from kcompact.format.block import Offsets
from kcompact.format.index import AbortedTxn, IndexBuilder, build_txn_index
from kcompact.format.names import index_name, log_name, time_index_name, txn_index_name
from kcompact.log import FileIdentity, batches, open_regular, read_at, read_file, verified_batches
from kcompact.producers import LastRecord

FLUSH_BYTES = 4 << 20
COPY_BYTES = 64 << 20
OTHER_BYTES = "the disk gave back other bytes than were written"
NEVER_MS = -(1 << 63)
"""A clock that no delete horizon is behind."""

OUTPUT_DTYPE = np.dtype([("last_offset", "<i8"), ("max_timestamp", "<i8"), ("size_bytes", "<i4")])
"""What the indexes need to know of each batch written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanerStats:
    """What a cleaning read and wrote, in Kafka's terms; added with `+`. Rule: `CleanerStats`.

    `bytes_read` and `messages_read` count the segments that were rewritten, `map_*` the dirty section that the key map
    was made from; a batch dropped unread counts its bytes and not its messages.
    """

    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    map_bytes_read: int = 0
    map_keys: int = 0
    invalid_messages: int = 0

    def __add__(self, other: CleanerStats) -> CleanerStats:
        return CleanerStats(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A run of whole batches of one segment: positions in its file, and the offsets it may hold.

    `left_out` and `discardable` are the base offsets of transactional batches, see `transactions.Fates`;
    `keeps_legacy_tombstones` is for batches of magic 0 and 1, which have no place for a delete horizon.
    """

    log_name: str
    start_position: int
    end_position: int
    base_offset: int
    end_offset: int
    check_index: bool = True
    left_out: frozenset[int] = frozenset()
    discardable: frozenset[int] = frozenset()
    keeps_legacy_tombstones: bool = True

    @property
    def size_bytes(self) -> int:
        return self.end_position - self.start_position


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanJob:
    """What every task of a cleaning must know, besides its own splits."""

    directory: str
    first_dirty_offset: int
    upper_bound_offset: int
    now_ms: int
    delete_retention_ms: int
    keep_tombstones: bool
    last_records: dict[int, LastRecord]
    hash_key: bytes
    bucket_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """The outcome of writing one part. `name` is empty when it was only counted (a dry run)."""

    group: int
    part: int
    name: str
    size_bytes: int
    crc32c: int
    outputs: bytes
    stats: CleanerStats

    @property
    def output_table(self) -> npt.NDArray[np.void]:
        return np.frombuffer(self.outputs, OUTPUT_DTYPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """One complete, synced file in the staging directory: its name there, and the one it will have in the partition."""

    name: str
    staged_as: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """Staged files and the group of segments they replace.

    `replaces` holds every file of the group (`.log`, indexes) and the `.snapshot` files of the bases that
    disappear, as they were when the plan was made; `files` the staged ones, `.log` first.
    """

    base_offset: int
    files: tuple[StagedFile, ...]
    replaces: tuple[FileIdentity, ...]


# One batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedBatch:
    """What becomes of one batch: its new bytes, or None when nothing is left of it."""

    data: bytes | memoryview | None
    messages_read: int
    messages_written: int
    invalid_messages: int


def clean_batch(
    batch: Batch,
    job: CleanJob,
    survivors: Offsets,
    *,
    is_discardable: bool = False,
    keeps_legacy_tombstones: bool = True,
    file: str,
) -> CleanedBatch:
    """Return a batch as it is after the cleaning.

    `survivors` are the offsets of the keyed records that no newer record supersedes, ascending; they need to be
    complete for this batch only. Untouched batches come back as the same bytes. Rule: `MemoryRecords.filterTo`.
    """
    header = batch.header
    expires_ms = NEVER_MS if job.keep_tombstones else job.now_ms
    drops_records = retain.drops_records(header, is_discardable=is_discardable, now_ms=expires_ms)
    fate = retain.batch_retention(
        header,
        drops_records=drops_records,
        last_of_producer=retain.is_last_of_producer(header, job.last_records.get(header.producer_id)),
        upper_bound_offset=job.upper_bound_offset,
    )
    if fate is retain.Retention.DELETE:
        return CleanedBatch(data=None, messages_read=0, messages_written=0, invalid_messages=0)
    records = read_records(batch, file=file)
    kept: list[Record] = []
    invalid_messages = 0
    if header.is_control:
        kept = [] if drops_records else records
    elif not drops_records:
        horizon_ms = header.delete_horizon_ms
        if header.magic < 2 and not (keeps_legacy_tombstones or job.keep_tombstones):
            horizon_ms = job.now_ms  # It has come.
        kept = _kept_records(records, job, survivors, delete_horizon_ms=horizon_ms, expires_ms=expires_ms)
        invalid_messages = sum(record.key is None and record.offset < job.upper_bound_offset for record in records)
    data: bytes | memoryview | None = None
    if kept:
        dropped = len(kept) < len(records)
        data = _kept_batch(batch, kept, dropped=dropped, is_discardable=is_discardable, job=job, file=file)
    elif fate is retain.Retention.RETAIN_EMPTY:
        if header.magic < 2:
            raise RefusedError(
                path=file,
                problem=f"position {batch.position}: the last batch to clean is of magic {header.magic} and none of "
                "its records is kept; Kafka's cleaner stops here too, because that format has no empty batches",
            )
        data = batch_format.empty(header)
    return CleanedBatch(
        data=data, messages_read=len(records), messages_written=len(kept), invalid_messages=invalid_messages
    )


def _kept_records(
    records: Sequence[Record], job: CleanJob, survivors: Offsets, *, delete_horizon_ms: int | None, expires_ms: int
) -> list[Record]:
    if not records:
        return []
    first, end = np.searchsorted(survivors, (records[0].offset, records[-1].offset + 1))
    alive = set(survivors[first:end].tolist())
    return [
        record
        for record in records
        if retain.keeps_record(
            past_map=record.offset >= job.upper_bound_offset,
            has_key=record.key is not None,
            is_superseded=record.offset not in alive,
            is_tombstone=record.value is None,
            delete_horizon_ms=delete_horizon_ms,
            now_ms=expires_ms,
        )
    ]


def _kept_batch(
    batch: Batch, kept: Sequence[Record], *, dropped: bool, is_discardable: bool, job: CleanJob, file: str
) -> bytes | memoryview:
    header = batch.header
    needs_horizon = retain.needs_delete_horizon(header, kept, is_discardable=is_discardable)
    if not dropped and not needs_horizon and header.magic == 2:
        return batch.data
    problem = unwritable(header, kept)
    if problem:
        raise RefusedError(
            path=file,
            problem=f"position {batch.position}: a batch that must be written anew has {problem}; "
            "Kafka's cleaner stops here too",
        )
    horizon = header.delete_horizon_ms
    if needs_horizon:
        horizon = retain.delete_horizon_ms(now_ms=job.now_ms, delete_retention_ms=job.delete_retention_ms)
    elif horizon is not None and horizon < 0:
        horizon = None  # A negative one is none to the writer, though it is one to the reader.
    return batch_format.rebuild(header, kept, delete_horizon_ms=horizon)


def unwritable(header: Header, kept: Sequence[Record]) -> str:
    """Return what Kafka's writer would not write of these records, "" if nothing.

    Its reader takes it all, so a log can hold it.
    Rule: `MemoryRecordsBuilder.appendWithOffset`, `MemoryRecordsBuilder.validateProducerState`.
    """
    lowest = min(record.timestamp for record in kept)
    if lowest < batch_format.NO_TIMESTAMP:
        return f"the timestamp {lowest}"
    if header.is_transactional and header.producer_id == batch_format.NO_PRODUCER_ID:
        return "a transaction but no producer id"
    if header.producer_id == batch_format.NO_PRODUCER_ID:
        return ""
    if header.producer_epoch == -1:
        return "a producer id but no producer epoch"
    if header.base_sequence < 0 and not header.is_control:
        return "a producer id but no sequence number"
    return ""


# One part


def write_part(
    job: CleanJob,
    splits: Sequence[Split],
    survivors: Offsets,
    *,
    group: int,
    part: int,
    staging: str | None,
) -> WrittenPart:
    """Clean one part into a new file of the staging directory, synced, or only count it when there is none.

    The name carries a random token: two attempts at the same part never share a file. Raises CorruptBatchError,
    NotEnoughSpaceError, StorageError.
    """
    sink = _PartFile(Path(staging), group, part) if staging is not None else _Counter()
    stats = CleanerStats()
    rows: list[tuple[int, int, int]] = []
    try:
        for split in splits:
            path = Path(job.directory) / split.log_name
            for source in verified_batches(
                path,
                base_offset=split.base_offset,
                end_offset=split.end_offset,
                start_position=split.start_position,
                end_position=split.end_position,
            ):
                is_discardable = source.header.base_offset in split.discardable
                cleaned = clean_batch(
                    source,
                    job,
                    survivors,
                    is_discardable=is_discardable,
                    keeps_legacy_tombstones=split.keeps_legacy_tombstones,
                    file=str(path),
                )
                stats += CleanerStats(
                    bytes_read=source.header.size_bytes,
                    messages_read=cleaned.messages_read,
                    messages_written=cleaned.messages_written,
                    invalid_messages=cleaned.invalid_messages,
                    bytes_written=len(cleaned.data or b""),
                )
                if cleaned.data is not None:
                    sink.append(cleaned.data)
                    written = read_header(cleaned.data, file=str(path), position=source.position)
                    rows.append((written.last_offset, written.max_timestamp, written.size_bytes))
        sink.close()
    except BaseException:
        sink.abandon()
        raise
    return WrittenPart(
        group=group,
        part=part,
        name=sink.name,
        size_bytes=stats.bytes_written,
        crc32c=sink.crc32c,
        outputs=np.array(rows, OUTPUT_DTYPE).tobytes(),
        stats=stats,
    )


class _Counter:
    """Where a dry run writes: nowhere."""

    name = ""
    crc32c = 0

    def append(self, data: bytes | memoryview) -> None:
        pass

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _PartFile:
    """A new file of the staging directory, written in large pieces, with a running checksum."""

    def __init__(self, staging: Path, group: int, part: int) -> None:
        self.name = f"group-{group}-part-{part}-{secrets.token_hex(4)}.log"
        self.crc32c = 0
        self._path = staging / self.name
        self._descriptor = create(self._path)
        self._pending: list[bytes | memoryview] = []
        self._pending_bytes = 0

    def append(self, data: bytes | memoryview) -> None:
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        import crc32c

        data = b"".join(self._pending)
        self._pending, self._pending_bytes = [], 0
        self.crc32c = crc32c.crc32c(data, self.crc32c)
        write_all(self._descriptor, data, path=self._path)

    def close(self) -> None:
        self._flush()
        sync(self._descriptor, path=self._path)
        os.close(self._descriptor)

    def abandon(self) -> None:
        # The file stays: the staging directory goes as a whole. The descriptor may have been closed already.
        try:
            os.close(self._descriptor)
        except OSError:
            return


# One group


def join(
    staging: Path,
    base_offset: int,
    parts: Sequence[WrittenPart],
    *,
    aborted: Sequence[AbortedTxn] = (),
    index_interval_bytes: int,
    index_max_bytes: int,
) -> tuple[StagedFile, ...]:
    """Return the staged `.log`, `.index`, `.timeindex` and, with `aborted`, `.txnindex` of a group, all synced.

    The parts are appended to the first one; the indexes follow from their batches. Rule: `LogSegment.append`,
    `LogSegment.onBecomeInactiveSegment`.
    """
    log_path = staging / parts[0].name
    if len(parts) > 1:
        _append_parts(log_path, [staging / part.name for part in parts[1:]])
    builder = IndexBuilder(base_offset, interval_bytes=index_interval_bytes, max_index_bytes=index_max_bytes)
    position = 0
    for part in parts:
        for last_offset, max_timestamp, size_bytes in part.output_table.tolist():
            builder.append(last_offset, position, size_bytes, max_timestamp)
            position += size_bytes
    offset_index, time_index = builder.finish()
    crc = _verified_log(log_path, parts)
    files = [
        StagedFile(name=log_name(base_offset), staged_as=log_path.name, size_bytes=position, crc32c=crc),
        _staged_bytes(staging, index_name(base_offset), offset_index),
        _staged_bytes(staging, time_index_name(base_offset), time_index),
    ]
    if aborted:
        files.append(_staged_bytes(staging, txn_index_name(base_offset), build_txn_index(aborted)))
    return tuple(files)


def _append_parts(target: Path, parts: Sequence[Path]) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for part in parts:
            with open_regular(part) as source:
                position = 0
                while data := read_at(source, COPY_BYTES, position, path=part):
                    write_all(descriptor, data, path=target)
                    position += len(data)
        sync(descriptor, path=target)
    finally:
        os.close(descriptor)


def _verified_log(path: Path, parts: Sequence[WrittenPart]) -> int:
    """Read a staged log back from the disk and return its checksum.

    Raises CorruptDataError when it is not what was written: a disk may lie, and after this it is the only copy.
    """
    import crc32c

    whole = position = 0
    with open_regular(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Ask for the disk's bytes, not the cache's.
        size = os.fstat(descriptor).st_size
        expected = sum(part.size_bytes for part in parts)
        if size != expected:
            raise CorruptDataError(file=path, problem=f"{expected} bytes were written, {size} are there")
        for part in parts:
            crc, end = 0, position + part.size_bytes
            while position < end:
                data = read_at(descriptor, min(COPY_BYTES, end - position), position, path=path)
                crc, whole = crc32c.crc32c(data, crc), crc32c.crc32c(data, whole)
                position += len(data)
            if crc != part.crc32c:
                start = position - part.size_bytes
                raise CorruptDataError(file=path, position=start, problem=OTHER_BYTES)
    _verify_batches(path, parts)
    return whole


def _verify_batches(path: Path, parts: Sequence[WrittenPart]) -> None:
    expected = [row for part in parts for row in part.output_table.tolist()]
    previous = -1
    count = 0
    for source, (last_offset, _, size_bytes) in zip(batches(path), expected, strict=True):
        header = source.header
        if header.base_offset <= previous or header.last_offset != last_offset or header.size_bytes != size_bytes:
            raise CorruptDataError(file=path, position=source.position, problem="a staged batch is out of its order")
        previous = header.last_offset
        count += header.records_count
    if count != sum(part.stats.messages_written for part in parts):
        raise CorruptDataError(file=path, problem="the staged segment has another number of records than were kept")


def _staged_bytes(staging: Path, name: str, data: bytes) -> StagedFile:
    import crc32c

    path = staging / name
    descriptor = create(path)
    try:
        write_all(descriptor, data, path=path)
        sync(descriptor, path=path)
    finally:
        os.close(descriptor)
    if read_file(path, max_bytes=max(len(data), 1)) != data:
        raise CorruptDataError(file=path, problem=OTHER_BYTES)
    return StagedFile(name=name, staged_as=name, size_bytes=len(data), crc32c=crc32c.crc32c(data))


# Files


def create(path: Path) -> int:
    """Return a descriptor of a new, private file. Raises StorageError, NotEnoughSpaceError."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise _write_error(path, problem, 0) from None


def write_all(descriptor: int, data: bytes, *, path: Path) -> None:
    """Write all of `data`. Raises NotEnoughSpaceError when the file system is full, StorageError."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as problem:
        raise _write_error(path, problem, len(view)) from None


def sync(descriptor: int, *, path: Path) -> None:
    """Flush a file to the disk. A failure is final: the kernel may have dropped the data (fsync is never retried)."""
    try:
        os.fsync(descriptor)
    except OSError as problem:
        raise _write_error(path, problem, 0) from None


def _write_error(path: Path, problem: OSError, needed_bytes: int) -> StorageError | NotEnoughSpaceError:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        status = os.statvfs(path.parent)
        return NotEnoughSpaceError(
            path=path.parent, needed_bytes=needed_bytes, free_bytes=status.f_bavail * status.f_frsize
        )
    return StorageError(path=path, problem=problem)
