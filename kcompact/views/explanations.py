"""The conditions of few partitions and what follows from them; of many what keeps each one, on one screen."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.config.settings import LONG_MAX
from kcompact.plan.conditions import Condition, Value, Verdict
from kcompact.plan.deletion import plan_at_turn
from kcompact.plan.discovery import LeftOut
from kcompact.plan.explanation import Explanation, most_keys
from kcompact.plan.setting_notes import why_assumed
from kcompact.plan.totals import ReasonTotals, totals_by_reason
from kcompact.plan.verdict import ConditionName
from kcompact.plan.walk import PlannedPartition
from kcompact.views.parts import Cell, Heading, Items, Part, Section, Space, Table, Tone, cell, lines, row
from kcompact.views.plans import FEW, left_out_parts, lines_of_left_out, notes_and_hints, totals_parts
from kcompact.views.sentences import amount_of_bytes

_TONES = {
    Verdict.BLOCKS: Tone.BAD,
    Verdict.LIMITS: Tone.CAUTION,
    Verdict.DELAYS: Tone.CAUTION,
    Verdict.TRIGGERS: Tone.GOOD,
}
_DURATIONS = frozenset(
    {
        ConditionName.ACTIVE_SEGMENT,
        ConditionName.MIN_LAG,
        ConditionName.MAX_LAG,
        ConditionName.TOMBSTONES,
        ConditionName.RETENTION,
    }
)
LINES_BELOW = 9
"""The lines of the table of reasons, of the totals and of the next command, about."""
FEWEST_ROWS = 5
"""The rows for partitions, however low the terminal is."""


def explanations_parts(
    entries: Sequence[PlannedPartition],
    explanations: Sequence[Explanation],
    space: Space,
    *,
    left_out: Sequence[LeftOut],
) -> list[Part]:
    """Return the explanations of the partitions that have a plan, dirtiest first, and the totals of all.

    `left_out` are the directories beside them that are not cleaned.
    """
    if len(entries) > FEW and not space.is_verbose:
        parts = _overview(entries, explanations, space, lines_below=LINES_BELOW + lines_of_left_out(left_out, space))
    else:
        parts = [part for each in explanations for part in _explanation(each, has_all=space.lines is None)]
    parts += [*notes_and_hints(entries, space), *left_out_parts(left_out, space)]
    if len(entries) > 1:
        parts += [*totals_parts(entries, with_reasons=len(entries) <= FEW), *_buffer(explanations)]
    return parts


def _explanation(explanation: Explanation, *, has_all: bool) -> list[Part]:
    """Return the verdict on one partition, and what decides."""
    plan = explanation.plan
    is_cleaned = plan.eligible and explanation.decisive.verdict is not Verdict.BLOCKS
    verdict = "a broker compacts it:" if is_cleaned else "a broker does not compact it:"
    heading = Heading(name=plan.log.directory.name, detail=verdict)
    section = conditions_section(explanation, explanation.conditions, has_all=has_all)
    return [heading, lines(explanation.decisive.explanation), *section.parts]


def conditions_section(explanation: Explanation, conditions: Sequence[Condition], *, has_all: bool = True) -> Section:
    """Return the conditions of a partition and what follows from them.

    `has_all`: those that do not stand in the way have their sentences too.
    """
    table = Table(
        caption="Everything that Kafka's cleaner asks",
        columns=("condition", "value", "threshold", "verdict", "why"),
        rows=tuple(_condition(each, has_all=has_all) for each in conditions),
        whole=("condition", "verdict", "value", "threshold"),
        sentences=("why",),
        optional=("threshold", "value", "why"),
    )
    items = []
    for label, sentences in (
        ("assumed", _assumed(explanation)),
        ("by itself", _by_itself(explanation)),
        ("setting", _settings(explanation)),
        ("broker", _broker(explanation)),
        ("kcompact", _here(explanation)),
        ("retention", _retention(explanation)),
    ):
        for sentence in sentences:
            items.append((cell(label), sentence))
            label = ""
    follows = Items(items=tuple(items), width=9, caption="What changes that, and what a cleaning costs")
    return Section(title="What decides", parts=(table, follows))


def _condition(condition: Condition, *, has_all: bool) -> tuple[Cell, ...]:
    later = f"; {condition.forecast.explanation}" if condition.forecast else ""
    return row(
        Cell(text=condition.name, tone=Tone.STRONG if condition.decides else None),
        _shown(condition, condition.value),
        _shown(condition, condition.threshold, is_limit=True),
        Cell(text=condition.verdict_text, tone=_TONES.get(condition.verdict)),
        f"{condition.explanation}{later}" if has_all or condition.verdict is not Verdict.OK else "",
    )


def _shown(condition: Condition, value: Value, *, is_limit: bool = False) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case int() if value >= LONG_MAX:
            return "no limit"
        case float() if condition.name is ConditionName.RATIO and not is_limit:
            return f"{value:.4f}"
        case float():
            return f"{value:g}"
        case int() if condition.name is ConditionName.TOMBSTONES and not is_limit:
            return readable.time(value)
        case int() if condition.name in _DURATIONS:
            return readable.duration(value)
    return str(value)


# What follows


def _by_itself(explanation: Explanation) -> list[str]:
    if explanation.plan.eligible:
        return []
    return [each.explanation for each in explanation.forecasts] or ["nothing that can be foreseen makes it eligible"]


def _settings(explanation: Explanation) -> list[str]:
    return [f"{'or ' if number else ''}{remedy.sentence}" for number, remedy in enumerate(explanation.remedies)]


def _broker(explanation: Explanation) -> list[str]:
    cost = explanation.broker
    if not cost.bytes_rewritten:
        return []
    passes = "an unknown number of passes"
    if cost.passes_at_most is not None:
        passes = "one pass" if cost.passes_at_most == 1 else f"up to {cost.passes_at_most:,} passes"
    keys = readable.counted(cost.keys_at_most, "key")
    share = f"{readable.counted(cost.threads, 'thread')} and the load factor {cost.load_factor:g}"
    lines = [
        f"rewrites {readable.size(cost.bytes_rewritten)} in {passes}: at most {keys}, as many as offsets",
        f"its buffer of {readable.size(cost.buffer_bytes)} with {share} takes {cost.keys_per_pass:,} keys: at most "
        f"{100 * cost.buffer_utilization:.1f} % of a map is used",
    ]
    if cost.buffer_bytes_for_one_pass is not None:
        lines.append(f"one pass is certain with log.cleaner.dedupe.buffer.size={cost.buffer_bytes_for_one_pass}")
    if cost.seconds_throttled is not None:
        lines.append(
            f"at its throttle about {cost.seconds_throttled:,.0f} seconds for "
            f"{readable.size(cost.bytes_read_and_written)} read and written"
        )
    return lines


def _here(explanation: Explanation) -> list[str]:
    cost = explanation.here
    if not cost.log_bytes_read:
        return []
    peak, least = readable.size(cost.peak_extra_disk_bytes), readable.size(cost.least_extra_disk_bytes)
    slowly = "" if peak == least else f", or {least}, more slowly"
    return [
        f"one pass; reads {readable.size(cost.log_bytes_read)} of the log, writes segments of at most "
        f"{readable.size(cost.bytes_written_at_most)}; {peak} of free space is enough{slowly}",
        "clean --dry-run counts keys, sizes and space exactly",
    ]


def _retention(explanation: Explanation) -> list[str]:
    frees = explanation.retention
    lines = []
    if frees.comes_first:
        turn = plan_at_turn(explanation.plan)
        lines.append(f"comes first, because a broker cleans another log before this one; then {turn.explanation}")
    if frees.segments:
        most = "at most " if frees.is_at_most else ""
        spared = ": a smaller log is not as far past retention.bytes" if frees.is_at_most else ""
        lines.append(f"a broker would delete {most}{amount_of_bytes(frees.segments, frees.size_bytes)}{spared}")
    if frees.postponed_segments:
        kept = amount_of_bytes(frees.postponed_segments, frees.postponed_bytes)
        lines.append(f"the merge with younger segments keeps {kept} that would be due")
    if frees.next_due_ms is not None:
        lines.append(f"the first segment is due after {readable.time(frees.next_due_ms)}")
    return lines


def _assumed(explanation: Explanation) -> list[str]:
    config = explanation.plan.config
    names = explanation.assumed
    if not names:
        return []
    values = ", ".join(f"{name}={config.text_of(name)}" for name in names)
    are = "Kafka's defaults" if not config.broker.is_known else "those of the broker or of Kafka"
    return [f"{are}, because {why_assumed(explanation.plan)}: {values}"]


# Many partitions


def _overview(
    entries: Sequence[PlannedPartition], explanations: Sequence[Explanation], space: Space, *, lines_below: int
) -> list[Part]:
    """Return the partitions by reason, then those to clean, dirtiest first, and the others, largest first."""
    reasons = totals_by_reason(entries)
    most = len(explanations)
    if space.lines is not None:
        most = max(FEWEST_ROWS, space.lines - lines_below - len(reasons))
    shown = rows_to_show(explanations, most)
    table = Table(
        caption="What decides",
        columns=("partition", "size", "ratio", "rewrites", "decides", "changes", "setting", "why"),
        rows=tuple(map(_overview_row, shown)),
        numbers=("size", "ratio", "rewrites"),
        # A setting is there to be copied. A sentence that is folded takes the lines of other partitions.
        whole=("decides", "changes", "setting", "why"),
        optional=("why", "setting", "ratio", "rewrites", "size"),
    )
    parts: list[Part] = [_reasons(reasons), table]
    if len(explanations) > len(shown):
        to_clean = sum(each.plan.eligible for each in explanations) - sum(each.plan.eligible for each in shown)
        more = f"{len(explanations) - len(shown):,} more partitions, {to_clean:,} of them to clean"
        parts.append(lines(f"and {more}; -v explains each, --json has all", is_close=True, is_indented=False))
    return parts


def _overview_row(explanation: Explanation) -> tuple[Cell, ...]:
    plan = explanation.plan
    return row(
        plan.log.directory.name,
        readable.size(plan.log.size_bytes),
        f"{plan.cleanable_ratio:.4f}",
        readable.size(explanation.broker.bytes_rewritten),
        Cell(text=explanation.decided_by, tone=_TONES.get(explanation.decisive.verdict)),
        "now" if plan.eligible else _when(explanation),
        explanation.best_remedy.text if explanation.best_remedy else None,
        explanation.decisive.explanation,
    )


def rows_to_show(explanations: Sequence[Explanation], most: int) -> list[Explanation]:
    """Return the partitions to clean, in their order, then the others, largest first; of too many, half of each."""
    to_clean = [each for each in explanations if each.plan.eligible]
    others = sorted(
        (each for each in explanations if not each.plan.eligible), key=lambda each: -each.plan.log.size_bytes
    )
    first = max(most - len(others), most - most // 2)
    return [*to_clean[:first], *others[: most - len(to_clean[:first])]]


def _buffer(explanations: Sequence[Explanation]) -> list[Part]:
    """Return how much buffer a broker needs for the partition with most keys, if any has some to clean."""
    largest = most_keys(explanations)
    if largest is None:
        return []
    cost = largest.broker
    keys = f"at most {readable.counted(cost.keys_at_most, 'key')} in {largest.plan.log.directory.name}"
    enough = "no buffer is certain to be enough for one pass"
    if cost.buffer_bytes_for_one_pass is not None:
        enough = f"one pass is certain with log.cleaner.dedupe.buffer.size={cost.buffer_bytes_for_one_pass}"
    buffer = f"buffer of a broker: {keys}, and the map is full at {cost.keys_per_pass:,}; {enough}"
    return [lines(buffer, is_close=True, is_indented=False)]


def _when(explanation: Explanation) -> str | None:
    if not explanation.forecasts:
        return None
    first = explanation.forecasts[0]
    return f"{readable.time(first.at_ms)} {first.how}"


def _reasons(reasons: Sequence[ReasonTotals]) -> Table:
    """Return the partitions and bytes of each reason, and the most that a cleaning can free."""
    return Table(
        caption="Partitions by reason",
        columns=("reason", "clean it", "partitions", "size", "at most to win"),
        rows=tuple(
            row(
                each.reason,
                Cell(text="yes", tone=Tone.GOOD) if each.eligible else "no",
                each.partitions,
                None if each.size_bytes is None else readable.size(each.size_bytes),
                _to_win(each),
            )
            for each in reasons
        ),
        numbers=("partitions", "size", "at most to win"),
        whole=("reason", "clean it"),
    )


def _to_win(reason: ReasonTotals) -> str | None:
    """Return the most that a cleaning can free now, or once the partitions are not held back any more."""
    now_bytes, later_bytes = reason.bytes_to_win_at_most, reason.bytes_to_win_later_at_most
    if later_bytes:
        return f"{readable.size(later_bytes)} later"
    return None if now_bytes is None else readable.size(now_bytes)
