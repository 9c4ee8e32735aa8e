"""Sets of replicas of which it is known which one is wrong, against what a comparison says of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from kcompact.compare.answer import ComparedPartition, compare_partition
from kcompact.compare.before_start import Action, actions_before_start
from kcompact.compare.findings import Certainty, Kind
from kcompact.compare.pairs import PairedPartition, Side
from kcompact.engine.in_process import InProcess
from kcompact.format.names import TopicPartition
from kcompact.log.directory import read_log_dir
from tests.support.afflicted_replicas import AFFLICTIONS, LAWFUL, Afflicted, afflict
from tests.support.parameters import one_in
from tests.support.simulated_replicas import random_partition

pytestmark = pytest.mark.long


PARTITION = TopicPartition("orders", 0)


def answer(directories: Sequence[Path]) -> ComparedPartition:
    sides = [
        Side(path=each.parent, partitions={PARTITION: each}, node_id=number)
        for number, each in enumerate(directories, start=1)
    ]
    paired = PairedPartition(topic_partition=PARTITION, replicas=tuple(enumerate(directories)))
    log_dirs = [read_log_dir(each.parent) for each in directories]
    return compare_partition(paired, sides, log_dirs, InProcess(parallelism=1), problems=[None] * len(directories))


@pytest.mark.parametrize("seed", one_in(10, range(60)))
@pytest.mark.parametrize("kind", AFFLICTIONS)
def test_the_wrong_replica_is_found_and_no_right_one_accused(kind: str, seed: int, tmp_path: Path) -> None:
    afflicted = afflicted_set(tmp_path, kind, seed)
    if afflicted is not None:
        assert_said(afflicted, answer(afflicted.directories))


def afflicted_set(path: Path, kind: str, seed: int) -> Afflicted | None:
    chance = random.Random(f"{kind} {seed}")
    partition = random_partition(path, seed, outages=False, count=chance.choice([2, 3, 4, 5]), steps=60)
    return afflict(partition, kind, chance)


def assert_said(afflicted: Afflicted, found: ComparedPartition) -> None:
    where = f"{afflicted.kind}: {afflicted.done}, replica {afflicted.victim}"
    findings = [each for each in found.findings if each.finding.kind is not Kind.UNREPLICATED_TAIL]
    if afflicted.kind in LAWFUL:
        assert not findings, (where, [each.finding for each in findings])
        return
    victim = afflicted.victim
    assert victim is not None
    for each in findings:
        if each.finding.certainty is not Certainty.UNDECIDED:
            assert set(each.finding.replicas) == {victim}, (where, each.finding)
        assert victim not in (each.finding.right or ()), (where, each.finding)
    assert findings, where
    for number, directory in enumerate(afflicted.directories):
        (action,) = actions_before_start([found], directory.parent)
        if number == victim:
            assert action.action is not Action.KEEP, (where, [each.finding for each in findings])
        else:
            assert action.action is not Action.MOVE_AWAY, (where, [each.finding for each in findings])
