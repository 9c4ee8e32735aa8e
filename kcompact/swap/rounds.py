"""Which rounds left a staging directory behind, and which of their groups are half swapped."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable

from kcompact.errors import CorruptCheckpointError, RecoveryNeededError, RefusedError
from kcompact.log.directory import STAGING_NAME
from kcompact.log.files import FileIdentity
from kcompact.swap import manifest as manifest_format
from kcompact.swap.manifest import Group, Manifest
from kcompact.swap.open_directory import OpenDirectory
from kcompact.swap.steps import CLEANED, DELETED, SWAP


def _read_manifest(directory: OpenDirectory, staging: str) -> Manifest | None:
    """Return the manifest of a staging directory, None if it has none. Raises CorruptCheckpointError."""
    name = f"{staging}/{manifest_format.NAME}"
    if directory.status(name) is None:
        return None
    path = directory.path / name
    size = directory.size(name)
    if size is None or size > manifest_format.MAX_BYTES:
        raise CorruptCheckpointError(file=path, problem="not a regular file of reasonable size")
    with os.fdopen(directory.open(name, os.O_RDONLY), "rb") as file:
        content = file.read(manifest_format.MAX_BYTES + 1)
    try:
        return manifest_format.decode(content)
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(file=path, problem=f"not a manifest of this version: {error}") from error


def require_nothing_unfinished(directory: OpenDirectory, present: Collection[str]) -> None:
    unfinished = unfinished_names(present)
    if unfinished:
        raise RecoveryNeededError(
            path=directory.path,
            problem="another swap is unfinished",
            files=unfinished,
            hint="Run `kcompact recover` first.",
        )


def unfinished_names(present: Iterable[str]) -> list[str]:
    """Return every `.cleaned` and `.swap`, also of names that are not Kafka's: its loader reads those too."""
    return sorted(name for name in present if name.endswith((CLEANED, SWAP)))


def staged_rounds(directory: OpenDirectory, present: Iterable[str]) -> dict[str, Manifest | None]:
    """Return the staging directories with their manifests; None where it is missing or malformed."""
    rounds: dict[str, Manifest | None] = {}
    for name in sorted(present):
        if not STAGING_NAME.fullmatch(name):
            continue
        status = directory.status(name)
        if status is None or not stat.S_ISDIR(status.st_mode):
            raise RefusedError(path=directory.path / name, problem="has our name but is not a directory")
        try:
            rounds[name] = _read_manifest(directory, name)
        except CorruptCheckpointError:
            # Without unfinished files nothing depends on it; with them, they count as unexplained.
            rounds[name] = None
    return rounds


def require_explained(directory: OpenDirectory, present: Iterable[str], rounds: dict[str, Manifest | None]) -> None:
    explained = {
        file.name + stage
        for manifest in rounds.values()
        if manifest is not None
        for group in manifest.groups
        for file in group.files
        for stage in (CLEANED, SWAP)
    }
    unexplained = [name for name in unfinished_names(present) if name not in explained]
    if unexplained:
        raise RecoveryNeededError(
            path=directory.path,
            problem="files of an interrupted swap that kcompact knows nothing about",
            files=unexplained,
            hint="Nothing was touched. If a broker left them: it settles them when it starts. Start and stop it once.",
        )


def groups_under_way(
    directory: OpenDirectory, staging: str, manifest: Manifest, present: Collection[str]
) -> list[Group]:
    staged = directory.names(staging)
    return [group for group in manifest.groups if _is_under_way(directory, group, present, staged)]


def _is_under_way(directory: OpenDirectory, group: Group, present: Collection[str], staged: Collection[str]) -> bool:
    if any(file.name + stage in present for file in group.files for stage in (CLEANED, SWAP)):
        return True
    # Only `.deleted` files: ours if the staged files have left and these are the very files that we set
    # aside. Others are garbage of a broker's.
    return not any(file.staged_as in staged for file in group.files) and any(
        is_same_file(directory, file.name + DELETED, file, same_inode=True) for file in group.replaces
    )


def is_same_file(directory: OpenDirectory, name: str, identity: FileIdentity, *, same_inode: bool = False) -> bool:
    """Return whether a file has the recorded size and time; the inode differs in a copied directory."""
    status = directory.status(name)
    if status is None or not stat.S_ISREG(status.st_mode):
        return False
    if same_inode and status.st_ino != identity.inode:
        return False
    return (status.st_size, status.st_mtime_ns) == (identity.size_bytes, identity.mtime_ns)
