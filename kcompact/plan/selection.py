"""Which of the partitions that paths name are meant."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from kcompact.errors import RefusedError
from kcompact.format.names import TopicPartition, parse_directory
from kcompact.readable import closest, shell_word, shown, some_of
from kcompact.values import dataclass

MAX_NAMED = 5
"""So many topics or partitions are named in a message; of more only some."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What `--topic` and `--partition` select. `topics` are shell patterns, `partitions` are numbers of partitions.

    A partition needs to match one of each; where there are none, it matches.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()

    @property
    def selects_all(self) -> bool:
        """Whether every partition matches."""
        return not self.topics and not self.partitions

    def has(self, directory: Path) -> bool:
        """Return whether the partition of a directory matches, of whatever kind it is. Topics are case-sensitive.

        A deleted or stray directory whose name has only the first part of a topic may be of any.
        """
        if self.selects_all:
            return True
        parsed = parse_directory(directory.name)
        if parsed is not None and parsed.may_be_shortened:
            return not self.partitions or parsed.topic_partition.partition in self.partitions
        return parsed is not None and self.has_partition(parsed.topic_partition)

    def has_partition(self, partition: TopicPartition) -> bool:
        """Return whether a partition matches."""
        return (not self.partitions or partition.partition in self.partitions) and self._has_topic(partition)

    def _has_topic(self, partition: TopicPartition) -> bool:
        return not self.topics or any(fnmatch.fnmatchcase(partition.topic, each) for each in self.topics)

    def no_match(self, path: Path, directories: Iterable[Path]) -> RefusedError:
        """Return the error that nothing matches. `directories` are those among which this selects."""
        partitions = by_partition(directories)
        named = " or ".join(f"'{pattern}'" for pattern in self.topics)
        of_topic = f" of a topic that matches {named}" if self.topics else ""
        right_topic = sorted(filter(self._has_topic, partitions))
        if self.partitions and right_topic:
            numbers = " or ".join(map(str, self.partitions))
            there = some_of([shown(str(each)) for each in right_topic], at_most=MAX_NAMED)
            return RefusedError(
                path=path, problem=f"no partition with the number {numbers}{of_topic}", hint=f"The paths have {there}."
            )
        topics = sorted({partition.topic for partition in partitions})
        hints = list(filter(None, (_meant(pattern, topics, partitions) for pattern in self.topics)))
        if not hints and topics:
            hints = [f"There are partitions of {some_of(list(map(shown, topics)), at_most=MAX_NAMED)}."]
        return RefusedError(path=path, problem=f"no partition{of_topic}", hint="\n".join(hints))


EVERY_PARTITION = Selection()


def by_partition(directories: Iterable[Path]) -> dict[TopicPartition, Path]:
    """Return partition directories by topic and number. One without such a name is left out."""
    return {parsed.topic_partition: each for each in directories if (parsed := parse_directory(each.name))}


def _meant(pattern: str, topics: Sequence[str], partitions: Collection[TopicPartition]) -> str:
    """Return what to pass instead of a pattern that matches no topic, an empty text if nothing is similar."""
    partition = TopicPartition.parse(pattern)
    if partition is not None and partition.topic in topics:
        number = f" --partition {partition.partition}" if partition in partitions else ""
        return f"{shown(pattern)} names a partition. Pass --topic {shell_word(partition.topic)}{number}."
    close = closest(pattern, topics)
    return f"Did you mean --topic {shell_word(close)}?" if close else ""
