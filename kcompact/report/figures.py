"""Sections with figures: the log to scale before and after a cleaning, its segments over time, versions of keys."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.plan.clean_plan import CleanPlan, Role
from kcompact.plan.walk import Answer
from kcompact.report import drawing
from kcompact.report.page import Illustrated, page_section
from kcompact.report.reading import PartitionFacts, facts_of
from kcompact.views.keys import VERSIONS, keys_section
from kcompact.views.parts import Cell, Section, Table, lines, row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from kcompact.log.segments import Segment
    from kcompact.questions.keys.counts import LogKeys, VersionsBin

MOST_DRAWN = 240
"""Of more segments, neighbours of the same role are drawn as one."""

Run = tuple[Role, int, int]
"""A role, a number of segments, and their bytes."""


# To scale


def scale_section(answer: Answer[PartitionFacts], plan: CleanPlan, name: str) -> Section | Illustrated:
    """Return the section with the bar of the log, and the bar that a cleaning would leave."""
    before = _runs(plan, plan.log.segments)
    after = _after(answer, plan)
    bars = [("now", before)] if after is None else [("now", before), ("after", after)]
    size_bytes = plan.log.size_bytes
    sums = {role: _sum(before, role) for role in Role}
    rows = [
        row(Cell(text=str(role), role=role), count, readable.size(size), readable.percent(size, size_bytes))
        for role, (count, size) in sums.items()
        if count
    ]
    rows.append(row("now", len(plan.log.segments), readable.size(size_bytes), readable.percent(size_bytes, size_bytes)))
    if after is not None:
        left = sum(size for _, _, size in after)
        rows.append(
            row("after", sum(count for _, count, _ in after), readable.size(left), readable.percent(left, size_bytes))
        )
    figure = drawing.figure(
        f"{name}-scale",
        "The log to scale",
        _described(bars),
        lambda axes, is_narrow: _draw_bars(axes, bars, is_narrow=is_narrow),
        height_px=70 + 62 * len(bars),
        left_px=52,
    )
    return page_section(
        title="The log, before and after",
        text=_about_after(answer),
        figure=figure,
        figure_table=Table(
            caption="Bytes of the .log files",
            columns=("section", "segments", "size", "of today"),
            rows=tuple(rows),
            numbers=frozenset({"segments", "size", "of today"}),
        ),
    )


def _runs(plan: CleanPlan, segments: Sequence[Segment]) -> list[Run]:
    """Return the segments as they are drawn: each by itself, or neighbours of the same role together."""
    runs: list[Run] = [(plan.role_of(each), 1, each.size_bytes) for each in segments]
    if len(runs) <= MOST_DRAWN:
        return runs
    merged = []
    for role, same in groupby(runs, key=lambda run: run[0]):
        sizes = [size for _, _, size in same]
        merged.append((role, len(sizes), sum(sizes)))
    return merged


def _after(answer: Answer[PartitionFacts], plan: CleanPlan) -> list[Run] | None:
    """Return the segments after a cleaning, the cleaned ones as one section; None if that is unknown."""
    facts = facts_of(answer)
    result = None if facts.dry_run is None else facts.dry_run.result
    if result is None or result.plan is None:
        return None
    untouched = plan.log.segments[len(result.plan.segments) :]
    return [(Role.CLEAN, len(result.plan.groups), result.stats.bytes_written), *_runs(plan, untouched)]


def _sum(runs: Sequence[Run], role: Role) -> tuple[int, int]:
    runs_of_role = [run for run in runs if run[0] is role]
    return sum(count for _, count, _ in runs_of_role), sum(size for _, _, size in runs_of_role)


def _described(bars: Sequence[tuple[str, Sequence[Run]]]) -> str:
    sentences = []
    for name, runs in bars:
        sizes = [f"{role} {readable.size(_sum(runs, role)[1])}" for role in Role if _sum(runs, role)[0]]
        sentences.append(f"{name}: {', '.join(sizes)}")
    return "; ".join(sentences)


def _about_after(answer: Answer[PartitionFacts]) -> tuple[str, ...]:
    facts = facts_of(answer)
    dry_run = facts.dry_run
    if dry_run is None:
        return ("Nothing would be cleaned now, so there is only one bar.",) if answer.error is None else ()
    if dry_run.result is None:
        return (f"What a cleaning would leave is unknown: {str(dry_run.error).splitlines()[0]}",)
    exact = "The second bar is exact: a dry run went through all stages of a cleaning and counted what it would write."
    if dry_run.is_forced:
        exact += " The dirty ratio is too low for a cleaning by itself; clean --force would leave this."
    stopped = dry_run.result.stopped_by
    return (exact,) if stopped is None else (exact, f"The cleaning itself would stop: {str(stopped).splitlines()[0]}")


def _draw_bars(axes: Axes, bars: Sequence[tuple[str, Sequence[Run]]], *, is_narrow: bool) -> None:
    longest = max(sum(size for _, _, size in runs) for _, runs in bars) or 1
    for number, (_, runs) in enumerate(bars):
        start = 0
        for role, _, size_bytes in runs:
            axes.barh(
                number,
                size_bytes,
                left=start,
                height=0.62,
                color=drawing.ROLE_COLOURS[role],
                edgecolor=drawing.PAPER,
                linewidth=1.0 if size_bytes > longest / 120 else 0.0,
            )
            start += size_bytes
        text = readable.size(start)
        is_long = start > longest * 0.8
        drawing.label(
            axes,
            longest if is_long else start + longest / 100,
            number - 0.36 if is_long else number,
            text,
            ha="right" if is_long else "left",
            va="bottom" if is_long else "center",
            color=drawing.INK,
        )
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.set_ylim(len(bars) - 0.5, -0.75)
    axes.set_xlim(0, longest)
    axes.grid(visible=False, axis="y")
    drawing.size_axis(axes.xaxis, ticks=3 if is_narrow else 6)


# Over time


def time_section(plan: CleanPlan, name: str) -> Section | Illustrated:
    """Return the section with each segment from its first to its largest timestamp."""
    drawn = _spans(plan)
    has_times = drawing.are_dates([time for _, first, last, _, _ in drawn for time in (first, last)])
    figure = drawing.figure(
        f"{name}-time",
        "Segments over time",
        f"{len(plan.log.segments):,} segments, each from its first to its largest timestamp, as high as its size.",
        lambda axes, is_narrow: _draw_spans(axes, drawn, plan, has_times=has_times, is_narrow=is_narrow),
    )
    remarks = [] if has_times else ["The timestamps are no dates of this era, so the axis shows offsets."]
    if len(drawn) < len(plan.log.segments):
        remarks.append("There are many segments: each bar is several of the same role, as high as their mean size.")
    return page_section(
        title="Segments over time",
        text=(
            "Each segment stands from its first to its largest timestamp and is as high as its size. A wide, flat "
            "segment has been compacted, or little was written.",
        ),
        figure=figure,
        figure_table=_role_table(plan),
        remarks=tuple(remarks),
    )


Span = tuple[Role, int, int, int, int]
"""A role, the first and the largest timestamp, the base offset, and a size."""


def _spans(plan: CleanPlan) -> list[Span]:
    spans: list[Span] = []
    together = -(-len(plan.log.segments) // MOST_DRAWN)
    for role, same in groupby(plan.log.segments, key=plan.role_of):
        of_role = list(same)
        for start in range(0, len(of_role), together):
            span_segments = of_role[start : start + together]
            firsts = [each.first_batch_max_timestamp_ms for each in span_segments]
            first_ms = min(
                (first for first in firsts if first is not None), default=span_segments[0].largest_timestamp_ms
            )
            last_ms = max(each.largest_timestamp_ms for each in span_segments)
            mean_bytes = sum(each.size_bytes for each in span_segments) // len(span_segments)
            spans.append((role, min(first_ms, last_ms), last_ms, span_segments[0].base_offset, mean_bytes))
    return spans


def _draw_spans(axes: Axes, drawn: Sequence[Span], plan: CleanPlan, *, has_times: bool, is_narrow: bool) -> None:
    if has_times:
        places = [(drawing.day(first), drawing.day(last)) for _, first, last, _, _ in drawn]
    else:
        bases = [base for _, _, _, base, _ in drawn]
        places = list(zip(map(float, bases), map(float, [*bases[1:], plan.log.log_end_offset]), strict=True))
    low, high = min(start for start, _ in places), max(end for _, end in places)
    least = (high - low) / 150 or 1.0
    for (role, _, _, _, size_bytes), (start, end) in zip(drawn, places, strict=True):
        axes.bar(
            start,
            size_bytes,
            width=max(end - start, least),
            align="edge",
            color=drawing.ROLE_COLOURS[role],
            edgecolor=drawing.PAPER,
            linewidth=1.0 if len(drawn) < 100 else 0.0,
        )
    axes.set_xlim(low - least, high + 2 * least)
    axes.set_ylim(0, max(max(size for *_, size in drawn) * 1.08, 1))
    drawing.size_axis(axes.yaxis)
    if has_times:
        drawing.date_axis(axes, is_narrow=is_narrow)


def _role_table(plan: CleanPlan) -> Table:
    """Return the times of each section."""
    rows = []
    for role in Role:
        segments = [each for each in plan.log.segments if plan.role_of(each) is role and each.size_bytes]
        if segments:
            firsts = [each.first_batch_max_timestamp_ms for each in segments]
            first_ms = min((first for first in firsts if first is not None), default=None)
            last_ms = max(each.largest_timestamp_ms for each in segments)
            rows.append(row(Cell(text=str(role), role=role), readable.minute(first_ms), readable.minute(last_ms)))
    return Table(
        caption="From the first batch to the largest timestamp, UTC",
        columns=("section", "from", "to"),
        rows=tuple(rows),
    )


# Keys


def illustrated_keys(keys: LogKeys | None, name: str, *, print_data: bool) -> Section | Illustrated | None:
    """Return the section about the keys; None if none was counted."""
    if keys is None or not keys.counts.records.number:
        return None
    section = keys_section(keys, print_data=print_data)
    if not print_data:
        remark = lines("Keys and prefixes are shown as the beginning of their SHA-256.", is_close=True)
        section = Section(title=section.title, parts=(*section.parts, remark))
    versions = [each for each in keys.versions if each.keys]
    if not versions:
        return section
    figure = drawing.figure(
        f"{name}-versions",
        VERSIONS,
        "; ".join(
            f"{readable.span(each.least, each.most)}: {each.keys:,} keys, {each.records:,} records" for each in versions
        ),
        lambda axes, is_narrow: _draw_versions(axes, versions, is_narrow=is_narrow),
        bottom_px=56,
        legend=((Role.CLEAN, "keys"), (Role.DIRTY, "records")),
    )
    return Illustrated(section=section, figure=figure, table_caption=VERSIONS)


def _draw_versions(axes: Axes, versions: Sequence[VersionsBin], *, is_narrow: bool) -> None:
    keys, records = sum(each.keys for each in versions), sum(each.records for each in versions)
    places = range(len(versions))
    width = 0.38
    for offset, parts, colour in (
        (-width / 2, [100 * each.keys / keys for each in versions], drawing.CLEAN),
        (width / 2, [100 * each.records / records for each in versions], drawing.DIRTY),
    ):
        axes.bar([place + offset for place in places], parts, width=width, color=colour, edgecolor=drawing.PAPER)
    every = -(-len(versions) // (5 if is_narrow else 12))
    names = [f"{each.least:,}{'' if each.least == each.most else '+'}" for each in versions]
    axes.set_xticks(list(places)[::every], names[::every], parse_math=False)
    axes.set_xlabel("versions of a key", parse_math=False)
    axes.set_xlim(-0.6, len(versions) - 0.4)
    drawing.percent_axis(axes.yaxis)
