"""A log directory that the real Kafka wrote: what the kills and the power cuts are tried on.

`orders-0` has transactions, snapshots, tombstones and eight closed segments, which a cleaning makes into three groups.
`prices-0` has one group and shares the checkpoint. All batches are small, so that states are small and loads are fast;
the indexes have an entry for nearly every batch.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kcompact.cleaner.cleaning import CleanOptions
from kcompact.cleaner.outcome import RoundResult
from kcompact.cleaner.round import clean_log_dir
from kcompact.plan.options import PlanOptions
from tests.oracle.real_kafka import Json, RealKafka, append, marker, record, roll

START_MS = 1_700_000_000_000
NOW_MS = START_MS + 3_600_000
ORDERS, PRICES = "orders-0", "prices-0"
CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": "2700",
    "index.interval.bytes": "64",
    "delete.retention.ms": "86400000",
    "max.message.bytes": "2000",
}
EXPIRING = CONFIG | {"cleanup.policy": "compact,delete", "retention.bytes": "1500", "retention.ms": "-1"}
"""With it, retention deletes the oldest segments of `orders-0` even after the cleaning."""

SEGMENTS = (6, 6, 6, 5, 5, 5, 8, 8)
"""Batches of each closed segment of `orders-0`: with CONFIG, groups of three, three and two segments."""


SUPERSEDED = (2, 5)
"""Segments at the end of a group, of which nothing survives: the new segment ends before they begin."""
BASES = (0, 12, 26, 32, 41, 51, 56, 75, 90)
"""The base offsets of `orders-0`."""
CLEANED_BASES = {ORDERS: {0, 32, 56}, PRICES: {0}}
"""The base offsets of the cleaned segments."""
CHECKPOINT_NAME = "cleaner-offset-checkpoint"
CHECKPOINT = "0\n2\norders 0 90\nprices 0 23\n"
"""The cleaner's checkpoint after a cleaning."""


def write(kafka: RealKafka, log_dir: Path) -> None:
    """Write the log directory, as a broker leaves it that was stopped."""
    written_as = CONFIG | {"segment.bytes": "1048576"}
    for topic, segments in (("orders", SEGMENTS), ("prices", (6, 6))):
        kafka.write(log_dir, topic, config=written_as, now_ms=START_MS, actions=list(_actions(topic, segments)))


def clean(
    log_dir: Path, config: dict[str, str] | None = None, *, topics: tuple[str, ...] = (), **options: Any
) -> RoundResult:
    """Clean the log directory, or some topics, in this process; `options` are those of `CleanOptions`."""
    plan_options = PlanOptions(now_ms=NOW_MS, force=True, topics=topics)
    return clean_log_dir(log_dir, config or CONFIG, plan_options=plan_options, options=CleanOptions(**options))


def _actions(topic: str, segments: tuple[int, ...]) -> Iterator[Json]:
    """Yield batches of plain, idempotent and transactional producers; the first transaction of each segment is aborted.

    The active segment of `prices-0` ends with an open transaction.
    """
    dice = random.Random(topic)
    now_ms, transaction, sequences = START_MS, 0, {1: 0, 2: 0, 3: 0}
    for number, count in enumerate((*segments, 3)):
        is_active = number == len(segments)
        for batch in range(count):
            now_ms += 1000
            rows = [
                record(now_ms, b"key-%d" % dice.randrange(14), None if dice.random() < 0.1 else dice.randbytes(20))
                for _ in range(dice.randint(1, 3))
            ]
            producer = dice.choice((None, 1, 2, 3)) if batch else 3
            if batch == 1:  # The segment holds the latest record of a key, so that none can be missed.
                rows, producer = [record(now_ms, b"only-%d" % number, dice.randbytes(20))], None
            if topic == "orders" and number in SUPERSEDED:
                rows, producer = [record(now_ms, b"only-%d" % (number + 1), dice.randbytes(20))], None
            if producer is None:
                yield append(rows, now_ms=now_ms)
                continue
            fields: Json = {"producer": [producer, 0, sequences[producer]], "transactional": producer == 3}
            sequences[producer] += len(rows)
            yield append(rows, now_ms=now_ms, **fields)
            if producer == 3 and not (is_active and batch == 0):
                transaction += 1
                yield marker("commit" if batch and transaction % 3 else "abort", 3, 0, now_ms=now_ms)
        if not is_active:
            yield roll(now_ms=now_ms)
