"""The output of a round of copying: made once, for all threads of the round."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kcompact.errors import (
    KcompactError,
    LogChangedError,
    NotEnoughSpaceError,
    RefusedError,
    storage_errors,
)
from kcompact.host.disk import Disk
from kcompact.host.throttle import Pace, Throttle
from kcompact.log.directory import PartitionLog, is_log_dir, is_running, log_dir_around
from kcompact.log.files import files_in
from kcompact.log.lock import LOCK_NAME, LogDirLock, log_dir_lock
from kcompact.log.segments import Segment
from kcompact.readable import shell_word, shown
from kcompact.swap.attributes import copy_status
from kcompact.swap.copy.contents import (
    LOG_DIR_FILES,
    NotCopied,
    PartitionContents,
    changed_error,
    contents_of,
    raised_as_changes,
    read_log_dir_contents,
    read_partition_contents,
    require_regular_files,
    require_same_files,
)
from kcompact.swap.copy.files import UnfinishedCopy
from kcompact.swap.copy.log_dir_files import give_away, offsets_of, write_chosen, write_whole
from kcompact.swap.copy.marker import (
    MARKER,
    RECORD_BYTES,
    RECORD_BYTES_OF_FILE,
    CopyMarker,
    FinishedDirectory,
    Subject,
    file_states,
    meta_properties,
    states_in,
)
from kcompact.swap.copy.target import exists_already, names_in, require_creatable, require_separate, require_unlocked
from kcompact.swap.open_directory import OpenDirectory, apply_steps, made_in, made_without_links
from kcompact.swap.recovery.leftovers import require_nothing_unfinished
from kcompact.swap.replace import require_unchanged
from kcompact.swap.steps import Remove, RemoveDir, Rename, SyncDir
from kcompact.values import dataclass

SHARED_BLOCKS = 16
"""Blocks for the small files of an output, those that it begins with and those that it ends with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What a round has copied. `log_dir` is the log directory of a complete copy, None for chosen partitions.

    `missing` are the directories that are not in the output. `is_finished`: none is missing, and the files that
    they share are written. `set_aside` are the `-future` and `-stray` directories of a complete copy.
    """

    path: Path
    log_dir: Path | None
    is_finished: bool
    finished: tuple[str, ...]
    missing: tuple[str, ...]
    set_aside: tuple[str, ...]
    left_out: tuple[NotCopied, ...]


class Output:
    """A new or empty directory for the copies of partitions, or one in which an earlier run has begun the same copy.

    A `with` block holds its lock, marks it as unfinished, and is safe for several threads.

    `directories` are the partition directories to copy. With `log_dir` instead, the output becomes a complete copy of
    that log directory.

    The constructor checks the output and writes nothing. It raises RefusedError if the output lies inside a source, is
    not empty, or has an unfinished copy of something else, and if a file of a log directory is not a regular one;
    LogDirLockedError, StorageError. Entering checks the output again, under the lock, and raises the same.

    `max_bytes_per_second` limits the requests to buckets. `is_uploaded`: each directory is made in the scratch of a
    process, and uploaded from there. Any process can do it.
    """

    is_uploaded = False

    def pace(self, check: Callable[[], None]) -> Pace:
        """Return the pace of the requests of one partition. `check` may raise to stop."""
        return Pace(self._throttle, lambda size_bytes: check())

    def __init__(
        self,
        path: Path,
        directories: Sequence[Path] = (),
        *,
        log_dir: Path | None = None,
        max_bytes_per_second: int | None = None,
    ) -> None:
        self.path = path.resolve()
        self._throttle = Throttle(max_bytes_per_second)
        self.log_dir = log_dir
        self._contents = None if log_dir is None else read_log_dir_contents(log_dir)
        self._set_aside: tuple[Path, ...] = ()
        if log_dir is not None and self._contents is not None:
            directories = [log_dir / name for name in self._contents.partitions]
            self._set_aside = tuple(log_dir / name for name in self._contents.set_aside)
        self._directories = (*directories, *self._set_aside)
        self._log_dirs = sorted({directory.parent for directory in directories if is_log_dir(directory.parent)})
        # Also if the broker stops later: the copies are then of several moments, and none is of a clean shutdown.
        self._is_beside_broker = any(is_running(each) for each in self._log_dirs)
        self._done: set[str] = set()
        self._records: dict[str, FinishedDirectory] = {}
        self._stack = ExitStack()
        self._lock: LogDirLock | None = None
        self._fd: int | None = None
        self._parent: OpenDirectory | None = None  # Of an output that this run has created.
        self._is_finished = False
        require_separate(self.path, self._log_dirs if log_dir is None else [log_dir], self._directories)
        if not self.is_uploaded and log_dir_around(self.path.parent, ()) is not None:
            problem = "lies in a log directory, where a broker takes it for a partition, or does not start"
            raise RefusedError(path=self.path, problem=problem, hint="Pass an --output directory outside of it.")
        require_creatable(self.path)
        for each in self._log_dirs:
            require_regular_files(each)
        self._marker = CopyMarker(self.path, self._subject())
        require_unlocked(self.path)  # First: what a run that writes there has finished changes meanwhile.
        self._require_usable(names_in(self.path))

    def _subject(self) -> Subject:
        return Subject(
            is_whole=self.log_dir is not None,
            directories=sorted(str(directory) for directory in self._directories),
            log_dirs={str(log_dir): meta_properties(log_dir) for log_dir in self._log_dirs},
        )

    def _require_usable(self, present: frozenset[str]) -> None:
        """Read what an interrupted run has finished in the output, which has these names.

        Raises RefusedError if the output is not empty and no run was making this copy in it.
        """
        remove = f"Pass another --output directory, or remove {shell_word(self.path)} to begin anew."
        if MARKER not in present:
            if present - {LOCK_NAME}:
                raise RefusedError(
                    path=self.path, problem="is not empty", hint="Pass a new or empty directory as --output."
                )
            return
        subject = self._marker.read_subject()
        if subject is None:
            if present - {LOCK_NAME, MARKER}:
                raise RefusedError(
                    path=self._marker.path,
                    problem="is left of a copy that is finished",
                    hint=f"Remove {shell_word(self._marker.path)}, and a broker can start on {shown(self.path)}.",
                )
            return
        if subject != self._marker.subject:
            raise RefusedError(path=self.path, problem="has an unfinished copy of something else", hint=remove)
        self._records = self._marker.records()
        own = {LOCK_NAME, MARKER, *LOG_DIR_FILES, *(f"{name}.tmp" for name in LOG_DIR_FILES), *self._records}
        for name in sorted(present - own):
            problem = "does not belong to the unfinished copy beside it"
            raise RefusedError(path=self.path / name, problem=problem, hint=remove)
        for name in sorted(present & self._records.keys()):
            if states_in(self.path / name) != self._records[name].copy:
                problem = "was changed after kcompact had copied it"
                raise RefusedError(path=self.path / name, problem=problem, hint=remove)

    def require_space(self, directories: Sequence[Path], together: Callable[[Path], bool], threads: int) -> None:
        """Raise NotEnoughSpaceError if the file system cannot hold what is still to be copied of these directories.

        A compacted copy counts as large as its source. Directories for which `together` is true are copied at the same
        time, at most `threads` of them; only an output that is uploaded needs to know that. Raises RefusedError,
        StorageError.
        """
        free_bytes, block_bytes, _ = Disk.of(self.path)
        left = [path for path in (*directories, *self._set_aside) if path.name not in self._records]
        needed_bytes = sum(self._space_bytes(path, block_bytes) for path in left)
        if left:
            needed_bytes += SHARED_BLOCKS * block_bytes
            if self._contents is not None:
                needed_bytes += sum(file.size_bytes for file in self._contents.files)
        free_bytes += self._marker.unfinished_bytes()
        if needed_bytes > free_bytes:
            raise NotEnoughSpaceError(path=self.path, needed_bytes=needed_bytes, free_bytes=free_bytes)

    def _space_bytes(self, source: Path, block_bytes: int) -> int:
        """Return the space for the copy of a directory, and for its part of the files that all directories share."""
        contents = read_partition_contents(source)
        shared_bytes = RECORD_BYTES + RECORD_BYTES_OF_FILE * len(contents.files) + block_bytes
        return contents.space_bytes(block_bytes) + shared_bytes

    # --- The lock and the marker

    def __enter__(self) -> Self:
        """Create the output, take its lock, and mark it as unfinished."""
        try:
            with storage_errors(self.path):
                self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _begin(self) -> None:
        output = self._hold()
        self._lock = self._stack.enter_context(log_dir_lock(self.path, dir_fd=output.fd()))
        # Another run may have used the output since the constructor looked. From here on none can.
        present = output.names()
        if MARKER not in present:
            self._require_usable(present)
            with made_in(output, MARKER):
                pass
        self._stack.enter_context(self._marker.hold(output))
        self._require_usable(present | {MARKER})  # By the marker that is held: nobody can put another in its place.
        self._marker.begin(output)

    def _hold(self) -> OpenDirectory:
        """Create the output if it is missing and hold it open until the end; a new one is private until it is whole."""
        parent = self._stack.enter_context(made_without_links(self.path.parent))
        try:
            output = self._stack.enter_context(made_in(parent, self.path.name, is_shared=True))
            self._parent = parent
            apply_steps(parent, (SyncDir(),))
        except FileExistsError:
            output = self._stack.enter_context(OpenDirectory(self.path, fd=parent.fd(self.path.name)))
        self._fd = output.fd()
        return output

    def open(self) -> OpenDirectory:
        """Return the output, open: in a `with` block of this object the same directory each time."""
        return OpenDirectory(self.path, follow=True, fd=self._fd)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with suppress(KcompactError), self.open() as output:  # There may be nothing to continue from.
                if output.status(MARKER) is not None and not self._marker.records():
                    self._marker.remove(output)
                    if self._lock is not None and self._lock.created:
                        apply_steps(output, (Remove(LOCK_NAME), SyncDir()))
                    if self._parent is not None:
                        apply_steps(self._parent, (RemoveDir(self.path.name),))
        finally:
            self._stack.close()

    # --- One directory

    def finished(
        self, log: PartitionLog, recipe: Mapping[str, Any], *, checkpoint_offset: int | None
    ) -> dict[str, Any] | None:
        """Return the outcome of a partition that an interrupted run has finished, else None.

        A copy that was made from other files, with other entries in the checkpoints or by another recipe is removed.
        """
        record = self._kept(log.directory, recipe, offsets_of(log, checkpoint_offset), contents_of(log))
        return None if record is None else record.outcome

    def _kept(
        self, source: Path, recipe: Mapping[str, Any], offsets: Mapping[str, int], contents: PartitionContents
    ) -> FinishedDirectory | None:
        name, files = source.name, contents.files
        record = self._records.get(name)
        if record is None:
            return None
        with self.open() as output:
            if output.status(name) is not None:
                if (record.recipe, record.offsets, record.source) == (recipe, offsets, file_states(files)):
                    self._done.add(name)
                    return record
                apply_steps(output, (Rename(name, f"{MARKER}/{name}"), SyncDir(), SyncDir(MARKER)))
                shutil.rmtree(name, dir_fd=output.fd(MARKER))
        self._marker.forget(name)
        return None

    @contextmanager
    def partition(
        self,
        log: PartitionLog,
        *,
        checkpoint_offset: int | None,
        recipe: Mapping[str, Any] | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Iterator[UnfinishedCopy]:
        """Yield a new directory to fill; after the block it gets the partition's name.

        If the block raises, the directory is removed. `checkpoint_offset` becomes the cleaner's checkpoint; None writes
        none. `check` may raise to stop an upload. Raises RecoveryNeededError if an interrupted swap left files,
        LogChangedError if the source has changed since the plan was made, RefusedError if the output has the partition
        already, StorageError.
        """
        is_running = log.log_dir.is_running
        if not is_running:
            with OpenDirectory(log.directory) as source:
                require_nothing_unfinished(source, source.names())
        offsets = offsets_of(log, checkpoint_offset)
        growing = log.active_segment if is_running else None
        with self._new_directory(
            log.directory, recipe or {}, offsets, contents_of(log), growing, check=check
        ) as unfinished:
            if log.ignores_indexes:
                unfinished.index_interval_bytes = log.index_interval_bytes
            yield unfinished
            if not is_running:
                require_unchanged(log.directory, (file for segment in log.segments for file in segment.files))

    @contextmanager
    def _new_directory(
        self,
        source: Path,
        recipe: Mapping[str, Any],
        offsets: Mapping[str, int],
        contents: PartitionContents,
        growing: Segment | None = None,
        *,
        check: Callable[[], None],
    ) -> Iterator[UnfinishedCopy]:
        """Yield a directory to fill; after the block give it the name of the source, durably.

        Until it is complete the directory belongs to this user and is private; then it gets the source's owner.
        Beside a running broker, `growing` is the active segment of the source.
        """
        staged = f"{MARKER}/{source.name}"
        with self.open() as output, ExitStack() as stack:
            target = stack.enter_context(made_in(output, staged))
            try:
                opened_source = stack.enter_context(OpenDirectory(source))
                unfinished = UnfinishedCopy(
                    directory=target, source=opened_source, files=contents.files, growing=growing
                )
                yield unfinished
                if growing is None:
                    require_same_files(source, contents.files)
                copy_status(opened_source.fd(), target.fd(), with_times=True)
                apply_steps(target, (SyncDir(),))
                record = FinishedDirectory(
                    name=source.name,
                    recipe=dict(recipe),
                    outcome=unfinished.outcome,
                    offsets=dict(offsets),
                    source=file_states(contents.files),
                    copy=states_in(target),
                )
                self._marker.write(record)
                self._publish(output, staged, source.name, check)
            except BaseException:
                parent, leaf = output.locate(staged)
                shutil.rmtree(leaf, ignore_errors=True, dir_fd=parent)
                raise
        self._done.add(source.name)

    def _publish(self, output: OpenDirectory, staged: str, name: str, check: Callable[[], None]) -> None:
        """Rename a complete directory to its final name, durably. Raises RefusedError if the name exists."""
        try:
            apply_steps(output, (Rename(staged, name), SyncDir(), SyncDir(MARKER)))
        except FileExistsError:
            raise exists_already(self.path / name) from None

    # --- The end

    def finish(self, check: Callable[[], None] = lambda: None) -> CopyReport:
        """Complete the output if every directory is there, and return the report; it names what is missing.

        Raises LogChangedError or LogDirLockedError if the source of a complete copy was used meanwhile, and the errors
        of copying. The output then stays unfinished.
        """
        missing = set(self.report().missing)
        if missing <= {path.name for path in self._set_aside}:
            for source in self._set_aside:
                contents = read_partition_contents(source)
                if self._kept(source, {}, {}, contents) is None:
                    with (
                        files_in(source).on_disk(self.pace(check).take),
                        self._new_directory(source, {}, {}, contents, check=check) as unfinished,
                    ):
                        unfinished.fill(check=check)
            self._complete()
            self._is_finished = True
        return self.report()

    def report(self) -> CopyReport:
        """Return what is copied and what is missing now."""
        names = [directory.name for directory in self._directories]
        return CopyReport(
            path=self.path,
            log_dir=self.log_dir,
            is_finished=self._is_finished,
            finished=tuple(name for name in names if name in self._done),
            missing=tuple(name for name in names if name not in self._done),
            set_aside=tuple(path.name for path in self._set_aside),
            left_out=() if self._contents is None else self._contents.left_out,
        )

    def takes(self, directory: Path) -> bool:
        """Return whether a directory is one of those to copy."""
        return directory in self._directories

    def _complete(self) -> None:
        """Write the files that all directories share, `meta.properties` last, and remove the marker."""
        records = list(self._marker.records().values())
        with self.open() as output:
            if self.log_dir is None:
                write_chosen(self._log_dirs, output, records, is_beside_broker=self._is_beside_broker)
            else:
                self._require_source_unchanged(self.log_dir)
                write_whole(self.log_dir, output, records, is_beside_broker=self._is_beside_broker)
            above = self.log_dir or self._directories[0].parent
            with OpenDirectory(above, follow=True) as source, storage_errors(output.path):
                give_away(source, output)
            self._marker.remove(output)

    def _require_source_unchanged(self, log_dir: Path) -> None:
        if not self._is_beside_broker:
            require_unlocked(log_dir)
        assert self._contents is not None
        with raised_as_changes():
            now = read_log_dir_contents(log_dir)
        if now.files != self._contents.files and not self._is_beside_broker:
            raise changed_error(log_dir, self._contents.files, now.files)
        before = {*self._contents.partitions, *self._contents.set_aside}
        other = before ^ {*now.partitions, *now.set_aside}
        if other:
            raise LogChangedError(path=log_dir / min(other), problem="appeared or went away while it was copied")
