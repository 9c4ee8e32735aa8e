"""Random replicas against the truth of a log that nobody has cleaned."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.log.directory import PartitionLog, read_log
from kcompact.questions.compare.comparison import Comparison, compare_replicas
from kcompact.questions.compare.findings import Certainty, Difference, DifferenceKind, findings_of
from kcompact.questions.compare.transactions import Fault
from tests.support.parameters import one_in
from tests.support.simulated_replicas import SimulatedPartition, after_outages, random_partition

pytestmark = pytest.mark.long


def seeds(*telling: int) -> list[Any]:
    """Return seeds, slow but for those that tell most: two replicas and three, old formats, many kinds of findings."""
    return [pytest.param(seed, marks=() if seed in telling else pytest.mark.slow) for seed in range(60)]


ABOUT_KEYS = (DifferenceKind.RESURRECTED_KEY, DifferenceKind.STALE_VALUE, DifferenceKind.LOST_KEY)


def compared(
    logs: Sequence[PartitionLog], split_bytes: int | None = None, memory_bytes: int | None = None
) -> Comparison:
    return compare_replicas(logs, InProcess(parallelism=1), split_bytes=split_bytes, memory_bytes=memory_bytes)


def logs_of(partition: SimulatedPartition) -> list[PartitionLog]:
    return [read_log(directory) for directory in partition.directories()]


@pytest.mark.parametrize("seed", seeds(4))
def test_healthy_replicas_raise_no_alarm(seed: int, tmp_path: Path) -> None:
    partition = random_partition(tmp_path, seed, outages=False)
    assert findings_of(compared(logs_of(partition))) == []
    assert [partition.wrong_keys(number) for number in range(partition.count)] == [set()] * partition.count


@pytest.mark.parametrize("seed", seeds(16, 26))
def test_every_wrong_key_is_found_and_no_right_replica_accused(seed: int, tmp_path: Path) -> None:
    check_findings(random_partition(tmp_path, 100 + seed, outages=True))


@pytest.mark.parametrize("seed", seeds(5))
def test_every_wrong_key_is_found_after_long_outages(seed: int, tmp_path: Path) -> None:
    check_findings(after_outages(tmp_path, 100 + seed, holds_back=False))


def check_findings(partition: SimulatedPartition) -> None:
    """Require that all wrong keys are found, and that no replica with a right key is accused as proven.

    Of a transaction whose marker is in no replica it is not known what it did to its keys: it is a finding itself.
    """
    found = compared(logs_of(partition))
    keys = {line.offset: line.key for line in partition.truth}
    wrong = {number: partition.wrong_keys(number) for number in range(partition.count)}
    named = {keys[offset] for part in found.wrong.values() for offset in part.rows[:, 0].tolist()}
    producers = {each.producer_id for each in found.transactions if each.fault is Fault.TWO_EPOCHS}
    unknown = {line.key for line in partition.truth if line.producer in producers}
    assert set().union(*wrong.values()) <= named | unknown
    for finding in findings_of(found):
        if finding.kind in ABOUT_KEYS and finding.certainty is Certainty.PROVEN:
            for offset in finding.offsets:
                assert all(keys[offset] in wrong[number] for number in finding.replicas), finding
                assert not any(keys[offset] in wrong[number] for number in finding.right or ()), finding


@pytest.mark.parametrize("seed", one_in(8, [11, 0, 1, 2, 3, 9, 15, 26]))
def test_neither_order_nor_sizes_change_a_finding(
    seed: int, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = logs_of(random_partition(tmp_path, 200 + seed, outages=True, forks=True))
    expected = normalized(findings_of(compared(logs)), range(len(logs)))
    assert expected or seed < 9
    monkeypatch.setattr("kcompact.stages.sizing.LEAST_TABLES_BYTES", 600)
    for split_bytes, memory_bytes in ((200, None), (1000, 1)):
        order = random.Random(seed).sample(range(len(logs)), len(logs))
        found = findings_of(compared([logs[number] for number in order], split_bytes, memory_bytes))
        assert normalized(found, order) == expected


def normalized(found: Iterable[Difference], order: Sequence[int]) -> list[tuple[object, ...]]:
    """Return findings with the numbers of the replicas before they were put into an order."""

    def known(replicas: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if replicas is None else tuple(sorted(order[number] for number in replicas))

    rows = [
        (each.kind, known(each.replicas), each.certainty, known(each.right), each.count, each.offsets) for each in found
    ]
    return sorted(rows, key=repr)
