"""The segments of a directory: files, index ends, first headers, the end of the log, and those marked as deleted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple

from kcompact.errors import CorruptBatchError, CorruptCheckpointError, CorruptDataError, CorruptIndexError
from kcompact.format import index
from kcompact.format.batch import HEADER_BYTES, read_header
from kcompact.format.checkpoint import LEADER_EPOCH_CHECKPOINT, parse_leader_epochs
from kcompact.format.names import Suffix, Temporary, parse_file_names
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import header_tables
from kcompact.log.broker_recovery import recovered_segments
from kcompact.log.files import FileIdentity, Files, LogFile
from kcompact.log.growing import last_whole_batch, read_growing
from kcompact.log.index_files import build_indexes, last_time_slot, read_time_index, require_end
from kcompact.log.offset_index import index_or_log, last_indexed_position
from kcompact.remarks import Note, RemarkCode
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A segment: its files, the sizes of its indexes, its first header. Timestamps are Unix milliseconds.

    `largest_timestamp_ms` is that of the last slot of the time index, or the modification time of the `.log` when the
    time index is empty; Kafka's planner uses the same value and does not read the records. It is 0 if the time index
    `ends_in_zeros`. `first_batch_max_timestamp_ms` is None for an empty segment. `files` starts with the `.log`. A
    segment that a broker recovers has only this file, because the broker makes new indexes, and `size_bytes` is what
    the broker keeps of it.
    """

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    largest_timestamp_ms: int
    first_batch_max_timestamp_ms: int | None
    last_modified_ms: int
    files: tuple[FileIdentity, ...]
    ends_in_zeros: bool = False

    @property
    def log_name(self) -> str:
        """The name of the `.log` file."""
        return self.files[0].name

    def has(self, suffix: Suffix) -> bool:
        """Return whether the segment has a file of this kind."""
        return any(file.name.endswith(suffix) for file in self.files)


