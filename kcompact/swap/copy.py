"""A compacted copy of a partition in another directory; the source is only read.

The copy is made under another name and renamed when it is complete and synced, so that a partition directory in the
output is always whole. What a broker needs beside it (checkpoints, `meta.properties`, the mark of a clean shutdown) is
copied too, so that one can be started on the output.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from kcompact.clean.executor import Executor
from kcompact.clean.groups import Written, write_groups
from kcompact.clean.join import COPY_BYTES
from kcompact.clean.prepare import PreparedClean
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
from kcompact.swap import copy
from kcompact.swap.attributes import modified_ns
from kcompact.swap.checkpoint import write_checkpoint
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.replace import require_unchanged
from kcompact.swap.steps import Rename, Replacement, SyncDir

# --- A copy in another directory ------------------------------------------------------------------------


def place_new(target: Path, cleaned: Replacement) -> None:
    """Give the staged files of one group their names, in a new directory that nobody reads yet."""
    with OpenDirectory(target) as directory:
        renamed = [Rename(file.staged_as, file.name) for file in cleaned.files if file.staged_as != file.name]
        apply_steps(directory, renamed, None)


def publish(unfinished: Path, final: Path) -> None:
    """Give a complete directory its name, durably; both have the same parent. Raises RefusedError if it is taken."""
    with OpenDirectory(unfinished) as directory:
        apply_steps(directory, (SyncDir(),), None)
    with OpenDirectory(final.parent, follow=True) as parent:
        try:
            apply_steps(parent, (Rename(unfinished.name, final.name), SyncDir()), None)
        except FileExistsError:
            raise RefusedError(path=final, problem="exists already") from None


def write_cleaned(prepared: PreparedClean, output: Path, executor: Executor) -> Written:
    """Write the cleaned partition into a new directory of `output`. Raises RefusedError when there is one already."""
    plan = prepared.plan
    with _new_partition(plan.log, output, checkpoint_offset=plan.first_uncleanable_offset) as target:
        written = write_groups(prepared, range(len(plan.groups)), str(target), executor)
        replaced = {file.name for segment in written.segments for file in segment.replaces}
        _copy_files(plan.log, target, (file for file in _own_files(plan.log) if file.name not in replaced))
        for segment in written.segments:
            copy.place_new(target, segment)
            copy_attributes(plan.log, target, segment)
    return written


def copy_partition(log: PartitionLog, output: Path) -> None:
    """Copy a partition that needs no cleaning as it is."""
    with _new_partition(log, output, checkpoint_offset=log.checkpoint_offset) as target:
        _copy_files(log, target, _own_files(log))


@contextmanager
def _new_partition(log: PartitionLog, output: Path, *, checkpoint_offset: int | None) -> Iterator[Path]:
    """Yield a new directory to fill; afterwards give it its name, between its checkpoints.

    Until then it is named like a directory that a broker has marked for deletion: one that starts on the output takes
    it for that, where any other name would keep it from starting.
    """
    final = output / log.directory.name
    if final.exists() or final.is_symlink():
        raise RefusedError(
            path=final, problem="exists already", hint="Pass an --output directory that has no such partition."
        )
    source = log.log_dir.path.resolve() if log.log_dir.is_log_dir else log.directory
    if output.resolve().is_relative_to(source):
        raise RefusedError(path=output, problem="lies inside the directory that it is to be a copy of")
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
            copy.publish(target, final)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        # Last, as always: a checkpoint must not be ahead of its log.
        if checkpoint_offset is not None:
            write_checkpoint(output, log.topic_partition, checkpoint_offset)


def _lock_of(output: Path) -> AbstractContextManager[object]:
    """Return the lock of the output where it is, or looks like, a broker's directory."""
    is_brokers = (output / LOCK_NAME).exists() or read_log_dir(output).is_log_dir
    return log_dir_lock(output) if is_brokers else nullcontext()


def _own_files(log: PartitionLog) -> list[FileIdentity]:
    """Return every file of the partition that a broker reads, and no other."""
    files = [file for segment in log.segments for file in segment.files]
    files += [log.snapshots[offset] for offset in sorted(log.snapshots)]
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        path = log.directory / name
        if path.exists():
            files.append(FileIdentity.of(name, path.lstat()))
    return files


def _copy_files(log: PartitionLog, target: Path, files: Iterable[FileIdentity]) -> None:
    for file in files:
        _copy_file(log.directory / file.name, target / file.name)


def _copy_file(source: Path, target: Path) -> None:
    """Copy content, mode, times, attributes and, as root, the owner; synced."""
    try:
        descriptor = create(target)
        try:
            with source.open("rb") as reader:
                while data := reader.read(COPY_BYTES):
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


def copy_attributes(log: PartitionLog, target: Path, cleaned: CleanedSegment) -> None:
    """Give new files the mode and time they would have had in place and, as root, the owner."""
    model = (log.directory / cleaned.replaces[0].name).stat()
    for file in cleaned.files:
        path = target / file.name
        if os.geteuid() == 0:
            os.chown(path, model.st_uid, model.st_gid)
        path.chmod(stat.S_IMODE(model.st_mode))
        if path.suffix != Suffix.TXN_INDEX:
            os.utime(path, ns=(modified_ns(cleaned), modified_ns(cleaned)))


def _copy_log_dir_files(log: PartitionLog, output: Path) -> None:
    """Bring the partition's entries of the checkpoints, and what marks a log directory, into the output."""
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
