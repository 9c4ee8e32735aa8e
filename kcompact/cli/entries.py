"""One entry for each partition that a command names: its plan, its result, or the error that prevented them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcompact.cli.failures import complain
from kcompact.cli.options import Settings, clock_ms
from kcompact.cli.output import streams
from kcompact.cli.output.text import time
from kcompact.config.settings import TopicConfig
from kcompact.errors import (
    ConfigError,
    CorruptDataError,
    KcompactError,
    RecoveryNeededError,
    RefusedError,
    StaleReplicaError,
    StorageError,
)
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log.directory import LogDir, PartitionLog, is_partition_directory, read_log_dir
from kcompact.plan.clean_plan import CleanPlan, Reason
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition

if TYPE_CHECKING:
    from kcompact.cleaner import CleanResult
    from kcompact.inspect.contents import LogContents
    from kcompact.inspect.findings import Finding


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise what the operating system would not do with a partition as a StorageError, which is one partition's."""
    try:
        yield
    except OSError as problem:
        named = problem.filename
        raise StorageError(
            path=os.fsdecode(named) if isinstance(named, str | bytes) else path, problem=problem
        ) from problem


def partitions(
    paths: Sequence[Path], settings: Settings | None = None, *, what: str = "directory"
) -> tuple[list[Path], list[Entry]]:
    """Return the partition directories that the arguments name, and an entry for each argument that names none.

    `what` a command takes. Raises RefusedError when `--topic` leaves nothing.
    """
    topic = settings.topic if settings else None
    found: dict[Path, None] = {}
    unusable = []
    for path in paths:
        try:
            with storage_errors(path):
                path.stat()
                found.update(dict.fromkeys(find_partitions([path], topic=topic)))
        except StorageError as problem:
            missing = isinstance(problem.problem, FileNotFoundError | NotADirectoryError)
            refused = RefusedError(path=path, problem=f"no such {what}")
            unusable.append(failed(path.absolute(), refused if missing else problem))
        except KcompactError as problem:
            unusable.append(failed(path.absolute(), problem))
    if not found and not unusable:
        raise RefusedError(path=paths[0], problem=f"no partition of a topic that matches '{topic}'")
    for override in settings.overrides if settings else ():
        if override.topic is not None and not any(_topic(directory) == override.topic for directory in found):
            streams.tell(
                f"note: --config {override.topic}:{override.name}={override.value} is of no use: "
                f"no partition of the topic {override.topic} is among the paths"
            )
    return list(found), unusable


def complain_of(unusable: Sequence[Entry]) -> None:
    """Say on standard error which arguments came to nothing, for people; JSON has an entry for each."""
    for entry in unusable:
        if entry.error is not None:
            complain(entry.error)


def _topic(directory: Path) -> str | None:
    parsed = parse_directory(directory.name)
    return parsed.topic_partition.topic if parsed else None


def failed(directory: Path, problem: KcompactError) -> Entry:
    """Return the entry of a directory without a plan."""
    is_refused = type(problem) is RefusedError  # What may not be read, or is locked, may well be one.
    return Entry(directory=directory, error=problem, is_partition=not is_refused or _may_be_partition(directory))


def _may_be_partition(directory: Path) -> bool:
    """Whether a directory is one of a partition, or it cannot be told."""
    parsed = parse_directory(directory.name)
    try:
        if not directory.is_dir():
            return True
        named = parsed is not None and parsed.kind is DirectoryKind.PARTITION
        return named and not directory.is_symlink() and is_partition_directory(directory)
    except OSError:
        return True


class LogDirs:
    """Reads the checkpoints of each log directory once; a damaged one is that of all its partitions."""

    def __init__(self) -> None:
        self._read: dict[Path, LogDir | KcompactError] = {}

    def of(self, partition: Path) -> LogDir:
        """Return the log directory of a partition. Raises CorruptCheckpointError, StorageError."""
        parent = partition.parent
        if parent not in self._read:
            try:
                with storage_errors(parent):
                    self._read[parent] = read_log_dir(parent)
            except KcompactError as problem:
                self._read[parent] = problem
        found = self._read[parent]
        if isinstance(found, KcompactError):
            raise found
        return found


