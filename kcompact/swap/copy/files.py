"""Copies the files of a directory with their attributes, and gives the staged files of cleaned segments their names.

Both directories are held open: their paths may lead elsewhere by now.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from crc32c import crc32c

from kcompact.clean.staged_files import READ_BACK_MISMATCH, CleanedSegment, create, sync, write_all
from kcompact.errors import CorruptDataError, storage_error, storage_errors
from kcompact.format.index import build_txn_index
from kcompact.format.names import Suffix
from kcompact.log.files import FileIdentity, open_regular
from kcompact.log.index_files import build_indexes
from kcompact.log.transaction_batches import read_transactions
from kcompact.log.transaction_index import Transactions, aborted_by_markers
from kcompact.swap.attributes import copy_status, copy_times, modified_ns, opened_model
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.steps import Rename

_COPY_BYTES = 16 << 20
"""A request to stop is looked at after this many bytes."""


def fill(
    source: OpenDirectory,
    files: Iterable[FileIdentity],
    target: OpenDirectory,
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
            _copy_file(source, target, file.name, check)
    for segment in cleaned:
        staged = (file for file in segment.files if file.staged_as != file.name)
        apply_steps(target, [Rename(file.staged_as, file.name) for file in staged])
        _set_attributes(source, target, segment)


def is_rebuilt_index(name: str) -> bool:
    """Return whether a name is that of an index which `build_missing_indexes` can write."""
    return name.endswith((Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX))


def build_missing_indexes(directory: OpenDirectory, *, interval_bytes: int) -> None:
    """Write the indexes of each log without an `.index` in a directory that no process reads yet.

    They get the times, mode and owner of the log. Raises CorruptBatchError, StorageError, NotEnoughSpaceError.
    """
    transactions = Transactions()
    present = directory.names()
    held = Path(f"/proc/self/fd/{directory.fd()}")
    for name in sorted(name for name in present if name.endswith(Suffix.LOG)):
        log = held / name
        with open_regular(directory.path / name, dir_fd=directory.fd()) as reader:
            end_position = os.fstat(reader).st_size
            aborted = aborted_by_markers(transactions, read_transactions(log, end_position=end_position))
            if log.with_suffix(Suffix.INDEX).name in present:
                continue
            offset_index, time_index = build_indexes(log, interval_bytes=interval_bytes)
            built = {Suffix.INDEX: offset_index, Suffix.TIME_INDEX: time_index}
            if aborted:
                built[Suffix.TXN_INDEX] = build_txn_index(aborted)
            for suffix, data in built.items():
                path = (directory.path / name).with_suffix(suffix)
                descriptor = create(path, dir_fd=directory.fd())
                try:
                    write_all(descriptor, data, path=path)
                    copy_status(reader, descriptor)
                    copy_times(reader, descriptor)
                    sync(descriptor, path=path)
                finally:
                    os.close(descriptor)
                _require_content(directory, path.name, int(crc32c(data)))


def _copy_file(source: OpenDirectory, target: OpenDirectory, name: str, check: Callable[[], None]) -> None:
    """Copy content, mode, times, extended attributes and, as root, the owner; then sync and read back."""
    check()
    path = target.path / name
    crc = 0
    with open_regular(source.path / name, dir_fd=source.fd()) as reader:
        try:
            descriptor = create(path, dir_fd=target.fd())
            try:
                while data := os.read(reader, _COPY_BYTES):
                    crc = int(crc32c(data, crc))
                    write_all(descriptor, data, path=path)
                    check()
                with storage_errors(path):
                    copy_status(reader, descriptor)
                    copy_times(reader, descriptor)
                sync(descriptor, path=path)
            finally:
                os.close(descriptor)
        except OSError as problem:
            raise storage_error(source.path / name, problem, operation="read") from None
    _require_content(target, name, crc, check)


def _require_content(target: OpenDirectory, name: str, expected: int, check: Callable[[], None] = lambda: None) -> None:
    """Raise CorruptDataError unless the disk returns a file with this CRC-32C."""
    path = target.path / name
    with storage_errors(path, "read back"):
        crc = target.digest(name, check)
    if crc != expected:
        raise CorruptDataError(
            file=path, problem=READ_BACK_MISMATCH, hint="Check the disk, or pass an --output directory on another one."
        )


def _set_attributes(source: OpenDirectory, target: OpenDirectory, cleaned: CleanedSegment) -> None:
    """Give new files the attributes and the time that a swap gives them and, as root, the owner."""
    with opened_model(source, cleaned.replaces[0].name) as model:
        for file in cleaned.files:
            descriptor = target.open(file.name, os.O_RDONLY)
            try:
                copy_status(model, descriptor)
                if Path(file.name).suffix != Suffix.TXN_INDEX:
                    os.utime(descriptor, ns=(modified_ns(cleaned), modified_ns(cleaned)))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
