"""The last batches of the closed segments, which neither a plan nor a broker that starts looks at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kcompact.errors import CorruptDataError, CorruptIndexError
from kcompact.format import index
from kcompact.format.names import Suffix
from kcompact.log.directory import PartitionLog
from kcompact.log.index_files import index_or_log, is_batch, read_offset_index, wrong_entry
from kcompact.log.segment_reader import headers
from kcompact.log.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """The end of a segment: the offset after its last batch, and what is wrong with the end of the log or its index."""

    end_offset: int
    damage: CorruptDataError | None = None


def read_tail(log: PartitionLog, segment: Segment) -> Tail:
    """Return the end of a segment, from its last index entry on. Raises RefusedError, StorageError."""
    path = log.directory / segment.log_name
    end_offset = segment.base_offset
    try:
        for _, header in headers(path, start_position=_last_indexed(log, segment, path)):
            end_offset = header.next_offset
    except CorruptDataError as problem:
        return Tail(end_offset=end_offset, damage=problem)
    return Tail(end_offset=end_offset)


def _last_indexed(log: PartitionLog, segment: Segment, path: Path) -> int:
    """Return the position of the last batch in the `.index`, 0 without one. Raises CorruptDataError."""
    file = log.index_file(segment, Suffix.INDEX)
    if file is None:
        return 0
    try:
        entries = read_offset_index(file)
        if not entries:
            return 0
        index.verify_end(entries, size_bytes=segment.size_bytes, file=str(file))
        last = entries[-1]
        if not is_batch(path, last.position, segment.base_offset + last.relative_offset):
            raise wrong_entry(file, len(entries) - 1, last)
    except CorruptIndexError as problem:
        raise index_or_log(problem) from None
    return last.position
