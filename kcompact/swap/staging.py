"""The staging directory of a round: creates it, writes its manifest, removes it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import KcompactError, RecoveryNeededError, RefusedError, is_forbidden, storage_error
from kcompact.format.names import TopicPartition
from kcompact.host.access import remedy, why_not_writable
from kcompact.log.directory import STAGING_NAME
from kcompact.readable import shell_word
from kcompact.swap import manifest as manifest_format
from kcompact.swap.attributes import give_to_owner
from kcompact.swap.leftovers import read_manifests, require_nothing_unfinished, unfinished_groups
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Observer, Remove, RemoveDir, Step, SyncDir


def require_stageable(partition_dir: Path) -> None:
    """Raise the RefusedError of `create_staging` if this user cannot write to the directory. Changes nothing."""
    with OpenDirectory(partition_dir) as directory:
        _require_trusted(directory)
    require_writable(partition_dir)


def require_writable(path: Path) -> None:
    """Raise RefusedError if this user cannot create, rename and delete files in a directory. Changes nothing."""
    problem = why_not_writable(path)
    if problem is not None:
        raise _cannot_be_written(path, problem)


def create_staging(partition_dir: Path) -> str:
    """Create the staging directory of a round in the partition directory and return its name.

    The directory is hidden and has mode 0700. Brokers ignore sub-directories. Raises RefusedError if the partition
    directory is a symbolic link or cannot be written to, if the new directory is not on its file system, and for root
    also if other users may write to the partition directory.
    """
    with OpenDirectory(partition_dir) as directory:
        _require_trusted(directory)
        name = f".kcompact-{secrets.token_hex(8)}"
        try:
            os.mkdir(name, 0o700, dir_fd=directory.fd())
        except OSError as error:
            raise _cannot_be_written(partition_dir, error) from error
        if os.fstat(directory.fd(name)).st_dev != os.fstat(directory.fd()).st_dev:
            apply_steps(directory, (RemoveDir(name),))
            raise RefusedError(
                path=partition_dir / name,
                problem="is not on the partition's file system, so its files cannot be renamed into the partition",
                hint="Write a compacted copy with --output DIR instead.",
            )
        # If root is interrupted, the owner of the partition must be able to recover it.
        give_to_owner(directory, directory.fd(name))
        return name


def _cannot_be_written(path: Path, problem: OSError) -> KcompactError:
    if not is_forbidden(problem):
        return storage_error(path, problem, operation="make a directory")
    return RefusedError(path=path, problem=f"cannot be written to: {problem.strerror}", hint=remedy(problem))


def _require_trusted(directory: OpenDirectory) -> None:
    if os.geteuid() == 0 and os.fstat(directory.fd()).st_mode & 0o022:
        raise RefusedError(
            path=directory.path,
            problem="other users may write to this directory, so working in it as root is not safe",
            hint=f"Run as the directory's owner, or remove the permission: chmod go-w {shell_word(directory.path)}",
        )


def write_manifest(
    partition_dir: Path,
    staging: str,
    segments: Sequence[CleanedSegment],
    *,
    topic_partition: TopicPartition,
    end_offset: int | None,
) -> None:
    """Write and sync the manifest of groups that are completely staged, then sync the directories.

    Every group must be in the manifest on the disk before `replace_segments` begins with it. A round in several waves
    replaces the manifest for each wave, with `end_offset` None except in the last, and never while a swap is
    unfinished. Raises RefusedError if the manifest is larger than recovery accepts.
    """
    manifest = Manifest(topic_partition=topic_partition, end_offset=end_offset, pid=os.getpid(), groups=tuple(segments))
    problem = manifest_format.inconsistency(manifest)
    assert problem is None, problem
    content = manifest_format.encode(manifest)
    if len(content) > manifest_format.MAX_BYTES:
        raise RefusedError(
            path=partition_dir,
            problem=f"too many segments for one round: its manifest would have {len(content):,} bytes, "
            f"the limit is {manifest_format.MAX_BYTES:,}",
            hint="Write a compacted copy with --output DIR instead.",
        )
    with OpenDirectory(partition_dir) as directory:
        write_small_file(directory, f"{staging}/{manifest_format.NAME}", content, mode=0o600)
        apply_steps(directory, (SyncDir(),))  # Makes the name of the staging directory durable.


def discard(partition_dir: Path, staging: str, *, after_step: Observer | None = None) -> None:
    """Remove the staging directory of this round and nothing else. Does nothing if the directory is missing.

    Raises RecoveryNeededError, with nothing removed, while a swap is unfinished: recovery needs the manifest.
    """
    assert STAGING_NAME.fullmatch(staging), staging
    with OpenDirectory(partition_dir) as directory:
        present = directory.names()
        if staging not in present:
            return
        require_nothing_unfinished(directory, present)
        manifest = read_manifests(directory, (staging,))[staging]
        if manifest is not None and unfinished_groups(directory, staging, manifest, present):
            raise RecoveryNeededError(
                path=partition_dir,
                problem="an earlier swap is unfinished: its old files are not all deleted",
                hint=f"Run `kcompact recover {shell_word(partition_dir)}` first.",
            )
        apply_steps(directory, discard_steps(directory, staging), after_step)


def discard_steps(directory: OpenDirectory, staging: str) -> tuple[Step, ...]:
    """Return the steps that remove a staging directory and all files in it."""
    inside = sorted(directory.names(staging))
    return (*(Remove(f"{staging}/{name}") for name in inside), RemoveDir(staging), SyncDir())
