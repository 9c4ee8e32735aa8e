"""Options that take a time: what it comes to, and what is no time."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from kcompact.cli.option_types import LATEST_MS, Time, When
from tests.support.command_line import kcompact, partition

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
CLOCK_MS = 1_704_103_200_000  # 2024-01-01T10:00:00Z, the time of the records of `partition`.


@pytest.fixture(autouse=True)
def fixed_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kcompact.host.machine.time.time_ns", lambda: CLOCK_MS * 1_000_000)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("0", When(at_ms=0)),
        ("1704103200000", When(at_ms=CLOCK_MS)),
        ("2024-01-01T10:00:00Z", When(at_ms=CLOCK_MS)),
        ("2024-01-01T11:00:00+01:00", When(at_ms=CLOCK_MS)),
        ("2024-01-01", When(at_ms=CLOCK_MS - 10 * HOUR_MS)),
        ("2h", When(ago_ms=2 * HOUR_MS)),
        ("-2h", When(ago_ms=2 * HOUR_MS)),
        ("+2H", When(ago_ms=-2 * HOUR_MS)),
        (" 90 d ", When(ago_ms=90 * DAY_MS)),
        ("1w", When(ago_ms=7 * DAY_MS)),
        ("30m", When(ago_ms=HOUR_MS // 2)),
        ("45s", When(ago_ms=45_000)),
        ("500ms", When(ago_ms=500)),
    ],
)
def test_times(text: str, when: When) -> None:
    assert Time().convert(text, None, None) == when
    assert Time().convert(when, None, None) == when


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no time"),
        ("h", "is no time"),
        ("2", None),
        ("2 hours", "is no time"),
        ("--2h", "is no time"),
        ("2y", "is no time"),
        ("1.5h", "is no time"),
        ("9999999999d", "more than 8000 years"),
        ("1704103200", "looks like seconds"),
        (str(LATEST_MS + 1), "after the year 9999"),
    ],
)
def test_what_is_no_time(text: str, problem: str | None) -> None:
    if problem is None:
        assert Time().convert(text, None, None) == When(at_ms=2)
        problem = "'2' has no unit: 2d, 2h or 2m"
    with pytest.raises(click.BadParameter, match=problem):
        Time(needs_unit=True).convert(text, None, None)


@pytest.mark.parametrize("when", [When(ago_ms=CLOCK_MS + 1), When(ago_ms=CLOCK_MS - LATEST_MS - 1)])
def test_moments_out_of_range(when: When) -> None:
    with pytest.raises(click.UsageError, match=r"before 1970 or after the year 9999"):
        when.before(CLOCK_MS)


@pytest.mark.parametrize(("text", "hours"), [("2h", -2), ("-2h", -2), ("+90d", 90 * 24), ("1704103200000", 0)])
def test_now_counts_back_from_the_clock(text: str, hours: int, tmp_path: Path) -> None:
    ran = kcompact("plan", "--json", "--now", text, partition(tmp_path))
    assert ran.json["now_ms"] == CLOCK_MS + hours * HOUR_MS
    ran = kcompact("plan", "--json", f"--now={text}", tmp_path)
    assert ran.json["now_ms"] == CLOCK_MS + hours * HOUR_MS


def offsets(directory: Path, *options: str) -> list[int]:
    ran = kcompact("records", "--json", *options, directory)
    assert ran.code == 0, ran.err
    return [line["offset"] for line in ran.lines]


def test_records_are_chosen_by_lengths_of_time(tmp_path: Path) -> None:
    """The records of `partition` are of 10:00."""
    directory = partition(tmp_path)
    every = offsets(directory)
    assert offsets(directory, "--since", "1h") == every
    assert offsets(directory, "--until", "1h") == []
    noon = ("--now", "2024-01-01T12:00:00Z")
    assert offsets(directory, *noon, "--since", "1h") == []
    assert offsets(directory, *noon, "--since", "3h", "--until=-1h") == every
    assert offsets(directory, "--now", "+2h", "--since", "1h") == []


def test_old_keys(tmp_path: Path) -> None:
    directory = partition(tmp_path)

    def old(*options: str) -> int:
        ran = kcompact("keys", "--json", "--now", "2024-01-01T12:00:00Z", *options, directory)
        assert ran.code == 0, ran.err
        count = ran.partition["keys"]["old_keys"]
        assert isinstance(count, int)
        return count

    assert (old("--older-than", "1h"), old("--older-than", "3h")) == (3, 0)
    assert (old("--older-than", "2024-01-01T11:00:00Z"), old("--older-than", "2024-01-01T09:00:00Z")) == (3, 0)
    ran = kcompact("keys", "--now", "2024-01-01T12:00:00Z", "--older-than", "+1h", directory)
    assert (ran.code, "TIME is after --now" in ran.err) == (2, True)
