"""What a page shows: of a partition the verdict, the most important numbers and all sections; a summary of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kcompact import readable
from kcompact.config.settings import FIELD_NAMES, Source, config_fields
from kcompact.errors import CorruptDataError
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.conditions import Condition, Verdict
from kcompact.plan.explanation import explain
from kcompact.plan.partition import hint_for
from kcompact.plan.setting_notes import why_assumed
from kcompact.plan.totals import totals_of
from kcompact.plan.verdict import ConditionName, Reason
from kcompact.plan.walk import Answer
from kcompact.report.dirty_ratio import ratio_section
from kcompact.report.figures import illustrated_keys, scale_section, time_section
from kcompact.report.page import Illustrated, KeyFigure, PartitionView
from kcompact.report.reading import DryRun, PartitionFacts, facts_of
from kcompact.views.batches import codec_section, horizon_section, producer_section
from kcompact.views.explanations import conditions_section
from kcompact.views.gaps import gaps_section
from kcompact.views.parts import Cell, Section, Table, lines, row
from kcompact.views.plans import reasons_table, verdicts_table
from kcompact.views.segments import segments_section
from kcompact.views.transactions import transactions_section

# One partition


def partition_view(answer: Answer[PartitionFacts], name: str, *, print_data: bool) -> PartitionView:
    """Return one partition with all its sections. `name` distinguishes it from the others of the page.

    Without `print_data` keys are only named by their hashes.
    """
    plan = answer.plan
    problems = _problems(answer)
    tone = "bad" if answer.error is not None else "yes" if answer.is_eligible else "no"
    verdict = {"bad": "Not to be cleaned: damaged or refused", "yes": "To be cleaned", "no": "Not to be cleaned"}[tone]
    return PartitionView(
        anchor=name,
        name=readable.shown(answer.name),
        directory=readable.shown(answer.directory),
        tone=tone,
        verdict=verdict,
        reason=answer.short_reason,
        explanation="" if answer.explanation in _first_lines(problems) else answer.explanation,
        values=() if plan is None else tuple(_values(answer, plan)),
        problems=problems,
        sections=() if plan is None else tuple(_sections(answer, plan, name, print_data=print_data)),
    )


def _first_lines(texts: Sequence[str]) -> list[str]:
    return [text.splitlines()[0] for text in texts if text]


def _problems(answer: Answer[PartitionFacts]) -> tuple[str, ...]:
    """Return the errors, and up to where damaged segments were read."""
    facts = facts_of(answer)
    problems = [str(problem) for problem in (answer.error, *facts.damage) if problem is not None]
    if facts.contents is not None:
        problems += [
            f"segment {each.base_offset}: read up to byte {each.end_position:,}, {each.counted_records:,} records"
            for each in facts.contents.segments
            if each.damage is not None
        ]
    return tuple(dict.fromkeys(problems))


def _values(answer: Answer[PartitionFacts], plan: CleanPlan) -> list[KeyFigure]:
    facts = facts_of(answer)
    size_bytes = plan.log.size_bytes
    values = [KeyFigure(name="size", value=readable.size(size_bytes), remark=_count(plan))]
    result = None if facts.dry_run is None else facts.dry_run.result
    if result is not None:
        left = size_bytes - result.stats.bytes_read + result.stats.bytes_written
        values.append(
            KeyFigure(
                name="after a cleaning",
                value=readable.size(left),
                remark=f"saves {readable.size(size_bytes - left)}, {readable.percent(size_bytes - left, size_bytes)}",
            )
        )
    values.append(
        KeyFigure(
            name="dirty ratio",
            value=f"{plan.cleanable_ratio:.4f}",
            remark=f"cleaned above {plan.config.text_of('min.cleanable.dirty.ratio')}",
        )
    )
    if facts.contents is not None:
        records = sum(each.counted_records for each in facts.contents.segments)
        remark = "" if result is None else f"{result.stats.messages_written:,} in the cleaned part afterwards"
        values.append(KeyFigure(name="records", value=f"{records:,}", remark=remark))
    if facts.keys is not None and (factor := facts.keys.counts.duplicate_factor) is not None:
        live = facts.keys.counts.live_keys.number
        remark = f"{factor:.2f} records for each key"
        if facts.keys.problem is not None:
            remark = f"up to offset {facts.keys.counted_to_offset}, where the log is damaged"
        values.append(KeyFigure(name="live keys", value=f"{live:,}", remark=remark))
    policy = plan.config.policy_text or "unknown"
    values.append(KeyFigure(name="cleanup.policy", value=policy, remark=_source(plan, "cleanup.policy")))
    return values


def _count(plan: CleanPlan) -> str:
    return readable.counted(len(plan.log.segments), "segment")


def _source(plan: CleanPlan, name: str) -> str:
    return plan.config.source_of(name) if name in plan.config.settings else ""


def _sections(
    answer: Answer[PartitionFacts], plan: CleanPlan, name: str, *, print_data: bool
) -> list[Section | Illustrated]:
    facts = facts_of(answer)
    gaps, transactions, kinds = facts.gaps, facts.transactions, facts.kinds
    counts = None if facts.keys is None else facts.keys.counts
    sections = [
        *((scale_section(answer, plan, name), time_section(plan, name)) if plan.log.size_bytes else ()),
        ratio_section(answer, plan, name),
        _why_section(answer, plan),
        illustrated_keys(facts.keys, name, print_data=print_data),
        horizon_section(kinds, counts, plan) if kinds is not None else None,
        gaps_section(gaps) if gaps is not None and gaps.on_disk.rows else None,
        codec_section(kinds) if kinds is not None else None,
        producer_section(kinds, plan) if kinds is not None else None,
        transactions_section(transactions) if transactions is not None and transactions.producer_ids else None,
        segments_section(plan, facts.contents),
        _settings_section(plan),
    ]
    return [section for section in sections if section is not None]


def _why_section(answer: Answer[PartitionFacts], plan: CleanPlan) -> Section:
    """Return the section with the conditions of a broker's cleaner, and which one decides."""
    facts = facts_of(answer)
    explanation = facts.explained or explain(plan)
    section = conditions_section(explanation, _after_dry_run(explanation.conditions, facts.dry_run))
    hint = hint_for(plan)
    above = (lines(hint),) if hint and answer.error is None else ()
    notes = lines(*(f"note: {note}" for note in dict.fromkeys(plan.log.notes)), is_close=True)
    return Section(title=section.title, parts=(*above, *section.parts, _offsets(plan), notes))


