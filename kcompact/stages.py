"""Scan, reduce, write: the three stages of a cleaning, as plain functions on packed blocks.

    scan   (splits of the log)        -> per bucket a block: key hash and offset of each record that may survive
    reduce (a bucket: all its blocks) -> per part a block: the offsets that do survive
    write  (a part of a group)        -> a staged file

Which record supersedes which is decided by one function, `living`, that may be applied to any part of the log and
again to its own results in any order; that is why any number of splits, buckets, parts and tasks, on any executor,
gives the same bytes. An executor is the machinery that calls the stages: `InProcess` here, Spark in `spark`.
"""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kcompact import producers, transactions
from kcompact.errors import CorruptBatchError, CorruptIndexError
from kcompact.format import index
from kcompact.format.batch import read_records
from kcompact.format.block import KEY_DTYPE, KeyEntries, Offsets, pack_keys, pack_offsets, unpack_keys, unpack_offsets
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix
from kcompact.log import FileIdentity, PartitionLog, Segment, batches, headers, read_file, verified_batches
from kcompact.plan import CleanPlan
from kcompact.write import CleanedSegment, CleanerStats, CleanJob, Split, WrittenPart, join, write_part

SPLIT_BYTES = 64 << 20
PART_BYTES = 256 << 20
BUCKET_BYTES = 256 << 20
"""How much of the log one bucket of the key map stands for."""


class WriteTask(NamedTuple):
    """One part to write: its place, its source and the blocks of offsets that survive in it."""

    group: int
    part: int
    splits: tuple[Split, ...]
    survivors: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        return sum(split.size_bytes for split in self.splits)


class Reduced(NamedTuple):
    """What a bucket came to: a block of offsets per part, and the number of distinct keys in the dirty section."""

    blocks: list[tuple[int, bytes]]
    map_keys: int


class Scanned(NamedTuple):
    """What a scan saw of a split, besides the keys. The epochs are those of its first and last batch that have one."""

    log_name: str
    start_position: int
    max_timestamp: int
    first_epoch: int
    last_epoch: int


class Watch:
    """Where a run reports to and asks whether to go on. This one is silent and never stops anything."""

    def begin(self, stage: str, total_bytes: int) -> None:
        """A stage starts, over so many bytes of source."""

    def advance(self, done_bytes: int) -> None:
        """So many more bytes of the stage's source are done."""

    def check(self) -> None:
        """Raise CleaningAbortedError when the run has been asked to stop."""


class Executor(Protocol):
    """Calls the stages, each on as many workers as it has, and reports to a `Watch` in between."""

    @property
    def name(self) -> str: ...
    @property
    def parallelism(self) -> int: ...

    def scan_and_reduce(
        self, job: CleanJob, tasks: Sequence[Sequence[Split]], part_starts: Sequence[int]
    ) -> tuple[list[Scanned], list[Reduced]]:
        """Scan every task's splits, bring the blocks of each bucket together and reduce them."""
        ...

    def write(self, job: CleanJob, tasks: Sequence[WriteTask], staging: str | None) -> list[WrittenPart]:
        """Write every part."""
        ...


# The stages


def scan(
    job: CleanJob, splits: Iterable[Split], watch: Watch | None = None
) -> tuple[list[Scanned], list[tuple[int, bytes]]]:
    """Return what the splits hold: a summary for each, and a block of keys for each bucket that has any.

    Verifies every batch, record and offset index entry on the way. Raises CorruptDataError, UnsupportedError.
    """
    summaries, living_keys = [], np.empty(0, KEY_DTYPE)
    for split in splits:
        entries, summary = _scan_split(job, split)
        summaries.append(summary)
        living_keys = living(np.concatenate((living_keys, entries)))
        if watch:
            watch.advance(split.size_bytes)
            watch.check()
    bucket_of = living_keys["hash_high"] % np.uint64(job.bucket_count)
    blocks = [(bucket, pack_keys(bucket, living_keys[bucket_of == bucket])) for bucket in np.unique(bucket_of).tolist()]
    return summaries, blocks


