"""From a plan to staged segments, in three stages of plain functions on packed blocks.

    scan   (splits of the log)        -> per bucket a block: key hash and place of each record that may survive
    reduce (a bucket: all its blocks) -> per split a block: the records that do not
    write  (a part of a group)        -> a staged file

Which record supersedes which is decided by one function, `keymap.living`, that may be applied to any part of the log
and again to its own results; that is why any number of splits, buckets, parts and tasks, on any executor, gives the
same bytes. An executor is the machinery that calls the stages: `in_process` here, Spark in `spark`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from kcompact import producers, transactions
from kcompact.errors import CorruptBatchError, CorruptIndexError
from kcompact.filter import CleanerStats, CleanJob, Split
from kcompact.format import index
from kcompact.format.batch import read_records
from kcompact.format.block import Bytes, clear_rows, head
from kcompact.format.index import AbortedTxn
from kcompact.format.names import Suffix
from kcompact.keymap import KEY_BYTES, superseded
from kcompact.log import FileIdentity, PartitionLog, Segment, batches, headers, read_file
from kcompact.machine import default_memory_bytes
from kcompact.plan import CleanPlan
from kcompact.scan import Scanned
from kcompact.throttle import Pace, Throttle
from kcompact.write import CleanedSegment, WriteTask, WrittenPart, join

SPLIT_BYTES = 32 << 20
"""What a task reads at once."""
TASK_BYTES = 2 << 30
"""What a task reads in all, at most: so much is done again when it is lost, and only then does progress show."""
COMPILED_BYTES = 2 << 20
"""From which size on the kernels pay for being loaded."""
BUCKET_BYTES = 64 << 20
"""What the keys of a bucket may take at most; larger ones would only be slower."""
MIN_BUCKET_BYTES = 1 << 20


class Reduced(NamedTuple):
    """What a bucket came to: a block per split of the records that are superseded, and how many keys the map holds."""

    blocks: list[bytes]
    map_keys: int


def reduce(job: CleanJob, blocks: Iterable[bytes]) -> Reduced:
    """Return what one bucket comes to, from all its blocks in any order."""
    return Reduced(*superseded(blocks, compiled=job.compiled))


class Watch:
    """Where a run reports to and asks whether to go on. This one is silent and never stops anything."""

    def begin(self, stage: str, total_bytes: int) -> None:
        """A stage starts, over so many bytes of source."""

    def compiling(self) -> None:
        """The kernels are about to be compiled, which takes some ten seconds and happens once on a machine."""

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
        self, job: CleanJob, tasks: Sequence[Sequence[Split]]
    ) -> tuple[list[Scanned], Iterable[Reduced]]:
        """Scan every task's splits, bring the blocks of each bucket together and reduce them."""
        ...

    def write(self, job: CleanJob, tasks: Sequence[Sequence[WriteTask]], staging: str | None) -> list[WrittenPart]:
        """Write the parts of every task."""
        ...


# From a plan to the stages and back


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How large the pieces are that the work is cut into, and who does it. They never change the result.

    None leaves it to the size of the log. `memory_bytes` is for all workers together.
    """

    split_bytes: int = SPLIT_BYTES
    task_bytes: int = TASK_BYTES
    bucket_count: int | None = None
    memory_bytes: int | None = None
    compiled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A plan whose survivors are known: every part of every group is ready to be written."""

    plan: CleanPlan
    job: CleanJob
    tasks: tuple[WriteTask, ...]
    kept_index: Mapping[int, tuple[AbortedTxn, ...]]
    map_keys: int

    def tasks_of(self, groups: Iterable[int]) -> list[list[WriteTask]]:
        """Return the parts of some groups, as they are dealt to tasks."""
        wanted = set(groups)
        own = [task for task in self.tasks if task.group in wanted]
        return [list(run) for _, run in groupby(own, key=lambda task: task.run)]


