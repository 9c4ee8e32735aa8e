"""What a person sees on terminals of different widths, and what a pipe gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fixtures import checkout
from tests.support.command_line import (
    COMPACT,
    CONTROL,
    DIRTY,
    flip,
    kcompact,
    on_terminal,
    on_terminals,
    partition,
    process,
)

TIMES_AT = {40: 0, 60: 0, 80: 0, 100: 1, 120: 2, 160: 3, 200: 3}
"""For each width, how many columns of times there is space for."""


@pytest.mark.long
def test_a_narrow_terminal_crops_nothing(tmp_path: Path) -> None:
    directory = partition(tmp_path, DIRTY.replace("now=10:00", "now=10:00 hw=4"))
    for width, lines in on_terminal(list(TIMES_AT), "inspect", *COMPACT, directory).items():
        shown = "\n".join(lines)
        for row in (r"0 +210 B +dirty", r"3 +209 B +uncleanable", r"6 +70 B +active"):
            assert re.search(rf"^ *{row}  ", shown, re.MULTILINE), shown
        (header,) = [line for line in lines if line.startswith("base offset")]
        assert header.split()[-1] == "why"
        assert "…" not in shown
        times = [name for name in ("largest time", "modified", "first time") if name in header]
        assert times == ["largest time", "modified", "first time"][: len(times)]
        assert (width >= 80) == ("batches" in header), width
        assert len(times) == TIMES_AT[width], width


@pytest.mark.long
def test_a_narrow_terminal_breaks_no_reason(tmp_path: Path) -> None:
    directory = partition(
        tmp_path, DIRTY.replace("now=10:00", "now=10:00 name=topic-of-forty-characters-0 checkpoint=6")
    )
    for width, shown in on_terminal((40, 60, 80, 120), "plan", *COMPACT, directory).items():
        assert any(line.endswith("  active-only") or "  active-only  all dirty" in line for line in shown), shown
        header = next(line for line in shown if line.startswith("partition "))
        assert "dirty" in header
        assert tuple(name for name in ("ratio", "size", "clean it") if name in header) == AT_WIDTH[width], header
        assert "all dirty" in " ".join(shown)


AT_WIDTH = {40: (), **dict.fromkeys((60, 80, 120), ("ratio", "size", "clean it"))}
"""The columns of `plan` that a terminal has besides the names, the dirty bytes and the reasons."""

WIDTHS = (60, 80, 100, 200)
CLEAN = ("clean", "--dry-run", "--engine", "in-process", *COMPACT)
TABLES: list[tuple[tuple[str, ...], str, tuple[str, ...]]] = [
    (("inspect", *COMPACT), "base offset", ("base offset", "size", "batches", "records")),
    (("verify", *COMPACT), "severity", ("position", "offset")),
    (("plan", *COMPACT), "partition", ("size", "clean", "dirty", "ratio")),
    (CLEAN, "partition  status", ("before", "after", "checkpoint")),
]
"""A command, the start of its table's header, and the columns of numbers."""


def table(lines: list[str], start: str) -> tuple[str, list[str]]:
    """Return the header of the table that starts with a word, and the lines below it."""
    words = start.split()
    (number,) = [at for at, line in enumerate(lines) if line.split()[: len(words)] == words]
    rows = lines[number + 1 :]
    return lines[number], rows[: rows.index("")] if "" in rows else rows


def rows_of(header: str, rows: list[str]) -> list[dict[str, str]]:
    """Return the cells of each row by the names in the header."""
    names = re.split(r"  +", header.strip())
    return [dict(zip(names, re.split(r"  +", row.strip()), strict=False)) for row in rows]


@pytest.mark.long
def test_a_terminal_shows_the_numbers_of_a_pipe(tmp_path: Path) -> None:
    sound, damaged = (checkout.copy_directory("mixed", "before", tmp_path / name) for name in ("logs", "damaged"))
    flip(next(damaged.glob("*-0/*.log")), 65)
    lines: list[tuple[str | Path, ...]] = [
        (*arguments, damaged if "verify" in arguments else sound) for arguments, *_ in TABLES
    ]
    shown = iter(on_terminals([(width, line) for line in lines for width in WIDTHS]))
    for line, (arguments, start, numbers) in zip(lines, TABLES, strict=True):
        piped = rows_of(*table(kcompact(*line).out.splitlines(), start))
        for width in WIDTHS:
            show_the_same(next(shown), piped, width, start, numbers, is_plan="plan" in arguments)


def show_the_same(
    lines: list[str], piped: list[dict[str, str]], width: int, start: str, numbers: tuple[str, ...], *, is_plan: bool
) -> None:
    header, rows = table(lines, start)
    assert max(map(len, (header, *rows))) <= width
    bars = {(len(line), line[-1]) for line in lines if line.startswith("  [")}
    assert bars <= {(min(64, width), "]")}
    shown = [name for name in numbers if name in re.split(r"  +", header.strip())]
    assert shown == list(numbers) or width < 100
    assert shown or is_plan
    for row in piped:
        # A row may go on in more lines, but its numbers are all in the first.
        pattern = r"\s.*?".join(rf"(?<!\S){re.escape(row[name])}(?!\S)" for name in shown)
        assert any(re.search(pattern, line) for line in rows), (width, row, rows)


def test_piped_output_is_complete_and_plain(tmp_path: Path) -> None:
    directory = partition(tmp_path / ("deep" * 40))
    ran = process("inspect", *COMPACT, directory)
    assert ran.returncode == 0
    assert "…" not in ran.stdout
    assert str(directory) in ran.stdout
    assert not CONTROL.search(ran.stdout)


def test_colour_is_for_terminals(tmp_path: Path) -> None:
    assert "\x1b" not in process("inspect", partition(tmp_path)).stdout
