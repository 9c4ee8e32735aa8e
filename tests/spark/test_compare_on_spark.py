"""A comparison on Spark: the same as in one process, by files and by the shuffle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, executor
from kcompact.log.directory import PartitionLog, read_log
from kcompact.questions.compare.comparison import compare_replicas
from kcompact.questions.compare.findings import Difference, findings_of
from tests.support.simulated_replicas import random_partition
from tests.support.spark_runs import SPARK

pytestmark = SPARK


@pytest.fixture(scope="module", params=[(3, 5), pytest.param((3, 4, 5), marks=pytest.mark.slow)], ids=str)
def partitions(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[list[PartitionLog]]:
    some = [
        random_partition(tmp_path_factory.mktemp("replicas"), seed, outages=True, forks=True) for seed in request.param
    ]
    return [[read_log(directory) for directory in each.directories()] for each in some]


@pytest.fixture(params=["files", "shuffle"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "shuffle":
        monkeypatch.setattr(executor, "is_local", lambda master: False)


@pytest.mark.usefixtures("by")
def test_a_comparison_is_that_of_one_process(on_spark: OnSpark, partitions: list[list[PartitionLog]]) -> None:
    expected = [in_process(logs) for logs in partitions]
    assert any(expected)
    found = [findings_of(compare_replicas(logs, on_spark, split_bytes=2_000)) for logs in partitions]
    assert found == expected


def in_process(logs: Sequence[PartitionLog]) -> list[Difference]:
    return findings_of(compare_replicas(logs, InProcess(parallelism=1)))
