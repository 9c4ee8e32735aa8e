"""Finds the partition directories that a user's paths name, and those beside them. Reads directories only, no file."""

from __future__ import annotations

import enum
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from kcompact.bucket.mirror import MIRROR
from kcompact.bucket.path import is_address, is_in_bucket, require_known_store
from kcompact.bucket.scratch import as_path
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.errors import ConfigError, KcompactError, RefusedError
from kcompact.format import names
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log.directory import is_log_dir, is_one_partition, is_partition_directory, partition_directories
from kcompact.plan.selection import EVERY_PARTITION, Selection
from kcompact.values import dataclass

EMPTY_PATH = "the path is empty; for the current directory use ."
MAX_COUNTED_FILES = 20_000
"""With more files in all directories that are left out, the sizes of the last ones are not computed: it takes long."""


def named_path(path: str | os.PathLike[str], *, suggests_address: bool = False) -> Path:
    """Return a path that the user named.

    Raises ConfigError for an empty text, because `Path("")` is the current directory, and as `require_known_store`.
    """
    if os.fspath(path) == "":
        raise ConfigError(path="path ''", problem=EMPTY_PATH)
    require_known_store(path, suggests_address=suggests_address)
    return as_path(path)


def is_gone(directory: Path) -> bool:
    """Return whether there is no such directory. One that cannot be looked at is not gone."""
    try:
        return not stat.S_ISDIR(
            directory.stat().st_mode
        )  # From Python 3.14 on `is_dir` hides that the look has failed.
    except OSError as problem:
        return isinstance(problem, FileNotFoundError | NotADirectoryError)


def source_path(path: str | os.PathLike[str]) -> Path:
    """Return a path to read that the user named. What is in a bucket is mirrored.

    Raises as `named_path`; for an address, or a path of one, RefusedError, CorruptCheckpointError, StorageError.
    """
    if is_address(path):
        return MIRROR.mirrored(str(path))
    local_path = named_path(path, suggests_address=True)
    MIRROR.require(local_path)
    return local_path


def find_partitions(
    paths: Sequence[str | os.PathLike[str]], *, topics: Sequence[str] = (), partitions: Sequence[int] = ()
) -> list[Path]:
    """Return the partition directories that the paths name, each once, in order of path, topic and partition.

    A path is a partition directory or a log directory. One of several log directories may have no partition. `topics`
    are shell patterns that select topics, `partitions` are numbers; none selects all. Symbolic links to log directories
    are resolved. A link to a partition is returned as it is, and `read_log` refuses it: the lock and the checkpoints
    are in the parent directory, and a link has two parents. Raises RefusedError for any other path, ConfigError for an
    empty one and for one of another store.
    """
    directories: dict[Path, None] = {}
    for path in map(source_path, paths):
        directory = canonical(path)
        if not directory.is_dir():
            problem = "not a directory" if directory.exists() else "no such directory"
            raise RefusedError(path=path, problem=problem)
        if is_one_partition(directory):
            directories[directory] = None
            continue
        inside = partitions_in(directory)
        if not inside and not is_log_dir(directory):
            raise _nothing_inside(path, directory)
        directories.update(dict.fromkeys(inside))
    if paths and not directories:
        raise RefusedError(path=os.fspath(paths[0]), problem="a log directory without partitions")
    return list(filter(Selection(tuple(topics), tuple(partitions)).has, directories))


def partitions_in(log_dir: Path) -> list[Path]:
    """Return the partition directories in a log directory.

    Directories that a broker deletes, moves or has found to be stray are left out.
    """
    return [
        directory
        for directory in partition_directories(log_dir)
        if (name := parse_directory(directory.name)) and name.kind is DirectoryKind.PARTITION
    ]


def has_others(log_dirs: Iterable[Path], directories: Collection[Path]) -> bool:
    """Return whether log directories have, or may have, more partitions than these, the metadata log apart.

    What is said of some partitions of a disk is not said of the disk. A link to nothing can be a partition of a disk
    that is not mounted.
    """
    inside: set[Path] = set()
    for log_dir in log_dirs:
        if is_in_bucket(log_dir) and not MIRROR.is_whole(log_dir):
            return True
        try:
            inside.update(partitions_in(log_dir))
            inside.update(dangling_partitions(log_dir))
        except OSError:
            return True
    return any(each.name != METADATA_DIRECTORY for each in inside.difference(directories))


