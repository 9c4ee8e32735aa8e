"""One partition: its offsets, the verdict, the log to scale, its segments, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.walk import PlannedPartition
from kcompact.views.parts import Cell, Items, Lines, LogScale, Part, Section, Table, Tone, cell, lines, offset, row
from kcompact.views.sentences import policy_line, release_line, role_reason

if TYPE_CHECKING:
    from kcompact.questions.contents import LogContents
    from kcompact.questions.verify.findings import FileFinding

_TONES = {"damage": Tone.BAD, "warning": Tone.CAUTION}
"""By severity."""
VERIFIED = "verified: nothing is wrong"
_COUNTS = {
    "empty_batches": "empty batches",
    "control_batches": "control batches",
    "transactional_batches": "transactional batches",
    "horizon_batches": "batches with a delete horizon",
    "tombstones": "tombstones",
    "null_keys": "records without a key",
}
"""Counts of a segment that are shown as a total of the partition, unless the total is zero."""


def facts_parts(plan: CleanPlan, entry: PlannedPartition) -> list[Part]:
    """Return the policy, the offsets, the verdict and the log to scale."""
    verdict = "to be cleaned" if plan.eligible and entry.error is None else "not to be cleaned"
    items = {
        "policy": policy_line(plan.config),
        "rules": release_line(plan.config),
        "offsets": f"log start {plan.log.log_start_offset}, first dirty {plan.first_dirty_offset}, "
        f"first uncleanable {plan.first_uncleanable_offset}, last stable {plan.last_stable_offset}, "
        f"high watermark {plan.high_watermark}, log end {plan.log.log_end_offset}",
        "ratio": f"{plan.cleanable_ratio:.4f}, {verdict}: {entry.reason}, {entry.explanation}",
    }
    facts = Items(items=tuple((cell(name), sentence) for name, sentence in items.items()), width=7)
    return [facts, log_scale(plan)] if plan.log.size_bytes else [facts]


def log_scale(plan: CleanPlan) -> LogScale:
    """Return the runs of equal roles along the log with their bytes, in offset order."""
    runs = groupby(plan.log.segments, key=plan.role_of)
    return LogScale(runs=tuple((role, sum(segment.size_bytes for segment in segments)) for role, segments in runs))


def segments_section(plan: CleanPlan, contents: LogContents | None) -> Section:
    """Return the segments with what was read of them, and the totals of what is special in them."""
    columns = ("base offset", "size", "role", "batches", "records", "first time", "largest time", "modified", "why")
    counts = contents.segments if contents else (None,) * len(plan.log.segments)
    rows = []
    for segment, counted in zip(plan.log.segments, counts, strict=True):
        role = plan.role_of(segment)
        is_damaged = counted is not None and counted.damage is not None
        rows.append(
            row(
                offset(segment.base_offset),
                readable.size(segment.size_bytes),
                Cell(text=f"{role}, damaged" if is_damaged else role, role=role),
                counted and counted.batches,
                counted and counted.records,
                readable.time(segment.first_batch_max_timestamp_ms),
                readable.time(segment.largest_timestamp_ms),
                readable.time(segment.last_modified_ms),
                role_reason(plan, segment),
            )
        )
    table = Table(
        caption="Segments",
        columns=columns,
        rows=tuple(rows),
        numbers=("base offset", "size", "batches", "records"),
        whole=("role", "first time", "largest time", "modified"),
        optional=("first time", "modified", "largest time", "batches", "records"),
    )
    totals = _totals(contents)
    return Section(title="Segments", parts=(table, *([lines(totals)] if totals else [])))


def _totals(contents: LogContents | None) -> str:
    """Return the counts of the whole partition that are known and not zero."""
    if contents is None:
        return ""
    counts_by_label = {label: [getattr(each, name) for each in contents.segments] for name, label in _COUNTS.items()}
    totals = {label: sum(counts) for label, counts in counts_by_label.items() if None not in counts}
    return ", ".join(f"{label}: {count:,}" for label, count in totals.items() if count)


def notes(plan: CleanPlan) -> Lines:
    """Return the assumptions behind a plan."""
    return lines(*(f"note: {note}" for note in plan.log.notes), is_close=True)


def other_files(plan: CleanPlan) -> Lines:
    """Return the files in the directory that are not of the log."""
    left_over = [f"left over: {name}" for name in (*plan.log.leftovers, *plan.log.staging)]
    return lines(*left_over, *(f"not a file of Kafka: {name}" for name in plan.log.foreign), is_close=True)


def findings_part(findings: Sequence[FileFinding]) -> Part:
    """Return the findings of a verification as a table, or a line if there is none."""
    if not findings:
        return lines(VERIFIED)
    return Table(
        caption="Findings",
        columns=("severity", "file", "position", "offset", "problem"),
        rows=tuple(
            row(
                Cell(text=each.severity, tone=_TONES.get(each.severity)),
                each.file,
                offset(each.position),
                offset(each.offset),
                each.problem,
            )
            for each in findings
        ),
        numbers=("position", "offset"),
        whole=("severity",),
    )
