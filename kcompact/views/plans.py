"""The plans of partitions: a table of verdicts, the details of few, notes, what is left out, and the totals.

On a terminal a report fits on one screen: of many partitions those that are to be cleaned are listed, as far as there
is space, and the others are counted by reason. With --verbose, and without a terminal, every partition has a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kcompact import readable
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.cost import kafka_passes_at_most, keys_per_pass
from kcompact.plan.deletion import (
    RetentionReason,
    first_due_ms,
    plan_at_turn,
    plan_forecast,
    reason_to_roll,
    retention_applies,
)
from kcompact.plan.discovery import LeftOut, LeftOutKind
from kcompact.plan.run_notes import hints
from kcompact.plan.totals import PlanTotals, deleted_by_retention, not_to_clean, totals_of
from kcompact.plan.verdict import Reason
from kcompact.plan.walk import PlannedPartition
from kcompact.remarks import Note, RemarkCode
from kcompact.views.parts import Cell, Heading, Part, Space, Table, Tone, lines, row
from kcompact.views.segments import log_scale
from kcompact.views.sentences import amount_of, limit_text, policy_line, release_line, topics_of, unlocked

FEW = 3
"""So many partitions are always shown with their details."""
FEWEST_ROWS = 5
"""The rows for partitions to be cleaned, however low the terminal is."""
MOST_NOTES = 5
"""The notes that are printed on a terminal without --verbose."""
LINES_OF_TOTALS = 7
"""The lines of the totals and of the next command, with the empty lines before them."""
LINES_OF_HINT = 2
FIXED_LINES = 9
"""The lines of details, with the empty line before them, apart from groups and retention."""
COUNTED_AT_A_GLANCE = 20
"""So many partitions, listed one after the other, need no sums below them."""
MOST_BASES = 12
"""How many segments of a group are named before the middle ones are only counted."""
MOST_EXPIRED = 12
"""How many segments that retention deletes are listed before the others are only counted."""
_WHY_LEFT_OUT = {
    LeftOutKind.DELETE: "a broker deletes it",
    LeftOutKind.FUTURE: "moving from another log directory",
    LeftOutKind.STRAY: "not assigned to the broker",
    LeftOutKind.REMOTE_INDEX_CACHE: "Kafka's cache for tiered storage",
    LeftOutKind.UNKNOWN: "no name of Kafka's; may keep a broker from starting",
}


def plans_parts(
    entries: Sequence[PlannedPartition],
    space: Space,
    *,
    left_out: Sequence[LeftOut],
    applies_retention: bool = False,
) -> list[Part]:
    """Return the plans, what is left out beside them, and the totals. `applies_retention`: old segments are deleted.

    The details of a single partition already say what retention deletes. Nothing is said of a locked log directory but
    its number of partitions among the totals.
    """
    listed = unlocked(entries)
    if entries and not listed:
        return []
    notes, advice = _notes(listed), hints(listed)
    lines_below = min(len(notes), MOST_NOTES + 1) + bool(notes) + lines_of_left_out(left_out, space)
    lines_below += LINES_OF_HINT * len(advice) + LINES_OF_TOTALS
    parts, is_folded = _within(listed, space, lines_below=lines_below)
    parts += _notes_parts(notes, len(listed), space) + left_out_parts(left_out, space) + _hints_parts(advice)
    if len(entries) > 1:
        parts += totals_parts(entries, with_reasons=not is_folded, applies_retention=applies_retention)
    return parts


def _within(entries: Sequence[PlannedPartition], space: Space, *, lines_below: int) -> tuple[list[Part], bool]:
    """Return the table and the details that fit, and whether partitions were folded away."""
    details = [entry for entry in entries if _has_details(entry)]
    fill = space.lines
    if not space.is_verbose and len(entries) > FEW:
        eligible = [entry for entry in entries if entry.is_eligible]
        rows = len(entries) + 1 + lines_below
        if fill is not None and rows > fill:
            return _folded(entries, eligible, lines_to_fill=fill - lines_below), True
        details = eligible
        if len(details) > FEW or (fill is not None and rows + sum(map(_lines_of_details, details)) > fill):
            details = []
    verdicts = verdicts_table(entries, has_few=len(entries) <= FEW)
    return [verdicts, *(part for entry in details for part in _details(entry))], False


# Tables


def _folded(
    entries: Sequence[PlannedPartition], eligible: Sequence[PlannedPartition], *, lines_to_fill: int
) -> list[Part]:
    """Return the first eligible partitions, and the number of the others by reason."""
    others = not_to_clean(entries)
    rows = max(FEWEST_ROWS, lines_to_fill - (len(others) + 2 if others else 0) - 2)
    parts: list[Part] = []
    if eligible:
        parts.append(verdicts_table(eligible[:rows]).without("clean it"))
        if len(eligible) > rows:
            more = f"and {len(eligible) - rows:,} more to clean; -v lists them"
            parts.append(lines(more, is_close=True, is_indented=False))
    return [*parts, reasons_table(entries)] if others else parts


def reasons_table(entries: Sequence[PlannedPartition]) -> Table:
    """Return the partitions that are not to be cleaned, by their reason."""
    return Table(
        caption="Not to be cleaned, by reason",
        columns=("not to clean", "partitions", "size", "which"),
        rows=tuple(
            row(
                Cell(text=reason, tone=Tone.BAD if any(each.error for each in partitions) else None),
                len(partitions),
                _known_size(totals_of(partitions)),
                topics_of(partitions),
            )
            for reason, partitions in not_to_clean(entries).items()
        ),
        numbers=("partitions", "size"),
        whole=("not to clean",),
    )


def verdicts_table(
    entries: Sequence[PlannedPartition], *, has_few: bool = False, anchors: Mapping[Path, str] | None = None
) -> Table:
    """Return a row for each partition. `anchors` are the places on a page with the details, by directory.

    `has_few`: what a narrow terminal has no space for is shown below the table.
    """
    return Table(
        caption="Partitions",
        columns=("partition", "size", "clean", "dirty", "ratio", "clean it", "reason", "why"),
        rows=tuple(_verdict(entry, (anchors or {}).get(entry.directory, "")) for entry in entries),
        numbers=("size", "clean", "dirty", "ratio"),
        whole=("clean it", "reason"),
        sentences=("why",),
        optional=("why", "clean", "ratio", "size", "clean it"),
        below="why" if has_few else "",
        most_rows=1000,
    )


def _verdict(entry: PlannedPartition, anchor: str) -> tuple[Cell, ...]:
    plan = entry.turn
    return row(
        Cell(text=entry.name, anchor=anchor),
        readable.size(entry.plan.log.size_bytes) if entry.plan else None,
        readable.size(plan.clean_bytes) if plan else None,
        readable.size(plan.cleanable_bytes) if plan else None,
        Cell(text=f"{plan.cleanable_ratio:.4f}", share=plan.cleanable_ratio) if plan else None,
        Cell(text="yes", tone=Tone.GOOD) if entry.is_eligible else "no",
        Cell(text=_reason(entry) or "-", tone=Tone.BAD if entry.error else None),
        "" if _is_only_named(entry) else readable.within(entry.directory, entry.explanation),
    )


def _reason(entry: PlannedPartition) -> str | None:
    """Return the verdict, or without one the word of the error."""
    return (entry.error.word if entry.reason is None and entry.error is not None else entry.reason) or None


def _is_only_named(entry: PlannedPartition) -> bool:
    """Return whether the row only names the error, whose message is printed once for all partitions."""
    return entry.plan is None and entry.reason is None and entry.error is not None and bool(entry.error.word)


# Notes and totals


def _notes(entries: Sequence[PlannedPartition]) -> dict[Note, list[str]]:
    """Return each note once, with the names of the partitions that have it."""
    names_by_note: dict[Note, list[str]] = {}
    for entry in entries:
        for note in dict.fromkeys(entry.plan.log.notes) if entry.plan is not None else ():
            if note.code is RemarkCode.NO_QUORUM_HIGH_WATERMARK:
                continue  # No plan depends on it.
            names_by_note.setdefault(note, []).append(entry.name)
    return names_by_note


def _notes_parts(notes: Mapping[Note, Sequence[str]], partitions: int, space: Space) -> list[Part]:
    """Return each note once; its partitions only if not all of them have it."""
    shown = list(notes.items())
    if space.lines is not None:
        shown = shown[:MOST_NOTES]
    note_lines = [
        f"note: {note}" + ("" if len(names) == partitions else f" ({readable.some_of(names)})") for note, names in shown
    ]
    if len(shown) < len(notes):
        note_lines.append(f"and {len(notes) - len(shown):,} more notes; -v lists them")
    return [lines(*note_lines, is_indented=False)] if note_lines else []


def notes_and_hints(entries: Sequence[PlannedPartition], space: Space) -> list[Part]:
    """Return what a person has to know of the partitions, each note once, and what may be passed for them."""
    return _notes_parts(_notes(entries), len(entries), space) + _hints_parts(hints(entries))


def _hints_parts(advice: Sequence[str]) -> list[Part]:
    return [lines(*(f"hint: {hint}" for hint in advice), is_indented=False)] if advice else []


def _known_size(totals: PlanTotals) -> str | None:
    """Return the size of the partitions that have a plan; None if none has one."""
    return None if totals.unplanned == totals.partitions else readable.size(totals.size_bytes)


def totals_parts(
    entries: Sequence[PlannedPartition], *, with_reasons: bool = True, applies_retention: bool = False
) -> list[Part]:
    """Return the sums of the plans, with the number of partitions for each reason or for all together.

    `applies_retention`: the command deletes what retention would.
    """
    totals = totals_of(entries)
    others = {reason: len(partitions) for reason, partitions in not_to_clean(entries).items()}
    if not with_reasons and others:
        others = {"not": sum(others.values())}
    counts = [f"{totals.to_clean:,} to clean", *(f"{count:,} {reason}" for reason, count in others.items())]
    size = _known_size(totals) or "size unknown"
    if 0 < totals.unplanned < totals.partitions:
        size += f" (size of {totals.unplanned:,} unknown)"
    summary_lines = [f"{readable.counted(totals.partitions, 'partition')}, {size}: {', '.join(counts)}"]
    if totals.to_clean:
        dirty, clean = readable.size(totals.dirty_bytes), readable.size(totals.clean_bytes)
        summary_lines.append(f"rewrites {readable.size(totals.input_bytes)}: {dirty} dirty, {clean} clean")
    if deleted := deleted_by_retention(entries):
        who = "retention deletes" if applies_retention else "retention: a broker would delete"
        summary_lines.append(f"{who} {amount_of(deleted)}")
    return [lines(*summary_lines, is_indented=False)]


def inspected_parts(entries: Sequence[PlannedPartition]) -> list[Part]:
    """Return the sums of partitions that were listed one after the other: segments, bytes, errors.

    There are none of partitions that are few enough to be counted at a glance.
    """
    if len(entries) <= COUNTED_AT_A_GLANCE:
        return []
    totals = totals_of(entries)
    segments = sum(len(entry.plan.log.segments) for entry in entries if entry.plan is not None)
    counts = [readable.counted(totals.partitions, "partition"), readable.counted(segments, "segment")]
    sums = ", ".join(filter(None, [*counts, _known_size(totals)]))
    failed = sum(entry.error is not None for entry in entries)
    return [lines(f"{sums}: {failed:,} with an error" if failed else sums, is_indented=False)]


# What is left out of log directories


def left_out_parts(left_out: Sequence[LeftOut], space: Space) -> list[Part]:
    """Return how many directories are left out, their size, and why; with --verbose each of them."""
    if not left_out:
        return []
    if not space.is_verbose:
        return [lines(_left_out_line(left_out), is_indented=False)]
    table = Table(
        caption="Left out",
        columns=("left out", "kind", "size", "why"),
        rows=tuple(
            row(
                each.directory.name,
                each.kind,
                None if each.size_bytes is None else readable.size(each.size_bytes),
                _WHY_LEFT_OUT[each.kind],
            )
            for each in left_out
        ),
        numbers=("size",),
        sentences=("why",),
        optional=("why",),
    )
    return [table]


def lines_of_left_out(left_out: Sequence[LeftOut], space: Space) -> int:
    """Return how many lines `left_out_parts` needs on a terminal, if it is one line about all."""
    return len(_left_out_line(left_out)) // space.width + 3 if left_out else 0


def _left_out_line(left_out: Sequence[LeftOut]) -> str:
    kinds = []
    for kind in LeftOutKind:
        names = [each.name for each in left_out if each.kind is kind]
        if names:
            kinds.append(f"{readable.some_of(names)} ({'' if kind in names else f'{kind}: '}{_WHY_LEFT_OUT[kind]})")
    sizes = [each.size_bytes for each in left_out]
    total = readable.size(sum(size_bytes or 0 for size_bytes in sizes))
    at_least = "at least " if None in sizes else ""
    counted = readable.counted(len(left_out), "directory", "directories")
    return f"left out: {counted}, {at_least}{total}: {'; '.join(kinds)}"


# The details of one plan


def _has_details(entry: PlannedPartition) -> bool:
    """Return whether there is more to say about a plan than its row in the table."""
    plan = entry.plan
    return plan is not None and bool(plan.groups or plan_forecast(plan) or _is_only_retained(plan))


def _lines_of_details(entry: PlannedPartition) -> int:
    """Return about how many lines `_details` needs, at most."""
    plan = entry.plan
    if plan is None:
        return 0
    retention = min(len(plan_forecast(plan)), MOST_EXPIRED + 1) + _is_only_retained(plan)
    return FIXED_LINES + len(plan.groups) + retention + (reason_to_roll(plan) is not None)


def _details(entry: PlannedPartition) -> list[Part]:
    """Return the details of one plan under the name of its partition."""
    plan, turn = entry.plan, entry.turn
    assert plan is not None, "a partition without a plan has no details"
    assert turn is not None, "a plan has a turn"
    policy = policy_line(plan.config)
    parts: list[Part] = [Heading(name=plan.log.directory.name)]
    if "(" in policy:
        parts.append(lines(f"policy {policy}", is_close=True))
    parts.append(lines(f"rules of {release_line(plan.config)}", is_close=True))
    if turn.groups:
        parts += [log_scale(turn), lines(*_groups(turn), is_close=True)]
    checkpoint_notes = []
    if plan.log.checkpoint_offset is not None and plan.checkpoint_reset:
        checkpoint_notes.append(f"note: the checkpoint {plan.log.checkpoint_offset} is outside the log and is ignored")
    return [*parts, lines(*checkpoint_notes, *_retention(plan), is_close=True)]


def _is_only_retained(plan: CleanPlan) -> bool:
    """Return whether retention is all that a broker does with a log that it does not compact."""
    return plan.reason is Reason.POLICY_DELETE and retention_applies(plan)


def _retention(plan: CleanPlan) -> list[str]:
    """Return what a broker would delete and why, and of a log that is not compacted also when it deletes next."""
    forecast, retention_lines = plan_forecast(plan), list[str]()
    for due in forecast[:MOST_EXPIRED]:
        kept = ", but the merge with a younger segment postpones the deletion" if due.is_postponed else ""
        below = f"below the log start {plan.log.log_start_offset}"
        why = below if due.reason is RetentionReason.LOG_START else f"past its {limit_text(plan, due.reason)}"
        retention_lines.append(f"retention: segment {due.segment.base_offset} is {why}{kept}")
    if len(forecast) > MOST_EXPIRED:
        retention_lines.append(f"retention: and {len(forecast) - MOST_EXPIRED:,} more segments; --json lists them")
    deleted = [due.segment for due in forecast if not due.is_postponed]
    if plan.config.compacts and (turn := plan_at_turn(plan)) is not plan:
        cause = (
            "comes first, because a broker cleans another log before this one" if plan.comes_later else "comes first"
        )
        retention_lines.append(f"retention {cause}; then {turn.explanation}")
    if _is_only_retained(plan):
        if deleted:
            start = max(plan.log.log_start_offset, plan.log.end_of(deleted[-1]))
            retention_lines.append(f"a broker would delete {amount_of(deleted)}; the log would start at {start}")
        else:
            retention_lines.append(f"retention: {_nothing_due(plan)}")
    if (reason := reason_to_roll(plan)) is not None:
        base, limit = plan.log.active_segment.base_offset, limit_text(plan, reason)
        retention_lines.append(
            f"retention: the active segment {base} is past its {limit}; only a broker rolls and deletes it"
        )
    return retention_lines


def _nothing_due(plan: CleanPlan) -> str:
    """Return that nothing is to be deleted, with the limits, and when the first segment will be too old."""
    limits = ", ".join(f"{name} {plan.config.text_of(name)}" for name in ("retention.ms", "retention.bytes"))
    due_ms = first_due_ms(plan)
    later = (
        "" if due_ms is None else f"; segment {plan.log.segments[0].base_offset} is due after {readable.time(due_ms)}"
    )
    return f"no closed segment is due ({limits}){later}"


def _groups(plan: CleanPlan) -> list[str]:
    """Return which segments become one, the new checkpoint, and how many passes Kafka's cleaner may need."""
    cleaning_lines = [
        f"{readable.counted(len(plan.segments), 'segment')} to {readable.counted(len(plan.groups), 'segment')}"
    ]
    for group in plan.groups:
        bases = [str(segment.base_offset) for segment in group]
        if len(bases) > MOST_BASES:
            bases = [*bases[:3], f"… {len(bases) - 4:,} more …", bases[-1]]
        total_bytes = sum(segment.size_bytes for segment in group)
        cleaning_lines.append(f"  {' + '.join(bases)} -> {group[0].base_offset}, from {readable.size(total_bytes)}")
    checkpoint = "none" if plan.log.checkpoint_offset is None else plan.log.checkpoint_offset
    cleaning_lines.append(f"checkpoint {checkpoint} -> {plan.first_uncleanable_offset}")
    passes = kafka_passes_at_most(plan)
    if passes is not None and passes > 1:
        keys = keys_per_pass(plan.config)
        cleaning_lines.append(f"one pass; Kafka's own cleaner, with a map of {keys:,} keys, may need up to {passes:,}")
    return cleaning_lines