def _scan_split(job: CleanJob, split: Split) -> tuple[KeyEntries, Scanned]:
    path = Path(job.directory) / split.log_name
    hashes, offsets, in_map = [], [], []
    ends: dict[int, int] = {}
    max_timestamp, previous_offset = -1, -1
    epochs: list[int] = []
    for batch in verified_batches(
        path,
        base_offset=split.base_offset,
        end_offset=split.end_offset,
        start_position=split.start_position,
        end_position=split.end_position,
    ):
        header = batch.header
        ends[batch.position] = header.last_offset
        max_timestamp = max(max_timestamp, header.max_timestamp)
        if header.partition_leader_epoch >= 0:
            epochs = [*epochs[:1], header.partition_leader_epoch]
        records = read_records(batch, file=str(path))
        if header.magic < 2 and records[0].offset <= previous_offset:
            # Its header tells only where it ends; `verified_batches` could not see this.
            raise CorruptBatchError(
                file=path,
                position=batch.position,
                offset=records[0].offset,
                problem=f"begins with offset {records[0].offset} after offset {previous_offset}",
            )
        previous_offset = header.last_offset
        if header.is_control:
            continue  # The keys of markers look like keys and are none (KAFKA-14055).
        is_left_out = header.base_offset in split.left_out
        for record in records:
            if record.key is not None:
                hashes.append(hashlib.blake2b(record.key, digest_size=16, key=job.hash_key).digest())
                offsets.append(record.offset)
                in_map.append(record.offset >= job.first_dirty_offset and not is_left_out)
    _verify_offset_index(path, split, ends)
    entries = np.empty(len(offsets), KEY_DTYPE)
    halves = np.frombuffer(b"".join(hashes), "<u8").reshape(-1, 2)
    entries["hash_high"], entries["hash_low"] = halves[:, 0], halves[:, 1]
    entries["offset"], entries["in_map"] = offsets, in_map
    first_epoch, last_epoch = (epochs[0], epochs[-1]) if epochs else (-1, -1)
    return entries, Scanned(split.log_name, split.start_position, max_timestamp, first_epoch, last_epoch)


def _verify_offset_index(path: Path, split: Split, ends: dict[int, int]) -> None:
    """Raise CorruptIndexError for an index entry of this split that is not a batch's start and last offset."""
    index_path = path.with_suffix(Suffix.INDEX)
    if not split.check_index or not index_path.exists():
        return
    base_offset = int(path.stem)
    entries = index.parse_offset_index(read_file(index_path), base_offset=base_offset, file=str(index_path))
    for number, (relative_offset, position) in enumerate(entries):
        offset = base_offset + relative_offset
        if split.start_position <= position < split.end_position and ends.get(position) != offset:
            raise CorruptIndexError(
                file=index_path,
                position=number * index.OFFSET_ENTRY_BYTES,
                offset=offset,
                problem=f"points to position {position} of the log, where no batch with this last offset starts",
                hint="The log itself may be sound: --rebuild-indexes makes the indexes anew from the batches.",
            )


def living(entries: KeyEntries) -> KeyEntries:
    """Return the entries that no other supersedes: those at or above the greatest offset in the map for their key.

    Kafka's map knows the dirty section only, without aborted data (`Cleaner.buildOffsetMap`); a record outside of it
    supersedes none. Idempotent, and living(a + b) = living(living(a) + living(b)).
    """
    if not len(entries):
        return entries
    ordered = entries[np.lexsort((entries["offset"], entries["hash_low"], entries["hash_high"]))]
    last_of_key = _last_of_key(ordered)
    key_number = np.concatenate(([0], np.cumsum(last_of_key)[:-1]))
    greatest = np.full(int(key_number[-1]) + 1, -1, np.int64)
    mapped = ordered["in_map"] == 1
    np.maximum.at(greatest, key_number[mapped], ordered["offset"][mapped])
    return ordered[ordered["offset"] >= greatest[key_number]]


