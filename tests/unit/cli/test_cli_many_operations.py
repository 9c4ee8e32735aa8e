"""What a partition costs does not grow with their number: the calls that look at files, and the lines of code.

They are counted, not timed.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from kcompact.format.checkpoint import CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT
from kcompact.format.properties import PARTITION_METADATA, encode_uuid
from kcompact.host import disk
from tests.support import metadata_log
from tests.support.command_line import COMPACT, kcompact, partition, settings
from tests.support.counted_calls import Calls, counted_calls
from tests.support.parameters import one_in

COMMANDS = ("plan", "inspect", "doctor")
NUMBERS = (4, 10, 16)
NUMBERS_FOR_LINES = (40, 100, 160)
OPENS_AND_STATS = {"plan": (8, 20), "inspect": (11, 23), "doctor": (15, 31)}
"""Of each further partition of three segments."""
CHECKPOINT_READS = {"plan": 1, "inspect": 1, "doctor": 2}
"""How often each checkpoint of the log directory is read. `doctor` also checks the form of the files."""


def write(log_dir: Path, number: int) -> Path:
    """Write so many topics of one partition, all alike, and the metadata log that has their settings."""
    records = []
    for each in range(2, number + 2):  # 0 and 1 are reserved ids of topics.
        name, topic_id = f"topic-{each:03}", each.to_bytes(16, "big")
        directory = partition(log_dir, settings(f"hw=7 checkpoint=0 name={name}-0"))
        text = f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n"
        (directory / PARTITION_METADATA).write_text(text, encoding="utf-8")
        records += metadata_log.topic(name, topic_id, cleanup_policy="compact")
    return metadata_log.write(log_dir, {metadata_log.log(): metadata_log.batches(records)})


@pytest.fixture(scope="module")
def log_dirs(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Log directories with so many partitions."""
    numbers = sorted({1, *NUMBERS, *NUMBERS_FOR_LINES})
    return {number: write(tmp_path_factory.mktemp("logs") / str(number), number) for number in numbers}


@pytest.fixture(autouse=True)
def the_same_mounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read no mount again while calls and lines are counted: another test may mount something meanwhile."""
    mounts = disk._MOUNT_TABLE.mounts()
    monkeypatch.setattr(disk._MountTable, "mounts", lambda _: mounts)


def calls_of(command: str, log_dir: Path) -> Calls:
    with counted_calls() as calls:
        ran = kcompact(command, *COMPACT, log_dir)
    assert ran.code == 0
    return calls


@pytest.mark.parametrize("command", COMMANDS)
def test_files_are_looked_at_as_often_for_each_further_partition(command: str, log_dirs: dict[int, Path]) -> None:
    calls_of(command, log_dirs[1])  # Imports and caches.
    few, more, most = (calls_of(command, log_dirs[number]) for number in NUMBERS)
    grown = most.by_function - more.by_function
    assert grown == more.by_function - few.by_function
    further = NUMBERS[2] - NUMBERS[1]
    stats = sum(grown[each] for each in ("stat", "lstat", "fstat", "access"))
    assert (grown["open"] / further, stats / further) == OPENS_AND_STATS[command]
    for checkpoint in (CLEANER_OFFSET_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
        assert [calls.opens[checkpoint] for calls in (few, more, most)] == [CHECKPOINT_READS[command]] * 3


def executed_lines(command: str, log_dir: Path) -> int:
    """Return how many lines of Python this thread executes, each turn of a loop on one line too."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        ran = kcompact(command, *COMPACT, log_dir)
    finally:
        sys.settrace(before)
    assert ran.code == 0
    return count


@pytest.mark.long
@pytest.mark.parametrize("command", one_in(3, ["plan", "doctor", "inspect"]))
def test_no_line_is_executed_for_each_pair_of_partitions(
    command: str, log_dirs: dict[int, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # This thread then does all the work. How many lines a thread executes while it waits for another is chance.
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    executed_lines(command, log_dirs[1])
    few, more, most = (executed_lines(command, log_dirs[number]) for number in NUMBERS_FOR_LINES)
    pairs = [math.comb(number, 2) for number in NUMBERS_FOR_LINES]
    assert (most - more) - (more - few) < ((pairs[2] - pairs[1]) - (pairs[1] - pairs[0])) / 2
