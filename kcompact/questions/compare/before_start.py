"""Before a broker starts again: which partitions of its disk would bring keys back, hang, or lose keys.

Such a partition is moved away while the broker is down. When the broker starts, it fetches the partition anew. It is
never removed: it can have what the others have lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from kcompact.format.names import TopicPartition
from kcompact.plan.discovery import has_others
from kcompact.questions.compare.answer import ComparedPartition, Explained
from kcompact.questions.compare.findings import Certainty, DifferenceKind
from kcompact.questions.compare.pairs import Pairs
from kcompact.readable import shell_word
from kcompact.values import dataclass

_HARMFUL = frozenset(DifferenceKind) - {
    DifferenceKind.PRESENT_IN_ONE,
    DifferenceKind.CONTENT_DIFFERS,
    DifferenceKind.DIVERGED_EPOCH,
    DifferenceKind.EMPTIED_LOG,
}
"""A broker truncates a fork by itself, and what is above it may be nowhere else."""


_EITHER = (DifferenceKind.PRESENT_IN_ONE, DifferenceKind.CONTENT_DIFFERS, DifferenceKind.BEHIND_WILL_RESURRECT)
"""Which side is wrong is not proven: the replicas that have the record, or the others."""


class Action(StrEnum):
    """What to do with a partition before its broker starts."""

    MOVE_AWAY = "move-away"
    """It does harm. Moved away it stays whole: what it has above a fork is nowhere else."""
    DECIDE = "decide"
    """The files do not say, or it has what the others lack."""
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAction:
    """What to do with a partition, and why. `command` is empty if there is nothing to do."""

    partition: str
    directory: Path
    action: Action
    kinds: tuple[DifferenceKind, ...]

    @property
    def command(self) -> str:
        """The command for it, with a directory outside of the log directory to fill in."""
        return f"mv {shell_word(self.directory)} BACKUP/" if self.action is Action.MOVE_AWAY else ""


def is_all_compared(partitions: Sequence[ComparedPartition], pairs: Pairs) -> bool:
    """Return whether nothing of the first path was left out, so that no action also means that nothing is wrong."""
    first = pairs.of_first
    if pairs.exit_code or pairs.sides[0].problem is not None or not first:
        return False
    if has_others({each.parent for each in first.values()}, first.values()):
        return False
    return not any(
        each.error or each.not_compared or any(_hides_records(finding) for finding in each.findings)
        for each in partitions
    )


def _hides_records(explained: Explained) -> bool:
    """Return whether a finding is damage: what lies behind it was not compared, even where that is the log's end."""
    return explained.finding.kind is DifferenceKind.CORRUPT_COPY


def actions_before_start(
    partitions: Sequence[ComparedPartition], path: Path, directories: Mapping[TopicPartition, Path]
) -> list[PartitionAction]:
    """Return what to do with each partition of a path that other replicas were given for. These are its directories.

    One that an error kept from being compared needs a decision: nothing is known of it.
    """
    actions = []
    for partition in partitions:
        directory = directories.get(partition.topic_partition)
        if directory is None:
            continue
        if partition.error is not None:
            actions.append(
                PartitionAction(partition=partition.name, directory=directory, action=Action.DECIDE, kinds=())
            )
            continue
        replica = next((each for each in partition.replicas if each.path == path), None)
        if replica is None:
            continue
        findings = [each for each in partition.findings if each.finding.kind is not DifferenceKind.UNREPLICATED_TAIL]
        own = [each for each in findings if path in each.replicas]
        is_needed = any(each.right is not None and path in each.right for each in findings)
        is_harmful = any(
            each.finding.kind in _HARMFUL and each.finding.certainty is not Certainty.UNDECIDED for each in own
        )
        possible = own + [each for each in findings if each not in own and _may_mean_others(each)]
        action = Action.KEEP
        if is_harmful and not is_needed:
            action = Action.MOVE_AWAY
        elif possible:
            action = Action.DECIDE
        kinds = tuple(dict.fromkeys(each.finding.kind for each in possible))
        actions.append(
            PartitionAction(partition=partition.name, directory=replica.directory, action=action, kinds=kinds)
        )
    return actions


def _may_mean_others(explained: Explained) -> bool:
    """Return whether a finding that names some replicas can mean that another one is wrong: a majority can be."""
    return explained.finding.kind in _EITHER or explained.finding.certainty is Certainty.UNDECIDED
