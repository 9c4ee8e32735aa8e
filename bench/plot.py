"""The results as plots in SVG: wall times by case, ratios to Kafka by case, and times by number of cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from bench.cases import (
    COMPARE,
    DOCTOR,
    DRY_RUN,
    DUMP_LOG,
    IN_PROCESS,
    INSPECT,
    KAFKA,
    KAFKA_LOG,
    KAFKA_WARM,
    KEYS,
    LIST,
    PARQUET,
    PLAN,
    REPORT,
    SPARK,
    VERIFY,
    cores_in_words,
)
from bench.results import Row

COLOURS = {
    KAFKA: "#6b7280",
    KAFKA_WARM: "#a3a9b3",
    SPARK: "#d97706",
    IN_PROCESS: "#2563eb",
    DRY_RUN: "#93b4f5",
    INSPECT: "#94a3b8",
    PLAN: "#94a3b8",
    VERIFY: "#94a3b8",
    DOCTOR: "#94a3b8",
    REPORT: "#94a3b8",
    DUMP_LOG: "#6b7280",
    LIST: "#2563eb",
    KEYS: "#6b7280",
    COMPARE: "#2563eb",
    PARQUET: "#6b7280",
    KAFKA_LOG: "#2563eb",
}
LABEL_WIDTH, SCALE_WIDTH, FIGURE_WIDTH = 110, 520, 250
BAR_HEIGHT, BAR_STEP, TITLE_STEP, CASE_GAP = 14, 18, 24, 14
LONGEST = 1.5
"""Bars end here, in units of the scale, and say in figures how long they are."""


class Bar(NamedTuple):
    """A bar of this length with a short line across it at `mark`, both in units of the scale."""

    label: str
    length: float
    figure: str
    colour: str
    mark: float | None = None


def plots(rows: Sequence[Row]) -> dict[str, str]:
    """Return each plot that these rows make, by the name of its file."""
    unbound = [row for row in rows if row.cores is None]
    bound = [row for row in rows if row.cores is not None]
    found = {"bench": _walls(unbound), "ratios": _ratios(unbound), "scaling": _scaling(bound)}
    return {name: svg(groups) for name, groups in found.items() if groups}


Groups = list[tuple[str, list[Bar]]]


def _walls(rows: Iterable[Row]) -> Groups:
    """Each case has its own scale: 1 is Kafka's median, or the slowest engine's where Kafka has none."""
    groups = []
    for case, group in groupby(rows, key=lambda row: row.case):
        of_case = list(group)
        whole_s = next((row.wall_s for row in of_case if row.engine == KAFKA), max(row.wall_s for row in of_case))
        bars = []
        for row in of_case:
            reference = "Parquet" if row.engine == KAFKA_LOG else "Kafka"
            figure = f"{row.wall_s:.2f} s" + (f", {row.ratio:.2f} x {reference}" if row.ratio is not None else "")
            bars.append(Bar(row.engine, row.wall_s / whole_s, figure, COLOURS[row.engine], _goal(row, whole_s)))
        groups.append((case, bars))
    return groups


def _ratios(rows: Iterable[Row]) -> Groups:
    """kcompact's cleaners by Kafka, the case with the worst ratio last."""
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        if row.engine in (SPARK, IN_PROCESS) and row.ratio is not None:
            bar = Bar(row.engine, row.ratio, f"{row.ratio:.2f} x Kafka", COLOURS[row.engine], _goal(row, row.wall_s))
            groups.setdefault(row.case, []).append(bar)
    return sorted(groups.items(), key=lambda group: max(bar.length for bar in group[1]))


def _scaling(rows: Iterable[Row]) -> Groups:
    """Each engine by its own time on one core; the line across a bar is what as many cores take at best."""
    groups = []
    for (case, engine), group in groupby(rows, key=lambda row: (row.case, row.engine)):
        bars = [
            Bar(
                cores_in_words(row.cores),
                row.one_core,
                f"{row.wall_s:.2f} s, efficiency {row.efficiency:.2f}",
                COLOURS[engine],
                1 / row.cores,
            )
            for row in group
            if row.one_core and row.cores
        ]
        groups.append((f"{case}, {engine}", bars))
    return groups


def _goal(row: Row, whole_s: float) -> float | None:
    for goal, _ in row.goals:
        if goal.of == "ratio":
            return goal.limit
        if goal.of == "wall_s":
            return goal.limit / whole_s
    return None


def svg(groups: Groups) -> str:
    """Return a plot of titled groups of bars below one another; a line down each group is the 1 of its scale."""
    parts: list[str] = []
    y = CASE_GAP
    unit = SCALE_WIDTH / LONGEST
    for title, bars in groups:
        parts.append(_text(0, y + 13, title, "title"))
        y += TITLE_STEP
        top = y
        for bar in bars:
            width = min(bar.length, LONGEST) * unit
            parts.append(_text(LABEL_WIDTH - 8, y + 11, bar.label, "label"))
            parts.append(
                f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" fill="{bar.colour}"/>'
            )
            end = LABEL_WIDTH + width
            if bar.mark is not None and bar.mark <= LONGEST:
                x = LABEL_WIDTH + bar.mark * unit
                end = max(end, x)
                parts.append(f'<path d="M{x:.1f} {y - 2}v{BAR_HEIGHT + 4}" stroke="#111" stroke-width="2"/>')
            parts.append(_text(end + 8, y + 11, bar.figure, "figure"))
            y += BAR_STEP
        x = LABEL_WIDTH + unit
        parts.append(f'<path d="M{x:.1f} {top - 4}V{y}" stroke="#bbb" stroke-dasharray="3 3"/>')
        y += CASE_GAP
    width = LABEL_WIDTH + SCALE_WIDTH + FIGURE_WIDTH
    style = (
        "text{font:12px sans-serif;fill:#222}.title{font-weight:bold;font-size:13px}"
        ".label{text-anchor:end}.figure{fill:#555}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}">\n'
        f'<style>{style}</style>\n<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'
