"""Prints the reports of `clean`, `recover` and `restore`: a table, and the summary that Kafka's cleaner logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kcompact import readable
from kcompact.cleaner.outcome import CleanResult, Copied, PartitionOutcome, RoundResult, Status
from kcompact.cli.entries import RecoveryEntry, RestoreEntry
from kcompact.cli.output import text
from kcompact.cli.output.explanations import amount_of
from kcompact.cli.output.lists import unlocked
from kcompact.cli.output.printer import Printer, cell
from kcompact.errors import CleaningAbortedError
from kcompact.plan.passes import offset_map_slots
from kcompact.plan.totals import not_to_clean
from kcompact.readable import some_of
from kcompact.swap.recovery import RecoveryReport

_MIB = 1_048_576
_MOST_LEFT_OUT = 20
_MOST_NAMED = 20
FEW = 3
"""Of so many partitions Kafka's summary is printed, and all have a row."""
FEWEST_ROWS = 5
"""The rows of a table, however low the terminal is."""
NOTHING_TO_DO = RecoveryReport().action
LINES_BELOW = 14
"""The lines of the report below the table, and of errors."""


# clean


def show_outcome(result: RoundResult, printer: Printer, *, is_dry_run: bool = False) -> None:
    """Print Kafka's summary of each partition that was cleaned, if they are few, a table, and the totals."""
    listed = unlocked(result.partitions)
    if not listed:
        return
    deletes = "would delete" if is_dry_run else "deleted"
    cleaned = [each.result for each in result.cleaned if each.result is not None]
    if cleaned and (printer.is_verbose or len(cleaned) <= FEW):
        _show_summaries(cleaned, printer)
    if cleaned and (delayed := _delayed_line(result.partitions)):
        printer.line()
        printer.line(f"  {delayed}")
    printer.line()
    shown, is_fitting = _fitting(listed, printer)
    if shown:
        # Rows with remarks can be several lines high.
        _show_results(shown, printer, deletes=deletes, with_remarks=is_fitting)
    _show_more(result.partitions, shown, printer)
    _show_skipped(result.partitions, shown, printer)
    if len(result.partitions) > 1:
        printer.line()
        _show_totals(result, printer, deletes=deletes)


def _show_more(entries: Sequence[PartitionOutcome], shown: Sequence[PartitionOutcome], printer: Printer) -> None:
    """Print how many partitions that were cleaned have no row."""
    more = sum(each.is_cleaned for each in entries) - sum(each.is_cleaned for each in shown)
    if more > 0:
        printer.line(f"and {more:,} more cleaned; -v lists them")


def _show_skipped(entries: Sequence[PartitionOutcome], shown: Sequence[PartitionOutcome], printer: Printer) -> None:
    """Print how many partitions that were skipped have no row, by reason."""
    listed = {each.directory for each in shown}
    skipped = [each for each in entries if _is_only_skipped(each) and each.directory not in listed]
    if skipped:
        reasons = (f"{len(those):,} {reason}" for reason, those in not_to_clean(skipped).items())
        printer.line(cell(f"skipped: {', '.join(reasons)}"))


def _is_only_skipped(entry: PartitionOutcome) -> bool:
    """Return whether nothing was done with a partition, as its plan said already."""
    is_skipped = entry.result is not None and entry.result.status == Status.SKIPPED
    return is_skipped and entry.error is None and not entry.recovered


def _show_summaries(cleaned: Sequence[CleanResult], printer: Printer) -> None:
    printer.line()
    printer.line("  In the words of Kafka's cleaner, whose MB and Mb are MiB:")
    for number, result in enumerate(cleaned):
        if number:
            printer.line()
        for line in summary(result):
            printer.line(f"  {line}")


