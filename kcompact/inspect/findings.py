"""A finding about one file, with its severity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kcompact.errors import CorruptDataError

MOST_LISTED = 20
"""So many findings of one kind are listed; one more counts the rest."""

_Item = TypeVar("_Item")


class Severity(StrEnum):
    """How serious a finding is, the worst first. `verify` says what each one means."""

    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact about one file. `position` is in bytes of the file, `offset` is the offset of a record."""

    severity: Severity
    file: str
    problem: str
    position: int | None = None
    offset: int | None = None


def worst_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings by severity, damage first. Findings of one severity keep their order."""
    order = list(Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def first_of(items: Iterable[_Item], finding_of: Callable[[_Item], Finding], *, what: str) -> Iterator[Finding]:
    """Yield the findings of the first items, and one that counts the others: there may be millions.

    `what` names the items. They are entries of one file, or files of one kind.
    """
    waiting = iter(items)
    last = None
    for item in islice(waiting, MOST_LISTED):
        last = finding_of(item)
        yield last
    others = sum(1 for _ in waiting)
    if last is not None and others:
        yield Finding(severity=last.severity, file=last.file, problem=f"and {others:,} more {what} like these")


def of_error(problem: CorruptDataError, severity: Severity = Severity.DAMAGE) -> Finding:
    """Return an error as a finding about the file that the error names."""
    return Finding(
        severity=severity,
        file=Path(problem.file).name,
        position=problem.position,
        offset=problem.offset,
        problem=problem.problem,
    )
