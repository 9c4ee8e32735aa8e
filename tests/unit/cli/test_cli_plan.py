"""`plan`: what no case file of `tests/cases/commands` can say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.cleaner.outcome import CleanResult, PartitionOutcome, Status
from kcompact.cli.json.clean import CLEANED
from kcompact.plan.partition import plan_partition
from tests.support import log_dsl
from tests.support.command_line import (
    COMPACT,
    kcompact,
    partition,
)


def test_of_many_segments_in_a_group_the_middle_ones_are_counted(tmp_path: Path) -> None:
    segments = "".join(f"\n{offset}: a={offset}" for offset in range(31))
    out = kcompact("plan", *COMPACT, partition(tmp_path, f"log now=10:00 hw=31{segments}")).out
    assert "    0 + 1 + 2 + … 26 more … + 29 -> 0, from" in out


FAR_APART = "log now=10:00\n0: a=1 b=2@82497\n82498: c=3"


@pytest.mark.parametrize(
    ("end_offset", "map_keys", "at_least", "at_most"),
    [(82_498, 41_248, 1, 1), (82_498, 41_249, 1, 2), (82_498, 41_250, 2, 2), (None, 0, None, 2)],
)
def test_a_clean_knows_the_keys(
    end_offset: int | None, map_keys: int, at_least: int | None, at_most: int, tmp_path: Path
) -> None:
    directory = partition(tmp_path, FAR_APART)
    config = replace(log_dsl.parse(FAR_APART).config, log_cleaner_dedupe_buffer_size=1_100_000)
    plan = plan_partition(directory, config, now_ms=log_dsl.parse(FAR_APART).now_ms)
    status = Status.SKIPPED if end_offset is None else Status.CLEANED
    result = CleanResult(status=status, plan=plan, end_offset=end_offset)
    result = replace(result, stats=replace(result.stats, map_keys=map_keys))
    fields = CLEANED.of(PartitionOutcome(directory=directory, plan=plan, result=result))
    assert (fields["kafka_passes_at_least"], fields["kafka_passes_at_most"]) == (at_least, at_most)


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--now", "9" * 5000, "after the year 9999"),
        ("--high-watermark", "9" * 5000, "neither an offset nor leo"),
    ],
)
def test_numbers_of_thousands_of_digits(option: str, value: str, problem: str, tmp_path: Path) -> None:
    ran = kcompact("plan", option, value, partition(tmp_path))
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err
    assert "literal" not in ran.err


def test_what_may_not_be_read_may_be_a_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = partition(tmp_path)
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))  # What it does with a directory that may not be read.

    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(directory))

    monkeypatch.setattr("kcompact.plan.partition.read_log", fail)
    entry = kcompact("plan", "--json", *COMPACT, tmp_path).partition
    assert (entry["error"].splitlines()[0], entry["reason"]) == (f"{directory}: Permission denied", None)
