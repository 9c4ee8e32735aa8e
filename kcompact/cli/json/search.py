"""The JSON of `search-key`: the statement of search."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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
    map_of,
    nullable,
)
from kcompact.cli.json.partitions import NOTE
from kcompact.questions.search.files import Content
from kcompact.questions.search.findings import Place
from kcompact.questions.search.statement import SearchOutcome

PLACE = Shape(
    "found-place",
    Field("file", TEXT, "where"),
    Field("place", choice(Place), "in what"),
    Field("position", INTEGER, "of the batch in the file, or of the bytes"),
    Field("offset", nullable(INTEGER), "of the record; null outside of records"),
)

KEY = Shape(
    "searched-key",
    Field("names", list_of(STRING), "its labels, or `line 1` of the file, `--key 1`; several of a repeated key"),
    Field("digest", STRING, "HMAC-SHA-256 of the key with the salt, in hexadecimal digits"),
    Field("outcome", choice(SearchOutcome), "what the search has shown"),
    Field("found", map_of(INTEGER), "how often the key was found, by place", "hits"),
    Field("files", INTEGER, "in how many files", "findings.files"),
    Field("places", list_of(PLACE), "the first places"),
)

FILE = Shape(
    "searched-file",
    Field("path", TEXT, "the file"),
    Field("also", list_of(TEXT), "other names of the same file"),
    Field("size_bytes", INTEGER, "what was read of it"),
    Field("modified_ms", nullable(INTEGER), "its modification time; null for what is no regular file"),
    Field("sha256", nullable(STRING), "of its bytes; null if it could not be read", lambda each: each.sha256 or None),
    Field("content", choice(Content), "how it was read"),
    Field("records", INTEGER, "the records in it"),
    Field("inflated_bytes", INTEGER, "the bytes that were inflated and searched"),
    Field(
        "problem", nullable(STRING), "why something in it may be hidden, else null", lambda each: each.problem or None
    ),
)

LOG_DIR = Shape(
    "searched-log-dir",
    Field("path", TEXT, "the log directory"),
    Field("cluster_id", nullable(STRING), "the cluster"),
    Field("node_id", nullable(INTEGER), "the broker"),
    Field("is_whole", BOOLEAN, "whether all of it was searched, not only some partitions"),
    Field("was_running", BOOLEAN, "whether a broker ran before or after the search"),
)

PARTITION = Shape(
    "searched-partition",
    Field("topic", STRING, "the topic", "topic_partition.topic"),
    Field("partition", INTEGER, "the partition", "topic_partition.partition"),
    Field("cluster_id", nullable(STRING), "the cluster"),
    Field("topic_ids", list_of(STRING), "the topic ids in `partition.metadata`"),
    Field("directories", list_of(TEXT), "its directories that were searched, also deleted and future ones"),
    Field("replicas", nullable(list_of(INTEGER)), "the brokers that have it; null if no cluster metadata says so"),
    Field("searched", list_of(INTEGER), "those of them whose directory was searched"),
)

STATEMENT = Shape(
    "statement",
    Field("started_ms", INTEGER, "when the search began"),
    Field("ended_ms", INTEGER, "when it ended"),
    Field("kcompact_version", STRING, "which kcompact", "version"),
    Field("method", STRING, "what was done"),
    Field("cannot_know", list_of(STRING), "what a search of files cannot know"),
    Field("paths", list_of(TEXT), "what was asked"),
    Field(
        "topics",
        list_of(STRING),
        "the patterns of `--topic`; with any, only files of partitions were searched",
        "selection.topics",
    ),
    Field(
        "partition_numbers",
        list_of(INTEGER),
        "those of `--partition`; with any, only files of such partitions were searched",
        "selection.partitions",
    ),
    Field("is_exact", BOOLEAN, "whether a key counts only as the whole key of a record"),
    Field("salt", nullable(STRING), "that of the digests of keys, if it is a random one; null for that of `--salt`"),
    Field("keys", list_of(KEY), "the keys, in the order of the options; a repeated one once"),
    Field("log_dirs", list_of(LOG_DIR), "the log directories"),
    Field("partitions", list_of(PARTITION), "the partitions that were searched, and the others of the same brokers"),
    Field("files", list_of(FILE), "every file, in the order of the search"),
)


def statement_digest(statement: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a statement in canonical form: ASCII, names sorted, no space between tokens."""
    text = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


SEARCH = Document(
    "search-key",
    Field("notes", list_of(NOTE), "remarks on the keys", "notes"),
    Field("statement", STATEMENT, "what was searched, and what was found"),
    Field(
        "statement_sha256",
        STRING,
        "the digest of `statement`",
        lambda content: statement_digest(STATEMENT.of(content["statement"])),
    ),
)
