"""`plan --explain` of many partitions: what no case file of `tests/cases/commands` can say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kcompact.plan.explanation import explain
from kcompact.plan.partition import plan_partition
from kcompact.views.explanations import rows_to_show
from tests.support import examples, log_dsl, log_writer
from tests.support.command_line import (
    COMPACT,
    after_notes,
    kcompact,
    on_terminal,
)
from tests.support.log_values import log_of, planned, segment
from tests.support.many_partitions import write_many


def test_many_partitions_have_a_row_each(tmp_path: Path) -> None:
    logs = examples.build("why-not", tmp_path / "logs")
    ran = kcompact("plan", "--explain", *COMPACT, logs)
    rows = [line.split() for line in ran.out.split("\n\n")[1].splitlines()[1:]]
    described = json.loads(kcompact("plan", "--explain", "--json", *COMPACT, logs).out)["partitions"]
    decided = {Path(each["directory"]).name: each["explain"]["decided_by"] for each in described}
    assert {row[0] for row in rows} == set(decided)
    assert all(decided[row[0]] in row for row in rows)
    sizes = ran.out.split("\n\n")[0].splitlines()
    assert sum(int(line.split()[2]) for line in sizes[1:]) == len(rows)
    reasons = kcompact("plan", "--explain", "--json", *COMPACT, logs).json["reasons"]
    assert [each["reason"] for each in reasons] == [line.split()[0] for line in sizes[1:]]
    assert sum(each["size_bytes"] for each in reasons) == sum(
        segment["size_bytes"] for each in described for segment in each["segments"]
    )
    verbose = kcompact("plan", "--explain", "-v", *COMPACT, logs).out
    assert verbose.count("\ncleanup.policy ") == len(rows)


def test_explain_is_offered_to_programs(tmp_path: Path) -> None:
    spec = log_dsl.parse("log now=10:00\n0: a=1 a=2\n2: a=3")
    plan = plan_partition(log_writer.write(spec, tmp_path), spec.config, now_ms=spec.now_ms)
    assert explain(plan).decisive.decides


SCREEN = 24
"""The lines of the terminals of `on_terminal`."""


@pytest.mark.long
def test_many_partitions_fit_on_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(tmp_path / "logs", one_in=8)
    monkeypatch.chdir(tmp_path)
    # Broken lines, the hint and the errors come on top of a screen.
    for width, lines in on_terminal((100,), "plan", "--explain", *COMPACT, "logs").items():
        report = after_notes(lines[: next(n for n, line in enumerate(lines) if line.startswith("next: ")) + 1])
        assert len(report) <= SCREEN + 9, report
        assert max(map(len, report[:-1])) <= width
        assert any(line.endswith(" of them to clean; -v explains each, --json has all") for line in report)
        assert any(line.startswith("orders-0 ") and "now" in line for line in report)
    compared = ("--compare", "min.cleanable.dirty.ratio=0.1")
    for lines in on_terminal((100,), "plan", *compared, *COMPACT, "logs").values():
        report = after_notes(lines[: next(n for n, line in enumerate(lines) if "would differ" in line) + 4])
        assert len(report) <= SCREEN
        assert any(line.endswith(" more; -v lists them") for line in report)


@pytest.mark.parametrize(
    ("to_clean", "others", "most", "expected"),
    [
        (2, 3, 5, (2, 3)),
        (9, 9, 6, (3, 3)),
        (9, 9, 5, (3, 2)),
        (9, 1, 6, (5, 1)),
        (1, 9, 6, (1, 5)),
        (0, 9, 6, (0, 6)),
        (9, 0, 6, (6, 0)),
    ],
)
def test_the_rows_are_shared(to_clean: int, others: int, most: int, expected: tuple[int, int]) -> None:
    """The first of those to clean and the largest of the others, however many of one kind there are."""
    dirty = [explain(planned(log_of(segment(0), segment(100)))) for _ in range(to_clean)]
    clean = [explain(planned(log_of(segment(0, number), segment(100), checkpoint=100))) for number in range(others)]
    rows = rows_to_show([*dirty, *clean], most)
    assert rows == [*dirty[: expected[0]], *reversed(clean[others - expected[1] :])]


def test_only_what_is_held_back_is_won_later(tmp_path: Path) -> None:
    write_many(tmp_path / "logs", one_in=20)
    reasons = kcompact("plan", "--explain", "--json", *COMPACT, tmp_path / "logs").json["reasons"]
    later = {each["reason"] for each in reasons if each["bytes_to_win_later_at_most"]}
    assert later == {"high-watermark"}
