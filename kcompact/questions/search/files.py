"""The files under some directories, and how each is read: as batches of records, as plain bytes, or as unknown ones.

batches     by name a `.log` (also `.deleted`, `.cleaned`, `.swap`) or a snapshot of a metadata log; and every file
            that begins with a batch: segments that are staged, kept or copied under another name
plain       what a broker or kcompact writes beside them: indexes, checkpoints, manifests
unknown     all others: compressed, encrypted or encoded content cannot be told from bytes of no meaning
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from functools import cache, partial
from pathlib import Path

from kcompact.bucket.manifest import MANIFEST
from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.path import is_in_bucket
from kcompact.bucket.scratch import as_path
from kcompact.errors import CorruptBatchError, RefusedError
from kcompact.format.batch import HEADER_BYTES, read_header
from kcompact.format.checkpoint import (
    CLEANER_OFFSET_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kcompact.format.names import (
    REMOTE_INDEX_CACHE,
    DirectoryKind,
    Suffix,
    is_raft_file,
    parse_directory,
    parse_file_name,
)
from kcompact.format.properties import CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA
from kcompact.log.directory import has_partitions, is_log_dir, is_one_partition
from kcompact.log.files import FileIdentity, files_in
from kcompact.plan.selection import Selection
from kcompact.readable import counted
from kcompact.values import dataclass

_PLAIN_NAMES = frozenset(
    name + suffix
    for name in (
        *(CLEANER_OFFSET_CHECKPOINT, LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT),
        *(REPLICATION_OFFSET_CHECKPOINT, CLEAN_SHUTDOWN_FILE, META_PROPERTIES, PARTITION_METADATA, ".lock"),
        *("manifest.json", "kept.json", "copy.json", MANIFEST),
    )
    for suffix in ("", ".tmp")
)
_STAGED = re.compile(r"[0-9]{1,9}\.json|group-[0-9]+-part-[0-9]+-[0-9a-f]{8}\.(index|timeindex|txnindex)")
"""A record of a copy, or an index that has the name of its log until the swap."""
_CACHED_INDEX = re.compile(r"[0-9]+_[\w-]+\.(index|timeindex|txnindex)(\.deleted)?", re.ASCII)
"""Rule: `RemoteIndexCache`."""


_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""How files of gzip, zstd, lz4, bzip2, xz and zip begin: whatever their names say."""


