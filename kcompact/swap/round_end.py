"""The end of a cleaning or a recovery: the checkpoint, then the removal of its staging directories. Many end together.

The checkpoints of all partitions of a log directory are one file. To write it for each of thousands of partitions takes
longer than to clean them, so partitions end in groups: one read and one write for each log directory.

A checkpoint may lag, it may never lead. A partition joins a group when all its segments are in place and synced. Its
staging directory, with the manifest that has the new offset, stays until the checkpoint of the group is synced. So
after a stop at any instant recovery finds the offset and writes it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from kcompact.errors import LogChangedError
from kcompact.format.names import TopicPartition
from kcompact.log.directory import partition_by_name
from kcompact.log.lock import LogDirLock
from kcompact.swap.checkpoint import read_checkpoint, write_checkpoints
from kcompact.swap.open_directory import OpenDirectory
from kcompact.values import dataclass

Present = Callable[[], Mapping[TopicPartition, int]]
"""Reads the checkpoints of a log directory, once for all that ask. Raises CorruptCheckpointError, StorageError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(ABC):
    """A partition whose swaps are done. `directory` is held open until `end` closes it.

    `log_dir` is the log directory with the checkpoint, None if there is none to write. `lock` is its lock, None if it
    is not locked.
    """

    directory: OpenDirectory
    log_dir: Path | None
    lock: LogDirLock | None

    @abstractmethod
    def offset_due(self, present: Present) -> int | None:
        """Return the checkpoint to write, None if none is due. Raises what forbids to write it."""

    @abstractmethod
    def discard(self) -> None:
        """Remove the staging directories."""


class Ended(NamedTuple):
    """The checkpoint that was written; why it was not, so that recovery needs the staging directory; why that stays."""

    offset: int | None = None
    unwritten: Exception | None = None
    stays: Exception | None = None


def end(
    partitions: Sequence[Ending], *, before_discard: Callable[[Sequence[Ended]], None] = lambda _: None
) -> list[Ended]:
    """Write the checkpoints of partitions, remove their staging directories, and return the results in their order.

    `before_discard` is called in between: a stop before its end leaves all to recovery. A partition that cannot get its
    checkpoint does not keep the others from theirs. Raises nothing.
    """
    written: dict[int, int | Exception | None] = {}
    by_log_dir: dict[tuple[Path, int], dict[int, Ending]] = {}
    with ExitStack() as stack:
        for number, each in enumerate(partitions):
            stack.enter_context(each.directory)
            if each.log_dir is not None:
                by_log_dir.setdefault((each.log_dir, id(each.lock)), {})[number] = each
        for (log_dir, _), together in by_log_dir.items():
            written |= _write_checkpoints(log_dir, together)
        ended = [_ended(written.get(number)) for number in range(len(partitions))]
        before_discard(ended)
        return [_discarded(each, outcome) for each, outcome in zip(partitions, ended, strict=True)]


def _write_checkpoints(log_dir: Path, partitions: Mapping[int, Ending]) -> dict[int, int | Exception | None]:
    """Write the checkpoints that are due in a log directory. Return each offset, or what kept it from there."""
    offsets_or_problems: dict[int, int | Exception | None] = {}
    lock = partitions[min(partitions)].lock
    try:
        with OpenDirectory.of_log_dir(log_dir, lock) as opened_log_dir:
            present = cache(partial(read_checkpoint, opened_log_dir))
            for number, each in partitions.items():
                try:
                    _require_named(each.directory, opened_log_dir)
                    offsets_or_problems[number] = each.offset_due(present)
                except Exception as problem:
                    offsets_or_problems[number] = problem
            wanted = {
                partition_by_name(partitions[number].directory.path): to
                for number, to in offsets_or_problems.items()
                if isinstance(to, int)
            }
            if wanted:
                check(lock)
                write_checkpoints(opened_log_dir, wanted)
    except Exception as problem:
        return {
            number: problem if isinstance(to := offsets_or_problems.get(number, problem), int) else to
            for number in partitions
        }
    return offsets_or_problems


def _require_named(directory: OpenDirectory, log_dir: OpenDirectory) -> None:
    """Raise LogChangedError unless a partition is still in its log directory, under its name."""
    status = log_dir.status(directory.path.name)
    if status is None or not os.path.samestat(status, os.fstat(directory.fd())):
        raise LogChangedError(path=directory.path, problem="was moved or replaced while kcompact was using it")


def _ended(written: int | Exception | None) -> Ended:
    return Ended(unwritten=written) if isinstance(written, Exception) else Ended(offset=written)


def _discarded(partition: Ending, outcome: Ended) -> Ended:
    """Remove the staging directories, unless recovery needs a manifest to write the checkpoint."""
    if outcome.unwritten is None:
        try:
            partition.discard()
        except Exception as problem:
            return outcome._replace(stays=problem)
    return outcome


def check(lock: LogDirLock | None) -> None:
    """Raise LogChangedError if there is a lock and it is lost."""
    if lock is not None:
        lock.check()
