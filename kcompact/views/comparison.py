"""What other settings would change in the plan of each partition, and in all of them."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.config.settings import Override
from kcompact.plan.explanation import SettingsComparison, Totals, total
from kcompact.views.parts import Cell, Part, Space, Table, Tone, lines, row

_LABELS = {
    "cleanup_policy": "cleanup.policy",
    "eligible": "clean it",
    "reason": "reason",
    "decided_by": "what decides",
    "cleanable_ratio": "ratio",
    "first_uncleanable_offset": "first uncleanable",
    "cleanable_bytes": "dirty",
    "bytes_rewritten": "rewrites",
    "groups": "groups",
    "kafka_passes_at_most": "passes of a broker, at most",
    "kafka_seconds_throttled": "seconds of a broker, throttled",
    "delete_horizon_ms": "horizon of tombstones",
    "rolls_from_ms": "active segment rolls from",
    "eligible_from_ms": "eligible from",
    "retention_bytes": "retention deletes",
}
_TOTALS = {
    "to_clean": "to clean",
    "cleanable_bytes": "dirty",
    "bytes_rewritten": "rewrites",
    "retention_bytes": "retention deletes",
}
_NONE = {
    "kafka_passes_at_most": "unknown",
    "delete_horizon_ms": "never",
    "rolls_from_ms": "unknown",
    "eligible_from_ms": "not foreseen",
    "kafka_seconds_throttled": "no limit",
}
LINES_BELOW = 8
"""The lines of the totals, and that of the partitions that are left out."""


def comparison_parts(
    compared: Sequence[Override], comparisons: Sequence[SettingsComparison], space: Space, *, is_quiet: bool
) -> list[Part]:
    """Return what differs in each partition, and the totals of all; if `is_quiet` only these."""
    differing = [each for each in comparisons if each.differences]
    parts: list[Part] = []
    if differing and not is_quiet:
        rows: list[tuple[Cell, ...]] = []
        left_out = 0
        for comparison in differing:
            if space.lines is not None and len(rows) + len(comparison.differences) + LINES_BELOW > space.lines and rows:
                left_out += 1
                continue
            name = comparison.plan.log.directory.name
            for field, (today, changed) in comparison.differences.items():
                cells = (_LABELS[field], _shown(field, today), _shown(field, changed))
                rows.append(row(Cell(text=name, tone=Tone.STRONG), *cells))
                name = ""
        parts.append(
            Table(
                caption="What would differ",
                columns=("partition", "what", "today", "changed"),
                rows=tuple(rows),
                whole=("what", "today", "changed"),
            )
        )
        if left_out:
            parts.append(lines(f"and {left_out:,} more; -v lists them", is_close=True, is_indented=False))
    settings = ", ".join(str(override) for override in compared)
    count = readable.counted(len(differing), "partition")
    today, changed = total([each.today for each in comparisons]), total([each.changed for each in comparisons])
    differ = f"{count} of {len(comparisons):,} would differ with {settings}"
    return [*parts, lines(differ, *_totals(today, changed), is_indented=False)]


def _totals(today: Totals, changed: Totals) -> list[str]:
    pairs = ((field, getattr(today, field), getattr(changed, field)) for field in _TOTALS)
    return [
        f"{_TOTALS[field]}: {_shown(field, before)} today, {_shown(field, after)} changed"
        for field, before, after in pairs
        if before or after
    ]


def _shown(field: str, value: object) -> str:
    match value:
        case None:
            return _NONE.get(field, "-")
        case "":
            return "none"
        case bool():
            return "yes" if value else "no"
        case int() if "bytes" in field:
            return readable.size(value)
        case int() if field.endswith("_ms"):
            return readable.time(value)
        case float() if field == "cleanable_ratio":
            return f"{value:.4f}"
        case float():
            return f"{value:,.0f}"
    return str(value)