class Content(StrEnum):
    """How the bytes of a file are read."""

    BATCHES = "batches"
    PLAIN = "plain"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file below one of the paths. `problem` is why it cannot be read, "" if nothing is known against it.

    `also` are other names of the same file, which is read once. `identity` is None for what is no regular file.
    `content` returns that of an object which is no file of a mirrored directory.
    """

    path: Path
    problem: str = ""
    identity: FileIdentity | None = None
    also: list[Path] = field(default_factory=list)
    content: Callable[[], bytes] | None = None


def files_below(paths: Iterable[Path]) -> list[FoundFile]:
    """Return the files below some paths, each once, in order of their names. Links are not followed, but named.

    What is not mirrored of a bucket is named too.
    """
    files: dict[Path, FoundFile] = {}
    by_inode: dict[tuple[int, int], FoundFile] = {}
    for path in paths:
        for each in _below(path):
            if each.path in files:
                continue
            if each.identity is not None and each.identity.inode >= 0:  # A file of a bucket has no other name.
                first = by_inode.setdefault((each.identity.device, each.identity.inode), each)
                if first is not each:
                    if each.path not in first.also:
                        first.also.append(each.path)
                    continue
            files[each.path] = each
        for each in _not_mirrored() if is_in_bucket(path) else ():
            if path in each.path.parents:
                files[each.path] = each
    return list(files.values())


def _not_mirrored() -> Iterator[FoundFile]:
    """Yield the objects of buckets that are no files of a directory."""
    for address, orphans in MIRROR.orphans.items():
        problem = f"an unfinished upload, of which nothing is read: {counted(orphans.count, 'object')}"
        yield FoundFile(path=as_path(address), problem=problem)
    for address in sorted(MIRROR.strays):
        yield FoundFile(path=as_path(address), problem="the manifest beside it does not name it, so it is not read")
    for path, failure in MIRROR.failures.items():
        yield FoundFile(path=path, problem=str(failure).splitlines()[0])
    for address, content in MIRROR.manifests.items():
        yield FoundFile(path=as_path(address), content=content)


def selected_files(files: Sequence[FoundFile], paths: Iterable[Path], selection: Selection) -> list[FoundFile]:
    """Return the files below some paths that are in directories of selected partitions, of any kind.

    And what cannot be read, unless it is sure that it is of another partition. Of a file that may be of several
    partitions one needs to be selected.
    """
    if selection.selects_all:
        return list(files)
    tops = frozenset(path if path.is_dir() else path.parent for path in paths)
    partitions_of = cache(partial(_partitions_of, tops))  # Most files share a directory.

    def is_selected(file: FoundFile) -> bool:
        for name in (file.path, *file.also):
            partitions, is_sure = partitions_of(name if file.problem else name.parent)
            if any(map(selection.has, partitions)) or (file.problem and not is_sure):
                return True
        return False

    return list(filter(is_selected, files))


def _partitions_of(tops: frozenset[Path], directory: Path) -> tuple[tuple[Path, ...], bool]:
    """Return the partition directories that a directory may be or be in, and whether that is sure.

    From the paths down: above them only a partition counts that has a path in it, and no name alone. The outermost one
    that is sure is the last: within it there can be anything.
    """
    named = [each for each in (*reversed(directory.parents), directory) if parse_directory(each.name)]
    below = [each for each in named if not tops.isdisjoint((each, *each.parents))]
    possible: list[Path] = []
    for each in below or filter(is_one_partition, named):
        is_partition = _is_partition(each)
        if is_partition is not False:
            possible.append(each)
        if is_partition:
            return tuple(possible), True
    return tuple(possible), False


def _is_partition(directory: Path) -> bool | None:
    """Return whether a directory with the name of a partition is one, None if that is not sure.

    In a log directory it is one. Elsewhere a log directory, or a directory of several, can be named broker-1.
    """
    parsed = parse_directory(directory.name)
    if parsed is not None and parsed.kind is not DirectoryKind.PARTITION:
        return True
    try:
        has_files = any(map(_is_of_partition, os.listdir(directory)))  # noqa: PTH208 - only the names
    except OSError:
        has_files = True
    is_several = has_partitions(directory)
    if (is_several and not has_files) or (is_log_dir(directory) and (is_several or not has_files)):
        return False
    return True if is_log_dir(directory.parent) else None


def _is_of_partition(name: str) -> bool:
    return name in (PARTITION_METADATA, LEADER_EPOCH_CHECKPOINT) or parse_file_name(name) is not None


def has_files(path: Path) -> bool:
    """Return whether there is a file below a path, or something that cannot be read."""
    return next(_below(path), None) is not None


def _below(path: Path) -> Iterator[FoundFile]:
    """Yield the files below a path, or the path itself, and what cannot be read."""
    left = [path]
    while left:
        each = left.pop()
        try:
            status = each.lstat()
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(each) as entries:
                    left += [each / name for name in sorted((entry.name for entry in entries), reverse=True)]
                continue
        except OSError as problem:
            yield FoundFile(path=each, problem=problem.strerror or str(problem))
            continue
        if stat.S_ISLNK(status.st_mode):
            yield FoundFile(path=each, problem="a symbolic link, which is not followed")
        elif not stat.S_ISREG(status.st_mode):
            yield FoundFile(path=each, problem="not a regular file")
        else:
            yield FoundFile(path=each, identity=files_in(each.parent).identity(each.name))


def content_of(path: Path, first_bytes: bytes) -> Content:
    """Return how a file is read, by its name or by its first bytes, at least those of a header."""
    parsed = parse_file_name(path.name)
    is_snapshot = is_raft_file(path.name) and ".checkpoint" in path.name
    if (parsed is not None and parsed.suffix is Suffix.LOG) or is_snapshot or _is_batch(first_bytes):
        return Content.BATCHES
    is_plain = parsed is not None or is_raft_file(path.name) or path.name in _PLAIN_NAMES
    is_plain = is_plain or (path.parent.name.startswith(".kcompact-") and _STAGED.fullmatch(path.name) is not None)
    is_plain = is_plain or (path.parent.name == REMOTE_INDEX_CACHE and _CACHED_INDEX.fullmatch(path.name) is not None)
    is_plain = is_plain and not first_bytes.startswith(_COMPRESSED)
    return Content.PLAIN if is_plain or not first_bytes else Content.UNKNOWN


def _is_batch(first_bytes: bytes) -> bool:
    try:
        return len(first_bytes) >= HEADER_BYTES and read_header(first_bytes, file="", position=0).magic == 2
    except (CorruptBatchError, RefusedError):
        return False
