"""`clean --output` with partitions side by side on Spark."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import COMPACT, partition, process, settings, values
from tests.support.spark_runs import SPARK

pytestmark = SPARK


def test_partitions_side_by_side_are_copied_to_one_output(tmp_path: Path) -> None:
    directories = [partition(tmp_path / "logs", settings(f"name=orders-{number}")) for number in range(12)]
    output = tmp_path / "out"
    ran = process("clean", "--json", "--master", "local[2]", *COMPACT, "--output", output, tmp_path / "logs")
    assert ran.returncode == 0, ran.stderr
    assert {entry["status"] for entry in json.loads(ran.stdout)["partitions"]} == {"cleaned"}
    for directory in directories:
        assert values(output / directory.name) == values(output / "orders-0") != values(directory)
    assert (output / "meta.properties").exists()
    entries = (output / "cleaner-offset-checkpoint").read_text().splitlines()
    assert sorted(entries[2:]) == sorted(f"orders {number} 6" for number in range(12))
