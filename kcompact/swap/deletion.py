"""Whole segments deleted because retention asks for it, and the leader epochs that follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kcompact.format.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    build_leader_epochs,
    leader_epochs_from,
    parse_leader_epochs,
)
from kcompact.log.files import FileIdentity, read_file
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.replace import require_as_planned
from kcompact.swap.rounds import require_nothing_unfinished
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import DELETED, Remove, removal_steps


def remove_segment(partition_dir: Path, files: Sequence[FileIdentity], lock_check: Callable[[], None]) -> None:
    """Delete one segment, the oldest of the log, with its snapshot. Raises LogChangedError if a file was changed."""
    with OpenDirectory(partition_dir) as directory:
        require_nothing_unfinished(directory, directory.names())
        require_as_planned(directory, files)
        lock_check()
        stale = [file.name + DELETED for file in files if directory.status(file.name + DELETED) is not None]
        apply_steps(directory, (*(Remove(name) for name in stale), *removal_steps([file.name for file in files])), None)


def start_leader_epochs_at(partition_dir: Path, start_offset: int) -> None:
    """Let `leader-epoch-checkpoint` start where the log starts after its first segments were deleted.

    Rule: UnifiedLog.maybeIncrementLogStartOffset, LeaderEpochFileCache.truncateFromStart.
    """
    with OpenDirectory(partition_dir) as directory:
        if directory.size(LEADER_EPOCH_CHECKPOINT) is None:
            return
        path = partition_dir / LEADER_EPOCH_CHECKPOINT
        entries = parse_leader_epochs(read_file(path), file=str(path))
        content = build_leader_epochs(leader_epochs_from(entries, start_offset))
        write_small_file(directory, LEADER_EPOCH_CHECKPOINT, content, mode=0o644, model=LEADER_EPOCH_CHECKPOINT)