def prepare(
    plan: CleanPlan,
    executor: Executor,
    *,
    keep_tombstones: bool = False,
    rebuild_indexes: bool = False,
    max_bytes_per_second: int | None = None,
    sizes: Sizes | None = None,
) -> Cleaning:
    """Scan the log and find out which records survive. Reads only.

    Raises CorruptDataError, UnsupportedError, StorageError.
    """
    sizes = sizes or Sizes()
    total_bytes = sum(segment.size_bytes for segment in plan.segments)
    compiled = is_for_kernels(plan) if sizes.compiled is None else sizes.compiled
    keys_bytes, bucket_count = _key_memory(plan, sizes, executor.parallelism)
    job = CleanJob(
        directory=str(plan.log.directory),
        first_dirty_offset=plan.first_dirty_offset,
        upper_bound_offset=plan.first_uncleanable_offset,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.config.delete_retention_ms,
        keep_tombstones=keep_tombstones,
        last_records=producers.last_records(plan.producers),
        # Keyed anew for each run, so that nobody can write records whose keys collide.
        hash_key=secrets.token_bytes(16),
        bucket_count=bucket_count,
        keys_bytes=keys_bytes,
        compiled=compiled,
        max_bytes_per_second=max_bytes_per_second,
    )
    if not rebuild_indexes:
        _verify_index_ends(plan)
    split_bytes = sizes.split_bytes
    if max_bytes_per_second is not None:
        split_bytes = min(split_bytes, max(1, max_bytes_per_second // 8))  # So that it goes steadily.
    splits = _numbered(plan, split_bytes, trust_index=not rebuild_indexes)
    fates = None
    aborted = transactions.aborted_of_segments(plan)
    if any(aborted.values()):
        fates = transactions.fates(plan, transactions.walk(plan, compiled=compiled), aborted)
        splits = _with_fates(splits, fates)
    task_count = max(executor.parallelism, -(-total_bytes // sizes.task_bytes))
    runs = _balanced([split for own in splits.values() for split in own], task_count)
    scanned, reduced = executor.scan_and_reduce(job, runs)
    _verify_epochs(plan, scanned)
    if not rebuild_indexes:
        _verify_time_indexes(plan, scanned)
    if fates is None:
        fates = transactions.fates(plan, _seen_by(plan, scanned), aborted)
        splits = _with_fates(splits, fates)
    survivors = {one.split.number: np.frombuffer(bytearray(one.survivors), np.uint8) for one in scanned}
    map_keys = 0
    for bucket in reduced:
        map_keys += bucket.map_keys
        for block in bucket.blocks:
            clear_rows(block, survivors[head(block).number])
    run_of = {split.number: number for number, run in enumerate(runs) for split in run}
    return Cleaning(
        plan=plan,
        job=job,
        tasks=tuple(_parts(plan, splits, run_of, survivors, {one.split.number: one.seen.special for one in scanned})),
        kept_index=fates.kept_index,
        map_keys=map_keys,
    )


def is_for_kernels(plan: CleanPlan) -> bool:
    """Whether the log is large enough for the kernels to pay."""
    return sum(segment.size_bytes for segment in plan.segments) >= COMPILED_BYTES


def _key_memory(plan: CleanPlan, sizes: Sizes, parallelism: int) -> tuple[int, int]:
    """Return how many bytes of keys a task may hold, and the number of buckets that keeps each of them below that."""
    memory_bytes = sizes.memory_bytes or default_memory_bytes()
    # Keys take about three times their size where they are merged.
    keys_bytes = min(BUCKET_BYTES, max(MIN_BUCKET_BYTES, memory_bytes // (8 * parallelism)))
    # An offset is a record, or was one; and a record takes some bytes, even compressed.
    offsets = sum(plan.log.end_of(segment) - segment.base_offset for segment in plan.segments)
    records = min(offsets, sum(segment.size_bytes for segment in plan.segments) // 8)
    bucket_count = max(1, -(-records * KEY_BYTES // keys_bytes))
    # Each worker reduces something, unless there is next to nothing to reduce.
    if records * KEY_BYTES >= MIN_BUCKET_BYTES:
        bucket_count = max(bucket_count, parallelism)
    return keys_bytes, sizes.bucket_count or bucket_count


class Written(NamedTuple):
    """The staged segments of some groups, what was counted, and the seconds that syncing and reading back took."""

    segments: list[CleanedSegment]
    stats: CleanerStats
    sync_s: float
    verify_s: float

    def plus(self, other: Written) -> Written:
        """Return both together."""
        return Written(
            [*self.segments, *other.segments],
            self.stats + other.stats,
            self.sync_s + other.sync_s,
            self.verify_s + other.verify_s,
        )


def write_groups(cleaning: Cleaning, groups: Sequence[int], staging: str, executor: Executor) -> Written:
    """Write the given groups of a cleaning into the staging directory: complete, verified, synced segments."""
    job = cleaning.job
    parts = executor.write(job, cleaning.tasks_of(groups), staging)
    sync_s, verify_s = sum(part.sync_s for part in parts), sum(part.verify_s for part in parts)
    pace = Pace(Throttle(job.max_bytes_per_second))
    segments = []
    for number in groups:
        group = cleaning.plan.groups[number]
        joined = join(
            Path(staging),
            group[0].base_offset,
            sorted((part for part in parts if part.group == number), key=lambda part: part.part),
            aborted=cleaning.kept_index[number],
            index_interval_bytes=cleaning.plan.config.index_interval_bytes,
            index_max_bytes=cleaning.plan.config.segment_index_bytes,
            compiled=job.compiled,
            pace=pace,
        )
        sync_s, verify_s = sync_s + joined.sync_s, verify_s + joined.verify_s
        snapshots = _snapshots_to_remove(cleaning.plan, group)
        replaced = tuple(file for segment in group for file in segment.files)
        segments.append(
            CleanedSegment(base_offset=group[0].base_offset, files=joined.files, replaces=(*replaced, *snapshots))
        )
    return Written(segments, sum((part.stats for part in parts), CleanerStats()), sync_s, verify_s)


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
    parts = executor.write(cleaning.job, cleaning.tasks_of(range(len(cleaning.plan.groups))), None)
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


def _parts(
    plan: CleanPlan,
    splits: Mapping[int, Sequence[Split]],
    run_of: Mapping[int, int],
    survivors: Mapping[int, Bytes],
    special: Mapping[int, int],
) -> Iterator[WriteTask]:
    """Yield the parts of all groups, ascending: what each task has of it. A group has at least one, even if empty."""
    run = 0
    for group, segments in enumerate(plan.groups):
        own = [split for segment in segments for split in splits[segment.base_offset]]
        members = [list(part) for _, part in groupby(own, key=lambda split: run_of[split.number])] or [[]]
        for part, part_splits in enumerate(members):
            run = run_of[part_splits[0].number] if part_splits else run
            yield WriteTask(
                group=group,
                part=part,
                run=run,
                splits=tuple(part_splits),
                survivors=tuple(survivors[split.number].tobytes() for split in part_splits),
                special=tuple(special[split.number] for split in part_splits),
                is_only=len(members) == 1,
            )


def _seen_by(plan: CleanPlan, scanned: Iterable[Scanned]) -> dict[int, transactions.SegmentHeaders]:
    """Return what the scan saw of each segment's headers, by its base offset."""
    base_of = {segment.log_name: segment.base_offset for segment in plan.segments}
    found = {base_offset: transactions.SegmentHeaders((), base_offset) for base_offset in base_of.values()}
    for one in sorted(scanned, key=lambda one: one.split.number):
        base_offset, seen = base_of[one.split.log_name], one.seen
        found[base_offset] = transactions.SegmentHeaders(
            (*found[base_offset].batches, *seen.transactional), max(found[base_offset].next_offset, seen.next_offset)
        )
    return found


def _with_fates(splits: Mapping[int, Sequence[Split]], fates: transactions.Fates) -> dict[int, list[Split]]:
    """Return the splits with the batches that concern each."""
    found = {}
    for base_offset, own in splits.items():
        left_out = fates.left_out.get(base_offset, frozenset())
        discardable = fates.discardable[base_offset]
        if left_out or discardable:
            own = [
                replace(split, left_out=_within(left_out, split), discardable=_within(discardable, split))
                for split in own
            ]
        found[base_offset] = list(own)
    return found


def _within(offsets: frozenset[int], split: Split) -> frozenset[int]:
    return frozenset(offset for offset in offsets if split.base_offset <= offset < split.end_offset)


def _numbered(plan: CleanPlan, split_bytes: int, *, trust_index: bool) -> dict[int, list[Split]]:
    """Return the splits of each segment, by its base offset, numbered through."""
    found, number = {}, 0
    for segment in plan.segments:
        own = _splits(plan, segment, split_bytes, trust_index=trust_index)
        found[segment.base_offset] = [replace(split, number=number + place) for place, split in enumerate(own)]
        number += len(own)
    return found


def _splits(plan: CleanPlan, segment: Segment, split_bytes: int, *, trust_index: bool) -> list[Split]:
    """Cut a segment at batch boundaries, about every `split_bytes`; an empty segment has no splits."""
    if segment.size_bytes == 0:
        return []
    path = plan.log.directory / segment.log_name
    starts = [0]
    if segment.size_bytes > split_bytes:
        positions = np.fromiter(_batch_positions(path, segment, trust_index), np.int64)
        while (at := int(np.searchsorted(positions, starts[-1] + split_bytes))) < len(positions):
            starts.append(int(positions[at]))
    bases = [segment.base_offset, *(_base_offset_at(path, position) for position in starts[1:])]
    ends = [*starts[1:], segment.size_bytes]
    end_offsets = [*bases[1:], min(plan.log.end_of(segment), plan.first_uncleanable_offset)]
    keeps_legacy_tombstones = segment.last_modified_ms > legacy_horizon_ms(plan)
    return [
        Split(
            log_name=segment.log_name,
            start_position=start,
            end_position=end,
            base_offset=base_offset,
            end_offset=end_offset,
            check_index=trust_index,
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


def _verify_epochs(plan: CleanPlan, scanned: Sequence[Scanned]) -> None:
    """Raise CorruptBatchError where the leader epoch falls from one split to the next; inside of one the scan looks.

    It lies outside the checksum, so only its neighbours tell that it is wrong.
    """
    epoch = -1
    for split, _, seen in sorted(scanned, key=lambda one: one.split.number):
        if -1 < seen.first_epoch < epoch:
            raise CorruptBatchError(
                file=plan.log.directory / split.log_name,
                position=split.start_position,
                problem=f"leader epoch {seen.first_epoch} after epoch {epoch} before it",
            )
        epoch = max(epoch, seen.last_epoch)


def _verify_time_indexes(plan: CleanPlan, scanned: Sequence[Scanned]) -> None:
    """Raise CorruptIndexError where a time index does not end with its segment's greatest timestamp.

    An index without entries says nothing and is lawful. Rule: `LogSegment.onBecomeInactiveSegment`.
    """
    greatest: dict[str, int] = {}
    for one in scanned:
        name = one.split.log_name
        greatest[name] = max(greatest.get(name, -1), one.seen.max_timestamp)
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
