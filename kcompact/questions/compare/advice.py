"""What a finding means for consumers and what to do about it, in words. Only remedies that were tried are named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kcompact.format.names import TopicPartition
from kcompact.questions.compare.findings import (
    ABOUT_ENDS,
    ABOUT_KEYS,
    ABOUT_TRANSACTIONS,
    Certainty,
    Difference,
    DifferenceKind,
)
from kcompact.readable import counted, shell_word, some_of
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True)
class Advice:
    """`why`: what has happened and what consumers see; `do`: what to do, the commands included."""

    why: str
    do: str


class _Words(NamedTuple):
    """What the sentences on a finding name: its replicas, those that are right, their directories for a shell."""

    here: str
    right: str
    directories: Sequence[Path]

    @property
    def have(self) -> str:
        """The verb after `here`."""
        return "has" if len(self.directories) == 1 else "have"

    @property
    def is_or_are(self) -> str:
        """The verb after `here`."""
        return "is" if len(self.directories) == 1 else "are"

    def to_backup(self, command: str) -> str:
        """Return a command for each directory. They have the same name, so each gets a backup of its own."""
        if len(self.directories) == 1:
            return f"{command} {shell_word(self.directories[0])} BACKUP/"
        each = (
            f"{command} {shell_word(directory)} BACKUP-{number}/"
            for number, directory in enumerate(self.directories, 1)
        )
        return "; ".join(each)

    @property
    def refetch(self) -> str:
        """How a replica is fetched anew."""
        return (
            f"Stop its broker, so that another replica leads, move the directory away, and start it again: it fetches "
            f"the partition from the leader. {self.to_backup('mv')}"
        )

    @property
    def before_start(self) -> str:
        """The same for the disk of a broker that is stopped."""
        return (
            f"Move the directory away before its broker starts: it then fetches the partition from the leader. "
            f"{self.to_backup('mv')}"
        )


def advice_on(
    finding: Difference, partition: TopicPartition, names: Sequence[str], directories: Sequence[Path]
) -> Advice:
    """Return the advice on a finding. `names` and `directories` are those of the replicas, by number."""
    words = _Words(
        some_of([names[number] for number in finding.replicas], separator=" and "),
        some_of([names[number] for number in finding.right], separator=" and ") if finding.right else "other replicas",
        [directories[number] for number in finding.replicas],
    )
    if finding.kind in ABOUT_KEYS:
        return _on_keys(finding, words)
    if finding.kind in ABOUT_TRANSACTIONS:
        return _on_transactions(finding, words, partition)
    if finding.kind in ABOUT_ENDS:
        return _on_ends(finding, words)
    return _on_batches(finding, words)


def _on_ends(finding: Difference, words: _Words) -> Advice:
    """Return the advice on replicas that end or begin where they should not, or whose end nobody has got."""
    offset = finding.offsets[0]
    match finding.kind:
        case DifferenceKind.LOST_END:
            return Advice(
                f"{words.here} ends at offset {offset}, and by the checkpoints of its broker it has had "
                f"{finding.count:,} offsets more, which other replicas have. When it leads, consumers lose them",
                f"Do not let it lead. {words.refetch}",
            )
        case DifferenceKind.EMPTIED_LOG:
            return Advice(
                f"{words.here} begins where it ends, so consumers get nothing from it, and other replicas have records "
                f"from offset {offset} on. Either all records were deleted just before (kafka-delete-records.sh), or "
                "its log-start-offset-checkpoint is wrong",
                "Ask who has deleted them. If nobody has, do not let it lead.",
            )
        case DifferenceKind.UNREPLICATED_TAIL:
            return Advice(
                f"{words.here} has records from offset {offset} on that were not replicated when its broker crashed. "
                "They are above its high watermark, so no consumer has got them, and nothing committed is known to be "
                "lost",
                "Nothing: its broker drops them when it follows the leader.",
            )
    raise AssertionError(finding.kind)


def _on_batches(finding: Difference, words: _Words) -> Advice:
    """Return the advice on damage, and on replicas with other batches at the same offsets."""
    match finding.kind:
        case DifferenceKind.CORRUPT_COPY:
            paths = " ".join(shell_word(each) for each in words.directories)
            log_dirs = " ".join(shell_word(each.parent) for each in words.directories)
            return Advice(
                f"{words.here} is damaged: {counted(finding.count, 'place')}, the first one in {finding.problem}. "
                f"Where a log is damaged, a consumer that reads there gets an error",
                f"kcompact verify {paths} lists the damage of the log, kcompact doctor {log_dirs} that of the files "
                f"around it. If the log is damaged, fetch this replica anew. {words.refetch}",
            )
        case DifferenceKind.DIVERGED_EPOCH:
            return Advice(
                f"From offset {finding.offsets[0]} on, the replicas have different records at the same offsets: a "
                f"leader was elected that lacked some of them (an unclean election). A replica that follows the newest "
                f"leader drops its own records from there on",
                f"Copy the directory before a broker starts: what is dropped is nowhere else. "
                f"{words.to_backup('cp -a')}",
            )
        case DifferenceKind.CONTENT_DIFFERS:
            return Advice(
                f"The replicas have different records at {counted(finding.count, 'offset')}. A cleaner gives rotten "
                f"bytes a valid checksum, so one of them serves a wrong record without an error",
                f"Compare the records with their source, or with a third replica. "
                f"kcompact records --offset {finding.offsets[0]} DIR shows the first one.",
            )
    raise AssertionError(finding.kind)


def _on_keys(finding: Difference, words: _Words) -> Advice:
    """Return the advice on keys that one replica has otherwise than others."""
    here, right, keys = words.here, words.right, counted(finding.count, "key")
    match finding.kind:
        case DifferenceKind.LOST_KEY:
            return Advice(
                f"{here} lacks {keys} of {right}, and no tombstone explains that. When it leads, consumers do not get "
                f"this data",
                f"Do not let it lead. {words.refetch}",
            )
        case DifferenceKind.WILL_LOSE_KEY:
            return Advice(
                f"{here} has newer values of {keys} only above its fork, and has dropped the older ones. When it is "
                f"truncated to the fork, it has neither",
                f"Do not let it lead after that. {words.refetch}",
            )
        case DifferenceKind.STALE_VALUE:
            return Advice(
                f"{here} has an old value of {keys}: the newer records never reached it. When it leads, consumers get "
                f"the old data",
                f"Do not let it lead. {words.refetch}",
            )
        case DifferenceKind.RESURRECTED_KEY:
            return Advice(
                f"{here} still has {keys} whose tombstones never reached it: it was away until they had expired. When "
                f"it leads, consumers get the deleted data",
                f"Do not let it lead. {words.refetch}",
            )
        case DifferenceKind.PRESENT_IN_ONE:
            is_likely = finding.certainty is Certainty.LIKELY
            likely = ". A deletion is more likely, because most replicas lack them"
            return Advice(
                f"{here} {words.have} {keys} that other replicas lack. Either this data was deleted and the tombstones "
                f"are gone, or the others have lost it: the files do not say which{likely if is_likely else ''}",
                f"Look the keys up where they come from. kcompact records --offset {finding.offsets[0]} "
                f"{shell_word(words.directories[0])} shows the first value."
                f"{f' If they are deleted there (likely): {words.refetch}' if is_likely else ''}",
            )
        case DifferenceKind.BEHIND_WILL_RESURRECT:
            return Advice(
                f"{here} {words.is_or_are} behind and {words.have} {keys} that the others lack. If the tombstones have "
                f"come and gone, consumers get the deleted data when this replica leads",
                words.before_start,
            )
    raise AssertionError(finding.kind)


def _on_transactions(finding: Difference, words: _Words, partition: TopicPartition) -> Advice:
    """Return the advice on transactions that end otherwise in one replica than in others."""
    here, transactions = words.here, counted(finding.count, "transaction")
    match finding.kind:
        case DifferenceKind.ABORTED_SERVED:
            likely = "probably " if finding.certainty is Certainty.LIKELY else ""
            return Advice(
                f"{here} serves the records of {transactions} that {likely}ended with an ABORT: it missed the marker, "
                f"or its index of aborted transactions lacks the entry",
                f"Do not let it lead. {words.refetch}",
            )
        case DifferenceKind.HANGING_TRANSACTION:
            return Advice(
                f"{here} has {transactions} without an end: it missed the marker, and its cleaner stands still. When "
                f"it leads, a consumer of committed records gets no later record, and no error",
                f"If it leads already, begin with kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging "
                f"--topic {shell_word(partition.topic)} --partition {partition.partition}, then abort. {words.refetch}",
            )
        case DifferenceKind.MARKER_MISSED:
            return Advice(
                f"{here} lacks the marker of {transactions} whose data it has. The next marker of the same producer "
                f"ends these too: if that is an ABORT, consumers lose committed records",
                words.refetch,
            )
        case DifferenceKind.BEHIND_WILL_HANG:
            return Advice(
                f"{here} is behind and has {transactions} open whose marker it can no longer fetch. Nothing ends them "
                f"there, and consumers hang when it leads",
                words.before_start,
            )
    raise AssertionError(finding.kind)
