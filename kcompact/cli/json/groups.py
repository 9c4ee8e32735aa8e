"""The JSON of `groups`."""

from __future__ import annotations

from kcompact.cli.json.fields import INTEGER, STRING, Document, Field, Shape, choice, list_of, nullable
from kcompact.cli.json.partitions import ERROR, IDENTITY, LEFT_OUT_DIRECTORIES, NOTES, NOW_MS
from kcompact.questions.groups import GroupType

GROUP = Shape(
    "group",
    Field("group", STRING, "its name"),
    Field("type", choice(GroupType), "what it is, by its newest records"),
    Field("members", nullable(INTEGER), "live members; null if the record of a classic group cannot be decoded"),
    Field("offsets", INTEGER, "live offsets"),
    Field("pending_offsets", INTEGER, "offsets of open transactions"),
    Field("tombstones", INTEGER, "tombstones"),
    Field("records", INTEGER, "all its records"),
    Field("size_bytes", INTEGER, "the bytes of these"),
    Field("live_bytes", INTEGER, "the bytes of the live ones"),
)

LOG_GROUPS = Shape(
    "log-groups",
    Field("undecoded_records", INTEGER, "records that could not be decoded"),
    Field("undecoded_bytes", INTEGER, "the bytes of these"),
    Field("other_bytes", INTEGER, "the bytes of markers and empty batches"),
    meaning="These are null for a partition that could not be read.",
)


GROUPS = Document(
    "groups",
    NOW_MS,
    NOTES,
    Field(
        "partitions",
        list_of(
            Shape(
                "partition",
                IDENTITY,
                Field(
                    "groups",
                    list_of(GROUP),
                    "the groups, the largest first",
                    lambda answer: answer.found.groups if answer.found else (),
                ),
                LOG_GROUPS.within("found", or_null=True),
                ERROR,
            )
        ),
        "an object for each partition of `__consumer_offsets`",
    ),
    LEFT_OUT_DIRECTORIES,
)
