"""Searches one file: the records of its batches, inflated where they are compressed, and all other bytes as they are.

[ batch ][ batch, compressed ][ damaged ... ][ batch ][ torn
  records  records, inflated    bytes as they  records  bytes as they are
                                are, and what
                                still inflates
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kcompact.errors import KcompactError, StorageError
from kcompact.format import legacy
from kcompact.format.batch import HEADER_BYTES
from kcompact.format.codec import Codec, decompress_until_damage
from kcompact.format.limits import most_batch_bytes, most_inflated_bytes
from kcompact.kernels import Bytes, Column
from kcompact.log.files import LogFile, OpenFile, pieces_of
from kcompact.log.past_damage import Unreadable
from kcompact.log.records import record_parts
from kcompact.search.files import Content, FoundFile, content_of
from kcompact.search.finder import Finder
from kcompact.search.findings import Findings, Place
from kcompact.search.records import search_run

_ATTRIBUTES = 22
"""The byte of a header of magic 2 that has the codec."""
UNKNOWN_CONTENT = "not a file of Kafka or of kcompact: what it encodes or compresses is not seen"


@dataclass(slots=True, kw_only=True)
class SearchedFile:
    """What was read of a file. `problem` is why something in it may be hidden, "" if nothing is.

    `also` are other names of the same file.
    """

    path: Path
    also: list[Path] = field(default_factory=list)
    size_bytes: int = 0
    modified_ms: int | None = None
    sha256: str = ""
    content: Content = Content.UNKNOWN
    records: int = 0
    inflated_bytes: int = 0
    problem: str = ""


def search_file(
    found: FoundFile,
    finder: Finder,
    findings: Findings,
    *,
    memory_bytes: int,
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> SearchedFile:
    """Search a file and add what is found to `findings`. A file that cannot be read is a result too.

    `advance` receives the bytes of each step; together they are about the size of the file.
    """
    searched = SearchedFile(path=found.path, also=found.also, problem=found.problem)
    if found.identity is None:
        return searched
    searched.modified_ms = found.identity.mtime_ms
    search = _FileSearch(searched, finder, findings, memory_bytes, advance)
    try:
        with LogFile.at(found.path).open() as opened:
            search.bytes_of(opened)
            if searched.content is Content.BATCHES:
                search.records_of(opened)
    except KcompactError as problem:
        search.doubt(problem)
    if searched.content is Content.UNKNOWN:
        searched.problem = searched.problem or UNKNOWN_CONTENT
    return searched


class _FileSearch:
    """The search of one file."""

    def __init__(
        self,
        searched: SearchedFile,
        finder: Finder,
        findings: Findings,
        memory_bytes: int,
        advance: Callable[[int], None],
    ) -> None:
        self._searched, self._finder, self._findings = searched, finder, findings
        self._memory_bytes, self._advance = memory_bytes, advance

    def doubt(self, problem: KcompactError) -> None:
        """Remember why something may be hidden: the first such problem."""
        self._searched.problem = self._searched.problem or str(problem).splitlines()[0]

    def bytes_of(self, opened: OpenFile) -> None:
        """Read the whole file for its checksum; search its bytes, unless it has batches."""
        searched, digest = self._searched, hashlib.sha256()
        windows = _Windows(self._finder, self._found_bytes)
        try:
            for piece in pieces_of(opened, 0, opened.size_bytes):
                if not searched.size_bytes:
                    searched.content = content_of(searched.path, piece)
                digest.update(piece)
                if searched.content is not Content.BATCHES:
                    windows.add(np.frombuffer(piece, np.uint8), searched.size_bytes)
                    self._advance(len(piece))
                searched.size_bytes += len(piece)
        except StorageError as problem:
            self.doubt(problem)  # What the disk gives back is searched all the same.
            if not searched.size_bytes:
                searched.content = content_of(searched.path, b"")
            return
        if not searched.size_bytes:
            searched.content = content_of(searched.path, b"")
        searched.sha256 = digest.hexdigest()

    def records_of(self, opened: OpenFile) -> None:
        """Search the records, and the bytes between readable batches. Raises StorageError."""
        searched = self._searched
        position = 0
        for part in record_parts(LogFile.at(searched.path), memory_bytes=self._memory_bytes):
            if isinstance(part, Unreadable):
                self._search_unreadable(opened, part)
            else:
                searched.records += len(part)
                searched.inflated_bytes += search_run(part, self._finder, self._findings, searched.path)
            self._advance(part.end_position - position)
            position = part.end_position

    def _search_unreadable(self, opened: OpenFile, part: Unreadable) -> None:
        """Search bytes that are no readable batch as they are, and what still inflates of a compressed one.

        Zeros at the end of a file hide nothing: the broker has reserved the space.
        """
        windows, only_zeros = _Windows(self._finder, self._found_bytes), part.is_at_end
        position = part.position
        try:
            for piece in pieces_of(opened, part.position, part.end_position):
                data = np.frombuffer(piece, np.uint8)
                only_zeros = only_zeros and not data.any()
                windows.add(data, position)
                position += len(piece)
        except StorageError:
            only_zeros = False
        if only_zeros:
            return
        self.doubt(part.problem)
        with suppress(StorageError):
            inflated = np.frombuffer(self._inflated(opened, part), np.uint8)
            self._searched.inflated_bytes += len(inflated)
            for _, numbers in self._finder.find(inflated):
                at = np.full(len(numbers), part.position)
                self._findings.add(self._searched.path, Place.IN_BYTES, numbers, at)

    def _inflated(self, opened: OpenFile, part: Unreadable) -> bytes:
        """Return what a damaged batch inflates to, as far as it goes; nothing if it is not compressed."""
        most_bytes = most_batch_bytes(self._memory_bytes)
        data = memoryview(opened.read(min(part.size_bytes, most_bytes), part.position))
        codec, start, magic = _section_of(data)
        if codec is Codec.NONE:
            return b""
        max_bytes = most_inflated_bytes(len(data), self._memory_bytes)
        return decompress_until_damage(codec, data[start:], max_bytes=max_bytes, magic=magic)

    def _found_bytes(self, positions: Column, numbers: Column) -> None:
        self._findings.add(self._searched.path, Place.IN_BYTES, numbers, positions)


class _Windows:
    """Searches bytes that come in pieces, also for keys that lie across two pieces."""

    def __init__(self, finder: Finder, found: Callable[[Column, Column], None]) -> None:
        self._finder, self._found = finder, found
        self._carried = np.empty(0, np.uint8)

    def add(self, piece: Bytes, position: int) -> None:
        """Search the piece at a position of the file, which follows the piece before."""
        before = len(self._carried)
        data = np.concatenate((self._carried, piece)) if before else piece
        for positions, numbers in self._finder.find(data, start=before):
            self._found(positions + (position - before), numbers)
        self._carried = self._finder.carried(data)


def _section_of(data: memoryview) -> tuple[Codec, int, int]:
    """Return the codec, the start of the compressed bytes, and the magic of a batch whose other fields may be wrong.

    Layout: `format.batch`, `format.legacy`.
    """
    magic = data[16] if len(data) > _ATTRIBUTES else -1
    if magic == 2:
        codec, start = data[_ATTRIBUTES] & legacy.CODEC_MASK, HEADER_BYTES
    elif magic in (0, 1):
        key_at = legacy.PREFIX_BYTES + 8 * magic
        key_bytes = int.from_bytes(data[key_at : key_at + 4], "big", signed=True)
        codec, start = data[17] & legacy.CODEC_MASK, key_at + 4 + max(key_bytes, 0) + 4
    else:
        return Codec.NONE, 0, 0
    return Codec(codec) if codec <= Codec.ZSTD else Codec.NONE, start, magic