@dataclass(slots=True)
class SegmentReader:
    """Reads the segments of a directory and collects notes and damage.

    `is_clean`: a broker was stopped cleanly, so it has cut the indexes of the active segment to their entries.
    """

    partition: Files
    ignores_indexes: bool
    index_interval_bytes: int
    is_clean: bool
    notes: list[Note] = field(default_factory=list)
    damage: list[CorruptDataError] = field(default_factory=list)

    def read_all(
        self,
        bases: Sequence[int],
        segment_files: Mapping[int, dict[Suffix, FileIdentity]],
        recovered_from: int | None,
        *,
        is_growing: bool,
    ) -> tuple[tuple[Segment, ...], int]:
        """Return the segments and the log end offset."""
        first = bases[-1] if recovered_from is None else recovered_from
        flushed = bases[: bases.index(first)]
        segments = tuple(self.read(base, segment_files[base]) for base in flushed)
        if recovered_from is not None:
            recovered, log_end_offset = self.recover(bases[len(flushed) :], segment_files)
            return (*segments, *recovered), log_end_offset
        read_active = self.read_growing if is_growing else self.read_active
        active, log_end_offset = read_active(first, segment_files[first])
        return (*segments, active), log_end_offset

    def read(self, base_offset: int, files: dict[Suffix, FileIdentity], *, is_allocated: bool = False) -> Segment:
        """Return a segment, with the sizes and the last timestamp of its indexes.

        The zeros of a time index that `is_allocated` in advance do not count.
        """
        log, first_max_timestamp = self.partition.file(files[Suffix.LOG].name), None
        indexes = _Indexes(_size_of(files, Suffix.INDEX), _size_of(files, Suffix.TIME_INDEX), index.NO_TIMESTAMP)
        try:
            first_max_timestamp = self._first_max_timestamp(files[Suffix.LOG], base_offset)
            indexes = self._indexes(log, files, is_allocated=is_allocated)
        except CorruptIndexError as problem:
            self.damage.append(index_or_log(problem, log))
            if indexes.time_index_bytes:
                indexes = indexes._replace(last_timestamp=last_time_slot(log.with_suffix(Suffix.TIME_INDEX)).timestamp)
        except CorruptDataError as problem:
            self.damage.append(problem)
        return _segment(base_offset, files, indexes, first_max_timestamp)

    def read_growing(self, base_offset: int, files: dict[Suffix, FileIdentity]) -> tuple[Segment, int]:
        """Return the active segment of a running broker, and the log end."""
        log = self.partition.file(files[Suffix.LOG].name)
        grown = read_growing(log, base_offset, files, ignores_indexes=self.ignores_indexes)
        first_max_timestamp = None
        self.damage += grown.damage
        self.notes += grown.notes
        try:
            first_max_timestamp = self._first_max_timestamp(grown.files[Suffix.LOG], base_offset)
        except CorruptDataError as problem:
            self.damage.append(problem)
        indexes = _Indexes(
            _size_of(grown.files, Suffix.INDEX), _size_of(grown.files, Suffix.TIME_INDEX), grown.last_timestamp
        )
        segment = _segment(base_offset, grown.files, indexes, first_max_timestamp)
        return segment, grown.end_offset

    def _first_max_timestamp(self, log: FileIdentity, base_offset: int) -> int | None:
        """Return the maximum timestamp of the first batch, None without one.

        Raises CorruptBatchError, also for a batch that begins below the segment. Offsets are not in the checksum, so
        the name of the file is all that contradicts a wrong one. A broker can write such a batch after a failed append;
        then it is refused too.
        """
        if not log.size_bytes:
            return None
        file = self.partition.file(log.name)
        with file.open() as opened:
            header = read_header(opened.read(HEADER_BYTES, 0), file=str(file), position=0)
        if header.base_offset < base_offset:
            problem = f"offset {header.base_offset} is below the base offset of its segment"
            raise CorruptBatchError(file=str(file), problem=problem, position=0, offset=header.base_offset)
        return header.max_timestamp

    def recover(
        self, bases: Sequence[int], segment_files: Mapping[int, Mapping[Suffix, FileIdentity]]
    ) -> tuple[list[Segment], int]:
        """Return what a broker keeps of the segments that it recovers, and the log end offset."""
        logs = [segment_files[base][Suffix.LOG] for base in bases]
        recovered = recovered_segments(self.partition, logs)
        self.notes += recovered.notes
        self.damage += recovered.damage
        segments = [
            Segment(
                base_offset=base,
                size_bytes=kept.size_bytes,
                index_bytes=0,
                time_index_bytes=0,
                largest_timestamp_ms=kept.largest_timestamp if kept.largest_timestamp >= 0 else log.mtime_ms,
                first_batch_max_timestamp_ms=kept.first_batch_max_timestamp,
                last_modified_ms=log.mtime_ms,
                files=(log,),
            )
            for base, log, kept in zip(bases, logs, recovered.kept, strict=False)  # What is deleted is not kept.
        ]
        return segments, recovered.kept[-1].next_offset

    def _indexes(self, log: LogFile, files: dict[Suffix, FileIdentity], *, is_allocated: bool) -> _Indexes:
        """Return what the planner takes from the indexes, or from ones built from the batches."""
        missing = [suffix for suffix in (Suffix.INDEX, Suffix.TIME_INDEX) if suffix not in files]
        if missing:
            self.notes.append(Note.of(RemarkCode.MISSING_INDEX, log=log.name, suffix=missing[0]))
        behind = self._behind_the_end(log, files)
        if behind is not None and not self.ignores_indexes:
            raise behind
        if missing or self.ignores_indexes:
            if behind is not None:
                self.notes.append(Note.of(RemarkCode.LOST_END, index=behind.file, problem=behind.problem))
            offset_index, time_index = build_indexes(log, interval_bytes=self.index_interval_bytes)
            times = index.parse_time_index(time_index, base_offset=log.base_offset, file=str(log))
            return _Indexes(len(offset_index), len(time_index), _last_timestamp(times))
        time_index_bytes = _size_of(files, Suffix.TIME_INDEX)
        is_empty = not files[Suffix.TIME_INDEX].size_bytes
        times = index.TimeColumns() if is_empty else read_time_index(log.with_suffix(Suffix.TIME_INDEX))
        ends_in_zeros = not is_allocated and len(times) * index.TIME_ENTRY_BYTES < time_index_bytes
        last_timestamp = 0 if ends_in_zeros else _last_timestamp(times)
        return _Indexes(_size_of(files, Suffix.INDEX), time_index_bytes, last_timestamp, ends_in_zeros)

    def _behind_the_end(self, log: LogFile, files: dict[Suffix, FileIdentity]) -> CorruptIndexError | None:
        """Return how the `.index` contradicts the end of its log. A broker writes an entry after its batch."""
        if not _size_of(files, Suffix.INDEX):
            return None
        try:
            require_end(log.with_suffix(Suffix.INDEX), files[Suffix.LOG].size_bytes)
        except CorruptIndexError as problem:
            return problem
        return None

    def read_active(self, base_offset: int, files: dict[Suffix, FileIdentity]) -> tuple[Segment, int]:
        """Return the active segment and the offset after its last batch, or the segment's base offset without a batch.

        Batches are verified from the last offset index entry on.
        Rule: `LogSegment.readNextOffset`, `LogSegment.ensureOffsetInRange`.
        """
        active = self.read(base_offset, files, is_allocated=not self.is_clean)
        log = self.partition.file(active.log_name)
        start_position = 0
        damage: CorruptDataError | None = None
        try:
            start_position = self._last_indexed_position(active, files)
        except CorruptIndexError as problem:
            damage = index_or_log(problem, log)
        _, end_offset, wrong = last_whole_batch(log, active.base_offset, start_position, active.size_bytes)
        damage = wrong or damage
        if damage is not None:
            self.damage.append(damage)
        return active, end_offset

    def _last_indexed_position(self, active: Segment, files: Mapping[Suffix, FileIdentity]) -> int:
        """Return the position of the last batch in the `.index`, 0 without one. Raises CorruptIndexError."""
        log = self.partition.file(active.log_name)
        path = log.with_suffix(Suffix.INDEX)
        if self.ignores_indexes or Suffix.INDEX not in files or not files[Suffix.INDEX].size_bytes:
            return 0
        return last_indexed_position(path, active.size_bytes)


