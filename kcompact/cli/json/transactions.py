"""The JSON of `transactions`."""

from __future__ import annotations

from typing import NamedTuple

from kcompact.cli.json.fields import (
    BOOLEAN,
    INTEGER,
    KNOWN_OR_NULL,
    UNKNOWN,
    Document,
    Field,
    Shape,
    choice,
    list_of,
    map_of,
    nullable,
)
from kcompact.cli.json.partitions import LEFT_OUT_DIRECTORIES, NOTES, NOW_MS, answer
from kcompact.log.producer_state import Producer
from kcompact.questions.transactions.answer import Transaction, TransactionEnding

TRANSACTION = Shape(
    "transaction",
    Field("state", choice(TransactionEnding), "as in `totals`"),
    Field("producer_id", INTEGER, "of its producer"),
    Field("producer_epoch", INTEGER, "of its producer"),
    Field("first_offset", INTEGER, "of what is left"),
    Field("last_offset", INTEGER, "of what is left"),
    Field("batches", nullable(INTEGER), "what is left; null for an open transaction that lies behind the damage"),
    Field("records", nullable(INTEGER), "what is left; null for an open transaction that lies behind the damage"),
    Field("size_bytes", nullable(INTEGER), "what is left; null for an open transaction that lies behind the damage"),
    Field("first_timestamp_ms", KNOWN_OR_NULL, "of its first record; null if it has none"),
    Field("last_timestamp_ms", KNOWN_OR_NULL, "the producer's last write; null if it has no timestamp"),
    Field("is_committed", nullable(BOOLEAN), "how it ended"),
    Field(
        "coordinator_epoch",
        KNOWN_OR_NULL,
        "of the marker; of an open transaction that of the producer's last marker, null without one",
    ),
    Field("marker_offset", nullable(INTEGER), "where it ended"),
    Field("ended_timestamp_ms", KNOWN_OR_NULL, "when it ended; null if the marker has no timestamp"),
    Field("duration_ms", nullable(INTEGER), "from the first record that is left to the marker"),
    Field(
        "is_known_to_broker",
        nullable(BOOLEAN),
        "of an open transaction, whether the producer state has it; null if that cannot be read",
    ),
    Field("is_hanging", BOOLEAN, "false for all that have ended"),
    meaning="What is about the end is null for an open transaction.",
)


class _Open(NamedTuple):
    """An open transaction at a time."""

    transaction: Transaction
    now_ms: int


class _Known(NamedTuple):
    """A producer, and how long a broker keeps it."""

    producer: Producer
    expiration_ms: int


def since(timestamp_ms: int | None, now_ms: int) -> int | None:
    """Return the time since a timestamp, None for a record without one."""
    return None if timestamp_ms is None or timestamp_ms < 0 else now_ms - timestamp_ms


def _expires_ms(known: _Known) -> int | None:
    """Return when a broker forgets a producer. One with an open transaction does not expire."""
    producer = known.producer
    if producer.last_timestamp == UNKNOWN or producer.transaction_first_offset is not None:
        return None
    return producer.last_timestamp + known.expiration_ms


OPEN_TRANSACTION = Shape(
    "open-transaction",
    TRANSACTION.within("transaction"),
    Field(
        "open_for_ms",
        nullable(INTEGER),
        "the time since its first record; null without a timestamp",
        lambda each: since(each.transaction.first_timestamp_ms, each.now_ms),
    ),
    Field(
        "idle_for_ms",
        nullable(INTEGER),
        "the time since its producer's last write; null without a timestamp",
        lambda each: since(each.transaction.last_timestamp_ms, each.now_ms),
    ),
)

PRODUCER = Shape(
    "producer",
    Field("producer_id", INTEGER, "the producer", "producer.producer_id"),
    Field("producer_epoch", INTEGER, "its epoch", "producer.epoch"),
    Field("coordinator_epoch", KNOWN_OR_NULL, "of its last marker; null without one", "producer.coordinator_epoch"),
    Field(
        "last_timestamp_ms",
        KNOWN_OR_NULL,
        "of its last write; null if the broker has none",
        "producer.last_timestamp",
    ),
    Field("last_sequence", KNOWN_OR_NULL, "of its last write; null if the broker has none", "producer.last_sequence"),
    Field(
        "last_data_offset",
        nullable(INTEGER),
        "of its last write; null if the broker has none",
        "producer.last_data_offset",
    ),
    Field(
        "transaction_first_offset",
        nullable(INTEGER),
        "of its open transaction; null without one",
        "producer.transaction_first_offset",
    ),
    Field(
        "expires_ms",
        nullable(INTEGER),
        "when a broker forgets it; null while a transaction is open, and without a time of its last write",
        _expires_ms,
    ),
)

