"""The JSON of `recover` and `restore`."""

from __future__ import annotations

from kcompact.cli.entries import Restored
from kcompact.cli.json.fields import BOOLEAN, INTEGER, STRING, TEXT, Document, Field, Shape, choice, list_of, nullable
from kcompact.cli.json.partitions import ERROR, IDENTITY
from kcompact.plan.walk import Answer
from kcompact.swap.recovery.end import RecoveryReport


def status_of(answer: Answer[RecoveryReport] | Answer[Restored]) -> str:
    """Return what was done in a partition."""
    return answer.found.status if answer.found else "failed"


RECOVERED = Shape(
    "partition",
    IDENTITY,
    Field("status", choice(("finished", "undone", "tidied", "nothing-to-do", "failed")), "what was done", status_of),
    Shape(
        "recovery",
        Field(
            "finished",
            nullable(INTEGER),
            "the base offset of the segment whose swap was finished; null if none was",
        ),
        Field("undone", nullable(INTEGER), "the base offset of the segment whose swap was undone; null if none was"),
        Field(
            "checkpoint_offset",
            nullable(INTEGER),
            "the entry of `cleaner-offset-checkpoint` that was written; null if none was",
            "checkpoint",
        ),
        Field(
            "removed_staging",
            list_of(STRING),
            "staging directories, and an unfinished `leader-epoch-checkpoint.tmp`",
        ),
        Field("left_behind", list_of(STRING), "`.deleted` files for the broker"),
        Field(
            "broker_files",
            list_of(STRING),
            "with `--foreign`, the files of a broker that got their final names or were removed",
        ),
        Field(
            "only_copies",
            list_of(INTEGER),
            "with `--foreign`, the base offsets of `.deleted` segments that were left alone",
        ),
    ).within("found", or_null=True),
    ERROR,
    meaning="All but the status are null for a partition that failed.",
)

RECOVER = Document(
    "recover",
    Field("partitions", list_of(RECOVERED), "an object for each partition"),
    Field("removed", list_of(TEXT), "the paths that killed runs had left elsewhere"),
)

RESTORED = Shape(
    "partition",
    IDENTITY,
    Field(
        "status",
        choice(("restored", "restored-in-part", "restorable", "restorable-in-part", "nothing-to-do", "failed")),
        "`restorable` with `--check`",
        status_of,
    ),
    Shape(
        "restored",
        Field("files", INTEGER, "put back, or to be put back"),
        Field("size_bytes", INTEGER, "the bytes of these"),
        Field(
            "checkpoint_offset",
            nullable(INTEGER),
            "the entry of `cleaner-offset-checkpoint` that was, or is to be, put back; null without one",
            "checkpoint",
        ),
        Field("not_restored", list_of(INTEGER), "the base offsets of the groups that cannot be put back"),
    ).within("found", or_null=True),
    ERROR,
    meaning="All but the status are null for a partition that failed.",
)

RESTORE = Document(
    "restore",
    Field("kept", TEXT, "the directory"),
    Field("checked", BOOLEAN, "whether it was only a check (`--check`)"),
    Field("partitions", list_of(RESTORED), "an object for each partition"),
)
