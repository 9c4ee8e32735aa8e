"""The JSON of `report`."""

from __future__ import annotations

from kcompact.cli.json.fields import TEXT, Document, Field, Shape, list_of, nullable
from kcompact.cli.json.partitions import ERROR, IDENTITY, NOTES, NOW_MS

REPORT = Document(
    "report",
    NOW_MS,
    Field("file", nullable(TEXT), "the page that was written; null if no path is a partition"),
    NOTES,
    Field(
        "partitions",
        list_of(Shape("partition", IDENTITY, ERROR)),
        "an object for each partition; `inspect` and `plan` have the numbers",
    ),
)
