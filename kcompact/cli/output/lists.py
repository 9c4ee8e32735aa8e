"""Lists that stay short: some names, and the number of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from kcompact.errors import LogDirLockedError
from kcompact.readable import NAMED_AT_MOST, some_of

if TYPE_CHECKING:
    from kcompact.errors import KcompactError
    from kcompact.plan.walk import PlannedPartition


class _WithError(Protocol):
    @property
    def error(self) -> KcompactError | None: ...


Entry = TypeVar("Entry", bound=_WithError)


def unlocked(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries for a table: without those whose log directory is locked, which one error says of all."""
    return [each for each in entries if not isinstance(each.error, LogDirLockedError)]


def topics_of(entries: Sequence[PlannedPartition]) -> str:
    """Return partitions by topic, `orders (12), users-0`, of many topics only some."""
    by_topic: dict[str, list[str]] = {}
    for entry in entries:
        by_topic.setdefault(entry.name.rpartition("-")[0] or entry.name, []).append(entry.name)
    named = [names[0] if len(names) == 1 else f"{topic} ({len(names):,})" for topic, names in by_topic.items()]
    return some_of(named) + (" topics" if len(named) > NAMED_AT_MOST else "")
