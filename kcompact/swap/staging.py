"""The staging directory of a round: creates it, writes its manifest, removes it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment
from kcompact.errors import (
    KcompactError,
    LogChangedError,
    RecoveryNeededError,
    RefusedError,
    is_forbidden,
    storage_error,
)
from kcompact.host.access import remedy, why_not_writable
from kcompact.log.directory import STAGING_NAME
from kcompact.readable import shell_word
from kcompact.swap import manifest as manifest_format
from kcompact.swap.attributes import give_to_owner
from kcompact.swap.identity import PartitionIdentity, identity_of
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory, apply_steps, opened
from kcompact.swap.recovery.leftovers import read_manifests, require_nothing_unfinished, unfinished_groups
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Observer, Remove, RemoveDir, Step, SyncDir


def require_stageable(directory: OpenDirectory) -> None:
    """Raise the RefusedError of `create_staging` if this user cannot write to the directory. Changes nothing."""
    _require_trusted(directory)
    require_writable(directory)


def require_writable(directory: OpenDirectory) -> None:
    """Raise RefusedError if this user cannot create, rename and delete files in a directory. Changes nothing."""
    problem = why_not_writable(directory.path, fd=directory.fd())
    if problem is not None:
        raise _cannot_be_written(directory.path, problem)


def create_staging(partition: OpenDirectory | Path) -> str:
    """Create the staging directory of a round in the partition directory and return its name.

    The directory is hidden, empty and has mode 0700. For root it belongs to root until `hand_over`. Brokers ignore
    sub-directories. Raises RefusedError if the partition directory is a symbolic link or cannot be written to, if the
    new directory is not on its file system, and for root also if other users may write to the partition directory;
    LogChangedError if another process replaced the new directory at once.
    """
    with opened(partition) as directory:
        _require_trusted(directory)
        name = f".kcompact-{secrets.token_hex(8)}"  # Nobody can guess it.
        try:
            os.mkdir(name, 0o700, dir_fd=directory.fd())
        except OSError as error:
            raise _cannot_be_written(directory.path, error) from error
        if _own_device(directory, name) != directory.device:
            apply_steps(directory, (RemoveDir(name),))
            raise RefusedError(
                path=directory.path / name,
                problem="is not on the partition's file system, so its files cannot be renamed into the partition",
                hint="Write a compacted copy with --output DIR instead.",
            )
        return name


def _own_device(directory: OpenDirectory, staging: str) -> int:
    """Return the file system of a new staging directory. Raises LogChangedError unless it is empty and our own."""
    with suppress(FileNotFoundError, NotADirectoryError):
        status = os.fstat(directory.fd(staging))
        if status.st_uid == os.geteuid() and not status.st_mode & 0o077 and not directory.names(staging):
            return status.st_dev
    raise LogChangedError(path=directory.path / staging, problem="was replaced as soon as kcompact had created it")


def hand_over(partition: OpenDirectory | Path, staging: str) -> None:
    """Give the complete staging directory to the partition's owner, who must be able to recover an interrupted swap."""
    with opened(partition) as directory:
        give_to_owner(directory, directory.fd(staging))


