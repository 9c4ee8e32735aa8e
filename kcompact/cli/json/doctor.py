"""The JSON of `doctor`."""

from __future__ import annotations

from kcompact.cli.json.fields import BOOLEAN, INTEGER, STRING, TEXT, Document, Field, Shape, choice, list_of, nullable
from kcompact.cli.json.partitions import NOW_MS
from kcompact.remarks import RemarkCode, Severity

FINDING = Shape(
    "finding",
    Field("severity", choice(Severity), "what it stops"),
    Field(
        "finding",
        choice(tuple(code.value for code in RemarkCode if code.is_finding)),
        "its name in doctor.md",
        "code",
    ),
    Field("directory", TEXT, "where"),
    Field("file", nullable(TEXT), "where"),
    Field("position", nullable(INTEGER), "where"),
    Field("offset", nullable(INTEGER), "where"),
    Field("size_bytes", nullable(INTEGER), "of a directory"),
    Field("problem", STRING, "what is wrong"),
    Field("broker_says", nullable(STRING), "what a broker's log says", lambda finding: finding.broker_says or None),
    Field("next", nullable(STRING), "the command to run next", lambda finding: finding.next_command or None),
    Field("exit_code", INTEGER, "0 for a note", "code.exit_code"),
    meaning="What does not apply is null.",
)

DOCTOR = Document(
    "doctor",
    NOW_MS,
    Field("verified", BOOLEAN, "whether every byte was read (`--verify`)"),
    Field("has_all", BOOLEAN, "whether all partitions of the log directories were examined"),
    Field(
        "kernels",
        STRING,
        "which kernels are in use: the instructions that their machine code needs, or why there are none",
    ),
    Field("findings", list_of(FINDING), "the worst first"),
)