def _last_of_key(ordered: KeyEntries) -> npt.NDArray[np.bool_]:
    last = np.ones(len(ordered), np.bool_)
    high, low = ordered["hash_high"], ordered["hash_low"]
    np.logical_or(high[1:] != high[:-1], low[1:] != low[:-1], out=last[:-1])
    return last


def reduce(job: CleanJob, blocks: Iterable[bytes], part_starts: Sequence[int]) -> Reduced:
    """Return the surviving offsets of one bucket, from all its blocks, cut into parts.

    `part_starts` are the first offsets of the parts, ascending.
    """
    parts = [unpack_keys(block) for block in blocks]
    alive = living(np.concatenate(parts) if parts else np.empty(0, KEY_DTYPE))
    map_keys = int(np.count_nonzero(alive["in_map"]))
    offsets = np.sort(alive["offset"])
    cuts = [*np.searchsorted(offsets, part_starts).tolist(), len(offsets)]
    return Reduced(
        [
            (part, pack_offsets(part, offsets[start:end]))
            for part, (start, end) in enumerate(itertools.pairwise(cuts))
            if end > start
        ],
        map_keys,
    )


def write(job: CleanJob, task: WriteTask, staging: str | None) -> WrittenPart:
    """Write one part into the staging directory, or count it when there is none."""
    return write_part(job, task.splits, _merged(task.survivors), group=task.group, part=task.part, staging=staging)


def _merged(blocks: Iterable[bytes]) -> Offsets:
    parts = [unpack_offsets(block) for block in blocks]
    return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)


# The executor of this process


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    """Runs the stages one after the other, in this process."""

    watch: Watch = field(default_factory=Watch)
    name: str = "in-process"
    parallelism: int = 1

    def scan_and_reduce(
        self, job: CleanJob, tasks: Sequence[Sequence[Split]], part_starts: Sequence[int]
    ) -> tuple[list[Scanned], list[Reduced]]:
        self.watch.begin("scan", sum(split.size_bytes for splits in tasks for split in splits))
        summaries: list[Scanned] = []
        buckets: dict[int, list[bytes]] = {}
        for splits in tasks:
            seen, blocks = scan(job, splits, self.watch)
            summaries += seen
            for bucket, block in blocks:
                buckets.setdefault(bucket, []).append(block)
        return summaries, [reduce(job, blocks, part_starts) for blocks in buckets.values()]

    def write(self, job: CleanJob, tasks: Sequence[WriteTask], staging: str | None) -> list[WrittenPart]:
        self.watch.begin("write", sum(task.size_bytes for task in tasks))
        written = []
        for task in tasks:
            written.append(write(job, task, staging))
            self.watch.advance(task.size_bytes)
            self.watch.check()
        return written


