"""`clean.staged_files`: a staged file that differs from what was written is never used."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kcompact.errors import CorruptDataError
from tests.support.command_line import flip
from tests.support.parts import joined, parts_of


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: flip(path, 5), "are out of order"),
        (lambda path: flip(path, path.stat().st_size - 1), "differs from what was written"),
        (lambda path: os.truncate(path, path.stat().st_size - 1), "bytes were written"),
        (lambda path: os.truncate(path, 0), "bytes were written"),
        (lambda path: os.truncate(path, path.stat().st_size + 1), "bytes were written"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_damaged_part_is_noticed(
    source: Path, staging: Path, damage: Callable[[Path], None], problem: str, number: int
) -> None:
    parts = parts_of(source, staging, 2)
    damage(staging / parts[number].name)
    with pytest.raises(CorruptDataError, match=problem):
        joined(staging, parts)


@pytest.mark.long
def test_every_flipped_byte_is_noticed(source: Path, staging: Path, compiled: bool) -> None:
    (part,) = parts_of(source, staging, is_only=False)
    for position in range(part.size_bytes):
        flip(staging / part.name, position)
        with pytest.raises(CorruptDataError):
            joined(staging, [part])
        flip(staging / part.name, position)
    joined(staging, [part])


def test_the_only_part_is_read_back_where_it_is_written(
    source: Path, staging: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    (part,) = parts_of(source, staging)
    assert part.is_verified
    assert [one.is_verified for one in parts_of(source, staging, 2)] == [False, False]
    assert [one.is_verified for one in parts_of(source, None)] == [False]

    def sync_and_forget(descriptor: int) -> None:
        flip(Path(f"/proc/self/fd/{descriptor}").readlink(), 60)

    monkeypatch.setattr(os, "fsync", sync_and_forget)
    with pytest.raises(CorruptDataError, match="differs from what was written"):
        parts_of(source, staging)


def test_parts_in_the_wrong_order(source: Path, staging: Path) -> None:
    with pytest.raises(CorruptDataError, match="are out of order"):
        joined(staging, parts_of(source, staging, 2)[::-1])


def test_a_count_that_does_not_agree(source: Path, staging: Path) -> None:
    (part,) = parts_of(source, staging, is_only=False)
    other = replace(part, stats=replace(part.stats, messages_written=9))
    with pytest.raises(CorruptDataError, match="does not have as many records"):
        joined(staging, [other])
