"""Surviving records to staged segment files.

A *part* is a run of source bytes of one group, cut at batch boundaries. Each part is written by itself, anywhere,
into a file of its own name; `join` puts the parts of a group end to end and makes the indexes, which depend on every
batch before them. Parts are decided batch by batch, so that where they are cut has no influence on the bytes.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.errors import CorruptDataError, NotEnoughSpaceError, StorageError
from kcompact.filter import CleanerStats, CleanJob, Filtered, Split, clean_batch
from kcompact.format.batch import computed_crc, read_header, read_records, walk
from kcompact.format.block import Bytes
from kcompact.format.index import AbortedTxn, IndexBuilder, build_txn_index
from kcompact.format.names import index_name, log_name, time_index_name, txn_index_name
from kcompact.keymap import bits
from kcompact.log import FileIdentity, open_regular, read_at, read_file, read_into, verified_batches
from kcompact.throttle import Pace, Throttle

FLUSH_BYTES = 64 << 20
MAX_PIECES = 1024
"""As many as one system call takes."""
VERIFY_BYTES = 32 << 20
COPY_BYTES = 64 << 20
OTHER_BYTES = "the disk gave back other bytes than were written"

OUTPUT_DTYPE = np.dtype([("last_offset", "<i8"), ("max_timestamp", "<i8"), ("size_bytes", "<i4")])
"""What the indexes need to know of each batch written."""


class WriteTask(NamedTuple):
    """One part to write: its place, its source, and per split the bits of the records that survive and the number of
    special ones (see `scan.Scanned`). `run` counts the tasks that the parts are dealt to; `is_only` says that the
    group has no other part.
    """

    group: int
    part: int
    run: int
    splits: tuple[Split, ...]
    survivors: tuple[bytes, ...]
    special: tuple[int, ...]
    is_only: bool

    @property
    def size_bytes(self) -> int:
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenPart:
    """The outcome of writing one part. `name` is empty when it was only counted (a dry run).

    `is_verified`: it is a whole segment, on the disk, and has been read back. `sync_s` and `verify_s` are what that
    took, in seconds.
    """

    group: int
    part: int
    name: str
    size_bytes: int
    crc32c: int
    outputs: bytes
    stats: CleanerStats
    is_verified: bool = False
    sync_s: float = 0.0
    verify_s: float = 0.0

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


# One part


def write_part(job: CleanJob, task: WriteTask, staging: str | None, pace: Pace) -> WrittenPart:
    """Clean one part into a new file of the staging directory, or only count it when there is none.

    The file of a group's only part is complete: it is synced and read back here. The name carries a random token: two
    attempts at the same part never share a file. Raises CorruptDataError, NotEnoughSpaceError, RefusedError,
    StorageError.
    """
    # Of a group's other parts the bytes are soon copied behind the first one, and gone.
    sink = _Counter() if staging is None else _PartFile(Path(staging), task.group, task.part, stays=task.part == 0)
    stats = CleanerStats()
    outputs: list[npt.NDArray[np.void]] = []
    clean = _cleaner(job)
    try:
        for split, survivors, special in zip(task.splits, task.survivors, task.special, strict=True):
            pace.take(split.size_bytes)
            for run in clean(split, np.frombuffer(bytearray(survivors), np.uint8), special):
                if staging is not None:
                    pace.take(run.stats.bytes_written)
                sink.append(run.pieces)
                rows = np.empty(len(run.sizes), OUTPUT_DTYPE)
                rows["last_offset"], rows["max_timestamp"] = run.last_offsets, run.max_timestamps
                rows["size_bytes"] = run.sizes
                outputs.append(rows)
                stats += run.stats
            pace.done(split.size_bytes)
        sink.settle()
        part = WrittenPart(
            group=task.group,
            part=task.part,
            name=sink.name,
            size_bytes=stats.bytes_written,
            crc32c=sink.crc32c,
            outputs=b"".join(rows.tobytes() for rows in outputs),
            stats=stats,
        )
        if staging is None or not task.is_only:
            return part
        sync_s = sink.sync()
        _, verify_s = _verified_log(Path(staging) / sink.name, [part], pace, compiled=job.compiled)
        return replace(part, is_verified=True, sync_s=sync_s, verify_s=verify_s)
    finally:
        sink.close()


def _cleaner(job: CleanJob) -> Callable[[Split, Bytes, int], Iterator[Filtered]]:
    """Return what cleans a split: the kernels where they can, or else the readable definition."""
    if not job.compiled:
        return lambda split, survivors, special: _clean_split(job, split, survivors)
    from kcompact import arena, compiled

    buffers = arena.Buffers()

    def clean(split: Split, survivors: Bytes, special: int) -> Iterator[Filtered]:
        filtered = compiled.filter_split(job, split, survivors, special, buffers)
        return _clean_split(job, split, survivors) if filtered is None else filtered

    return clean


def _clean_split(job: CleanJob, split: Split, survivors: Bytes) -> Iterator[Filtered]:
    path = Path(job.directory) / split.log_name
    row = 0
    for source in verified_batches(
        path,
        base_offset=split.base_offset,
        end_offset=split.end_offset,
        start_position=split.start_position,
        end_position=split.end_position,
    ):
        # How many records a compressed batch of magic 0 or 1 holds stands nowhere but inside.
        count = source.header.records_count
        count = len(read_records(source, file=str(path))) if count < 0 else count
        cleaned = clean_batch(
            source,
            job,
            bits(survivors, row, count),
            is_discardable=source.header.base_offset in split.discardable,
            keeps_legacy_tombstones=split.keeps_legacy_tombstones,
            file=str(path),
        )
        row += count
        pieces, rows = [], np.empty((0, 3), np.int64)
        if cleaned.data is not None:
            written = read_header(cleaned.data, file=str(path), position=source.position)
            pieces = [cleaned.data]
            rows = np.array([(written.last_offset, written.max_timestamp, written.size_bytes)])
        stats = CleanerStats(
            bytes_read=source.header.size_bytes,
            messages_read=cleaned.messages_read,
            messages_written=cleaned.messages_written,
            invalid_messages=cleaned.invalid_messages,
            bytes_written=len(cleaned.data or b""),
        )
        yield Filtered(pieces, rows[:, 0], rows[:, 1], rows[:, 2], stats)


class _Counter:
    """Where a dry run writes: nowhere."""

    name = ""
    crc32c = 0

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        pass

    def settle(self) -> None:
        pass

    def sync(self) -> float:
        return 0.0

    def close(self) -> None:
        pass


class _PartFile:
    """A new file of the staging directory, with a running checksum of what went into it.

    What `stays` is brought to the disk in the background from time to time, so that not all of it waits for the end.
    """

    def __init__(self, staging: Path, group: int, part: int, *, stays: bool) -> None:
        self.name = f"group-{group}-part-{part}-{secrets.token_hex(4)}.log"
        self.crc32c = 0
        self._path = staging / self.name
        self._descriptor = create(self._path)
        self._stays = stays
        self._unsynced_bytes = 0
        self._flushing: threading.Thread | None = None
        self._problem: OSError | None = None

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        import crc32c

        for piece in pieces:
            self.crc32c = crc32c.crc32c(piece, self.crc32c)
            self._unsynced_bytes += len(piece)
        for start in range(0, len(pieces), MAX_PIECES):
            write_pieces(self._descriptor, pieces[start : start + MAX_PIECES], path=self._path)
        is_flushing = self._flushing is not None and self._flushing.is_alive()
        if self._stays and self._unsynced_bytes >= FLUSH_BYTES and not is_flushing:
            self._unsynced_bytes = 0
            self._flushing = threading.Thread(target=self._flush, daemon=True)
            self._flushing.start()

    def _flush(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as problem:
            self._problem = self._problem or problem

    def settle(self) -> None:
        """Wait for what happens in the background. Raises StorageError, NotEnoughSpaceError if it went wrong.

        A failure to sync is told once and must not be lost: the next sync would succeed, without the data.
        """
        if self._flushing is not None:
            self._flushing.join()
        if self._problem is not None:
            raise _write_error(self._path, self._problem, 0)

    def sync(self) -> float:
        """Flush to the disk and return the seconds it took."""
        started = time.monotonic()
        self.settle()
        sync(self._descriptor, path=self._path)
        return time.monotonic() - started

    def close(self) -> None:
        # What is not complete stays: the staging directory goes as a whole.
        if self._flushing is not None:
            self._flushing.join()
        os.close(self._descriptor)


# One group


class Joined(NamedTuple):
    """The staged files of a group, and the seconds that syncing and reading back took here."""

    files: tuple[StagedFile, ...]
    sync_s: float
    verify_s: float


def join(
    staging: Path,
    base_offset: int,
    parts: Sequence[WrittenPart],
    *,
    aborted: Sequence[AbortedTxn] = (),
    index_interval_bytes: int,
    index_max_bytes: int,
    compiled: bool = False,
    pace: Pace | None = None,
) -> Joined:
    """Stage the `.log`, `.index`, `.timeindex` and, with `aborted`, `.txnindex` of a group, all synced and read back.

    The parts are appended to the first one; the indexes follow from their batches. Rule: `LogSegment.append`,
    `LogSegment.onBecomeInactiveSegment`.
    """
    pace = pace or Pace(Throttle(None))
    log_path = staging / parts[0].name
    size_bytes, crc, sync_s, verify_s = parts[0].size_bytes, parts[0].crc32c, 0.0, 0.0
    if not parts[0].is_verified:
        started = time.monotonic()
        _append_parts(log_path, [staging / part.name for part in parts[1:]], pace)
        sync_s = time.monotonic() - started
        size_bytes = sum(part.size_bytes for part in parts)
        crc, verify_s = _verified_log(log_path, parts, pace, compiled=compiled)
    offset_index, time_index = _indexes(
        parts,
        base_offset,
        index_interval_bytes=index_interval_bytes,
        index_max_bytes=index_max_bytes,
        compiled=compiled,
    )
    files = [
        StagedFile(name=log_name(base_offset), staged_as=log_path.name, size_bytes=size_bytes, crc32c=crc),
        _staged_bytes(staging, index_name(base_offset), offset_index),
        _staged_bytes(staging, time_index_name(base_offset), time_index),
    ]
    if aborted:
        files.append(_staged_bytes(staging, txn_index_name(base_offset), build_txn_index(aborted)))
    return Joined(tuple(files), sync_s, verify_s)


def _columns(rows: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.int64], ...]:
    return tuple(rows[name].astype(np.int64) for name in OUTPUT_DTYPE.names or ())


def _indexes(
    parts: Sequence[WrittenPart], base_offset: int, index_interval_bytes: int, index_max_bytes: int, *, compiled: bool
) -> tuple[bytes, bytes]:
    if compiled:
        from kcompact import compiled as kernels

        columns = _columns(np.concatenate([part.output_table for part in parts]))
        made = kernels.indexes(
            *columns, base_offset=base_offset, interval_bytes=index_interval_bytes, max_index_bytes=index_max_bytes
        )
        if made is not None:
            return made
    builder = IndexBuilder(base_offset, interval_bytes=index_interval_bytes, max_index_bytes=index_max_bytes)
    position = 0
    for part in parts:
        for last_offset, max_timestamp, size_bytes in part.output_table.tolist():
            builder.append(last_offset, position, size_bytes, max_timestamp)
            position += size_bytes
    return builder.finish()


def _append_parts(target: Path, parts: Sequence[Path], pace: Pace) -> None:
    """Append files to the first one and sync it. Without a detour through this process, where the system can."""
    descriptor = os.open(target, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.lseek(descriptor, 0, os.SEEK_END)
        for part in parts:
            with open_regular(part) as source:
                _append_file(descriptor, source, target, part, pace)
            part.unlink()  # Or the disk would have to hold it twice.
        sync(descriptor, path=target)
    finally:
        os.close(descriptor)


def _append_file(descriptor: int, source: int, target: Path, part: Path, pace: Pace) -> None:
    position, size = 0, os.fstat(source).st_size
    try:
        while position < size:
            count = os.copy_file_range(source, descriptor, min(COPY_BYTES, size - position), position)
            if count == 0:
                break
            pace.take(2 * count)
            position += count
    except OSError as problem:
        if problem.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF):
            raise _write_error(target, problem, size - position) from None
    while data := read_at(source, COPY_BYTES, position, path=part):
        write_all(descriptor, data, path=target)
        pace.take(2 * len(data))
        position += len(data)


def _verified_log(path: Path, parts: Sequence[WrittenPart], pace: Pace, *, compiled: bool) -> tuple[int, float]:
    """Read a staged log back from the disk; return its checksum, and the seconds that took.

    Raises CorruptDataError when it is not what was written: a disk may lie, and after this it is the only copy. Each
    batch is checked anew, not only the sum of all: its place, its checksum and how many records there are.
    """
    import crc32c

    started = time.monotonic()
    rows = np.concatenate([part.output_table for part in parts])
    last_offsets, max_timestamps, sizes = _columns(rows)
    ends = np.cumsum(sizes)
    read_batches = _batch_reader(path, compiled=compiled)
    buffer = bytearray(max(VERIFY_BYTES, int(sizes.max(initial=0))))
    whole, records, previous_offset, position, row = 0, 0, -1, 0, 0
    with open_regular(path) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # Ask for the disk's bytes, not the cache's.
        size, expected = os.fstat(descriptor).st_size, sum(part.size_bytes for part in parts)
        if size != expected or size != (int(ends[-1]) if len(ends) else 0):
            raise CorruptDataError(file=path, problem=f"{expected} bytes were written, {size} are there")
        for part in parts:
            crc, part_end = 0, row + len(part.output_table)
            while row < part_end:
                # Whole batches, about so many bytes.
                end = max(row + 1, int(np.searchsorted(ends[:part_end], position + VERIFY_BYTES, side="right")))
                window = slice(row, end)
                data = memoryview(buffer)[: int(ends[end - 1]) - position]
                pace.take(len(data))
                read_into(descriptor, data, position, path=path)
                crc, whole = crc32c.crc32c(data, crc), crc32c.crc32c(data, whole)
                found = read_batches(
                    data, position, previous_offset, (last_offsets[window], max_timestamps[window], sizes[window])
                )
                records += found
                position, previous_offset, row = int(ends[end - 1]), int(last_offsets[end - 1]), end
            if crc != part.crc32c:
                raise CorruptDataError(file=path, position=position - part.size_bytes, problem=OTHER_BYTES)
    if records != sum(part.stats.messages_written for part in parts):
        raise CorruptDataError(file=path, problem="the staged segment has another number of records than were kept")
    return whole, time.monotonic() - started


Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _batch_reader(path: Path, *, compiled: bool) -> Callable[[memoryview, int, int, Columns], int]:
    """Return what counts the records of staged batches and raises where they are not those that were written."""

    def read(data: memoryview, position: int, previous_offset: int, expected: Columns) -> int:
        records = 0
        try:
            found = list(walk(data, file=str(path), position=position))
        except CorruptDataError as problem:
            raise CorruptDataError(file=path, position=problem.position, problem=OTHER_BYTES) from None
        for source, last_offset, size_bytes in zip(found, expected[0].tolist(), expected[2].tolist(), strict=True):
            header = source.header
            if header.base_offset <= previous_offset or header.last_offset != last_offset:
                raise CorruptDataError(
                    file=path, position=source.position, problem="a staged batch is out of its order"
                )
            if header.size_bytes != size_bytes or computed_crc(source.data) != header.crc:
                raise CorruptDataError(file=path, position=source.position, problem=OTHER_BYTES)
            previous_offset = header.last_offset
            records += header.records_count
        return records

    if not compiled:
        return read
    from kcompact import compiled as kernels

    def read_compiled(data: memoryview, position: int, previous_offset: int, expected: Columns) -> int:
        records = kernels.verify_batches(data, previous_offset, expected)
        return read(data, position, previous_offset, expected) if records is None else records

    return read_compiled


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


def write_all(descriptor: int, data: bytes | memoryview, *, path: Path) -> None:
    """Write all of `data`. Raises NotEnoughSpaceError when the file system is full, StorageError."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as problem:
        raise _write_error(path, problem, len(view)) from None


def write_pieces(descriptor: int, pieces: Sequence[bytes | memoryview], *, path: Path) -> None:
    """Write all of some pieces, at most MAX_PIECES, in one go. Raises as `write_all` does."""
    try:
        done = os.writev(descriptor, pieces)
    except OSError as problem:
        raise _write_error(path, problem, sum(map(len, pieces))) from None
    for piece in pieces:
        if done < len(piece):
            write_all(descriptor, memoryview(piece)[done:], path=path)
        done = max(0, done - len(piece))


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
