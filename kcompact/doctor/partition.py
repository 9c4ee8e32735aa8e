"""One partition: its names, damage, missing segments, times, space, and why it is not cleaned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from kcompact import readable
from kcompact.doctor.believed_index import time_index_findings, too_large_index_findings
from kcompact.doctor.broken_batches import swap_findings
from kcompact.doctor.damage import Tail, damage_findings, found_at_the_ends, found_by_reading, read_tail
from kcompact.doctor.findings import Finding
from kcompact.doctor.names import file_findings
from kcompact.doctor.recovery import recovery_findings, refused_indexes
from kcompact.doctor.settings import offset_map_findings
from kcompact.errors import CorruptDataError, KcompactError
from kcompact.format.names import Suffix, Temporary, base_offset_of, file_name, log_name, parse_file_name
from kcompact.format.properties import PARTITION_METADATA
from kcompact.host.disk import Disk
from kcompact.kernels import columns as c
from kcompact.log.batch_headers import end_by_headers, header_tables
from kcompact.log.directory import PartitionLog
from kcompact.log.files import LogFile, files_in
from kcompact.log.segments import Segment, deleted_segments, first_epoch_offset, holders, only_copies
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.deletion import expired_early
from kcompact.plan.partition import NO_HIGH_WATERMARK
from kcompact.plan.transactions import read_states
from kcompact.plan.verdict import why_paused
from kcompact.readable import counted
from kcompact.remarks import RemarkCode

CLOCKS_DIFFER_MS = 60_000
_SPACE_FACTOR = 1.05
_NO_HIGH_WATERMARK = "replication-offset-checkpoint has no entry for this partition, so no record counts as replicated"


def partition_findings(
    plan: CleanPlan,
    error: KcompactError | None,
    *,
    reads_all: bool,
    memory_bytes: int,
) -> Iterator[Finding]:
    """Yield everything about one partition; `error` is what its plan could not cope with.

    After an unclean shutdown the end of the log may be torn, so damage is looked for only in what a broker will have
    then, which takes reading: with `reads_all`. Beside a running broker, which changes the files, `verify`
    looks for damage. Raises StorageError, RefusedError, OSError.
    """
    log = plan.log
    yield from _leftover_findings(log)
    yield from swap_findings(log)
    yield from file_findings(log)
    problems = [*([error] if error is not None else []), *log.damage]
    if not (log.needs_recovery or log.log_dir.is_running):
        tails = [read_tail(log, segment) for segment in log.segments[:-1]]
        problems += found_by_reading(plan, memory_bytes) if reads_all else found_at_the_ends(plan, tails)
        yield from damage_findings(plan, problems, memory_bytes)
        if reads_all and not problems:
            from kcompact.doctor.dry_run import dry_run_findings  # It loads an engine.

            yield from dry_run_findings(plan, memory_bytes)
        yield from _time_index_findings(plan, reads_all=reads_all)
        yield from _missing_findings(plan, tails, reads_all=reads_all)
    yield from recovery_findings(log, problems)
    yield from refused_indexes(log, plan.config.release)
    yield from _index_findings(log)
    yield from _verdict_findings(plan)
    yield from _move_findings(plan)
    yield from offset_map_findings(plan)
    yield from _time_findings(plan)
    yield from _space_findings(plan)


def _leftover_findings(log: PartitionLog) -> Iterator[Finding]:
    finding = partial(Finding, directory=log.directory)
    if log.staging:
        problem = f"{log.staging[0]} is left of an interrupted run of kcompact; recover finishes or undoes it"
        yield finding(code=RemarkCode.STAGING, file=log.directory / log.staging[0], problem=problem)
    elif log.leftovers:
        files = counted(len(log.leftovers), "file")
        problem = f"{files} of a broker's interrupted cleaning: a broker finishes or removes them when it starts"
        if log.log_dir.is_running:
            problem = f"{files} of a cleaning that the running broker is just ending, or has given up"
        yield finding(code=RemarkCode.LEFTOVERS, file=log.directory / log.leftovers[0], problem=problem)
    needed = _only_copies(log)
    for base_offset in needed:
        problem = (
            f"no segment of the log has taken the place of {log_name(base_offset)}, unless a cleaning has removed all "
            "its records: a broker removes it when it starts"
        )
        yield _only_copy(log.directory, base_offset, problem)
    removed = [name for name in log.deleted if base_offset_of(name) not in needed]
    if removed:
        # A running broker deletes them `file.delete.delay.ms` after it has marked them.
        when = "within file.delete.delay.ms" if log.log_dir.is_running else "when it starts"
        problem = f"{counted(len(removed), 'file')} replaced or deleted; a broker removes them {when}"
        yield finding(code=RemarkCode.DELETED_FILES, file=log.directory / removed[0], problem=problem)


def _move_findings(plan: CleanPlan) -> Iterator[Finding]:
    """Yield a finding if the cleaner leaves a compacted log alone because it is being moved."""
    ruling = why_paused(plan.log)
    if ruling is not None and plan.config.compacts:
        problem = f"{ruling[1]}; until it ends, a broker's cleaner and kcompact leave the partition alone"
        yield Finding(code=RemarkCode.PAUSED_BY_MOVE, directory=plan.log.directory, problem=problem)


# Segments that are marked as deleted


def nothing_else_findings(directory: Path) -> Iterator[Finding]:
    """Yield a finding if a broker has marked every segment of a partition as deleted. Raises OSError."""
    names = files_in(directory).names()
    if not any(name.endswith((Suffix.LOG, f"{Suffix.LOG}{Temporary.SWAP}")) for name in names):
        for base_offset in deleted_segments(names)[:1]:
            problem = "every segment of the partition is marked as deleted: a broker removes them when it starts"
            yield _only_copy(directory, base_offset, problem)


def _only_copy(directory: Path, base_offset: int, problem: str) -> Finding:
    file = directory / file_name(base_offset, Suffix.LOG, Temporary.DELETED)
    return Finding(code=RemarkCode.ONLY_COPY, directory=directory, file=file, offset=base_offset, problem=problem)


def _only_copies(log: PartitionLog) -> list[int]:
    """Return the `.deleted` segments that may be the only copy. A running broker is about to remove its own."""
    aside = deleted_segments(log.deleted)
    if not aside or log.log_dir.is_running:
        return []
    logs = {segment.base_offset: segment.log_name for segment in log.segments}
    swaps = [name for name in log.leftovers if name.endswith(f"{Suffix.LOG}{Temporary.SWAP}")]
    logs |= {base_offset_of(name): name for name in swaps}
    used = holders(aside, logs)
    ends = {base: _end_if_whole(log.file(name), base) if base in used else None for base, name in logs.items()}
    return only_copies(aside, ends, began_at=first_epoch_offset(log.files))


def _end_if_whole(file: LogFile, base_offset: int) -> int | None:
    try:
        return end_by_headers(file, base_offset)
    except CorruptDataError:
        return None


# Segments that are not there


def _missing_findings(plan: CleanPlan, tails: Sequence[Tail], *, reads_all: bool) -> Iterator[Finding]:
    """Yield logs that other files name, and gaps. A copy that was stopped half way looks like this.

    Gaps inside of segments are found with `reads_all`.
    """
    log = plan.log
    known = {int(Path(each.file).stem) for each in log.damage if each.file.endswith(Suffix.LOG)}
    known |= {*deleted_segments(log.deleted)}
    start_offset = (log.log_dir.log_start_offsets or {}).get(log.topic_partition, 0)
    before_start = max((each.base_offset for each in log.segments if each.base_offset <= start_offset), default=0)
    missing = {
        name.base_offset: each.name
        for each in log.orphans  # With an empty index a segment may have had nothing.
        if each.size_bytes and (name := parse_file_name(each.name)) and before_start <= name.base_offset not in known
    }
    if log.log_dir.is_clean_shutdown and not log.damage:
        missing |= _named_by_snapshots(plan, tails)
    or_cleaned = ", or was cleaned further than its checkpoint says" if plan.config.compacts else ""
    for offset, witness in sorted(missing.items()):
        yield Finding(
            code=RemarkCode.MISSING_LOG,
            directory=log.directory,
            file=log.directory / log_name(offset),
            offset=offset,
            problem=f"{witness} is there, but no {log_name(offset)}: the log is half a copy, or has lost this segment"
            f"{or_cleaned if witness.endswith(Suffix.SNAPSHOT) else ''}",
            broker_says="Found an orphaned index file" if not witness.endswith(Suffix.SNAPSHOT) else "",
        )
    # A log that was never cleaned has no gaps.
    if plan.config.policy_text == "delete" and log.checkpoint_offset is None:
        yield from _gaps(log, tails)
        for segment in log.segments if reads_all else ():
            yield from _first_gap_inside(log, segment)


def _named_by_snapshots(plan: CleanPlan, tails: Sequence[Tail]) -> dict[int, str]:
    """Return the offsets of snapshots at which a segment should begin, or at which the log should end.

    A broker takes a snapshot when it begins a segment, and deletes it with the segment. It also takes one when it
    starts and stops, inside of a segment: then the segment goes on after it, unless a cleaning has removed that. The
    checkpoint can be wrong about how far it was cleaned, so the segment must also have all offsets from there on.
    """
    log, names_by_offset = plan.log, {}
    if plan.config.compacts and (log.checkpoint_offset is None or plan.first_dirty_offset < log.checkpoint_offset):
        tails = ()  # How far the log was cleaned is not known: no checkpoint, or one above the log end.
    for segment, tail in zip(log.segments, tails, strict=False):
        offset = tail.end_offset
        # An empty segment has its own snapshot.
        is_meant = tail.damage is None and offset in log.snapshots and offset != segment.base_offset
        if is_meant and plan.first_dirty_offset <= offset < log.end_of(segment) and _has_all(plan, segment):
            names_by_offset[offset] = log.snapshots[offset].name
    return names_by_offset | {
        offset: file.name for offset, file in log.snapshots.items() if offset > log.log_end_offset
    }


def _gaps(log: PartitionLog, tails: Sequence[Tail]) -> Iterator[Finding]:
    for before, tail, after in zip(log.segments, tails, log.segments[1:], strict=False):
        if tail.damage is None and max(tail.end_offset, log.log_start_offset) < after.base_offset:
            yield Finding(
                code=RemarkCode.OFFSET_GAP,
                directory=log.directory,
                file=log.directory / before.log_name,
                offset=tail.end_offset,
                problem=f"ends at offset {tail.end_offset}, but the next segment begins at {after.base_offset}: the "
                f"offsets between are missing, unless the topic was compacted before",
            )


def _first_gap_inside(log: PartitionLog, segment: Segment) -> Iterator[Finding]:
    """Yield the first batch of a segment that does not begin where the one before ends, or the segment.

    The checksum of a batch does not cover its offset: a damaged one can be too high in the last segment, where no
    other file contradicts it. A broker goes on from there.
    """
    with suppress(CorruptDataError):  # It is reported as damage.
        for position, missing_from, base_offset in islice(_gaps_inside(log, segment, log.log_start_offset), 1):
            yield Finding(
                code=RemarkCode.OFFSET_GAP,
                directory=log.directory,
                file=log.directory / segment.log_name,
                position=position,
                offset=missing_from,
                problem=f"the offsets from {missing_from} on are missing, and a batch begins at {base_offset}: "
                "they are lost, or the offset of the batch is damaged, unless the topic was compacted before",
            )


def _has_all(plan: CleanPlan, segment: Segment) -> bool:
    """Return whether the dirty part of a segment has all its offsets up to its last batch, with a record for each."""
    try:
        return not any(_gaps_inside(plan.log, segment, plan.first_dirty_offset, in_batches=True))
    except CorruptDataError:
        return False


def _gaps_inside(
    log: PartitionLog, segment: Segment, start_offset: int, *, in_batches: bool = False
) -> Iterator[tuple[int, int, int]]:
    """Yield position, first missing offset and base offset of each batch before which offsets are missing.

    Only from `start_offset` on; with `in_batches` also the batches that lack some themselves. Raises CorruptDataError.
    """
    next_offset = max(segment.base_offset, start_offset)
    for table in header_tables(log.file(segment.log_name), end_position=segment.size_bytes):
        base, last = table[:, c.BASE_OFFSET], table[:, c.LAST_OFFSET]
        ends = np.maximum.accumulate(np.maximum(last + 1, next_offset))
        expected = np.concatenate(([next_offset], ends[:-1]))
        lacks = base > expected
        if in_batches:
            lacks |= (last - base + 1 != table[:, c.RECORDS_COUNT]) & (last >= expected)
        # The header of a compressed batch of an older format has neither its first offset nor a count.
        is_known = (table[:, c.MAGIC] == 2) | (table[:, c.ATTRIBUTES] & c.CODEC_MASK == 0)
        for row in np.flatnonzero(lacks & is_known).tolist():
            yield int(table[row, c.POSITION]), int(expected[row]), int(base[row])
        next_offset = int(ends[-1])


def _time_index_findings(plan: CleanPlan, *, reads_all: bool) -> Iterator[Finding]:
    """Yield what the ends of time indexes make a broker believe. Headers are read with `reads_all`, or after zeros."""
    active = plan.log.active_segment
    yield from too_large_index_findings(plan.log, plan.config.segment_index_bytes)
    if not plan.log.damage:
        yield from time_index_findings(plan.log, active, now_ms=plan.now_ms)
    if not (reads_all or any(segment.ends_in_zeros for segment in plan.log.segments)):
        return
    with suppress(CorruptDataError):  # It is reported as damage.
        for segment, timestamp_ms in expired_early(plan):
            counts_as = f"counts as one of {readable.time(segment.largest_timestamp_ms)}"
            way_out = ""
            if segment.ends_in_zeros:
                counts_as += ", because the file ends in zeros"
                way_out = "; cut them off (truncate), or let kcompact clean --rebuild-indexes build the file again"
            yield Finding(
                code=RemarkCode.EARLY_DELETION,
                directory=plan.log.directory,
                file=plan.log.file(segment.log_name).path.with_suffix(Suffix.TIME_INDEX),
                offset=segment.base_offset,
                problem=f"the segment {counts_as}: retention.ms deletes it, with a record of "
                f"{readable.time(timestamp_ms)} in it{way_out}",
                broker_says="due to log retention time",
            )


def _index_findings(log: PartitionLog) -> Iterator[Finding]:
    if log.recovered_from is not None:
        return  # A broker makes new indexes.
    lacking = [
        segment.log_name.removesuffix(Suffix.LOG) + suffix
        for segment in log.segments
        for suffix in (Suffix.INDEX, Suffix.TIME_INDEX)
        if not segment.has(suffix)
    ]
    if lacking:
        more = f" and {counted(len(lacking) - 1, 'more index')}" if len(lacking) > 1 else ""
        yield Finding(
            code=RemarkCode.MISSING_INDEX,
            directory=log.directory,
            file=log.directory / lacking[0],
            problem=f"{lacking[0]}{more} missing: a broker reads the whole segment, builds the index, and cuts the "
            "segment off at the first damaged batch",
            broker_says="Could not find offset index file corresponding to log file",
        )


# Why it is not cleaned


def _verdict_findings(plan: CleanPlan) -> Iterator[Finding]:
    finding = partial(Finding, directory=plan.log.directory, topic=plan.log.topic_partition.topic)
    if plan.config.remote_storage_enable:
        yield finding(code=RemarkCode.REFUSED, problem=plan.explanation)
    if plan.config.compacts and NO_HIGH_WATERMARK in plan.log.notes:
        yield finding(code=RemarkCode.NO_HIGH_WATERMARK, problem=_NO_HIGH_WATERMARK)
    if plan.checkpoint_reset:
        start, end = plan.log.log_start_offset, plan.log.log_end_offset
        problem = f"clean up to {plan.log.checkpoint_offset}, outside [{start}, {end}]; a broker sets it to {start}"
        yield finding(code=RemarkCode.CLEANER_CHECKPOINT, problem=problem, offset=plan.log.checkpoint_offset)
    for note in plan.log.notes:
        if note.code is RemarkCode.STRAY_REPLICA:
            yield finding(code=RemarkCode.STRAY_REPLICA, problem=note.text, broker_says="marked stray and renamed")
        if note.code is RemarkCode.MISSING_TOPIC_ID:
            yield finding(
                code=RemarkCode.MISSING_TOPIC_ID,
                file=plan.log.directory / PARTITION_METADATA,
                topic_id=str(dict(note.facts)["topic_id"]),
                problem=note.text,
                broker_says="marked stray and renamed",
            )
    yield from _hanging_transactions(plan)


def _hanging_transactions(plan: CleanPlan) -> Iterator[Finding]:
    """Yield the open transactions that no coordinator is going to end. One that has it does so when it runs again."""
    timeout_ms, partition = plan.config.transaction_max_timeout_ms, plan.log.topic_partition
    old = [
        (first, producer)
        for producer in plan.producers.values()
        if (first := producer.transaction_first_offset) is not None
        and plan.now_ms - producer.last_timestamp > timeout_ms
    ]
    if not plan.config.compacts or not old:
        return
    states = read_states(plan.log.log_dir, {producer.producer_id for _, producer in old})
    for first, producer in old:
        state = states.get(producer.producer_id)
        if state is None or not state.has(producer, partition):
            yield Finding(
                code=RemarkCode.HANGING_TRANSACTION,
                directory=plan.log.directory,
                topic=partition.topic,
                offset=first,
                problem=f"producer {producer.producer_id} has a transaction open since offset {first}, last written at "
                f"{readable.time(producer.last_timestamp)}: nothing from there on is cleaned",
            )


# Times and space


def _time_findings(plan: CleanPlan) -> Iterator[Finding]:
    log = plan.log
    newest = max(log.segments, key=lambda segment: segment.largest_timestamp_ms)
    if newest.largest_timestamp_ms > plan.now_ms + CLOCKS_DIFFER_MS:
        yield Finding(
            code=RemarkCode.FUTURE_TIME,
            directory=log.directory,
            file=log.directory / newest.log_name,
            problem=f"has records of {readable.time(newest.largest_timestamp_ms)}, it is now "
            f"{readable.time(plan.now_ms)}: until then it is too young for min.compaction.lag.ms and retention.ms",
        )


def _space_findings(plan: CleanPlan) -> Iterator[Finding]:
    """Yield a note if the largest group might not fit. How large the result is, only counting shows."""
    if not plan.groups:
        return
    needed_bytes = max(
        sum(segment.size_bytes + segment.index_bytes + segment.time_index_bytes for segment in group)
        for group in plan.groups
    )
    disk = Disk.of(plan.log.directory)
    free_bytes = disk.free_bytes
    # On an overlay a rename may copy the old files.
    needed_bytes = int(needed_bytes * _SPACE_FACTOR) + (needed_bytes if disk.storage.is_overlay else 0)
    if needed_bytes > free_bytes:
        yield Finding(
            code=RemarkCode.LITTLE_SPACE,
            directory=plan.log.directory,
            problem=f"clean may need up to {readable.size(needed_bytes)} at once, {readable.size(free_bytes)} are "
            "free; it counts the result first where this bound does not fit",
        )
