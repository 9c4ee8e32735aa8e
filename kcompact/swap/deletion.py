"""Whole segments deleted by retention, and the leader epochs that start at the new log start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kcompact.errors import storage_error
from kcompact.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    build_leader_epochs,
    leader_epochs_from,
    parse_leader_epochs,
)
from kcompact.log.files import FileIdentity, read_file
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.recovery.leftovers import require_nothing_unfinished
from kcompact.swap.replace import require_unchanged
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, Rename, Step, removal_steps, stale_deleted_names


def remove_segment(directory: OpenDirectory, files: Sequence[FileIdentity], lock_check: Callable[[], None]) -> None:
    """Delete the files of one segment, the oldest of the log, with its snapshot.

    Raises with nothing changed: RecoveryNeededError if a swap is unfinished, LogChangedError if a file differs from
    the plan or the lock is lost. Raises StorageError if a step fails; if that is after the `.log` was set aside, the
    error says so. The log is valid after each step (`removal_steps`).
    """
    present = directory.names()
    require_nothing_unfinished(directory, present)
    require_unchanged(directory, files)
    lock_check()
    names = [file.name for file in files]
    stale = stale_deleted_names(names, present)
    done: list[Step] = []
    try:
        apply_steps(directory, (*(Remove(name) for name in stale), *removal_steps(names)), done.append)
    except OSError as error:
        if not any(isinstance(step, Rename) for step in done):
            raise  # Every file of the segment has its name.
        failed = ", ".join(getattr(error, "__notes__", ()))
        operation = f"delete a segment by retention, stopped after its .log was set aside; the log is valid ({failed})"
        raise storage_error(directory.path / names[0], error, operation=operation) from error


def start_leader_epochs_at(directory: OpenDirectory, start_offset: int) -> None:
    """Rewrite `leader-epoch-checkpoint` so that it starts at the new log start. Does nothing if the file is missing.

    Rule: UnifiedLog.maybeIncrementLogStartOffset, LeaderEpochFileCache.truncateFromStart.
    """
    if directory.size(LEADER_EPOCH_CHECKPOINT) is None:
        return
    path = directory.path / LEADER_EPOCH_CHECKPOINT
    entries = parse_leader_epochs(read_file(path, dir_fd=directory.fd()), file=str(path))
    content = build_leader_epochs(leader_epochs_from(entries, start_offset))
    write_small_file(directory, LEADER_EPOCH_CHECKPOINT, content, mode=0o644, model=LEADER_EPOCH_CHECKPOINT)
