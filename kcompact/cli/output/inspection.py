"""Prints the report of `inspect`: a partition with its segments and findings, or a single file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.cli.entries import FileEntry, InspectedPartition
from kcompact.cli.json.inspect import FILE
from kcompact.cli.output import dump
from kcompact.cli.output.explanations import policy_line, role_reason
from kcompact.cli.output.log_bar import ROLE_STYLES, show_bar
from kcompact.cli.output.printer import Printer, cell
from kcompact.errors import CorruptDataError
from kcompact.plan.clean_plan import CleanPlan

if TYPE_CHECKING:
    from kcompact.inspect.findings import Finding

_SEVERITY_STYLES = {"damage": "bold red", "warning": "yellow", "info": ""}
_VERIFIED = "  verified: nothing is wrong"

_COUNTS = {
    "empty_batches": "empty batches",
    "control_batches": "control batches",
    "transactional_batches": "transactional batches",
    "horizon_batches": "batches with a delete horizon",
    "tombstones": "tombstones",
    "null_keys": "records without a key",
}
"""Counts of a segment that are shown as a total of the partition, unless the total is zero."""


# A partition


def show_inspection(entry: InspectedPartition, printer: Printer) -> None:
    """Print what `inspect` found in one partition."""
    _show_heading(entry, printer)
    plan = entry.plan
    if plan is None:
        _show_error(entry, printer)
        return
    if entry.gaps is not None or entry.transactions is not None:
        _show_history(entry, printer)
        return
    _show_facts(plan, entry, printer)
    printer.line()
    _show_segments(plan, entry, printer)
    if totals := _totals(entry):
        printer.line()
        printer.line(f"  {totals}")
    show_notes(plan, printer)
    for name in (*plan.log.leftovers, *plan.log.staging):
        printer.line(f"  left over: {name}")
    for name in plan.log.foreign:
        printer.line(f"  not a file of Kafka: {name}")
    if entry.findings is not None:
        _show_findings(entry.findings, printer)
    # The findings name the damage already.
    if entry.error is not None and (entry.findings is None or not isinstance(entry.error, CorruptDataError)):
        _show_error(entry, printer)


def _show_history(entry: InspectedPartition, printer: Printer) -> None:
    """Print the gaps and the transactions of one partition, whichever there are."""
    if entry.gaps is not None:
        from kcompact.cli.output.gaps import show_gaps

        show_gaps(entry.gaps, printer)
    if entry.gaps is not None and entry.transactions is not None:
        printer.line()
    if entry.transactions is not None:
        from kcompact.cli.output.transactions import show_transactions

        show_transactions(entry.transactions, printer)
    plan = entry.plan
    if plan is not None and (plan.last_stable_offset < plan.log.log_end_offset or plan.log.is_cluster_metadata):
        show_notes(plan, printer)  # They say where the view of a consumer ends, and why.
    _show_error(entry, printer)


def _show_heading(entry: InspectedPartition, printer: Printer) -> None:
    """Print the name of a partition and its path."""
    heading = cell(entry.name, "bold")
    printer.line(heading.append(f"  {readable.path_from_here(entry.directory)}", style="dim"))


def _show_facts(plan: CleanPlan, entry: InspectedPartition, printer: Printer) -> None:
    """Print the policy, the offsets, the verdict and the bar of one partition."""
    printer.line(f"  policy   {policy_line(plan.config)}")
    printer.line(
        f"  offsets  log start {plan.log.log_start_offset}, first dirty {plan.first_dirty_offset}, "
        f"first uncleanable {plan.first_uncleanable_offset}, last stable {plan.last_stable_offset}, "
        f"high watermark {plan.high_watermark}, log end {plan.log.log_end_offset}"
    )
    verdict = "to be cleaned" if plan.eligible and entry.error is None else "not to be cleaned"
    printer.line(f"  ratio    {plan.cleanable_ratio:.4f}, {verdict}: {entry.reason}, {entry.explanation}")
    if plan.log.size_bytes:
        show_bar(plan, printer)


def _show_segments(plan: CleanPlan, entry: InspectedPartition, printer: Printer) -> None:
    """Print a table with a row for each segment."""
    columns = ("base offset", "size", "role", "batches", "records", "first time", "largest time", "modified", "why")
    all_contents = entry.contents.segments if entry.contents else (None,) * len(plan.log.segments)
    rows = []
    for segment, contents in zip(plan.log.segments, all_contents, strict=True):
        role = plan.role_of(segment)
        cells = (
            cell(segment.base_offset),
            cell(readable.size(segment.size_bytes)),
            cell(role, ROLE_STYLES[role]),
            cell(contents and contents.batches),
            cell(contents and contents.records),
            cell(readable.time(segment.first_batch_max_timestamp_ms)),
            cell(readable.time(segment.largest_timestamp_ms)),
            cell(readable.time(segment.last_modified_ms)),
            cell(role_reason(plan, segment)),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(
        columns,
        rows,
        numbers=("base offset", "size", "batches", "records"),
        whole=("role", "first time", "largest time", "modified"),
        optional=("first time", "modified", "largest time", "batches", "records"),
    )


def _totals(entry: InspectedPartition) -> str:
    """Return the counts of the whole partition that are known and not zero."""
    if entry.contents is None:
        return ""
    found = {label: [getattr(each, name) for each in entry.contents.segments] for name, label in _COUNTS.items()}
    totals = {label: sum(counts) for label, counts in found.items() if None not in counts}
    return ", ".join(f"{label}: {count:,}" for label, count in totals.items() if count)


def show_notes(plan: CleanPlan, printer: Printer) -> None:
    """Print the assumptions behind a plan."""
    for note in plan.log.notes:
        printer.line(f"  note: {note}")


def _show_findings(findings: Sequence[Finding], printer: Printer) -> None:
    """Print the findings as a table, or a line if there is none."""
    printer.line()
    if not findings:
        printer.line(_VERIFIED)
        return
    rows = [
        {
            "severity": cell(finding.severity, _SEVERITY_STYLES[finding.severity]),
            "file": cell(finding.file),
            "position": cell(finding.position),
            "offset": cell(finding.offset),
            "problem": cell(finding.problem),
        }
        for finding in findings
    ]
    printer.table(tuple(rows[0]), rows, numbers=("position", "offset"), whole=("severity",))


def _show_error(entry: InspectedPartition, printer: Printer) -> None:
    if entry.error is not None:
        printer.lines(f"  error: {readable.relative_to_here(str(entry.error))}")


# A single file


def show_file(entry: FileEntry, printer: Printer) -> None:
    """Print what `inspect` found in a single file."""
    printer.line(f"{entry.path}: {entry.kind or 'unknown'}, {entry.size_bytes or 0:,} bytes")
    for fields in entry.entries or ():
        printer.line("  " + dump.line(fields))
    if entry.contents is not None:
        counts = {name: value for name, value in FILE.of(entry)["contents"].items() if value is not None}
        printer.line("  " + ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in counts.items()))
    for finding in entry.findings or ():
        location = (("position", finding.position), ("offset", finding.offset))
        where = "".join(f", {name} {value}" for name, value in location if value is not None)
        printer.line(f"  {finding.severity}: {finding.file}{where}: {finding.problem}")
    if entry.findings is not None and not entry.findings:
        printer.line(_VERIFIED)
    if entry.error:
        printer.lines(f"  error: {entry.error}")
