"""The staging directory of a round: created, described by a manifest, discarded."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from kcompact.errors import RecoveryNeededError, RefusedError
from kcompact.format.names import TopicPartition
from kcompact.log.directory import STAGING_NAME
from kcompact.swap import manifest as manifest_format
from kcompact.swap.attributes import give_to_owner
from kcompact.swap.manifest import Group, Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.rounds import groups_under_way, require_nothing_unfinished, staged_rounds
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Observer, Remove, RemoveDir, Replacement, Step, SyncDir

# --- Staging --------------------------------------------------------------------------------------------


def create_staging(partition_dir: Path) -> str:
    """Make this round's staging directory in the partition directory and return its name.

    Hidden, new, mode 0700, on the same file system. The broker ignores sub-directories. Raises RefusedError
    if the partition directory is a symbolic link or, for root, one that others may write to.
    """
    with OpenDirectory(partition_dir) as directory:
        parent = os.fstat(directory.fd())
        if os.geteuid() == 0 and parent.st_mode & 0o022:
            raise RefusedError(
                path=partition_dir,
                problem="other users may write to this directory, so root will not work in it",
                hint="Run as the directory's owner, or take the write permission of group and others away.",
            )
        name = f".kcompact-{secrets.token_hex(8)}"
        try:
            os.mkdir(name, 0o700, dir_fd=directory.fd())
        except OSError as error:
            raise RefusedError(path=partition_dir, problem=f"cannot be written to: {error.strerror}") from error
        if os.fstat(directory.fd(name)).st_dev != parent.st_dev:
            apply_steps(directory, (RemoveDir(name),), None)
            raise RefusedError(path=partition_dir / name, problem="is not on the partition's file system")
        # Root may be interrupted; whoever owns the partition must be able to recover.
        give_to_owner(directory, directory.fd(name))
        return name


# --- The manifest: what recovery needs to know ----------------------------------------------------------


def write_manifest(
    partition_dir: Path,
    staging: str,
    segments: Sequence[Replacement],
    *,
    topic_partition: TopicPartition,
    end_offset: int | None,
) -> None:
    """Write and sync the manifest of the groups that are completely staged, then the directories.

    Every `replace` needs its group in the manifest on the disk. A round that stages in waves writes it
    again for each wave, with `end_offset` None but for the last. Never while a swap is unfinished.
    """
    groups = tuple(
        Group(base_offset=one.base_offset, files=tuple(one.files), replaces=tuple(one.replaces)) for one in segments
    )
    manifest = Manifest(topic_partition=topic_partition, end_offset=end_offset, pid=os.getpid(), groups=groups)
    problem = manifest_format.inconsistency(manifest)
    assert problem is None, problem
    content = manifest_format.encode(manifest)
    if len(content) > manifest_format.MAX_BYTES:
        raise RefusedError(path=partition_dir, problem=f"too many segments: a manifest of {len(content):,} bytes")
    with OpenDirectory(partition_dir) as directory:
        write_small_file(directory, f"{staging}/{manifest_format.NAME}", content, mode=0o600)
        apply_steps(directory, (SyncDir(),), None)  # The staging directory itself.


def discard(partition_dir: Path, staging: str, *, after_step: Observer | None = None) -> None:
    """Remove this round's staging directory and nothing else; nothing to do if it is gone.

    Raises RecoveryNeededError, and removes nothing, while a swap is unfinished: its manifest is needed to
    recover.
    """
    assert STAGING_NAME.fullmatch(staging), staging
    with OpenDirectory(partition_dir) as directory:
        present = directory.names()
        if staging not in present:
            return
        require_nothing_unfinished(directory, present)
        manifest = staged_rounds(directory, (staging,))[staging]
        if manifest is not None and groups_under_way(directory, staging, manifest, present):
            raise RecoveryNeededError(path=partition_dir, problem="replaced files are not all deleted yet")
        apply_steps(directory, discard_steps(directory, staging), after_step)


def discard_steps(directory: OpenDirectory, staging: str) -> tuple[Step, ...]:
    inside = sorted(directory.names(staging))
    return (*(Remove(f"{staging}/{name}") for name in inside), RemoveDir(staging), SyncDir())
