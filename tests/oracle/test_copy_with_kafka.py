"""A real broker on a copy of a combined log directory: it has every topic, and takes none for a stray."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from fixtures.broker import (
    PARTITION,
    TOPIC,
    TOPIC_CONFIG,
    Broker,
    batches,
    complaints,
    consume,
    create_topics,
    patiently,
    produce,
)
from kcompact.swap.copy.marker import MARKER
from tests.support.command_line import flip, kcompact

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

RECORDS = 2_000
GROUP = "readers"


def commit(address: str) -> None:
    """Commit the offset of a consumer group, which makes `__consumer_offsets`."""
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, group_id=GROUP)
    try:
        consumer.assign([TopicPartition(TOPIC, 0)])
        patiently(lambda: consumer.seek(TopicPartition(TOPIC, 0), 123))
        patiently(consumer.commit)
    finally:
        consumer.close()


def committed(address: str) -> int | None:
    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False, group_id=GROUP)
    try:
        offset: int | None = patiently(lambda: consumer.committed(TopicPartition(TOPIC, 0)))
        return offset
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker that is also the controller, cleanly stopped."""
    with Broker(tmp_path_factory.mktemp("first")) as broker:
        create_topics(broker.address, {TOPIC: TOPIC_CONFIG})
        produce(broker.address, batches(RECORDS))
        commit(broker.address)
    return broker.log_dir


def copy(log_dir: Path, home: Path, *options: str) -> int:
    return kcompact("clean", "--engine", "in-process", "--force", *options, "--output", home / "log-dir", log_dir).code


def test_a_broker_starts_on_a_copy_and_has_everything(log_dir: Path, tmp_path: Path) -> None:
    before = sum(file.stat().st_size for file in (log_dir / PARTITION).glob("*.log"))
    assert copy(log_dir, tmp_path) == 0
    copied = {path.name for path in (tmp_path / "log-dir").iterdir()}
    assert {PARTITION, "__consumer_offsets-0", "__cluster_metadata-0"} <= copied
    after = sum(file.stat().st_size for file in (tmp_path / "log-dir" / PARTITION).glob("*.log"))
    assert after < before
    produced = [record for batch in batches(RECORDS) for record in batch]
    with Broker(tmp_path) as broker:
        assert complaints(produced, consume(broker.address)) == []
        assert committed(broker.address) == 123
    directories = {path.name for path in (tmp_path / "log-dir").iterdir() if path.is_dir()}
    assert directories == {PARTITION, "__consumer_offsets-0", "__cluster_metadata-0"}


def test_no_broker_starts_on_an_unfinished_copy(log_dir: Path, tmp_path: Path) -> None:
    path = log_dir / PARTITION / "00000000000000000000.log"
    flip(path, 65)
    assert copy(log_dir, tmp_path) == 3
    flip(path, 65)
    output = tmp_path / "log-dir"
    assert not (output / "meta.properties").exists()
    # `Broker` formats a directory without this file, as operators of a cluster do.
    with pytest.raises(RuntimeError, match=MARKER), Broker(tmp_path):
        pass
    assert not list(output.glob("*-stray"))
