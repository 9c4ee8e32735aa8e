"""What the cleaning of a partition costs, for a broker and here, and what retention frees. Upper bounds. Pure.

A plan knows sizes and offsets, but no keys and no records: `clean --dry-run` counts them, and the exact sizes. The size
of its offset map decides how many passes a broker needs; kcompact always needs one.
Rules: `LogCleaner.CleanerThread`, `SkimpyOffsetMap`, `Cleaner.buildOffsetMap`, `Cleaner.cleanInto`, which charge the
throttle for what they read and write.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from kcompact.config.settings import INT_MAX, LONG_MAX, MIN_DEDUPE_BUFFER_BYTES, TopicConfig
from kcompact.format.names import Suffix
from kcompact.log.segments import Segment
from kcompact.plan.clean_plan import CleanPlan, group_segments
from kcompact.plan.deletion import RetentionReason, first_due_ms, plan_forecast, retention_comes_first
from kcompact.plan.verdict import Reason
from kcompact.values import dataclass

OFFSET_MAP_ENTRY_BYTES = 16 + 8
"""An MD5 of the key and an offset."""


def offset_map_slots(config: TopicConfig) -> int:
    """Return the number of keys that the offset map of one cleaner thread can contain.

    Rule: `LogCleaner.CleanerThread`, `SkimpyOffsetMap`.
    """
    return min(config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads, INT_MAX) // OFFSET_MAP_ENTRY_BYTES


def keys_per_pass(config: TopicConfig) -> int:
    """Return the number of keys at which the broker's cleaner treats its offset map as full and ends a pass.

    Can exceed `offset_map_slots` when the load factor is above 1. Rule: `Cleaner.buildOffsetMapForSegment`.
    """
    return _keys_in(offset_map_slots(config), config)


def _keys_in(slots: int, config: TopicConfig) -> int:
    """Return the number of keys at which a map of so many slots counts as full; as Java does, at most 2^31 - 1."""
    keys = slots * config.log_cleaner_io_buffer_load_factor
    return int(min(keys, INT_MAX)) if keys > 0 else 0  # NaN is 0 in Java too.


def dirty_records_at_most(plan: CleanPlan) -> int:
    """Return an upper bound of the records in the cleanable section, and so of its keys: the number of offsets."""
    return sum(
        plan.log.end_of(segment) - max(segment.base_offset, plan.first_dirty_offset)
        for segment in plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset)
        if segment.size_bytes
    )


def buffer_bytes_for_one_pass(config: TopicConfig, keys: int) -> int | None:
    """Return the smallest `log.cleaner.dedupe.buffer.size` with which so many keys are sure to take one pass.

    None if no buffer does: a thread uses at most 2^31 - 1 bytes, and the load factor may be useless. A broker does not
    start with 1 MiB for a thread or less.
    """
    most_slots = INT_MAX // OFFSET_MAP_ENTRY_BYTES
    slots = bisect.bisect_left(
        range(most_slots + 1),
        True,
        key=lambda slots: keys <= min(_keys_in(slots, config), slots),
    )
    if slots > most_slots:
        return None
    return max(slots * OFFSET_MAP_ENTRY_BYTES, MIN_DEDUPE_BUFFER_BYTES + 1) * config.log_cleaner_threads


def kafka_passes_at_most(plan: CleanPlan, *, map_keys: int | None = None) -> int | None:
    """Return an upper bound of the passes that Kafka's own cleaner needs for the cleanable section.

    A pass ends at the first keyed record that finds the map full, so every pass except the last processes at least
    `keys_per_pass` records. The number of offsets is an upper bound of the number of records. `map_keys` is the number
    of keys, if it is known; one pass is enough when they do not fill the map. Returns 0 when nothing is cleanable, and
    None when the cleaner might never finish, because the settings allow no key in the map, or more keys than it can
    contain. Rule: `Cleaner.buildOffsetMap`.
    """
    if not plan.cleanable_bytes:
        return 0
    full, slots = keys_per_pass(plan.config), offset_map_slots(plan.config)
    records = dirty_records_at_most(plan)
    if records <= min(full, slots) or (map_keys is not None and map_keys < full and map_keys <= slots):
        return 1
    return -(-records // full) if 0 < full <= slots else None


def kafka_passes_at_least(plan: CleanPlan, *, map_keys: int) -> int | None:
    """Return a lower bound of the passes that Kafka's own cleaner needs: the passes if no key occurs in two of them.

    `map_keys` is the number of keys in the cleanable section. Returns None when the cleaner never finishes.
    """
    full, slots = keys_per_pass(plan.config), offset_map_slots(plan.config)
    if map_keys > slots and full > slots:
        return None
    return max(1, -(-map_keys // full)) if full else None


# What a cleaning reads, writes and needs

_UNLIMITED = TopicConfig().log_cleaner_io_max_bytes_per_second


def is_throttled(config: TopicConfig) -> bool:
    """Return whether a broker's cleaner ever waits: not below 0, and not for NaN. Rule: `Throttler.maybeThrottle`."""
    return 0 <= config.log_cleaner_io_max_bytes_per_second < _UNLIMITED