def summary(result: CleanResult) -> list[str]:
    """Return the lines of Kafka's summary of a cleaning, in Kafka's words and roundings.

    Rule: LogCleaner.CleanerThread.recordStats.
    """
    assert result.plan is not None, "only a cleaned partition has a summary"
    plan, stats = result.plan, result.stats
    number = text.java_number
    run_s, mapping_s = result.times.elapsed_s, result.times.map_s
    cleaning_s = run_s - mapping_s
    read, mapped, written = (count / _MIB for count in (stats.bytes_read, stats.map_bytes_read, stats.bytes_written))

    def share(part_s: float) -> str:
        return number(100 * text.ratio(part_s, run_s))

    slots = offset_map_slots(plan.config)
    smaller = 100 * (1 - text.ratio(stats.bytes_written, stats.bytes_read))
    fewer = 100 * (1 - text.ratio(stats.messages_written, stats.messages_read))
    lines = [
        f"Log cleaner thread 0 cleaned log {plan.log.topic_partition} "
        f"(dirty section = [{plan.first_dirty_offset}, {result.end_offset}])",
        f"{number(read)} MB of log processed in {number(run_s)} seconds ({number(text.ratio(read, run_s))} MB/sec).",
        f"Indexed {number(mapped)} MB in {_ungrouped(mapping_s)} seconds "
        f"({number(text.ratio(mapped, mapping_s))} Mb/sec, {share(mapping_s)}% of total time)",
        f"Buffer utilization: {number(100 * stats.map_keys / slots)}%",
        f"Cleaned {number(read)} MB in {_ungrouped(cleaning_s)} seconds "
        f"({number(text.ratio(read, cleaning_s))} Mb/sec, {share(cleaning_s)}% of total time)",
        f"Start size: {number(read)} MB ({stats.messages_read:,} messages)",
        f"End size: {number(written)} MB ({stats.messages_written:,} messages)",
        f"{number(smaller)}% size reduction ({number(fewer)}% fewer messages)",
    ]
    if stats.invalid_messages:
        lines.append(f"Found {stats.invalid_messages} invalid messages during compaction.")
    return lines


def _ungrouped(value: float) -> str:
    return text.java_number(value).replace(",", "")


def _delayed_line(entries: Sequence[PartitionOutcome]) -> str:
    """Return Kafka's line about partitions past `max.compaction.lag.ms`, empty if there is none."""
    delays_ms = [entry.plan.max_compaction_delay_ms for entry in entries if entry.plan is not None]
    if not any(delays_ms):
        return ""
    delayed = sum(delay_ms > 0 for delay_ms in delays_ms)
    eligible = sum(entry.plan is not None and entry.plan.eligible for entry in entries)
    return f"Cleanable partitions: {eligible}, Delayed partitions: {delayed}, max delay: {max(delays_ms)}"


def _fitting(entries: Sequence[PartitionOutcome], printer: Printer) -> tuple[list[PartitionOutcome], bool]:
    """Return the partitions that have a row, and whether they all fit on the screen.

    A few partitions all have one. Of many on a terminal, skipped partitions have none; if the rest does not fit, only
    cleaned partitions have one, as many as fit. `_show_more` and `_show_skipped` count the others.
    """
    fill = printer.lines_to_fill
    if fill is None or len(entries) <= FEW:
        return list(entries), True
    changed = [each for each in entries if not _is_only_skipped(each)]
    if len(changed) + LINES_BELOW <= fill:
        return changed, True
    return [each for each in entries if each.is_cleaned][: max(FEWEST_ROWS, fill - LINES_BELOW)], False


def _show_results(entries: Sequence[PartitionOutcome], printer: Printer, *, deletes: str, with_remarks: bool) -> None:
    """Print a row for each partition. `deletes` is the verb for what retention did."""
    columns = ("partition", "status", "before", "after", "checkpoint", "")
    rows = []
    for entry in entries:
        result = entry.result if entry.is_cleaned else None
        style = "bold red" if _status(entry) == "failed" else "green" if result else ""
        cells = (
            cell(entry.name),
            cell(_status(entry), style),
            cell(readable.size(result.stats.bytes_read) if result else None),
            cell(readable.size(result.stats.bytes_written) if result else None),
            cell(result.end_offset if result and entry.status != Status.CHECKPOINT_NOT_WRITTEN else None),
            cell(_remark(entry, deletes=deletes)),
        )
        rows.append(dict(zip(columns, cells, strict=True)))
    printer.table(
        columns if with_remarks else columns[:-1],
        rows,
        numbers=("before", "after"),
        whole=("status", "checkpoint"),
        sentences=("",),
        optional=("", "checkpoint"),
    )


def _show_totals(result: RoundResult, printer: Printer, *, deletes: str) -> None:
    """Print the number of partitions by status, and the sizes before and after."""
    partitions = sorted(result.partitions, key=lambda each: (each.status == Status.SKIPPED, each.error is not None))
    printer.line(_by_status([_status(each) for each in partitions]))
    if result.expired:
        printer.line(f"retention {deletes} {amount_of(result.expired)}")
    if not result.cleaned:
        return
    stats = result.stats
    rate = readable.size(round(stats.bytes_read / result.elapsed_s)) if result.elapsed_s else "-"
    printer.line(
        f"{readable.size(stats.bytes_read)} -> {readable.size(stats.bytes_written)} "
        f"({_less(stats.bytes_written, stats.bytes_read)} smaller) in {result.elapsed_s:,.1f} seconds ({rate}/s)"
    )
    printer.line(
        f"{stats.messages_read:,} -> {stats.messages_written:,} messages "
        f"({_less(stats.messages_written, stats.messages_read)} fewer)"
    )


