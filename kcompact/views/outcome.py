"""What a cleaning did: a table of the partitions, the summary that Kafka's cleaner logs, the totals, and the copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import isinf, isnan

from kcompact import readable
from kcompact.cleaner.outcome import CleanResult, Copied, PartitionOutcome, RoundResult, Status
from kcompact.errors import CleaningAbortedError
from kcompact.plan.cost import offset_map_slots
from kcompact.plan.totals import not_to_clean
from kcompact.readable import relative_to_here, safe, some_of
from kcompact.views.parts import Cell, Part, Space, Table, Tone, lines, offset, row
from kcompact.views.sentences import amount_of, unlocked

_MIB = 1_048_576
_MOST_LEFT_OUT = 20
FEW = 3
"""Of so many partitions Kafka's summary is printed, and all have a row."""
FEWEST_ROWS = 5
"""The rows of a table, however low the terminal is."""
LINES_BELOW = 14
"""The lines of the report below the table, and of errors."""


def outcome_parts(result: RoundResult, space: Space, *, is_dry_run: bool) -> list[Part]:
    """Return Kafka's summary of each partition that was cleaned, if they are few, a table, and the totals."""
    listed = unlocked(result.partitions)
    if not listed:
        return []
    deletes = "would delete" if is_dry_run else "deleted"
    cleaned = [each.result for each in result.cleaned if each.result is not None]
    parts: list[Part] = []
    if cleaned and (space.is_verbose or len(cleaned) <= FEW):
        parts.append(lines("In the words of Kafka's cleaner, whose MB and Mb are MiB:"))
        parts += [lines(*summary(each), is_close=number == 0) for number, each in enumerate(cleaned)]
    if cleaned and (delayed := _delayed_line(result.partitions)):
        parts.append(lines(delayed))
    shown, is_fitting = _fitting(listed, space)
    # Rows with remarks can be several lines high.
    table = _results(shown, deletes=deletes) if is_fitting else _results(shown, deletes=deletes).without("")
    others = [*_more(result.partitions, shown), *_skipped(result.partitions, shown)]
    parts += [table] if shown else []
    parts += [lines(*others, is_close=bool(shown), is_indented=False)] if others else []
    if len(result.partitions) > 1:
        parts.append(lines(*_totals(result, deletes=deletes), is_indented=False))
    return parts


def _more(entries: Sequence[PartitionOutcome], shown: Sequence[PartitionOutcome]) -> list[str]:
    """Return how many partitions that were cleaned have no row."""
    more = sum(each.is_cleaned for each in entries) - sum(each.is_cleaned for each in shown)
    return [f"and {more:,} more cleaned; -v lists them"] if more > 0 else []


def _skipped(entries: Sequence[PartitionOutcome], shown: Sequence[PartitionOutcome]) -> list[str]:
    """Return how many partitions that were skipped have no row, by reason."""
    listed = {each.directory for each in shown}
    skipped = [each for each in entries if _is_only_skipped(each) and each.directory not in listed]
    reasons = (f"{len(partitions):,} {reason}" for reason, partitions in not_to_clean(skipped).items())
    return [f"skipped: {', '.join(reasons)}"] if skipped else []


def _is_only_skipped(entry: PartitionOutcome) -> bool:
    """Return whether nothing was done with a partition, as its plan said already."""
    is_skipped = entry.result is not None and entry.result.status == Status.SKIPPED
    return is_skipped and entry.error is None and not entry.recovered


