"""The free space that a cleaning needs. It is checked before anything is written, and again before each wave.

The staged files of a wave are complete before the old ones go, so the free space must hold them all. Their sizes are at
first upper bounds (`clean.growth`). If these do not fit, the groups are counted as in a dry run, which takes as long as
writing them: then the sizes are exact. If these do not fit either in ascending order, the groups are put into another
one (`order`), and written in one part each.

The cleanings of a process share the free space: each reserves what it is about to write, and one that does not fit
beside the others waits for them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from kcompact.clean.groups import GroupSize, count_sizes, most_sizes, replaced_files
from kcompact.clean.prepare import PreparedClean
from kcompact.clean.staged_files import CleanedSegment, StagedFile
from kcompact.cleaner.cleaning import Cleaning
from kcompact.cleaner.order import Need, best_order, least_free_bytes, least_free_bytes_of_all
from kcompact.errors import KcompactError, NotEnoughSpaceError
from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT
from kcompact.format.names import time_index_name
from kcompact.host.disk import Disk, device_of, settle
from kcompact.log.files import FileIdentity, open_regular
from kcompact.plan.clean_plan import CleanPlan
from kcompact.stages.executor import Progress
from kcompact.swap.copy.contents import read_partition_contents, with_metadata
from kcompact.swap.copy.output import SHARED_BLOCKS
from kcompact.swap.manifest import most_bytes, most_bytes_of_group
from kcompact.wording import worded

_DIRECTORY_BLOCKS = 4
"""Blocks for the staging directory and for the new names in it, in the partition and in the log directory."""
_KEPT_DIRECTORY_BLOCKS = 4
"""The same for the directory of kept files."""
_CHECKPOINT_ENTRY_BYTES = 300
_KEPT_HINT = "without --keep-replaced less is needed, because deleted files free their space"
_OVERLAY_DETAIL = "on an overlay also the old files count, because a rename may copy them"
MOST_OF_A_WAVE = 1 << 20
"""A wave has no more groups than this many bytes of a manifest name, because recovery parses it at once."""
_POLL_S = 0.2
_TASK_PARTS = 32
"""A task may fill at most this part of what is free when it begins, unless its partition takes more now."""
_TASK_FACTOR = 8
"""A task may fill at most so many times what its partition takes now: bounds are generous (`docs/pipeline.md`)."""
_TASK_SPARE = 32
_TASK_FIXED_BYTES = 1 << 20
"""What a task may fill besides: this part of what its partition takes, and this for indexes, names and manifest."""

Result = TypeVar("Result")


# The sizes


class Wave(NamedTuple):
    """The groups that are written together, ascending, and the space that they need, with that of their manifest."""

    groups: list[int]
    needed_bytes: int
    manifest_bytes: int


_PLENTY = 8
"""So many times the bytes of all groups are more than enough, whatever the old files free."""


class _Sizes:
    """The space that the groups of a partition need, and the order in which they fit.

    With `keeps` the old files have second names, so deleting them frees nothing, and the order stays. `is_exact`: the
    sizes are counted.
    """

    def __init__(self, plan: CleanPlan, sizes: Mapping[int, GroupSize], *, keeps: bool, is_exact: bool) -> None:
        self._plan = plan
        self.sizes = sizes
        self.is_exact = is_exact
        self._keeps = keeps
        self._segments = {number: _replacement(plan, number, size) for number, size in sizes.items()}
        self._manifest_bytes = {number: most_bytes_of_group(segment) for number, segment in self._segments.items()}
        self._all_needs: dict[int, Need] = {}
        self._all_needs_freeing: dict[int, Need] = {}

    def order(
        self, numbers: Sequence[int], disk: Disk, *, present_bytes: int | None
    ) -> list[int] | NotEnoughSpaceError:
        """Return the order in which these groups fit the disk: the ascending one if possible. Or the error.

        `present_bytes` is the manifest that is on the disk, None before the staging directory is made.
        """
        needs = self._needs(numbers, disk)
        names_bytes = self._names_bytes(disk) if present_bytes is None else 0
        present_bytes = present_bytes or 0
        free_bytes = disk.free_bytes + present_bytes - names_bytes
        end_bytes, ascending = self._end_bytes(disk), sorted(needs)
        least_bytes = least_free_bytes(needs, ascending, end_bytes=end_bytes, present_bytes=present_bytes)[0]
        if least_bytes <= free_bytes:
            return ascending
        if self.is_exact and not self._keeps:
            order = best_order(needs, free_bytes, end_bytes=end_bytes, present_bytes=present_bytes)
            if order is not None:
                return order
            least_bytes = least_free_bytes_of_all(
                needs, end_bytes=end_bytes, present_bytes=present_bytes, block_bytes=disk.block_bytes
            )
        return NotEnoughSpaceError(
            path=self._plan.log.directory,
            needed_bytes=least_bytes - free_bytes + disk.free_bytes,
            free_bytes=disk.free_bytes,
            detail=worded(_KEPT_HINT) if self._keeps else _OVERLAY_DETAIL if disk.storage.is_overlay else "",
        )

    def wave(self, order: Sequence[int], disk: Disk, *, present_bytes: int) -> Wave:
        """Return the first groups of an order, as many as the disk and a manifest hold.

        More than one group only if those that follow still fit beside the manifest of all of them.
        """
        needs = self._needs(order, disk)
        least_bytes = least_free_bytes(needs, order, end_bytes=self._end_bytes(disk))
        groups: list[int] = []
        wave_bytes, manifest_of_wave_bytes = 0, 0
        staged_bytes, appended_bytes, groups_bytes, freed_bytes = 0, 0, 0, 0
        for number, rest_bytes in zip(order, least_bytes[1:], strict=True):
            staged_bytes += self._taken_bytes(number, disk)
            appended_bytes = max(appended_bytes, self._content_bytes(self.sizes[number].appended_bytes, disk))
            groups_bytes += self._manifest_bytes[number]
            freed_bytes += needs[number].freed_bytes
            manifest_bytes = self._manifest_space(groups_bytes, disk)
            needed_bytes = staged_bytes + appended_bytes + manifest_bytes
            fits = needed_bytes <= disk.free_bytes
            fits_before_rest = rest_bytes + manifest_bytes <= disk.free_bytes + present_bytes + freed_bytes
            if groups and not (fits and fits_before_rest and groups_bytes <= MOST_OF_A_WAVE):
                break
            groups.append(number)
            wave_bytes, manifest_of_wave_bytes = needed_bytes, manifest_bytes
        return Wave(sorted(groups), wave_bytes, manifest_of_wave_bytes)

    def at_once_bytes(self, disk: Disk) -> int:
        """Return the most space that all groups take in one wave."""
        groups_bytes = sum(self._manifest_bytes.values())
        staged_bytes = sum(self._taken_bytes(number, disk) for number in self.sizes)
        appended_bytes = max((size.appended_bytes for size in self.sizes.values()), default=0)
        fixed_bytes = self._manifest_space(groups_bytes, disk) + self._names_bytes(disk) + self._end_bytes(disk)
        return staged_bytes + self._content_bytes(appended_bytes, disk) + fixed_bytes

    @property
    def fit_a_manifest(self) -> bool:
        """Whether one manifest holds all groups."""
        return sum(self._manifest_bytes.values()) <= MOST_OF_A_WAVE

    def copied_bytes(self, disk: Disk) -> int:
        """Return the most space that a copy takes: all groups, and the files that are copied as they are."""
        plan = self._plan
        replaced = {file.name for segment in plan.segments for file in segment.files}
        files = [file for file in read_partition_contents(plan.log.directory).files if file.name not in replaced]
        staged_bytes = sum(self._staged_bytes(number, disk) for number in self.sizes)
        appended_bytes = max((size.appended_bytes for size in self.sizes.values()), default=0)
        copied_bytes = sum(self._content_bytes(file.size_bytes, disk) for file in files)
        manifest_bytes = self._manifest_space(sum(self._manifest_bytes.values()), disk)
        shared_bytes = (len(files) + SHARED_BLOCKS) * disk.block_bytes
        return staged_bytes + self._content_bytes(appended_bytes, disk) + copied_bytes + manifest_bytes + shared_bytes

    def _needs(self, numbers: Iterable[int], disk: Disk) -> dict[int, Need]:
        """Return what groups need. If all fit several times, their old files are not looked at and free nothing."""
        self._all_needs = needs = self._all_needs or {number: self._need(number, disk) for number in self.sizes}
        if not self._keeps and disk.free_bytes <= _PLENTY * sum(need.peak_bytes for need in needs.values()):
            freeing = self._all_needs_freeing or {
                each: self._freeing_need(each, need, disk) for each, need in needs.items()
            }
            self._all_needs_freeing = needs = freeing
        return {number: needs[number] for number in numbers}

    def _need(self, number: int, disk: Disk) -> Need:
        """Return what a group needs if its old files free nothing."""
        size = self.sizes[number]
        taken_bytes = self._taken_bytes(number, disk)
        manifest_bytes = self._manifest_space(self._manifest_bytes[number], disk)
        return Need(
            peak_bytes=taken_bytes + self._content_bytes(size.appended_bytes, disk) + manifest_bytes,
            manifest_bytes=manifest_bytes,
            freed_bytes=-taken_bytes,
            keeps_order=size.keeps_order,
        )

    def _freeing_need(self, number: int, need: Need, disk: Disk) -> Need:
        """Return what a group needs with the space that its old files free."""
        freed_bytes = freed_by_deleting(self._plan.log.directory, self._segments[number].replaces, disk)
        return need._replace(freed_bytes=need.freed_bytes + freed_bytes)

    def _taken_bytes(self, number: int, disk: Disk) -> int:
        """Return the space for the new files of a group, and on an overlay for its old ones, which a rename copies."""
        copied = self._segments[number].replaces if disk.storage.is_overlay else ()
        copied_bytes = sum(self._content_bytes(file.size_bytes, disk) for file in copied)
        return self._staged_bytes(number, disk) + copied_bytes

    def _staged_bytes(self, number: int, disk: Disk) -> int:
        """Return the space for the new files of a group."""
        size = self.sizes[number]
        return sum(self._content_bytes(size_bytes, disk) for size_bytes in (*size.parts, *size.indexes))

    @staticmethod
    def _content_bytes(size_bytes: int, disk: Disk) -> int:
        """Return the space for a file: whole blocks, and what describes them."""
        whole_bytes = disk.file_bytes(size_bytes)
        return whole_bytes if disk.storage.counts_only_data else with_metadata(whole_bytes)

    def _manifest_space(self, groups_bytes: int, disk: Disk) -> int:
        """Return the space for the manifest of groups that take so many bytes of it."""
        return disk.file_bytes(self._manifest_begin_bytes + groups_bytes)

    def _names_bytes(self, disk: Disk) -> int:
        """Return the space for directories and names, and for all that is written about kept files."""
        blocks = _DIRECTORY_BLOCKS + (_KEPT_DIRECTORY_BLOCKS if self._keeps else 0)
        # A kept file takes no more of its manifest than a replaced file of that of the swap; both are written anew.
        kept_bytes = 2 * disk.file_bytes(2 * sum(self._manifest_bytes.values())) if self._keeps else 0
        return kept_bytes + (0 if disk.storage.counts_only_data else blocks * disk.block_bytes)

    def _end_bytes(self, disk: Disk) -> int:
        """Return the space for the checkpoint, which is written after the last group."""
        return disk.file_bytes(self._checkpoint_bytes + _CHECKPOINT_ENTRY_BYTES) + disk.storage.unusable_bytes

    @cached_property
    def _manifest_begin_bytes(self) -> int:
        return most_bytes(self._plan.log.topic_partition)

    @cached_property
    def _checkpoint_bytes(self) -> int:
        with suppress(OSError):
            return (self._plan.log.log_dir.path / CLEANER_OFFSET_CHECKPOINT).stat().st_size
        return 0


def _replacement(plan: CleanPlan, number: int, size: GroupSize) -> CleanedSegment:
    """Return a group as the manifest names it, with files of the right number and with the longest name."""
    base_offset = plan.groups[number][0].base_offset
    file = StagedFile(name=time_index_name(base_offset), staged_as="", size_bytes=0, crc32c=0)
    files = (file,) * (1 + len(size.indexes))
    return CleanedSegment(base_offset=base_offset, files=files, replaces=replaced_files(plan, number))


def freed_by_deleting(directory: Path, files: Iterable[FileIdentity], disk: Disk) -> int:
    """Return the space that deleting files frees: none of a file that is not there any more."""
    freed_bytes = 0
    for file in files:
        with suppress(KcompactError), open_regular(directory / file.name) as opened:
            freed_bytes += min(disk.storage.freed_bytes(opened.descriptor), disk.file_bytes(file.size_bytes))
    return freed_bytes


def shortage(
    plan: CleanPlan, sizes: Sequence[GroupSize], disk: Disk | None = None, *, keeps: bool = False
) -> NotEnoughSpaceError | None:
    """Return the error that stops a cleaning whose groups have these exact sizes, None if the space is enough.

    With `keeps` the old files have second names. `disk` None means all that is free.
    """
    disk = disk or Disk.of(plan.log.directory)
    if keeps and not disk.storage.counts_only_data:  # The run has made these directories when it looks.
        disk = disk.without(_KEPT_DIRECTORY_BLOCKS * disk.block_bytes)
    joined = [size.joined for size in sizes]
    order_or_error = _exact(plan, sizes, keeps=keeps).order(range(len(sizes)), disk, present_bytes=None)
    if isinstance(order_or_error, NotEnoughSpaceError) and joined != sizes:
        order_or_error = _exact(plan, joined, keeps=keeps).order(range(len(sizes)), disk, present_bytes=None)
    return order_or_error if isinstance(order_or_error, NotEnoughSpaceError) else None


def shortage_of_copy(plan: CleanPlan, sizes: Sequence[GroupSize], output: Path) -> NotEnoughSpaceError | None:
    """Return the error that stops a copy to `output`, None if the space is enough or the copy is already there."""
    if (output / plan.log.directory.name).exists():
        return None
    disk = Disk.of(output)
    needed_bytes = _exact(plan, sizes).copied_bytes(disk) + SHARED_BLOCKS * disk.block_bytes
    fitting = _fitting(output, needed_bytes, disk)
    return fitting if isinstance(fitting, NotEnoughSpaceError) else None


def _exact(plan: CleanPlan, sizes: Sequence[GroupSize], *, keeps: bool = False) -> _Sizes:
    return _Sizes(plan, dict(enumerate(sizes)), keeps=keeps, is_exact=True)


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


def reserved_for_task(
    plan: CleanPlan, place: Path, progress: Progress, *, is_copy: bool
) -> tuple[Disk, Callable[[], None]]:
    """Reserve space at `place` for a partition that is not scanned yet; return it as a disk, and the release.

    What is needed is not known, so it is a small part of what is free, but not less than what the partition takes now.
    Waits while other cleanings have reservations and that is not free; then raises NotEnoughSpaceError.
    """
    size_bytes = sum(file.size_bytes for segment in plan.segments for file in segment.files)
    if is_copy:
        size_bytes = sum(file.size_bytes for segment in plan.log.segments for file in segment.files)
    least_bytes = size_bytes + size_bytes // _TASK_SPARE + _TASK_FIXED_BYTES

    def choose(disk: Disk) -> tuple[Disk, int] | NotEnoughSpaceError:
        if least_bytes > disk.free_bytes:
            return NotEnoughSpaceError(path=place, needed_bytes=least_bytes, free_bytes=disk.free_bytes)
        part_bytes = max(least_bytes, min(_TASK_FACTOR * least_bytes, disk.free_bytes // _TASK_PARTS))
        return disk._replace(free_bytes=part_bytes), part_bytes

    return _RESERVATIONS.take(place, choose, progress)


def fitting_at_once(prepared: PreparedClean, disk: Disk, *, is_copy: bool, keeps: bool) -> PreparedClean | None:
    """Return what to write if all groups fit the disk in one wave, or as a copy: by their bounds, or counted. Or None.

    Raises as `count_sizes`.
    """
    plan = prepared.plan

    def fits(sizes: Sequence[GroupSize], *, is_exact: bool) -> bool:
        group_sizes = _Sizes(plan, dict(enumerate(sizes)), keeps=keeps, is_exact=is_exact)
        if is_copy:
            return group_sizes.copied_bytes(disk) <= disk.free_bytes
        return group_sizes.fit_a_manifest and group_sizes.at_once_bytes(disk) <= disk.free_bytes

    if fits(most_sizes(prepared), is_exact=False):
        return prepared
    exact = count_sizes(prepared, range(len(plan.groups)))
    if fits(exact, is_exact=True):
        return prepared
    return prepared.in_whole_groups() if fits([size.joined for size in exact], is_exact=True) else None


class StagingSpace:
    """The space for the staged files of one cleaning. `prepared` is what to write, as it fits."""

    def __init__(self, cleaning: Cleaning, prepared: PreparedClean) -> None:
        self.prepared = prepared
        self._keeps = cleaning.options.keep_replaced is not None
        self._plan = prepared.plan
        self._progress = cleaning.progress
        self._left = list(range(len(self._plan.groups)))
        self._sizes = _Sizes(self._plan, dict(enumerate(most_sizes(prepared))), keeps=self._keeps, is_exact=False)

    def require(self) -> None:
        """Raise NotEnoughSpaceError if the groups do not fit in any order that is found."""
        with self._reserved(self._plan.log.directory, self._nothing):
            pass

    def waves(self) -> Generator[list[int], None, None]:
        """Yield the numbers of the groups to write next, ascending: as many as the free space and a manifest hold.

        The space of a wave is reserved until the next one is asked for. Raises NotEnoughSpaceError if the groups that
        are left do not fit now.
        """
        present_bytes = 0
        while self._left:
            with self._reserved(self._plan.log.directory, partial(self._wave, present_bytes)) as wave:
                yield wave.groups
            done = set(wave.groups)
            self._left = [number for number in self._left if number not in done]
            present_bytes = wave.manifest_bytes

    def _nothing(self, disk: Disk) -> tuple[None, int] | NotEnoughSpaceError:
        order = self._sizes.order(self._left, disk, present_bytes=None)
        return order if isinstance(order, NotEnoughSpaceError) else (None, 0)

    def _wave(self, present_bytes: int, disk: Disk) -> tuple[Wave, int] | NotEnoughSpaceError:
        order = self._sizes.order(self._left, disk, present_bytes=present_bytes)
        if isinstance(order, NotEnoughSpaceError):
            return order
        wave = self._sizes.wave(order, disk, present_bytes=present_bytes)
        return wave, wave.needed_bytes

    @contextmanager
    def reserved_for_copy(self, output: Path) -> Iterator[None]:
        """Reserve the space for a copy to `output` while the block runs. Raises NotEnoughSpaceError."""
        with self._reserved(output, lambda disk: _fitting(output, self._sizes.copied_bytes(disk), disk)):
            yield

    @contextmanager
    def _reserved(
        self, place: Path, choose: Callable[[Disk], tuple[Result, int] | NotEnoughSpaceError]
    ) -> Iterator[Result]:
        """Yield what `choose` returns for the free space, with that much space reserved while the block runs.

        With an error, first other cleanings of this process are waited for; then the groups are counted; then each is
        to be written in one part; then the error is raised.
        """
        while True:
            try:
                result, release = _RESERVATIONS.take(place, choose, self._progress)
                break
            except NotEnoughSpaceError:
                if not self._shrink():
                    raise
        try:
            yield result
        finally:
            release()

    def _shrink(self) -> bool:
        """Make the sizes exact, then smaller. Return whether that was possible."""
        sizes = {number: self._sizes.sizes[number] for number in self._left}
        if not self._sizes.is_exact:
            sizes = dict(zip(self._left, count_sizes(self.prepared, self._left), strict=True))
        elif any(size.appended_bytes for size in sizes.values()):
            sizes = {number: size.joined for number, size in sizes.items()}
            self.prepared = self.prepared.in_whole_groups()
        else:
            return False
        self._sizes = _Sizes(self._plan, sizes, keeps=self._keeps, is_exact=True)
        return True


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
            others = self._reserved_bytes.setdefault(device_of(place), [])
            is_settled = False
            # What another cleaning has written already counts twice here; it is waited for.
            while isinstance(chosen := choose(Disk.of(place).without(sum(others))), NotEnoughSpaceError):
                if others:
                    self._changed.wait(_POLL_S)
                elif is_settled or not settle(place):
                    raise chosen
                else:
                    is_settled = True
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
