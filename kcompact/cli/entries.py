"""What `inspect`, `recover` and `restore` report: one entry for each partition or file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli.failures import complain_of_each
from kcompact.plan.walk import PlannedPartition
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.plan.explanation import Explanation
    from kcompact.questions.contents import LogContents, SegmentContents
    from kcompact.questions.gaps.walks import Gaps
    from kcompact.questions.groups import LogGroups
    from kcompact.questions.keys.counts import CountedKeys, LogKeys
    from kcompact.questions.transactions.answer import TransactionReport
    from kcompact.questions.verify.findings import FileFinding
    from kcompact.swap.recovery_end import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedPartition(PlannedPartition):
    """One partition in the report of `inspect`."""

    contents: LogContents | None = None
    findings: tuple[FileFinding, ...] | None = None
    gaps: Gaps | None = None
    transactions: TransactionReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysEntry(InspectedPartition):
    """One partition in the report of `keys`. For damage it has both keys and error."""

    keys: LogKeys | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKeys:
    """Some partitions of one topic: an entry for each, and what they add up to."""

    topic: str
    entries: tuple[KeysEntry, ...]
    counted: CountedKeys

    @property
    def incomplete(self) -> tuple[KeysEntry, ...]:
        """The partitions that the sums have no part of, or only the part before the damage."""
        return tuple(entry for entry in self.entries if entry.keys is None or entry.keys.problem is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A single file in the report of `inspect`. A field is None if it does not apply or could not be read."""

    path: Path
    kind: str | None = None
    base_offset: int | None = None
    size_bytes: int | None = None
    contents: SegmentContents | None = None
    entries: list[dict[str, Any]] | None = None
    findings: tuple[FileFinding, ...] | None = None
    error: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsEntry(PlannedPartition):
    """One partition in the report of `groups`, with its groups or its error."""

    groups: LogGroups | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryEntry(PlannedPartition):
    """One partition in the report of `recover`. Without a report the recovery has failed."""

    status: str = "failed"
    report: RecoveryReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreEntry(PlannedPartition):
    """One partition in the report of `restore`. `files` and `size_bytes` are what is, or is to be, put back.

    `not_restored` are the base offsets of the groups that cannot be put back. What is not known is None.
    """

    status: str = "failed"
    files: int | None = None
    size_bytes: int | None = None
    checkpoint: int | None = None
    not_restored: tuple[int, ...] | None = None


def complain_of(entries: Sequence[PlannedPartition]) -> None:
    """Print the errors of entries on standard error."""
    complain_of_each((entry.directory, entry.error) for entry in entries if entry.error is not None)


def explanations_of(entries: Sequence[PlannedPartition]) -> dict[Path, Explanation]:
    """Return the explanation of each plan, by directory. Reads delete horizons and the states of transactions."""
    from kcompact.plan.explanation import explain_all
    from kcompact.plan.horizons import read_all_horizons
    from kcompact.plan.transactions import read_all_transactions

    plans = [entry.plan for entry in entries if entry.plan is not None]
    explanations = explain_all(plans, read_all_horizons(plans), read_all_transactions(plans))
    return {each.plan.log.directory: each for each in explanations}
