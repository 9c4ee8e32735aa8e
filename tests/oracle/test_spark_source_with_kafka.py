"""The views of the data source of Spark have the records that Kafka's own log gives to its consumers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.oracle.real_kafka import RealKafka, Record
from tests.support.command_line import ROOT
from tests.support.source_rows import rows_in

pytestmark = pytest.mark.oracle

LOG_DIRS = sorted((ROOT / "fixtures" / "logs").glob("*/before*"))
NOW_MS = 1_710_000_000_000


def as_kafka_has_it(row: dict[str, Any]) -> Record:
    """A row as a consumer's record."""
    time = row["timestamp"]
    time_ms = -1 if time is None else round(time.timestamp() * 1000)
    headers = tuple((header["key"], header["value"]) for header in row["headers"])
    return Record(row["offset"], time_ms, row["key"], row["value"], headers)


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=lambda path: "-".join(path.parts[-2:]))
def test_the_views_have_what_consumers_receive(log_dir: Path, kafka: RealKafka) -> None:
    loaded = kafka.load(log_dir, config={"cleanup.policy": "compact"}, now_ms=NOW_MS, isolation="both")["partitions"]
    assert loaded
    compared = 0
    for name, fields in loaded.items():
        directory = log_dir / name
        high_watermark = {"highWatermark": "leo"}
        committed = [as_kafka_has_it(row) for row in rows_in(directory, view="committed", **high_watermark)]
        assert committed == fields["committed_records"], name
        everything = [row for row in rows_in(directory) if not row["isControl"]]
        assert [as_kafka_has_it(row) for row in everything] == fields["records"], name
        compared += len(everything)
    assert compared
