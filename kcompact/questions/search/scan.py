"""Searches one file: the records of its batches, inflated where they are compressed, and all other bytes as they are.

[ batch ][ batch, compressed ][ damaged ... ][ batch ][ torn
  records  records, inflated    bytes as they  records  bytes as they are
                                are, and what
                                still inflates
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from pathlib import Path

import numpy as np

from kcompact.errors import CorruptBatchError, KcompactError, StorageError
from kcompact.format import legacy
from kcompact.format.batch import HEADER_BYTES
from kcompact.format.codec import Codec, decompress_until_damage, stream_end
from kcompact.format.limits import most_batch_bytes, most_inflated_bytes
from kcompact.kernels import Bytes, Column
from kcompact.kernels import columns as c
from kcompact.log.files import LogFile, OpenFile, pieces_of
from kcompact.log.past_damage import Unreadable
from kcompact.log.records import RecordRun, record_parts
from kcompact.questions.search.files import Content, FoundFile, content_of
from kcompact.questions.search.finder import Finder
from kcompact.questions.search.findings import Findings, Place
from kcompact.questions.search.records import Counts, RunSearch, counted_hits
from kcompact.values import dataclass

_ATTRIBUTES = 22
"""The byte of a header of magic 2 that has the codec."""
NOT_RECORDS = "has the bytes of a key, and is not read as records"
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
    file: FoundFile,
    finder: Finder,
    findings: Findings,
    *,
    is_exact: bool = False,
    memory_bytes: int,
    advance: Callable[[int], None] = lambda size_bytes: None,
) -> SearchedFile:
    """Search a file and add what is found to `findings`. A file that cannot be read is a result too.

    With `is_exact` one that shows a key and is not read as records is in doubt. `advance` receives the bytes of each
    step; together they are about the size of the file.
    """
    searched = SearchedFile(path=file.path, also=file.also, problem=file.problem)
    search = _FileSearch(searched, finder, findings, memory_bytes, advance)
    try:
        if file.content is not None:
            search.bytes_of([file.content()])
        elif file.identity is None:
            return searched
        else:
            searched.modified_ms = file.identity.mtime_ms
            with LogFile.at(file.path).open() as opened:
                search.bytes_of(pieces_of(opened, 0, opened.size_bytes))
                if searched.content is Content.BATCHES:
                    search.records_of(opened)
    except KcompactError as problem:
        search.doubt(problem)
    if is_exact and search.has_hits and searched.content is not Content.BATCHES:
        searched.problem = searched.problem or NOT_RECORDS
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
        self._windows = _Windows(finder)
        self.has_hits = False

    def doubt(self, problem: KcompactError) -> None:
        """Remember why something may be hidden: the first such problem."""
        self._searched.problem = self._searched.problem or str(problem).splitlines()[0]

    def bytes_of(self, pieces: Iterable[bytes]) -> None:
        """Read the whole file for its checksum; search its bytes, unless it has batches."""
        searched, digest = self._searched, hashlib.sha256()
        try:
            for piece in pieces:
                if not searched.size_bytes:
                    searched.content = content_of(searched.path, piece)
                digest.update(piece)
                if searched.content is not Content.BATCHES:
                    self._windows.add(np.frombuffer(piece, np.uint8), searched.size_bytes, self._found_bytes)
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
        """Search all bytes as they are stored, and what they inflate to. Raises StorageError."""
        position = 0
        for part in record_parts(LogFile.at(self._searched.path), memory_bytes=self._memory_bytes):
            if isinstance(part, Unreadable):
                self._search_unreadable(opened, part)
            else:
                self._search_run(opened, part, position)
            self._advance(part.end_position - position)
            position = part.end_position

    def _search_run(self, opened: OpenFile, run: RecordRun, position: int) -> None:
        """Search a run of batches, which begins at a position: as it is stored, and inflated."""
        starts, stored = run.start_position + run.table[:, c.POSITION], Counts()

        def found(positions: Column, numbers: Column) -> None:
            rows = starts.searchsorted(positions, side="right") - 1
            is_before = rows < 0  # It begins in the part before this run.
            self._found_bytes(positions[is_before], numbers[is_before])
            stored.update(counted_hits(rows[~is_before], numbers[~is_before]))

        for piece in pieces_of(opened, position, run.end_position):
            self._windows.add(np.frombuffer(piece, np.uint8), position, found)
            position += len(piece)
        batches = _StoredBatches(opened, run, self._memory_bytes)
        search = RunSearch(run, batches.inflated, self._finder, self._findings, self._searched.path)
        search.search(stored)
        self._searched.records += len(run)
        self._searched.inflated_bytes += search.inflated_bytes
        for row, problem, left in batches.left():
            at = int(starts[row])
            self.doubt(CorruptBatchError(file=str(self._searched.path), position=at, problem=problem))
            self._search_inflated(left, at)

    def _search_unreadable(self, opened: OpenFile, part: Unreadable) -> None:
        """Search bytes that are no readable batch as they are, and what still inflates of a compressed one.

        Zeros at the end of a file hide nothing: the broker has reserved the space.
        """
        only_zeros, position = part.is_at_end, part.position
        try:
            for piece in pieces_of(opened, part.position, part.end_position):
                data = np.frombuffer(piece, np.uint8)
                only_zeros = only_zeros and not data.any()
                self._windows.add(data, position, self._found_bytes)
                position += len(piece)
        except StorageError:
            only_zeros = False
        if only_zeros:
            return
        self.doubt(part.problem)
        with suppress(StorageError):
            stored = opened.read(min(part.size_bytes, most_batch_bytes(self._memory_bytes)), part.position)
            codec, section, magic = _section_of(stored)
            self._search_inflated(_inflated(codec, section, magic, self._memory_bytes), part.position)

    def _search_inflated(self, data: bytes, position: int) -> None:
        """Search what bytes inflate to that are not read as records; `position` is that of the batch."""
        self._searched.inflated_bytes += len(data)
        for _, numbers in self._finder.find(np.frombuffer(data, np.uint8)):
            self._found_bytes(np.full(len(numbers), position), numbers)

    def _found_bytes(self, positions: Column, numbers: Column) -> None:
        self.has_hits = self.has_hits or len(numbers) > 0
        self._findings.add(self._searched.path, Place.IN_BYTES, numbers, positions)


class _Windows:
    """Searches bytes that come in pieces, also for keys that lie across two pieces."""

    def __init__(self, finder: Finder) -> None:
        self._finder = finder
        self._carried = np.empty(0, np.uint8)

    def add(self, piece: Bytes, position: int, on_hits: Callable[[Column, Column], None]) -> None:
        """Search the piece at a position of the file, which follows the piece before.

        `on_hits` receives the positions at which keys begin, which can be in the piece before, and their numbers.
        """
        before = len(self._carried)
        data = np.concatenate((self._carried, piece)) if before else piece
        for positions, numbers in self._finder.find(data, start=before):
            on_hits(positions + (position - before), numbers)
        self._carried = self._finder.carried(data)


class _StoredBatches:
    """The batches of a run as they are stored: what they inflate to, and what in them is not read as records."""

    def __init__(self, opened: OpenFile, run: RecordRun, memory_bytes: int) -> None:
        self._opened, self._run, self._memory_bytes = opened, run, memory_bytes

    def inflated(self, row: int) -> Bytes:
        """Return what the section of a compressed batch inflates to."""
        return np.frombuffer(_inflated(*self._section(row), self._memory_bytes), np.uint8)

    def left(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield the rows of batches with bytes that are no records, why they are none, and what they inflate to."""
        table = self._run.table
        codecs, counts = table[:, c.ATTRIBUTES] & c.CODEC_MASK, table[:, c.RECORDS_COUNT]
        is_empty = (counts == 0) & (table[:, c.SIZE] > HEADER_BYTES)
        # A zstd stream has only frames.
        for row in np.flatnonzero(is_empty | ((codecs != Codec.NONE) & (codecs != Codec.ZSTD))).tolist():
            codec, section, magic = self._section(row)
            if is_empty[row]:
                yield (
                    row,
                    f"{len(section):,} bytes in a batch without records",
                    _inflated(codec, section, magic, self._memory_bytes),
                )
                continue
            end = stream_end(codec, section, max_bytes=most_inflated_bytes(len(section), self._memory_bytes))
            if end < len(section):
                problem = f"{len(section) - end:,} bytes behind the end of the {codec.name.lower()} stream"
                yield row, problem, _inflated(codec, section[end:], magic, self._memory_bytes)
            elif magic < 2 and (left_bytes := self._after_messages(row)):
                yield row, f"{left_bytes:,} bytes after the last message inside", b""

    def _data(self, row: int) -> bytes:
        position, size = self._run.table[row, (c.POSITION, c.SIZE)].tolist()
        return self._opened.read(size, self._run.start_position + position)

    def _section(self, row: int) -> tuple[Codec, memoryview, int]:
        return _section_of(self._data(row))

    def _after_messages(self, row: int) -> int:
        data = self._data(row)
        max_bytes = most_inflated_bytes(len(data), self._memory_bytes)
        entries = legacy.read_entries(data, max_bytes=max_bytes, file="", position=0)
        return len(entries.data) - sum(legacy.sizes_of(entries))


