"""The advice on findings: each kind has one, and its commands can be run as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kcompact.format.names import TopicPartition
from kcompact.questions.compare.advice import Advice, advice_on
from kcompact.questions.compare.findings import Certainty, Difference, DifferenceKind

NAMES = ("broker 1 (one)", "broker 2 (two)", "broker 3 (three)")
DIRECTORIES = (Path("/one/a b-0"), Path("/two/a b-0"), Path("/three/a b-0"))
QUOTED = tuple(f"'{each}'" for each in DIRECTORIES)


def _advice(kind: DifferenceKind, *replicas: int, certainty: Certainty = Certainty.PROVEN) -> Advice:
    finding = Difference(
        kind=kind, replicas=replicas, certainty=certainty, right=None, count=2, offsets=(7, 9), problem="file, offset 7"
    )
    return advice_on(finding, TopicPartition("a b", 0), NAMES, DIRECTORIES)


@pytest.mark.parametrize("kind", DifferenceKind)
@pytest.mark.parametrize("replicas", [(2,), (0, 2)])
def test_each_directory_gets_a_backup_of_its_own(kind: DifferenceKind, replicas: tuple[int, ...]) -> None:
    do = _advice(kind, *replicas).do
    moved = re.findall(r"(?:mv|cp -a) (.+?) (BACKUP\S*/)", do)
    assert [directory for directory, _ in moved] in ([], [QUOTED[each] for each in replicas])
    assert len({backup for _, backup in moved}) == len(moved)


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        (
            DifferenceKind.CORRUPT_COPY,
            f"kcompact verify {QUOTED[1]} lists the damage of the log, kcompact doctor /two that",
        ),
        (DifferenceKind.DIVERGED_EPOCH, f"cp -a {QUOTED[1]} BACKUP/"),
        (DifferenceKind.CONTENT_DIFFERS, "kcompact records --offset 7 DIR shows"),
        (DifferenceKind.PRESENT_IN_ONE, f"kcompact records --offset 7 {QUOTED[1]} shows"),
        (DifferenceKind.HANGING_TRANSACTION, "find-hanging --topic 'a b' --partition 0, then abort. Stop its broker"),
        (DifferenceKind.LOST_KEY, f"mv {QUOTED[1]} BACKUP/"),
        (DifferenceKind.BEHIND_WILL_HANG, f"mv {QUOTED[1]} BACKUP/"),
    ],
)
def test_commands(kind: DifferenceKind, command: str) -> None:
    assert command in _advice(kind, 1).do


@pytest.mark.parametrize(
    ("kind", "certainty", "words"),
    [
        (DifferenceKind.PRESENT_IN_ONE, Certainty.UNDECIDED, "the files do not say which"),
        (DifferenceKind.PRESENT_IN_ONE, Certainty.LIKELY, "A deletion is more likely, because most replicas lack them"),
        (DifferenceKind.ABORTED_SERVED, Certainty.PROVEN, "2 transactions that ended with an ABORT"),
        (DifferenceKind.ABORTED_SERVED, Certainty.LIKELY, "2 transactions that probably ended with an ABORT"),
        (DifferenceKind.MARKER_MISSED, Certainty.PROVEN, "if that is an ABORT, consumers lose committed records"),
    ],
)
def test_what_is_likely_is_not_said_as_proven(kind: DifferenceKind, certainty: Certainty, words: str) -> None:
    why = _advice(kind, 1, certainty=certainty).why
    assert words in why
    assert not why.endswith(".")


@pytest.mark.parametrize(
    ("replicas", "words"),
    [((0,), "broker 1 (one) has 2 keys"), ((0, 2), "broker 1 (one) and broker 3 (three) have 2 keys")],
)
def test_the_verb_follows_the_number_of_replicas(replicas: tuple[int, ...], words: str) -> None:
    assert _advice(DifferenceKind.PRESENT_IN_ONE, *replicas).why.startswith(words)
