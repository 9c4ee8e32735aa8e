"""The metrics of the cleaner, under Kafka's names and with Kafka's rounding. Pure.

    name                             computed from                              changes when a thread
    max-dirty-percent                the greatest ratio among the candidates    looks for a log to clean
    time-since-last-run-ms           the time of the last look                  looks for a log to clean
    max-compaction-delay-secs        the greatest delay among the candidates    has found a log to clean
    cleaner-recopy-percent           the last cleaning of each thread           has finished a cleaning
    max-clean-time-secs              the last cleaning of each thread           has finished a cleaning
    max-buffer-utilization-percent   the last cleaning of each thread           has finished a cleaning
    uncleanable-partitions-count     the uncleanable partitions of a directory  fails to clean a log
    uncleanable-bytes                the uncleanable partitions of a directory  fails to clean a log
    DeadThreadCount                  the threads                                dies

A cleaning that fails or is aborted is not a finished one: its thread keeps the numbers of the cleaning before.
Rules: the gauges of `LogCleaner.registerMetrics` and `LogCleanerManager.registerMetrics`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from kcompact.clean.job import CleanerStats
from kcompact.config.settings import INT_MAX
from kcompact.plan.clean_plan import CleanPlan
from kcompact.values import dataclass

INT_MIN = -INT_MAX - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStats:
    """What a cleaner thread remembers of its last finished cleaning, and whether it is dead.

    `started_ms` and `ended_ms` are the times of that cleaning; for a new thread, the time of its start and -1.
    `map_slots` is `plan.cost.offset_map_slots`. `max_compaction_delay_ms` is from the last look that found a log.
    Rules: `LogCleaner.CleanerThread`, `CleanerStats`, `PreCleanStats`.
    """

    started_ms: int
    ended_ms: int = -1
    stats: CleanerStats = field(default_factory=CleanerStats)
    map_slots: int = 1
    max_compaction_delay_ms: int = 0
    is_dead: bool = False

    def with_candidates(self, candidates: Iterable[CleanPlan]) -> ThreadStats:
        """Return what the thread remembers when it has found a log to clean among these candidates.

        Rule: `LogCleaner.CleanerThread.cleanFilthiestLog`.
        """
        return replace(self, max_compaction_delay_ms=greatest_delay_ms(candidates))

    def with_cleaning(self, stats: CleanerStats, *, map_slots: int, started_ms: int, ended_ms: int) -> ThreadStats:
        """Return what the thread remembers after a finished cleaning. Rule: `LogCleaner.CleanerThread.recordStats`."""
        return replace(self, stats=stats, map_slots=map_slots, started_ms=started_ms, ended_ms=ended_ms)


def greatest_ratio(candidates: Iterable[CleanPlan]) -> float:
    """Return the greatest dirty ratio among the candidates, 0 for none.

    Candidates are the compacted logs that are neither in progress nor paused nor uncleanable. Logs below their minimum
    ratio count too. Rule: `LogCleanerManager.grabFilthiestCompactedLog`.
    """
    return max((plan.cleanable_ratio for plan in candidates), default=0.0)


def greatest_delay_ms(candidates: Iterable[CleanPlan]) -> int:
    """Return the longest time that one of the candidates is past `max.compaction.lag.ms`, 0 for none.

    Rule: `PreCleanStats.updateMaxCompactionDelay`.
    """
    return max((plan.max_compaction_delay_ms for plan in candidates), default=0)


def cleaner_metrics(
    threads: Sequence[ThreadStats],
    *,
    dirtiest_ratio: float,
    last_run_ms: int,
    now_ms: int,
    uncleanable: Mapping[str, Sequence[int]],
) -> dict[str, int]:
    """Return all metrics by name.

    `dirtiest_ratio` and `last_run_ms` are from the last time that a thread looked for a log; before the first time, 0
    and the time at which the cleaner was made. `uncleanable` has for each log directory the cleanable bytes of each
    uncleanable partition. The two metrics of a log directory have `,logDirectory=` and its path at the end of the name.
    """
    values = {
        "max-dirty-percent": max_dirty_percent(dirtiest_ratio),
        "cleaner-recopy-percent": cleaner_recopy_percent(threads),
        "max-clean-time-secs": max_clean_time_secs(threads),
        "max-buffer-utilization-percent": max_buffer_utilization_percent(threads),
        "max-compaction-delay-secs": max_compaction_delay_secs(threads),
        "time-since-last-run-ms": time_since_last_run_ms(last_run_ms, now_ms=now_ms),
        "DeadThreadCount": dead_thread_count(threads),
    }
    for log_dir, cleanable_bytes in uncleanable.items():
        values[f"uncleanable-partitions-count,logDirectory={log_dir}"] = uncleanable_partitions_count(cleanable_bytes)
        values[f"uncleanable-bytes,logDirectory={log_dir}"] = uncleanable_bytes(cleanable_bytes)
    return values


def max_dirty_percent(dirtiest_ratio: float) -> int:
    """100 * the greatest dirty ratio among the candidates of the last look, rounded down.

    Rule: `LogCleanerManager`, `max-dirty-percent`.
    """
    return _as_int(100 * dirtiest_ratio)


def cleaner_recopy_percent(threads: Sequence[ThreadStats]) -> int:
    """100 * bytes written / bytes read, both summed over the last cleaning of each thread, rounded down.

    Rule: `LogCleaner`, `cleaner-recopy-percent`.
    """
    written = sum(thread.stats.bytes_written for thread in threads)
    read = sum(thread.stats.bytes_read for thread in threads)
    return _as_int(100 * (written / max(read, 1)))


def max_clean_time_secs(threads: Sequence[ThreadStats]) -> int:
    """The longest of the last cleanings of the threads in whole seconds, 0 without threads.

    A thread that has finished no cleaning counts with (-1 - its start) / 1000, a large negative number. So the metric
    is negative until the first cleaning has finished, as in Kafka. Rule: `LogCleaner`, `max-clean-time-secs`.
    """
    return _as_int(max(((thread.ended_ms - thread.started_ms) / 1000 for thread in threads), default=0.0))


def max_buffer_utilization_percent(threads: Sequence[ThreadStats]) -> int:
    """100 * keys / slots of a broker's offset map, the greatest of the last cleanings of the threads, rounded down.

    Kafka's map is full at the load factor (90 % by default), and the cleaning then ends early. kcompact has no such
    limit: above the load factor the metric says that Kafka would have needed several passes.
    Rule: `LogCleaner`, `max-buffer-utilization-percent`.
    """
    return _as_int(max((thread.stats.map_keys / thread.map_slots for thread in threads), default=0.0) * 100)


def max_compaction_delay_secs(threads: Sequence[ThreadStats]) -> int:
    """The longest time that a log was past `max.compaction.lag.ms` when a thread last chose one, in whole seconds.

    Rule: `LogCleaner`, `max-compaction-delay-secs`.
    """
    return _as_int(max((thread.max_compaction_delay_ms for thread in threads), default=0) / 1000)


def time_since_last_run_ms(last_run_ms: int, *, now_ms: int) -> int:
    """The milliseconds since a thread last looked for a log, whether or not it found one.

    Rule: `LogCleanerManager`, `time-since-last-run-ms`.
    """
    return now_ms - last_run_ms


def uncleanable_partitions_count(cleanable_bytes: Sequence[int]) -> int:
    """The number of partitions of a log directory that failed to be cleaned, and that still exist.

    Rule: `LogCleanerManager`, `uncleanable-partitions-count`.
    """
    return len(cleanable_bytes)


def uncleanable_bytes(cleanable_bytes: Sequence[int]) -> int:
    """The cleanable bytes of the uncleanable partitions of a log directory, each by the plan that failed.

    Kafka plans anew whenever it is asked; without a broker a log does not grow, so both have the same bytes.

    Rule: `LogCleanerManager`, `uncleanable-bytes`; `LogCleanerManager.calculateCleanableBytes`.
    """
    return sum(cleanable_bytes)


def dead_thread_count(threads: Sequence[ThreadStats]) -> int:
    """The number of threads that an error ended. Rule: `LogCleaner.deadThreadCount`."""
    return sum(thread.is_dead for thread in threads)


def _as_int(value: float) -> int:
    """Return a Java `double` as an `int`: cut towards zero, and the nearest `int` outside its range."""
    return max(INT_MIN, min(INT_MAX, int(value)))
