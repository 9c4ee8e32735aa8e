"""The replaced segments that a cleaning keeps: hard links in a directory of the user, and a manifest.

    DIR/orders-0/kept.json                   the manifest: what the links are, and what has taken their place
    DIR/orders-0/00000000000000000000.log    a second name of the old file, under its own name
    DIR/orders-0/cleaner-offset-checkpoint   a second name of the checkpoint before the cleaning, if there was one

The links of a group and the manifest that names them are synced before the group is swapped. `restore` reads them.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.errors import CorruptCheckpointError, LogChangedError, RefusedError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.format.names import Suffix, Temporary, TopicPartition, parse_file_name
from kcompact.log.files import FileIdentity, read_file
from kcompact.swap.open_directory import OpenDirectory, apply_steps
from kcompact.swap.replace import require_unchanged
from kcompact.swap.small_files import write_small_file
from kcompact.swap.steps import Remove, SyncDir
from kcompact.swap.strict_json import fields_of, integer_of, list_of, parsed, text_of

MANIFEST = "kept.json"
MAX_BYTES = 64 << 20
VERSION = 1


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
class KeptPartition:
    """What a cleaning of a partition has replaced.

    `number` is the place of the partition in the cleaning. `checkpoint_offset` is the checkpoint before it, None
    without an entry, and `end_offset` the checkpoint after it. `untouched` are the `.log` files of the other segments:
    name, size, modification time.
    """

    directory: str
    topic_partition: TopicPartition
    number: int
    now_ms: int
    kcompact: str
    checkpoint_offset: int | None
    had_checkpoint: bool
    end_offset: int
    untouched: tuple[tuple[str, int, int], ...]
    groups: tuple[KeptGroup, ...] = ()


# --- Keeping --------------------------------------------------------------------------------------------


class KeptSegments:
    """The links of one partition while it is cleaned. `directory` is `DIR/<partition>`, held open."""

    def __init__(self, directory: OpenDirectory, subject: KeptPartition) -> None:
        self._directory = directory
        self._subject = subject
        self.has_swapped = False
        """Whether a group was replaced, or may have been. Then the links are the only names of its old files."""

    def keep_checkpoint(self, log_dir: OpenDirectory) -> None:
        """Link the cleaner's checkpoint as it is before the cleaning, if the manifest says that there is one."""
        if self._subject.had_checkpoint:
            self._link(log_dir, CLEANER_OFFSET_CHECKPOINT)

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
        untouched = tuple(each for each in self._subject.untouched if each[0] not in replaced)
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
        "topic": kept.topic_partition.topic,
        "partition": kept.topic_partition.partition,
        "checkpoint_offset": kept.checkpoint_offset,
        "had_checkpoint": kept.had_checkpoint,
        "end_offset": kept.end_offset,
        "untouched": [{"name": name, "size": size, "mtime_ns": time} for name, size, time in kept.untouched],
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
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def read_kept(directory: OpenDirectory) -> KeptPartition | None:
    """Return what is kept of a partition, from `DIR/<partition>`, held open; None if nothing was replaced.

    Raises CorruptCheckpointError for a manifest that no cleaning has written.
    """
    if directory.status(MANIFEST) is None:
        return None
    path = directory.path / MANIFEST
    try:
        return decode(read_file(path, max_bytes=MAX_BYTES, dir_fd=directory.fd()))
    except (ValueError, RecursionError) as error:
        raise CorruptCheckpointError(
            file=path,
            problem=f"not a manifest of this version: {error}",
            hint="Nothing was changed. The kept files beside it are complete old segments.",
        ) from error


_FIELDS = (
    *("version", "kcompact", "now_ms", "number", "directory", "topic", "partition"),
    *("checkpoint_offset", "had_checkpoint", "end_offset", "untouched", "groups"),
)


def decode(content: bytes) -> KeptPartition:
    """Return a manifest. Raises ValueError for any document that `encode` does not write."""
    root = fields_of(parsed(content), *_FIELDS)
    if integer_of(root["version"]) != VERSION:
        raise ValueError(f"version {root['version']}")
    name = f"{text_of(root['topic'])}-{integer_of(root['partition'])}"
    topic_partition = TopicPartition.parse(name)
    if topic_partition is None or Path(text_of(root["directory"])).name != name:
        raise ValueError(f"{name!r} is not the partition of the directory")
    offset = root["checkpoint_offset"]
    if not isinstance(root["had_checkpoint"], bool):
        raise ValueError("expected true or false")
    kept = KeptPartition(
        directory=root["directory"],
        topic_partition=topic_partition,
        number=integer_of(root["number"]),
        now_ms=integer_of(root["now_ms"], least=-(2**63)),
        kcompact=text_of(root["kcompact"]),
        checkpoint_offset=None if offset is None else integer_of(offset),
        had_checkpoint=root["had_checkpoint"],
        end_offset=integer_of(root["end_offset"]),
        untouched=tuple(_untouched(value) for value in list_of(root["untouched"])),
        groups=tuple(_group(value) for value in list_of(root["groups"])),
    )
    _require_rising(kept)
    return kept


def _untouched(value: object) -> tuple[str, int, int]:
    fields = fields_of(value, "name", "size", "mtime_ns")
    return _file_name(fields), integer_of(fields["size"]), integer_of(fields["mtime_ns"], least=-(2**63))


def _group(value: object) -> KeptGroup:
    fields = fields_of(value, "base_offset", "new", "old")
    return KeptGroup(
        base_offset=integer_of(fields["base_offset"]),
        new=tuple(_new_file(file) for file in list_of(fields["new"])),
        old=tuple(_old_file(file) for file in list_of(fields["old"])),
    )


def _new_file(value: object) -> StagedFile:
    fields = fields_of(value, "name", "size", "crc32c")
    name = _file_name(fields)
    size_bytes, crc32c = integer_of(fields["size"]), integer_of(fields["crc32c"])
    return StagedFile(name=name, staged_as=name, size_bytes=size_bytes, crc32c=crc32c)


def _old_file(value: object) -> KeptFile:
    fields = fields_of(value, "name", "size", "crc32c", "mtime_ns", "uid", "gid", "mode")
    numbers = {name: integer_of(fields[name]) for name in ("crc32c", "uid", "gid", "mode")}
    return KeptFile(
        name=_file_name(fields),
        size_bytes=integer_of(fields["size"]),
        mtime_ns=integer_of(fields["mtime_ns"], least=-(2**63)),
        **numbers,
    )


def _file_name(fields: dict[str, Any]) -> str:
    """Return a name that is exactly that of a file of a segment, so that it leads to no other directory."""
    name = text_of(fields["name"])
    found = parse_file_name(name)
    if found is None or found.temporary is not Temporary.NO:
        raise ValueError(f"{name!r} is not the name of a file of a segment")
    return name


def _require_rising(kept: KeptPartition) -> None:
    """Raise ValueError unless the groups follow each other, each with its first log on both sides, no name twice."""
    end = -1
    for group in kept.groups:
        for names in ([file.name for file in group.new], [file.name for file in group.old]):
            bases = [found.base_offset for found in map(parse_file_name, names) if found is not None]
            first_log = f"{group.base_offset:020d}{Suffix.LOG}"
            is_rising = bases and end < min(bases) == group.base_offset
            if not is_rising or first_log not in names or len(set(names)) != len(names):
                raise ValueError(f"group {group.base_offset}: not in order, or not complete")
        end = max(found.base_offset for file in group.old if (found := parse_file_name(file.name)) is not None)
