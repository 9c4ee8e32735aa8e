"""The manifest of the segments that a cleaning keeps: `kept.json` in `DIR/<partition>`. `restore` reads it."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from kcompact.clean.staged_files import StagedFile
from kcompact.errors import CorruptCheckpointError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, MAX_CHECKPOINT_BYTES
from kcompact.format.checksum import crc32c
from kcompact.format.names import (
    Suffix,
    Temporary,
    TopicPartition,
    base_offset_of,
    log_bases,
    log_name,
    parse_file_name,
)
from kcompact.format.sealed_json import NUMBER, TEXT, TIME, SealedDocument, Value, listed, optional, sealed, unsealed
from kcompact.log.files import read_file
from kcompact.swap.identity import IDENTITY, PartitionIdentity
from kcompact.swap.open_directory import OpenDirectory
from kcompact.values import dataclass

MANIFEST = "kept.json"
MAX_BYTES = 64 << 20
VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """An old file as it was when it was linked."""

    name: str
    size_bytes: int
    crc32c: int
    mtime_ns: int
    uid: int
    gid: int
    mode: int

    def is_of(self, status: os.stat_result) -> bool:
        """Return whether a file still has the size, time, owner and mode."""
        current = (status.st_size, status.st_mtime_ns, status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
        kept = (self.size_bytes, self.mtime_ns, self.uid, self.gid, self.mode)
        return stat.S_ISREG(status.st_mode) and current == kept


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptGroup:
    """The old files of a group, and the new files that have replaced them."""

    base_offset: int
    new: tuple[StagedFile, ...]
    old: tuple[KeptFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UntouchedLog:
    """The `.log` of a segment that was not replaced, as it was before the cleaning.

    `crc32c` is the checksum of the active segment, which a broker may continue; None for the others.
    """

    name: str
    inode: int
    size_bytes: int
    mtime_ns: int
    crc32c: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptPartition:
    """What a cleaning of a partition has replaced.

    `number` is the place of the partition in the cleaning. `checkpoint_crc32c` is the checksum of the file of the
    cleaner's checkpoints before the cleaning, None if there was none. `untouched` are the segments that
    are not replaced.
    """

    directory: str
    identity: PartitionIdentity
    number: int
    now_ms: int
    kcompact: str
    checkpoint_crc32c: int | None
    untouched: tuple[UntouchedLog, ...]
    groups: tuple[KeptGroup, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.identity.topic_partition


# --- The format -----------------------------------------------------------------------------------------


def _file_name(json_field: object) -> str:
    """Return a name that is exactly that of a file of a segment, so that it leads to no other directory."""
    name: str = TEXT.read(json_field)
    parsed = parse_file_name(name)
    if parsed is None or parsed.temporary is not Temporary.NO:
        raise ValueError(f"{name!r} is not the name of a file of a segment")
    return name


def _new_file(name: str, size_bytes: int, crc32c: int) -> StagedFile:
    return StagedFile(name=name, staged_as=name, size_bytes=size_bytes, crc32c=crc32c)


_NAME = Value(_file_name)
_SIZE = NUMBER.called("size")
_UNTOUCHED = SealedDocument(
    UntouchedLog, name=_NAME, inode=NUMBER, size_bytes=_SIZE, mtime_ns=TIME, crc32c=optional(NUMBER)
)
_NEW = SealedDocument(_new_file, name=_NAME, size_bytes=_SIZE, crc32c=NUMBER)
_OLD = SealedDocument(
    KeptFile, name=_NAME, size_bytes=_SIZE, crc32c=NUMBER, mtime_ns=TIME, uid=NUMBER, gid=NUMBER, mode=NUMBER
)
_KEPT = SealedDocument(
    KeptPartition,
    version=VERSION,
    kcompact=TEXT,
    now_ms=TIME,
    number=NUMBER,
    directory=TEXT,
    identity=IDENTITY,
    checkpoint_crc32c=optional(NUMBER),
    untouched=listed(_UNTOUCHED),
    groups=listed(SealedDocument(KeptGroup, base_offset=NUMBER, new=listed(_NEW), old=listed(_OLD))),
)


def encode(kept: KeptPartition) -> bytes:
    """Return the manifest of a partition."""
    return sealed(_KEPT.write(kept))


def decode(content: bytes) -> KeptPartition:
    """Return a manifest. Raises ValueError for any document that `encode` does not write."""
    kept = _KEPT.read(unsealed(content))
    if Path(kept.directory).name != str(kept.topic_partition):
        raise ValueError(f"{kept.topic_partition} is not the partition of the directory")
    _require_rising(kept)
    return kept


def _require_rising(kept: KeptPartition) -> None:
    """Raise ValueError unless the groups follow each other and each has the `.log` of each of its indexes."""
    end = -1
    for group in kept.groups:
        for names in ([file.name for file in group.new], [file.name for file in group.old]):
            bases = {group.base_offset, *(base_offset_of(name) for name in names if not name.endswith(Suffix.SNAPSHOT))}
            is_whole = {log_name(base) for base in bases} <= set(names) and len(set(names)) == len(names)
            if not is_whole or not end < min(map(base_offset_of, names)) == group.base_offset:
                raise ValueError(f"group {group.base_offset}: not in order, or not complete")
        end = max(base_offset_of(file.name) for file in group.old)


# --- Reading --------------------------------------------------------------------------------------------


def read_kept(directory: OpenDirectory) -> KeptPartition | None:
    """Return what is kept of a partition, from `DIR/<partition>`, held open; None if nothing was replaced.

    Raises CorruptCheckpointError for a manifest that no cleaning has written, or that does not list the files beside
    it.
    """
    if directory.status(MANIFEST) is None:
        return None
    path = directory.path / MANIFEST
    try:
        kept = decode(read_file(path, max_bytes=MAX_BYTES, dir_fd=directory.fd()))
        _require_listed(kept, directory.names())
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(
            file=path,
            problem=f"does not say what was replaced: {error}",
            hint="Nothing was changed, and no kept file is lost. docs/swap.md says under “What to do” how to put them "
            "back by hand.",
        ) from error
    return kept


def read_kept_checkpoint(directory: OpenDirectory, kept: KeptPartition) -> bytes | None:
    """Return the file of the cleaner's checkpoints before the cleaning, from `DIR/<partition>`; None without one.

    Raises CorruptCheckpointError if it is not what was kept.
    """
    path = directory.path / CLEANER_OFFSET_CHECKPOINT
    if kept.checkpoint_crc32c is None:
        return None
    if directory.status(CLEANER_OFFSET_CHECKPOINT) is None:
        raise not_as_kept(path, "is missing")
    content = read_file(path, max_bytes=MAX_CHECKPOINT_BYTES, dir_fd=directory.fd())
    if crc32c(content) != kept.checkpoint_crc32c:
        raise not_as_kept(path, "has another content than when it was kept")
    return content


def not_as_kept(path: Path, problem: str) -> CorruptCheckpointError:
    """Return the error for a file in `DIR/<partition>` that is not what was kept."""
    return CorruptCheckpointError(
        file=path, problem=problem, hint="Nothing was changed. The partition is as the cleaning has left it."
    )


def _require_listed(kept: KeptPartition, present: Collection[str]) -> None:
    """Raise ValueError for a segment beside the manifest that the manifest does not have.

    A cleaning that was killed can leave links to segments that it has not replaced.
    """
    known = {file.name for group in kept.groups for file in group.old} | {log.name for log in kept.untouched}
    for name in map(log_name, log_bases(present)):
        if name not in known:
            raise ValueError(f"{name} is not in it")
