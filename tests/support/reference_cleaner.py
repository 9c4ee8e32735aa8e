"""The cleaner as a dict: slow, plainly right, and written from the rules alone.

`clean` takes a log as a value and returns the segments that a cleaning leaves instead. It shares with kcompact
only the reading and building of single batches. No transactions, no record formats before v2.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from kcompact.format import batch as batch_format
from kcompact.format.batch import Batch, Record, parse_batches, read_records
from kcompact.release import EmptyLastBatch
from tests.support.log_writer import LogSpec, SegmentSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a cleaning leaves: for each output segment its batches, and the first bases of what it replaced."""

    checkpoint: int
    segments: dict[int, list[bytes]]
    groups: list[list[int]]
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages: int = 0
    map_keys: int = 0
    files: dict[str, bytes] = field(default_factory=dict)


def batches_of(segment: SegmentSpec) -> list[Batch]:
    return list(parse_batches(segment.data, file=""))


def log_end(spec: LogSpec) -> int:
    active = spec.segments[-1]
    return max([active.base_offset, *(batch.header.next_offset for batch in batches_of(active))])


def replicated_end(spec: LogSpec) -> int:
    return log_end(spec) if spec.high_watermark is None else spec.high_watermark


def view(spec: LogSpec) -> dict[bytes, bytes]:
    """Return the newest value of each key; a key whose newest record is a tombstone is not there."""
    newest: dict[bytes, bytes | None] = {}
    for segment in spec.segments:
        for batch in batches_of(segment):
            for record in read_records(batch, file=""):
                if record.key is not None:
                    newest[record.key] = record.value
    return {key: value for key, value in newest.items() if value is not None}


def dirty_range(spec: LogSpec) -> tuple[int, int]:
    """Return the first dirty offset and the first uncleanable one, which is a segment's base."""
    bases = [segment.base_offset for segment in spec.segments]
    start = max(spec.start or 0, bases[0])
    end = log_end(spec)
    dirty = spec.checkpoint
    if dirty is None or dirty < start or dirty > end:
        dirty = start
    stop = min(bases[-1], replicated_end(spec))
    lag = spec.config.min_compaction_lag_ms
    first = max([base for base in bases if base <= dirty], default=bases[0])
    for segment in spec.segments[:-1]:
        if lag > 0 and segment.base_offset >= first and largest_timestamp(segment) > spec.now_ms - lag:
            stop = min(stop, segment.base_offset)
            break
    stop = max(dirty, stop)
    return dirty, max([base for base in bases if base <= stop], default=bases[0])


def largest_timestamp(segment: SegmentSpec) -> int:
    greatest = max((batch.header.max_timestamp for batch in batches_of(segment)), default=-1)
    return greatest if greatest >= 0 else segment.modified_ms


def last_traces(spec: LogSpec) -> dict[int, int]:
    """Return the offset of the last data of each producer: from the newest snapshot and a replay of what follows."""
    if not spec.lone and not spec.snapshots:
        return {}  # a clean shutdown without any snapshot: there are no producers
    start = max(spec.start or 0, spec.segments[0].base_offset)
    traces: dict[int, int] = {}
    usable = [offset for offset in spec.snapshots if offset > start]
    if usable:
        start = max(usable)
        for entry in spec.snapshots[start]:
            if spec.now_ms - entry.timestamp < spec.config.producer_id_expiration_ms:
                traces[entry.producer_id] = entry.last_offset
    for segment in spec.segments:
        for batch in batches_of(segment):
            if batch.header.producer_id >= 0 and batch.header.last_offset >= start:
                traces[batch.header.producer_id] = batch.header.last_offset
    return traces


def groups_of(spec: LogSpec, stop: int) -> list[list[SegmentSpec]]:
    segments = [segment for segment in spec.segments if segment.base_offset < stop]
    limit, index_limit = spec.config.segment_bytes, spec.config.segment_index_bytes
    groups: list[list[SegmentSpec]] = []
    for number, segment in enumerate(segments):
        next_base = segments[number + 1].base_offset if number + 1 < len(segments) else stop
        if groups:
            together = [*groups[-1], segment]
            sizes = [[len(segment.data), *map(len, index_files(segment, spec))] for segment in together]
            log, index, time_index = (sum(column) for column in zip(*sizes, strict=True))
            in_reach = not segment.data or next_base - 1 - together[0].base_offset <= 2**31 - 1
            if log <= limit and index <= index_limit and time_index <= index_limit and in_reach:
                groups[-1].append(segment)
                continue
        groups.append([segment])
    return groups


