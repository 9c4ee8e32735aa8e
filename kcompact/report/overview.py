"""The head of a partition: the verdict, the most important numbers, the offsets; and the summary of several."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.config.settings import FIELD_NAMES, Source, config_fields
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.notes import why_assumed
from kcompact.plan.totals import not_to_clean, totals_of
from kcompact.plan.walk import PlannedPartition
from kcompact.report.batches import codec_section, horizon_section, producer_section
from kcompact.report.conditions import why_section
from kcompact.report.dirty_ratio import ratio_section
from kcompact.report.facts import PartitionFacts
from kcompact.report.history import history_section
from kcompact.report.keys import illustrated_keys
from kcompact.report.parts import Illustrated, KeyFigure, PartitionView, page_section
from kcompact.report.segments import scale_section, segment_section, time_section
from kcompact.report.transactions import transaction_section
from kcompact.views.parts import Cell, Section, Table, row

_MOST_NAMED = 4
_MOST_LISTED = 1_000

# One partition


def partition_view(facts: PartitionFacts, name: str, *, print_data: bool) -> PartitionView:
    """Return one partition with all its sections. `name` distinguishes it from the others of the page.

    Without `print_data` keys are only named by their hashes.
    """
    plan = facts.plan
    problems = _problems(facts)
    tone = "bad" if facts.error is not None else "yes" if facts.is_eligible else "no"
    verdict = {"bad": "Not to be cleaned: damaged or refused", "yes": "To be cleaned", "no": "Not to be cleaned"}[tone]
    return PartitionView(
        anchor=name,
        name=readable.shown(facts.name),
        directory=readable.shown(facts.directory),
        tone=tone,
        verdict=verdict,
        reason=facts.short_reason,
        explanation="" if facts.explanation in _first_lines(problems) else facts.explanation,
        values=() if plan is None else tuple(_values(facts, plan)),
        problems=problems,
        sections=() if plan is None else tuple(_sections(facts, plan, name, print_data=print_data)),
    )


def _first_lines(texts: Sequence[str]) -> list[str]:
    return [text.splitlines()[0] for text in texts if text]


def _problems(facts: PartitionFacts) -> tuple[str, ...]:
    """Return the errors, and up to where damaged segments were read."""
    problems = [str(problem) for problem in (facts.error, *facts.damage) if problem is not None]
    if facts.contents is not None:
        problems += [
            f"segment {each.base_offset}: read up to byte {each.end_position:,}, {each.counted_records:,} records"
            for each in facts.contents.segments
            if each.damage is not None
        ]
    return tuple(dict.fromkeys(problems))


def _values(facts: PartitionFacts, plan: CleanPlan) -> list[KeyFigure]:
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
            remark=f"cleaned above {plan.config.min_cleanable_dirty_ratio}",
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


def _sections(facts: PartitionFacts, plan: CleanPlan, name: str, *, print_data: bool) -> list[Section | Illustrated]:
    found = [
        *((scale_section(facts, plan, name), time_section(plan, name)) if plan.log.size_bytes else ()),
        ratio_section(facts, plan, name),
        why_section(facts, plan),
        illustrated_keys(facts, name, print_data=print_data),
        horizon_section(facts, plan),
        history_section(facts),
        codec_section(facts),
        producer_section(facts, plan),
        transaction_section(facts),
        segment_section(facts, plan),
        _settings_section(plan),
    ]
    return [section for section in found if section is not None]


def _settings_section(plan: CleanPlan) -> Section | Illustrated:
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
    return page_section(title="Settings", text=(text,), tables=(table,) if rows or assumed else ())


# Several partitions


def summary_values(facts: Sequence[PartitionFacts]) -> tuple[KeyFigure, ...]:
    """Return the numbers at the head of a page about several partitions."""
    totals = totals_of(facts)
    saved = [
        each.dry_run.result.stats.bytes_read - each.dry_run.result.stats.bytes_written
        for each in facts
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


def summary_sections(facts: Sequence[PartitionFacts], anchors: dict[str, str]) -> tuple[Section | Illustrated, ...]:
    """Return the sections about several partitions. `anchors` has the places of those with details, by directory."""
    reasons = [
        row(reason, len(those), readable.size(totals_of(those).size_bytes), _named(those))
        for reason, those in not_to_clean(facts).items()
    ]
    sections = [
        page_section(
            title="Partitions, the dirtiest first",
            tables=(
                Table(
                    caption="Partitions",
                    columns=("partition", "size", "dirty ratio", "clean it", "reason", "why"),
                    rows=tuple(_row(each, anchors) for each in facts),
                    most_rows=_MOST_LISTED,
                    numbers=frozenset({"size", "dirty ratio"}),
                    sentences=frozenset({"why"}),
                ),
            ),
        )
    ]
    if reasons:
        table = Table(
            caption="Not to be cleaned, by reason",
            columns=("reason", "partitions", "size", "such as"),
            rows=tuple(reasons),
            numbers=frozenset({"partitions", "size"}),
            sentences=frozenset({"such as"}),
        )
        sections.append(page_section(title="Why partitions are not cleaned", tables=(table,)))
    return tuple(sections)


def _named(facts: Sequence[PlannedPartition]) -> str:
    more = f" and {len(facts) - _MOST_NAMED:,} more" if len(facts) > _MOST_NAMED else ""
    return ", ".join(each.name for each in facts[:_MOST_NAMED]) + more


def _row(facts: PartitionFacts, anchors: dict[str, str]) -> tuple[Cell, ...]:
    plan = facts.plan
    return (
        Cell(text=readable.shown(facts.name), anchor=anchors.get(str(facts.directory), "")),
        *row(
            None if plan is None else readable.size(plan.log.size_bytes),
            None if plan is None else Cell(text=f"{plan.cleanable_ratio:.4f}", share=plan.cleanable_ratio),
            "yes" if facts.is_eligible else "no",
            facts.short_reason,
            facts.explanation.removeprefix(f"{readable.shown(facts.directory)}: "),
        ),
    )
