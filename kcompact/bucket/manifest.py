"""The manifest of a copied directory: what it consists of, and where its objects are. `docs/bucket.md` has the format.

A directory in a bucket is there when its manifest is: an object that is created once, and overwritten only by a run
that mends the same copy. Its files are under keys that only the run that wrote them has used.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, field
from typing import Any

from kcompact.errors import CorruptCheckpointError
from kcompact.format.checkpoint import OFFSET_CHECKPOINTS
from kcompact.format.names import parse_directory
from kcompact.format.sealed_json import (
    ANYTHING,
    FLAG,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    SealedDocument,
    listed,
    mapped,
    optional,
    sealed,
    unsealed,
)
from kcompact.values import dataclass

MANIFEST = ".kcompact-manifest.json"
VERSION = 1
MAX_MANIFEST_BYTES = 64 << 20
ATTEMPT = re.compile(r"\.kcompact-[0-9a-f]{16}")
"""The name of the directory that has the files of one attempt to write a copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """A file of a copied directory. `crc32c` is that of its content."""

    name: str
    size_bytes: int
    mtime_ns: int
    crc32c: int
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryManifest:
    """A directory in a bucket.

    `files` are below the attempt's directory, under their own names. `offsets` are the entries of the partition in the
    checkpoints of a log directory, and `clean_shutdown` is the text of `.kafka_cleanshutdown` there, None without.
    `directories` are those of a complete copy of a log directory, in the manifest of what they share; `is_part` is true
    in the manifest of each of them. `recipe`, `source` and `outcome` are what a local copy has in its record: a later
    run with the same recipe and the same source has nothing to do. `source_etags` are the versions of the objects that
    the copy was made from.
    """

    attempt: str
    written_by: str
    files: tuple[StoredFile, ...]
    directories: tuple[str, ...] = ()
    is_part: bool = False
    offsets: dict[str, int] = field(default_factory=dict)
    clean_shutdown: str | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    outcome: dict[str, Any] = field(default_factory=dict)
    source: list[list[Any]] = field(default_factory=list)
    source_etags: dict[str, str] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return the bytes of the manifest."""
        return sealed(_FIELDS.write(self))

    @staticmethod
    def parse(content: bytes, *, address: str) -> DirectoryManifest:
        """Return a manifest. Raises CorruptCheckpointError for anything that kcompact does not write."""
        try:
            manifest = _FIELDS.read(unsealed(content))
            _require_plain(manifest)
        except (ValueError, RecursionError) as problem:
            is_of_other = str(problem) == _OTHER_VERSION
            hint = "Remove it and the directory beside it, and copy the partition again."
            hint = "Use the kcompact that has written it." if is_of_other else hint
            raise CorruptCheckpointError(file=address, problem=f"is no manifest: {problem}", hint=hint) from None
        return manifest


_OTHER_VERSION = "it is of another version of kcompact"
_FILE = SealedDocument(StoredFile, name=TEXT, size_bytes=NUMBER, mtime_ns=TIME, crc32c=NUMBER, etag=TEXT)
_FIELDS = SealedDocument(
    DirectoryManifest,
    version=VERSION,
    other_version=_OTHER_VERSION,
    attempt=TEXT,
    written_by=TEXT,
    files=listed(_FILE),
    directories=listed(TEXT),
    is_part=FLAG,
    offsets=mapped(NUMBER),
    clean_shutdown=optional(TEXT),
    recipe=OBJECT,
    outcome=OBJECT,
    source=ANYTHING,
    source_etags=mapped(TEXT),
)


def _require_plain(manifest: DirectoryManifest) -> None:
    """Raise ValueError if a name leads elsewhere, or a text cannot be written."""
    if not ATTEMPT.fullmatch(manifest.attempt):
        raise ValueError("its attempt is no name of an attempt")
    names = [file.name for file in manifest.files]
    if len(set(names)) != len(names) or any("/" in name or name in ("", ".", "..") for name in names):
        raise ValueError("a file has no plain name")
    if any(file.crc32c >> 32 for file in manifest.files):
        raise ValueError("a checksum is none")
    if any(parse_directory(name) is None or "/" in name for name in manifest.directories):
        raise ValueError("a directory has no name of a partition")
    if not manifest.offsets.keys() <= set(OFFSET_CHECKPOINTS):
        raise ValueError("an offset is of no checkpoint")
    texts = json.dumps(asdict(manifest), ensure_ascii=False).encode()  # Raises ValueError for half a character.
    if b"\\u0000" in texts:
        raise ValueError("a text has a zero byte")
