"""The replaced segments that a cleaning keeps: hard links in a directory of the user, and a manifest.

    DIR/orders-0/kept.json                   the manifest: what the links are, and what has taken their place
    DIR/orders-0/00000000000000000000.log    a second name of the old file, under its own name
    DIR/orders-0/cleaner-offset-checkpoint   a second name of the checkpoint before the cleaning, if there was one

The links of a group and the manifest that names them are synced before the group is swapped. `restore` reads them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import CorruptCheckpointError, LogChangedError, RefusedError
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
from kcompact.log.files import FileIdentity, read_file
from kcompact.swap.identity import FIELDS, PartitionIdentity, identity_from
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.replace import require_unchanged
from kcompact.swap.sealed_json import fields_of, integer_of, list_of, sealed, text_of, unsealed
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, SyncDir

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
        found = (status.st_size, status.st_mtime_ns, status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode))
        kept = (self.size_bytes, self.mtime_ns, self.uid, self.gid, self.mode)
        return stat.S_ISREG(status.st_mode) and found == kept


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


# --- Keeping --------------------------------------------------------------------------------------------


def untouched_log(partition: OpenDirectory, base_offset: int, *, is_active: bool) -> UntouchedLog:
    """Return a segment as it is before a cleaning. Raises LogChangedError, OSError."""
    name = log_name(base_offset)
    status = partition.status(name)
    if status is None:
        raise LogChangedError(path=partition.path / name, problem="was deleted while it was kept")
    return UntouchedLog(
        name=name,
        inode=status.st_ino,
        size_bytes=status.st_size,
        mtime_ns=status.st_mtime_ns,
        crc32c=partition.digest(name, size_bytes=status.st_size) if is_active else None,
    )


class KeptSegments:
    """The links of one partition while it is cleaned. `directory` is `DIR/<partition>`, held open."""

    def __init__(self, directory: OpenDirectory, subject: KeptPartition) -> None:
        self._directory = directory
        self._subject = subject
        self.has_swapped = False
        """Whether a group was replaced, or may have been. Then the links are the only names of its old files."""

    def keep_checkpoint(self, log_dir: OpenDirectory) -> None:
        """Link the cleaner's checkpoint as it is before the cleaning, if there is one."""
        if log_dir.status(CLEANER_OFFSET_CHECKPOINT) is not None:
            self._link(log_dir, CLEANER_OFFSET_CHECKPOINT)
            content = self._directory.read_from_disk(CLEANER_OFFSET_CHECKPOINT)
            self._subject = replace(self._subject, checkpoint_crc32c=crc32c(content))

    def keep(self, partition: OpenDirectory, segments: Sequence[CleanedSegment], check: Callable[[], None]) -> None:
        """Link the old files of groups, sync the links, and write the manifest with their digests.

        Raises RefusedError where the file system does not link a file, LogChangedError for a file that is not that of
        the plan, StorageError, NotEnoughSpaceError; `check` may raise to stop.
        """
        groups = []
        for segment in segments:
            require_unchanged(partition, segment.replaces)
            for identity in segment.replaces:
                self._link(partition, identity.name)
            old = tuple(self._described(identity, check) for identity in segment.replaces)
            groups.append(KeptGroup(base_offset=segment.base_offset, new=segment.files, old=old))
        apply_steps(self._directory, (SyncDir(),))
        replaced = {file.name for group in groups for file in group.old}
        untouched = tuple(log for log in self._subject.untouched if log.name not in replaced)
        self._subject = replace(self._subject, groups=(*self._subject.groups, *groups), untouched=untouched)
        write_small_file(self._directory, MANIFEST, encode(self._subject), mode=0o600)

    @property
    def groups(self) -> tuple[KeptGroup, ...]:
        """The groups that are in the manifest."""
        return self._subject.groups

    def _link(self, source: OpenDirectory, name: str) -> None:
        try:
            source.link(name, self._directory, name)
        except FileNotFoundError:
            raise LogChangedError(path=source.path / name, problem="was deleted while it was kept") from None
        except OSError as error:
            raise RefusedError(
                path=source.path / name,
                problem=f"cannot be kept by a hard link in {self._directory.path}: {error.strerror}",
                hint="It was not changed. Pass a --keep-replaced directory on the same file system, and run as the "
                "user that owns these files (the broker's user).",
            ) from error

    def _described(self, identity: FileIdentity, check: Callable[[], None]) -> KeptFile:
        fd = self._directory.open(identity.name, os.O_RDONLY)
        try:
            os.fsync(fd)
            status = os.fstat(fd)
        finally:
            os.close(fd)
        crc32c = self._directory.digest(identity.name, check)
        if FileIdentity.of(identity.name, status) != identity:
            path = self._directory.path / identity.name
            raise LogChangedError(path=path, problem="is another file than that of the plan")
        return KeptFile(
            name=identity.name,
            size_bytes=status.st_size,
            crc32c=crc32c,
            mtime_ns=status.st_mtime_ns,
            uid=status.st_uid,
            gid=status.st_gid,
            mode=stat.S_IMODE(status.st_mode),
        )

    def abandon(self) -> None:
        """Remove the links, unless a group was replaced: the cleaning has stopped. Raises nothing."""
        if not self.has_swapped:
            with suppress(OSError):
                names = sorted(self._directory.names(), key=lambda name: name != MANIFEST)
                apply_steps(self._directory, (*map(Remove, names), SyncDir()))


