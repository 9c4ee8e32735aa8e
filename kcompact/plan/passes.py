"""How Kafka's own cleaner would do the same work: the size of its offset map, and the passes it needs.

Rule: `LogCleaner.CleanerThread`, `SkimpyOffsetMap`, `Cleaner.buildOffsetMap` of Kafka 4.3.1.
"""

from __future__ import annotations

from kcompact.config.settings import INT_MAX, TopicConfig
from kcompact.plan.clean_plan import CleanPlan

# How Kafka's own cleaner would go about it

OFFSET_MAP_ENTRY_BYTES = 16 + 8
"""An MD5 of the key, and an offset."""


def offset_map_slots(config: TopicConfig) -> int:
    """Return how many keys there is room for in the map of one of the broker's cleaner threads.

    Rule: `LogCleaner.CleanerThread`, `SkimpyOffsetMap`.
    """
    return min(config.log_cleaner_dedupe_buffer_size // config.log_cleaner_threads, INT_MAX) // OFFSET_MAP_ENTRY_BYTES


def keys_per_pass(config: TopicConfig) -> int:
    """Return with how many keys the broker's cleaner takes its map for full.

    Rule: `Cleaner.buildOffsetMapForSegment`.
    """
    return min(int(offset_map_slots(config) * config.log_cleaner_io_buffer_load_factor), INT_MAX)


def kafka_passes_at_most(plan: CleanPlan, *, map_keys: int | None = None) -> int | None:
    """Return in how many passes Kafka's own cleaner would be through with the cleanable section at the latest.

    A pass ends at the first record with a key that it meets with a full map, so each but the last takes at least
    `keys_per_pass` records; there are no more records than offsets. `map_keys` is the number of keys where that is
    known: with fewer than fill the map, one pass is enough. 0: nothing is cleanable. None: it might never be through,
    because its settings let no key into the map, or more than it has room for. Rule: `Cleaner.buildOffsetMap`.
    """
    if not plan.cleanable_bytes:
        return 0
    full, slots = keys_per_pass(plan.config), offset_map_slots(plan.config)
    records = sum(
        plan.log.end_of(segment) - max(segment.base_offset, plan.first_dirty_offset)
        for segment in plan.log.segments_between(plan.first_dirty_offset, plan.first_uncleanable_offset)
        if segment.size_bytes
    )
    if records <= min(full, slots) or (map_keys is not None and map_keys < full and map_keys <= slots):
        return 1
    return -(-records // full) if 0 < full <= slots else None


def kafka_passes_at_least(plan: CleanPlan, *, map_keys: int) -> int | None:
    """Return how many passes Kafka's own cleaner would need if each key came up in one of them only; None as above.

    `map_keys` is the number of keys in the cleanable section. Before that is known nothing more than one pass can be
    told: all the records might have the same key.
    """
    full, slots = keys_per_pass(plan.config), offset_map_slots(plan.config)
    if map_keys > slots and full > slots:
        return None
    return max(1, -(-map_keys // full)) if full else None
