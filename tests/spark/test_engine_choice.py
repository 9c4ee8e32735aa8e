"""Without a name for the engine, Spark takes large work where it is installed: `clean` and `keys`."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.cleaner import engines
from kcompact.cleaner.round import clean_log_dir
from kcompact.plan.options import PlanOptions
from tests.support.command_line import COMPACT, COMPACTED, kcompact, partition, values
from tests.support.spark_runs import SPARK

pytestmark = [*SPARK, pytest.mark.usefixtures("started")]


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make all work large."""
    monkeypatch.setattr(engines, "SPARK_BYTES", 1)


def test_large_work_runs_on_spark(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    counted = kcompact("keys", *COMPACT, directory)
    assert (counted.code, "engine: spark (489 B to read; Spark from 1 B)\n" in counted.err) == (0, True)
    ran = kcompact("clean", "--json", *COMPACT, directory)
    assert (ran.code, ran.partition["engine"]) == (0, "spark")
    assert "engine: spark (419 B to read; Spark from 1 B)\n" in ran.err
    assert values(directory) == COMPACTED


def test_a_master_chooses_spark(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    ran = kcompact("clean", "--json", "--master", "local[1]", *COMPACT, directory)
    assert ran.code == 0, ran.err
    assert "engine: spark (--master is given)\n" in ran.err
    assert ran.partition["engine"] == "spark"
    assert values(directory) == COMPACTED


def test_the_functions_follow_the_same_rule(tmp_path: Path) -> None:
    partition(tmp_path)
    options = PlanOptions(now_ms=1_704_103_200_000)
    result = clean_log_dir(tmp_path, {"cleanup.policy": "compact"}, plan_options=options)
    result.raise_failure()
    assert [each.result.engine for each in result.partitions if each.result] == ["spark"]
