"""What decides about a partition: the conditions, what changes the verdict, the offsets, what a cleaning costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kcompact import readable
from kcompact.errors import CorruptDataError
from kcompact.plan.clean_plan import CleanPlan, ConditionName
from kcompact.plan.conditions import Condition, Verdict
from kcompact.plan.explanation import Explanation, explain
from kcompact.plan.partition import hint_for
from kcompact.report.facts import DryRun, PartitionFacts
from kcompact.report.parts import Illustrated, page_section
from kcompact.views.parts import Cell, Section, Table, Tone, row

_TONES = {
    Verdict.TRIGGERS: Tone.GOOD,
    Verdict.LIMITS: Tone.CAUTION,
    Verdict.BLOCKS: Tone.BAD,
    Verdict.DELAYS: Tone.CAUTION,
}


def why_section(facts: PartitionFacts, plan: CleanPlan) -> Section | Illustrated:
    """Return the section with the conditions of a broker's cleaner, and which one decides."""
    explanation = facts.explained or explain(plan)
    rows = []
    for condition in _after_dry_run(explanation.conditions, facts.dry_run):
        later = f"; {condition.forecast.explanation}" if condition.forecast else ""
        rows.append(
            (
                Cell(text=str(condition.name), is_code=True),
                Cell(text=condition.verdict_text, tone=_TONES.get(condition.verdict)),
                *row(f"{condition.explanation}{later}"),
            )
        )
    conditions = Table(
        caption="Everything that Kafka's cleaner asks",
        columns=("condition", "verdict", "why"),
        rows=tuple(rows),
        sentences=frozenset({"why"}),
    )
    hint = hint_for(plan)
    return page_section(
        title="What decides",
        text=(hint,) if hint and facts.error is None else (),
        tables=(conditions, *_later(explanation), _offsets(plan)),
        remarks=tuple(f"note: {note}" for note in dict.fromkeys(plan.log.notes)),
    )


def _after_dry_run(conditions: Sequence[Condition], dry_run: DryRun | None) -> Sequence[Condition]:
    """Return the conditions, or with damage that only the dry run has found: it decides instead of the others."""
    error = dry_run.error if dry_run is not None else None
    uncleanable = next((each for each in conditions if each.name is ConditionName.UNCLEANABLE), None)
    if not isinstance(error, CorruptDataError) or uncleanable is None or uncleanable.verdict is not Verdict.OK:
        return conditions
    why = f"the dry run found damage: {str(error).splitlines()[0]}"
    blocking = replace(uncleanable, verdict=Verdict.BLOCKS, explanation=why, decides=True)
    return [blocking if each is uncleanable else replace(each, decides=False) for each in conditions]


def _later(explanation: Explanation) -> tuple[Table, ...]:
    """Return the table of what changes the verdict, and of the cost; nothing if there is nothing to say."""
    rows: list[tuple[Cell, ...]] = []
    if not explanation.plan.eligible:
        rows += [row("by itself", each.explanation) for each in explanation.forecasts]
        if not explanation.forecasts:
            rows.append(row("by itself", "nothing that can be foreseen makes it eligible"))
    rows += [row("by a setting", remedy.sentence) for remedy in explanation.remedies]
    rows += _cost(explanation)
    table = Table(
        caption="What changes that, and what a cleaning costs",
        columns=("what", "value"),
        rows=tuple(rows),
        sentences=frozenset({"value"}),
    )
    return (table,) if rows else ()


def _cost(explanation: Explanation) -> list[tuple[Cell, ...]]:
    """Return what a broker and kcompact have to do, at most."""
    broker, here, retention = explanation.broker, explanation.here, explanation.retention
    rows = []
    if broker.bytes_rewritten:
        passes = "an unknown number" if broker.passes_at_most is None else f"at most {broker.passes_at_most:,}"
        used = f"{100 * broker.buffer_utilization:.1f} %"
        rows += [
            row("a broker rewrites", readable.size(broker.bytes_rewritten)),
            row("passes of a broker", passes),
            row(
                "its buffer",
                f"{readable.size(broker.buffer_bytes)}, {broker.keys_per_pass:,} keys, at most {used} used",
            ),
        ]
    if here.log_bytes_read:
        rows += [
            row("kcompact reads", readable.size(here.log_bytes_read)),
            row("kcompact needs meanwhile", f"{readable.size(here.peak_extra_disk_bytes)} of free space at most"),
        ]
    if retention.segments:
        segments = readable.counted(retention.segments, "segment")
        rows.append(row("retention would free", f"{readable.size(retention.size_bytes)}, {segments}"))
    return rows


def _offsets(plan: CleanPlan) -> Table:
    offsets = {
        "log start": plan.log.log_start_offset,
        "cleaner checkpoint": plan.log.checkpoint_offset,
        "first dirty": plan.first_dirty_offset,
        "first uncleanable": plan.first_uncleanable_offset,
        "last stable": plan.last_stable_offset,
        "high watermark": plan.high_watermark,
        "log end": plan.log.log_end_offset,
    }
    return Table(
        caption="Offsets",
        columns=tuple(offsets),
        rows=(row(*(None if offset is None else str(offset) for offset in offsets.values())),),
        numbers=frozenset(offsets),
    )
