"""The free space that a cleaning needs. It is checked before anything is written, and again before each wave.

The staged files of a wave are complete before the old ones go, so the free space must hold them all. Their sizes are at
first upper bounds (`clean.growth`). If these do not fit, the groups are counted as in a dry run, which takes as long as
writing them: then the sizes are exact.

The cleanings of a process share the free space: each reserves what it is about to write, and one that does not fit
beside the others waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

from kcompact.clean.executor import Executor, Progress
from kcompact.clean.groups import GroupSize, count_groups, most_sizes
from kcompact.clean.prepare import PreparedClean
from kcompact.errors import NotEnoughSpaceError
from kcompact.host.disk import Disk, nearest_existing
from kcompact.plan.clean_plan import CleanPlan
from kcompact.swap.copy.contents import read_partition_contents, with_metadata
from kcompact.swap.copy.output import SHARED_BLOCKS
from kcompact.swap.manifest import MAX_BYTES

_SMALL_FILES = 6
"""Blocks for the directories, two manifests, the checkpoint and the lock file."""
_SMALL_FILES_OF_WAVE = 2
"""Blocks for the small files that are not there yet when a wave begins."""
_MANIFEST_BYTES_OF_FILE = 256
_FILES_OF_SEGMENT = 5
_POLL_S = 0.2

Result = TypeVar("Result")


# The sizes


def shortage(plan: CleanPlan, sizes: Sequence[GroupSize], disk: Disk | None = None) -> NotEnoughSpaceError | None:
    """Return the error that stops a cleaning whose groups have these sizes, None if the space is enough.

    Each group must fit when it is its turn: those before it have freed their old files by then. `disk` None means all
    that is free.
    """
    directory = plan.log.directory
    free_bytes, block_bytes = disk or Disk.of(directory)
    for number, size in enumerate(sizes):
        staged_bytes = _staged_bytes(plan, number, size, block_bytes)
        needed_bytes = _wave_bytes(staged_bytes, size.appended_bytes) + _SMALL_FILES * block_bytes
        if needed_bytes > free_bytes:
            return NotEnoughSpaceError(path=directory, needed_bytes=needed_bytes, free_bytes=free_bytes)
        free_bytes += _freed_bytes(plan, number, block_bytes) - staged_bytes
    return None


def shortage_of_copy(plan: CleanPlan, sizes: Sequence[GroupSize], output: Path) -> NotEnoughSpaceError | None:
    """Return the error that stops a copy to `output`, None if the space is enough or the copy is already there."""
    if (output / plan.log.directory.name).exists():
        return None
    free_bytes, block_bytes = Disk.of(output)
    needed_bytes = _copied_bytes(plan, sizes, block_bytes) + SHARED_BLOCKS * block_bytes
    if needed_bytes <= free_bytes:
        return None
    return NotEnoughSpaceError(path=output, needed_bytes=needed_bytes, free_bytes=free_bytes)


def _staged_bytes(plan: CleanPlan, number: int, size: GroupSize, block_bytes: int) -> int:
    """Return the space for the staged files of a group, and for its part of the manifest."""
    manifest_bytes = _manifest_bytes(plan, number, size)
    # Every file ends inside a block.
    return with_metadata(size.log_bytes + size.index_bytes) + manifest_bytes + size.files * block_bytes


def _manifest_bytes(plan: CleanPlan, number: int, size: GroupSize) -> int:
    return _MANIFEST_BYTES_OF_FILE * (size.files + _FILES_OF_SEGMENT * len(plan.groups[number]))


def _wave_bytes(staged_bytes: int, appended_bytes: int) -> int:
    """Return the most space that groups of `staged_bytes` together take while they are staged."""
    return staged_bytes + with_metadata(appended_bytes)


def _copied_bytes(plan: CleanPlan, sizes: Sequence[GroupSize], block_bytes: int) -> int:
    """Return the most space that a copy takes: all groups, and the files that are copied as they are."""
    replaced = {file.name for segment in plan.segments for file in segment.files}
    files = [file for file in read_partition_contents(plan.log.directory).files if file.name not in replaced]
    staged_bytes = sum(_staged_bytes(plan, number, size, block_bytes) for number, size in enumerate(sizes))
    appended_bytes = max((size.appended_bytes for size in sizes), default=0)
    copied_bytes = with_metadata(sum(file.size_bytes for file in files)) + len(files) * block_bytes
    return _wave_bytes(staged_bytes, appended_bytes) + copied_bytes + SHARED_BLOCKS * block_bytes


def _freed_bytes(plan: CleanPlan, number: int, block_bytes: int) -> int:
    """Return the space that deleting the old files of a group frees. A file with another hard link frees none."""
    freed_bytes = 0
    for segment in plan.groups[number]:
        for file in segment.files:
            with suppress(FileNotFoundError):
                status = (plan.log.directory / file.name).lstat()
                if status.st_nlink == 1:
                    freed_bytes += min(status.st_blocks * 512, -(-status.st_size // block_bytes) * block_bytes)
    return freed_bytes


# The check


@contextmanager
def reserved_for_exact_copy(plan: CleanPlan, output: Path, progress: Progress) -> Iterator[None]:
    """Reserve the space for a copy of a partition as it is while the block runs. Raises NotEnoughSpaceError."""
    contents = read_partition_contents(plan.log.directory)
    _, release = _RESERVATIONS.take(
        output, lambda disk: _fitting(output, contents.space_bytes(disk.block_bytes), disk), progress
    )
    try:
        yield
    finally:
        release()


def _fitting(output: Path, needed_bytes: int, disk: Disk) -> tuple[None, int] | NotEnoughSpaceError:
    """Return the space that a copy needs as a reservation, or the error if the disk has less."""
    if needed_bytes > disk.free_bytes:
        return NotEnoughSpaceError(path=output, needed_bytes=needed_bytes, free_bytes=disk.free_bytes)
    return None, needed_bytes


class StagingSpace:
    """The space for the staged files of one cleaning."""

    def __init__(self, prepared: PreparedClean, executor: Executor, progress: Progress) -> None:
        self._prepared = prepared
        self._plan = prepared.plan
        self._executor = executor
        self._progress = progress
        self._sizes = most_sizes(prepared)
        self._is_exact = False

    def require(self) -> None:
        """Raise NotEnoughSpaceError if a group will not fit when it is its turn."""
        with self._reserved(
            self._plan.log.directory, lambda disk: shortage(self._plan, self._sizes, disk) or (None, 0)
        ):
            pass

    def waves(self) -> Generator[list[int], None, None]:
        """Yield the numbers of the groups to write next: as many as the free space and a manifest hold.

        The space of a wave is reserved until the next one is asked for. Raises NotEnoughSpaceError if none fits now.
        """
        number = 0
        while number < len(self._plan.groups):
            with self._reserved(self._plan.log.directory, partial(self._wave, number)) as wave:
                yield wave
            number = wave[-1] + 1

    def _wave(self, first: int, disk: Disk) -> tuple[list[int], int] | NotEnoughSpaceError:
        """Return the groups from `first` on that fit, with the space that they need, or the error.

        More than one group only if one file of a manifest holds them.
        """
        wave: list[int] = []
        staged_bytes, appended_bytes, manifest_bytes, wave_bytes = 0, 0, 0, 0
        for number in range(first, len(self._plan.groups)):
            size = self._sizes[number]
            manifest_bytes += _manifest_bytes(self._plan, number, size)
            if wave and manifest_bytes > MAX_BYTES:
                break
            staged_bytes += _staged_bytes(self._plan, number, size, disk.block_bytes)
            appended_bytes = max(appended_bytes, size.appended_bytes)
            needed_bytes = _wave_bytes(staged_bytes, appended_bytes) + _SMALL_FILES_OF_WAVE * disk.block_bytes
            if needed_bytes > disk.free_bytes:
                if wave:
                    break
                path = self._plan.log.directory
                return NotEnoughSpaceError(path=path, needed_bytes=needed_bytes, free_bytes=disk.free_bytes)
            wave.append(number)
            wave_bytes = needed_bytes
        return wave, wave_bytes

    @contextmanager
    def reserved_for_copy(self, output: Path) -> Iterator[None]:
        """Reserve the space for a copy to `output` while the block runs. Raises NotEnoughSpaceError."""

        def needed(disk: Disk) -> tuple[None, int] | NotEnoughSpaceError:
            return _fitting(output, _copied_bytes(self._plan, self._sizes, disk.block_bytes), disk)

        with self._reserved(output, needed):
            yield

    @contextmanager
    def _reserved(
        self, place: Path, choose: Callable[[Disk], tuple[Result, int] | NotEnoughSpaceError]
    ) -> Iterator[Result]:
        """Yield what `choose` returns for the free space, with that much space reserved while the block runs.

        With an error, first other cleanings of this process are waited for; then the groups are counted; then the
        error is raised.
        """
        try:
            taken = _RESERVATIONS.take(place, choose, self._progress)
        except NotEnoughSpaceError:
            if self._is_exact:
                raise
            self._sizes = count_groups(self._prepared, self._executor).sizes
            self._is_exact = True
            taken = _RESERVATIONS.take(place, choose, self._progress)
        result, release = taken
        try:
            yield result
        finally:
            release()


class _Reservations:
    """What the cleanings of this process have reserved on each file system, by its device number."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._reserved_bytes: dict[int, list[int]] = {}

    def take(
        self, place: Path, choose: Callable[[Disk], tuple[Result, int] | NotEnoughSpaceError], progress: Progress
    ) -> tuple[Result, Callable[[], None]]:
        """Reserve what `choose` needs; return its result, and a function that releases the space.

        Waits while other cleanings have reservations and `choose` returns an error; then raises it.
        """
        with self._changed:
            others = self._reserved_bytes.setdefault(nearest_existing(place).stat().st_dev, [])
            # What another cleaning has written already counts twice here; it is waited for.
            while isinstance(chosen := choose(Disk.of(place).without(sum(others))), NotEnoughSpaceError):
                if not others:
                    raise chosen
                self._changed.wait(_POLL_S)
                progress.check()
            result, needed_bytes = chosen
            if needed_bytes:
                others.append(needed_bytes)

        def release() -> None:
            with self._changed:
                if needed_bytes:
                    others.remove(needed_bytes)
                self._changed.notify_all()

        return result, release


_RESERVATIONS = _Reservations()