def take_back(partition: OpenDirectory | Path, staging: str) -> None:
    """Make the staging directory root's and private again, before the files of the next wave are written to it.

    Raises LogChangedError if there is a file in it that is not the manifest of the last wave.
    """
    if os.geteuid() == 0:
        with opened(partition) as directory:
            # The owner may have changed the mode and put files there in the meantime.
            os.fchown(directory.fd(staging), os.geteuid(), os.getegid())
            os.fchmod(directory.fd(staging), 0o700)
            unknown = [name for name in directory.names(staging) if name != manifest_format.NAME]
            if unknown:
                path = directory.path / staging / min(unknown)
                raise LogChangedError(path=path, problem="was put there by another process")


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
    partition: OpenDirectory | Path,
    staging: str,
    segments: Sequence[CleanedSegment],
    *,
    identity: PartitionIdentity,
    end_offset: int | None,
) -> None:
    """Write and sync the manifest of groups that are completely staged, then sync the directories.

    Every group must be in the manifest on the disk before `replace_segments` begins with it. A round in several waves
    replaces the manifest for each wave, with `end_offset` None except in the last, and never while a swap is
    unfinished. Raises RefusedError if it is larger than recovery accepts.
    """
    manifest = Manifest(identity=identity, end_offset=end_offset, pid=os.getpid(), groups=tuple(segments))
    problem = manifest_format.inconsistency(manifest)
    assert problem is None, problem
    content = manifest_format.encode(manifest)
    with opened(partition) as directory:
        if len(content) > manifest_format.MAX_BYTES:
            replaced = sum(len(segment.replaces) for segment in segments)
            raise RefusedError(
                path=directory.path,
                problem=f"too many files for one swap: {len(segments):,} segments would replace {replaced:,} files",
                hint="Write a compacted copy with --output DIR instead.",
            )
        write_small_file(directory, f"{staging}/{manifest_format.NAME}", content, mode=0o600)
        apply_steps(directory, (SyncDir(),))  # Makes the name of the staging directory durable.


def discard(
    partition: OpenDirectory | Path,
    staging: str,
    *,
    is_complete: bool = False,
    after_step: Observer | None = None,
) -> None:
    """Remove the staging directory of this round and nothing else. Does nothing if the directory is missing.

    `is_complete`: `replace_segments` has replaced all groups of the round, so nothing is looked for.

    Raises RecoveryNeededError, with nothing removed, while a swap is unfinished: recovery needs the manifest.
    LogChangedError if another process replaced the directory.
    """
    assert STAGING_NAME.fullmatch(staging), staging
    with opened(partition) as directory:
        if not _is_there(directory, staging):
            return
        if not is_complete:
            _require_nothing_begun(directory, staging)
        try:
            if is_complete and _is_gone_with_its_manifest(directory, staging, after_step):
                return
            apply_steps(directory, discard_steps(directory, staging), after_step)
        except NotADirectoryError:
            raise _replaced(directory, staging) from None


def _is_gone_with_its_manifest(directory: OpenDirectory, staging: str, after_step: Observer | None) -> bool:
    """Remove a staging directory that holds nothing but a manifest. Return whether it was so."""
    steps = (Remove(f"{staging}/{manifest_format.NAME}"), RemoveDir(staging), SyncDir())
    try:
        apply_steps(directory, steps, after_step)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def _require_nothing_begun(directory: OpenDirectory, staging: str) -> None:
    """Raise RecoveryNeededError if the swap of a group in the manifest has begun and is not complete."""
    present = directory.names()
    require_nothing_unfinished(directory, present)
    manifest = read_manifests(directory, (staging,), identity_of(directory, None)).get(staging)
    if manifest is not None and unfinished_groups(directory, staging, manifest.groups, present):
        raise RecoveryNeededError(
            path=directory.path,
            problem="an earlier swap is unfinished: its old files are not all deleted",
            hint=f"Run `kcompact recover {shell_word(directory.path)}` first.",
        )


def _is_there(directory: OpenDirectory, staging: str) -> bool:
    """Return whether the staging directory is there. Raises LogChangedError if another directory has its name."""
    status = directory.status(staging)
    if status is None:
        return False
    with suppress(NotADirectoryError):
        if os.path.samestat(status, os.fstat(directory.fd(staging))):
            return True
    raise _replaced(directory, staging)


def _replaced(directory: OpenDirectory, staging: str) -> LogChangedError:
    return LogChangedError(path=directory.path / staging, problem="was replaced while kcompact was using it")


def discard_steps(directory: OpenDirectory, staging: str) -> tuple[Step, ...]:
    """Return the steps that remove a staging directory and all files in it."""
    manifest_first = sorted(directory.names(staging), key=lambda name: (name != manifest_format.NAME, name))
    return (*(Remove(f"{staging}/{name}") for name in manifest_first), RemoveDir(staging), SyncDir())
