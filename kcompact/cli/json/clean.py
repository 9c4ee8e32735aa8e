"""The JSON of `clean`."""

from __future__ import annotations

from kcompact.cleaner.outcome import PartitionOutcome, Status
from kcompact.cli.json.fields import (
    BOOLEAN,
    INTEGER,
    NUMBER,
    STRING,
    TEXT,
    Document,
    Field,
    Shape,
    choice,
    list_of,
    nullable,
)
from kcompact.cli.json.partitions import (
    DELETED_SEGMENT,
    ERROR,
    HELD_BACK,
    LEFT_OUT_DIRECTORIES,
    NOTES,
    NOW_MS,
    PLANNED,
    REPLICAS,
    SEGMENTS,
    WITH_REPLICA,
)
from kcompact.plan.cost import kafka_passes_at_least

WITH_OUTPUT = "with `--output`, and not in a dry run"

COUNTED = Shape(
    "counted",
    Field(
        "end_offset",
        INTEGER,
        "the new checkpoint; with `checkpoint-not-written` the one that is still to be written",
    ),
    Field("bytes_read", INTEGER, "of the rewritten segments", "stats.bytes_read"),
    Field("bytes_written", INTEGER, "of the rewritten segments", "stats.bytes_written"),
    Field("messages_read", INTEGER, "of the rewritten segments", "stats.messages_read"),
    Field("messages_written", INTEGER, "of the rewritten segments", "stats.messages_written"),
    Field("map_bytes_read", INTEGER, "the dirty section that was searched for keys", "stats.map_bytes_read"),
    Field("map_keys", INTEGER, "how many keys it has", "stats.map_keys"),
    Field("invalid_messages", INTEGER, "records without a key, which are dropped", "stats.invalid_messages"),
    Field("engine", nullable(STRING), "the engine"),
    Field("elapsed_s", NUMBER, "the duration in seconds", lambda result: round(result.times.elapsed_s, 3)),
    meaning="What a cleaning counts, also in a dry run; null for a partition that was not cleaned.",
)


def _passes_at_least(outcome: PartitionOutcome) -> int | None:
    plan, result = outcome.plan, outcome.counted
    return None if plan is None or result is None else kafka_passes_at_least(plan, map_keys=result.stats.map_keys)


CLEANED = Shape(
    "partition",
    PLANNED,
    SEGMENTS,
    ERROR,
    REPLICAS,
    Field(
        "held_back",
        nullable(HELD_BACK),
        "what the cleaning holds back; null for a partition that was not cleaned",
        lambda outcome: outcome.counted.held_back if outcome.counted else None,
        given=WITH_REPLICA,
    ),
    Field("status", choice(Status), "what was done, see below"),
    COUNTED.within("counted", or_null=True),
    Field(
        "kafka_passes_at_least",
        nullable(INTEGER),
        "the smallest number of passes that Kafka's own cleaner would need for that many keys; null "
        "also where it might never finish",
        _passes_at_least,
    ),
    Field(
        "recovered",
        nullable(choice(("finished", "undone", "tidied"))),
        "what recovery did first, else null",
    ),
    Shape(
        "result",
        Field(
            "resumed",
            BOOLEAN,
            "whether an earlier, interrupted run has made this copy; the other fields are then those of that run; null "
            "for a partition that failed",
        ),
        Field(
            "deleted_segments",
            list_of(DELETED_SEGMENT),
            "the segments that `--apply-retention` deleted, or would delete in a dry run; null for a partition that "
            "failed before",
            "expired",
        ),
    ).within("result", or_null=True),
    meaning="""A `status` is one of

- `cleaned`: with an error, exit code 6, if another process replaced the staging directory at the end,
- `checkpoint-not-written`: always with an error. All segments are cleaned and in place, and the next `recover`
  or `clean` writes the checkpoint,
- `copied`: as it is, with `--output`,
- `deleted`: retention deleted segments, and nothing was cleaned,
- `dry-run`: with an error if something would stop the run itself,
- `skipped`,
- `failed`: with `deleted_segments` if retention made space, and the cleaning failed all the same.""",
)

NOT_COPIED = Shape(
    "not-copied",
    Field("name", STRING, "which file or directory"),
    Field("reason", STRING, "why"),
    Field("size_bytes", nullable(INTEGER), "null if it is unknown"),
)

COPY = Shape(
    "copy",
    Field("output", TEXT, "the directory of the copy", "report.path"),
    Field(
        "log_dir",
        nullable(TEXT),
        "the log directory of a complete copy, null for chosen partitions",
        "report.log_dir",
    ),
    Field("is_finished", BOOLEAN, "whether the copy is finished", "report.is_finished"),
    Field("missing", list_of(STRING), "names of the directories that are not in it", "report.missing"),
    Field("set_aside", list_of(STRING), "the `-future` and `-stray` directories of the source", "report.set_aside"),
    Field("not_copied", list_of(NOT_COPIED), "what a complete copy leaves out", "report.left_out"),
    Field("error", nullable(TEXT), "why the copy is unfinished; null if it is finished or was never begun"),
    Field("exit_code", INTEGER, "the exit code of this error; 0 without one"),
)

CLEAN = Document(
    "clean",
    NOW_MS,
    NOTES,
    Field("partitions", list_of(CLEANED), "an object for each partition"),
    LEFT_OUT_DIRECTORIES,
    Field("copy", COPY, "the copy as a whole", given=WITH_OUTPUT),
)
