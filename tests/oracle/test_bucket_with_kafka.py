"""A real broker on a log directory that was cleaned into a bucket and fetched again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.broker import PARTITION, TOPIC, TOPIC_CONFIG, Broker, batches, complaints, consume, create_topics, produce
from tests.support.command_line import kcompact
from tests.support.s3_server import moto

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

RECORDS = 2_000


def test_a_broker_starts_on_what_was_cleaned_and_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    with Broker(tmp_path / "first") as broker:
        create_topics(broker.address, {TOPIC: TOPIC_CONFIG})
        produce(broker.address, batches(RECORDS))
    log_dir, fetched = broker.log_dir, tmp_path / "second" / "log-dir"
    before = sum(file.stat().st_size for file in (log_dir / PARTITION).glob("*.log"))
    with moto() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        server.make_bucket("backups")
        server.upload(log_dir, "backups", "raw")
        options = ("--engine", "in-process", "--include-internal")
        cleaned = kcompact("clean", *options, "--force", "--output", "s3://backups/cleaned", "s3://backups/raw")
        assert cleaned.code == 0, cleaned.err
        again = kcompact("clean", *options, "--output", fetched, "s3://backups/cleaned")
        assert again.code == 0, again.err
    after = sum(file.stat().st_size for file in (fetched / PARTITION).glob("*.log"))
    assert after < before
    produced = [record for batch in batches(RECORDS) for record in batch]
    with Broker(tmp_path / "second") as broker:
        assert complaints(produced, consume(broker.address)) == []