_LONGEST_S = LONG_MAX / 1000
"""A longer time has no use, and JSON has no infinity."""
_RECORD_GROWTH_BYTES = 10
"""A record that is written again grows by no more: its timestamp and its length take more bytes (`clean.growth`)."""
_SMALLEST_RECORD_BYTES = 7
"""Length, attributes, both differences, and the lengths of key, value and headers. Compressed ones take less, and so
does their growth."""
_SMALLEST_BATCH_BYTES = 61
_BLOCK_BYTES = 4096
_SHARED_BLOCKS = 8
"""For new names in directories, and for the checkpoint."""
_NOTED_BYTES = 512
"""What the manifest of a swap says about a file, at most."""
_UNDIVIDED_BYTES = 64 << 10
"""A group that is not larger is written in one part (`stages.sizing.MIN_SPLIT_BYTES`)."""
_METADATA_SHARE = 100
"""A file system needs less than one byte for so many, to describe a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCost:
    """What a broker's own cleaner has to do for the cleanable section, at most.

    `keys_at_most` is the number of offsets: keys are known only when they are counted. `keys_per_pass` fill the map of
    one thread. `buffer_utilization` is the share of the map that these keys take. `passes_at_most` is None if the
    cleaner might never finish. `seconds_throttled` is the time at `log.cleaner.io.max.bytes.per.second` if as much is
    written as was read, None without a limit. No bound: the threads share the limit, and a batch that is cut by the end
    of the buffer is read again.
    """

    passes_at_most: int | None
    buffer_bytes: int
    threads: int
    load_factor: float
    keys_per_pass: int
    keys_at_most: int
    buffer_utilization: float
    buffer_bytes_for_one_pass: int | None
    bytes_rewritten: int
    bytes_read_and_written: int
    seconds_throttled: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostHere:
    """What kcompact reads and writes for the same result, and the space that it needs meanwhile, at most.

    The bounds hold for batches that Kafka compresses as well as their producers did, and for file systems whose blocks
    have 4 KiB. `log_bytes_read` are read for the map and for the new segments, `bytes_written_at_most` is the size of
    these: what is written is also read once more to check it, and parts of a segment that several processors have
    written are copied together. With less free space than `peak_extra_disk_bytes` the groups are written in one part,
    and one after the other; `least_extra_disk_bytes` is enough for the largest one.
    """

    log_bytes_read: int
    bytes_written_at_most: int
    peak_extra_disk_bytes: int
    least_extra_disk_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFrees:
    """What a broker deletes as whole segments, and when the next segment is due.

    `comes_first`: before it cleans this log, because it cleans another one first. `is_at_most`: some are only past
    `retention.bytes`, and a cleaning comes first, which may spare them.
    """

    comes_first: bool
    is_at_most: bool
    segments: int
    size_bytes: int
    postponed_segments: int
    postponed_bytes: int
    next_due_ms: int | None


def rewritten_segments(plan: CleanPlan) -> tuple[Segment, ...]:
    """Return the segments that a cleaning of the cleanable section rewrites, eligible or not."""
    if not plan.cleanable_bytes:
        return ()
    return tuple(segment for segment in plan.log.segments if segment.base_offset < plan.first_uncleanable_offset)


def held_back_segments(plan: CleanPlan) -> tuple[Segment, ...]:
    """Return the segments that a cleaning rewrites once nothing is too young, undecided or unreplicated any more.

    Empty unless one of these reasons keeps the cleaner out of the whole partition.
    """
    if plan.reason is not plan.bound or plan.bound is Reason.ACTIVE_ONLY:
        return ()
    return plan.log.segments[:-1]


def broker_cost(plan: CleanPlan) -> BrokerCost:
    """Return what a broker's cleaner has to do for the cleanable section, also if it is not eligible."""
    config, keys = plan.config, dirty_records_at_most(plan)
    slots, full, passes = offset_map_slots(config), keys_per_pass(config), kafka_passes_at_most(plan)
    rewritten = sum(segment.size_bytes for segment in rewritten_segments(plan))
    # Each pass reads the dirty section up to its end for the map, then reads and writes all that is below.
    charged = plan.cleanable_bytes + 2 * rewritten * (passes or 1)
    rate = config.log_cleaner_io_max_bytes_per_second
    return BrokerCost(
        passes_at_most=passes,
        buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        threads=config.log_cleaner_threads,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        keys_per_pass=full,
        keys_at_most=keys,
        buffer_utilization=min(keys, full, slots) / slots,
        buffer_bytes_for_one_pass=buffer_bytes_for_one_pass(config, keys),
        bytes_rewritten=rewritten,
        bytes_read_and_written=charged,
        seconds_throttled=_seconds(charged, rate) if is_throttled(config) and rewritten else None,
    )


