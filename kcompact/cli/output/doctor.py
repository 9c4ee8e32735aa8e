"""Prints the findings of `doctor`, by severity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from kcompact import readable
from kcompact.cli.output.printer import Printer, cell
from kcompact.doctor.findings import Finding, Kind, Severity
from kcompact.readable import counted, relative_to_here

MOST_SHOWN = 5
"""So many findings of one kind are shown; with --verbose all."""
_STYLES = {Severity.RECORDS: "bold red", Severity.NOTE: "dim"}
FINE = "Nothing stops a broker, its cleaner or kcompact."
FINE_AS_FAR_AS_READ = "Nothing that was read stops a broker, its cleaner or kcompact; some settings are only assumed."
FINE_BESIDE_BROKER = "A broker is running; nothing was found that stops it or its cleaner."


def show_findings(found: Sequence[Finding], printer: Printer, *, is_quiet: bool) -> None:
    """Print the findings, the worst first, and how many there are of each severity."""
    if not is_quiet:
        for kind, of_kind in groupby(found, key=lambda finding: finding.kind):
            _show_kind(kind, list(of_kind), printer)
    stopping = {finding.kind for finding in found if finding.stops}
    if stopping == {Kind.RUNNING}:
        printer.line(FINE_BESIDE_BROKER)
    elif not stopping:
        is_assumed = any(finding.kind is Kind.ASSUMED_SETTINGS for finding in found)
        printer.line(FINE_AS_FAR_AS_READ if is_assumed else FINE)
    counts = Counter(finding.severity for finding in found)
    totals = [f"{severity}: {counts[severity]:,}" for severity in Severity if counts[severity]]
    if totals:
        printer.line("; ".join(totals))


def _show_kind(kind: Kind, found: Sequence[Finding], printer: Printer) -> None:
    printer.line(cell(f"{kind.severity}: {kind.word}", _STYLES.get(kind.severity, "bold")))
    shown = found if printer.is_verbose else found[:MOST_SHOWN]
    for finding in shown:
        lines = [f"  {_place(finding)}: {finding.problem}"]
        lines += [f"    a broker's log: {finding.broker_says}"] if finding.broker_says else []
        lines += [f"    next: {finding.next_command}"] if finding.next_command else []
        printer.lines(relative_to_here("\n".join(lines)))
    if len(found) > len(shown):
        printer.line(f"  and {counted(len(found) - len(shown), 'more finding')} of this kind; --verbose lists all")
    printer.line()


def _place(finding: Finding) -> str:
    place = str(finding.path)
    if finding.position is not None:
        place += f", position {finding.position}"
    if finding.offset is not None:
        place += f", offset {finding.offset}"
    return place if finding.size_bytes is None else f"{place} ({readable.size(finding.size_bytes)})"
