"""Batches that a cleaner has made of an older format: of the same one, each replica has others of its records."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.engine.in_process import InProcess
from kcompact.format.names import log_name
from kcompact.log import records
from kcompact.log.directory import read_log
from kcompact.log.files import LogFile
from kcompact.log.records import record_runs
from kcompact.questions.compare.comparison import compare_replicas
from kcompact.questions.compare.windows import windows_of
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


def test_what_was_compared_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if each run of one replica ends inside of a batch that another one has longer."""
    monkeypatch.setattr(records, "RUN_RECORDS", 4)
    shorter = " ".join(f"[a={number}@{2 * number}](leader=-1)" for number in range(200))
    longer = " ".join(f"[a={number}@{2 * number} b={number}](leader=-1)" for number in range(200))
    directories = written(tmp_path, f"0: {shorter}\n400: z=1", f"0: {longer}\n400: z=1")
    files = [LogFile.at(each / log_name(0)) for each in directories]
    size_bytes = max(each.identity().size_bytes for each in files)
    seen: list[list[tuple[int, bytes | None]]] = [[], []]
    for window in windows_of([record_runs(each) for each in files], range(400)):
        for replica, part in window.parts.items():
            assert len(part.run.data) <= 2 * size_bytes
            seen[replica] += [(int(part.run.offset[row]), part.run.value(row)) for row in part.rows]
    assert seen[0] == [(2 * number, b"%d" % number) for number in range(200)]
    assert seen[1] == [(2 * number + odd, b"%d" % number) for number in range(200) for odd in (0, 1)]
