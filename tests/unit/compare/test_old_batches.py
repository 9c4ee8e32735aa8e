"""Batches that a cleaner has made of an older format: of the same one, each replica has others of its records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.compare.comparison import compare_replicas
from kcompact.engine.in_process import InProcess
from kcompact.log.directory import read_log
from tests.support.replica_logs import written

FIRST, END = "0: [p=1](leader=-1)", "[f=1@6](leader=3) [g=1](leader=3)\n8: z=1"
SETS = {
    "one ends where another begins": (
        f"{FIRST} [a=1 b=2 c=3 d=4 e=5](leader=-1) {END}",
        f"{FIRST} [a=1 b=other c=3](leader=-1) {END}",
        f"{FIRST} [d=4@4 e=5](leader=-1) {END}",
    ),
    "each ends elsewhere": (
        f"{FIRST} [a=1 b=2 c=3 d=4 e=5](leader=-1) {END}",
        f"{FIRST} [a=1 b=2 c=3 d=4](leader=-1) {END}",
        f"{FIRST} [b=other@2 c=3](leader=-1) {END}",
    ),
}


@pytest.mark.parametrize("split_bytes", [None, 1, 90])
@pytest.mark.parametrize("logs", SETS.values(), ids=SETS)
def test_their_records_are_compared_wherever_the_logs_are_cut(
    logs: tuple[str, ...], split_bytes: int | None, tmp_path: Path
) -> None:
    directories = written(tmp_path, *logs)
    found = compare_replicas(
        [read_log(each) for each in directories], InProcess(parallelism=1), split_bytes=split_bytes
    )
    assert found.contents.first + found.divided.first == [2]
