"""The dirty ratio as a log grew, and where cleanings would have come. A model: pure, from sizes and times of segments.

    |  cleaned already  |  dirty                              | active |
    |                   ^ first dirty offset: the checkpoint           |

From the checkpoint on, the ratio after each rolled segment is measured: nothing has been cleaned since. All closed
segments count, also those that a transaction or a lag held back at the time; nothing on the disk says which. What the
log was before its last cleaning is not on the disk any more.

The model replays the same segments with a cleaner that runs at once whenever a log is cleanable, and looks whenever a
segment is rolled. Its cleanings leave the share of the dirty bytes that a cleaning leaves today. Rules:
`LogCleanerManager.grabFilthiestCompactedLog`, `cleanableOffsets`, `maxCompactionDelay`.
"""

from __future__ import annotations

from collections import deque

from kcompact.config.settings import TopicConfig
from kcompact.log.directory import PartitionLog
from kcompact.log.segments import Segment
from kcompact.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """The ratios at the moment when a segment was rolled.

    `ratio` is measured, and None before the last cleaning. `model_ratio` is that of the model before it cleans, and
    `model_cleans` says whether it cleans now. `time_ms` never falls from one to the next.
    """

    base_offset: int
    end_offset: int
    time_ms: int
    ratio: float | None
    model_ratio: float
    model_cleans: bool


def rolled_ratios(
    log: PartitionLog, config: TopicConfig, *, first_dirty_offset: int, remaining: float = 1.0
) -> list[Rolled]:
    """Return the ratios after each rolled segment, oldest first.

    `remaining` is the share of the dirty bytes that a cleaning leaves, 1 if that is unknown.
    """
    closed = log.segments[:-1]
    clean_now = sum(segment.size_bytes for segment in closed if segment.base_offset < first_dirty_offset)
    model = _Model(config, first_dirty_offset, remaining)
    dirty_bytes, time_ms, rolled = 0, 0, []
    for segment, following in zip(closed, log.segments[1:], strict=True):
        time_ms = max(time_ms, _rolled_ms(segment, following))
        is_dirty = following.base_offset > first_dirty_offset
        dirty_bytes += segment.size_bytes if is_dirty else 0
        model_ratio, model_cleans = model.after(segment, time_ms)
        rolled.append(
            Rolled(
                base_offset=segment.base_offset,
                end_offset=following.base_offset,
                time_ms=time_ms,
                ratio=_ratio(clean_now, dirty_bytes) if is_dirty else None,
                model_ratio=model_ratio,
                model_cleans=model_cleans,
            )
        )
    return rolled


def _rolled_ms(segment: Segment, following: Segment) -> int:
    """Return when a segment was rolled: the time of the next segment's first batch, else its own largest time."""
    first_ms = following.first_batch_max_timestamp_ms
    return first_ms if first_ms is not None and first_ms > 0 else segment.largest_timestamp_ms


def _ratio(clean_bytes: float, dirty_bytes: float) -> float:
    return dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0


class _Model:
    """A cleaner that looks at the log whenever a segment is rolled, and cleans at once."""

    def __init__(self, config: TopicConfig, first_dirty_offset: int, remaining: float) -> None:
        self._config = config
        self._first_dirty_offset = first_dirty_offset
        self._remaining = remaining
        self._clean_bytes = 0.0
        self._cleanable_bytes = 0
        self._left_bytes = 0.0
        self._young: deque[Segment] = deque()
        self._oldest_ms: int | None = None

    def after(self, segment: Segment, time_ms: int) -> tuple[float, bool]:
        """Return the ratio after one more segment was rolled, and whether the log is cleaned now."""
        self._young.append(segment)
        self._note_age(segment)
        lag_ms = self._config.min_compaction_lag_ms
        while self._young and (not lag_ms or self._young[0].largest_timestamp_ms <= time_ms - lag_ms):
            self._count(self._young.popleft())
        ratio = _ratio(self._clean_bytes, self._cleanable_bytes)
        is_late = self._oldest_ms is not None and time_ms - self._oldest_ms > self._config.max_compaction_lag_ms
        is_due = ratio > self._config.min_cleanable_dirty_ratio or (self._cleanable_bytes > 0 and is_late)
        if is_due:
            self._clean()
        return ratio, is_due

    def _note_age(self, segment: Segment) -> None:
        first_ms = segment.first_batch_max_timestamp_ms or 0
        if first_ms > 0:
            self._oldest_ms = first_ms if self._oldest_ms is None else min(self._oldest_ms, first_ms)

    def _count(self, segment: Segment) -> None:
        """Add a segment to the cleanable section, and what a cleaning leaves of the segment."""
        is_clean_today = segment.base_offset < self._first_dirty_offset
        self._cleanable_bytes += segment.size_bytes
        self._left_bytes += segment.size_bytes * (1.0 if is_clean_today else self._remaining)

    def _clean(self) -> None:
        self._clean_bytes += self._left_bytes
        self._cleanable_bytes, self._left_bytes, self._oldest_ms = 0, 0.0, None
        for segment in self._young:
            self._note_age(segment)
