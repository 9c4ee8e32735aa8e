"""A finding about one file, with its severity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kcompact.errors import (
    CorruptBatchError,
    CorruptCheckpointError,
    CorruptDataError,
    CorruptIndexError,
    CorruptTransactionIndexError,
)
from kcompact.format.names import Suffix

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
    """A fact about one file. `position` is in bytes of the file, `offset` is the offset of a record.

    `error` is the error that it was made from, None if no reader raised one.
    """

    severity: Severity
    file: str
    problem: str
    position: int | None = None
    offset: int | None = None
    error: CorruptDataError | None = field(default=None, compare=False, repr=False)


_ERRORS: dict[str, type[CorruptDataError]] = {
    Suffix.LOG: CorruptBatchError,
    Suffix.INDEX: CorruptIndexError,
    Suffix.TIME_INDEX: CorruptIndexError,
    Suffix.TXN_INDEX: CorruptTransactionIndexError,
    Suffix.SNAPSHOT: CorruptCheckpointError,
}


def as_error(found: Finding, directory: Path) -> CorruptDataError:
    """Return damage as the error of its kind of file. That of a log has no hint to look for more: a reader found it."""
    suffix = Path(found.file).suffix
    return _ERRORS.get(suffix, CorruptDataError)(
        file=directory / found.file,
        position=found.position,
        offset=found.offset,
        problem=found.problem,
        hint="" if suffix == Suffix.LOG else None,
    )


def first_damage(findings: Sequence[Finding], directory: Path) -> CorruptDataError | None:
    """Return the first finding as an error if it is damage. The findings are sorted, the worst first."""
    is_damage = bool(findings) and findings[0].severity is Severity.DAMAGE
    return as_error(findings[0], directory) if is_damage else None


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
        error=problem,
    )
