"""No reader ends with a deleted key, or without a live one, unless it would have beside the definition of a cleaning.

`tests/oracle/test_readers_with_kafka.py` tells such histories with transactions, and compares with Kafka's cleaner.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulated_readers import clean_by_definition, clean_by_kcompact, told, worse, wrong_keys
from tests.support.simulated_replicas import Cleaner

TELLING = (3, 13)
"""Histories in which readers end with wrong keys beside every cleaner: followers were away for too long."""
SEEDS = (*TELLING, 20, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 160)))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_reader_is_worse_off_beside_kcompact(seed: int, tmp_path: Path) -> None:
    ours = wrong_keys(told(tmp_path / "ours", seed, clean_by_kcompact))
    theirs = wrong_keys(told(tmp_path / "theirs", seed, clean_by_definition))
    assert not worse(ours, theirs)
    assert any(theirs.values()) or seed not in TELLING


def hasty(directory: Path, settings: dict[str, str], now_ms: int, log_dirs: tuple[Path, ...]) -> None:
    """Drop tombstones earlier than the topic says."""
    clean_by_kcompact(directory, {**settings, "delete.retention.ms": "0"}, now_ms, log_dirs)


def heedless(directory: Path, settings: dict[str, str], now_ms: int, _: tuple[Path, ...]) -> None:
    """Go on while a move needs what is cleaned."""
    clean_by_kcompact(directory, settings, now_ms, ())


@pytest.mark.parametrize(("cleaner", "seed"), [(hasty, 0), (heedless, 20)])
def test_a_cleaner_that_takes_from_a_reader_is_found(cleaner: Cleaner, seed: int, tmp_path: Path) -> None:
    found = wrong_keys(told(tmp_path / "found", seed, cleaner))
    assert worse(found, wrong_keys(told(tmp_path / "right", seed, clean_by_definition)))
