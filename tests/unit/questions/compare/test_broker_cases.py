"""Replicas that real brokers left, and what is right and wrong in them: `fixtures/replicas.json` has the truth.

Each case is compared in every order of its three replicas, and in pairs: no order changes an answer, and no pair
accuses a replica that is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any

import pytest

from fixtures.replica_cases import MANIFEST, complaints, name_of, read_manifest, unpack
from kcompact.cli.json.compare import COMPARE
from kcompact.config.metadata_log import read_cluster_metadata
from kcompact.engine.in_process import InProcess
from kcompact.plan.walk import LogDirs
from kcompact.questions.compare.answer import compare_partition
from kcompact.questions.compare.pairs import pair
from tests.support.parameters import one_in

CASES: dict[str, Any] = read_manifest()["cases"]
REPLICAS = ("broker-1", "broker-2", "broker-3")


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The log directories of all cases. The metadata log of each is read once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kcompact.questions.compare.pairs.read_cluster_metadata", cache(read_cluster_metadata))
        yield unpack(tmp_path_factory.mktemp("replicas") / "cases")


def answer_about(paths: Sequence[Path]) -> dict[str, Any]:
    """Return what `compare --json` says of some replicas."""
    found, log_dirs = pair(paths), LogDirs()
    partitions = []
    for paired in found.paired:
        around = [log_dirs.despite_damage(directory)[0] for _, directory in paired.replicas]
        partitions.append(compare_partition(paired, found.sides, around, InProcess(parallelism=1)))
    answer: dict[str, Any] = json.loads(COMPARE.text(partitions=partitions, alone=[], before_start=None))
    return answer


ORDERS = [
    pytest.param(order, marks=() if order == REPLICAS else pytest.mark.slow, id="-".join(order))
    for order in permutations(REPLICAS)
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("case", CASES)
def test_the_answer_is_the_truth(unpacked: Path, case: str, order: tuple[str, ...]) -> None:
    answer = answer_about([unpacked / case / replica for replica in order])
    assert complaints(CASES[case]["partitions"], answer) == []


@pytest.mark.parametrize(
    ("case", "replicas"),
    one_in(2, product(CASES, combinations(REPLICAS, 2))),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_pair_accuses_no_replica_that_is_right(unpacked: Path, case: str, replicas: tuple[str, ...]) -> None:
    answer = answer_about([unpacked / case / replica for replica in replicas])
    for partition in answer["partitions"]:
        concerned = {
            replica
            for finding in CASES[case]["partitions"][name_of(partition)]["findings"]
            for replica in finding["replicas"]
        }
        for finding in partition["findings"]:
            if finding["certainty"] == "proven":
                assert {Path(path).name for path in finding["replicas"]} <= concerned, finding
            assert concerned.isdisjoint(Path(path).name for path in finding["right"] or ()), finding
        if not concerned:
            assert partition["findings"] == []


def test_the_manifest_names_the_kafka_and_a_story_for_each_case() -> None:
    assert MANIFEST.with_name(read_manifest()["archive"]["name"]).stat().st_size < 1_500_000
    assert all(each["story"] for each in CASES.values())
