"""`clean --unclean` before a broker's recovery, or its cleaner after it: the same files and views."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.oracle.real_kafka import RealKafka
from tests.oracle.unclean_logs import differences

pytestmark = pytest.mark.oracle


def test_both_ways_end_alike(kafka: RealKafka, tmp_path: Path) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(1, 21):
        scratch = tmp_path / str(seed)
        scratch.mkdir()
        found, kind = differences(kafka, seed, scratch)
        assert found == [], f"seed {seed}"
        kinds[kind] += 1
    assert kinds["cleaned, torn"] >= 5
    assert kinds["refused"] <= 1