def index_files(segment: SegmentSpec, spec: LogSpec) -> tuple[bytes, bytes]:
    """Return the two indexes of a segment, an entry whenever more than the interval lies behind."""
    offsets, times = b"", b""
    position = since = 0
    newest, newest_at, indexed = -1, 0, -1
    for batch in batches_of(segment):
        relative = batch.header.last_offset - segment.base_offset
        if batch.header.max_timestamp > newest:
            newest, newest_at = batch.header.max_timestamp, relative
        if since > spec.config.index_interval_bytes:
            offsets += struct.pack(">ii", relative, position)
            if newest > indexed:
                times, indexed = times + struct.pack(">qi", newest, newest_at), newest
            since = 0
        since += len(batch.data)
        position += len(batch.data)
    if newest > indexed:
        times += struct.pack(">qi", newest, newest_at)
    return offsets, times


def clean(spec: LogSpec, *, keep_tombstones: bool = False, held_back_from_offset: int | None = None) -> Outcome:
    """Return what a cleaning leaves. With nothing to clean there is no output segment.

    `held_back_from_offset` is the end of a replica that lags: no tombstone is dropped from a batch that ends there or
    above.
    """
    dirty, stop = dirty_range(spec)
    if dirty >= stop:
        return Outcome(checkpoint=stop, segments={}, groups=[])
    newest: dict[bytes, int] = {}
    for segment in spec.segments:
        for batch in batches_of(segment):
            for record in read_records(batch, file=""):
                if record.key is not None and dirty <= record.offset < stop:
                    newest[record.key] = record.offset
    traces = last_traces(spec)
    kept_ends = {EmptyLastBatch.NEVER: -1, EmptyLastBatch.ALWAYS: stop}
    last_end = kept_ends.get(spec.release.empty_last_batch, replicated_end(spec))
    outputs: dict[int, list[bytes]] = {}
    counts = {"messages_read": 0, "messages_written": 0, "invalid_messages": 0}
    files: dict[str, bytes] = {}
    groups = groups_of(spec, stop)
    for group in groups:
        base = group[0].base_offset
        output = outputs[base] = []
        for batch in (batch for segment in group for batch in batches_of(segment)):
            records = read_records(batch, file="")
            is_missing = held_back_from_offset is not None and batch.header.last_offset >= held_back_from_offset
            keeps = keep_tombstones or is_missing
            kept = [record for record in records if survives(record, batch, newest, spec.now_ms, keeps)]
            counts["messages_read"] += len(records)
            counts["messages_written"] += len(kept)
            counts["invalid_messages"] += sum(record.key is None for record in records)
            header = batch.header
            if kept:
                output.append(with_records(batch, records, kept, spec))
            elif header.next_offset == last_end or (
                header.producer_id >= 0 and traces.get(header.producer_id) == header.last_offset
            ):
                output.append(batch_format.empty(header))
        cleaned = SegmentSpec(base_offset=base, batches=tuple(output))
        offset_index, time_index = index_files(cleaned, spec)
        files |= {
            f"{base:020d}.log": cleaned.data,
            f"{base:020d}.index": offset_index,
            f"{base:020d}.timeindex": time_index,
        }
    return Outcome(
        checkpoint=stop,
        segments=outputs,
        groups=[[segment.base_offset for segment in group] for group in groups],
        map_keys=len(newest),
        files=files,
        **counts,
    )


def survives(record: Record, batch: Batch, newest: dict[bytes, int], now_ms: int, keep_tombstones: bool) -> bool:
    if record.key is None or record.offset < newest.get(record.key, -1):
        return False
    if record.value is not None or keep_tombstones or not batch.header.attributes & 0x40:
        return True
    return now_ms < batch.header.base_timestamp


def with_records(batch: Batch, records: list[Record], kept: list[Record], spec: LogSpec) -> bytes:
    """Return the batch with what is kept of it, verbatim where nothing changes."""
    has_horizon = bool(batch.header.attributes & 0x40)
    gets_horizon = not has_horizon and any(record.value is None for record in kept)
    if kept == records and not gets_horizon:
        return bytes(batch.data)
    horizon: int | None = batch.header.base_timestamp if has_horizon else None
    if gets_horizon:
        horizon = spec.now_ms + spec.config.delete_retention_ms
        if horizon >= 2**63:
            horizon = None
    return batch_format.rebuild(batch.header, kept, delete_horizon_ms=horizon)


def after(spec: LogSpec, outcome: Outcome) -> LogSpec:
    """Return the log after the cleaning, with its checkpoint unless it is `lone`."""
    replaced = {base for group in outcome.groups for base in group}
    kept = [segment for segment in spec.segments if segment.base_offset not in replaced]
    modified = {segment.base_offset: segment.modified_ms for segment in spec.segments}
    cleaned = [
        SegmentSpec(base_offset=group[0], batches=tuple(outcome.segments[group[0]]), mtime_ms=modified[group[-1]])
        for group in outcome.groups
    ]
    return replace(spec, segments=(*cleaned, *kept), checkpoint=None if spec.lone else outcome.checkpoint)
