"""Private files in the staging directory: creates them, reads logs back, and describes complete ones.

The staging directory is held open, and its files are reached only through its descriptor: its path may lead elsewhere
by now. Files are created with `O_EXCL` and mode 0600, written whole and synced. A failed sync is never retried.

After the swap the staged file is the only copy, so a log is read back from the disk and each batch is checked again:
position, checksum, offsets, records.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kcompact import kernels
from kcompact.clean.job import WrittenPart, as_columns
from kcompact.errors import CorruptDataError, LogChangedError, storage_error, storage_errors
from kcompact.format.batch import Batch, computed_crc_of, legacy_entries, parse_batches
from kcompact.format.checksum import crc32c
from kcompact.format.text_lines import LONG_MAX
from kcompact.host import turns
from kcompact.host.descriptors import closed_after
from kcompact.host.throttle import Pace
from kcompact.kernels import columns as c
from kcompact.log.files import FileIdentity, open_regular
from kcompact.values import dataclass

MAX_PIECES = 1024
"""The most pieces that one `writev` accepts."""
READ_BACK_MISMATCH = "the staged file differs from what was written"
VERIFY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A complete, synced file. `staged_as` is its name in the staging directory, `name` its name in the partition."""

    name: str
    staged_as: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """The staged files of one segment, and the files of the group that it replaces.

    `files` begins with the `.log`. `replaces` holds logs and indexes of the whole group, and the snapshots that are
    removed with it, as they were when the plan was made.
    """

    base_offset: int
    files: tuple[StagedFile, ...]
    replaces: tuple[FileIdentity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingDirectory:
    """Which directory new files are created in: where it was made, and its identity. Workers receive it pickled.

    The driver holds the directory open meanwhile, so that no other directory can get its inode number. Another machine
    has another number for the device, so `device` is None there.
    """

    path: Path
    device: int | None
    inode: int

    @staticmethod
    def of(path: Path, fd: int) -> StagingDirectory:
        """Return the identity of an open directory."""
        status = os.fstat(fd)
        return StagingDirectory(path=path, device=status.st_dev, inode=status.st_ino)

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield a descriptor of the directory. Raises LogChangedError if its path leads to anything else."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise self._replaced() from None
        except OSError as problem:
            raise storage_error(self.path, problem) from None
        with closed_after(fd):
            status = os.fstat(fd)
            if status.st_ino != self.inode or self.device not in (None, status.st_dev):
                raise self._replaced()
            yield fd

    def _replaced(self) -> LogChangedError:
        return LogChangedError(path=self.path, problem="is no longer the directory that kcompact created")


def create(path: Path, *, dir_fd: int) -> int:
    """Create a new file with mode 0600 in an open directory and return its descriptor; `path` is for messages.

    Raises StorageError, NotEnoughSpaceError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path.name, flags, 0o600, dir_fd=dir_fd)
    except OSError as problem:
        raise storage_error(path, problem, operation="create") from None


def write_all(descriptor: int, data: bytes | memoryview, *, path: Path) -> None:
    """Write all of `data`. Raises NotEnoughSpaceError if the file system is full, StorageError."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as problem:
        raise storage_error(path, problem, operation="write", needed_bytes=len(view)) from None


def write_pieces(descriptor: int, pieces: Sequence[bytes | memoryview], *, path: Path) -> None:
    """Write at most MAX_PIECES pieces with one system call. Raises as `write_all` does."""
    try:
        done = os.writev(descriptor, pieces)
    except OSError as problem:
        raise storage_error(path, problem, operation="write", needed_bytes=sum(map(len, pieces))) from None
    for piece in pieces:
        if done < len(piece):
            write_all(descriptor, memoryview(piece)[done:], path=path)
        done = max(0, done - len(piece))


def sync(descriptor: int, *, path: Path) -> None:
    """Flush a file to the disk. A failed sync is not repeated, because the kernel may have dropped the data."""
    try:
        turns.sync(descriptor)
    except OSError as problem:
        raise storage_error(path, problem, operation="sync") from None


# Reading back


def verify_staged_log(path: Path, parts: Sequence[WrittenPart], pace: Pace, *, dir_fd: int) -> tuple[int, float]:
    """Read a log in the open staging directory back from the disk; return its CRC-32C and the seconds that took.

    Raises CorruptDataError if the file differs from what was written. Compared are the checksum of each part, the
    position, size, checksum and offsets of each batch, and the number of all records.
    """
    started = time.monotonic()
    rows = np.concatenate([part.output_table for part in parts])
    last_offsets, max_timestamps, sizes = as_columns(rows)
    ends = np.cumsum(sizes)
    # Not more than the file: clearing 32 MiB takes longer than all else that is done with a small segment.
    buffer = bytearray(max(min(VERIFY_BYTES, int(sizes.sum())), int(sizes.max(initial=0))))
    whole, records, previous_offset, position, row = 0, 0, -1, 0, 0
    with open_regular(path, dir_fd=dir_fd) as opened, storage_errors(path, "read back"):
        # Read from the disk, not from the page cache.
        os.posix_fadvise(opened.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        size, written = opened.size_bytes, sum(part.size_bytes for part in parts)
        if size != written or size != (int(ends[-1]) if len(ends) else 0):
            raise CorruptDataError(file=path, problem=f"{written} bytes were written, the file has {size}")
        for part in parts:
            crc, part_end = 0, row + len(part.output_table)
            while row < part_end:
                # Whole batches, about VERIFY_BYTES.
                end = max(row + 1, int(np.searchsorted(ends[:part_end], position + VERIFY_BYTES, side="right")))
                window = slice(row, end)
                data = memoryview(buffer)[: int(ends[end - 1]) - position]
                pace.take(len(data))
                opened.read_into(data, position)
                crc = crc32c(data, crc)
                whole = crc32c(data, whole) if len(parts) > 1 else crc
                expected = last_offsets[window], max_timestamps[window], sizes[window]
                window_records = _records_by_kernel(data, previous_offset, expected)
                records += (
                    _records(data, path, position, previous_offset, expected)
                    if window_records is None
                    else window_records
                )
                position, previous_offset, row = int(ends[end - 1]), int(last_offsets[end - 1]), end
            if crc != part.crc32c:
                raise CorruptDataError(file=path, position=position - part.size_bytes, problem=READ_BACK_MISMATCH)
        # Nobody reads it soon. What the page cache still has of the log is read again for the groups that are left.
        os.posix_fadvise(opened.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if records != sum(part.stats.messages_written for part in parts):
        raise CorruptDataError(file=path, problem="the staged segment does not have as many records as were kept")
    return whole, time.monotonic() - started


Columns = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]


def _records(data: memoryview, path: Path, position: int, previous_offset: int, expected: Columns) -> int:
    """Return what `_records_by_kernel` returns, also for batches of magic 0 and 1. Raises CorruptDataError."""
    records = 0
    try:
        staged = list(parse_batches(data, file=str(path), position=position))
    except CorruptDataError as problem:
        raise CorruptDataError(file=path, position=problem.position, problem=READ_BACK_MISMATCH) from None
    for source, last_offset, size_bytes in zip(staged, expected[0].tolist(), expected[2].tolist(), strict=True):
        header = source.header
        if header.base_offset <= previous_offset or header.last_offset != last_offset:
            raise CorruptDataError(
                file=path, position=source.position, problem="the offsets of a staged batch are out of order"
            )
        if header.size_bytes != size_bytes or computed_crc_of([source.data], magic=header.magic) != header.crc:
            raise CorruptDataError(file=path, position=source.position, problem=READ_BACK_MISMATCH)
        previous_offset = header.last_offset
        records += header.records_count if header.records_count >= 0 else _old_records(source, path)
    return records


def _old_records(batch: Batch, path: Path) -> int:
    """Return the number of records in a batch of magic 0 or 1, which this run has held inflated before."""
    return legacy_entries(batch, file=str(path), memory_bytes=LONG_MAX).records


def _records_by_kernel(data: memoryview, previous_offset: int, expected: Columns) -> int | None:
    """Return the number of records in staged bytes, or None if the batches differ from what was written.

    `expected` are last offsets, greatest timestamps and sizes of the batches. Batches must also fill `data`, their
    checksums must match, and their offsets must rise above `previous_offset`.
    """
    last_offsets, max_timestamps, sizes = expected
    table = np.empty((len(sizes) + 1, c.COLUMNS), np.int64)
    buffer = np.frombuffer(data, np.uint8)
    count, _, _, code = kernels.parse_batches(buffer, len(data), previous_offset + 1, (1 << 63) - 1, -1, table)
    table = table[:count]
    is_right = (
        code == c.DONE
        and np.array_equal(table[:, c.LAST_OFFSET], last_offsets)
        and np.array_equal(table[:, c.MAX_TIMESTAMP], max_timestamps)
        and np.array_equal(table[:, c.SIZE], sizes)
    )
    return int(table[:, c.RECORDS_COUNT].sum()) if is_right else None