def _by_status(statuses: Sequence[str]) -> str:
    """Return the number of partitions, in all and with each status."""
    listed = ", ".join(f"{count:,} {status}" for status, count in Counter(statuses).items())
    return f"{readable.counted(len(statuses), 'partition')}: {listed}"


def _status(entry: PartitionOutcome) -> str:
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


def show_copy(copied: Copied, printer: Printer) -> None:
    """Print what the output of `--output` is good for, and what a complete copy leaves out."""
    report = copied.report
    path = readable.relative_to_here(readable.safe(str(report.path)))
    printer.line()
    if report.left_out:
        printer.line("not copied:")
        rows = [
            {
                "name": cell(left_out.name),
                "size": cell(readable.size(left_out.size_bytes)),
                "why": cell(left_out.reason),
            }
            for left_out in report.left_out[:_MOST_LEFT_OUT]
        ]
        printer.table(("name", "size", "why"), rows, numbers=("size",), whole=("size",))
        if len(report.left_out) > _MOST_LEFT_OUT:
            printer.line(f"and {len(report.left_out) - _MOST_LEFT_OUT} more; --json lists all")
    if not report.finished:
        printer.line(f"nothing was copied to {path}")
    elif report.is_finished and report.log_dir is not None:
        printer.line(f"{path} is a complete copy of {readable.relative_to_here(readable.safe(str(report.log_dir)))}")
        if report.set_aside:
            printer.line(f"copied as they are: {readable.safe(', '.join(report.set_aside))}")
    elif report.is_finished and report.is_new:
        printer.line(f"{path} has only the chosen partitions, so no broker can start on it: it has no meta.properties")
    elif report.is_finished:
        printer.line(f"the chosen partitions were added to {path}")


# recover


def show_recovery(entries: Sequence[RecoveryEntry], removed: Sequence[Path], printer: Printer) -> None:
    """Print what recovery did to each partition; of many on a terminal only where there was something to do.

    `removed` is what killed runs had left elsewhere.
    """
    listed = unlocked(entries)
    is_folded = printer.lines_to_fill is not None and len(listed) > FEW
    shown = [entry for entry in listed if not is_folded or entry.status != NOTHING_TO_DO]
    rows = [
        {
            "partition": cell(entry.directory.name),
            "status": cell(entry.status, "bold red" if entry.error else ""),
            "what": cell("; ".join(_recovery_steps(entry))),
        }
        for entry in shown
    ]
    if rows:
        printer.table(("partition", "status", "what"), rows, whole=("status",))
    for path in removed:
        printer.line(f"removed what a killed run had left: {readable.relative_to_here(readable.safe(str(path)))}")
    if len(shown) < len(listed):
        statuses = [entry.status for entry in entries]
        printer.line(_by_status(sorted(statuses, key=lambda status: status == NOTHING_TO_DO)))


def _recovery_steps(entry: RecoveryEntry) -> list[str]:
    report, steps = entry.report or RecoveryReport(), []
    if report.finished is not None:
        steps.append(f"the swap of segment {report.finished} was finished")
    if report.undone is not None:
        steps.append(f"the swap of segment {report.undone} was undone")
    if report.checkpoint is not None:
        steps.append(f"checkpoint {report.checkpoint} written")
    steps += [f"{name} removed" for name in report.removed_staging]
    if report.broker_files:
        names = f": {', '.join(report.broker_files)}" if len(report.broker_files) <= _MOST_NAMED else ""
        steps.append(f"{readable.counted(len(report.broker_files), 'file')} of a broker renamed or removed{names}")
    steps += [f"{name} left for the broker" for name in report.left_behind]
    return steps


# restore


def show_restore(entries: Sequence[RestoreEntry], printer: Printer) -> None:
    """Print what `restore` did to each partition."""
    rows = [
        {
            "partition": cell(entry.directory.name),
            "status": cell(entry.status, "bold red" if entry.error else ""),
            "files": cell(None if entry.files is None else f"{entry.files:,}"),
            "size": cell(None if entry.size_bytes is None else readable.size(entry.size_bytes)),
            "checkpoint": cell("-" if entry.checkpoint is None else str(entry.checkpoint)),
        }
        for entry in unlocked(entries)
    ]
    if rows:
        printer.table(("partition", "status", "files", "size", "checkpoint"), rows, whole=("status",))
