"""Joins the parts of a group to one segment: appends their bytes to one log and builds its indexes.

Rule: `LogSegment.append`, `LogSegment.onBecomeInactiveSegment`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kcompact.clean.job import WrittenPart, as_columns
from kcompact.clean.staged_files import (
    READ_BACK_MISMATCH,
    StagedFile,
    StagingDirectory,
    create,
    sync,
    verify_staged_log,
    write_all,
)
from kcompact.config.settings import TopicConfig
from kcompact.errors import CorruptDataError, storage_error, storage_errors
from kcompact.format.checksum import crc32c
from kcompact.format.index import AbortedTxn, build_txn_index
from kcompact.format.names import index_name, log_name, time_index_name, txn_index_name
from kcompact.host.descriptors import closed_after
from kcompact.host.throttle import Pace, Throttle
from kcompact.log.files import OpenLocalFile, open_regular
from kcompact.log.index_files import indexes_of

COPY_BYTES = 16 << 20


class Joined(NamedTuple):
    """The staged files of a group, and the seconds spent here on syncing and reading back."""

    files: tuple[StagedFile, ...]
    sync_s: float
    verify_s: float


def join_parts(
    staging: StagingDirectory,
    base_offset: int,
    parts: Sequence[WrittenPart],
    *,
    config: TopicConfig,
    aborted: Sequence[AbortedTxn] = (),
    pace: Pace | None = None,
) -> Joined:
    """Stage the files of a group, all synced and read back: log, indexes and, with `aborted`, a `.txnindex`.

    Parts are appended to the first part; a single part may have been read back already.
    Raises CorruptDataError, LogChangedError, NotEnoughSpaceError, RefusedError, StorageError.
    """
    pace = pace or Pace(Throttle(None))
    offset_index, time_index = build_indexes(parts, base_offset, config)
    contents = {index_name(base_offset): offset_index, time_index_name(base_offset): time_index}
    if aborted:
        contents[txn_index_name(base_offset)] = build_txn_index(aborted)
    with staging.opened() as dir_fd:
        log, sync_s, verify_s = _joined_log(staging.path, dir_fd, base_offset, parts, pace)
        # The name of the log has the token of this attempt, so no other attempt has a file with one of these names.
        others = (
            _staged_bytes(name, (staging.path / log.staged_as).with_suffix(Path(name).suffix), dir_fd, data)
            for name, data in contents.items()
        )
        return Joined((log, *others), sync_s, verify_s)


def _joined_log(
    staging: Path, dir_fd: int, base_offset: int, parts: Sequence[WrittenPart], pace: Pace
) -> tuple[StagedFile, float, float]:
    """Append the parts to the first one and return the log, synced and read back, and the seconds that both took."""
    first = parts[0]
    log = StagedFile(name=log_name(base_offset), staged_as=first.name, size_bytes=first.size_bytes, crc32c=first.crc32c)
    if first.is_verified:
        return log, 0.0, 0.0
    path, started = staging / first.name, time.monotonic()
    _append_parts(path, [staging / part.name for part in parts[1:]], dir_fd, pace)
    sync_s = time.monotonic() - started
    crc, verify_s = verify_staged_log(path, parts, pace, dir_fd=dir_fd)
    return replace(log, size_bytes=sum(part.size_bytes for part in parts), crc32c=crc), sync_s, verify_s


def build_indexes(parts: Sequence[WrittenPart], base_offset: int, config: TopicConfig) -> tuple[bytes, bytes]:
    """Return the `.index` and the `.timeindex` of a group. Raises RefusedError for a full index."""
    return indexes_of(
        *as_columns(np.concatenate([part.output_table for part in parts])),
        base_offset=base_offset,
        interval_bytes=config.index_interval_bytes,
        max_index_bytes=config.segment_index_bytes,
        file=log_name(base_offset),
    )


def _append_parts(target: Path, parts: Sequence[Path], dir_fd: int, pace: Pace) -> None:
    """Append the parts to the target and sync it. All are in the open staging directory."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    with closed_after(os.open(target.name, flags, dir_fd=dir_fd)) as descriptor:
        os.lseek(descriptor, 0, os.SEEK_END)
        for part in parts:
            with open_regular(part, dir_fd=dir_fd) as source:
                _append_file(descriptor, source, target, pace)
            os.unlink(part.name, dir_fd=dir_fd)  # Frees its space before the next part is copied.
        sync(descriptor, path=target)


def _append_file(descriptor: int, source: OpenLocalFile, target: Path, pace: Pace) -> None:
    position, size = 0, source.size_bytes
    try:
        while position < size:  # The kernel copies; some file systems share the blocks instead.
            count = os.copy_file_range(source.descriptor, descriptor, min(COPY_BYTES, size - position), position)
            if count == 0:
                break
            pace.take(2 * count)
            position += count
    except OSError as problem:
        if problem.errno not in (errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM, errno.EBADF):
            raise storage_error(target, problem, operation="copy", needed_bytes=size - position) from None
    while data := source.read(COPY_BYTES, position):
        write_all(descriptor, data, path=target)
        pace.take(2 * len(data))
        position += len(data)


def _staged_bytes(name: str, path: Path, dir_fd: int, data: bytes) -> StagedFile:
    with closed_after(create(path, dir_fd=dir_fd)) as descriptor:
        write_all(descriptor, data, path=path)
        sync(descriptor, path=path)
    with open_regular(path, dir_fd=dir_fd) as opened, storage_errors(path, "read back"):
        # Read from the disk, not from the page cache.
        os.posix_fadvise(opened.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        written = opened.read(len(data) + 1, 0)
    if written != data:
        raise CorruptDataError(file=path, problem=READ_BACK_MISMATCH)
    return StagedFile(name=name, staged_as=path.name, size_bytes=len(data), crc32c=crc32c(data))
