"""The walk over the partitions that a user names: which they are, and an answer for each, with its plan or its error.

directories, unusable = named_partitions(paths, options.selection)
answers = [*plan_partitions(directories, options), *unusable]
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kcompact.bucket.mirror import MIRROR
from kcompact.errors import (
    ConfigError,
    CorruptDataError,
    EngineError,
    KcompactError,
    RecoveryNeededError,
    RefusedError,
    StaleReplicaError,
    StorageError,
    storage_errors,
)
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log.directory import LogDir, PerLogDir, is_log_dir, is_partition_directory, read_log_dir
from kcompact.log.files import files_in
from kcompact.log.unchanged_reading import read_unchanged
from kcompact.plan.clean_plan import CleanPlan, dirtiest_first, place
from kcompact.plan.cost import kafka_passes_at_most
from kcompact.plan.deletion import plan_at_turn
from kcompact.plan.discovery import canonical, find_partitions
from kcompact.plan.options import PlanOptions
from kcompact.plan.partition import advise_recovery, make_plan, plan_despite_damage
from kcompact.plan.replicas import Replicas, replica_notes
from kcompact.plan.selection import EVERY_PARTITION, Selection
from kcompact.plan.verdict import ELIGIBLE, Reason
from kcompact.remarks import Note
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.config.resolve import Configured

# One partition


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPartition:
    """A partition with its plan or its error. Damage outside the segments leaves it with both.

    `applies_retention`: old segments are deleted as a broker does, so the verdict is that of what they leave.
    """

    directory: Path
    plan: CleanPlan | None = None
    error: KcompactError | None = None
    is_partition: bool = True
    """False for a directory that is not a partition, so there is nothing to plan."""
    applies_retention: bool = False
    damage_outside: tuple[CorruptDataError, ...] = ()
    """Damage of the checkpoints or the metadata of the log directory, which the plan does without."""
    plan_damage: KcompactError | None = None
    """Damage of the partition that leaves it with a plan."""

    def __post_init__(self) -> None:
        for problem in (self.error, *(self.plan.log.damage if self.plan else ())):
            if problem is not None:
                drop_tracebacks(problem)

    @classmethod
    def of(cls, plan: CleanPlan) -> Self:
        """Return a partition with its plan, and with the damage that its log has."""
        is_damaged = plan.log.damage and plan.reason is not Reason.UNCLEAN_SHUTDOWN
        return cls(directory=plan.log.directory, plan=plan, error=plan.log.damage[0] if is_damaged else None)

    @classmethod
    def failed(cls, directory: Path, problem: KcompactError) -> Self:
        """Return a directory without a plan."""
        # A plain RefusedError means that the directory is not a partition. A locked or unreadable one may be.
        is_refused = type(problem) is RefusedError
        return cls(directory=directory, error=problem, is_partition=not is_refused or _may_be_partition(directory))

    @property
    def name(self) -> str:
        """Return the name of the directory."""
        return self.directory.name

    @property
    def turn(self) -> CleanPlan | None:
        """Return the plan by which the partition is cleaned or not: with retention that of what it leaves."""
        return plan_at_turn(self.plan) if self.plan is not None and self.applies_retention else self.plan

    @property
    def reason(self) -> Reason | None:
        """Return the verdict: of the error, if it is a verdict, else of the plan. None without a plan."""
        if isinstance(self.error, CorruptDataError):
            return Reason.CORRUPT
        if isinstance(self.error, RecoveryNeededError):
            return Reason.LEFTOVERS
        if not self.is_partition or isinstance(self.error, StaleReplicaError):
            return Reason.NOT_A_PARTITION
        return self.turn.reason if self.turn else None

    @property
    def short_reason(self) -> str:
        """Return in a word why the partition is not cleaned: its verdict, or what its error is about. May be empty."""
        if self.reason is None or (self.error is not None and self.reason in ELIGIBLE):
            return self.error.word if self.error else ""
        return str(self.reason)

    @property
    def explanation(self) -> str:
        """Return the verdict as a sentence, or the first line of the error that is the verdict."""
        if self.turn is None or isinstance(self.error, CorruptDataError | RecoveryNeededError | StaleReplicaError):
            return str(self.error).splitlines()[0] if self.error else ""
        return self.turn.explanation

    @property
    def is_eligible(self) -> bool:
        """Return whether the partition has no error and its plan is eligible."""
        return self.error is None and self.turn is not None and self.turn.eligible

    @property
    def exit_code(self) -> int:
        """Return the exit code of the error, 0 without one."""
        return self.error.exit_code if self.error else 0

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the assumptions and remarks on the partition."""
        return tuple(self.plan.log.notes) if self.plan else ()

    @property
    def kafka_passes_at_most(self) -> int | None:
        """Return the greatest number of passes that Kafka's cleaner may need. None if unknown, or without an end."""
        return kafka_passes_at_most(self.plan) if self.plan else None


Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(PlannedPartition, Generic[Found]):
    """A partition with what a command has `found` in it, None if it could not be read. Damage leaves it with both."""

    found: Found | None = None


