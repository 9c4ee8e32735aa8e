"""What a cleaning is done with: the options of a round, and `Cleaning`, all that one partition is cleaned with."""

from __future__ import annotations

from dataclasses import field
from os import PathLike

from kcompact.bucket.path import require_local_path
from kcompact.clean.prepare import PreparedClean, Tuning, prepare_clean
from kcompact.cleaner.journal import Journal
from kcompact.errors import ConfigError
from kcompact.log.lock import LogDirLock
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import ExpiredSegment, certainly_expired, due_now, plan_at_turn
from kcompact.plan.discovery import named_path
from kcompact.stages.executor import Executor, Progress
from kcompact.swap.copy import Output
from kcompact.swap.kept.links import KeptDirectory
from kcompact.values import dataclass
from kcompact.wording import worded


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """The options of a cleaning.

    `output` is a new or empty directory for a compacted copy; the source is then only read. `keep_replaced` is one that
    gets hard links to the files that are replaced. `journal` is a file that gets lines about each
    cleaning in place; None means no journal. With `rebuild_indexes` no index file is read; the plan for
    `clean_partition` then also needs `plan_partition(rebuild_indexes=True)`. `max_bytes_per_second` limits reading and
    writing together; None means no limit. `memory_bytes` is for all workers together; None means
    `host.machine.default_memory_bytes`. Raises ConfigError for a combination or a number that makes no sense, and for a
    path of another store.
    """

    dry_run: bool = False
    output: str | PathLike[str] | None = None
    keep_replaced: str | PathLike[str] | None = None
    journal: str | PathLike[str] | None = None
    keep_tombstones: bool = False
    rebuild_indexes: bool = False
    apply_retention: bool = False
    max_bytes_per_second: int | None = None
    memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.output is not None:
            named_path(self.output, suggests_address=True)
        if self.output is not None and self.apply_retention:
            problem = worded("deletes segments in place, so it cannot be combined with --output")
            raise ConfigError(path=worded("--apply-retention"), problem=problem)
        if self.keep_replaced is not None:
            require_local_path(self.keep_replaced)
            named_path(self.keep_replaced)
            self._require_kept_alone()
        if self.journal is not None:
            require_local_path(self.journal)
        for name in ("max_bytes_per_second", "memory_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(path=name, problem=f"{value} is less than 1")

    def _require_kept_alone(self) -> None:
        if self.output is not None:
            problem = worded("--output replaces nothing, so there is nothing to keep")
            raise ConfigError(path=worded("--keep-replaced"), problem=problem)
        if self.apply_retention:
            problem = "keeps what a cleaning replaces, not what --apply-retention deletes; run both after each other"
            raise ConfigError(path=worded("--keep-replaced"), problem=worded(problem))

    @property
    def only_reads(self) -> bool:
        """Return whether the partitions are only read: a dry run, or a copy."""
        return self.dry_run or self.output is not None

    @property
    def written_journal(self) -> str | PathLike[str] | None:
        """Return the journal; None also where nothing is changed in place."""
        return None if self.only_reads else self.journal

    def would_change(self, plan: CleanPlan) -> bool:
        """Return whether anything is to be done with a partition."""
        return plan.eligible or self.output is not None or bool(self.to_delete(plan))

    def to_delete(self, plan: CleanPlan) -> tuple[ExpiredSegment, ...]:
        """Return the segments that are deleted by retention."""
        return certainly_expired(due_now(plan), plan.config) if self.apply_retention else ()

    def turn(self, plan: CleanPlan) -> CleanPlan:
        """Return the plan by which a partition is cleaned or not: with retention that of what it leaves."""
        return plan_at_turn(plan) if self.apply_retention else plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """All that one partition is cleaned with. A round makes it once for each partition.

    `lock` is the held lock of the log directory. Only a dry run and a copy need no lock. `output` is the output of a
    round with `options.output`, entered except in a dry run; without it the partition is copied on its own. `keep` is
    the same for `options.keep_replaced`. `journal` gets lines if anything is to be changed.
    """

    plan: CleanPlan
    executor: Executor
    lock: LogDirLock | None
    options: CleanOptions = field(default_factory=CleanOptions)
    progress: Progress = field(default_factory=Progress)
    output: Output | None = None
    keep: KeptDirectory | None = None
    journal: Journal | None = None

    @property
    def held_lock(self) -> LogDirLock:
        """The lock of a cleaning that changes the partition."""
        assert self.lock is not None, "a partition is only changed under the lock of its log directory"
        return self.lock

    def prepare(self) -> PreparedClean:
        """Return the survivors. Raises as `prepare_clean`."""
        return prepare_clean(
            self.plan,
            self.executor,
            keep_tombstones=self.options.keep_tombstones,
            max_bytes_per_second=self.options.max_bytes_per_second,
            tuning=Tuning(memory_bytes=self.options.memory_bytes),
        )