# --- The manifest ---------------------------------------------------------------------------------------


def encode(kept: KeptPartition) -> bytes:
    """Return the manifest of a partition."""
    document = {
        "version": VERSION,
        "kcompact": kept.kcompact,
        "now_ms": kept.now_ms,
        "number": kept.number,
        "directory": kept.directory,
        **kept.identity.fields,
        "checkpoint_crc32c": kept.checkpoint_crc32c,
        "untouched": [
            {
                "name": log.name,
                "inode": log.inode,
                "size": log.size_bytes,
                "mtime_ns": log.mtime_ns,
                "crc32c": log.crc32c,
            }
            for log in kept.untouched
        ],
        "groups": [
            {
                "base_offset": group.base_offset,
                "new": [{"name": file.name, "size": file.size_bytes, "crc32c": file.crc32c} for file in group.new],
                "old": [
                    {
                        "name": file.name,
                        "size": file.size_bytes,
                        "crc32c": file.crc32c,
                        "mtime_ns": file.mtime_ns,
                        "uid": file.uid,
                        "gid": file.gid,
                        "mode": file.mode,
                    }
                    for file in group.old
                ],
            }
            for group in kept.groups
        ],
    }
    return sealed(document)


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


_FIELDS = ("version", "kcompact", "now_ms", "number", "directory", *FIELDS, "checkpoint_crc32c", "untouched", "groups")


def decode(content: bytes) -> KeptPartition:
    """Return a manifest. Raises ValueError for any document that `encode` does not write."""
    root = fields_of(unsealed(content), *_FIELDS)
    if integer_of(root["version"]) != VERSION:
        raise ValueError(f"version {root['version']}")
    identity = identity_from(root)
    if Path(text_of(root["directory"])).name != str(identity.topic_partition):
        raise ValueError(f"{identity.topic_partition} is not the partition of the directory")
    checkpoint_crc32c = root["checkpoint_crc32c"]
    kept = KeptPartition(
        directory=root["directory"],
        identity=identity,
        number=integer_of(root["number"]),
        now_ms=integer_of(root["now_ms"], least=-(2**63)),
        kcompact=text_of(root["kcompact"]),
        checkpoint_crc32c=None if checkpoint_crc32c is None else integer_of(checkpoint_crc32c),
        untouched=tuple(_untouched(value) for value in list_of(root["untouched"])),
        groups=tuple(_group(value) for value in list_of(root["groups"])),
    )
    _require_rising(kept)
    return kept


def _require_listed(kept: KeptPartition, present: Collection[str]) -> None:
    """Raise ValueError for a segment beside the manifest that the manifest does not have.

    A cleaning that was killed can leave links to segments that it has not replaced.
    """
    known = {file.name for group in kept.groups for file in group.old} | {log.name for log in kept.untouched}
    for name in map(log_name, log_bases(present)):
        if name not in known:
            raise ValueError(f"{name} is not in it")


def _untouched(value: object) -> UntouchedLog:
    fields = fields_of(value, "name", "inode", "size", "mtime_ns", "crc32c")
    return UntouchedLog(
        name=_file_name(fields["name"]),
        inode=integer_of(fields["inode"]),
        size_bytes=integer_of(fields["size"]),
        mtime_ns=integer_of(fields["mtime_ns"], least=-(2**63)),
        crc32c=None if fields["crc32c"] is None else integer_of(fields["crc32c"]),
    )


def _group(value: object) -> KeptGroup:
    fields = fields_of(value, "base_offset", "new", "old")
    return KeptGroup(
        base_offset=integer_of(fields["base_offset"]),
        new=tuple(_new_file(file) for file in list_of(fields["new"])),
        old=tuple(_old_file(file) for file in list_of(fields["old"])),
    )


def _new_file(value: object) -> StagedFile:
    fields = fields_of(value, "name", "size", "crc32c")
    name = _file_name(fields["name"])
    return StagedFile(
        name=name, staged_as=name, size_bytes=integer_of(fields["size"]), crc32c=integer_of(fields["crc32c"])
    )


def _old_file(value: object) -> KeptFile:
    fields = fields_of(value, "name", "size", "crc32c", "mtime_ns", "uid", "gid", "mode")
    numbers = {name: integer_of(fields[name]) for name in ("crc32c", "uid", "gid", "mode")}
    return KeptFile(
        name=_file_name(fields["name"]),
        size_bytes=integer_of(fields["size"]),
        mtime_ns=integer_of(fields["mtime_ns"], least=-(2**63)),
        **numbers,
    )


def _file_name(value: object) -> str:
    """Return a name that is exactly that of a file of a segment, so that it leads to no other directory."""
    name = text_of(value)
    found = parse_file_name(name)
    if found is None or found.temporary is not Temporary.NO:
        raise ValueError(f"{name!r} is not the name of a file of a segment")
    return name


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
