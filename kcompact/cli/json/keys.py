"""The JSON of `keys`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from kcompact.cli.json.fields import (
    BOOLEAN,
    INTEGER,
    KNOWN_OR_NULL,
    NUMBER,
    STRING,
    TEXT,
    Document,
    Field,
    Shape,
    choice,
    list_of,
    map_of,
    nullable,
    tally,
)
from kcompact.cli.json.partitions import LEFT_OUT_DIRECTORIES, NOTES, NOW_MS, answer
from kcompact.plan.clean_plan import Role
from kcompact.questions.keys.counts import key_hash

WITH_PRINT_DATA = "with `--print-data`"

# Counts

COUNTS = Shape(
    "counts",
    *tally("records", "all that is in the `.log` files"),
    *tally("data_records", "what a reader of committed records sees"),
    *tally("live_keys", "the newest records of their keys, with a value"),
    *tally("superseded_records", "records with a key that has a newer record"),
    *tally("latest_tombstones", "the newest records of their keys, without a value: the sum of the next three"),
    *tally("unstamped_tombstones", "without a delete horizon"),
    *tally("waiting_tombstones", "with a delete horizon after `now_ms`"),
    *tally("expired_tombstones", "with a delete horizon that has passed"),
    *tally("null_key_records", "without a key"),
    *tally("control_records", "transaction markers"),
    *tally("aborted_records", "of aborted transactions"),
    *tally("undecided_records", "at or above `committed_end_offset`"),
    *tally("below_start_records", "below the log start"),
    *tally("empty_batches", "batches without a record; the bytes are those on the disk"),
    *tally("batches", "all batches; the bytes are those on the disk"),
    meaning="keys.md defines the classes of records. Each count has the bytes of what it counts beside it.",
)


# Keys


def _text(key: bytes | None) -> str | None:
    """Return a key as text, None without one and for one that is not UTF-8."""
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _base64(key: bytes | None) -> str | None:
    """Return a key that is not UTF-8 in base64, None for any other."""
    return None if key is None or _text(key) is not None else base64.b64encode(key).decode()


def key_fields(name: str, read: Callable[[Any], bytes | None], *, optional: str = "") -> tuple[Field, ...]:
    """Return the fields of a key. `optional` says when it is null."""
    null = f"; {optional}" if optional else ""
    sha256 = nullable(STRING) if optional else STRING
    return (
        Field(
            f"{name}_sha256",
            sha256,
            f"the first 16 hexadecimal digits of the SHA-256 of the {name}{null}",
            lambda each: None if (key := read(each)) is None else key_hash(key),
        ),
        Field(
            name,
            nullable(STRING),
            f"the {name}; null if it is not UTF-8{null}",
            lambda each: _text(read(each)),
            given=WITH_PRINT_DATA,
        ),
        Field(
            f"{name}_base64",
            nullable(STRING),
            f"a {name} that is not UTF-8, else null",
            lambda each: _base64(read(each)),
            given=WITH_PRINT_DATA,
        ),
    )


KEY = Shape(
    "key",
    *key_fields("key", attrgetter("key")),
    Field("versions", INTEGER, "all records of the key"),
    Field("bytes", INTEGER, "the bytes of these", "size_bytes"),
)

NAMED_KEY = Shape(
    "named-key",
    KEY,
    Field("latest_offset", INTEGER, "of the newest record of the key", "offset"),
    Field("latest_timestamp_ms", KNOWN_OR_NULL, "of that record; null if it has none", "timestamp_ms"),
    Field("latest_bytes", INTEGER, "the bytes of that record"),
    Field("is_tombstone", BOOLEAN, "whether that record has no value"),
)

SHARED_KEY = Shape("shared-key", KEY, Field("directories", list_of(TEXT), "the partitions that have the key"))

PREFIX = Shape(
    "prefix",
    *key_fields("prefix", attrgetter("prefix"), optional="null in the row of the keys without the separator"),
    Field("keys", INTEGER, "the different keys"),
    *tally("records", "their records that a reader of committed records sees"),
    *tally("live_keys", "the live keys"),
)

PREFIXES = Shape(
    "prefixes",
    Field(
        "separator", STRING, "the one of `--prefix`", lambda each: each.separator.decode("utf-8", "backslashreplace")
    ),
    Field(
        "count",
        INTEGER,
        "the number of rows that are known: the different prefixes, and one row for the keys without the separator if "
        "there are such keys",
    ),
    Field(
        "is_complete",
        BOOLEAN,
        "false with more than 100,000 rows: those with the fewest bytes are left out, and numbers may be too small",
    ),
    Field("most_records", list_of(PREFIX), "the rows with most records"),
    Field("most_bytes", list_of(PREFIX), "the rows with most bytes"),
)

VERSIONS = Shape(
    "versions",
    Field("least", INTEGER, "the smallest number of records of a key"),
    Field("most", INTEGER, "the greatest number of records of a key, included"),
    Field("keys", INTEGER, "the keys with so many records"),
    Field("records", INTEGER, "the records of these"),
)

AGES = Shape(
    "ages",
    Field(
        "kind",
        choice(("age", "future", "unknown")),
        "`future`: after `now_ms`; `unknown`: without a timestamp",
    ),
    Field("below_ms", nullable(INTEGER), "above all ages of the row; null for the oldest and for the other kinds"),
    *tally("live_keys", "the newest records of their keys, with a value"),
)

# A partition, and the partitions of a topic

LOG_KEYS = Shape(
    "keys",
    COUNTS.within("counts"),
    Field("distinct_keys", INTEGER, "live keys and latest tombstones", "keys"),
    Field(
        "duplicate_factor",
        nullable(NUMBER),
        "records with a key for each key; null without a key",
        "counts.duplicate_factor",
    ),
    Field("log_start_offset", INTEGER, "what a reader of committed records sees begins here"),
    Field(
        "committed_end_offset",
        INTEGER,
        "what a reader of committed records sees ends here. It is `last_stable_offset`, or the start of the batch in "
        "which that lies; after damage it can be lower",
    ),
    Field(
        "counted_to_offset",
        INTEGER,
        "the offset after the last record that was counted: the log end, or less because of damage",
    ),
    Field("versions", list_of(VERSIONS), "keys by their number of records"),
    Field("ages", list_of(AGES), "live keys by the age of their newest record"),
    Shape(
        "old-keys",
        Field(
            "old_keys",
            INTEGER,
            "live keys whose newest record is older than `--older-than`; null without it",
            "number",
        ),
        Field("old_keys_bytes", INTEGER, "the bytes of these; null without it", "size_bytes"),
    ).within("old", or_null=True),
    Field("oldest", list_of(NAMED_KEY), "the oldest of the keys in `old_keys`; empty without `--older-than`"),
    Field("most_versions", list_of(NAMED_KEY), "the keys with most records"),
    Field("most_bytes", list_of(NAMED_KEY), "the keys with most bytes"),
    Field("prefixes", nullable(PREFIXES), "with `--prefix`, else null"),
    Field("sections", map_of(COUNTS), "the counts by role of the segments"),
    Field(
        "segments",
        list_of(
            Shape(
                "segment-keys",
                Field("base_offset", INTEGER, "which segment"),
                Field("role", choice(Role), "its role"),
                COUNTS.within("counts"),
            )
        ),
        "the counts for each segment",
    ),
)

TOPIC = Shape(
    "topic",
    Field("topic", STRING, "the topic"),
    Field(
        "directories",
        list_of(TEXT),
        "the partitions that were counted",
        lambda topic: [each.directory for each in topic.answers if each.found is not None],
    ),
    Field(
        "incomplete",
        list_of(TEXT),
        "the partitions that could not be counted, or only up to their damage",
        lambda topic: [each.directory for each in topic.incomplete],
    ),
    COUNTS.within(lambda topic: topic.counted.counts if topic.counted.logs else None, or_null=True),
    Shape(
        "topic-keys",
        Field("duplicate_factor", nullable(NUMBER), "as of a partition", "counts.duplicate_factor"),
        Field("distinct_keys", INTEGER, "the different keys of all partitions"),
        Field("keys_in_several_partitions", INTEGER, "the keys that several partitions have", "shared_keys"),
        Field("most_shared", list_of(SHARED_KEY), "the keys that lie in most partitions"),
        meaning="The counts are the sums of the partitions that were counted, null if none was.",
    ).within(lambda topic: topic.counted if topic.counted.logs else None, or_null=True),
)

KEYS = Document(
    "keys",
    NOW_MS,
    NOTES,
    answer("keys", LOG_KEYS),
    LEFT_OUT_DIRECTORIES,
    Field("topics", list_of(TOPIC), "the partitions of a topic together"),
)