def summary(result: CleanResult) -> list[str]:
    """Return the lines of Kafka's summary of a cleaning, in Kafka's words and roundings.

    Rule: LogCleaner.CleanerThread.recordStats.
    """
    assert result.plan is not None, "only a cleaned partition has a summary"
    plan, stats = result.plan, result.stats
    number = java_number
    run_s, mapping_s = result.times.elapsed_s, result.times.map_s
    cleaning_s = run_s - mapping_s
    read, mapped, written = (count / _MIB for count in (stats.bytes_read, stats.map_bytes_read, stats.bytes_written))

    def share(part_s: float) -> str:
        return number(100 * _ratio(part_s, run_s))

    slots = offset_map_slots(plan.config)
    smaller = 100 * (1 - _ratio(stats.bytes_written, stats.bytes_read))
    fewer = 100 * (1 - _ratio(stats.messages_written, stats.messages_read))
    lines = [
        f"Log cleaner thread 0 cleaned log {plan.log.topic_partition} "
        f"(dirty section = [{plan.first_dirty_offset}, {result.end_offset}])",
        f"{number(read)} MB of log processed in {number(run_s)} seconds ({number(_ratio(read, run_s))} MB/sec).",
        f"Indexed {number(mapped)} MB in {_ungrouped(mapping_s)} seconds "
        f"({number(_ratio(mapped, mapping_s))} Mb/sec, {share(mapping_s)}% of total time)",
        f"Buffer utilization: {number(100 * stats.map_keys / slots)}%",
        f"Cleaned {number(read)} MB in {_ungrouped(cleaning_s)} seconds "
        f"({number(_ratio(read, cleaning_s))} Mb/sec, {share(cleaning_s)}% of total time)",
        f"Start size: {number(read)} MB ({stats.messages_read:,} messages)",
        f"End size: {number(written)} MB ({stats.messages_written:,} messages)",
        f"{number(smaller)}% size reduction ({number(fewer)}% fewer messages)",
    ]
    if stats.invalid_messages:
        lines.append(f"Found {stats.invalid_messages} invalid messages during compaction.")
    return lines


def _ungrouped(value: float) -> str:
    return java_number(value).replace(",", "")


def java_number(value: float) -> str:
    """Return a number as Java's `%,.1f` prints it: grouped, half rounded up, `NaN` and `Infinity` by name."""
    if isnan(value):
        return "NaN"
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return f"{Decimal(repr(value)).quantize(Decimal('0.1'), ROUND_HALF_UP):,}"


def _ratio(part: float, whole: float) -> float:
    """Return a quotient as Java computes it: NaN for 0/0, infinity for any other number over 0."""
    if whole == 0:
        return float("nan") if part == 0 else float("inf")
    return part / whole


def _delayed_line(entries: Sequence[PartitionOutcome]) -> str:
    """Return Kafka's line about partitions past `max.compaction.lag.ms`, empty if there is none."""
    delays_ms = [entry.plan.max_compaction_delay_ms for entry in entries if entry.plan is not None]
    if not any(delays_ms):
        return ""
    delayed = sum(delay_ms > 0 for delay_ms in delays_ms)
    eligible = sum(entry.plan is not None and entry.plan.eligible for entry in entries)
    return f"Cleanable partitions: {eligible}, Delayed partitions: {delayed}, max delay: {max(delays_ms)}"


def _fitting(entries: Sequence[PartitionOutcome], space: Space) -> tuple[list[PartitionOutcome], bool]:
    """Return the partitions that have a row, and whether they all fit on the screen.

    A few partitions all have one. Of many on a terminal, skipped partitions have none; if the rest does not fit, only
    cleaned partitions have one, as many as fit. `_more` and `_skipped` count the others.
    """
    fill = space.lines
    if fill is None or len(entries) <= FEW:
        return list(entries), True
    changed = [each for each in entries if not _is_only_skipped(each)]
    if len(changed) + LINES_BELOW <= fill:
        return changed, True
    return [each for each in entries if each.is_cleaned][: max(FEWEST_ROWS, fill - LINES_BELOW)], False


def _results(entries: Sequence[PartitionOutcome], *, deletes: str) -> Table:
    """Return a row for each partition. `deletes` is the verb for what retention did."""
    return Table(
        caption="Partitions",
        columns=("partition", "status", "before", "after", "checkpoint", ""),
        rows=tuple(_result(entry, deletes=deletes) for entry in entries),
        numbers=("before", "after"),
        whole=("status", "checkpoint"),
        sentences=("",),
        optional=("", "checkpoint"),
    )


def _result(entry: PartitionOutcome, *, deletes: str) -> tuple[Cell, ...]:
    result = entry.result if entry.is_cleaned else None
    tone = Tone.BAD if status_of(entry) == "failed" else Tone.GOOD if result else None
    return row(
        entry.name,
        Cell(text=status_of(entry), tone=tone),
        readable.size(result.stats.bytes_read) if result else None,
        readable.size(result.stats.bytes_written) if result else None,
        offset(result.end_offset) if result and entry.status != Status.CHECKPOINT_NOT_WRITTEN else None,
        _remark(entry, deletes=deletes),
    )


