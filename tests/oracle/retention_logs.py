"""Random logs for retention, from a seed: every reason to delete a segment or to keep it, and what makes them hard.

    log = write_retention_log(kafka, log_dir, seed=7)  # with the configuration and the clock for its retention

Records have old, new, future or no timestamps. Some segments are empty, because Kafka's cleaner emptied them. There are
leader epochs, producers with snapshots, transactions, deleted records, and high watermarks inside the log.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kcompact.format.checkpoint import REPLICATION_OFFSET_CHECKPOINT
from tests.oracle.real_kafka import Json, RealKafka, append, marker, record, roll, start_offset

PARTITION = "old-0"
START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
POLICIES = ("delete", "delete", "compact,delete", "compact,delete", "compact", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLog:
    """The configuration and the clock for the retention of a log directory."""

    config: dict[str, str]
    now_ms: int


def write_retention_log(kafka: RealKafka, log_dir: Path, seed: int) -> RetentionLog:
    """Write one partition with the real Kafka, and return how to delete its old segments."""
    rng = random.Random(f"retention {seed}")
    writer = _Writer(rng)
    config = {"segment.bytes": str(rng.choice([400, 1_000, 3_000])), "segment.index.bytes": "1000"}
    topic, partition = PARTITION.rsplit("-", 1)
    for _ in range(rng.choice([1, 1, 2])):
        actions = list(writer.actions(rng.randint(1, 40)))
        reply = kafka.write(
            log_dir,
            topic,
            int(partition),
            config=config | {"cleanup.policy": "delete", "retention.ms": "-1"},
            now_ms=START_MS,
            actions=actions,
            lenient=True,
        )
        if rng.random() < 0.4:
            compact = config | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"}
            kafka.clean(log_dir, config=compact, now_ms=writer.now_ms, retention=False)
    now_ms = writer.now_ms + rng.choice([0, HOUR_MS, 24 * HOUR_MS])
    bases = [base for base, _ in reply["segments"]]
    if rng.random() < 0.3:
        actions = [start_offset(rng.choice(bases))]
        kafka.write(log_dir, topic, int(partition), config=config, now_ms=now_ms, actions=actions, lenient=True)
    if rng.random() < 0.4:
        high_watermark = rng.choice([rng.choice(bases), rng.randint(0, reply["log_end_offset"])])
        (log_dir / REPLICATION_OFFSET_CHECKPOINT).write_text(f"0\n1\n{topic} {partition} {high_watermark}\n")
    # A broker that starts and stops tidies up: the rest is done by retention alone.
    kafka.load(log_dir, config=config, now_ms=now_ms, in_place=True, high_watermark="checkpoint", records=False)
    _change_file_times(rng, log_dir / PARTITION, now_ms)
    (plan,) = kafka.plan(log_dir, config=config, now_ms=now_ms)["partitions"]
    config |= {"cleanup.policy": rng.choice(POLICIES), "min.cleanable.dirty.ratio": "1"}
    return RetentionLog(now_ms=now_ms, config=config | _limits(rng, plan["segments"], now_ms))


def _limits(rng: random.Random, segments: list[Json], now_ms: int) -> dict[str, str]:
    """Return limits, half of them such that one segment more or one byte or millisecond more decides."""
    sizes = [segment["size_bytes"] for segment in segments]
    exact_bytes = sum(sizes[rng.randrange(len(sizes)) :]) + rng.choice([-1, 0, 0, 1])
    exact_ms = max(-1, now_ms - rng.choice(segments)["largest_timestamp_ms"] + rng.choice([-1, 0, 0, 1]))
    span_ms = now_ms - START_MS
    return {
        "retention.bytes": str(rng.choice([-1, -1, 0, rng.randint(0, sum(sizes)), exact_bytes, exact_bytes])),
        "retention.ms": str(rng.choice([-1, 0, HOUR_MS, rng.randint(0, 2 * span_ms), exact_ms, exact_ms])),
    }


def _change_file_times(rng: random.Random, directory: Path, now_ms: int) -> None:
    """Change the times of some logs. Kafka reads them where a segment has no timestamp."""
    for path in sorted(directory.glob("*.log")):
        if rng.random() < 0.6:
            mtime_ms = rng.randint(START_MS, now_ms + HOUR_MS)
            os.utime(path, ns=(mtime_ms * 1_000_000 + 999_999, mtime_ms * 1_000_000 + 999_999))


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now_ms = START_MS
        self.leader_epoch = 0
        self.sequence = 0
        self.written = 0
        self.in_transaction = False

    def actions(self, count: int) -> Iterator[Json]:
        rng = self.rng
        for _ in range(count):
            self.now_ms += rng.randint(0, HOUR_MS)
            self.leader_epoch += rng.random() < 0.15
            yield self._append()
            if self.in_transaction and rng.random() < 0.5:
                self.in_transaction = False
                yield marker("commit", 7, 0, now_ms=self.now_ms, leader_epoch=self.leader_epoch)
                self.written += 1
            if rng.random() < 0.2:
                yield roll(now_ms=self.now_ms)
        if rng.random() < 0.3:
            yield roll(now_ms=self.now_ms)
        if rng.random() < 0.4 and not self.in_transaction:
            yield start_offset(rng.randint(0, self.written), now_ms=self.now_ms)

    def _append(self) -> Json:
        rng = self.rng
        shift_ms = rng.choice([0, 0, 0, -HOUR_MS, 300 * HOUR_MS])
        timestamp_ms = -1 if rng.random() < 0.25 else self.now_ms + shift_ms
        rows = [
            record(timestamp_ms, b"k%d" % rng.randrange(3), None if rng.random() < 0.2 else rng.randbytes(30))
            for _ in range(rng.randint(1, 12))
        ]
        self.written += len(rows)
        fields: Json = {"leader_epoch": self.leader_epoch}
        if self.in_transaction or rng.random() < 0.3:
            fields["producer"] = [7, 0, self.sequence]
            fields["transactional"] = self.in_transaction = True
            self.sequence += len(rows)
        return append(rows, now_ms=self.now_ms, **fields)
