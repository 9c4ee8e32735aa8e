"""What stops a cleaning, found out before anything is written.

The run and the dry run call the same function, so a dry run ends with the error that the run would end with. Nothing
is tried here: the run also finds out by doing. The free space is checked by `space`, because it needs the sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.errors import KcompactError, NotEnoughSpaceError, RefusedError, UnsupportedError, storage_errors
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT
from kcompact.format.names import Suffix
from kcompact.host.disk import Disk, Storage
from kcompact.log.directory import PartitionLog
from kcompact.log.lock import LogDirLock, require_lockable
from kcompact.log.small_files import small_file_problems
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import ExpiredSegment, due_now
from kcompact.remarks import Note, RemarkCode
from kcompact.swap.attributes import require_same_owners
from kcompact.swap.checkpoint import require_checkpoint
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.protection import require_project, require_replaceable, require_unprotected
from kcompact.swap.staging import require_stageable, require_writable
from kcompact.swap.steps import stale_deleted_names


def obstacle(
    plan: CleanPlan, options: CleanOptions, *, lock: LogDirLock | None = None, on_other_machines: bool = False
) -> KcompactError | None:
    """Return the error that stops what `options` want done with a partition, None if nothing does.

    With the held `lock`, what concerns the whole log directory is found out once. `on_other_machines`: the workers of a
    cluster need shared storage, so it is no obstacle.

    A lock that another process holds is not an obstacle here: the run takes the lock before it plans. The output of
    copies is checked by `copies.output_of`, for all partitions together.
    """
    try:
        with storage_errors(plan.log.directory):
            if options.output is None:
                _require_changeable(plan, options, lock, on_other_machines=on_other_machines)
    except KcompactError as problem:
        return problem
    return None


def _require_changeable(
    plan: CleanPlan, options: CleanOptions, lock: LogDirLock | None, *, on_other_machines: bool
) -> None:
    log_dir = plan.log.log_dir.path
    if lock is None:
        require_lockable(log_dir)
    expired = due_now(plan) if options.apply_retention else ()
    to_clean = options.turn(plan)
    if (to_clean.eligible or expired) and not on_other_machines:
        require_own_storage(plan.log.directory)
    if to_clean.eligible:
        with OpenDirectory(plan.log.directory) as directory:
            _require_one_layer(directory, plan.log)
            require_stageable(directory)
            require_same_owners(directory, _models(to_clean))
            require_unprotected(directory, _renamed(to_clean))
            require_project(directory, _renamed(to_clean))
    if expired:
        _require_space_to_rename(plan.log, expired)
        with OpenDirectory(plan.log.directory) as directory:
            _require_one_layer(directory, plan.log)
            require_writable(directory)
            require_unprotected(directory, _deletable(plan.log, expired))
            require_project(directory, _deletable(plan.log, expired))
            require_replaceable(directory, LEADER_EPOCH_CHECKPOINT)
    if to_clean.eligible or (to_clean.checkpoint_reset and plan.config.compacts):
        if lock is None:
            require_checkpoint(log_dir)
        else:
            lock.once("checkpoint can be written", lambda: require_checkpoint(log_dir))


def require_known_versions(log: PartitionLog) -> None:
    """Raise UnsupportedError for a small file of a version that is unknown: it may change what the records mean.

    A damaged one stops no cleaning: of these files a cleaning writes only the leader epochs, after retention.
    """
    for problem in small_file_problems(log):
        if isinstance(problem, UnsupportedError):
            raise problem


def require_own_storage(directory: Path) -> None:
    """Raise RefusedError for a directory on a network file system or one of user space."""
    storage = Storage.of(directory)
    if storage.is_shared:
        raise RefusedError(
            path=directory,
            problem=f"is on a file system of the kind {storage.kind}, where kcompact changes nothing",
            hint="Its locks may not keep a broker on another machine out, and its syncs may not be on a disk. Run "
            "kcompact where the disk is, or write a compacted copy with --output DIR.",
        )


def _require_one_layer(directory: OpenDirectory, log: PartitionLog) -> None:
    """Raise RefusedError on an overlay whose files are on another file system than its directories."""
    devices = {file.device for segment in log.segments for file in segment.files}
    if devices != {directory.device} and Storage.of(log.directory).is_overlay:
        raise RefusedError(
            path=log.directory,
            problem="is on an overlay of several file systems, where kcompact changes nothing",
            hint="What a rename does there cannot be told. Write a compacted copy with --output DIR.",
        )


def _require_space_to_rename(log: PartitionLog, expired: Iterable[ExpiredSegment]) -> None:
    """Raise NotEnoughSpaceError if an overlay has no space for copies of files to delete: their rename makes them."""
    disk = Disk.of(log.directory)
    needed_bytes = sum(disk.file_bytes(file.size_bytes) for due in expired for file in log.files_of(due.segment))
    needed_bytes += disk.storage.unusable_bytes
    if disk.storage.is_overlay and needed_bytes > disk.free_bytes:
        raise NotEnoughSpaceError(path=log.directory, needed_bytes=needed_bytes, free_bytes=disk.free_bytes)


def storage_notes(directories: Iterable[Path]) -> Iterator[Note]:
    """Yield notes on the file systems of log directories that a cleaning changes."""
    for directory in directories:
        storage = Storage.of(directory)
        if storage.is_overlay:
            yield Note.of(RemarkCode.OVERLAY_STORAGE, path=directory, kind=storage.kind)
        elif storage.is_shared:
            yield Note.of(RemarkCode.SHARED_STORAGE, path=directory, kind=storage.kind)


def _renamed(plan: CleanPlan) -> Iterator[str]:
    """Yield the files that the swaps set aside, and what a broker has left under the names that they then get."""
    present = [file.name for segment in plan.segments for file in segment.files]
    end_offset = plan.log.end_of(plan.segments[-1])
    present += [file.name for offset, file in plan.log.snapshots.items() if offset < end_offset]
    yield from present
    yield from stale_deleted_names(present, plan.log.deleted)


def _deletable(log: PartitionLog, expired: Iterable[ExpiredSegment]) -> Iterator[str]:
    """Yield the files that retention deletes, and what a broker has left under the names that they get before."""
    names = [file.name for due in expired for file in log.files_of(due.segment)]
    yield from names
    yield from stale_deleted_names(names, log.deleted)


def _models(plan: CleanPlan) -> Iterator[str]:
    """Yield the files whose owners the new files get: the first of each kind in a group (`attributes.carry_over`)."""
    for group in plan.groups:
        names = [file.name for segment in group for file in segment.files]
        for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX):
            yield from [name for name in names if name.endswith(suffix)][:1]