def make_plan(
    directory: Path,
    config: TopicConfig,
    settings: Settings,
    *,
    log_dir: LogDir,
    force: bool = False,
    include_internal: bool = False,
    rebuild_indexes: bool = False,
) -> CleanPlan:
    """Return the plan of one partition."""
    plan = plan_partition(
        directory,
        config,
        now_ms=settings.now_ms,
        log_dir=log_dir,
        high_watermark=settings.high_watermark,
        use_log_end=settings.use_log_end,
        force=force,
        include_internal=include_internal,
        rebuild_indexes=rebuild_indexes,
    )
    return noted(plan, clock_notes(plan.log, settings))


def clock_notes(log: PartitionLog, settings: Settings) -> tuple[str, ...]:
    """Return a remark on a clock that must be slow: something was written after what it says is now."""
    newest_ms = max(segment.last_modified_ms for segment in log.segments)
    # Looked at once more: a running broker may have written since the command began.
    if not settings.by_clock or max(settings.now_ms, clock_ms()) >= newest_ms:
        return ()
    return (
        f"the clock says {time(settings.now_ms)}, but the newest segment was written at {time(newest_ms)}: "
        "if the clock is wrong, so is every age; --now sets the time",
    )


def noted(plan: CleanPlan, notes: Sequence[str]) -> CleanPlan:
    """Return the plan with these notes before its own."""
    return replace(plan, log=replace(plan.log, notes=(*notes, *plan.log.notes))) if notes else plan


def plan_entries(
    directories: Sequence[Path],
    settings: Settings,
    planner: Callable[[Path, TopicConfig, LogDirs], CleanPlan],
) -> Iterator[Entry]:
    """Yield an entry for each partition; one that cannot be planned says why and the others go on.

    A setting that Kafka would refuse is a mistake in the command, so it is raised before anything else.
    """
    configs = settings.configs_of(directories)
    log_dirs = LogDirs()
    for directory in directories:
        configured = configs[directory]
        if configured.problem is not None:
            yield failed(directory, configured.problem)
            continue
        try:
            with storage_errors(directory):
                plan = noted(planner(directory, configured.config, log_dirs), configured.notes)
        except ConfigError:
            raise
        except KcompactError as problem:
            yield failed(directory, problem)
        else:
            damage = plan.log.damage[0] if plan.log.damage else None
            yield Entry(directory=directory, plan=plan, error=damage)


def dirtiest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries in cleaning order, those without a plan last."""
    from kcompact.plan.clean_plan import dirtiest_first as order

    of_plan = {id(entry.plan): entry for entry in entries if entry.plan is not None}
    planned = order([entry.plan for entry in entries if entry.plan is not None])
    return [of_plan[id(plan)] for plan in planned] + [entry for entry in entries if entry.plan is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One partition in an answer: its plan, or why there is none, and what else the command has to say."""

    directory: Path
    plan: CleanPlan | None = None
    error: KcompactError | None = None
    survey: LogContents | None = None
    findings: tuple[Finding, ...] | None = None
    result: CleanResult | None = None
    recovered: str | None = None
    is_partition: bool = True
    """False for a directory that holds no partition, so that there is nothing to plan."""

    @property
    def reason(self) -> Reason | None:
        """Return the verdict; an error without a plan may have one of its own, or None where nothing is known."""
        if isinstance(self.error, CorruptDataError):
            return Reason.CORRUPT
        if isinstance(self.error, RecoveryNeededError):
            return Reason.LEFTOVERS
        if not self.is_partition or isinstance(self.error, StaleReplicaError):
            return Reason.NOT_A_PARTITION
        return self.plan.reason if self.plan else None

    @property
    def explanation(self) -> str:
        if self.plan is None or isinstance(self.error, CorruptDataError | RecoveryNeededError | StaleReplicaError):
            return str(self.error).splitlines()[0] if self.error else ""
        return self.plan.explanation

    @property
    def exit_code(self) -> int:
        return self.error.exit_code if self.error else 0

    @property
    def name(self) -> str:
        return self.directory.name


def exit_code(entries: Iterable[Entry]) -> int:
    """Return the code of all failures if they share one, 1 if they differ, 0 if there is none."""
    return shared_exit_code(entry.exit_code for entry in entries)


def shared_exit_code(codes: Iterable[int]) -> int:
    """Return the code that all failures share, 1 if they differ, 0 if there is none."""
    failures = {code for code in codes if code}
    return failures.pop() if len(failures) == 1 else int(bool(failures))
