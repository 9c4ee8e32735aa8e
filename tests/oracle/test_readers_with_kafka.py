"""No reader ends with a deleted key, or without a live one, unless it would have beside Kafka's own cleaner.

The histories have transactions, committed and aborted, and consumers that read all records or committed ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.real_kafka import RealKafka
from tests.support.simulated_readers import clean_by_kcompact, told, worse, wrong_keys

pytestmark = pytest.mark.oracle

SEEDS = [pytest.param(seed, marks=() if seed < 5 else pytest.mark.slow) for seed in range(40)]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_reader_is_worse_off_beside_kcompact(seed: int, kafka: RealKafka, tmp_path: Path) -> None:
    def clean_by_kafka(directory: Path, settings: dict[str, str], now_ms: int, log_dirs: tuple[Path, ...]) -> None:
        if not log_dirs:  # A move pauses the cleaner.
            kafka.clean(directory.parent, config=settings, now_ms=now_ms, turns=0, retention=False)

    ours = told(tmp_path / "ours", seed, clean_by_kcompact, transactions=True)
    theirs = told(tmp_path / "theirs", seed, clean_by_kafka, transactions=True)
    assert not worse(wrong_keys(ours), wrong_keys(theirs))
    assert [each.batches() for each in ours.replicas] == [each.batches() for each in theirs.replicas]