# From a plan to the stages and back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the pieces are that the work is cut into. They never change the result."""

    split_bytes: int = SPLIT_BYTES
    part_bytes: int = PART_BYTES
    bucket_count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A plan whose survivors are known: every part of every group is ready to be written."""

    plan: CleanPlan
    job: CleanJob
    tasks: tuple[WriteTask, ...]
    kept_index: Mapping[int, tuple[AbortedTxn, ...]]
    map_keys: int

    def tasks_of(self, groups: Iterable[int]) -> list[WriteTask]:
        wanted = set(groups)
        return [task for task in self.tasks if task.group in wanted]


def prepare(
    plan: CleanPlan,
    executor: Executor,
    *,
    keep_tombstones: bool = False,
    rebuild_indexes: bool = False,
    sizes: Sizes | None = None,
) -> Cleaning:
    """Scan the log and find out which records survive. Reads only.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    sizes = sizes or Sizes()
    bucket_count = sizes.bucket_count or 1 + sum(segment.size_bytes for segment in plan.segments) // BUCKET_BYTES
    job = CleanJob(
        directory=str(plan.log.directory),
        first_dirty_offset=plan.first_dirty_offset,
        upper_bound_offset=plan.first_uncleanable_offset,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.config.delete_retention_ms,
        keep_tombstones=keep_tombstones,
        last_records=producers.last_records(plan.producers),
        # Keyed anew for each run, so that nobody can write records whose keys collide.
        hash_key=secrets.token_bytes(32),
        bucket_count=max(bucket_count, executor.parallelism) if sizes.bucket_count is None else bucket_count,
    )
    if not rebuild_indexes:
        _verify_index_ends(plan)
    fates = transactions.fates(plan)
    splits = {
        segment.base_offset: _splits(plan, segment, fates, sizes.split_bytes, trust_index=not rebuild_indexes)
        for segment in plan.segments
    }
    parts = _parts(plan, splits, sizes.part_bytes)
    part_starts = [part.start_offset for part in parts]
    every_split = [split for segment in plan.segments for split in splits[segment.base_offset]]
    summaries, reduced = executor.scan_and_reduce(job, _balanced(every_split, executor.parallelism), part_starts)
    _verify_epochs(plan, summaries)
    if not rebuild_indexes:
        _verify_time_indexes(plan, summaries)
    survivors: dict[int, list[bytes]] = {}
    for bucket in reduced:
        for number, block in bucket.blocks:
            survivors.setdefault(number, []).append(block)
    return Cleaning(
        plan=plan,
        job=job,
        tasks=tuple(
            WriteTask(part.group, number, part.splits, tuple(survivors.get(number, ())))
            for number, part in enumerate(parts)
        ),
        kept_index=fates.kept_index,
        map_keys=sum(bucket.map_keys for bucket in reduced),
    )


def write_groups(
    cleaning: Cleaning, groups: Sequence[int], staging: str, executor: Executor
) -> tuple[list[CleanedSegment], CleanerStats]:
    """Write the given groups of a cleaning into the staging directory: complete, verified, synced segments."""
    parts = executor.write(cleaning.job, cleaning.tasks_of(groups), staging)
    segments = []
    for number in groups:
        group = cleaning.plan.groups[number]
        own = sorted((part for part in parts if part.group == number), key=lambda part: part.part)
        files = join(
            Path(staging),
            group[0].base_offset,
            own,
            aborted=cleaning.kept_index[number],
            index_interval_bytes=cleaning.plan.config.index_interval_bytes,
            index_max_bytes=cleaning.plan.config.segment_index_bytes,
        )
        snapshots = _snapshots_to_remove(cleaning.plan, group)
        replaced = tuple(file for segment in group for file in segment.files)
        segments.append(CleanedSegment(base_offset=group[0].base_offset, files=files, replaces=(*replaced, *snapshots)))
    return segments, sum((part.stats for part in parts), CleanerStats())


def _snapshots_to_remove(plan: CleanPlan, group: Sequence[Segment]) -> list[FileIdentity]:
    """Return the producer snapshots that go with a group: all between its first base and its end.

    The one at the first base stays. Those at the bases that disappear go with their segments
    (`LocalLog.replaceSegments`); those at no base at all are what an earlier shutdown left, and a broker deletes them
    when it loads the log (`ProducerStateManager.removeStraySnapshots`).
    """
    end_offset = plan.log.end_of(group[-1])
    return [
        identity
        for offset, identity in sorted(plan.log.snapshots.items())
        if group[0].base_offset < offset < end_offset
    ]


class Counted(NamedTuple):
    """What a cleaning would have read and written, and the log as its planner would see it afterwards."""

    stats: CleanerStats
    log: PartitionLog