def _seconds(charged_bytes: int, rate: float) -> float:
    return min(charged_bytes / rate, _LONGEST_S) if rate else _LONGEST_S


def cost_here(plan: CleanPlan, *, is_on_overlay: bool = False) -> CostHere:
    """Return what kcompact reads and writes for the cleanable section, also if it is not eligible.

    On an overlay also the old files need space, because a rename may copy them, and deleting them may free none.
    """
    segments = rewritten_segments(plan)
    groups = group_segments(
        segments,
        segment_bytes=plan.config.segment_bytes,
        segment_index_bytes=plan.config.segment_index_bytes,
        first_uncleanable_offset=plan.first_uncleanable_offset,
    )
    new_bytes = [sum(_most_bytes(plan, segment) for segment in group) for group in groups]
    spaces = [_space_of(plan, group, log_bytes) for group, log_bytes in zip(groups, new_bytes, strict=True)]
    if is_on_overlay:
        spaces = [space + _old_space(plan, group) for space, group in zip(spaces, groups, strict=True)]
    shared = _SHARED_BLOCKS * _BLOCK_BYTES if groups else 0
    # Several processors write a group in parts, and while a part is appended to the first one the disk holds it twice.
    appended = max((log_bytes for log_bytes in new_bytes if log_bytes > _UNDIVIDED_BYTES), default=0)
    appended += appended // _METADATA_SHARE
    return CostHere(
        log_bytes_read=plan.cleanable_bytes + sum(segment.size_bytes for segment in segments),
        bytes_written_at_most=sum(new_bytes),
        peak_extra_disk_bytes=sum(spaces) + appended + shared,
        least_extra_disk_bytes=(sum(spaces) if is_on_overlay else max(spaces, default=0)) + shared,
    )


def _space_of(plan: CleanPlan, group: Sequence[Segment], log_bytes: int) -> int:
    """Return the space that is enough for the new files of a group and for what is noted about it meanwhile."""
    # An index has an entry for each interval, or for each batch: as many as before, or fewer with small intervals.
    entries = log_bytes // max(plan.config.index_interval_bytes, _SMALLEST_BATCH_BYTES) + 1
    index_bytes = max(sum(segment.index_bytes for segment in group), 8 * entries)
    time_index_bytes = max(sum(segment.time_index_bytes for segment in group), 12 * entries)
    replaced = [file for segment in group for file in plan.log.files_of(segment)]
    txn_index_bytes = sum(file.size_bytes for file in replaced if file.name.endswith(Suffix.TXN_INDEX))
    sizes = (log_bytes, index_bytes, time_index_bytes, txn_index_bytes, _NOTED_BYTES * (len(replaced) + 1))
    return sum(map(_in_blocks, sizes)) + log_bytes // _METADATA_SHARE


def _old_space(plan: CleanPlan, group: Sequence[Segment]) -> int:
    sizes = [file.size_bytes for segment in group for file in plan.log.files_of(segment)]
    return sum(_in_blocks(size_bytes) + size_bytes // _METADATA_SHARE for size_bytes in sizes)


def _in_blocks(size_bytes: int) -> int:
    """Return what a file of this size takes on the disk."""
    return -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES


def _most_bytes(plan: CleanPlan, segment: Segment) -> int:
    offsets = plan.log.end_of(segment) - segment.base_offset
    return segment.size_bytes + _RECORD_GROWTH_BYTES * min(offsets, segment.size_bytes // _SMALLEST_RECORD_BYTES)


def retention_frees(plan: CleanPlan) -> RetentionFrees:
    """Return what a broker deletes after the cleaning of a plan, or now if retention comes first."""
    due = plan_forecast(plan)
    is_at_most = not retention_comes_first(plan) and any(each.reason is RetentionReason.SIZE for each in due)
    deleted = [each.segment for each in due if not each.is_postponed]
    postponed = [each.segment for each in due if each.is_postponed]
    return RetentionFrees(
        comes_first=bool(due) and plan.comes_later,
        is_at_most=is_at_most,
        segments=len(deleted),
        size_bytes=sum(segment.size_bytes for segment in deleted),
        postponed_segments=len(postponed),
        postponed_bytes=sum(segment.size_bytes for segment in postponed),
        next_due_ms=None if due else first_due_ms(plan),
    )
