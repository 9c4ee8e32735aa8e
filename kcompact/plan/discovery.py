"""Finds the partition directories that a user's paths name. Reads directories only, no file."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path

from kcompact.errors import ConfigError, RefusedError
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log.directory import is_partition_directory, partition_directories

EMPTY_PATH = "the path is empty; for the current directory use ."


def named_path(path: str | os.PathLike[str]) -> Path:
    """Return a path that the user named. Raises ConfigError for an empty text: `Path("")` is the current directory."""
    if os.fspath(path) == "":
        raise ConfigError(path="path ''", problem=EMPTY_PATH)
    return Path(path)


def find_partitions(paths: Sequence[str | os.PathLike[str]], *, topics: Sequence[str] = ()) -> list[Path]:
    """Return the partition directories that the paths name, each once, in order of path, topic and partition.

    A path is a partition directory or a log directory. `topics` are shell patterns that select topics; none selects
    all. Symbolic links to log directories are resolved. A link to a partition is returned as it is, and `read_log`
    refuses it: the lock and the checkpoints are in the parent directory, and a link has two parents. Raises
    RefusedError for any other path, ConfigError for an empty one.
    """
    found: dict[Path, None] = {}
    for path in map(named_path, paths):
        directory = Path(os.path.normpath(path.absolute()))
        directory = directory.parent.resolve() / directory.name
        if directory.is_symlink() and parse_directory(directory.name) is None:
            directory = directory.resolve()
        if not directory.is_dir():
            problem = "not a directory" if directory.exists() else "no such directory"
            raise RefusedError(path=path, problem=problem)
        parsed = parse_directory(directory.name)
        if parsed is not None and (is_partition_directory(directory) or parsed.kind is not DirectoryKind.PARTITION):
            found[directory] = None
            continue
        inside = partitions_in(directory)
        if not inside:
            raise RefusedError(
                path=path,
                problem="neither a partition directory nor a log directory: no .log file and no partition in it",
                hint="Pass a partition directory such as orders-0, or the log directory above it.",
            )
        found.update(dict.fromkeys(inside))
    return [directory for directory in found if not topics or _has_topic(directory, topics)]


def partitions_in(log_dir: Path, *, topics: Sequence[str] = ()) -> list[Path]:
    """Return the partition directories in a log directory, of topics that match one of the patterns if there are any.

    Directories that a broker deletes, moves or has found to be stray are left out.
    """
    return [
        directory
        for directory in partition_directories(log_dir)
        if (name := parse_directory(directory.name))
        and name.kind is DirectoryKind.PARTITION
        and (not topics or _has_topic(directory, topics))
    ]


def _has_topic(directory: Path, patterns: Sequence[str]) -> bool:
    """Return whether the topic of a partition directory matches one of the shell patterns, case-sensitively."""
    parsed = parse_directory(directory.name)
    return parsed is not None and any(fnmatch.fnmatchcase(parsed.topic_partition.topic, each) for each in patterns)
