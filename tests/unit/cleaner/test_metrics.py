"""`cleaner.metrics`: each metric with its rounding, and their values before anything was cleaned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcompact.clean.job import CleanerStats
from kcompact.cleaner import metrics as gauges
from kcompact.cleaner.metrics import ThreadStats, cleaner_metrics, greatest_delay_ms, greatest_ratio
from kcompact.config.settings import INT_MAX
from tests.support.log_values import CLEAN, CONFIG, LOG, log_of, planned, segment

NOW = 1_763_777_777_999
NEW = ThreadStats(started_ms=NOW)


def thread(
    *,
    read: int = 0,
    written: int = 0,
    keys: int = 0,
    slots: int = 1,
    took_ms: int = 0,
    delay_ms: int = 0,
    is_dead: bool = False,
) -> ThreadStats:
    """Return a thread whose last cleaning began at `NOW`."""
    return ThreadStats(
        started_ms=NOW,
        ended_ms=NOW + took_ms,
        stats=CleanerStats(bytes_read=read, bytes_written=written, map_keys=keys),
        map_slots=slots,
        max_compaction_delay_ms=delay_ms,
        is_dead=is_dead,
    )


@pytest.mark.parametrize(("ratio", "percent"), [(0.0, 0), (0.009, 0), (0.01, 1), (0.29, 28), (0.999, 99), (1.0, 100)])
def test_max_dirty_percent(ratio: float, percent: int) -> None:
    assert gauges.max_dirty_percent(ratio) == percent  # 100 * 0.29 is 28.999999999999996.


@pytest.mark.parametrize(
    ("threads", "percent"),
    [
        ([], 0),
        ([NEW], 0),
        ([thread(read=1000, written=999)], 99),
        ([thread(read=1000, written=1010)], 101),  # A rewritten batch may grow.
        ([thread(read=300, written=300), thread(read=100)], 75),  # The sums, not the mean of the ratios.
        ([thread(read=0, written=5)], 500),
    ],
)
def test_cleaner_recopy_percent(threads: list[ThreadStats], percent: int) -> None:
    assert gauges.cleaner_recopy_percent(threads) == percent


@pytest.mark.parametrize(
    ("threads", "seconds"),
    [
        ([], 0),
        ([thread(took_ms=999)], 0),
        ([thread(took_ms=1000), thread(took_ms=61_999)], 61),
        ([NEW, thread(took_ms=2000)], 2),
        ([NEW], -1_763_777_778),  # Kafka's value too, until the first cleaning ends.
        ([ThreadStats(started_ms=1 << 50)], -INT_MAX - 1),
    ],
)
def test_max_clean_time_secs(threads: list[ThreadStats], seconds: int) -> None:
    assert gauges.max_clean_time_secs(threads) == seconds


@pytest.mark.parametrize(
    ("threads", "percent"),
    [
        ([], 0),
        ([NEW], 0),
        ([thread(keys=299, slots=1000)], 29),
        ([thread(keys=10, slots=100), thread(keys=9, slots=10)], 90),
        ([thread(keys=250, slots=100)], 250),  # Kafka would need several passes.
    ],
)
def test_max_buffer_utilization_percent(threads: list[ThreadStats], percent: int) -> None:
    assert gauges.max_buffer_utilization_percent(threads) == percent


@pytest.mark.parametrize(
    ("threads", "seconds"),
    [
        ([], 0),
        ([NEW], 0),
        ([thread(delay_ms=999)], 0),
        ([thread(delay_ms=1999), thread(delay_ms=1000)], 1),
        ([thread(delay_ms=1 << 60)], INT_MAX),
    ],
)
def test_max_compaction_delay_secs(threads: list[ThreadStats], seconds: int) -> None:
    assert gauges.max_compaction_delay_secs(threads) == seconds


def test_the_metrics_of_a_cleaner_that_has_done_nothing() -> None:
    values = cleaner_metrics([NEW, NEW], dirtiest_ratio=0.0, last_run_ms=NOW, now_ms=NOW + 5, uncleanable={"/data": []})
    assert values == {
        "max-dirty-percent": 0,
        "cleaner-recopy-percent": 0,
        "max-clean-time-secs": -1_763_777_778,
        "max-buffer-utilization-percent": 0,
        "max-compaction-delay-secs": 0,
        "time-since-last-run-ms": 5,
        "DeadThreadCount": 0,
        "uncleanable-partitions-count,logDirectory=/data": 0,
        "uncleanable-bytes,logDirectory=/data": 0,
    }


def test_the_metrics_of_a_busy_cleaner() -> None:
    values = cleaner_metrics(
        [thread(read=200, written=50, keys=3, slots=10, took_ms=1500, delay_ms=7_000), thread(is_dead=True)],
        dirtiest_ratio=0.75,
        last_run_ms=NOW,
        now_ms=NOW + 15_000,
        uncleanable={"/data/a": [100, 0], "/data/b": []},
    )
    assert values == {
        "max-dirty-percent": 75,
        "cleaner-recopy-percent": 25,
        "max-clean-time-secs": 1,
        "max-buffer-utilization-percent": 30,
        "max-compaction-delay-secs": 7,
        "time-since-last-run-ms": 15_000,
        "DeadThreadCount": 1,
        "uncleanable-partitions-count,logDirectory=/data/a": 2,
        "uncleanable-bytes,logDirectory=/data/a": 100,
        "uncleanable-partitions-count,logDirectory=/data/b": 0,
        "uncleanable-bytes,logDirectory=/data/b": 0,
    }


LATE = planned(log_of(segment(0, first=10_000), segment(100)), replace(CONFIG, max_compaction_lag_ms=400_000))
"""590 seconds past `max.compaction.lag.ms`."""


def test_the_greatest_ratio_and_delay_of_the_candidates() -> None:
    assert greatest_ratio([]) == 0.0
    assert greatest_ratio([planned(CLEAN)]) == pytest.approx(1 / 3)
    assert greatest_ratio([planned(CLEAN), planned(LOG)]) == 1.0
    assert greatest_delay_ms([]) == 0
    assert greatest_delay_ms([planned(CLEAN)]) == 0
    assert greatest_delay_ms([planned(CLEAN), LATE]) == 590_000


def test_a_thread_keeps_what_its_next_step_does_not_replace() -> None:
    stats = CleanerStats(bytes_read=9)
    cleaned = NEW.with_cleaning(stats, map_slots=4, started_ms=NOW, ended_ms=NOW + 1)
    assert cleaned == ThreadStats(started_ms=NOW, ended_ms=NOW + 1, stats=stats, map_slots=4)
    assert cleaned.with_candidates([planned(CLEAN), LATE]) == replace(cleaned, max_compaction_delay_ms=590_000)
