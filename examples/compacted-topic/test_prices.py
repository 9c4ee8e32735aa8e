"""The application reads the same prices before and after a compaction. `compact` is a fixture of kcompact."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from prices import newest_prices

from kcompact.pytest_plugin import Compact

NOW = "2023-11-21T23:14:20Z"


@pytest.fixture
def kafka_logs(tmp_path: Path) -> Path:
    """A copy of a log directory that a broker has written. A compaction changes it."""
    return shutil.copytree(Path(__file__).parent / "kafka-logs", tmp_path / "kafka-logs")


def test_a_compaction_changes_no_price(kafka_logs: Path, compact: Compact) -> None:
    before = newest_prices(kafka_logs / "fruit-prices-0")
    result = compact(kafka_logs, now=NOW)
    assert result.stats.bytes_written < result.stats.bytes_read
    assert newest_prices(kafka_logs / "fruit-prices-0") == before == {"lime": "$1.79"}


def test_a_tombstone_goes_when_its_time_has_come(kafka_logs: Path, compact: Compact) -> None:
    hour = {"delete.retention.ms": "3600000"}
    log = kafka_logs / "fruit-prices-0" / f"{0:020d}.log"

    compact(kafka_logs, now=NOW, config=hour)
    assert b"grape" in log.read_bytes()

    (kafka_logs / "cleaner-offset-checkpoint").unlink()  # As if new records had made the log dirty again.
    compact(kafka_logs, now="2023-11-22T00:14:21Z", config=hour)
    assert b"grape" not in log.read_bytes()
    assert newest_prices(kafka_logs / "fruit-prices-0") == {"lime": "$1.79"}