def _after_dry_run(conditions: Sequence[Condition], dry_run: DryRun | None) -> Sequence[Condition]:
    """Return the conditions, or with damage that only the dry run has found: it decides instead of the others."""
    error = dry_run.error if dry_run is not None else None
    uncleanable = next((each for each in conditions if each.name is ConditionName.UNCLEANABLE), None)
    if not isinstance(error, CorruptDataError) or uncleanable is None or uncleanable.verdict is not Verdict.OK:
        return conditions
    why = f"the dry run found damage: {str(error).splitlines()[0]}"
    blocking = replace(uncleanable, value=str(Reason.CORRUPT), verdict=Verdict.BLOCKS, explanation=why, decides=True)
    return [blocking if each is uncleanable else replace(each, decides=False) for each in conditions]


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
        numbers=tuple(offsets),
    )


def _settings_section(plan: CleanPlan) -> Section:
    """Return the section with the settings that are not Kafka's defaults or only assumed, and where they come from."""
    fields = config_fields(plan.config)
    rows = [
        row(Cell(text=name, is_code=True), Cell(text=str(fields[name]["value"]), is_code=True), _source(plan, name))
        for name in FIELD_NAMES.values()
        if fields[name]["value"] is not None and fields[name]["source"] != Source.DEFAULT
    ]
    assumed = [
        row(
            Cell(text=name, is_code=True),
            Cell(text=plan.config.text_of(name), is_code=True),
            plan.config.source_of(name),
        )
        for name in plan.config.assumed
    ]
    text = "All other settings have Kafka's defaults, or are unknown."
    if assumed:
        why = f"The assumed settings have Kafka's defaults, because {why_assumed(plan)}."
        text = f"{readable.shown(why)} A broker with other values decides otherwise."
    table = Table(caption="Settings", columns=("setting", "value", "source"), rows=(*rows, *assumed))
    return Section(title="Settings", parts=(lines(text), *((table,) if rows or assumed else ())))


# Several partitions


def summary_values(answers: Sequence[Answer[PartitionFacts]]) -> tuple[KeyFigure, ...]:
    """Return the numbers at the head of a page about several partitions."""
    totals = totals_of(answers)
    saved = [
        each.dry_run.result.stats.bytes_read - each.dry_run.result.stats.bytes_written
        for each in map(facts_of, answers)
        if each.dry_run is not None and each.dry_run.result is not None
    ]
    values = [
        KeyFigure(name="partitions", value=f"{totals.partitions:,}", remark=f"{totals.to_clean:,} to be cleaned"),
        KeyFigure(name="size", value=readable.size(totals.size_bytes)),
        KeyFigure(name="dirty", value=readable.size(totals.dirty_bytes), remark="in partitions to be cleaned"),
    ]
    if saved:
        count = readable.counted(len(saved), "partition")
        values.append(KeyFigure(name="to be won", value=readable.size(sum(saved)), remark=f"by dry runs of {count}"))
    return tuple(values)


def summary_sections(answers: Sequence[Answer[PartitionFacts]], anchors: Mapping[Path, str]) -> tuple[Section, ...]:
    """Return the sections about several partitions. `anchors` has the places of those with details, by directory."""
    table = verdicts_table(answers, anchors=anchors)
    reasons = reasons_table(answers)
    sections = [Section(title="Partitions, the dirtiest first", parts=(table,))]
    if reasons.rows:
        sections.append(Section(title="Why partitions are not cleaned", parts=(reasons,)))
    return tuple(sections)