def _may_be_partition(directory: Path) -> bool:
    """Return whether a directory can be a partition. True also if that cannot be determined."""
    parsed = parse_directory(directory.name)
    try:
        if not directory.is_dir():
            return True
        named = parsed is not None and parsed.kind is DirectoryKind.PARTITION
        return named and not directory.is_symlink() and is_partition_directory(directory)
    except OSError:
        return True


def drop_tracebacks(problem: KcompactError) -> None:
    """Drop the tracebacks of an error and of its causes. That of a bug or of Spark becomes a note, for `--debug`.

    Thousands of errors may be kept. The frames of a traceback hold what was in memory when it was raised, and a cleared
    frame still holds the closure of its function.
    """
    chain: list[BaseException] = [problem]
    for each in chain:
        is_expected = isinstance(each, KcompactError | OSError) and not isinstance(each, EngineError)
        if each.__traceback__ is not None and not is_expected:
            lines = traceback.format_tb(each.__traceback__)
            # Errors of the same place share the text. Partitions that share the error have it once.
            text = sys.intern("".join(("Traceback (most recent call last):\n", *lines)).rstrip())
            if text not in getattr(each, "__notes__", ()):
                each.add_note(text)
        each.__traceback__ = None
        causes = (each.__cause__, each.__context__)
        chain += [cause for cause in causes if cause is not None and cause not in chain]


Planned = TypeVar("Planned", bound=PlannedPartition)
Result = TypeVar("Result")


# All partitions of the arguments


def named_partitions(
    paths: Sequence[Path], selection: Selection = EVERY_PARTITION, *, what: str = "directory"
) -> tuple[list[Path], list[Answer[Any]]]:
    """Return the partition directories that the paths name, and an answer for each unusable path.

    `what` is the kind of path that the command takes, for the message about a missing one. Raises RefusedError when
    no partition is selected.
    """
    directories: dict[Path, None] = {}
    unusable: list[Answer[Any]] = []
    for path in paths:
        try:
            MIRROR.require(path)
        except KcompactError as problem:
            unusable.append(Answer.failed(path.absolute(), problem))
            continue
        try:
            with storage_errors(path):
                path.stat()
                directories.update(dict.fromkeys(filter(selection.has, find_partitions([path]))))
        except StorageError as problem:
            missing = isinstance(problem.problem, FileNotFoundError | NotADirectoryError)
            refused = RefusedError(path=path, problem=f"no such {what}")
            unusable.append(Answer.failed(path.absolute(), refused if missing else problem))
        except KcompactError as problem:
            is_empty = type(problem) is RefusedError and len(paths) > 1 and is_log_dir(canonical(path))
            if not is_empty:  # A broker may have no partition yet in one of its log directories.
                unusable.append(Answer.failed(path.absolute(), problem))
    if paths and not directories and not unusable:
        raise selection.no_match(paths[0], find_partitions(paths))
    return list(directories), unusable


def walk_partitions(
    directories: Iterable[Path],
    visit: Callable[[Path], Result],
    failed: Callable[[Path, KcompactError], Result],
) -> Iterator[Result]:
    """Yield what `visit` returns for each partition, or what `failed` makes of its error.

    Raises ConfigError for a setting that Kafka does not accept, because it is a mistake of the user.
    """
    for directory in directories:
        try:
            with storage_errors(directory):
                result = visit(directory)
        except ConfigError:
            raise
        except KcompactError as problem:
            result = failed(directory, problem)
        yield result


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


def noted(plan: CleanPlan, notes: Sequence[Note]) -> CleanPlan:
    """Return the plan with these notes before its own."""
    return replace(plan, log=replace(plan.log, notes=(*notes, *plan.log.notes))) if notes else plan


