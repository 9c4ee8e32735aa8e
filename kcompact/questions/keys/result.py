"""Puts the counts of all splits and buckets together, and checks that they add up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kcompact.clean import split_kernels
from kcompact.errors import AccountingError, KcompactError, LogChangedError
from kcompact.format.batch import Batch, Record, read_records
from kcompact.kernels import Column, Table
from kcompact.kernels import columns as c
from kcompact.log.inflate import Buffers
from kcompact.log.segment_reader import batches
from kcompact.questions.keys.counts import (
    AgeBin,
    CountedKeys,
    KeyCounts,
    LogKeys,
    NamedKey,
    PrefixCounts,
    PrefixKeys,
    SegmentKeys,
    SharedNamedKey,
    Tally,
    VersionsBin,
)
from kcompact.questions.keys.job import CountedSplit, KeysJob
from kcompact.questions.keys.reduce import (
    AGE_LIMITS_MS,
    FUTURE,
    KINDS,
    PREFIX,
    PREFIX_BYTES,
    PREFIX_KEYS,
    PREFIX_LIVE,
    PREFIX_LIVE_BYTES,
    PREFIX_RECORDS,
    PREFIX_REF,
    UNKNOWN,
    BucketRows,
    LogRows,
    join_prefixes,
    top_rows,
)
from kcompact.questions.keys.state import LogState
from kcompact.stages.job import Split

Names = Mapping[int, tuple[bytes, int]]


class _Sums(NamedTuple):
    """The rows of one log from all buckets. `latest` maps splits to the number and the bytes by kind."""

    parts: Sequence[LogRows]
    latest: dict[int, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, parts: Sequence[LogRows]) -> _Sums:
        latest: dict[int, npt.NDArray[np.int64]] = {}
        for part in parts:
            for split, counts in zip(part.splits.tolist(), part.latest, strict=True):
                latest[split] = latest[split] + counts if split in latest else counts
        return cls(parts, latest)

    def table(self, name: str, rows: int) -> Table:
        sums: Table = np.zeros((rows, 2), np.int64)
        for part in self.parts:
            sums += getattr(part, name)
        return sums

    def top(self, name: str, column: int, count: int, *, largest: bool = True) -> Table:
        tables = [getattr(part, name) for part in self.parts]
        return (
            top_rows(np.concatenate(tables), column, count, largest=largest) if tables else np.empty((0, 8), np.int64)
        )


def result_of(
    job: KeysJob,
    states: Sequence[LogState],
    splits: Mapping[int, Split],
    scanned: Sequence[CountedSplit],
    buckets: Sequence[BucketRows],
    failed: Sequence[tuple[Path, KcompactError]],
) -> CountedKeys:
    """Return the result of a count. Reads the keys that it names.

    Raises AccountingError if the counts contradict each other, CorruptDataError, LogChangedError, StorageError.
    """
    of_log: dict[int, dict[int, CountedSplit]] = {number: {} for number in range(len(states))}
    for split in scanned:
        of_log[job.log_of(split.number)][split.number] = split
    sums = [
        _Sums.of([bucket.logs[number] for bucket in buckets if number in bucket.logs]) for number in range(len(states))
    ]
    for number, state in enumerate(states):
        _check(state.directory, of_log[number], sums[number])
    chosen = [_Chosen.of(job, each) for each in sums]
    shared = sorted(
        (key for bucket in buckets for key in bucket.most_shared),
        key=lambda key: (-len(key.logs), key.refs),
    )[: job.top]
    refs = [ref for each in chosen for ref in each.refs()] + [key.refs[0] for key in shared]
    names = read_named(job, splits, refs)
    return CountedKeys(
        logs=tuple(
            _log_keys(job, state, splits, of_log[number], sums[number], chosen[number], names)
            for number, state in enumerate(states)
        ),
        failed=tuple(failed),
        distinct_keys=sum(bucket.distinct for bucket in buckets),
        shared_keys=sum(bucket.shared for bucket in buckets),
        most_shared=tuple(
            SharedNamedKey(
                key=names[key.refs[0]][0],
                directories=tuple(states[number].directory for number in key.logs),
                versions=key.versions,
                size_bytes=key.size_bytes,
            )
            for key in shared
        ),
    )


class _Chosen(NamedTuple):
    """The rows of the keys and prefixes to name."""

    most_versions: Table
    most_bytes: Table
    oldest: Table
    prefixes: Table
    prefixes_complete: bool
    most_records_prefixes: Table
    most_bytes_prefixes: Table

    @classmethod
    def of(cls, job: KeysJob, sums: _Sums) -> _Chosen:
        prefixes, is_complete = join_prefixes([part.prefixes for part in sums.parts])

        def top_prefixes(column: int) -> Table:
            order = np.lexsort((prefixes[:, PREFIX_REF], -prefixes[:, column]))
            largest_prefixes: Table = prefixes[order[: job.top]]
            return largest_prefixes

        return cls(
            sums.top("most_versions", c.KEY_VERSIONS, job.top),
            sums.top("most_bytes", c.KEY_BYTES, job.top),
            sums.top("oldest", c.KEY_TIMESTAMP, job.top, largest=False),
            prefixes,
            is_complete,
            top_prefixes(PREFIX_RECORDS),
            top_prefixes(PREFIX_BYTES),
        )

    def refs(self) -> Iterator[int]:
        """Yield the record references to read keys from."""
        for table in (self.most_versions, self.most_bytes, self.oldest):
            yield from table[:, c.KEY_REF].tolist()
        for table in (self.most_records_prefixes, self.most_bytes_prefixes):
            yield from table[:, PREFIX_REF].tolist()


def _log_keys(
    job: KeysJob,
    state: LogState,
    splits: Mapping[int, Split],
    scanned: Mapping[int, CountedSplit],
    sums: _Sums,
    chosen: _Chosen,
    names: Names,
) -> LogKeys:
    plan = state.plan
    of_segment: dict[str, list[KeyCounts]] = {}
    for number, split in scanned.items():
        counts = _counts(split, sums.latest.get(number, np.zeros((KINDS, 2), np.int64)))
        of_segment.setdefault(splits[number].log.name, []).append(counts)
    old = sum((part.old for part in sums.parts), np.zeros(2, np.int64)).tolist()
    return LogKeys(
        directory=state.directory,
        log_start_offset=plan.log.log_start_offset,
        committed_end_offset=state.stable_offset,
        counted_to_offset=_end_offset(state, scanned),
        segments=tuple(
            SegmentKeys(segment.base_offset, plan.role_of(segment), KeyCounts.sum(of_segment.get(segment.log_name, ())))
            for segment in plan.log.segments[: len(state.segments)]
        ),
        keys=sum(part.keys for part in sums.parts),
        versions=tuple(_version_bins(sums.table("versions", 64))),
        ages=tuple(_age_bins(sums.table("ages", UNKNOWN + 1))),
        old=None if job.older_than_ms is None else Tally(*old),
        most_versions=_named(chosen.most_versions, names),
        most_bytes=_named(chosen.most_bytes, names),
        oldest=_named(chosen.oldest, names),
        prefixes=_prefix_counts(job, chosen, names) if job.separator else None,
        problem=state.problem,
    )


def _end_offset(state: LogState, scanned: Mapping[int, CountedSplit]) -> int:
    if state.problem is None:
        return state.plan.log.log_end_offset
    last = max((split.last_offset for split in scanned.values()), default=-1)
    return max(last + 1, state.plan.log.log_start_offset)


def _counts(split: CountedSplit, latest: Table) -> KeyCounts:
    """Return the counts of a split. What is keyed and not the newest is superseded."""

    def tally(row: Column) -> Tally:
        return Tally(*row.tolist())

    counts = split.counts
    return KeyCounts(
        live_keys=tally(latest[c.VALUE]),
        superseded_records=tally(counts[c.KEYED] - latest.sum(axis=0)),
        unstamped_tombstones=tally(latest[c.UNSTAMPED]),
        waiting_tombstones=tally(latest[c.WAITING]),
        expired_tombstones=tally(latest[c.DUE]),
        null_key_records=tally(counts[c.UNKEYED]),
        control_records=tally(counts[c.CONTROL]),
        aborted_records=tally(counts[c.ABORTED]),
        undecided_records=tally(counts[c.UNSTABLE]),
        below_start_records=tally(counts[c.BELOW_START]),
        empty_batches=Tally(split.empty_batches, split.empty_bytes),
        batches=Tally(split.batches, split.batch_bytes),
    )


def _version_bins(table: Table) -> Iterator[VersionsBin]:
    for power, (keys, records) in enumerate(table.tolist()):
        if keys:
            yield VersionsBin(1 << power, (2 << power) - 1, keys, records)


def _age_bins(table: Table) -> Iterator[AgeBin]:
    for number, (keys, size_bytes) in enumerate(table.tolist()):
        kind = {FUTURE: "future", UNKNOWN: "unknown"}.get(number, "age")
        limit = AGE_LIMITS_MS[number] if number < len(AGE_LIMITS_MS) else None
        yield AgeBin(kind, limit, Tally(keys, size_bytes))


def _named(table: Table, names: Names) -> tuple[NamedKey, ...]:
    return tuple(
        NamedKey(
            key=names[row[c.KEY_REF]][0],
            offset=names[row[c.KEY_REF]][1],
            timestamp_ms=row[c.KEY_TIMESTAMP],
            is_tombstone=row[c.KEY_REF] & c.KEY_KIND_MASK != c.VALUE,
            versions=row[c.KEY_VERSIONS],
            size_bytes=row[c.KEY_BYTES],
            latest_bytes=row[c.KEY_LATEST_BYTES],
        )
        for row in table.tolist()
    )


def _prefix_counts(job: KeysJob, chosen: _Chosen, names: Names) -> PrefixCounts:
    def named(table: Table) -> tuple[PrefixKeys, ...]:
        return tuple(
            PrefixKeys(
                prefix=None if row[PREFIX] == c.NO_PREFIX else names[row[PREFIX_REF]][0].partition(job.separator)[0],
                keys=row[PREFIX_KEYS],
                records=Tally(row[PREFIX_RECORDS], row[PREFIX_BYTES]),
                live_keys=Tally(row[PREFIX_LIVE], row[PREFIX_LIVE_BYTES]),
            )
            for row in table.tolist()
        )

    return PrefixCounts(
        separator=job.separator,
        count=len(chosen.prefixes),
        is_complete=chosen.prefixes_complete,
        most_records=named(chosen.most_records_prefixes),
        most_bytes=named(chosen.most_bytes_prefixes),
    )


# Accounting


def _check(directory: Path, scanned: Mapping[int, CountedSplit], sums: _Sums) -> None:
    """Raise AccountingError unless each record was counted once in the scan, and each one with a key once by key."""

    def require(is_right: bool, problem: str) -> None:
        if not is_right:
            raise AccountingError(path=directory, stage="count of keys", problem=problem)

    for split in scanned.values():
        counted_records = int(split.counts[:, 0].sum())
        require(counted_records == split.announced, f"records {counted_records:,}, expected {split.announced:,}")
    keyed = _sum(split.counts[c.KEYED] for split in scanned.values())
    by_key = [sum(part.records for part in sums.parts), sum(part.record_bytes for part in sums.parts)]
    require(keyed == by_key, f"records with keys and bytes {by_key}, expected {keyed}")
    latest = sum(int(each[:, 0].sum()) for each in sums.latest.values())
    keys = sum(part.keys for part in sums.parts)
    require(latest == keys, f"newest records {latest:,}, expected {keys:,}")
    for number, kinds in sums.latest.items():
        left = (scanned[number].counts[c.KEYED] - kinds.sum(axis=0)).tolist() if number in scanned else [-1, -1]
        require(min(left) >= 0, f"more newest records in split {number} than records with a key")


def _sum(rows: Iterable[Column]) -> list[int]:
    return [int(each) for each in sum(rows, np.zeros(2, np.int64))]


def read_named(job: KeysJob, splits: Mapping[int, Split], refs: Iterable[int]) -> dict[int, tuple[bytes, int]]:
    """Return the key and the offset of the record of each reference.

    Raises CorruptDataError, LogChangedError, StorageError.
    """
    keys_and_offsets = {}
    for number, its_refs in groupby(sorted(set(refs)), key=lambda ref: ref >> c.KEY_REF_SPLIT_SHIFT):
        split = splits[number]
        wanted = {(ref & (1 << c.KEY_REF_SPLIT_SHIFT) - 1) >> c.KEY_REF_ROW_SHIFT: ref for ref in its_refs}
        for row, record in _records(job, split, sorted(wanted)):
            if record.key is None:
                raise LogChangedError(path=str(split.log), problem="has changed while it was read")
            keys_and_offsets[wanted[row]] = record.key, record.offset
    return keys_and_offsets


def _records(job: KeysJob, split: Split, rows: list[int]) -> Iterator[tuple[int, Record]]:
    """Yield the records of some rows of a split, which ascend."""
    left = iter(rows)
    row: int | None = next(left)
    for first, batch in _batches(job, split, rows):
        if row is None:
            return
        header = batch.header
        if 0 <= header.records_count <= row - first:
            continue
        records = read_records(batch, file=str(split.log), memory_bytes=job.memory_bytes)
        while row is not None and row - first < len(records):
            yield row, records[row - first]
            row = next(left, None)


def _batches(job: KeysJob, split: Split, rows: list[int]) -> Iterator[tuple[int, Batch]]:
    """Yield the batches that hold these rows, or more of them, each with the row of its first record."""
    loaded = split_kernels.load(split, Buffers(job.memory_bytes))
    if loaded is not None:
        ends = loaded.table[:, c.ROW] + loaded.table[:, c.RECORDS_COUNT]
        for number in np.unique(np.searchsorted(ends, rows, side="right")).tolist():
            yield int(loaded.table[number, c.ROW]), loaded.batch(number, split.log)
        return
    first = 0
    for batch in batches(
        split.log,
        start_position=split.start_position,
        end_position=split.end_position,
        memory_bytes=job.memory_bytes,
        identity=split.identity,
    ):
        yield first, batch
        count = batch.header.records_count
        first += count if count >= 0 else len(read_records(batch, file=str(split.log), memory_bytes=job.memory_bytes))
