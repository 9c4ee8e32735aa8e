"""Prints `plan --explain`: the conditions of few partitions, and of many what keeps each one, on one screen."""

from __future__ import annotations

from collections.abc import Sequence

from kcompact import readable
from kcompact.cli.output.explanations import amount_of_bytes
from kcompact.cli.output.left_out import lines_of_left_out, show_left_out
from kcompact.cli.output.plans import FEW, show_notes_and_hints, show_totals
from kcompact.cli.output.printer import Printer, cell
from kcompact.config.settings import LONG_MAX
from kcompact.plan.clean_plan import ConditionName
from kcompact.plan.conditions import Condition, Value, Verdict
from kcompact.plan.deletion import plan_at_turn
from kcompact.plan.discovery import LeftOut
from kcompact.plan.explanation import Explanation, most_keys
from kcompact.plan.notes import why_assumed
from kcompact.plan.totals import ReasonTotals, totals_by_reason
from kcompact.plan.walk import PlannedPartition

_STYLES = {
    Verdict.BLOCKS: "bold red",
    Verdict.LIMITS: "yellow",
    Verdict.DELAYS: "yellow",
    Verdict.TRIGGERS: "green",
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


def show_explanations(
    entries: Sequence[PlannedPartition],
    found: Sequence[Explanation],
    printer: Printer,
    *,
    left_out: Sequence[LeftOut] = (),
) -> None:
    """Print the explanations of the partitions that have a plan, dirtiest first, and the totals of all.

    `left_out` are the directories beside them that are not cleaned.
    """
    if len(entries) > FEW and not printer.is_verbose:
        _show_overview(entries, found, printer, lines_below=LINES_BELOW + lines_of_left_out(left_out, printer))
    else:
        for number, explanation in enumerate(found):
            if number:
                printer.line()
            show_explanation(explanation, printer)
    show_notes_and_hints(entries, printer)
    show_left_out(left_out, printer)
    if len(entries) > 1:
        printer.line()
        show_totals(entries, printer, with_reasons=len(entries) <= FEW)
        _show_buffer(found, printer)


def show_explanation(explanation: Explanation, printer: Printer) -> None:
    """Print the conditions of one partition and what follows from them."""
    plan = explanation.plan
    is_cleaned = plan.eligible and explanation.decisive.verdict is not Verdict.BLOCKS
    verdict = "a broker compacts it" if is_cleaned else "a broker does not compact it"
    printer.line(cell(plan.log.directory.name, "bold").append_text(cell(f"  {verdict}:")))
    printer.line(f"  {explanation.decisive.explanation}")
    printer.line()
    _show_conditions(explanation.conditions, printer)
    printer.line()
    for label, lines in (
        ("assumed", _assumed(explanation)),
        ("by itself", _by_itself(explanation)),
        ("setting", _settings(explanation)),
        ("broker", _broker(explanation)),
        ("kcompact", _here(explanation)),
        ("retention", _retention(explanation)),
    ):
        for line in lines:
            printer.line(f"  {label:<10} {line}")
            label = ""


def _show_conditions(conditions: Sequence[Condition], printer: Printer) -> None:
    columns = ("condition", "value", "threshold", "verdict", "why")
    rows = []
    for condition in conditions:
        style = _STYLES.get(condition.verdict, "")
        cells = (
            cell(condition.name, "bold" if condition.decides else ""),
            cell(_shown(condition, condition.value)),
            cell(_shown(condition, condition.threshold, is_limit=True)),
            cell(condition.verdict_text, style),
            cell(_why(condition, printer)),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(
        columns,
        rows,
        whole=("condition", "verdict", "value", "threshold"),
        sentences=("why",),
        optional=("threshold", "value", "why"),
    )


def _why(condition: Condition, printer: Printer) -> str:
    """Return the sentences of a condition. On a terminal those that do not stand in the way say nothing."""
    if condition.verdict is Verdict.OK and printer.lines_to_fill is not None:
        return ""
    later = f"; {condition.forecast.explanation}" if condition.forecast else ""
    return f"{condition.explanation}{later}"


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
    passes = "an unknown number of passes" if cost.passes_at_most is None else _at_most(cost.passes_at_most, "pass")
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


def _at_most(count: int, noun: str) -> str:
    return f"one {noun}" if count == 1 else f"up to {count:,} {noun}es"


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
    return [f"Kafka's defaults, because {why_assumed(explanation.plan)}: {values}"]


# Many partitions


def _show_overview(
    entries: Sequence[PlannedPartition], found: Sequence[Explanation], printer: Printer, *, lines_below: int
) -> None:
    """Print the partitions by reason, then those to clean, dirtiest first, and the others, largest first."""
    reasons = totals_by_reason(entries)
    _show_reasons(reasons, printer)
    most = len(found)
    if printer.lines_to_fill is not None:
        most = max(FEWEST_ROWS, printer.lines_to_fill - lines_below - len(reasons))
    rows = rows_to_show(found, most)
    printer.line()
    columns = ("partition", "size", "ratio", "rewrites", "decides", "changes", "setting", "why")
    table = []
    for each in rows:
        plan = each.plan
        cells = (
            cell(plan.log.directory.name),
            cell(readable.size(plan.log.size_bytes)),
            cell(f"{plan.cleanable_ratio:.4f}"),
            cell(readable.size(each.broker.bytes_rewritten)),
            cell(each.decided_by, _STYLES.get(each.decisive.verdict, "")),
            cell("now" if plan.eligible else _when(each)),
            cell(each.best_remedy.text if each.best_remedy else None),
            cell(each.decisive.explanation),
        )
        table.append(dict(zip(columns, cells, strict=True)))
    printer.table(
        columns,
        table,
        numbers=("size", "ratio", "rewrites"),
        # A setting is there to be copied. A sentence that is folded takes the lines of other partitions.
        whole=("decides", "changes", "setting", "why"),
        optional=("why", "setting", "ratio", "rewrites", "size"),
    )
    if len(found) > len(rows):
        to_clean = sum(each.plan.eligible for each in found) - sum(each.plan.eligible for each in rows)
        more = f"{len(found) - len(rows):,} more partitions, {to_clean:,} of them to clean"
        printer.line(f"and {more}; -v explains each, --json has all")


def rows_to_show(found: Sequence[Explanation], most: int) -> list[Explanation]:
    """Return the partitions to clean, in their order, then the others, largest first; of too many, half of each."""
    to_clean = [each for each in found if each.plan.eligible]
    others = sorted((each for each in found if not each.plan.eligible), key=lambda each: -each.plan.log.size_bytes)
    first = max(most - len(others), most - most // 2)
    return [*to_clean[:first], *others[: most - len(to_clean[:first])]]


def _show_buffer(found: Sequence[Explanation], printer: Printer) -> None:
    """Print how much buffer a broker needs for the partition with most keys, if any has some to clean."""
    largest = most_keys(found)
    if largest is None:
        return
    cost = largest.broker
    keys = f"at most {readable.counted(cost.keys_at_most, 'key')} in {largest.plan.log.directory.name}"
    enough = "no buffer is certain to be enough for one pass"
    if cost.buffer_bytes_for_one_pass is not None:
        enough = f"one pass is certain with log.cleaner.dedupe.buffer.size={cost.buffer_bytes_for_one_pass}"
    printer.line(cell(f"buffer of a broker: {keys}, and the map is full at {cost.keys_per_pass:,}; {enough}"))


def _when(explanation: Explanation) -> str | None:
    if not explanation.forecasts:
        return None
    first = explanation.forecasts[0]
    return f"{readable.time(first.at_ms)} {first.how}"


def _show_reasons(reasons: Sequence[ReasonTotals], printer: Printer) -> None:
    """Print the partitions and bytes of each reason, and the most that a cleaning can free."""
    columns = ("reason", "clean it", "partitions", "size", "at most to win")
    table = []
    for each in reasons:
        cells = (
            cell(each.reason),
            cell("yes" if each.eligible else "no", "green" if each.eligible else ""),
            cell(f"{each.partitions:,}"),
            cell(None if each.size_bytes is None else readable.size(each.size_bytes)),
            cell(_to_win(each)),
        )
        table.append(dict(zip(columns, cells, strict=True)))
    printer.table(columns, table, numbers=("partitions", "size", "at most to win"), whole=("reason", "clean it"))


def _to_win(reason: ReasonTotals) -> str | None:
    """Return the most that a cleaning can free now, or once the partitions are not held back any more."""
    now_bytes, later_bytes = reason.bytes_to_win_at_most, reason.bytes_to_win_later_at_most
    if later_bytes:
        return f"{readable.size(later_bytes)} later"
    return None if now_bytes is None else readable.size(now_bytes)
