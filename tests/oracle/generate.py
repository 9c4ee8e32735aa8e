"""Random logs, from a seed: what to write, and a log directory that the real Kafka wrote so.

    spec = random_spec(seed=7, records=20_000)
    written = write_log(kafka, log_dir, spec)  # the log, and the clock and configuration to clean it with

A log is written in parts. Between two parts Kafka's own cleaner runs, so that the last part meets batches
which have gaps, delete horizons (past and to come) and empty ones kept for their producers. Same seed, same
bytes.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracle.real_kafka import Json, RealKafka, append, marker, record, roll

START_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
EAGER = {"min.cleanable.dirty.ratio": "0.001"}  # for the cleanings between the parts


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSpec:
    """What a random log is like; shares are of 1."""

    seed: int
    topic: str = "random"
    partition: int = 0
    records: int = 20_000
    keys: int = 2_000
    skewed: bool = True
    """Whether few keys take most of the records."""
    tombstones: float = 0.07
    null_keys: float = 0.0
    empty_keys: float = 0.0
    headers: float = 0.1
    codecs: tuple[str, ...] = ("none",)
    max_batch_records: int = 200
    max_value_bytes: int = 100
    producers: int = 0
    """How many idempotent producers write; the rest of the batches have none."""
    transactional_producers: int = 0
    transaction_version: int = 0
    cleanings: int = 1
    """How often Kafka cleans the log while it is being written."""
    pauses_ms: tuple[int, ...] = (2 * HOUR_MS,)
    """What the clock jumps after each of those cleanings, the last value again and again."""
    segment_bytes: int = 200_000
    delete_retention_ms: int = HOUR_MS
    batch_interval_ms: int = 1_000
    jitter_ms: int = 5_000

    @property
    def config(self) -> dict[str, str]:
        """The topic's configuration."""
        return {
            "cleanup.policy": "compact",
            "segment.bytes": str(self.segment_bytes),
            "delete.retention.ms": str(self.delete_retention_ms),
            "min.cleanable.dirty.ratio": "0.01",
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A log directory, and the clock and configuration with which to clean it next."""

    log_dir: Path
    config: dict[str, str]
    now_ms: int
    log_end_offset: int


def random_spec(seed: int, *, records: int | None = None) -> LogSpec:
    """Return a log description that differs with the seed in every respect."""
    rng = random.Random(f"spec {seed}")
    count = records or rng.randrange(20_000, 60_001)
    return LogSpec(
        seed=seed,
        records=count,
        keys=max(1, int(count * rng.choice([0.001, 0.02, 0.1, 0.5, 1.5]))),
        skewed=rng.random() < 0.6,
        tombstones=rng.choice([0.0, 0.07, 0.07, 0.5]),
        null_keys=rng.choice([0.0, 0.0, 0.02]),
        empty_keys=rng.choice([0.0, 0.01]),
        headers=rng.choice([0.0, 0.1, 1.0]),
        codecs=rng.choice([*((codec,) for codec in CODECS), CODECS, CODECS]),
        max_batch_records=rng.choice([1, 5, 50, 200]),
        max_value_bytes=rng.choice([0, 20, 100, 300]),
        producers=rng.choice([0, 0, 3, 40]),
        transactional_producers=rng.choice([0, 0, 2, 8]),
        transaction_version=rng.choice([0, 2]),
        cleanings=rng.choice([0, 1, 1, 2, 3]),
        pauses_ms=rng.choice([(0,), (2 * HOUR_MS,), (2 * HOUR_MS, 0), (30 * HOUR_MS, 0)]),
        segment_bytes=max(60_000, count * rng.choice([2, 5, 20])),
        jitter_ms=rng.choice([0, 5_000, 100_000]),
    )


def write_log(kafka: RealKafka, log_dir: Path, spec: LogSpec, **options: Any) -> Written:
    """Write the log that `spec` describes with the real Kafka; `options` go to `RealKafka.write`."""
    writer = _Writer(spec)
    written_as = spec.config | ({"cleanup.policy": "delete"} if spec.null_keys else {})
    parts = spec.cleanings + 1
    for part in range(parts):
        actions = list(writer.part(spec.records * part // parts, spec.records * (part + 1) // parts))
        last = part == parts - 1
        if not last:
            actions.append(roll())
        reply = kafka.write(
            log_dir,
            spec.topic,
            spec.partition,
            config=written_as,
            now_ms=writer.started_ms,
            actions=actions,
            **options,
        )
        if not last:
            only = f"{spec.topic}-{spec.partition}"
            kafka.clean(log_dir, config=spec.config | EAGER, now_ms=writer.now_ms, only=only)
            writer.pause(spec.pauses_ms[min(part, len(spec.pauses_ms) - 1)])
    return Written(
        log_dir=log_dir, config=spec.config, now_ms=writer.now_ms + 1, log_end_offset=reply["log_end_offset"]
    )


class _Writer:
    """The state of writing: clock, dice, and every producer's sequence."""

    def __init__(self, spec: LogSpec) -> None:
        self.spec = spec
        self.rng = random.Random(f"log {spec.seed}")
        self.now_ms = START_MS
        self.started_ms = START_MS
        self.idle = [_Producer(producer_id=1_000 + i) for i in range(spec.producers)]
        self.transactional = [_Producer(producer_id=5_000 + i) for i in range(spec.transactional_producers)]

    def pause(self, pause_ms: int) -> None:
        self.now_ms += pause_ms
        self.started_ms = self.now_ms

    def part(self, first: int, end: int) -> Iterator[Json]:
        """Yield the actions that write the records `first` up to `end`; the last part ends transactions."""
        self.started_ms = self.now_ms
        while first < end:
            count = min(end - first, self.rng.randint(1, self.spec.max_batch_records))
            first += count
            self.now_ms += self.rng.randint(0, 2 * self.spec.batch_interval_ms)
            yield from self._batch(count)
        if end == self.spec.records:
            for producer in self.transactional:
                if producer.in_transaction:
                    yield self._end(producer)

    def _batch(self, count: int) -> Iterator[Json]:
        fields: Json = {}
        producer = self._producer()
        if producer is not None:
            fields["producer"] = [producer.producer_id, producer.epoch, producer.sequence]
            producer.sequence += count
            if producer in self.transactional:
                fields["transactional"] = producer.in_transaction = True
        rows = [self._record() for _ in range(count)]
        yield append(rows, codec=self.rng.choice(self.spec.codecs), now_ms=self.now_ms, **fields)
        if producer is not None and producer.in_transaction and self.rng.random() < 0.3:
            yield self._end(producer)

    def _producer(self) -> _Producer | None:
        everyone = self.idle + self.transactional
        return self.rng.choice([None, *everyone]) if everyone else None

    def _end(self, producer: _Producer) -> Json:
        bumped = producer.epoch + (1 if self.spec.transaction_version == 2 else 0)
        kind = "commit" if self.rng.random() < 0.7 else "abort"
        if bumped != producer.epoch:
            producer.epoch, producer.sequence = bumped, 0
        producer.in_transaction = False
        return marker(
            kind,
            producer.producer_id,
            bumped,
            now_ms=self.now_ms,
            transaction_version=self.spec.transaction_version,
        )

    def _record(self) -> list[Any]:
        rng, spec = self.rng, self.spec
        value = None if rng.random() < spec.tombstones else self._value()
        headers = [("trace", rng.randbytes(4)), ("empty", None)][: rng.randint(1, 2)]
        if rng.random() >= spec.headers:
            headers = []
        return record(self.now_ms - rng.randint(0, spec.jitter_ms), self._key(), value, headers)

    def _key(self) -> bytes | None:
        dice = self.rng.random()
        if dice < self.spec.null_keys:
            return None
        if dice < self.spec.null_keys + self.spec.empty_keys:
            return b""
        number = int(self.spec.keys * (self.rng.random() ** (3 if self.spec.skewed else 1)))
        return b"key-%d" % number

    def _value(self) -> bytes:
        size = self.rng.randint(0, self.spec.max_value_bytes)
        noise = self.rng.randbytes(size // 2)
        return noise + b"compaction "[: size - len(noise)]


@dataclass(slots=True)
class _Producer:
    producer_id: int
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = dataclasses.field(default=False)
