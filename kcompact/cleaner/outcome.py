"""What a round did with each partition, and with all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.errors import CleaningAbortedError, KcompactError
from kcompact.notes import Note
from kcompact.plan.planned import PlannedPartition, gravest_exit_code

if TYPE_CHECKING:
    from kcompact.cleaner.partition import CleanResult
    from kcompact.log.segments import Segment
    from kcompact.swap.copy import CopyReport


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
    def bytes_read(self) -> int:
        """The bytes of all cleaned segments before the round."""
        return sum(outcome.result.stats.bytes_read for outcome in self.cleaned if outcome.result)

    @property
    def bytes_written(self) -> int:
        """The bytes of all cleaned segments after the round."""
        return sum(outcome.result.stats.bytes_written for outcome in self.cleaned if outcome.result)

    @property
    def messages_read(self) -> int:
        """The records of all cleaned segments before the round."""
        return sum(outcome.result.stats.messages_read for outcome in self.cleaned if outcome.result)

    @property
    def messages_written(self) -> int:
        """The records of all cleaned segments after the round."""
        return sum(outcome.result.stats.messages_written for outcome in self.cleaned if outcome.result)

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
        sizes = f"; {readable.size(self.bytes_read)} -> {readable.size(self.bytes_written)}" if self.bytes_read else ""
        return f"{readable.counted(len(self.partitions), 'partition')}: {listed}{sizes}"

    def __repr__(self) -> str:
        return f"<RoundResult {self}>"
