"""`keys`: what no case file of `tests/cases/commands` can say."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kcompact.cli.json.keys import COUNTS
from kcompact.log import unchanged_reading
from kcompact.questions.keys import count
from kcompact.questions.keys.count import count_keys
from tests.support.command_line import (
    COMPACT,
    DIRTY,
    LOG0,
    kcompact,
    on_terminal,
    partition,
    running_broker,
)

KEYS = ("keys", *COMPACT)
SHOWN = {each: hashlib.sha256(each.encode()).hexdigest()[:16] for each in "abcd"}


def counts_in(fields: dict[str, Any]) -> dict[str, int]:
    """Return the counts that are not zero, without bytes."""
    return {name: fields[name] for name in COUNTS.names if fields[name] and not name.endswith("_bytes")}


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged_reading, "_PAUSES_S", (0, 0, 0))


@pytest.mark.usefixtures("no_pauses")
def test_a_segment_that_a_running_broker_replaces_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = partition(tmp_path, DIRTY.replace("log ", "log unclean hw=7 "))
    counted: list[int] = []

    def replacing(*arguments: Any, **options: Any) -> Any:
        if not counted:
            content = (directory / LOG0).read_bytes()
            (directory / LOG0).unlink()
            (directory / LOG0).write_bytes(content)
        counted.append(1)
        return real(*arguments, **options)

    real = count_keys
    monkeypatch.setattr(count, "count_keys", replacing)
    with running_broker(tmp_path):
        ran = kcompact(*KEYS, "--json", directory)
    assert (ran.code, len(counted), counts_in(ran.partition["keys"])["records"]) == (0, 2, 7)


def test_a_small_log_loads_no_compiler_and_no_spark(tmp_path: Path) -> None:
    partition(tmp_path)
    program = (
        "import sys; from kcompact.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'pyspark', 'py4j', 'numba', 'llvmlite', 'rich'} & sys.modules.keys()), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *KEYS, "--json", str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stderr.strip().endswith("[]")
    assert json.loads(ran.stdout)["partitions"][0]["keys"]["live_keys"] == 3


def test_on_a_narrow_terminal(tmp_path: Path) -> None:
    partition(tmp_path)
    shown = on_terminal([40, 80], *KEYS, "--older-than", "1m", "--prefix", ":", tmp_path)
    for width, lines in shown.items():
        assert any("7 records, 4 keys (3 live)" in line for line in lines)
        assert sum(SHOWN["a"] in line and len(line) <= width for line in lines) == 3
