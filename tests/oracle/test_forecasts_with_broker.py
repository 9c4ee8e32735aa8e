"""What `plan --explain` foretells beside a running broker happens when the broker gets the record or the setting."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource

from fixtures.broker import Broker, patiently
from tests.support.command_line import kcompact
from tests.support.patience import PATIENCE_S, becomes

pytestmark = pytest.mark.oracle

TOPIC = "slow"
SETTINGS = {"cleanup.policy": "compact", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.95"}
PROPERTIES = """\
log.cleaner.backoff.ms=100
replica.high.watermark.checkpoint.interval.ms=100
"""
LONG_ENOUGH_S = 2
"""The cleaner looks twenty times."""


def planned(broker: Broker) -> Any:
    ran = kcompact("plan", "--explain", "--json", broker.log_dir / f"{TOPIC}-0")
    assert ran.code == 0, ran.err
    return ran.partition


def test_records_and_settings_change_what_they_should(tmp_path: Path) -> None:
    with Broker(tmp_path, properties=PROPERTIES) as broker:
        admin = patiently(lambda: KafkaAdminClient(bootstrap_servers=broker.address))
        producer = KafkaProducer(bootstrap_servers=broker.address)

        def send(timestamp_ms: int, size: int, key: bytes = b"a") -> None:
            producer.send(TOPIC, key=key, value=bytes(size), timestamp_ms=timestamp_ms, partition=0).get(
                timeout=PATIENCE_S
            )

        def set_ratio(ratio: float) -> None:
            resource = ConfigResource("topic", TOPIC, {**SETTINGS, "min.cleanable.dirty.ratio": repr(ratio)})
            patiently(lambda: admin.alter_configs([resource]))

        def cleaned_up_to() -> int | None:
            offset: int | None = planned(broker)["checkpoint_offset"]
            return offset

        topics = {TOPIC: {"num_partitions": 1, "replication_factor": 1, "configs": SETTINGS}}
        patiently(lambda: admin.create_topics(topics, wait_for_metadata=True))
        first_ms = int(time.time() * 1000) - 1_800_000
        send(first_ms, 900, b"a")
        send(first_ms, 900, b"b")

        # The active segment is closed by a record of that time, and not by one a millisecond older.
        assert becomes(lambda: planned(broker)["explain"]["decided_by"] == "active-segment"), "the records"
        found = planned(broker)
        (active,) = (each for each in found["explain"]["conditions"] if each["name"] == "active-segment")
        assert active["how"] == "at-append"
        rolls_ms = first_ms + 60_001
        for timestamp_ms, segments in ((rolls_ms - 1, 1), (rolls_ms, 2)):
            send(timestamp_ms, 100)
            assert len(planned(broker)["segments"]) == segments
        # Then it is eligible, as foretold, and the broker's cleaner takes it.
        assert "at-append" in {each["how"] for each in found["explain"]["forecasts"]}
        assert becomes(lambda: cleaned_up_to() == 3), "the cleaning of what the record closed"

        # A dirty section that is too small: the ratio that it names is enough, and the next one is not.
        send(rolls_ms + 60_001, 100)
        assert becomes(lambda: planned(broker)["reason"] == "below-ratio"), "a ratio that is too low"
        setting = planned(broker)["explain"]["change_by_setting"]
        assert setting["name"] == "min.cleanable.dirty.ratio"
        set_ratio(math.nextafter(setting["value"], 1.0))
        time.sleep(LONG_ENOUGH_S)
        assert cleaned_up_to() == 3
        set_ratio(setting["value"])
        assert becomes(lambda: cleaned_up_to() == 4), "the cleaning with the ratio"
        producer.close()
        admin.close()
