"""Copies the files of a directory with their attributes, and gives the staged files of cleaned segments their names.

Both directories are held open: their paths may lead elsewhere by now.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from kcompact.clean.staged_files import READ_BACK_MISMATCH, CleanedSegment, StagingDirectory, create, sync, write_all
from kcompact.errors import CorruptBatchError, CorruptDataError, LogChangedError, storage_error, storage_errors
from kcompact.format.checksum import crc32c
from kcompact.format.index import MAX_RELATIVE_OFFSET, build_txn_index
from kcompact.format.names import MAX_OFFSET, Suffix, parse_file_name
from kcompact.host.descriptors import closed_after
from kcompact.log.files import FileIdentity, LogFile, open_regular
from kcompact.log.index_files import build_indexes
from kcompact.log.segment_reader import verified_runs
from kcompact.log.segments import Segment
from kcompact.log.transaction_index import Transactions
from kcompact.log.transactions import read_transaction_tables
from kcompact.swap.attributes import copy_status, modified_ns
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.steps import Remove, RemoveDir, Rename
from kcompact.values import dataclass

_COPY_BYTES = 16 << 20
"""A request to stop is looked at after this many bytes."""
STAGING = "staging"
"""The directory for the files of cleaned segments, in a copy that is not complete."""
_BUILT = (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)
"""The files that `_build_missing_indexes` writes."""


@dataclass(slots=True, kw_only=True)
class UnfinishedCopy:
    """A directory to fill, held open. `outcome` is for the caller: `Output.finished` returns it in a later run.

    `files` are those to copy. With `index_interval_bytes`, indexes are not copied but built from the batches.
    `growing` is the active segment of a running broker.
    """

    directory: OpenDirectory
    source: OpenDirectory
    files: tuple[FileIdentity, ...]
    index_interval_bytes: int | None = None
    growing: Segment | None = None
    outcome: dict[str, Any] = field(default_factory=dict)

    def make_staging(self) -> StagingDirectory:
        """Make a directory for the files of cleaned segments, which `fill` moves into the copy. `fill` removes it.

        What a killed worker has left there must not get into the copy, nor what a lost worker still makes.
        """
        os.mkdir(STAGING, 0o700, dir_fd=self.directory.fd())
        path = Path(os.fspath(self.directory.path))  # Also for workers: a scratch directory is that of this process.
        return StagingDirectory.of(path / STAGING, self.directory.fd(STAGING))

    def fill(self, cleaned: Sequence[CleanedSegment] = (), check: Callable[[], None] = lambda: None) -> None:
        """Complete the directory, with the staged files of `cleaned`; with none it becomes an exact copy.

        Copies every file that no cleaned segment replaces, and gives the staged files their names, times, modes and, as
        root, owners. `check` may raise an exception to stop. Raises RefusedError, StorageError, NotEnoughSpaceError.

        Beside a running broker the beginning of the active segment's files is copied, in the sizes of `files`. All
        other files of segments must be those of `files`. Raises LogChangedError otherwise.
        """
        source, target, growing = self.source, self.directory, self.growing
        left_out = {file.name for segment in cleaned for file in segment.replaces}
        if self.index_interval_bytes is not None:
            left_out |= {file.name for file in self.files if file.name.endswith(_BUILT)}
        grows = set() if growing is None else {file.name for file in growing.files}
        for file in self.files:
            if file.name in left_out:
                continue
            if file.name in grows:
                _copy_file(source, target, file.name, check, beginning=file)
            else:
                # Small files, such as `leader-epoch-checkpoint`, are replaced whole.
                is_fixed = growing is not None and parse_file_name(file.name) is not None
                _copy_file(source, target, file.name, check, identity=file if is_fixed else None)
        if growing is not None:
            _require_whole(target, growing)
        for segment in cleaned:
            apply_steps(target, [Rename(f"{STAGING}/{file.staged_as}", file.name) for file in segment.files])
            _set_attributes(source, target, segment)
        if cleaned:
            left = sorted(target.names(STAGING))
            apply_steps(target, [*(Remove(f"{STAGING}/{name}") for name in left), RemoveDir(STAGING)])
        if self.index_interval_bytes is not None:
            _build_missing_indexes(target, interval_bytes=self.index_interval_bytes)


def _build_missing_indexes(directory: OpenDirectory, *, interval_bytes: int) -> None:
    """Write the indexes of each log without an `.index` in a directory that no process reads yet.

    They get the times, mode and owner of the log. Raises CorruptBatchError, StorageError, NotEnoughSpaceError.
    """
    transactions = Transactions()
    present = directory.names()
    for name in sorted(name for name in present if name.endswith(Suffix.LOG)):
        log = LogFile.at(f"/proc/self/fd/{directory.fd()}/{name}")
        with open_regular(directory.path / name, dir_fd=directory.fd()) as opened:
            end_position = opened.size_bytes
            aborted = transactions.entries(read_transaction_tables(log, end_position=end_position))
            if log.with_suffix(Suffix.INDEX).name in present:
                continue
            offset_index, time_index = build_indexes(log, interval_bytes=interval_bytes)
            built = {Suffix.INDEX: offset_index, Suffix.TIME_INDEX: time_index}
            if aborted:
                built[Suffix.TXN_INDEX] = build_txn_index(aborted)
            for suffix, data in built.items():
                path = (directory.path / name).with_suffix(suffix)
                with closed_after(create(path, dir_fd=directory.fd())) as descriptor:
                    write_all(descriptor, data, path=path)
                    copy_status(opened.descriptor, descriptor, with_times=True)
                    sync(descriptor, path=path)
                _require_content(directory, path.name, crc32c(data))


def _require_whole(target: OpenDirectory, growing: Segment) -> None:
    """Raise LogChangedError unless the copied part of an active segment is whole batches.

    A broker that follows another one can cut its log and write other batches in their place.
    """
    path = target.path / growing.log_name
    limit = min(MAX_OFFSET, growing.base_offset + MAX_RELATIVE_OFFSET + 1)
    held = LogFile.at(f"/proc/self/fd/{target.fd()}/{growing.log_name}")
    try:
        for _ in verified_runs(held, base_offset=0, end_offset=limit, end_position=growing.size_bytes):
            pass
    except CorruptBatchError as problem:
        raise LogChangedError(path=path, problem=f"the source was changed while it was copied: {problem}") from None


def _copy_file(
    source: OpenDirectory,
    target: OpenDirectory,
    name: str,
    check: Callable[[], None],
    *,
    beginning: FileIdentity | None = None,
    identity: FileIdentity | None = None,
) -> None:
    """Copy content, mode, times, extended attributes and, as root, the owner; then sync and read back.

    With `identity` the source must be that file. With `beginning` it must be that file too, but may have grown, and
    only the size of `beginning` is copied.
    """
    check()
    path = target.path / name
    crc = 0
    left_bytes = sys.maxsize if beginning is None else beginning.size_bytes
    with open_regular(source.path / name, dir_fd=source.fd(), identity=identity) as opened:
        if beginning is not None and opened.status.st_ino != beginning.inode:
            raise LogChangedError(path=source.path / name, problem="was replaced since the plan was made")
        try:
            with closed_after(create(path, dir_fd=target.fd())) as descriptor:
                while data := os.read(opened.descriptor, min(_COPY_BYTES, left_bytes)):
                    left_bytes -= len(data)
                    crc = crc32c(data, crc)
                    write_all(descriptor, data, path=path)
                    check()
                with storage_errors(path):
                    copy_status(opened.descriptor, descriptor, with_times=True)
                sync(descriptor, path=path)
        except OSError as problem:
            raise storage_error(source.path / name, problem, operation="read") from None
    if beginning is not None and left_bytes:
        raise LogChangedError(path=source.path / name, problem="became shorter while it was copied")
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
    with source.opened(cleaned.replaces[0].name) as model:
        for file in cleaned.files:
            with target.opened(file.name) as descriptor:
                copy_status(model, descriptor)
                if Path(file.name).suffix != Suffix.TXN_INDEX:
                    os.utime(descriptor, ns=(modified_ns(cleaned), modified_ns(cleaned)))
                os.fsync(descriptor)
