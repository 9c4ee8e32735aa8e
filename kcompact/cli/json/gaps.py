"""The JSON of `gaps`."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from kcompact.cli.json.fields import (
    INTEGER,
    KNOWN_OR_NULL,
    NUMBER,
    STRING,
    Document,
    Field,
    Shape,
    ValueKind,
    choice,
    list_of,
    nullable,
    one_of,
)
from kcompact.cli.json.partitions import LEFT_OUT_DIRECTORIES, NOTES, NOW_MS, answer
from kcompact.questions.gaps.walks import Evidence, Label

WALK = Shape(
    "gap-walk",
    Field("rows", INTEGER, "data records"),
    Field("gaps", INTEGER, "gaps between the rows"),
    Field("first_gap_offset", nullable(INTEGER), "the row after the first gap; null without a gap"),
    Field("last_gap_offset", nullable(INTEGER), "the row after the last gap; null without a gap"),
    Field("last_gap_row", nullable(INTEGER), "the number of the row after the last gap; null without a gap"),
    Field("last_gap_timestamp_ms", nullable(INTEGER), "the timestamp of that row; null without a gap"),
    Field("last_offset", nullable(INTEGER), "of the last row; null without a row"),
    Field("last_row", nullable(INTEGER), "the number of the last row; null without a row"),
    Field("contiguous_rows_since_gap", nullable(INTEGER), "rows after the last gap, all without a gap"),
    Field(
        "offsets_present_ratio",
        nullable(NUMBER),
        "the share of the offsets that have a record, or in the walks of consumers that are rows; null for a log "
        "without offsets",
    ),
    meaning="The fields of the partition are a walk over the files, which passes over markers. In the walks of "
    "consumers markers are gaps.",
)

MISSING = Shape(
    "missing-offsets-by-cause",
    Field("between_batches", INTEGER, "missing between two batches"),
    Field("inside_batches", INTEGER, "missing between two records of a batch"),
    Field("in_lost_tails", INTEGER, "missing after the last record of a batch"),
    Field("in_empty_batches", INTEGER, "of batches without a record"),
)

SEGMENT = Shape(
    "segment-gaps",
    Field("base_offset", INTEGER, "of the segment"),
    Field("end_offset", INTEGER, "of the segment, or lower where damage ended the count"),
    Field("first_offset", nullable(INTEGER), "of the first record; null without one"),
    Field("present_offsets", INTEGER, "offsets with a record", "counts.present"),
    Field("missing_offsets", INTEGER, "offsets without a record", "counts.missing"),
    Field("missing", MISSING, "these by what took them", "counts"),
    Field("gaps", INTEGER, "gaps between the rows"),
    Field("first_gap_offset", nullable(INTEGER), "the first row of this segment after a gap; null without one"),
    Field("last_gap_offset", nullable(INTEGER), "the last row of this segment after a gap; null without one"),
)

DIRTY = Shape(
    "dirty-gaps",
    Field("rows", INTEGER, "data records"),
    Field("gaps", INTEGER, "gaps between the rows"),
    Field("missing_offsets", INTEGER, "offsets without a record", "missing"),
)


# Evidence


def _fact(name: str, *values: Field) -> Shape:
    """Return the shape of a fact, which has values of its own."""
    return Shape(
        name,
        Field("label", choice(Label), "how much the fact says"),
        Field("name", ValueKind({"const": name}), "the name of the fact"),
        Field("text", STRING, "the fact as a sentence"),
        *(Field(each.name, each.kind, each.meaning, _value(each.name)) for each in values),
        variant=name,
    )


def _value(name: str) -> Callable[[Evidence], object]:
    return lambda fact: fact.values[name]


BASE_OFFSET = Field("base_offset", INTEGER, "of the segment")
MISSING_OFFSETS = Field("missing_offsets", INTEGER, "offsets without a record")
BATCHES = Field("batches", INTEGER, "how many batches")
TO_OFFSET = Field("to_offset", INTEGER, "up to which offset")
INDEX_INTERVAL = Field("index_interval_bytes", INTEGER, "the setting")

NAMED_SEGMENT = Shape(
    "evidence-segment-name",
    BASE_OFFSET,
    Field("first_offset", INTEGER, "of its first record"),
    meaning="Of `segment-names`.",
    reads=itemgetter,
)
OLD_SNAPSHOT = Shape(
    "evidence-old-snapshot",
    BASE_OFFSET,
    Field("snapshot_modified_ms", INTEGER, "the time of its `.snapshot`"),
    Field("log_modified_ms", INTEGER, "the time of its `.log`"),
    meaning="Of `old-snapshots`.",
    reads=itemgetter,
)
ODD_INDEX = Shape(
    "evidence-index",
    BASE_OFFSET,
    Field("size_bytes", INTEGER, "of its `.log`"),
    Field("batches", INTEGER, "in its `.log`"),
    Field("entries", INTEGER, "in its `.index`"),
    Field("possible_entries", INTEGER, "that its batches and the setting allow"),
    meaning="Of `sparse-index`, `large-batches` and `dense-index`.",
    reads=itemgetter,
)
ODD_INDEXES = (Field("segments", list_of(ODD_INDEX), "the segments with such an index"), INDEX_INTERVAL)

EVIDENCE = {
    "lost-records": _fact(
        "lost-records", Field("file", STRING, "an empty closed `.log`, or one shorter than its index")
    ),
    "missing-offsets": _fact("missing-offsets", MISSING_OFFSETS),
    "nothing-missing": _fact("nothing-missing"),
    "last-gap": _fact(
        "last-gap",
        Field("offset", INTEGER, "of the row after the last gap"),
        Field("row", INTEGER, "the number of that row"),
        Field("timestamp_ms", nullable(INTEGER), "the timestamp of that row; null if it has none"),
    ),
    "contiguous-rows": _fact("contiguous-rows", Field("rows", INTEGER, "rows after the last gap")),
    "after-last-row": _fact("after-last-row", MISSING_OFFSETS, TO_OFFSET),
    "lost-tails": _fact("lost-tails", BATCHES, MISSING_OFFSETS),
    "empty-batches": _fact("empty-batches", BATCHES, MISSING_OFFSETS),
    "delete-horizons": _fact(
        "delete-horizons",
        BATCHES,
        TO_OFFSET,
        Field("last_horizon_ms", nullable(INTEGER), "the greatest delete horizon; null if it is negative"),
    ),
    "markers": _fact("markers", Field("offsets", INTEGER, "how many")),
    "beyond-checkpoint": _fact(
        "beyond-checkpoint",
        MISSING_OFFSETS,
        Field("first_dirty_offset", INTEGER, "the first dirty offset"),
    ),
    "segment-names": _fact("segment-names", Field("segments", list_of(NAMED_SEGMENT), "the segments")),
    "horizon-time": _fact(
        "horizon-time",
        Field("ran_ms", nullable(INTEGER), "the time of the cleaning; null if none can have set the horizon"),
        Field("last_horizon_ms", INTEGER, "the greatest delete horizon"),
        Field("delete_retention_ms", INTEGER, "the setting"),
    ),
    "checkpoint": _fact(
        "checkpoint",
        Field("checkpoint_offset", INTEGER, "the entry of `cleaner-offset-checkpoint`"),
        Field("written_ms", nullable(INTEGER), "the time of that file; null if it is gone"),
    ),
    "old-snapshots": _fact(
        "old-snapshots",
        Field("segments", list_of(OLD_SNAPSHOT), "the segments"),
        Field("segment_ms", INTEGER, "the setting"),
    ),
    "orphan-snapshots": _fact(
        "orphan-snapshots", Field("offsets", list_of(INTEGER), "the offsets in the names of the snapshots")
    ),
    "sparse-index": _fact("sparse-index", *ODD_INDEXES),
    "large-batches": _fact("large-batches", *ODD_INDEXES),
    "dense-index": _fact("dense-index", *ODD_INDEXES),
}
"""The facts by name."""


# The gaps of a partition


LOG_GAPS = Shape(
    "gaps",
    WALK.within("on_disk"),
    Field("log_start_offset", INTEGER, "as of the partition"),
    Field("log_end_offset", INTEGER, "as of the partition"),
    Field("counted_to_offset", INTEGER, "the log end, or less because of damage"),
    Field("checkpoint_offset", nullable(INTEGER), "as of the partition"),
    Field("first_dirty_offset", INTEGER, "as of the partition"),
    Field("missing_before_first_row", nullable(INTEGER), "offsets before the first row; null without a row"),
    Field("missing_after_last_row", nullable(INTEGER), "offsets after the last row; null without a row"),
    Field("present_offsets", INTEGER, "offsets with a record", "counts.present"),
    Field("data_offsets", INTEGER, "offsets with a data record", "counts.data_offsets"),
    Field(
        "aborted_offsets",
        INTEGER,
        "offsets with a data record of an aborted transaction, also above the last stable offset",
        "counts.aborted_offsets",
    ),
    Field("control_offsets", INTEGER, "offsets with a control record", "counts.control_offsets"),
    Field("missing_offsets", INTEGER, "offsets without a record", "counts.missing"),
    Field("missing", MISSING, "these by what took them", "counts"),
    Field("batches_without_some", INTEGER, "batches that lost some of their records", "counts.batches_without_some"),
    Field("batches_without_tail", INTEGER, "batches that lost the last records", "counts.batches_without_tail"),
    Field("last_missing_offset", KNOWN_OR_NULL, "null if none is missing", "counts.missing_to"),
    Field(
        "last_stamped_offset",
        KNOWN_OR_NULL,
        "the last offset of the last batch with a delete horizon; null without one",
        "counts.stamped_to",
    ),
    Field("last_horizon_ms", KNOWN_OR_NULL, "the greatest delete horizon; null without one", "counts.last_horizon_ms"),
    Field("dirty", DIRTY, "what is at or above the first dirty offset"),
    Field("read_uncommitted", WALK, "what a consumer sees, up to the high watermark"),
    Field("read_committed", WALK, "what a consumer of committed records sees, up to the last stable offset"),
    Field("segments", list_of(SEGMENT), "the counts by segment"),
    Field("evidence", list_of(one_of(EVIDENCE, by="name")), "the facts that follow"),
    meaning="All counts are of offsets from the log start on. history.md says what gaps are.",
)

GAPS = Document("gaps", NOW_MS, NOTES, answer("gaps", LOG_GAPS), LEFT_OUT_DIRECTORIES)
