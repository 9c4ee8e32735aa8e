"""Copies the files of a directory with their attributes, and gives the staged files of cleaned segments their names."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from crc32c import crc32c

from kcompact.clean.staged_files import READ_BACK_MISMATCH, CleanedSegment, create, sync, write_all
from kcompact.errors import CorruptDataError, storage_error, storage_errors
from kcompact.format.index import build_txn_index
from kcompact.format.names import Suffix
from kcompact.log.batch_headers import read_producer_headers
from kcompact.log.files import FileIdentity, open_regular, read_at
from kcompact.log.index_files import build_indexes
from kcompact.log.transaction_index import Transactions, aborted_by_markers
from kcompact.swap.attributes import modified_ns
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.steps import Rename

_COPY_BYTES = 16 << 20
"""A request to stop is looked at after this many bytes."""


def fill(
    source: Path,
    files: Iterable[FileIdentity],
    target: Path,
    cleaned: Sequence[CleanedSegment] = (),
    *,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Complete a directory that holds the staged files of `cleaned`; with none it becomes an exact copy of `files`.

    Copies every file that no cleaned segment replaces, and gives the staged files their names, times, modes and, as
    root, owners. `check` may raise an exception to stop. Raises RefusedError, StorageError, NotEnoughSpaceError.
    """
    replaced = {file.name for segment in cleaned for file in segment.replaces}
    for file in files:
        if file.name not in replaced:
            _copy_file(source / file.name, target / file.name, check)
    for segment in cleaned:
        _name_staged_files(target, segment)
        _set_attributes(source, target, segment)


def is_rebuilt_index(name: str) -> bool:
    """Return whether a name is that of an index which `build_missing_indexes` can write."""
    return name.endswith((Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX))


def build_missing_indexes(directory: Path, *, interval_bytes: int) -> None:
    """Write the indexes of each log without an `.index` in a directory that no process reads yet.

    They get the times, mode and owner of the log. Raises CorruptBatchError, StorageError, NotEnoughSpaceError.
    """
    transactions = Transactions()
    for log in sorted(directory.glob(f"*{Suffix.LOG}")):
        size_bytes = log.stat().st_size
        batches = read_producer_headers(log, end_position=size_bytes, compiled=False, transactions_only=True)
        aborted = aborted_by_markers(transactions, batches)
        if log.with_suffix(Suffix.INDEX).exists():
            continue
        offset_index, time_index = build_indexes(log, interval_bytes=interval_bytes)
        built = {Suffix.INDEX: offset_index, Suffix.TIME_INDEX: time_index}
        if aborted:
            built[Suffix.TXN_INDEX] = build_txn_index(aborted)
        for suffix, data in built.items():
            path = log.with_suffix(suffix)
            descriptor = create(path)
            try:
                write_all(descriptor, data, path=path)
                copy_status(log, path)
                sync(descriptor, path=path)
            finally:
                os.close(descriptor)
            _require_content(path, int(crc32c(data)))


def _copy_file(source: Path, target: Path, check: Callable[[], None]) -> None:
    """Copy content, mode, times, extended attributes and, as root, the owner; then sync and read back."""
    check()
    crc = 0
    with open_regular(source) as reader:
        try:
            descriptor = create(target)
            try:
                while data := os.read(reader, _COPY_BYTES):
                    crc = int(crc32c(data, crc))
                    write_all(descriptor, data, path=target)
                    check()
                with storage_errors(target):
                    copy_status(source, target)
                sync(descriptor, path=target)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise storage_error(source, problem, operation="read") from None
    _require_content(target, crc, check)


def _require_content(path: Path, expected: int, check: Callable[[], None] = lambda: None) -> None:
    """Raise CorruptDataError unless the disk returns a file with this CRC-32C."""
    crc, position = 0, 0
    with open_regular(path) as descriptor, storage_errors(path, "read back"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        while data := read_at(descriptor, _COPY_BYTES, position, path=path):
            crc, position = int(crc32c(data, crc)), position + len(data)
            check()
    if crc != expected:
        raise CorruptDataError(
            file=path, problem=READ_BACK_MISMATCH, hint="Check the disk, or pass an --output directory on another one."
        )


def copy_status(source: Path, target: Path) -> None:
    """Give a file or directory the mode, times, extended attributes and, as root, the owner of another one.

    Raises OSError.
    """
    if os.geteuid() == 0:
        status = source.stat()
        os.chown(target, status.st_uid, status.st_gid)
    # After the owner, because a new owner clears bits of the mode.
    shutil.copystat(source, target)


def _name_staged_files(target: Path, cleaned: CleanedSegment) -> None:
    """Rename the staged files of one group to their final names, in a directory that no process reads yet."""
    with OpenDirectory(target) as directory:
        apply_steps(
            directory, [Rename(file.staged_as, file.name) for file in cleaned.files if file.staged_as != file.name]
        )


def _set_attributes(source: Path, target: Path, cleaned: CleanedSegment) -> None:
    """Give new files the mode and the time that a swap gives them and, as root, the owner."""
    model = (source / cleaned.replaces[0].name).stat()
    for file in cleaned.files:
        path = target / file.name
        if os.geteuid() == 0:
            os.chown(path, model.st_uid, model.st_gid)
        path.chmod(stat.S_IMODE(model.st_mode))
        if path.suffix != Suffix.TXN_INDEX:
            os.utime(path, ns=(modified_ns(cleaned), modified_ns(cleaned)))
