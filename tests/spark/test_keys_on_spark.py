"""The count of keys on Spark: the same as in one process, by files, by the shuffle and in a shared job."""

from __future__ import annotations

import dataclasses

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.engine.spark import OnSpark, executor, queue_of
from kcompact.plan.clean_plan import CleanPlan
from kcompact.questions.keys.count import count_keys
from kcompact.questions.keys.counts import CountOptions
from tests.support.key_logs import random_log
from tests.support.spark_runs import SPARK, plan_of, write_log
from tests.support.stages import plan_of as plan_of_spec

pytestmark = SPARK

OPTIONS = CountOptions(top=5, separator=b"-", older_than_ms=1)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[CleanPlan]:
    log_dir = tmp_path_factory.mktemp("logs")
    odd = [plan_of_spec(random_log(seed, name=f"odd-{seed}").spec, log_dir) for seed in range(3, 8)]
    return [plan_of(write_log(tmp_path_factory.mktemp("orders"))), *odd]


def test_a_count_is_that_of_one_process(on_spark: OnSpark, plans: list[CleanPlan]) -> None:
    expected = count_keys(plans, InProcess(), OPTIONS)
    assert expected.shared_keys
    assert count_keys(plans, on_spark, OPTIONS, split_bytes=5_000) == expected
    with queue_of(on_spark.sc) as jobs:
        sharing = dataclasses.replace(on_spark, tasks=jobs)
        assert count_keys(plans, sharing, OPTIONS) == expected


def test_a_count_by_the_shuffle_is_that_of_one_process(
    on_spark: OnSpark, plans: list[CleanPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "is_local", lambda master: False)
    expected = count_keys(plans, InProcess(), OPTIONS)
    assert count_keys(plans, on_spark, OPTIONS, split_bytes=5_000) == expected