def count_groups(cleaning: Cleaning, executor: Executor) -> Counted:
    """Do all the work of a cleaning but write nothing."""
    parts = executor.write(cleaning.job, cleaning.tasks, None)
    plan = cleaning.plan
    cleaned = []
    for number, group in enumerate(plan.groups):
        own = [part for part in parts if part.group == number]
        largest = max((int(part.output_table["max_timestamp"].max()) for part in own if part.outputs), default=-1)
        cleaned.append(
            replace(
                group[0],
                size_bytes=sum(part.size_bytes for part in own),
                largest_timestamp_ms=largest if largest >= 0 else group[-1].last_modified_ms,
                last_modified_ms=group[-1].last_modified_ms,
            )
        )
    untouched = plan.log.segments[len(plan.segments) :]
    return Counted(
        sum((part.stats for part in parts), CleanerStats()), replace(plan.log, segments=(*cleaned, *untouched))
    )


def map_bytes(plan: CleanPlan) -> int:
    """Return how many bytes Kafka reads to make its map of keys: the dirty section, from the batch it starts in."""
    dirty = plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset)
    skipped = transactions.map_start_position(plan.log, dirty[0], plan.first_dirty_offset) if dirty else 0
    return sum(segment.size_bytes for segment in dirty) - skipped


class _Part(NamedTuple):
    group: int
    start_offset: int
    splits: tuple[Split, ...]


def _parts(plan: CleanPlan, splits: dict[int, list[Split]], part_bytes: int) -> list[_Part]:
    """Return the parts of all groups, ascending; a group has at least one, even if it holds no byte."""
    parts = []
    for number, group in enumerate(plan.groups):
        members: list[Split] = []
        start_offset = group[0].base_offset
        for split in (split for segment in group for split in splits[segment.base_offset]):
            if members and sum(member.size_bytes for member in members) + split.size_bytes > part_bytes:
                parts.append(_Part(number, start_offset, tuple(members)))
                members, start_offset = [], split.base_offset
            members.append(split)
        parts.append(_Part(number, start_offset, tuple(members)))
    return parts


def _splits(
    plan: CleanPlan, segment: Segment, fates: transactions.Fates, split_bytes: int, *, trust_index: bool
) -> list[Split]:
    """Cut a segment at batch boundaries, about every `split_bytes`; an empty segment has no splits."""
    if segment.size_bytes == 0:
        return []
    path = plan.log.directory / segment.log_name
    starts = [0]
    for position in _batch_positions(path, segment, trust_index) if segment.size_bytes > split_bytes else ():
        if position - starts[-1] >= split_bytes:
            starts.append(position)
    bases = [segment.base_offset, *(_base_offset_at(path, position) for position in starts[1:])]
    ends = [*starts[1:], segment.size_bytes]
    end_offsets = [*bases[1:], min(plan.log.end_of(segment), plan.first_uncleanable_offset)]
    left_out = fates.left_out.get(segment.base_offset, frozenset())
    discardable = fates.discardable[segment.base_offset]
    keeps_legacy_tombstones = segment.last_modified_ms > legacy_horizon_ms(plan)
    return [
        Split(
            log_name=segment.log_name,
            start_position=start,
            end_position=end,
            base_offset=base_offset,
            end_offset=end_offset,
            check_index=trust_index,
            left_out=frozenset(offset for offset in left_out if base_offset <= offset < end_offset),
            discardable=frozenset(offset for offset in discardable if base_offset <= offset < end_offset),
            keeps_legacy_tombstones=keeps_legacy_tombstones,
        )
        for start, end, base_offset, end_offset in zip(starts, ends, bases, end_offsets, strict=True)
    ]


def legacy_horizon_ms(plan: CleanPlan) -> int:
    """Return the time up to which a segment must have been modified to lose its tombstones of magic 0 and 1.

    Rule: `Cleaner.doClean`: the last clean segment's modification, less `delete.retention.ms`.
    """
    clean = [segment for segment in plan.log.segments if segment.base_offset < plan.first_dirty_offset]
    return clean[-1].last_modified_ms - plan.config.delete_retention_ms if clean else 0


