"""Which Kafka: the rules and defaults that differ between the releases of Kafka, as one value.

A plan has its release (`config.release`), a task too (`job.release`). The code asks the release for a rule, and never
compares version numbers. So another release is another `Release` here. What all releases share stays where it is used,
and a file that names its own version, such as a checkpoint, is read by the module of its format. `docs/releases.md`
lists what differs, also what makes no difference to a stopped broker's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from sys import float_info
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The releases of Kafka with the same first two numbers.

    `name` has these, `version` is the release whose code and results kcompact is compared with.
    `metadata_version` is the greatest level of the feature `metadata.version` that a broker of it registers.
    `defaults` has the default of each setting that kcompact uses, under the topic's name, or under the broker's name of
    a setting that topics lack; the policy is text. `keeps_only_at_high_watermark`: the last batch of a round stays
    empty only if no record follows that is replicated. `converts_old_formats`: a cleaning turns batches of magic 0 and
    1 into version 2; else they stay in their format, and never get a delete horizon. `finds_unstable_batch`: an open
    transaction that began below the log start holds back records from the base offset of the batch there on, which can
    be above the log start; else from the log start on.
    """

    name: str
    version: str
    metadata_version: int
    defaults: Mapping[str, Any] = field(compare=False, repr=False)
    keeps_only_at_high_watermark: bool
    converts_old_formats: bool
    finds_unstable_batch: bool

    def keeps_empty_last_batch(self, next_offset: Any, upper_bound: int, high_watermark: int) -> Any:
        """Return whether a batch without records stays because it is the last batch of the round.

        `next_offset` is the offset after the batch: a number, or a column of them for a column of answers. The round
        ends at `upper_bound`. Rule: `Cleaner.cleanInto`, KAFKA-17076; with `keeps_only_at_high_watermark` KAFKA-20452.
        """
        return next_offset == (high_watermark if self.keeps_only_at_high_watermark else upper_bound)


class ReleaseSource(StrEnum):
    """How the release of a partition is known."""

    OPTION = "option"
    REGISTRATION = "broker-registration"
    META_PROPERTIES = "meta-properties"
    NEWEST = "newest"


_DEFAULTS = {
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
}
"""The same in all of these releases."""

NEWEST = Release(
    name="4.4",
    version="4.4.0",
    metadata_version=33,
    defaults=_DEFAULTS,
    keeps_only_at_high_watermark=True,
    converts_old_formats=True,
    finds_unstable_batch=True,
)
KAFKA_4_3 = replace(NEWEST, name="4.3", version="4.3.1", metadata_version=30, keeps_only_at_high_watermark=False)
KAFKA_4_0 = replace(KAFKA_4_3, name="4.0", version="4.0.2", metadata_version=25)
OLDEST = replace(
    KAFKA_4_0,
    name="3.9",
    version="3.9.2",
    metadata_version=21,
    converts_old_formats=False,
    finds_unstable_batch=False,
)

RELEASES = {each.name: each for each in (NEWEST, KAFKA_4_3, KAFKA_4_0, OLDEST)}
"""By name, newest first."""
