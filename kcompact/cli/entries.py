"""What the commands report: one entry for each partition or file, and one exit code for all entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli.failures import complain
from kcompact.errors import CorruptDataError, KcompactError, RecoveryNeededError, RefusedError, StaleReplicaError
from kcompact.format.names import DirectoryKind, parse_directory
from kcompact.log.directory import is_partition_directory
from kcompact.plan.clean_plan import CleanPlan, Reason

if TYPE_CHECKING:
    from kcompact.cleaner.partition import CleanResult
    from kcompact.inspect.contents import LogContents
    from kcompact.inspect.findings import Finding
    from kcompact.inspect.segment_contents import SegmentContents
    from kcompact.swap.recovery import RecoveryReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One partition in the report of `inspect`, `plan` or `clean`: the plan or the error, and the results."""

    directory: Path
    plan: CleanPlan | None = None
    error: KcompactError | None = None
    contents: LogContents | None = None
    findings: tuple[Finding, ...] | None = None
    result: CleanResult | None = None
    recovered: str | None = None
    is_partition: bool = True
    """False for a directory that is not a partition, so there is nothing to plan."""

    @property
    def name(self) -> str:
        """Return the name of the directory."""
        return self.directory.name

    @property
    def reason(self) -> Reason | None:
        """Return the verdict: of the error, if it is a verdict, else of the plan. None without a plan."""
        if isinstance(self.error, CorruptDataError):
            return Reason.CORRUPT
        if isinstance(self.error, RecoveryNeededError):
            return Reason.LEFTOVERS
        if not self.is_partition or isinstance(self.error, StaleReplicaError):
            return Reason.NOT_A_PARTITION
        return self.plan.reason if self.plan else None

    @property
    def explanation(self) -> str:
        """Return the verdict as a sentence, or the first line of the error that is the verdict."""
        if self.plan is None or isinstance(self.error, CorruptDataError | RecoveryNeededError | StaleReplicaError):
            return str(self.error).splitlines()[0] if self.error else ""
        return self.plan.explanation

    @property
    def is_eligible(self) -> bool:
        """Return whether the partition has no error and its plan is eligible."""
        return self.error is None and self.plan is not None and self.plan.eligible

    @property
    def is_cleaned(self) -> bool:
        """Return whether a cleaning, or a dry run, was completed."""
        return self.result is not None and self.result.end_offset is not None

    @property
    def status(self) -> str:
        """Return what `clean` did with the partition: `cleaned`, `dry-run`, `skipped` or `failed`."""
        return "failed" if self.result is None else str(self.result.status)

    @property
    def exit_code(self) -> int:
        """Return the exit code of the error, 0 without one."""
        return self.error.exit_code if self.error else 0


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


def failed(directory: Path, problem: KcompactError) -> Entry:
    """Return the entry of a directory without a plan."""
    # A plain RefusedError means that the directory is not a partition. A locked or unreadable one may be.
    is_refused = type(problem) is RefusedError
    return Entry(directory=directory, error=problem, is_partition=not is_refused or _may_be_partition(directory))


def _may_be_partition(directory: Path) -> bool:
    """Return whether a directory can be a partition. True also if that cannot be determined."""
    parsed = parse_directory(directory.name)
    try:
        if not directory.is_dir():
            return True
        named = parsed is not None and parsed.kind is DirectoryKind.PARTITION
        return named and not directory.is_symlink() and is_partition_directory(directory)
    except OSError:
        return True


def dirtiest_first(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries in cleaning order, entries without a plan last."""
    from kcompact.plan.clean_plan import dirtiest_first as order

    of_plan = {id(entry.plan): entry for entry in entries if entry.plan is not None}
    planned = order([entry.plan for entry in entries if entry.plan is not None])
    return [of_plan[id(plan)] for plan in planned] + [entry for entry in entries if entry.plan is None]


def complain_of(entries: Sequence[Entry]) -> None:
    """Print the errors of entries on standard error."""
    for entry in entries:
        if entry.error is not None:
            complain(entry.error)


def shared_exit_code(codes: Iterable[int]) -> int:
    """Return the code that all failures share, 1 if they differ, 0 if there is none."""
    failures = {code for code in codes if code}
    return failures.pop() if len(failures) == 1 else int(bool(failures))
