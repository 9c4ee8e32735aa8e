"""A plot of the results as SVG: for each case the wall times as bars, Kafka's as long as the scale."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby

from tests.bench.cases import DRY_RUN, IN_PROCESS, INSPECT, KAFKA, KAFKA_WARM, PLAN, SPARK, VERIFY
from tests.bench.results import Row

COLOURS = {
    KAFKA: "#6b7280",
    KAFKA_WARM: "#a3a9b3",
    SPARK: "#d97706",
    IN_PROCESS: "#2563eb",
    DRY_RUN: "#93b4f5",
    INSPECT: "#94a3b8",
    PLAN: "#94a3b8",
    VERIFY: "#94a3b8",
}
LABEL_WIDTH, SCALE_WIDTH, FIGURE_WIDTH = 110, 520, 250
BAR_HEIGHT, BAR_STEP, TITLE_STEP, CASE_GAP = 14, 18, 24, 14
LONGEST = 1.5
"""Bars end here, in units of the scale, and say in figures how long they are."""


def svg(rows: Sequence[Row]) -> str:
    """Return a plot of these rows, in their order.

    Each case has its own scale: 1 is Kafka's median, or the slowest engine's where Kafka has none. A short line across
    a bar is the goal, where it is one of time.
    """
    parts: list[str] = []
    y = CASE_GAP
    unit = SCALE_WIDTH / LONGEST
    for name, group in groupby(rows, key=lambda row: row.case):
        of_case = list(group)
        whole_s = next((row.wall_s for row in of_case if row.engine == KAFKA), max(row.wall_s for row in of_case))
        parts.append(_text(0, y + 13, name, "title"))
        y += TITLE_STEP
        top = y
        for row in of_case:
            width = min(row.wall_s / whole_s, LONGEST) * unit
            parts.append(_text(LABEL_WIDTH - 8, y + 11, row.engine, "label"))
            colour = COLOURS[row.engine]
            parts.append(f'<rect x="{LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" fill="{colour}"/>')
            end = LABEL_WIDTH + width
            at = _goal(row, whole_s)
            if at is not None and at <= LONGEST:
                x = LABEL_WIDTH + at * unit
                end = max(end, x)
                parts.append(f'<path d="M{x:.1f} {y - 2}v{BAR_HEIGHT + 4}" stroke="#111" stroke-width="2"/>')
            figure = f"{row.wall_s:.2f} s" + (f", {row.ratio:.2f} x Kafka" if row.ratio is not None else "")
            parts.append(_text(end + 8, y + 11, figure, "figure"))
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


def _goal(row: Row, whole_s: float) -> float | None:
    for goal, _ in row.goals:
        if goal.of == "ratio":
            return goal.limit
        if goal.of == "wall_s":
            return goal.limit / whole_s
    return None


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'