def dangling_partitions(log_dir: Path) -> list[Path]:
    """Return the links with the name of a partition that lead to nothing: a broker skips them. Raises OSError."""
    with os.scandir(log_dir) as entries:
        links = [Path(entry) for entry in entries if entry.is_symlink() and parse_directory(entry.name)]
    return sorted(each for each in links if not each.exists())


def canonical(path: Path) -> Path:
    """Return a path in the form of the partition directories that `find_partitions` returns.

    It is absolute. A link is resolved, unless it is one to a partition.
    """
    if is_in_bucket(path):
        return path
    directory = path.absolute()
    # `link/..` is above what the link leads to. Only the last part may stay a link.
    directory = directory.resolve() if directory.name == ".." else directory.parent.resolve() / directory.name
    # Not `Path.is_symlink`, which raises an error where a directory above may not be searched.
    if os.path.islink(directory) and not is_one_partition(directory):  # noqa: PTH114
        directory = directory.resolve()
    return directory


def _nothing_inside(path: Path, directory: Path) -> RefusedError:
    """Return the error for a directory without partitions that is no partition either."""
    if is_partition_directory(directory):
        return RefusedError(
            path=path,
            problem=f"a directory with .log files, but its name '{directory.name}' is not TOPIC-PARTITION",
            hint="Only the name says which partition it is. Rename the directory, or a copy of it, to the name that it "
            "had in the broker's log directory, such as orders-0.",
        )
    return RefusedError(
        path=path,
        problem="neither a partition directory nor a log directory: no .log file and no partition in it",
        hint="Pass a partition directory such as orders-0, or the log directory above it.",
    )


class LeftOutKind(enum.StrEnum):
    """Why a sub-directory of a log directory is not a partition."""

    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"
    REMOTE_INDEX_CACHE = names.REMOTE_INDEX_CACHE
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A sub-directory of a log directory that kcompact does not look at.

    `size_bytes` is the size of all files below it; None if they cannot be read or are too many.
    """

    directory: Path
    kind: LeftOutKind
    size_bytes: int | None

    @property
    def name(self) -> str:
        """The partition in the name of the directory, or the whole name if there is none."""
        parsed = parse_directory(self.directory.name)
        return self.directory.name if parsed is None else str(parsed.topic_partition)


def left_out(paths: Sequence[Path], selection: Selection = EVERY_PARTITION) -> list[LeftOut]:
    """Return the sub-directories that `find_partitions` leaves out of log directories, each once, in order of name.

    Only those of partitions that are selected. Paths without a partition are ignored. A broker skips
    `remote-log-index-cache`; most unknown names keep it from starting.
    Rule: LogManager.loadLogs, LocalLog.parseTopicPartitionName.
    """
    left_out_by_directory: dict[Path, LeftOut] = {}
    for path in paths:
        with suppress(OSError):  # `find_partitions` reports it.
            directory = canonical(path)
            if not directory.is_dir() or is_one_partition(directory) or not partitions_in(directory):
                continue
            for each in left_out_of(directory):
                if selection.has(each.directory):
                    left_out_by_directory.setdefault(each.directory, each)
    return list(left_out_by_directory.values())


def left_out_of(log_dir: Path) -> Iterator[LeftOut]:
    """Yield the sub-directories of one log directory that are no partitions, in order of name. Raises OSError."""
    files_left = MAX_COUNTED_FILES
    for name in sorted(entry.name for entry in os.scandir(log_dir) if entry.is_dir()):
        parsed = parse_directory(name)
        if parsed is not None and parsed.kind is DirectoryKind.PARTITION:
            continue
        kind = LeftOutKind.UNKNOWN if parsed is None else LeftOutKind(parsed.kind.value)
        if name == LeftOutKind.REMOTE_INDEX_CACHE:
            kind = LeftOutKind.REMOTE_INDEX_CACHE
        sizes = _sizes_below(log_dir / name, at_most=files_left)
        files_left -= len(sizes or ())
        yield LeftOut(directory=log_dir / name, kind=kind, size_bytes=None if sizes is None else sum(sizes))


def _sizes_below(directory: Path, *, at_most: int) -> list[int] | None:
    """Return the sizes of all files below a directory, links not followed; None if it is unreadable or has too many."""
    sizes: list[int] = []
    unread = [directory]
    try:
        MIRROR.require(directory)
        while unread and len(sizes) + len(unread) <= at_most:
            for entry in os.scandir(unread.pop()):
                if entry.is_dir(follow_symlinks=False):
                    unread.append(Path(entry.path))
                else:
                    sizes.append(entry.stat(follow_symlinks=False).st_size)
    except (OSError, KcompactError):
        return None
    return None if unread else sizes
