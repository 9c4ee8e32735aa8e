"""Sets of replicas of which it is known which one is wrong, against what a comparison says of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kcompact.engine.in_process import InProcess
from kcompact.log.directory import read_log
from kcompact.questions.compare.answer import ComparedPartition
from kcompact.questions.compare.before_start import Action, actions_before_start
from kcompact.questions.compare.comparison import compare_replicas
from kcompact.questions.compare.findings import Certainty, DifferenceKind
from tests.support.afflicted_replicas import AFFLICTIONS, Afflicted, afflict
from tests.support.files_in_memory import directory_in_memory
from tests.support.parameters import few_examples
from tests.support.replica_logs import answer
from tests.support.simulated_replicas import random_partition

pytestmark = pytest.mark.long


TWO = "two"
ONE_ONLY = ("lost-tail", "emptied-log", "lost-key", "stale-value", "other-content", "damage")
"""Kinds that change one replica, and leave the others alone."""


@pytest.mark.parametrize("kind", [*AFFLICTIONS, TWO])
@few_examples()
@example(seed=4461)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_wrong_replicas_are_found_and_no_right_one_accused(kind: str, seed: int) -> None:
    with directory_in_memory() as path:
        afflicted = afflicted_set(path, kind, seed)
        if afflicted is not None:
            assert_said(afflicted, answer(afflicted.directories))


@few_examples()
@example(seed=187)
@given(seed=st.integers(0, 2**32 - 1))
def test_other_content_is_found_wherever_the_logs_are_cut(seed: int) -> None:
    """Also in batches that cleaners have made of an older format, which end elsewhere on each replica."""
    with directory_in_memory() as path:
        afflicted = afflicted_set(path, "other-content", seed)
        if afflicted is None:
            return
        logs = [read_log(directory) for directory in afflicted.directories]
        found = [compare_replicas(logs, InProcess(parallelism=1), split_bytes=size) for size in (None, 1, 150)]
        contents = [(each.contents, each.divided) for each in found]
        assert found[0].contents.count + found[0].divided.count or not afflicted.shown, afflicted.wrong
        assert contents == contents[:1] * 3, afflicted.wrong


def afflicted_set(path: Path, kind: str, seed: int) -> Afflicted | None:
    """Return a set of two to six replicas with one that is wrong by this kind, or with two that are, by two kinds."""
    chance = random.Random(f"{kind} {seed}")
    kinds = [kind]
    if kind == TWO:
        second = chance.choice(ONE_ONLY)
        kinds = [chance.choice([each for each in AFFLICTIONS if each not in (second, "damage")]), second]
    count = chance.choice([2, 3, 4, 5, 6][len(kinds) - 1 :])
    return afflict(random_partition(path, seed, outages=False, count=count, steps=60), kinds, chance)


def assert_said(afflicted: Afflicted, found: ComparedPartition) -> None:
    findings = [each for each in found.findings if each.finding.kind is not DifferenceKind.UNREPLICATED_TAIL]
    where = (afflicted.wrong, [each.finding for each in findings])
    assert afflicted.wrong or not findings, where
    assert findings or not afflicted.shown, where
    for each in findings:
        if each.finding.certainty is not Certainty.UNDECIDED:
            assert afflicted.wrong.keys() >= set(each.finding.replicas), where
        # Of two wrong ones, one can prove what the other lacks.
        assert len(afflicted.wrong) > 1 or not afflicted.wrong.keys() & set(each.finding.right or ()), where
    for number, directory in enumerate(afflicted.directories):
        (action,) = actions_before_start([found], directory.parent, {found.topic_partition: directory})
        if number not in afflicted.wrong:
            assert action.action is not Action.MOVE_AWAY, (number, where)
        elif number in afflicted.shown:
            assert action.action is not Action.KEEP, (number, where)