def _batch_positions(path: Path, segment: Segment, trust_index: bool) -> Iterable[int]:
    index_path = path.with_suffix(Suffix.INDEX)
    if trust_index and index_path.exists():
        entries = index.parse_offset_index(read_file(index_path), base_offset=segment.base_offset, file=str(index_path))
        return [entry.position for entry in entries if entry.position < segment.size_bytes]
    return (position for position, _ in headers(path, end_position=segment.size_bytes))


def _base_offset_at(path: Path, position: int) -> int:
    _, header = next(headers(path, start_position=position))
    if header.magic == 2:
        return header.base_offset
    # The first offset of a legacy batch stands in its compressed section.
    (batch,) = batches(path, start_position=position, end_position=position + header.size_bytes)
    return read_records(batch, file=str(path))[0].offset


def _balanced(splits: Sequence[Split], count: int) -> list[list[Split]]:
    """Deal the splits into at most `count` runs of about the same size, in order."""
    total = sum(split.size_bytes for split in splits)
    tasks: list[list[Split]] = [[]]
    done = 0
    for split in splits:
        if tasks[-1] and done >= total * len(tasks) / count:
            tasks.append([])
        tasks[-1].append(split)
        done += split.size_bytes
    return tasks


def _verify_index_ends(plan: CleanPlan) -> None:
    """Raise CorruptIndexError where an index knows more than its log holds: the log lost its end, or all of it.

    No split would meet such an entry, and cleaning would wipe out the trace of what is missing.
    """
    for segment in plan.segments:
        path = (plan.log.directory / segment.log_name).with_suffix(Suffix.INDEX)
        if path.exists():
            entries = index.parse_offset_index(read_file(path), base_offset=segment.base_offset, file=str(path))
            index.verify_end(entries, size_bytes=segment.size_bytes, file=str(path))
        path = path.with_suffix(Suffix.TIME_INDEX)
        if segment.size_bytes == 0 and path.exists():
            times = index.parse_time_index(read_file(path), base_offset=segment.base_offset, file=str(path))
            if times:
                raise CorruptIndexError(file=path, position=0, problem="has entries, but its log is empty")


def _verify_epochs(plan: CleanPlan, summaries: Sequence[Scanned]) -> None:
    """Raise CorruptBatchError where the leader epoch falls from one split to the next; inside of one the scan looks.

    It lies outside the checksum, so only its neighbours tell that it is wrong.
    """
    epoch = -1
    for seen in sorted(summaries, key=lambda seen: (seen.log_name, seen.start_position)):
        if -1 < seen.first_epoch < epoch:
            raise CorruptBatchError(
                file=plan.log.directory / seen.log_name,
                position=seen.start_position,
                problem=f"leader epoch {seen.first_epoch} after epoch {epoch} before it",
            )
        epoch = max(epoch, seen.last_epoch)


def _verify_time_indexes(plan: CleanPlan, summaries: Sequence[Scanned]) -> None:
    """Raise CorruptIndexError where a time index does not end with its segment's greatest timestamp.

    An index without entries says nothing and is lawful. Rule: `LogSegment.onBecomeInactiveSegment`.
    """
    greatest: dict[str, int] = {}
    for summary in summaries:
        greatest[summary.log_name] = max(greatest.get(summary.log_name, -1), summary.max_timestamp)
    for segment in plan.segments:
        path = (plan.log.directory / segment.log_name).with_suffix(Suffix.TIME_INDEX)
        if not path.exists() or segment.size_bytes == 0:
            continue
        entries = index.parse_time_index(read_file(path), base_offset=segment.base_offset, file=str(path))
        if entries and entries[-1].timestamp != greatest[segment.log_name]:
            raise CorruptIndexError(
                file=path,
                position=(len(entries) - 1) * index.TIME_ENTRY_BYTES,
                problem=f"ends with timestamp {entries[-1].timestamp}, "
                f"the greatest in the log is {greatest[segment.log_name]}",
                hint="The log itself may be sound: --rebuild-indexes makes the indexes anew from the batches.",
            )
