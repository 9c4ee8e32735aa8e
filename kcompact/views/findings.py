"""The findings of `doctor`: by kind, the worst first, with what a broker says and the next command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from kcompact import readable
from kcompact.doctor.findings import Finding
from kcompact.remarks import RemarkCode, Severity
from kcompact.views.parts import Heading, Lines, Part, Space, Tone, lines

MOST_SHOWN = 5
"""So many findings of one kind are shown; with --verbose all."""
_TONES = {Severity.RECORDS: Tone.BAD, Severity.NOTE: Tone.MUTED}
FINE = "Nothing stops a broker, its cleaner or kcompact."
FINE_AS_FAR_AS_READ = "Nothing that was read stops a broker, its cleaner or kcompact; the notes say what was not read."
FINE_AS_FAR_AS_CHOSEN = "Nothing that was read stops a broker, its cleaner or kcompact."
FINE_BESIDE_BROKER = "A broker is running; nothing was found that stops it or its cleaner."
NOT_ALL = "Other partitions were not read."


def findings_parts(findings: Sequence[Finding], space: Space, *, is_quiet: bool, has_all: bool) -> list[Part]:
    """Return the findings, the worst first, and how many there are of each severity.

    `has_all` is whether all partitions of the log directories were examined.
    """
    parts: list[Part] = []
    if not is_quiet:
        for code, of_code in groupby(findings, key=lambda finding: finding.code):
            parts += _of_code(code, list(of_code), space)
    summary_lines = []
    stopping = {finding.code for finding in findings if finding.stops}
    if stopping == {RemarkCode.RUNNING}:
        summary_lines.append(FINE_BESIDE_BROKER)
    elif not stopping:
        is_open = any(finding.code in (RemarkCode.ASSUMED_SETTINGS, RemarkCode.MISSING_LOG_DIR) for finding in findings)
        summary_lines.append(FINE_AS_FAR_AS_READ if is_open else FINE if has_all else FINE_AS_FAR_AS_CHOSEN)
    if not has_all:
        summary_lines.append(NOT_ALL)
    counts = Counter(finding.severity for finding in findings)
    if counts:
        summary_lines.append(
            "; ".join(f"{severity}: {counts[severity]:,}" for severity in Severity if counts[severity])
        )
    return [*parts, lines(*summary_lines, is_indented=False)]


def _of_code(code: RemarkCode, findings_of_code: Sequence[Finding], space: Space) -> list[Part]:
    tone = _TONES.get(code.severity, Tone.STRONG)
    shown = findings_of_code if space.is_verbose else findings_of_code[:MOST_SHOWN]
    texts = []
    for finding in shown:
        texts += [f"{_place(finding)}: {finding.problem}"]
        texts += [f"  a broker's log: {finding.broker_says}"] if finding.broker_says else []
        texts += [f"  next: {finding.next_command}"] if finding.next_command else []
    if len(findings_of_code) > len(shown):
        more = readable.counted(len(findings_of_code) - len(shown), "more finding")
        texts.append(f"and {more} of this kind; --verbose lists all")
    # A command stays on its line, because one wants to copy it.
    findings = Lines(lines=tuple(map(readable.relative_to_here, texts)), is_broken=False)
    return [Heading(name=f"{code.severity}: {code}", tone=tone), findings]


def _place(finding: Finding) -> str:
    place = str(finding.path)
    if finding.position is not None:
        place += f", position {finding.position}"
    if finding.offset is not None:
        place += f", offset {finding.offset}"
    return place if finding.size_bytes is None else f"{place} ({readable.size(finding.size_bytes)})"