def _inflated(codec: Codec, section: memoryview, magic: int, memory_bytes: int) -> bytes:
    """Return what a section inflates to, as far as it goes; nothing if it is not compressed."""
    if codec is Codec.NONE:
        return b""
    max_bytes = most_inflated_bytes(len(section), memory_bytes)
    return decompress_until_damage(codec, section, max_bytes=max_bytes, magic=magic)


def _section_of(batch: bytes) -> tuple[Codec, memoryview, int]:
    """Return the codec, the compressed bytes, and the magic of a batch whose other fields may be wrong.

    Layout: `format.batch`, `format.legacy`.
    """
    data = memoryview(batch)
    magic = data[16] if len(data) > _ATTRIBUTES else -1
    if magic == 2:
        codec, start = data[_ATTRIBUTES] & legacy.CODEC_MASK, HEADER_BYTES
    elif magic in (0, 1):
        key_at = legacy.PREFIX_BYTES + 8 * magic
        key_bytes = int.from_bytes(data[key_at : key_at + 4], "big", signed=True)
        codec, start = data[17] & legacy.CODEC_MASK, key_at + 4 + max(key_bytes, 0) + 4
    else:
        return Codec.NONE, memoryview(b""), 0
    return Codec(codec) if codec <= Codec.ZSTD else Codec.NONE, data[start:], magic
