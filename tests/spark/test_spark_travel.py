"""What travels between Spark's processes: an altered byte, a lost or a doubled result ends the run, untouched."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD

from kcompact.clean.prepare import Tuning, prepare_clean
from kcompact.cleaner.partition import clean_partition
from kcompact.engine.seals import sealed
from kcompact.engine.spark import OnSpark
from kcompact.engine.spark.tasks import BlockFile, Report
from kcompact.errors import AccountingError, KcompactError, ScratchDamagedError, ScratchSpaceError
from kcompact.format.block import HEADER
from kcompact.log.lock import log_dir_lock
from kcompact.plan.clean_plan import CleanPlan
from tests.support.command_line import digest
from tests.support.disk_in_memory import disk_in_memory
from tests.support.jobs import limit_keys
from tests.support.spark_runs import SPARK

pytestmark = SPARK


@dataclass(frozen=True, kw_only=True)
class Sabotaged(OnSpark):
    """Alters the results of a stage when they have arrived at the driver."""

    stage: str
    alter: Callable[[list[Any]], list[Any]]

    def _collect(self, rdd: Any, report: Report, stage: str, total_bytes: int) -> list[Any]:
        results = super()._collect(rdd, report, stage, total_bytes)
        return self.alter(results) if stage == self.stage else results


def is_refused(plan: CleanPlan, on_spark: OnSpark, error: type[KcompactError], log_dir: Path) -> str:
    before = digest(log_dir)
    with log_dir_lock(log_dir) as lock, pytest.raises(error) as raised:
        clean_partition(plan, on_spark, lock=lock)
    assert digest(log_dir) == before
    return str(raised.value)


@pytest.mark.parametrize("stage", ["scan", "write"])
@pytest.mark.parametrize("alter", [lambda results: results[:-1], lambda results: [*results, results[-1]]])
def test_a_result_that_is_lost_or_comes_twice(
    on_spark: OnSpark, plan: CleanPlan, stage: str, alter: Callable[[list[Any]], list[Any]]
) -> None:
    is_refused(plan, Sabotaged(sc=on_spark.sc, stage=stage, alter=alter), AccountingError, plan.log.directory.parent)


@pytest.mark.parametrize("position", [0, 4, 8, 16, HEADER.size, HEADER.size + 1000, -1])
def test_a_file_of_keys_that_was_altered(on_spark: OnSpark, plan: CleanPlan, position: int) -> None:
    def flip(results: list[Any]) -> list[Any]:
        path = next(Path(value.path) for _, value in results if isinstance(value, BlockFile))
        data = bytearray(path.read_bytes())
        data[position] ^= 1
        path.write_bytes(data)
        return results

    sabotaged = Sabotaged(sc=on_spark.sc, stage="scan", alter=flip)
    assert "temporary data" in is_refused(plan, sabotaged, ScratchDamagedError, plan.log.directory.parent)


@pytest.mark.parametrize("way", ["to the driver", "to a task"])
def test_a_value_that_was_altered_on_its_way(
    on_spark: OnSpark, plan: CleanPlan, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flipped(data: bytes) -> bytes:
        return data[:-3] + bytes([data[-3] ^ 1]) + data[-2:]

    if way == "to a task":
        for module in ("executor", "tasks"):
            monkeypatch.setattr(f"kcompact.engine.spark.{module}.sealed", lambda value: flipped(sealed(value)))
    else:
        collect = RDD.collect
        monkeypatch.setattr(RDD, "collect", lambda rdd: [flipped(element) for element in collect(rdd)])
    is_refused(plan, on_spark, ScratchDamagedError, plan.log.directory.parent)


def test_a_reducing_task_finds_an_altered_file(
    on_spark: OnSpark, plan: CleanPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With little memory a second job reduces the blocks, in workers."""

    def flip(results: list[Any]) -> list[Any]:
        path = next(Path(value.path) for _, value in results if isinstance(value, BlockFile))
        path.write_bytes(path.read_bytes()[:-1] + b"\x55")
        return results

    limit_keys(monkeypatch, keys_bytes=1_000, buckets=3)
    with pytest.raises(ScratchDamagedError):
        prepare_clean(plan, Sabotaged(sc=on_spark.sc, stage="scan", alter=flip), tuning=Tuning(split_bytes=10_000))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_directory_of_spark_is_not_enough_space(
    on_spark: OnSpark, plan: CleanPlan, small_tmpfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = type("Conf", (), {"get": lambda self, name: str(small_tmpfs)})()
    monkeypatch.setattr(type(on_spark.sc), "getConf", lambda sc: conf)
    message = is_refused(plan, on_spark, ScratchSpaceError, plan.log.directory.parent)
    assert "spark.local.dir" in message


@pytest.fixture
def small_tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A file system of two pages."""
    with disk_in_memory(tmp_path / "small", "8k") as disk:
        yield disk