def _segment(
    base_offset: int, files: Mapping[Suffix, FileIdentity], indexes: _Indexes, first_max_timestamp: int | None
) -> Segment:
    log = files[Suffix.LOG]
    return Segment(
        base_offset=base_offset,
        size_bytes=log.size_bytes,
        index_bytes=indexes.index_bytes,
        time_index_bytes=indexes.time_index_bytes,
        largest_timestamp_ms=indexes.last_timestamp if indexes.last_timestamp >= 0 else log.mtime_ms,
        first_batch_max_timestamp_ms=first_max_timestamp,
        last_modified_ms=log.mtime_ms,
        files=tuple(files[suffix] for suffix in Suffix if suffix in files),
        ends_in_zeros=indexes.ends_in_zeros,
    )


class _Indexes(NamedTuple):
    """What the planner takes from the indexes of a segment: their sizes and the last timestamp."""

    index_bytes: int
    time_index_bytes: int
    last_timestamp: int
    ends_in_zeros: bool = False


_ENTRY_BYTES = {Suffix.INDEX: index.OFFSET_ENTRY_BYTES, Suffix.TIME_INDEX: index.TIME_ENTRY_BYTES}


def _size_of(files: Mapping[Suffix, FileIdentity], suffix: Suffix) -> int:
    """Return the size of the whole entries of an index, 0 if it is missing."""
    return files[suffix].size_bytes // _ENTRY_BYTES[suffix] * _ENTRY_BYTES[suffix] if suffix in files else 0


def _last_timestamp(times: Sequence[index.TimeEntry]) -> int:
    return times[-1].timestamp if times else index.NO_TIMESTAMP


# Segments that are marked as deleted
#
# A broker gives a segment the suffix `.deleted` when it has replaced or deleted it, and removes it a minute later. A
# copy of a running broker may lack the segment that has taken its place.


def largest_timestamp(log: LogFile, size_bytes: int) -> int:
    """Return the largest timestamp by the headers of a segment, whatever its index says; -1 without a batch.

    Raises CorruptBatchError, RefusedError, StorageError.
    """
    tables = header_tables(log, end_position=size_bytes)
    return max((int(table[:, c.MAX_TIMESTAMP].max()) for table in tables), default=index.NO_TIMESTAMP)


def deleted_segments(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the `.log.deleted` files among the names, ascending."""
    return sorted(
        name.base_offset
        for name in parse_file_names(names)
        if name.suffix is Suffix.LOG and name.temporary is Temporary.DELETED
    )


def only_copies(aside: Iterable[int], ends: Mapping[int, int | None], *, began_at: int | None) -> list[int]:
    """Return the base offsets of the segments in `aside` for which nothing shows that a broker needs them no more.

    It shows if a segment of the log has the same base offset, if the one before reaches beyond that (a cleaning has
    merged them), or if the log begins above it (deleted by retention, or by request). `ends` are the end offsets of the
    segments of the log by base offset, None for a damaged one. `began_at` is the first offset that the log had, as
    `first_epoch_offset` returns it: at or below a segment it shows that this one was not deleted from the start.

    A merged segment does not reach beyond an old one whose records were all removed. That one is returned too.
    """
    bases = sorted(ends)
    needed_bases = []
    for base in aside:
        place = bisect_left(bases, base)
        if base in ends:
            is_needed = ends[base] is None
        elif not bases:
            is_needed = True
        elif place == 0:
            is_needed = began_at is not None and began_at <= base
        else:
            end = ends[bases[place - 1]]
            is_needed = end is None or end <= base
        if is_needed:
            needed_bases.append(base)
    return needed_bases


def holders(aside: Iterable[int], bases: Iterable[int]) -> set[int]:
    """Return the base offsets of the segments whose ends `only_copies` uses: at each offset, or before it."""
    ascending = sorted(bases)
    places = (bisect_left(ascending, base + 1) for base in aside)
    return {ascending[place - 1] for place in places if place > 0}


def first_epoch_offset(files: Files) -> int | None:
    """Return where the first leader epoch of a partition begins; None if none is known, 0 if the file is malformed.

    A broker moves it when it deletes segments from the start of the log. Raises RefusedError, StorageError.
    Rule: LeaderEpochFileCache.truncateFromStart.
    """
    file = files.file(LEADER_EPOCH_CHECKPOINT)
    if not file.exists():
        return None
    try:
        entries = parse_leader_epochs(file.read(), file=str(file))
    except CorruptCheckpointError:
        return 0
    return entries[0].start_offset if entries else None
