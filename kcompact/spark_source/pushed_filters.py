"""What the filters of a query say about topic, partition, offset and time, to leave out what they exclude."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from kcompact.format.names import TopicPartition
from kcompact.log.directory import partition_of
from kcompact.questions.record_filter import RecordFilter
from kcompact.values import dataclass

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - as PySpark's own times
_LESS, _AT_MOST, _GREATER, _AT_LEAST = "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"
_EQUAL, _IN = "EqualTo", "In"


@dataclass(slots=True, kw_only=True)
class PushedFilters:
    """The records that filters leave are among these. What a filter says about anything else is not looked at.

    Offsets and times, in milliseconds, are from `least` to below `end`. None: there is no limit.
    """

    topics: set[str] | None = None
    partitions: set[int] | None = None
    least: dict[str, int] = field(default_factory=dict)
    end: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, filters: Iterable[Any]) -> PushedFilters:
        """Return what filters of PySpark say, all of which a row must fulfil."""
        pushed = cls()
        for each in filters:
            attribute: tuple[str, ...] = getattr(each, "attribute", ())
            value = getattr(each, "value", None)
            if len(attribute) == 1 and value is not None:
                pushed._add(attribute[0], type(each).__name__, value)
        return pushed

    def _add(self, column: str, kind: str, value: Any) -> None:
        values = value if kind == _IN else (value,)
        if column == "topic" and kind in (_EQUAL, _IN):
            self.topics = {each for each in values if self.topics is None or each in self.topics}
        elif column == "partition" and kind in (_EQUAL, _IN):
            self.partitions = {each for each in values if self.partitions is None or each in self.partitions}
        elif column == "offset" and all(type(each) is int for each in values):
            self._limit(column, kind, list(values))
        elif column == "timestamp" and all(isinstance(each, datetime) and each.tzinfo for each in values):
            # A little too many milliseconds are no harm, because Spark filters again.
            self._limit(column, kind, [(each - _EPOCH) // timedelta(milliseconds=1) for each in values], spare=1)

    def _limit(self, column: str, kind: str, values: Sequence[int], spare: int = 0) -> None:
        if not values:
            return
        if kind in (_GREATER, _AT_LEAST, _EQUAL, _IN):
            least = min(values) + (kind == _GREATER and not spare)
            self.least[column] = max(least, self.least.get(column, least))
        if kind in (_LESS, _AT_MOST, _EQUAL, _IN):
            end = max(values) + (kind != _LESS) + spare
            self.end[column] = min(end, self.end.get(column, end))

    def narrowed(self, directories: Sequence[Path], bounds: RecordFilter) -> tuple[list[Path], RecordFilter]:
        """Return the partitions and the bounds that are left of these."""
        kept = [directory for directory in directories if self._has(partition_of(directory))]
        return kept, replace(
            bounds,
            from_offset=_tighter(max, bounds.from_offset, self.least.get("offset")),
            until_offset=_tighter(min, bounds.until_offset, self.end.get("offset")),
            since_ms=_tighter(max, bounds.since_ms, self.least.get("timestamp")),
            until_ms=_tighter(min, bounds.until_ms, self.end.get("timestamp")),
        )

    def _has(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )


def _tighter(choose: Callable[..., int], first: int | None, second: int | None) -> int | None:
    given = [max(each, 0) if choose is min else each for each in (first, second) if each is not None]
    return choose(given) if given else None
