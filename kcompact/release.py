"""Which Kafka: the rules and defaults that differ between the releases of Kafka, as one value.

A plan has its release (`config.release`), a task too (`job.release`). The code asks the release for a rule, and never
compares version numbers. So another release is another `Release` here. What all releases share stays where it is used,
and a file that names its own version, such as a checkpoint, is read by the module of its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import float_info
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A release of Kafka. `version` is the one whose code and results kcompact is compared with.

    `defaults` has the default of each setting that kcompact uses, under the topic's name, or under the broker's name of
    a setting that topics lack; the policy is text. `delete_horizon_magic` is the first format whose batches store a
    delete horizon. `adds_final_time_entry`: a segment that is closed gets its greatest timestamp as the last entry of
    its time index.
    """

    version: str
    defaults: Mapping[str, Any] = field(compare=False, repr=False)
    delete_horizon_magic: int
    adds_final_time_entry: bool

    def stores_delete_horizon(self, magic: int) -> bool:
        """Return whether a batch of this format stores its delete horizon. Rule: `MemoryRecords.filterTo`, KIP-534.

        For tombstones in other batches the age of the segment decides.
        """
        return magic >= self.delete_horizon_magic

    def keeps_empty_last_batch(self, next_offset: Any, upper_bound: int, high_watermark: int) -> Any:
        """Return whether a batch without records stays because it is the last batch of the round.

        `next_offset` is the offset after the batch: a number, or a column of them for a column of answers. The round
        ends at `upper_bound`. This release does not ask for the high watermark.
        Rule: `Cleaner.checkBatchRetention`, KAFKA-17076.
        """
        return next_offset == upper_bound


KAFKA_4_3 = Release(
    version="4.3.1",
    defaults={
        "cleanup.policy": "delete",
        "min.cleanable.dirty.ratio": 0.5,
        "min.compaction.lag.ms": 0,
        "max.compaction.lag.ms": (1 << 63) - 1,
        "delete.retention.ms": 86_400_000,
        "segment.bytes": 1_073_741_824,
        "segment.ms": 604_800_000,
        "segment.jitter.ms": 0,
        "segment.index.bytes": 10_485_760,
        "index.interval.bytes": 4096,
        "retention.bytes": -1,
        "retention.ms": 604_800_000,
        "producer.id.expiration.ms": 86_400_000,
        "transaction.max.timeout.ms": 900_000,
        "remote.storage.enable": False,
        "log.cleaner.enable": True,
        "log.cleaner.dedupe.buffer.size": 134_217_728,
        "log.cleaner.threads": 1,
        "log.cleaner.io.buffer.load.factor": 0.9,
        "log.cleaner.backoff.ms": 15_000,
        "log.cleaner.io.max.bytes.per.second": float_info.max,
    },
    delete_horizon_magic=2,
    adds_final_time_entry=True,
)
