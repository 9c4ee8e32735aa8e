"""From the arguments of a command line to one plan for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kcompact.cli.entries import Entry, failed
from kcompact.cli.failures import storage_errors
from kcompact.cli.options import Settings, clock_ms
from kcompact.cli.output import streams
from kcompact.cli.output.text import time
from kcompact.cli.per_log_dir import PerLogDir
from kcompact.config.settings import TopicConfig
from kcompact.errors import ConfigError, KcompactError, RefusedError, StorageError
from kcompact.format.names import parse_directory
from kcompact.log.directory import LogDir, PartitionLog, read_log_dir
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.discovery import find_partitions
from kcompact.plan.partition import plan_partition

# Which partitions


def named_partitions(
    paths: Sequence[Path], settings: Settings | None = None, *, what: str = "directory"
) -> tuple[list[Path], list[Entry]]:
    """Return the partition directories that the arguments name, and an entry for each unusable argument.

    `what` is the kind of path that the command takes, for the message about a missing one. Raises RefusedError when
    no partition matches `--topic`.
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
    if settings is not None:
        _warn_of_unused_settings(list(found), settings)
    return list(found), unusable


def _warn_of_unused_settings(directories: Sequence[Path], settings: Settings) -> None:
    topics = {_topic(directory) for directory in directories}
    for override in settings.overrides:
        if override.topic is not None and override.topic not in topics:
            streams.tell(
                f"note: --config {override.topic}:{override.name}={override.value} has no effect: "
                f"no partition of the topic {override.topic} is among the paths"
            )


def _topic(directory: Path) -> str | None:
    parsed = parse_directory(directory.name)
    return parsed.topic_partition.topic if parsed else None


# Plans


class LogDirs(PerLogDir[LogDir]):
    """The checkpoints of each log directory. `of` raises CorruptCheckpointError, StorageError."""

    def __init__(self) -> None:
        super().__init__(_read_log_dir)


def _read_log_dir(log_dir: Path) -> LogDir:
    with storage_errors(log_dir):
        return read_log_dir(log_dir)


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
    """Return the plan of one partition, with a note if the clock must be slow. Raises KcompactError, OSError."""
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
    """Return a note if a segment was written after the time of the clock: the clock must be slow."""
    newest_ms = max(segment.last_modified_ms for segment in log.segments)
    # The clock is read again: a running broker may have written since the command began.
    if not settings.by_clock or max(settings.now_ms, clock_ms()) >= newest_ms:
        return ()
    return (
        f"the clock says {time(settings.now_ms)}, but the newest segment was written at {time(newest_ms)}: "
        "if the clock is wrong, every age is wrong; --now sets the time",
    )


def noted(plan: CleanPlan, notes: Sequence[str]) -> CleanPlan:
    """Return the plan with these notes before its own."""
    return replace(plan, log=replace(plan.log, notes=(*notes, *plan.log.notes))) if notes else plan


def plan_entries(
    directories: Sequence[Path],
    settings: Settings,
    planner: Callable[[Path, TopicConfig, LogDirs], CleanPlan],
) -> Iterator[Entry]:
    """Yield an entry for each partition, with the plan or the error of this partition.

    Raises ConfigError for a setting that Kafka does not accept, because it is a mistake in the command line.
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