HELD_BACK = Shape(
    "held-back",
    Field("batches", INTEGER, "of data, from the last stable offset on"),
    Field("records", INTEGER, "of data, from the last stable offset on"),
    Field("size_bytes", INTEGER, "that of these batches"),
    Field("segments", list_of(INTEGER), "the base offsets of the closed segments that could be cleaned otherwise"),
    Field("segment_bytes", INTEGER, "the size of these segments"),
)

TOTALS = Shape(
    "transaction-totals",
    Field("transactions", INTEGER, "how many"),
    Field("committed", INTEGER, "how many of these were committed"),
    Field("batches", INTEGER, "what is left of them"),
    Field("records", INTEGER, "what is left of them"),
    Field("size_bytes", INTEGER, "what is left of them"),
    Field("longest_ms", nullable(INTEGER), "the length of the longest; null if no length is known"),
)

MARKERS = Shape(
    "markers",
    Field("with_data", INTEGER, "wait until no batch of their transaction is left"),
    Field("unstamped", INTEGER, "without a delete horizon: a cleaning can set it now"),
    Field("uncleanable", INTEGER, "without a delete horizon: a cleaning cannot set it yet"),
    Field("waiting", INTEGER, "with a delete horizon after `now_ms`"),
    Field("expired", INTEGER, "with a delete horizon that has passed"),
    Field("emptied", INTEGER, "empty batches that were markers"),
    Field(
        "kept_for_producers",
        INTEGER,
        "those of the kinds above, `emptied` apart, that stay as the last batch of a producer",
    ),
    Field("kept_until_ms", nullable(INTEGER), "until when these stay at the latest; null without one"),
    Field("first_horizon_ms", nullable(INTEGER), "of the waiting ones; null without one"),
    Field("last_horizon_ms", nullable(INTEGER), "of the waiting ones; null without one"),
    meaning="The markers by what they wait for.",
)

TOMBSTONES = Shape(
    "tombstones",
    Field("unstamped", INTEGER, "without a delete horizon: a cleaning can set it now"),
    Field("uncleanable", INTEGER, "without a delete horizon: a cleaning cannot set it yet"),
    Field("legacy", INTEGER, "of formats 0 and 1, which have no horizons"),
    Field("waiting", INTEGER, "with a delete horizon after `now_ms`"),
    Field("expired", INTEGER, "with a delete horizon that has passed"),
    Field("first_horizon_ms", nullable(INTEGER), "of the waiting ones; null without one"),
    Field("last_horizon_ms", nullable(INTEGER), "of the waiting ones; null without one"),
    meaning="All tombstones from the log start on, superseded ones included, by what they wait for.",
)


LOG_TRANSACTIONS = Shape(
    "transactions",
    Field(
        "committed",
        INTEGER,
        "committed transactions of which the log has records",
        lambda report: report.totals[TransactionEnding.COMMITTED].transactions,
    ),
    Field(
        "aborted",
        INTEGER,
        "aborted transactions of which the log has records",
        lambda report: report.totals[TransactionEnding.ABORTED].transactions,
    ),
    Field(
        "empty",
        INTEGER,
        "markers whose transactions have no record left",
        lambda report: sum(
            report.totals[state].transactions for state in (TransactionEnding.EMPTIED, TransactionEnding.GONE)
        ),
    ),
    Field("open", INTEGER, "transactions without a marker", lambda report: len(report.open)),
    Field("hanging", INTEGER, "open transactions that hang", lambda report: len(report.hanging)),
    Field("last_stable_offset", INTEGER, "as of the partition"),
    Field("high_watermark", INTEGER, "as of the partition"),
    Field("log_end_offset", INTEGER, "as of the partition"),
    Field("counted_to_offset", INTEGER, "the log end, or less because of damage"),
    Field("held_back", HELD_BACK, "what the last stable offset holds back"),
    Field(
        "totals",
        map_of(TOTALS),
        "by state: `committed`, `aborted`, `emptied` (only empty batches are left), `gone` (only the marker is left), "
        "`open`",
    ),
    Field(
        "open_transactions",
        list_of(OPEN_TRANSACTION),
        "all of them",
        lambda report: [_Open(each, report.now_ms) for each in report.open],
    ),
    Field("largest", list_of(TRANSACTION), "ten of the others"),
    Field("longest", list_of(TRANSACTION), "ten of the others"),
    Field("producer_ids", INTEGER, "how many producers have written in transactions"),
    Field(
        "producers",
        list_of(PRODUCER),
        "those that a broker has in its producer state",
        lambda report: [_Known(each, report.producer_expiration_ms) for each in report.producers],
    ),
    Field("markers", MARKERS, "by what they wait for"),
    Field("tombstones", TOMBSTONES, "by what they wait for"),
)

TRANSACTIONS = Document("transactions", NOW_MS, NOTES, answer("transactions", LOG_TRANSACTIONS), LEFT_OUT_DIRECTORIES)
