"""Rounds of this process on the Spark that tests share."""

from __future__ import annotations

import pytest

from kcompact.cleaner.engines import Engine
from kcompact.engine.spark import OnSpark
from kcompact.plan.clean_plan import CleanPlan
from tests.support.spark_runs import Started, plan_of, write_log


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CleanPlan:
    return plan_of(write_log(tmp_path_factory.mktemp("log")))


@pytest.fixture
def started(on_spark: OnSpark, monkeypatch: pytest.MonkeyPatch) -> Started:
    """Let the rounds of this process run on the Spark of the tests."""
    started = Started(on_spark.sc)

    def begin(engine: Engine) -> None:
        if engine.choice.name == "spark":
            monkeypatch.setattr(engine, "_start", started)

    monkeypatch.setattr(Engine, "begin", begin)
    return started
