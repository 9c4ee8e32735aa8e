"""From the paths that a user names to one plan for each partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kcompact.config.settings import TopicConfig
from kcompact.errors import ConfigError, CorruptDataError, KcompactError, RefusedError, StorageError, storage_errors
from kcompact.log.directory import LogDir, read_log, read_log_dir
from kcompact.log.per_log_dir import PerLogDir
from kcompact.log.settled import read_settled
from kcompact.notes import Note
from kcompact.plan.clean_plan import CleanPlan, Reason, plan_cleaning
from kcompact.plan.discovery import find_partitions, no_such_topic
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import plan_partition
from kcompact.plan.planned import PlannedPartition

# Which partitions


def named_partitions(
    paths: Sequence[Path], *, topics: Sequence[str] = (), what: str = "directory"
) -> tuple[list[Path], list[PlannedPartition]]:
    """Return the partition directories that the paths name, and an entry for each unusable path.

    `what` is the kind of path that the command takes, for the message about a missing one. Raises RefusedError when
    no partition matches `topics`.
    """
    found: dict[Path, None] = {}
    unusable = []
    for path in paths:
        try:
            with storage_errors(path):
                path.stat()
                found.update(dict.fromkeys(find_partitions([path], topics=topics)))
        except StorageError as problem:
            missing = isinstance(problem.problem, FileNotFoundError | NotADirectoryError)
            refused = RefusedError(path=path, problem=f"no such {what}")
            unusable.append(PlannedPartition.failed(path.absolute(), refused if missing else problem))
        except KcompactError as problem:
            unusable.append(PlannedPartition.failed(path.absolute(), problem))
    if not found and not unusable:
        raise no_such_topic(paths[0], topics, find_partitions(paths))
    return list(found), unusable


# Plans


class LogDirs(PerLogDir[LogDir]):
    """The checkpoints of each log directory. `of` raises CorruptCheckpointError, StorageError."""

    def __init__(self) -> None:
        super().__init__(_read_log_dir)

    def despite_damage(self, directory: Path) -> tuple[LogDir, CorruptDataError | None]:
        """Return the log directory of a partition; if a checkpoint is damaged, one without checkpoints, and the damage.

        Raises StorageError.
        """
        try:
            return self.of(directory), None
        except CorruptDataError as problem:
            return LogDir(path=directory.parent, is_log_dir=True), problem


def _read_log_dir(log_dir: Path) -> LogDir:
    with storage_errors(log_dir):
        return read_log_dir(log_dir)


def make_plan(directory: Path, config: TopicConfig, options: PlanOptions, *, log_dir: LogDir) -> CleanPlan:
    """Return the plan of one partition; beside a running broker that of a moment. Raises KcompactError, OSError."""
    return read_settled(directory, log_dir, partial(_make_plan, directory, config, options))


def _make_plan(directory: Path, config: TopicConfig, options: PlanOptions, log_dir: LogDir) -> CleanPlan:
    return plan_partition(
        directory,
        config,
        now_ms=options.now_ms,
        log_dir=log_dir,
        high_watermark=options.high_watermark,
        use_log_end=options.use_log_end,
        force=options.force,
        include_internal=options.include_internal,
        rebuild_indexes=options.rebuild_indexes,
        unclean=options.unclean,
    )


def plan_despite_damage(
    directory: Path, config: TopicConfig, options: PlanOptions, *, log_dir: LogDir
) -> tuple[CleanPlan, KcompactError | None]:
    """Return the plan and the damage. If the producer state cannot be read, the plan is made without it.

    Raises as `make_plan`.
    """
    try:
        plan = make_plan(directory, config, options, log_dir=log_dir)
    except CorruptDataError as problem:
        log = read_log(directory, log_dir=log_dir)
        plan = plan_cleaning(log, config, now_ms=options.now_ms, producers={}, high_watermark=options.high_watermark)
        return plan, problem
    return plan, plan.log.damage[0] if plan.log.damage else None


def noted(plan: CleanPlan, notes: Sequence[Note]) -> CleanPlan:
    """Return the plan with these notes before its own."""
    return replace(plan, log=replace(plan.log, notes=(*notes, *plan.log.notes))) if notes else plan


def plan_partitions(
    directories: Sequence[Path],
    options: PlanOptions,
    planner: Callable[[Path, TopicConfig, LogDirs], CleanPlan] | None = None,
) -> Iterator[PlannedPartition]:
    """Yield each partition with its plan or its error. `planner` makes a plan; by default `make_plan` does.

    Raises ConfigError for a setting that Kafka does not accept, because it is a mistake of the user.
    """
    configs = options.configs_of(directories)
    log_dirs = LogDirs()
    for directory in directories:
        configured = configs[directory]
        if configured.problem is not None:
            yield PlannedPartition.failed(directory, configured.problem)
            continue
        try:
            with storage_errors(directory):
                if planner is None:
                    plan = make_plan(directory, configured.config, options, log_dir=log_dirs.of(directory))
                else:
                    plan = planner(directory, configured.config, log_dirs)
        except ConfigError:
            raise
        except KcompactError as problem:
            yield PlannedPartition.failed(directory, problem)
        else:
            is_damaged = plan.log.damage and plan.reason is not Reason.UNCLEAN_SHUTDOWN
            damage = plan.log.damage[0] if is_damaged else None
            yield PlannedPartition(directory=directory, plan=noted(plan, configured.notes), error=damage)
