"""A finding about one file, with its severity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kcompact.errors import CorruptBatchError, CorruptDataError, UnsupportedError
from kcompact.values import dataclass

MOST_LISTED = 20
"""So many findings of one kind are listed; one more counts the rest."""

_Item = TypeVar("_Item")


class FileSeverity(StrEnum):
    """How serious a finding is, the worst first. `verify` says what each one means."""

    DAMAGE = "damage"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFinding:
    """A fact about one file. `position` is in bytes of the file, `offset` is the offset of a record.

    Damage has its `error`, and so has a warning of a file that every other command refuses; no other finding has one.
    """

    severity: FileSeverity
    file: str
    problem: str
    position: int | None = None
    offset: int | None = None
    error: CorruptDataError | UnsupportedError | None = field(default=None, compare=False, repr=False)


def first_error(findings: Sequence[FileFinding]) -> CorruptDataError | UnsupportedError | None:
    """Return the first error of findings that are sorted, the worst first: that of damage, if there is any.

    That of a log has no hint to look for more: all of it was read.
    """
    error = next((each.error for each in findings if each.error is not None), None)
    if not isinstance(error, CorruptBatchError):
        return error
    return CorruptBatchError(
        file=error.file, position=error.position, offset=error.offset, problem=error.problem, hint=""
    )


def worst_first(findings: Iterable[FileFinding]) -> tuple[FileFinding, ...]:
    """Return the findings by severity, damage first. Findings of one severity keep their order."""
    order = list(FileSeverity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))


def first_of(items: Iterable[_Item], finding_of: Callable[[_Item], FileFinding], *, what: str) -> Iterator[FileFinding]:
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
        yield the_others(last, f"and {others:,} more {what} like these")


def the_others(last: FileFinding, problem: str) -> FileFinding:
    """Return a finding like the last one that is listed, with a problem that counts the others."""
    if isinstance(last.error, CorruptDataError):
        return of_error(type(last.error)(file=last.error.file, problem=problem))
    return FileFinding(severity=last.severity, file=last.file, problem=problem)


def of_error(problem: CorruptDataError | UnsupportedError) -> FileFinding:
    """Return damage, or a warning of what is unknown, as a finding about the file that the error names."""
    if isinstance(problem, UnsupportedError):
        file = Path(problem.path).name
        return FileFinding(severity=FileSeverity.WARNING, file=file, problem=problem.problem, error=problem)
    return FileFinding(
        severity=FileSeverity.DAMAGE,
        file=Path(problem.file).name,
        position=problem.position,
        offset=problem.offset,
        problem=problem.problem,
        error=problem,
    )
