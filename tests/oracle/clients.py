"""What tests with a real broker share: settings, what clients read, and what the broker's own log says of its logs."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

from fixtures.broker import Broker, patiently
from tests.oracle.driver import class_path
from tests.oracle.real_kafka import JVM_OPTIONS, Json, RealKafka, java
from tests.support.patience import PATIENCE_S, becomes

COORDINATORS = """\
offsets.topic.segment.bytes=1048576
transaction.state.log.segment.bytes=1048576
transaction.state.log.num.partitions=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
group.max.session.timeout.ms=1800000
group.consumer.max.session.timeout.ms=600000
group.consumer.session.timeout.ms=600000
group.share.max.session.timeout.ms=600000
group.share.session.timeout.ms=600000
"""
"""Small segments, and members that stay while the broker is away. Its cleaner does not run, see `Broker`."""
ABOUT_LOGS = re.compile(r"^(?:WARN|ERROR) (?:org\.apache\.)?kafka\.(?:storage|log|coordinator).*", re.MULTILINE)
"""What a broker logs that found something wrong in a log."""


def config_command(address: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run Kafka's own tool for settings."""
    tool = "org.apache.kafka.tools.ConfigCommand"
    command = [java(), *JVM_OPTIONS, "-cp", class_path(), tool, "--bootstrap-server", address]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=check)


def size_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("*.log"))


def loaded(kafka: RealKafka, broker: Broker) -> Json:
    """What the admin API says once the broker that has just started has read the topics of its coordinators."""
    assert becomes(lambda: all(kafka.describe_cluster(broker.address).values()))
    return kafka.describe_cluster(broker.address)


def consumed(
    address: str, topic: str, *, isolation: str = "read_uncommitted"
) -> tuple[int, dict[int, tuple[bytes, bytes | None]]]:
    """Return the end of what such a consumer can get, and the records by their offsets."""
    consumer = KafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, group_id=None, isolation_level=isolation
    )
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = patiently(lambda: consumer.end_offsets([partition]))[partition]
        seen = {}
        deadline = time.monotonic() + PATIENCE_S
        while consumer.position(partition) < end:
            assert time.monotonic() < deadline, f"{topic}: read up to {consumer.position(partition)} of {end}"
            for each in consumer.poll(timeout_ms=1_000).get(partition, []):
                seen[each.offset] = (each.key, each.value)
        return end, seen
    finally:
        consumer.close()


def newest(records: dict[int, tuple[bytes, bytes | None]], end: int) -> dict[bytes, tuple[int, bytes | None]]:
    """Return the last offset and value of each key below an offset."""
    return {records[offset][0]: (offset, records[offset][1]) for offset in sorted(records) if offset < end}
