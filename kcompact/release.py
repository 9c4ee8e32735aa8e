"""Which Kafka: the rules and defaults that differ between the releases of Kafka, as one value.

`release_of` finds the rules of a version. Several versions share them, so a release is named after the newest of those.

A plan has its release (`config.release`), a task too (`job.release`). The code asks the release for a rule, and never
compares version numbers. So another release is another `Release` here. What all releases share stays where it is used,
and a file that names its own version, such as a checkpoint, is read by the module of its format. `docs/releases.md`
lists what differs, also what makes no difference to a stopped broker's files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum, StrEnum
from sys import float_info
from typing import Any

from kcompact.values import dataclass


class EmptyLastBatch(Enum):
    """When the last batch of a round stays although it has lost all its records. Rule: `Cleaner.cleanInto`."""

    NEVER = "before KAFKA-17076"
    ALWAYS = "KAFKA-17076"
    AT_HIGH_WATERMARK = "KAFKA-20452: only if no record follows that is replicated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The versions of Kafka whose cleaner has the same rules, from `since` up to the next release.

    `name` has the first two numbers of the newest of them, `version` is the one whose code and results kcompact is
    compared with. `defaults` has the default of each setting that kcompact uses, under the topic's name, or under the
    broker's name of a setting that topics lack; the policy is text. `producer_expiration` is the broker's name of
    `producer.id.expiration.ms`. `converts_old_formats`: a cleaning turns batches of magic 0 and 1 into version 2; else
    they stay in their format, and never get a delete horizon. `finds_unstable_batch`: an open transaction that began
    below the log start holds back records from the base offset of the batch there on, which can be above the log start;
    else from the log start on.
    """

    name: str
    version: str
    since: tuple[int, ...] = field(compare=False)
    defaults: Mapping[str, Any] = field(compare=False, repr=False)
    producer_expiration: str = "producer.id.expiration.ms"
    empty_last_batch: EmptyLastBatch
    converts_old_formats: bool
    finds_unstable_batch: bool
    reads_whole_txn_version: bool = False

    def refuses_txn_version(self, version: int) -> bool:
        """Return whether a broker ends at an entry of a `.txnindex` of another version than 0.

        Before 4.4 it reads the first of the two bytes. Rule: TransactionIndex.iterable.
        """
        return version != 0 if self.reads_whole_txn_version else version >> 8 > 0

    def keeps_empty_last_batch(self, next_offset: Any, upper_bound: int, high_watermark: int) -> Any:
        """Return whether a batch without records stays because it is the last batch of the round.

        `next_offset` is the offset after the batch: a number, or a column of them for a column of answers. The round
        ends at `upper_bound`.
        """
        match self.empty_last_batch:
            case EmptyLastBatch.NEVER:
                return next_offset < 0
            case EmptyLastBatch.ALWAYS:
                return next_offset == upper_bound
            case EmptyLastBatch.AT_HIGH_WATERMARK:
                return next_offset == high_watermark


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
    since=(4, 4),
    defaults=_DEFAULTS,
    empty_last_batch=EmptyLastBatch.AT_HIGH_WATERMARK,
    converts_old_formats=True,
    finds_unstable_batch=True,
    reads_whole_txn_version=True,
)
KAFKA_4_3 = replace(NEWEST, name="4.3", version="4.3.1", since=(4, 3), empty_last_batch=EmptyLastBatch.ALWAYS)
KAFKA_4_0 = replace(KAFKA_4_3, name="4.0", version="4.0.2", since=(4, 0))
KAFKA_3_9 = replace(
    KAFKA_4_0,
    name="3.9",
    version="3.9.2",
    since=(3, 9, 2),
    converts_old_formats=False,
    finds_unstable_batch=False,
)
KAFKA_3_8 = replace(KAFKA_3_9, name="3.8", version="3.8.1", since=(3, 4), empty_last_batch=EmptyLastBatch.NEVER)
RELEASES = {each.name: each for each in (NEWEST, KAFKA_4_3, KAFKA_4_0, KAFKA_3_9, KAFKA_3_8)}
"""By name, newest first."""

_OF_PRODUCERS_BEFORE_3_4: dict[str, Any] = {
    "defaults": _DEFAULTS | {"producer.id.expiration.ms": 604_800_000},
    "producer_expiration": "transactional.id.expiration.ms",
}
_KAFKA_3_1 = replace(KAFKA_3_8, since=(3, 1), **_OF_PRODUCERS_BEFORE_3_4)
OLDER = replace(KAFKA_3_9, since=(2, 8), **_OF_PRODUCERS_BEFORE_3_4)
"""2.8 and 3.0. Their cleaner can lose a newest value, so it is not imitated."""

METADATA_LEVELS = {
    "4.4": 33,
    "4.3": 30,
    "4.2": 29,
    "4.1": 27,
    "4.0": 25,
    "3.9": 21,
    "3.8": 20,
    "3.7": 19,
    "3.6": 14,
    "3.5": 11,
    "3.4": 8,
    "3.3": 7,
}
"""The greatest level of the feature `metadata.version` that a broker registers, by the first two numbers of its
version, newest first. With unstable features a broker registers levels of the next one. Rule: `MetadataVersion`."""
VERSIONS = (*METADATA_LEVELS, "3.2", "3.1", "3.0", "2.8")
"""The first two numbers of all versions whose rules are known, newest first."""


def release_of(version: str) -> Release:
    """Return the rules of a version such as `3.6.2`; without a third number those of the newest patch release.

    Raises ValueError with the end of a sentence that starts with the version.
    """
    match = re.fullmatch(r"(\d{1,2})\.(\d{1,2})(?:\.(\d{1,3}))?", version, re.ASCII)
    if match is None or f"{match[1]}.{match[2]}" not in VERSIONS:
        raise ValueError(f"is not a version of Kafka from {VERSIONS[-1]} to {VERSIONS[0]}")
    numbers = (int(match[1]), int(match[2]), float("inf") if match[3] is None else int(match[3]))
    return next(each for each in (*RELEASES.values(), _KAFKA_3_1, OLDER) if each.since <= numbers)
