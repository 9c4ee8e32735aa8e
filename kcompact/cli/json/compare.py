"""The JSON of `compare`."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from kcompact.cli.json.fields import (
    BOOLEAN,
    INTEGER,
    STRING,
    TEXT,
    Document,
    Field,
    Shape,
    choice,
    list_of,
    nullable,
)
from kcompact.cli.json.keys import key_fields
from kcompact.format.names import TopicPartition
from kcompact.questions.compare import findings
from kcompact.questions.compare.answer import ReplicaVerdict
from kcompact.questions.compare.before_start import Action

WITH_BEFORE_START = "with `--before-start`"


EXAMPLE = Shape(
    "compared-key",
    Field("offset", INTEGER, "of a record of the key", lambda pair: pair[0]),
    *key_fields("key", itemgetter(1), optional="null if it cannot be read"),
)

FINDING = Shape(
    "replica-finding",
    Field("kind", choice(findings.DifferenceKind), "what is wrong, as in compare.md", "finding.kind"),
    Field("replicas", list_of(TEXT), "the replicas that are concerned, as given"),
    Field("certainty", choice(findings.Certainty), "how sure it is", "finding.certainty"),
    Field("right", nullable(list_of(TEXT)), "the replicas that files prove to be right; null if they do not say"),
    Field("count", INTEGER, "the number of keys, records, batches or transactions", "finding.count"),
    Field("offsets", list_of(INTEGER), "the offsets of the first of them", "finding.offsets"),
    Field("examples", list_of(EXAMPLE), "the first keys, if it is about keys", "keys"),
    Field("why", STRING, "what happened, and what consumers see", "advice.why"),
    Field("do", STRING, "what to do", "advice.do"),
)

REPLICA = Shape(
    "replica",
    Field("path", TEXT, "as given"),
    Field("directory", TEXT, "the directory of the partition"),
    Field("node_id", nullable(INTEGER), "the broker, by `meta.properties`; null without it"),
    Field("log_start_offset", INTEGER, "the first offset"),
    Field("log_end_offset", INTEGER, "the offset after the last record"),
    Field("high_watermark", nullable(INTEGER), "that of the checkpoint, which can be old; null without one"),
    Field("is_leader", nullable(BOOLEAN), "by the newest metadata log; null if that does not say"),
    Field("is_in_sync", nullable(BOOLEAN), "the same"),
    Field("batches", INTEGER, "the batches that were read"),
    Field("records", INTEGER, "their records"),
    Field("size_bytes", INTEGER, "their bytes"),
)

NOT_COMPARED = Shape(
    "not-compared",
    Field("path", TEXT, "which replica"),
    Field("from_offset", INTEGER, "the first offset"),
    Field("to_offset", INTEGER, "the offset after the last one"),
    Field("why", STRING, "why"),
)


def _rebuilt(why: str) -> Any:
    return lambda partition: partition.rebuilt.get(why, 0)


LAWFUL = Shape(
    "lawful",
    Field("equal_batches", INTEGER, "batches with the same bytes in all replicas that have them"),
    Field("alone_batches", INTEGER, "batches that another replica lacks, counted for each replica", "alone"),
    Field("other_format_batches", INTEGER, "batches in another format in another replica", _rebuilt("format")),
    Field("other_codec_batches", INTEGER, "batches with another compression", _rebuilt("codec")),
    Field("other_horizon_batches", INTEGER, "batches with another delete horizon", _rebuilt("delete-horizon")),
    Field("other_records_batches", INTEGER, "batches with fewer or more records", _rebuilt("records")),
)

IDENTITY = Shape(
    "compared-topic-partition",
    Field("topic", STRING, "the topic"),
    Field("partition", INTEGER, "the number"),
)

PARTITION = Shape(
    "compared-partition",
    IDENTITY.within("topic_partition"),
    Field("verdict", nullable(choice(ReplicaVerdict)), "what the comparison has shown; null with an error"),
    Field("replicas", list_of(REPLICA), "the replicas"),
    Field("compared_from", nullable(INTEGER), "the first offset that was compared"),
    Field("compared_to", nullable(INTEGER), "the offset after the last one"),
    Field("not_compared", list_of(NOT_COMPARED), "what was not"),
    Field("fork", nullable(INTEGER), "the replicas may differ from this offset on; null without a fork", "fork_offset"),
    Field("keys", INTEGER, "the different keys"),
    Field(
        "lawful",
        nullable(LAWFUL),
        "what differs lawfully; null with an error",
        lambda partition: None if partition.error else partition,
    ),
    Field("findings", list_of(FINDING), "what no lawful history explains, the gravest first"),
    Field("error", nullable(TEXT), "why the partition was not compared; null if it was"),
    Field("exit_code", INTEGER, "the gravest exit code of the error, the findings, and what was not compared"),
)

COMPARE = Document(
    "compare",
    Field("partitions", list_of(PARTITION), "an object for each partition that two paths or more have"),
    Field(
        "alone",
        list_of(
            Shape(
                "alone",
                IDENTITY.within(itemgetter(0)),
                Field("path", TEXT, "the only path that has it", itemgetter(1)),
                Field(
                    "missing_on",
                    nullable(list_of(TEXT)),
                    "the other paths whose brokers should have it by the cluster metadata; null if that does not say",
                    itemgetter(2),
                ),
            )
        ),
        "the partitions that only one path has",
    ),
    Field(
        "before_start",
        list_of(
            Shape(
                "before-start",
                IDENTITY.within(lambda each: TopicPartition.parse(each.partition)),
                Field("directory", TEXT, "that of the stopped broker"),
                Field("action", choice(Action), "what to do with it"),
                Field("kinds", list_of(choice(findings.DifferenceKind)), "why"),
                Field("command", nullable(STRING), "the command for it, else null", lambda each: each.command or None),
            )
        ),
        "what to do before the broker of the first path starts",
        given=WITH_BEFORE_START,
    ),
    Field(
        "is_all_compared",
        BOOLEAN,
        "whether all partitions of the log directory of the first path were compared whole",
        given=WITH_BEFORE_START,
    ),
)
