"""`plan`, and the part of `inspect` and `clean` that makes a plan for each partition a user named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kcompact.cli import complain, report, streams
from kcompact.cli.options import Settings, clock_ms
from kcompact.cli.report import Entry
from kcompact.cli.text import time
from kcompact.config import TopicConfig
from kcompact.errors import ConfigError, KcompactError, RefusedError, StorageError
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log import LogDir, PartitionLog, is_partition_directory, read_log_dir
from kcompact.partitions import find_partitions, plan_partition
from kcompact.plan import CleanPlan


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
    from kcompact.plan import dirtiest_first as order

    of_plan = {id(entry.plan): entry for entry in entries if entry.plan is not None}
    planned = order([entry.plan for entry in entries if entry.plan is not None])
    return [of_plan[id(plan)] for plan in planned] + [entry for entry in entries if entry.plan is None]


def plan(paths: Sequence[Path], settings: Settings, *, as_json: bool) -> int:
    """Show the plan of every partition, dirtiest first, and return the exit code."""

    def planner(directory: Path, config: TopicConfig, log_dirs: LogDirs) -> CleanPlan:
        return make_plan(directory, config, settings, log_dir=log_dirs.of(directory))

    directories, unusable = partitions(paths, settings)
    entries = dirtiest_first(list(plan_entries(directories, settings, planner)))
    if as_json:
        described = [report.plan_entry(entry) for entry in (*entries, *unusable)]
        streams.echo(report.dumps(report.document("plan", settings.now_ms, partitions=described)))
    else:
        from kcompact.cli.render import Printer, show_plans

        if entries:
            show_plans(entries, Printer())
        complain_of(unusable)
    return report.exit_code((*entries, *unusable))
