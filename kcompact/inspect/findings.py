"""A finding about one file, with its severity."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kcompact.errors import CorruptDataError


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


def of_error(problem: CorruptDataError, severity: Severity = Severity.DAMAGE) -> Finding:
    """Return an error as a finding about the file that the error names."""
    return Finding(
        severity=severity,
        file=Path(problem.file).name,
        position=problem.position,
        offset=problem.offset,
        problem=problem.problem,
    )
