"""The JSON of `inspect` and `verify`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kcompact.cli.entries import FileEntry, Inspected
from kcompact.cli.json.fields import (
    INTEGER,
    STRING,
    TEXT,
    Document,
    Field,
    Shape,
    choice,
    list_of,
    nullable,
    one_of,
)
from kcompact.cli.json.files import ENTRIES
from kcompact.cli.json.partitions import (
    ERROR,
    LEFT_OUT_DIRECTORIES,
    NOTES,
    NOW_MS,
    PLANNED,
    SEGMENT,
    WITH_FILES,
    PlannedSegment,
    planned_segments,
)
from kcompact.plan.walk import Answer
from kcompact.questions.contents import SegmentContents
from kcompact.questions.verify.findings import FileSeverity

FINDING = Shape(
    "finding",
    Field("severity", choice(FileSeverity), "how serious it is"),
    Field("file", STRING, "the name of the file"),
    Field("problem", STRING, "what is wrong"),
    Field("position", nullable(INTEGER), "of the batch; null if the finding is on the whole file"),
    Field("offset", nullable(INTEGER), "of the batch; null if the finding is on the whole file"),
)

CONTENTS = Shape(
    "contents",
    Field("batches", INTEGER, "all batches"),
    Field(
        "records",
        nullable(INTEGER),
        "null if a compressed batch is older than Kafka 0.11, because its header does not say how many it has; "
        "`verify` counts them",
    ),
    Field(
        "first_offset",
        nullable(INTEGER),
        "of the first batch; null without a batch, and in `inspect` if that is compressed and older than Kafka 0.11, "
        "because its header only has the last offset",
    ),
    Field("last_offset", nullable(INTEGER), "of the last batch; null without a batch"),
    Field("empty_batches", INTEGER, "batches without a record"),
    Field("control_batches", INTEGER, "batches of markers"),
    Field("transactional_batches", INTEGER, "batches of transactions, markers included"),
    Field("horizon_batches", INTEGER, "batches with a delete horizon"),
    Field(
        "tombstones",
        nullable(INTEGER),
        "records with a key and without a value, whether they are superseded or not. Null in `inspect`, and if a batch "
        "could not be read",
    ),
    Field(
        "null_keys",
        nullable(INTEGER),
        "records without a key, whether they are superseded or not. Null in `inspect`, and if a batch could not "
        "be read",
    ),
    meaning="Counts of everything in the `.log`. In a damaged one they end at the damage; they are null if it begins "
    "with it, and if the command does not count them.",
)


class InspectedSegment(NamedTuple):
    """A segment with its place in the plan and its contents."""

    planned: PlannedSegment
    contents: SegmentContents | None


def counted(segment: InspectedSegment | FileEntry) -> SegmentContents | None:
    """Return the counts of a segment, None if it begins with damage, or if nothing was counted."""
    contents = segment.contents
    return None if contents is None or (contents.damage is not None and not contents.batches) else contents


INSPECTED_SEGMENT = Shape("inspected-segment", SEGMENT.within("planned"), CONTENTS.within(counted, or_null=True))


def _segments(answer: Answer[Inspected]) -> list[InspectedSegment] | None:
    segments = planned_segments(answer)
    if segments is None:
        return None
    contents_of_segments: Sequence[SegmentContents | None] = (
        answer.found.contents.segments if answer.found else [None] * len(segments)
    )
    return [InspectedSegment(each, contents) for each, contents in zip(segments, contents_of_segments, strict=True)]


INSPECTED = Shape(
    "inspected-partition",
    PLANNED,
    Field(
        "segments",
        nullable(list_of(INSPECTED_SEGMENT)),
        "the segments, in the order of their offsets; null without a plan",
        _segments,
    ),
    ERROR,
    Field(
        "leftovers",
        nullable(list_of(STRING)),
        "names of files of interrupted work; null without a plan",
        lambda entry: [*entry.plan.log.leftovers, *entry.plan.log.staging] if entry.plan else None,
    ),
    Shape(
        "files-of-partition",
        Field(
            "deleted",
            list_of(STRING),
            "names of files that a broker has marked for deletion; null without a plan",
            "log.deleted",
        ),
        Field("foreign", list_of(STRING), "names of files that are not Kafka's; null without a plan", "log.foreign"),
    ).within("plan", or_null=True),
)

FINDINGS = Field(
    "findings",
    nullable(list_of(FINDING)),
    "what is wrong; null for a partition that could not be read",
    lambda answer: answer.found.findings if answer.found else None,
)
VERIFIED = Shape("verified-partition", INSPECTED, FINDINGS)

FILE = Shape(
    "file",
    Field("file", TEXT, "the path", "path"),
    Field(
        "kind",
        nullable(STRING),
        "`log`, `index`, `timeindex`, `txnindex`, `snapshot`, `checkpoint`, or the file's name; null if kcompact does "
        "not read such files",
    ),
    Field("base_offset", nullable(INTEGER), "in the name; null without one"),
    Field("size_bytes", nullable(INTEGER), "null if the file is unreadable"),
    Field(
        "contents",
        nullable(CONTENTS.within(counted, or_null=True)),
        "counts, null if the file is no log",
        lambda entry: None if entry.contents is None else entry,
    ),
    Field("entries", nullable(list_of(one_of(ENTRIES))), "null for a log"),
    Field("findings", nullable(list_of(FINDING)), "what is wrong, of `verify`; null of `inspect`"),
    ERROR,
)

FILES = Field("files", list_of(FILE), "an object for each file", given=WITH_FILES)

INSPECT = Document(
    "inspect",
    NOW_MS,
    NOTES,
    Field("partitions", list_of(INSPECTED), "an object for each partition"),
    LEFT_OUT_DIRECTORIES,
    FILES,
)

VERIFY = Document(
    "verify",
    NOW_MS,
    NOTES,
    Field("partitions", list_of(VERIFIED), "an object for each partition"),
    LEFT_OUT_DIRECTORIES,
    FILES,
)
