"""Prints the entries of `cli.entries` for people: the name of each partition or file, and the views of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kcompact import readable
from kcompact.cli.json.recovery import status_of
from kcompact.cli.output import dump
from kcompact.cli.output.printer import Printer
from kcompact.errors import CorruptDataError
from kcompact.views.parts import Cell, Heading, Section, Table, Tone, lines, offset, row
from kcompact.views.sentences import unlocked

_MOST_NAMED = 20
"""So many files are named; of more only the number is shown."""

if TYPE_CHECKING:
    from pathlib import Path

    from kcompact.cli.entries import FileEntry, Inspected, Restored, TopicKeys
    from kcompact.plan.clean_plan import CleanPlan
    from kcompact.plan.walk import Answer, Found
    from kcompact.questions.groups import LogGroups
    from kcompact.questions.keys.counts import LogKeys
    from kcompact.swap.recovery.end import RecoveryReport


# keys


def show_keys(topics: Sequence[TopicKeys], older_than_ms: int | None, printer: Printer, *, print_data: bool) -> None:
    """Print each partition, and each topic with several partitions. `older_than_ms` is the age that was asked for."""
    is_first = True
    for topic in topics:
        for answer in topic.answers:
            if not is_first:
                printer.line()
            is_first = False
            _show_keys_of_partition(answer, older_than_ms, printer, print_data=print_data)
        if len(topic.answers) > 1 and topic.counted.logs:
            from kcompact.views.keys import topic_section

            printer.line()
            counted = len(topic.counted.logs)
            of_all = "" if counted == len(topic.answers) else f" of {len(topic.answers):,}"
            printer.parts([Heading(name=topic.topic, detail=f"{counted:,}{of_all} partitions")])
            names = [each.name for each in topic.incomplete]
            printer.parts(topic_section(topic.counted, incomplete=names, print_data=print_data).parts)


def _show_keys_of_partition(
    answer: Answer[LogKeys], older_than_ms: int | None, printer: Printer, *, print_data: bool
) -> None:
    from kcompact.views import keys
    from kcompact.views.segments import notes

    printer.parts([Heading(name=answer.name, detail=readable.path_from_here(answer.directory))])
    if answer.found is None:
        # The whole error, with the next command, is on standard error.
        message = "nothing can be read" if answer.error is None else readable.relative_to_here(str(answer.error))
        printer.parts([lines(f"not counted: {message.splitlines()[0]}")])
        return
    parts = list(keys.keys_section(answer.found, older_than_ms=older_than_ms, print_data=print_data).parts)
    if answer.plan is not None and answer.found.counts.undecided_records.number:
        parts += [keys.undecided(answer.found, answer.plan), notes(answer.plan)]
    printer.parts(parts)


# inspect, verify, gaps, transactions


def show_inspected(answers: Sequence[Answer[Inspected]], printer: Printer) -> None:
    """Print what was found in each partition."""
    from kcompact.views import segments

    def show(answer: Answer[Inspected], plan: CleanPlan) -> None:
        contents, findings = answer.found or (None, None)
        parts = [*segments.facts_parts(plan, answer), *segments.segments_section(plan, contents).parts]
        parts += [segments.notes(plan), segments.other_files(plan)]
        printer.parts(parts if findings is None else [*parts, segments.findings_part(findings)])
        # The findings name the damage already.
        if findings is None or not isinstance(answer.error, CorruptDataError):
            _show_error(answer, printer)

    _show_each(answers, printer, show)


def show_sections(section: Callable[[Any], Section], answers: Sequence[Answer[Any]], printer: Printer) -> None:
    """Print what was found in each partition; `section` returns that of one."""
    from kcompact.views.segments import notes

    def show(answer: Answer[Any], plan: CleanPlan) -> None:
        parts = [] if answer.found is None else list(section(answer.found).parts)
        if plan.last_stable_offset < plan.log.log_end_offset or plan.log.is_cluster_metadata:
            parts.append(notes(plan))  # They say where the view of a consumer ends, and why.
        printer.parts(parts)
        _show_error(answer, printer)

    _show_each(answers, printer, show)


def _show_each(
    answers: Sequence[Answer[Found]], printer: Printer, show: Callable[[Answer[Found], CleanPlan], None]
) -> None:
    """Print each partition below its name, and the sums of many."""
    from kcompact.views.plans import inspected_parts

    for number, answer in enumerate(answers):
        if number:
            printer.line()
        printer.parts([Heading(name=answer.name, detail=readable.path_from_here(answer.directory))])
        if answer.plan is None:
            _show_error(answer, printer)
        else:
            show(answer, answer.plan)
    if parts := inspected_parts(answers):
        printer.line()
        printer.parts(parts)


def _show_error(answer: Answer[Any], printer: Printer) -> None:
    if answer.error is not None:
        printer.lines(f"  error: {readable.relative_to_here(str(answer.error))}")


def show_file(entry: FileEntry, printer: Printer) -> None:
    """Print what was found in a single file."""
    from kcompact.cli.json.inspect import FILE
    from kcompact.views.segments import VERIFIED

    printer.line(f"{entry.path}: {entry.kind or 'unknown'}, {entry.size_bytes or 0:,} bytes")
    for fields in entry.entries or ():
        printer.line("  " + dump.line(fields))
    if entry.contents is not None:
        counts = {name: value for name, value in FILE.of(entry)["contents"].items() if value is not None}
        printer.line("  " + ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in counts.items()))
    for finding in entry.findings or ():
        location = (("position", finding.position), ("offset", finding.offset))
        where = "".join(f", {name} {value}" for name, value in location if value is not None)
        printer.line(f"  {finding.severity}: {finding.file}{where}: {finding.problem}")
    if entry.findings is not None and not entry.findings:
        printer.line(f"  {VERIFIED}")
    if entry.error:
        printer.lines(f"  error: {entry.error}")


# groups


def show_groups(answers: Sequence[Answer[LogGroups]], printer: Printer) -> None:
    """Print the groups of all partitions in one table, and the totals."""
    from kcompact.views.groups import groups_parts

    read = [(each.name.rpartition("-")[2], each.found) for each in answers if each.found is not None]
    if read:
        printer.parts(groups_parts(read))


# recover, restore


def show_recovery(entries: Sequence[Answer[RecoveryReport]], removed: Sequence[Path], printer: Printer) -> None:
    """Print what recovery did to each partition; of many on a terminal only where there was something to do.

    `removed` is what killed runs had left elsewhere.
    """
    from kcompact.swap.recovery.end import RecoveryReport
    from kcompact.views.outcome import FEW, by_status

    listed = unlocked(entries)
    is_folded = printer.lines_to_fill is not None and len(listed) > FEW
    nothing = RecoveryReport().status
    shown = [entry for entry in listed if not is_folded or status_of(entry) != nothing]
    table = Table(
        columns=("partition", "status", "what"),
        rows=tuple(
            row(entry.directory.name, _status(entry), "; ".join(_recovery_steps(entry.found or RecoveryReport())))
            for entry in shown
        ),
        whole=("status",),
    )
    paths = [readable.relative_to_here(readable.safe(str(path))) for path in removed]
    closing_lines = [f"removed what a killed run had left: {path}" for path in paths]
    if len(shown) < len(listed):
        closing_lines.append(by_status(sorted(map(status_of, entries), key=lambda status: status == nothing)))
    printer.parts([*([table] if shown else []), lines(*closing_lines, is_close=True, is_indented=False)])


def _status(entry: Answer[RecoveryReport] | Answer[Restored]) -> Cell:
    return Cell(text=status_of(entry), tone=Tone.BAD if entry.error else None)


def _recovery_steps(report: RecoveryReport) -> list[str]:
    steps = []
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


def show_restore(entries: Sequence[Answer[Restored]], printer: Printer) -> None:
    """Print what `restore` did to each partition."""
    listed = unlocked(entries)
    table = Table(
        columns=("partition", "status", "files", "size", "checkpoint"),
        rows=tuple(
            row(
                entry.directory.name,
                _status(entry),
                entry.found and entry.found.files,
                entry.found and readable.size(entry.found.size_bytes),
                entry.found and offset(entry.found.checkpoint),
            )
            for entry in listed
        ),
        whole=("status",),
    )
    printer.parts([table] if listed else [])
