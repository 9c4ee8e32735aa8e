"""What commands find in a partition, a topic or a single file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kcompact.cli.failures import complain_of_each
from kcompact.plan.walk import Answer, PlannedPartition
from kcompact.values import dataclass

if TYPE_CHECKING:
    from kcompact.clean.held_back import HeldBack
    from kcompact.plan.explanation import Explanation, SettingsComparison
    from kcompact.questions.contents import LogContents, SegmentContents
    from kcompact.questions.keys.counts import CountedKeys, LogKeys
    from kcompact.questions.verify.findings import FileFinding


class Inspected(NamedTuple):
    """What `inspect` and `verify` find in a partition. Only `verify` has findings."""

    contents: LogContents
    findings: tuple[FileFinding, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicKeys:
    """Some partitions of one topic: an answer for each, and what they add up to."""

    topic: str
    answers: tuple[Answer[LogKeys], ...]
    counted: CountedKeys

    @property
    def incomplete(self) -> tuple[Answer[LogKeys], ...]:
        """The partitions that the sums have no part of, or only the part before the damage."""
        return tuple(each for each in self.answers if each.found is None or each.found.problem is not None)


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


class PlanDetails(NamedTuple):
    """What was asked about the plan of a partition. A part is None where it was not asked for or does not apply."""

    explanation: Explanation | None = None
    comparison: SettingsComparison | None = None
    held_back: HeldBack | None = None


class Restored(NamedTuple):
    """What `restore` did in a partition. `files` and `size_bytes` are what is, or is to be, put back.

    `not_restored` are the base offsets of the groups that cannot be put back.
    """

    status: str
    files: int = 0
    size_bytes: int = 0
    checkpoint: int | None = None
    not_restored: tuple[int, ...] = ()


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
