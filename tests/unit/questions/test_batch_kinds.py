"""Batches counted by codec, producer and delete horizon."""

from __future__ import annotations

from pathlib import Path

import pytest

from kcompact.log.directory import read_log
from kcompact.questions.batch_kinds import Amount, count_kinds
from tests.support import log_dsl, log_writer
from tests.support.command_line import LOG3, flip, partition

LOG = """\
log now=10:00
0: [a=1 b=2](lz4) a=3(pid=7 epoch=0 seq=0) [d=~](horizon=12:00)
4: b=4(zstd pid=7 epoch=0 seq=1) [c=5 d=~](horizon=12:00)
7: a=6
"""


def counts(amounts: dict[int, Amount]) -> dict[int, tuple[int, int]]:
    return {value: (amount.batches, amount.records) for value, amount in amounts.items()}


def test_kinds(compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = read_log(log_writer.write(log_dsl.parse(LOG), tmp_path))
    kinds = count_kinds(log)
    assert counts(kinds.codecs) == {0: (4, 5), 3: (1, 2), 4: (1, 1)}
    assert counts(kinds.producers) == {-1: (4, 6), 7: (2, 2)}
    assert counts(kinds.horizons) == {log_dsl.time_of("12:00"): (2, 3)}
    assert sum(amount.size_bytes for amount in kinds.codecs.values()) == log.size_bytes
    assert kinds.damage == ()


def test_damage_ends_the_counting_of_its_segment(tmp_path: Path) -> None:
    directory = partition(tmp_path)
    flip(directory / LOG3, 16, 0x77)  # The version of the first batch.
    kinds = count_kinds(read_log(directory))
    assert len(kinds.damage) == 1
    assert LOG3 in str(kinds.damage[0])
    assert counts(kinds.codecs) == {0: (4, 4)}
