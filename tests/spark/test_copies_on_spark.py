"""`clean --output` with partitions side by side on Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import COMPACT, kcompact, partition, settings, values
from tests.support.spark_runs import SPARK

pytestmark = [*SPARK, pytest.mark.usefixtures("started")]


def test_partitions_side_by_side_are_copied_to_one_output(tmp_path: Path) -> None:
    directories = [partition(tmp_path / "logs", settings(f"name=orders-{number}")) for number in range(12)]
    output = tmp_path / "out"
    ran = kcompact("clean", "--json", "--engine", "spark", *COMPACT, "--output", output, tmp_path / "logs")
    assert ran.code == 0, ran.err
    assert {(entry["status"], entry["engine"]) for entry in ran.json["partitions"]} == {("cleaned", "spark")}
    for directory in directories:
        assert values(output / directory.name) == values(output / "orders-0") != values(directory)
    assert (output / "meta.properties").exists()
    entries = (output / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(entries[2:]) == sorted(f"orders {number} 6" for number in range(12))
