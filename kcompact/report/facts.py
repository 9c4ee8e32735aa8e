"""What a report says about a partition, as it was read. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcompact.plan.walk import PlannedPartition

if TYPE_CHECKING:
    from kcompact.cleaner.outcome import CleanResult
    from kcompact.errors import KcompactError
    from kcompact.inspect.batch_kinds import BatchKinds
    from kcompact.inspect.contents import LogContents
    from kcompact.inspect.gap_facts import Gaps
    from kcompact.inspect.transaction_report import TransactionReport
    from kcompact.keys.counts import LogKeys
    from kcompact.plan.explanation import Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The result of a dry run, or the error that ended it. `is_forced`: the plan ignored the dirty ratio."""

    result: CleanResult | None = None
    error: KcompactError | None = None
    is_forced: bool = False

    @property
    def bytes_after(self) -> int | None:
        """The size of the cleaned section after the cleaning, None without a result."""
        return None if self.result is None else self.result.stats.bytes_written


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts(PlannedPartition):
    """One partition: its plan or its error, and what was read of its segments. None is what was not read.

    `damage` has what stopped the reading of a segment.
    """

    contents: LogContents | None = None
    kinds: BatchKinds | None = None
    gaps: Gaps | None = None
    transactions: TransactionReport | None = None
    keys: LogKeys | None = None
    dry_run: DryRun | None = None
    damage: tuple[KcompactError, ...] = ()
    explained: Explanation | None = None