class Planner:
    """Plans partitions: their settings are found for all at once, the checkpoints of a log directory are read once.

    Its methods raise KcompactError and OSError, as a visit of `walk_partitions` may. Raises ConfigError.
    """

    def __init__(
        self, directories: Sequence[Path], options: PlanOptions, configs: Mapping[Path, Configured] | None = None
    ) -> None:
        self.log_dirs = LogDirs()
        self._options = options
        self._replicas = Replicas(options.replicas, directories)
        self._configs = options.configs_of(directories) if configs is None else configs

    def _moves(self, directory: Path) -> list[Path]:
        """Return the `-future` directories of a partition for which it waits: all but those that `--replica` names."""
        return [each for each in self._configs[directory].moves if not self._replicas.names(each)]

    def require_settings(self, directory: Path) -> None:
        """Raise the error that keeps the settings of a partition unknown."""
        problem = self._configs[directory].problem
        if problem is not None:
            raise problem

    def require_replicas(self, directory: Path) -> None:
        """Raise the error that keeps the ends of a partition's other replicas unknown."""
        self._replicas.of(directory)

    def plan(self, directory: Path) -> CleanPlan:
        """Return the plan of a partition, with the checkpoints that were read first."""
        self.require_settings(directory)
        configured = self._configs[directory]
        plan = make_plan(
            directory,
            configured.config,
            self._options,
            log_dir=self.log_dirs.of(directory),
            moves=self._moves(directory),
        )
        plan = replace(plan, replicas=self._replicas.of(directory))
        notes_on_replicas = replica_notes(plan.replicas, plan.log.log_end_offset) if plan.config.compacts else ()
        return noted(plan, (*configured.notes, *notes_on_replicas))

    def plan_despite_damage(self, directory: Path, log_dir: LogDir) -> tuple[CleanPlan, KcompactError | None]:
        """Return the plan of a partition and its damage. Without the settings of the cluster those of the others do."""
        configured = self._configs[directory]
        plan, damage = plan_despite_damage(
            directory, configured.config, self._options, log_dir=log_dir, moves=self._moves(directory)
        )
        return noted(plan, configured.notes), damage

    def planned_despite_damage(self, directory: Path) -> Answer[Any]:
        """Return a partition with its plan. Damage leaves it with plan and error."""
        log_dir, log_dir_damage = self.log_dirs.despite_damage(directory)
        return self._answer(directory, log_dir, log_dir_damage)

    def read(self, directory: Path, read: Callable[[Answer[Any], LogDir], Answer[Found]]) -> Answer[Found]:
        """Return a partition with its plan, and with what `read` adds to it.

        Damage leaves the partition with plan and error. Beside a running broker the entry is that of a moment.
        """
        log_dir, log_dir_damage = self.log_dirs.despite_damage(directory)
        answer = read_unchanged(
            files_in(directory),
            log_dir,
            lambda current: read(self._answer(directory, current, log_dir_damage), current),
        )
        advise_recovery(answer.error, answer.plan)
        return answer

    def _answer(self, directory: Path, log_dir: LogDir, log_dir_damage: CorruptDataError | None) -> Answer[Any]:
        plan, damage = self.plan_despite_damage(directory, log_dir)
        outside = (self._configs[directory].problem, log_dir_damage)
        return Answer(
            directory=directory,
            plan=plan,
            error=log_dir_damage or self._configs[directory].problem or damage,
            damage_outside=tuple(each for each in outside if isinstance(each, CorruptDataError)),
            plan_damage=damage,
        )


def plan_partitions(directories: Sequence[Path], options: PlanOptions) -> Iterator[Answer[Any]]:
    """Yield each partition with its plan or its error: damage of checkpoints or metadata is one. Raises ConfigError."""
    planner = Planner(directories, options)
    return walk_partitions(directories, lambda each: Answer.of(planner.plan(each)), Answer.failed)


# Order


def in_turns(partitions: Sequence[Planned]) -> list[Planned]:
    """Return the partitions in the order of a broker's cleaner thread, those without a plan last.

    The thread cleans the dirtiest log, then deletes old segments of all compacted logs, and only then chooses again. So
    all other plans come later, at the place of what retention leaves, and never before the first one.
    """
    first = dirtiest_first(
        [each.plan for each in partitions if each.plan and each.error is None and each.plan.eligible]
    )
    planned = []
    for each in partitions:
        if each.plan is not None:
            plan = replace(each.plan, comes_later=bool(first) and each.plan is not first[0])
            turn = plan_at_turn(plan)
            at = place(turn) if turn is plan or not first else max(place(turn), place(first[0]))
            planned.append(((at, plan.comes_later, place(turn)), replace(each, plan=plan)))
    planned.sort(key=lambda item: item[0])
    return [each for _, each in planned] + [each for each in partitions if each.plan is None]
