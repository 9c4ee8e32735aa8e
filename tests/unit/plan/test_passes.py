"""`plan.cost`: how many keys Kafka's offset map takes, and the bounds of its passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcompact.config.settings import INT_MAX, TopicConfig
from kcompact.log.directory import PartitionLog
from kcompact.plan.cost import kafka_passes_at_least, kafka_passes_at_most, keys_per_pass, offset_map_slots
from tests.support.log_values import CLEAN, CONFIG, FOUR, LOG, log_of, planned, segment


@pytest.mark.parametrize(
    ("buffer_bytes", "threads", "load_factor", "slots", "full"),
    [
        (134_217_728, 1, 0.9, 5_592_405, 5_033_164),
        (134_217_728, 4, 0.9, 1_398_101, 1_258_290),
        (134_217_728, 3, 0.5, 1_864_135, 932_067),
        (1 << 40, 1, 0.9, 89_478_485, 80_530_636),  # A Java array has at most 2^31 - 1 bytes.
        (1 << 40, 1, 100.0, 89_478_485, INT_MAX),
        (240, 1, 1.0, 10, 10),
        (239, 1, 0.9, 9, 8),
        (24, 1, 0.9, 1, 0),
    ],
)
def test_the_size_of_kafkas_offset_map(
    buffer_bytes: int, threads: int, load_factor: float, slots: int, full: int
) -> None:
    config = map_of(buffer_bytes, threads=threads, load_factor=load_factor)
    assert (offset_map_slots(config), keys_per_pass(config)) == (slots, full)


def map_of(buffer_bytes: int, *, threads: int = 1, load_factor: float = 1.0) -> TopicConfig:
    return replace(
        CONFIG,
        log_cleaner_dedupe_buffer_size=buffer_bytes,
        log_cleaner_threads=threads,
        log_cleaner_io_buffer_load_factor=load_factor,
    )


GAPS = log_of(segment(0), segment(100, 0), segment(900), segment(1000), end=1050)
"""The closed segments with batches have only 200 offsets: the segment from 100 to 900 is empty."""


@pytest.mark.parametrize(
    ("log", "slots", "load_factor", "expected"),
    [
        (LOG, 300, 1.0, 1),
        (LOG, 299, 1.0, 2),
        (LOG, 150, 1.0, 2),
        (LOG, 149, 1.0, 3),
        (LOG, 1, 1.0, 300),
        (CLEAN, 100, 1.0, 1),  # The dirty section starts at 200.
        (CLEAN, 99, 1.0, 2),
        (log_of(*FOUR, checkpoint=250), 50, 1.0, 1),
        (log_of(*FOUR, checkpoint=250), 49, 1.0, 2),
        (log_of(*FOUR, checkpoint=300), 1, 1.0, 0),  # Nothing is cleanable.
        (log_of(segment(0, 0), segment(100), end=200), 1, 1.0, 0),
        (GAPS, 200, 1.0, 1),
        (GAPS, 199, 1.0, 2),
        (LOG, 300, 0.5, 2),
        (LOG, 1, 0.9, None),  # The map takes no key.
        (LOG, 300, 2.0, 1),
        (LOG, 299, 2.0, None),  # Kafka would add more keys than the map can contain.
    ],
)
def test_the_passes_of_kafkas_cleaner(log: PartitionLog, slots: int, load_factor: float, expected: int | None) -> None:
    plan = planned(log, map_of(24 * slots, load_factor=load_factor))
    assert kafka_passes_at_most(plan) == expected


@pytest.mark.parametrize(
    ("map_keys", "slots", "load_factor", "at_least", "at_most"),
    [
        (0, 10, 1.0, 1, 1),
        (9, 10, 1.0, 1, 1),
        (10, 10, 1.0, 1, 30),  # The last key fills the map; whether more records follow is unknown.
        (11, 10, 1.0, 2, 30),
        (300, 10, 1.0, 30, 30),
        (20, 10, 0.5, 4, 60),
        (10, 10, 2.0, 1, 1),
        (11, 10, 2.0, None, None),
        (1, 1, 0.9, None, None),
    ],
)
def test_a_known_number_of_keys_narrows_the_bounds(
    map_keys: int, slots: int, load_factor: float, at_least: int | None, at_most: int | None
) -> None:
    plan = planned(LOG, map_of(24 * slots, load_factor=load_factor))
    assert kafka_passes_at_least(plan, map_keys=map_keys) == at_least
    assert kafka_passes_at_most(plan, map_keys=map_keys) == at_most
