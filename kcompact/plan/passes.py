"""How many passes Kafka's own cleaner needs for the same work, from the size of its offset map. Pure.

kcompact itself always needs one pass. Rule: `LogCleaner.CleanerThread`, `SkimpyOffsetMap`, `Cleaner.buildOffsetMap`.
"""

from __future__ import annotations

import bisect

from kcompact.config.settings import INT_MAX, MIN_DEDUPE_BUFFER_BYTES, TopicConfig
from kcompact.plan.clean_plan import CleanPlan

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
    return int(min(slots * config.log_cleaner_io_buffer_load_factor, INT_MAX))


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
