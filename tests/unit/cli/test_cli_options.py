"""Options that take sizes: what they come to, and what is not a size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cli.option_types import Size
from tests.support.command_line import COMPACT, digest, kcompact, partition

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("1", 1),
        ("500000", 500_000),
        ("64k", 64 << 10),
        ("64m", 64 * MIB),
        ("64M", 64 * MIB),
        ("100MB", 100 * MIB),
        ("100 MiB", 100 * MIB),
        ("100mib", 100 * MIB),
        ("1g", 1 << 30),
        ("2TB", 2 << 40),
        ("1.5g", 3 << 29),
        ("0.5m", MIB // 2),
        (" 7 b ", 7),
        ("10B", 10),
        ("9223372036854775807", (1 << 63) - 1),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert Size().convert(text, None, None) == size_bytes


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "m",
            "-1",
            "+1",
            "1e6",
            "64x",
            "64mm",
            "1.",
            ".5m",
            "1,000",
            "1_000",
            "0",
            "0.1",
            "0m",
            "nan",
            "٣m",
            "1 2",
        ),
        *("9223372036854775808", "8388608t", "9" * 100),
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)


@pytest.mark.parametrize("option", ["--memory", "--max-bytes-per-second"])
def test_a_wrong_size_is_a_usage_error(option: str, tmp_path: Path) -> None:
    directory = partition(tmp_path)
    before = digest(tmp_path)
    ran = kcompact("clean", *COMPACT, option, "lots", directory)
    assert (ran.code, ran.out) == (2, "")
    assert f"Invalid value for '{option}': 'lots' is not a size, such as 500000, 64m, 1.5g or 100 MiB" in ran.err
    assert digest(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "memory_bytes", "max_bytes_per_second"),
    [
        ((), None, None),
        (("--memory", "2g"), 2 << 30, None),
        (("--max-bytes-per-second", "50m", "--memory", "100MB"), 100 * MIB, 50 * MIB),
    ],
)
def test_the_sizes_reach_the_cleaning(
    arguments: tuple[str, ...],
    memory_bytes: int | None,
    max_bytes_per_second: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[CleanOptions] = []

    def begin(paths: Any, plan_options: Any, options: CleanOptions, *_: Any, **__: Any) -> int:
        asked.append(options)
        raise click.exceptions.Exit(0)

    monkeypatch.setattr("kcompact.cleaner.round.begin_round", begin)
    assert kcompact("clean", *arguments, partition(tmp_path)).code == 0
    (options,) = asked
    assert (options.memory_bytes, options.max_bytes_per_second) == (memory_bytes, max_bytes_per_second)