def _totals(result: RoundResult, *, deletes: str) -> list[str]:
    """Return the number of partitions by status, and the sizes before and after."""
    partitions = sorted(result.partitions, key=lambda each: (each.status == Status.SKIPPED, each.error is not None))
    summary_lines = [by_status([status_of(each) for each in partitions])]
    if result.expired:
        summary_lines.append(f"retention {deletes} {amount_of(result.expired)}")
    if not result.cleaned:
        return summary_lines
    stats = result.stats
    rate = readable.size(round(stats.bytes_read / result.elapsed_s)) if result.elapsed_s else "-"
    return [
        *summary_lines,
        f"{readable.size(stats.bytes_read)} -> {readable.size(stats.bytes_written)} "
        f"({_less(stats.bytes_written, stats.bytes_read)} smaller) in {result.elapsed_s:,.1f} seconds ({rate}/s)",
        f"{stats.messages_read:,} -> {stats.messages_written:,} messages "
        f"({_less(stats.messages_written, stats.messages_read)} fewer)",
    ]


def by_status(statuses: Sequence[str]) -> str:
    """Return the number of partitions, in all and with each status."""
    listed = ", ".join(f"{count:,} {status}" for status, count in Counter(statuses).items())
    return f"{readable.counted(len(statuses), 'partition')}: {listed}"


def status_of(entry: PartitionOutcome) -> str:
    """Return what was done with a partition. One that a request to stop left as it was has not failed."""
    return "not done" if isinstance(entry.error, CleaningAbortedError) else entry.status


def _less(after: int, before: int) -> str:
    return f"{100 * (1 - after / before):.1f} %" if before else "0.0 %"


def _remark(entry: PartitionOutcome, *, deletes: str) -> str:
    """Return what recovery did first, why a partition was not cleaned, and the segments that retention deleted."""
    remarks = []
    if entry.recovered:
        remarks.append(f"recovery: {entry.recovered}")
    if isinstance(entry.error, CleaningAbortedError):
        remarks.append("interrupted")
    elif entry.error is not None:
        problem = entry.error.word or readable.within(entry.directory, str(entry.error).splitlines()[0])
        if entry.status == Status.CHECKPOINT_NOT_WRITTEN:
            problem = f"cleaned, but: {problem}"
        elif entry.result is not None and entry.status != Status.FAILED:
            problem = f"would stop: {problem}"  # A dry run was completed; the cleaning itself would not be.
        remarks.append(problem)
    else:
        if entry.result is not None and entry.result.resumed:
            remarks.append("by an earlier run")
        if entry.result is not None and not entry.is_cleaned:
            remarks.append(f"{entry.reason}: {entry.explanation}")
    if entry.result is not None and entry.result.expired:
        bases = [str(due.segment.base_offset) for due in entry.result.expired]
        listed = f"base offset{'' if len(bases) == 1 else 's'} {some_of(bases)}"
        remarks.append(f"retention {deletes} {readable.counted(len(bases), 'segment')} ({listed})")
    return "; ".join(remarks)


def copy_parts(copied: Copied) -> list[Part]:
    """Return what the output of `--output` is good for, and what a complete copy leaves out."""
    report = copied.report
    path = relative_to_here(safe(str(report.path)))
    parts: list[Part] = []
    if report.left_out:
        parts.append(lines("not copied:", is_indented=False))
        parts.append(
            Table(
                caption="Not copied",
                columns=("name", "size", "why"),
                rows=tuple(
                    row(left_out.name, readable.size(left_out.size_bytes), left_out.reason)
                    for left_out in report.left_out[:_MOST_LEFT_OUT]
                ),
                numbers=("size",),
                is_close=True,
            )
        )
    remarks = []
    if len(report.left_out) > _MOST_LEFT_OUT:
        remarks.append(f"and {len(report.left_out) - _MOST_LEFT_OUT} more; --json lists all")
    if not report.finished:
        remarks.append(f"nothing was copied to {path}")
    elif report.is_finished and report.log_dir is not None:
        remarks.append(f"{path} is a complete copy of {relative_to_here(safe(str(report.log_dir)))}")
        if report.set_aside:
            remarks.append(f"copied as they are: {', '.join(report.set_aside)}")
    elif report.is_finished:
        remarks.append(
            f"{path} has only the chosen partitions, so no broker can start on it: it has no meta.properties"
        )
    return [*parts, lines(*remarks, is_close=bool(parts), is_indented=False)]
