"""A partition with its plan, or with the error that prevented one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self, TypeVar

from kcompact.errors import CorruptDataError, KcompactError, RecoveryNeededError, RefusedError, StaleReplicaError
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log.directory import is_partition_directory
from kcompact.notes import Note
from kcompact.plan.clean_plan import ELIGIBLE, CleanPlan, Reason, dirtiest_first, place
from kcompact.plan.deletion import plan_at_turn
from kcompact.plan.passes import kafka_passes_at_most


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


GRAVEST_FIRST = (3, 8, 6, 5, 7, 4, 2, 1)
"""The exit codes of errors. Damage and half-done work need a person before anything else is tried."""

Partition = TypeVar("Partition", bound=PlannedPartition)


def in_turns(partitions: Sequence[Partition]) -> list[Partition]:
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


def gravest_exit_code(codes: Iterable[int]) -> int:
    """Return the gravest code of several partitions, 0 if none has failed. A request to stop is the least grave."""
    return next(iter(gravest_first((code for code in codes if code), int)), 0)


Failure = TypeVar("Failure")


def gravest_first(failures: Iterable[Failure], exit_code: Callable[[Failure], int]) -> list[Failure]:
    """Return failures with the gravest exit code first; equally grave ones keep their order."""
    gravity = {code: number for number, code in enumerate(GRAVEST_FIRST)}
    return sorted(failures, key=lambda each: gravity.get(exit_code(each), len(gravity)))
