"""The dirty ratio as the log grew, and where cleanings would have come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kcompact import readable
from kcompact.plan.clean_plan import CleanPlan
from kcompact.plan.walk import Answer
from kcompact.report import drawing
from kcompact.report.page import Illustrated, page_section
from kcompact.report.reading import PartitionFacts, facts_of
from kcompact.report.replay import Rolled, rolled_ratios
from kcompact.views.parts import Section, Table, row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MINIMUM = "min.cleanable.dirty.ratio"
_CLEANS, _BLANK = "▼", "\u2007"
_ENOUGH = 2
"""A line needs so many points."""


def ratio_section(answer: Answer[PartitionFacts], plan: CleanPlan, name: str) -> Section | Illustrated | None:
    """Return the section about the dirty ratio; None for a log in which fewer than two segments were rolled."""
    remaining = _remaining(answer, plan)
    rolled = rolled_ratios(
        plan.log,
        plan.config,
        first_dirty_offset=plan.first_dirty_offset,
        remaining=1.0 if remaining is None else remaining,
    )
    if len(rolled) < _ENOUGH:
        return None
    minimum = plan.config.min_cleanable_dirty_ratio
    cleanings = [each for each in rolled if each.model_cleans]
    due = next((each for each in rolled if each.ratio is not None and each.ratio > minimum), None)
    figure = drawing.figure(
        f"{name}-ratio",
        "Dirty ratio as the log grew",
        f"The ratio is {plan.cleanable_ratio:.4f} now, the minimum {plan.config.text_of(_MINIMUM)}. In the model, "
        f"{readable.counted(len(cleanings), 'cleaning')} would have come.",
        lambda axes, is_narrow: _draw(axes, rolled, minimum, is_narrow=is_narrow),
    )
    return page_section(
        title="Dirty ratio as the log grew",
        text=tuple(_texts(plan, due, remaining)),
        figure=figure,
        figure_table=_table(rolled),
    )


def _remaining(answer: Answer[PartitionFacts], plan: CleanPlan) -> float | None:
    """Return the share of the dirty bytes that a cleaning leaves today, None if that is unknown."""
    facts = facts_of(answer)
    after = None if facts.dry_run is None else facts.dry_run.bytes_after
    if after is None or not plan.cleanable_bytes:
        return None
    return min(1.0, max(0.0, (after - plan.clean_bytes) / plan.cleanable_bytes))


def _texts(plan: CleanPlan, due: Rolled | None, remaining: float | None) -> list[str]:
    minimum = plan.config.text_of(_MINIMUM)
    share = "all of them, because no dry run was made" if remaining is None else f"{100 * remaining:.0f} % of them"
    texts = [
        "The solid line is measured: the dirty share of the closed segments at each roll since the checkpoint, offset "
        f"{plan.first_dirty_offset}. A transaction or a lag that held segments back at the time made Kafka's ratio "
        "lower. What the ratio was before the last cleaning is not on the disk.",
        "The dashed line is a model: the segments of today, written again beside a cleaner that cleans dirty bytes at "
        f"once when the ratio is above {minimum} or max.compaction.lag.ms is over, and leaves {share}. A triangle is a "
        "cleaning.",
    ]
    if due is not None and plan.config.compacts:
        texts.append(
            f"The measured share has been above the minimum since {readable.time(due.time_ms)}, when the segment "
            f"{due.base_offset} was rolled. No cleaning has moved the checkpoint since then."
        )
    return texts


def _table(rolled: Sequence[Rolled]) -> Table:
    rows = [
        row(
            str(each.base_offset),
            readable.minute(each.time_ms),
            None if each.ratio is None else f"{each.ratio:.3f}",
            f"{each.model_ratio:.3f} {_CLEANS if each.model_cleans else _BLANK}",
        )
        for each in rolled
    ]
    return Table(
        caption="At the roll of each segment, UTC; ▼ the model cleans",
        columns=("segment", "rolled", "ratio", "model"),
        rows=tuple(rows),
        numbers=frozenset({"segment", "ratio", "model"}),
    )


def _draw(axes: Axes, rolled: Sequence[Rolled], minimum: float, *, is_narrow: bool) -> None:
    has_times = drawing.are_dates([each.time_ms for each in rolled])
    places = [drawing.day(each.time_ms) if has_times else float(each.end_offset) for each in rolled]
    xs, ys = _sawtooth(places, rolled)
    axes.plot(xs, ys, color=drawing.MUTED, linestyle=(0, (4, 3)), linewidth=1.2)
    cleanings = [(x, each.model_ratio) for x, each in zip(places, rolled, strict=True) if each.model_cleans]
    axes.plot(
        [x for x, _ in cleanings],
        [y for _, y in cleanings],
        color=drawing.MUTED,
        linestyle="none",
        marker="v",
        markersize=7,
    )
    exact = [(x, each.ratio) for x, each in zip(places, rolled, strict=True) if each.ratio is not None]
    axes.plot(
        [x for x, _ in exact],
        [y for _, y in exact],
        color=drawing.DIRTY,
        linewidth=2.2,
        marker="o",
        markersize=4 if len(exact) <= 60 else 0,
    )
    axes.axhline(minimum, color=drawing.ACCENT, linewidth=1.2)
    low, high = min(places), max(places)
    margin = (high - low) / 40 or 1.0
    axes.set_xlim(low - margin, high + margin)
    axes.set_ylim(0, 1.06)
    above = minimum < 0.9
    drawing.label(
        axes,
        low - margin,
        minimum + (0.015 if above else -0.015),
        f"min.cleanable.dirty.ratio {minimum}",
        color=drawing.ACCENT,
        va="bottom" if above else "top",
        ha="left",
    )
    if has_times:
        drawing.date_axis(axes, is_narrow=is_narrow)


def _sawtooth(places: Sequence[float], rolled: Sequence[Rolled]) -> tuple[list[float], list[float]]:
    """Return the line of the model: it falls to zero where the model cleans."""
    xs, ys = [], []
    for x, each in zip(places, rolled, strict=True):
        xs.append(x)
        ys.append(each.model_ratio)
        if each.model_cleans:
            xs.append(x)
            ys.append(0.0)
    return xs, ys
