"""What a round did with each partition, and with all of them."""

from __future__ import annotations

import enum
from dataclasses import field
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.clean.held_back import HeldBack
from kcompact.clean.job import CleanerStats
from kcompact.errors import CleaningAbortedError, KcompactError
from kcompact.exit_codes import gravest_exit_code
from kcompact.plan.cost import kafka_passes_at_most
from kcompact.plan.walk import PlannedPartition
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass

if TYPE_CHECKING:
    from pathlib import Path

    from kcompact.clean.staged_files import CleanedSegment
    from kcompact.log.segments import Segment
    from kcompact.plan.clean_plan import CleanPlan
    from kcompact.plan.deletion import ExpiredSegment
    from kcompact.swap.copy import CopyReport
    from kcompact.swap.kept.manifest import KeptGroup


class Status(enum.StrEnum):
    """What a round did with a partition. Errors are raised as exceptions.

    A dry run says `copied` of what the run copies as it is. `checkpoint-not-written`: all segments are cleaned and in
    place, and the next recovery or cleaning writes the checkpoint. `deleted`: retention deleted segments, and nothing
    was cleaned. `failed` only of a cleaning that failed after retention had deleted segments.
    """

    CLEANED = "cleaned"
    CHECKPOINT_NOT_WRITTEN = "checkpoint-not-written"
    COPIED = "copied"
    DELETED = "deleted"
    DRY_RUN = "dry-run"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningTimes:
    """The seconds that a cleaning took: in all, and until the survivors were known.

    `sync_s` and `verify_s` are the seconds that all workers together spent on syncing and reading back.
    """

    elapsed_s: float = 0.0
    map_s: float = 0.0
    sync_s: float = 0.0
    verify_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedGroups:
    """The groups that a cleaning has replaced, and `kept`, those whose old files were kept, with their digests.

    Only the journal reads them. The result of a round has none: thousands of results are kept until its end.
    """

    replaced: tuple[CleanedSegment, ...] = ()
    kept: tuple[KeptGroup, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CleanResult:
    """The result of a round on one partition.

    `end_offset` is the new checkpoint, or what it should be if it was not written. `expired` are the segments that
    retention deleted, or would have deleted in a dry run, before the cleaning or after it. `held_back` is
    counted by a cleaning, None for any other result. `resumed`: an earlier run, which was interrupted, has made this
    copy. `stopped_by` is the error that the cleaning itself would end with, of a
    dry run; why it failed after retention had deleted segments; why the checkpoint was not written; or who replaced the
    staging directory. `notes` are remarks for the user.
    """

    plan: CleanPlan
    status: Status
    stats: CleanerStats = field(default_factory=CleanerStats)
    end_offset: int | None = None
    engine: str | None = None
    times: CleaningTimes = field(default_factory=CleaningTimes)
    swapped: SwappedGroups = field(default_factory=SwappedGroups)
    expired: tuple[ExpiredSegment, ...] = ()
    held_back: HeldBack | None = None
    resumed: bool = False
    stopped_by: KcompactError | None = None
    notes: tuple[Note, ...] = ()

    @property
    def directory(self) -> Path:
        """The directory of the partition."""
        return self.plan.log.directory

    @property
    def held_back_notes(self) -> tuple[Note, ...]:
        """The note on what the cleaning has held back, if a replica lags."""
        if self.held_back is None or not self.plan.lagging_replicas:
            return ()
        return (self.held_back.note(RemarkCode.HELD_BACK, self.plan),)

    def __str__(self) -> str:
        if self.end_offset is None:
            return f"{self.directory.name}: {self.status}"
        sizes = f"{readable.size(self.stats.bytes_read)} -> {readable.size(self.stats.bytes_written)}"
        records = f"{self.stats.messages_read:,} -> {self.stats.messages_written:,} records"
        end = f"clean up to offset {self.end_offset}"
        if self.status is Status.CHECKPOINT_NOT_WRITTEN:
            end = f"the checkpoint should be {self.end_offset}"
        return f"{self.directory.name}: {self.status}, {sizes}, {records}, {end}"

    def __repr__(self) -> str:
        return f"<CleanResult {self}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome(PlannedPartition):
    """What a round did with one partition: its plan, the result or the error, and what recovery did first.

    A dry run has a result and an error when something would stop the cleaning itself.
    """

    result: CleanResult | None = None
    recovered: str | None = None

    @property
    def is_cleaned(self) -> bool:
        """Return whether a cleaning, or a dry run, was completed."""
        return self.result is not None and self.result.end_offset is not None

    @property
    def counted(self) -> CleanResult | None:
        """Return the result of a cleaning, or of a dry run, that was completed."""
        return self.result if self.is_cleaned and self.plan is not None else None

    @property
    def notes(self) -> tuple[Note, ...]:
        """Return the assumptions and remarks on the partition, and those of its cleaning."""
        planned = tuple(self.plan.log.notes) if self.plan else ()
        return (*planned, *self.result.notes) if self.result else planned

    @property
    def kafka_passes_at_most(self) -> int | None:
        """Return the greatest number of passes that Kafka's cleaner may need, for as many keys as were counted."""
        map_keys = self.counted.stats.map_keys if self.counted else None
        return kafka_passes_at_most(self.plan, map_keys=map_keys) if self.plan else None

    @property
    def is_eligible(self) -> bool:
        """Return whether the plan is eligible and no error but a request to stop prevents the cleaning.

        What would stop the cleaning after a dry run does not count.
        """
        stopped = isinstance(self.error, CleaningAbortedError) or self.result is not None
        return (self.error is None or stopped) and self.turn is not None and self.turn.eligible

    @property
    def status(self) -> str:
        """Return what the round did with the partition: a `Status`, or `failed`."""
        return "failed" if self.result is None else str(self.result.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """The output of a round as a whole. `error` is set if the copy is unfinished."""

    report: CopyReport
    error: KcompactError | None = None

    @property
    def exit_code(self) -> int:
        """Return the exit code of the error, 0 without one."""
        return self.error.exit_code if self.error else 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class RoundResult:
    """The result of a round: one outcome for each partition, in the order of the cleaning. Sizes are in bytes.

    `copied` is the output as a whole, of a round with `output`. `elapsed_s` is the duration of the cleaning, without
    locking, recovery and planning.
    """

    partitions: tuple[PartitionOutcome, ...]
    notes: tuple[Note, ...] = ()
    copied: Copied | None = None
    elapsed_s: float = 0.0

    @property
    def exit_code(self) -> int:
        """The gravest exit code of the failures, 0 without a failure."""
        unfinished = () if self.copied is None else (self.copied.exit_code,)
        return gravest_exit_code([*(outcome.exit_code for outcome in self.partitions), *unfinished])

    @property
    def cleaned(self) -> tuple[PartitionOutcome, ...]:
        """The partitions that were cleaned, or of which a dry run was completed."""
        return tuple(outcome for outcome in self.partitions if outcome.is_cleaned)

    @property
    def stats(self) -> CleanerStats:
        """The sum of what the cleaned partitions have read and written."""
        return sum((outcome.result.stats for outcome in self.cleaned if outcome.result), CleanerStats())

    @property
    def expired(self) -> tuple[Segment, ...]:
        """The segments that retention deleted, or of a dry run would delete."""
        results = [outcome.result for outcome in self.partitions if outcome.result is not None]
        return tuple(due.segment for result in results for due in result.expired)

    def raise_failure(self) -> None:
        """Raise the error of the first partition that failed, or that of an unfinished copy, if there is one."""
        for outcome in self.partitions:
            if outcome.error is not None:
                raise outcome.error
        if self.copied is not None and self.copied.error is not None:
            raise self.copied.error

    def __str__(self) -> str:
        counts: dict[str, int] = {}
        for outcome in self.partitions:
            counts[outcome.status] = counts.get(outcome.status, 0) + 1
        listed = ", ".join(f"{count:,} {status}" for status, count in counts.items())
        read, written = self.stats.bytes_read, self.stats.bytes_written
        sizes = f"; {readable.size(read)} -> {readable.size(written)}" if read else ""
        return f"{readable.counted(len(self.partitions), 'partition')}: {listed}{sizes}"

    def __repr__(self) -> str:
        return f"<RoundResult {self}>"
