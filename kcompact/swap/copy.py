"""A compacted copy of a partition in another directory. The source is only read.

The copy is made under another name and renamed when it is complete and synced, so a partition directory in the output
is always whole. Checkpoints, `meta.properties` and the clean shutdown file are copied too, so a broker can be started
on the output.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment, create, sync, write_all
from kcompact.errors import RefusedError, StorageError
from kcompact.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kcompact.format.names import DirectoryKind, PartitionDirectoryName, Suffix
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kcompact.log.directory import PartitionLog, read_log_dir
from kcompact.log.files import FileIdentity
from kcompact.log.lock import LOCK_NAME, log_dir_lock
from kcompact.swap.attributes import modified_ns
from kcompact.swap.checkpoint import write_checkpoint
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.replace import require_unchanged
from kcompact.swap.steps import Rename, SyncDir

_COPY_BYTES = 64 << 20


# --- The directory of the copy --------------------------------------------------------------------------


@contextmanager
def new_partition(log: PartitionLog, output: Path, *, checkpoint_offset: int | None) -> Iterator[Path]:
    """Yield a new directory in `output` to fill; after the block give it the partition's name and its checkpoints.

    Until then the name of the directory is that of a directory which a broker has marked for deletion. A broker that
    starts on the output accepts such a name; with another name it would not start. If the block raises, the directory
    is removed. `checkpoint_offset` becomes the cleaner's checkpoint; None writes none.

    Raises RefusedError if `output` has the partition already or lies inside the source; LogChangedError if the source
    has changed since the plan was made; LogDirLockedError, StorageError.
    """
    final = output / log.directory.name
    _require_output(log, output, final)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StorageError(path=output, problem=problem) from None
    with _lock_of(output):
        unfinished = PartitionDirectoryName(
            topic_partition=log.topic_partition, kind=DirectoryKind.DELETE, unique_id=secrets.token_hex(16)
        )
        target = output / str(unfinished)
        target.mkdir(mode=0o700)
        try:
            yield target
            require_unchanged(log.directory, (file for segment in log.segments for file in segment.files))
            shutil.copystat(log.directory, target)
            _copy_log_dir_files(log, output)
            _publish(target, final)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        # Last, because a checkpoint must not be ahead of its log.
        if checkpoint_offset is not None:
            write_checkpoint(output, log.topic_partition, checkpoint_offset)


def _require_output(log: PartitionLog, output: Path, final: Path) -> None:
    if final.exists() or final.is_symlink():
        raise RefusedError(
            path=final, problem="exists already", hint="Pass an --output directory that has no such partition."
        )
    source = log.log_dir.path.resolve() if log.log_dir.is_log_dir else log.directory
    if output.resolve().is_relative_to(source):
        raise RefusedError(
            path=output,
            problem=f"is inside {source}, the directory to copy from",
            hint="Pass an --output directory outside of it.",
        )


def _lock_of(output: Path) -> AbstractContextManager[object]:
    """Return the lock of the output if a broker uses the output or has used it, else a lock that does nothing."""
    is_used = (output / LOCK_NAME).exists() or read_log_dir(output).is_log_dir
    return log_dir_lock(output) if is_used else nullcontext()


def _publish(unfinished: Path, final: Path) -> None:
    """Rename a complete directory to its final name, durably. Raises RefusedError if the name exists."""
    with OpenDirectory(unfinished) as directory:
        apply_steps(directory, (SyncDir(),))
    with OpenDirectory(final.parent, follow=True) as parent:
        try:
            apply_steps(parent, (Rename(unfinished.name, final.name), SyncDir()))
        except FileExistsError:
            raise RefusedError(
                path=final, problem="exists already", hint="Pass an --output directory that has no such partition."
            ) from None


# --- The files of the copy ------------------------------------------------------------------------------------------


def fill(log: PartitionLog, target: Path, cleaned: Sequence[CleanedSegment]) -> None:
    """Complete a directory that holds the staged files of `cleaned`; with none it becomes an exact copy.

    Copies every file of the partition that no cleaned segment replaces, and gives the staged files their names, times,
    modes and, as root, owners. Raises StorageError, NotEnoughSpaceError.
    """
    replaced = {file.name for segment in cleaned for file in segment.replaces}
    for file in _broker_files(log):
        if file.name not in replaced:
            _copy_file(log.directory / file.name, target / file.name)
    for segment in cleaned:
        _name_staged_files(target, segment)
        _set_attributes(log, target, segment)


def copy_partition(log: PartitionLog, output: Path) -> None:
    """Copy a partition that needs no cleaning as it is. Raises as `new_partition` and `fill` do."""
    with new_partition(log, output, checkpoint_offset=log.checkpoint_offset) as target:
        fill(log, target, ())


def _broker_files(log: PartitionLog) -> list[FileIdentity]:
    """Return the files of the partition that a broker reads."""
    files = [file for segment in log.segments for file in segment.files]
    files += [log.snapshots[offset] for offset in sorted(log.snapshots)]
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        path = log.directory / name
        if path.exists():
            files.append(FileIdentity.of(name, path.lstat()))
    return files


def _copy_file(source: Path, target: Path) -> None:
    """Copy content, mode, times, extended attributes and, as root, the owner; then sync."""
    try:
        descriptor = create(target)
        try:
            with source.open("rb") as reader:
                while data := reader.read(_COPY_BYTES):
                    write_all(descriptor, data, path=target)
            shutil.copystat(source, target, follow_symlinks=False)
            if os.geteuid() == 0:
                status = source.stat()
                os.fchown(descriptor, status.st_uid, status.st_gid)
            sync(descriptor, path=target)
        finally:
            os.close(descriptor)
    except OSError as problem:
        raise StorageError(path=source, problem=problem) from None


def _name_staged_files(target: Path, cleaned: CleanedSegment) -> None:
    """Rename the staged files of one group to their final names, in a directory that no process reads yet."""
    with OpenDirectory(target) as directory:
        apply_steps(
            directory, [Rename(file.staged_as, file.name) for file in cleaned.files if file.staged_as != file.name]
        )


def _set_attributes(log: PartitionLog, target: Path, cleaned: CleanedSegment) -> None:
    """Give new files the mode and the time that a swap gives them and, as root, the owner."""
    model = (log.directory / cleaned.replaces[0].name).stat()
    for file in cleaned.files:
        path = target / file.name
        if os.geteuid() == 0:
            os.chown(path, model.st_uid, model.st_gid)
        path.chmod(stat.S_IMODE(model.st_mode))
        if path.suffix != Suffix.TXN_INDEX:
            os.utime(path, ns=(modified_ns(cleaned), modified_ns(cleaned)))


# --- The files beside the copy --------------------------------------------------------------------------------


def _copy_log_dir_files(log: PartitionLog, output: Path) -> None:
    """Write the partition's entries into the output's checkpoints, and copy the files that mark a log directory."""
    source = log.log_dir
    for name, entries in (
        (RECOVERY_POINT_CHECKPOINT, source.recovery_points),
        (LOG_START_OFFSET_CHECKPOINT, source.log_start_offsets),
        (REPLICATION_OFFSET_CHECKPOINT, source.high_watermarks),
    ):
        if entries is not None and log.topic_partition in entries:
            write_checkpoint(output, log.topic_partition, entries[log.topic_partition], name=name)
    for name in (META_PROPERTIES, CLEAN_SHUTDOWN_FILE):
        if (source.path / name).exists() and not (output / name).exists():
            _copy_file(source.path / name, output / name)
