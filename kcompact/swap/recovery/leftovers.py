"""The files that an interrupted round left behind: its staging directory, and a group whose swap is unfinished."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import CorruptDataError, RecoveryNeededError, RefusedError
from kcompact.format.names import Suffix, parse_file_name
from kcompact.log.directory import STAGING_NAME
from kcompact.log.files import FileIdentity, read_file
from kcompact.readable import shell_word
from kcompact.swap import manifest as manifest_format
from kcompact.swap.identity import PartitionIdentity
from kcompact.swap.manifest import Manifest
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import CLEANED, DELETED, SWAP


def read_manifests(
    directory: OpenDirectory, present: Iterable[str], identity: PartitionIdentity
) -> dict[str, Manifest | None]:
    """Return each staging directory with its manifest; None if there is no manifest.

    Another user's staging directory that this user may not open is left out: it was not handed over, so no swap of it
    has begun.
    Raises RecoveryNeededError for a manifest that is damaged, or of a partition with another identity; RefusedError if
    a file or link has the name of a staging directory.
    """
    manifests: dict[str, Manifest | None] = {}
    for name in sorted(present):
        if not STAGING_NAME.fullmatch(name):
            continue
        status = directory.status(name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise RefusedError(
                path=directory.path / name,
                problem="has the name of a kcompact staging directory, but is not a directory",
                hint="kcompact did not create it. Move it to another place, then run again.",
            )
        try:
            directory.fd(name)
        except PermissionError:
            if status.st_uid == os.geteuid():
                raise  # It may hold the manifest of a swap that has begun.
            continue
        manifests[name] = _read_manifest(directory, name, identity)
    return manifests


def _read_manifest(directory: OpenDirectory, staging: str, identity: PartitionIdentity) -> Manifest | None:
    """Return the manifest of a staging directory, None if it has none. Raises RecoveryNeededError."""
    name = f"{staging}/{manifest_format.NAME}"
    if directory.status(name) is None:
        return None
    try:
        manifest = manifest_format.decode(_content(directory, name))
    except (ValueError, RecursionError) as error:
        raise not_followed(directory, staging, f"the manifest is damaged ({error})") from error
    difference = manifest.identity.difference_from(identity)
    if difference:
        raise not_followed(directory, staging, f"the manifest belongs to another partition: {difference}")
    return manifest


def not_followed(directory: OpenDirectory, staging: str, problem: str) -> RecoveryNeededError:
    """Return the error for a manifest that recovery does not follow, with what to do by hand."""
    unfinished = unfinished_names(directory.names())
    path, partition = shell_word(directory.path / staging), shell_word(directory.path)
    if unfinished:
        snapshots = [name for name in unfinished if parse_file_name(name) is None and Suffix.SNAPSHOT in name]
        remove = f"remove {' '.join(snapshots)}, which a broker does not need, " if snapshots else ""
        by_hand = (
            f"Start no broker on it. Copy the directory (cp -a {partition} BACKUP), move {path} to another place (mv), "
            f"{remove}then run `kcompact recover --foreign {partition}`: it goes by what the files contain."
        )
    else:
        by_hand = (
            f"No file is between its old and its new name. Check the log (`kcompact verify {partition}`), "
            f"then remove the directory: rm -r {path}"
        )
    return RecoveryNeededError(
        path=directory.path / staging / manifest_format.NAME,
        problem=problem,
        files=unfinished,
        hint=f"kcompact changed nothing. {by_hand}",
    )


def _content(directory: OpenDirectory, name: str) -> bytes:
    """Return the content of a manifest. Raises ValueError unless it is a regular file of reasonable size."""
    size = directory.size(name)
    if size is None or size > manifest_format.MAX_BYTES:
        raise ValueError(f"{name.rpartition('/')[2]} is missing, or not a regular file of reasonable size")
    parent, _ = directory.locate(name)
    return read_file(directory.path / name, max_bytes=manifest_format.MAX_BYTES, dir_fd=parent)


def unfinished_names(present: Iterable[str]) -> list[str]:
    """Return every name that ends in `.cleaned` or `.swap`, sorted.

    Names that are not Kafka's are included, because Kafka's loader reads those files too.
    """
    return sorted(name for name in present if name.endswith((CLEANED, SWAP)))


def require_nothing_unfinished(directory: OpenDirectory, present: Collection[str]) -> None:
    """Raise RecoveryNeededError if there is a `.cleaned` or `.swap` file."""
    unfinished = unfinished_names(present)
    if unfinished:
        raise RecoveryNeededError(
            path=directory.path,
            problem="an earlier swap is unfinished",
            files=unfinished,
            hint=f"Run `kcompact recover {shell_word(directory.path)}` first.",
        )


def require_in_a_manifest(
    directory: OpenDirectory, present: Iterable[str], manifests: Mapping[str, Manifest | None]
) -> None:
    """Raise RecoveryNeededError if there is a `.cleaned` or `.swap` file that no manifest names."""
    named = {
        file.name + suffix
        for manifest in manifests.values()
        if manifest is not None
        for group in manifest.groups
        for file in group.files
        for suffix in (CLEANED, SWAP)
    }
    unknown = [name for name in unfinished_names(present) if name not in named]
    if unknown:
        closed = sorted(name for name in present if STAGING_NAME.fullmatch(name) and name not in manifests)
        why = "".join(f"; {name}: {os.strerror(errno.EACCES)}" for name in closed)
        raise RecoveryNeededError(
            path=directory.path,
            problem=f"files of an interrupted swap that no kcompact manifest names{why}",
            files=unknown,
            hint="kcompact changed nothing. If a broker left these files, start that broker once on this log directory "
            "and stop it: it finishes or removes them. If it cannot start, `kcompact recover "
            "--foreign` does that. Then run kcompact again.",
        )


def unfinished_groups(
    directory: OpenDirectory, staging: str, groups: Sequence[CleanedSegment], present: Collection[str]
) -> list[CleanedSegment]:
    """Return which groups of a manifest are unfinished: the swap has begun and is not complete."""
    return [group for group in groups if _is_unfinished(directory, staging, group, present)]


def _is_unfinished(directory: OpenDirectory, staging: str, group: CleanedSegment, present: Collection[str]) -> bool:
    if any(file.name + suffix in present for file in group.files for suffix in (CLEANED, SWAP)):
        return True
    aside = [file for file in group.replaces if file.name + DELETED in present]
    if not aside:
        return False
    # There are only `.deleted` files. They belong to this swap if the staging directory no longer has its staged files
    # and the inodes are those in the manifest. Other `.deleted` files belong to a broker.
    staged = directory.names(staging)
    return not any(file.staged_as in staged for file in group.files) and any(
        is_same_file(directory, file.name + DELETED, file, same_inode=True) for file in aside
    )


def staged_status(directory: OpenDirectory, staging: str, file: StagedFile) -> os.stat_result:
    """Return the status of a staged file. Raises CorruptDataError if it is missing or has another size."""
    return require_whole(directory, staging, file, directory.status(f"{staging}/{file.staged_as}"))


def require_whole(
    directory: OpenDirectory, staging: str, file: StagedFile, status: os.stat_result | None
) -> os.stat_result:
    """Return the status of a staged file, None if it is missing. Raises CorruptDataError if it has another size."""
    path = directory.path / staging / file.staged_as
    is_regular = status is not None and stat.S_ISREG(status.st_mode)
    if status is None or not is_regular or status.st_size != file.size_bytes:
        damage = f"has {status.st_size:,} bytes" if status is not None and is_regular else "is missing"
        raise CorruptDataError(
            file=path,
            problem=f"staged with {file.size_bytes:,} bytes, now it {damage}",
            hint="The segment was not replaced. Find the process that writes to this directory, or check the disk. "
            "Then run again.",
        )
    return status


def is_same_file(directory: OpenDirectory, name: str, identity: FileIdentity, *, same_inode: bool = False) -> bool:
    """Return whether a regular file has the recorded size and time and, with `same_inode`, the recorded inode.

    In a copy of a directory the inodes differ.
    """
    status = directory.status(name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return False
    if same_inode and status.st_ino != identity.inode:
        return False
    return (status.st_size, status.st_mtime_ns) == (identity.size_bytes, identity.mtime_ns)
