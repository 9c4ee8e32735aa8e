"""What `inspect` and `recover` report: one entry for each partition or file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli.failures import complain_of_each
from kcompact.errors import KcompactError
from kcompact.plan.planned import PlannedPartition

if TYPE_CHECKING:
    from kcompact.inspect.contents import LogContents
    from kcompact.inspect.findings import Finding
    from kcompact.inspect.segment_contents import SegmentContents
    from kcompact.swap.recovery import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedPartition(PlannedPartition):
    """One partition in the report of `inspect`."""

    contents: LogContents | None = None
    findings: tuple[Finding, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """A single file in the report of `inspect`. A field is None if it does not apply or could not be read."""

    path: Path
    kind: str | None = None
    base_offset: int | None = None
    size_bytes: int | None = None
    contents: SegmentContents | None = None
    entries: list[dict[str, Any]] | None = None
    findings: tuple[Finding, ...] | None = None
    error: str | None = None
    exit_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryEntry:
    """One partition in the report of `recover`."""

    directory: Path
    report: RecoveryReport
    status: str
    error: KcompactError | None = None

    @property
    def exit_code(self) -> int:
        """Return the exit code of the error, 0 without one."""
        return self.error.exit_code if self.error else 0


def complain_of(entries: Sequence[PlannedPartition | RecoveryEntry]) -> None:
    """Print the errors of entries on standard error."""
    complain_of_each((entry.directory, entry.error) for entry in entries if entry.error is not None)
